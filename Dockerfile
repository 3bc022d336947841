# The agent's image: one static binary, no shell, no nft.
FROM rust:1.95-bookworm AS build
WORKDIR /zoneward
COPY . .
# glibc linked in: the final stage has no libraries.
ENV RUSTFLAGS="-C target-feature=+crt-static"
RUN cargo build --locked --profile dist --target x86_64-unknown-linux-gnu -p zoneward \
    && cp target/x86_64-unknown-linux-gnu/dist/zoneward /zoneward/zoneward

FROM scratch
# `kubectl exec POD -- zoneward …` finds it.
ENV PATH=/
COPY --from=build /zoneward/zoneward /zoneward
ENTRYPOINT ["/zoneward"]
CMD ["check"]
