# The agent's image: one static binary, no shell, no nft.
FROM rust:1.95-bookworm AS build
WORKDIR /zoneward
COPY . .
# glibc linked in: the final stage has no libraries.
ENV RUSTFLAGS="-C target-feature=+crt-static"
# A target by name keeps these flags from programs of the build itself.
RUN target="$(rustc -vV | sed -n 's/^host: //p')" \
    && cargo build --locked --profile dist --target "$target" -p zoneward \
    && cp "target/$target/dist/zoneward" /zoneward/zoneward

FROM scratch
# `kubectl exec POD -- zoneward …` finds it.
ENV PATH=/
COPY --from=build /zoneward/zoneward /zoneward
ENTRYPOINT ["/zoneward"]
CMD ["check"]
