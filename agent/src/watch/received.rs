//! How much the API server sends, by resource: a layer around the client that counts the bytes of
//! answers as they are read.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Buf;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tower::Layer;
use tower::Service;

use crate::convert::Kind;

/// What is asked for; the label of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Resource {
    Services,
    EndpointSlices,
    Nodes,
    ServiceCidrs,
}

impl Resource {
    pub(crate) const ALL: [Resource; 4] =
        [Self::Services, Self::EndpointSlices, Self::Nodes, Self::ServiceCidrs];

    /// As the API spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::EndpointSlices => "endpointslices",
            Self::Nodes => "nodes",
            Self::ServiceCidrs => "servicecidrs",
        }
    }

    /// Where the API has it.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Services => "/api/v1/services",
            Self::EndpointSlices => "/apis/discovery.k8s.io/v1/endpointslices",
            Self::Nodes => "/api/v1/nodes",
            Self::ServiceCidrs => "/apis/networking.k8s.io/v1/servicecidrs",
        }
    }

    /// What its objects are.
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Services => Kind::Service,
            Self::EndpointSlices => Kind::EndpointSlice,
            Self::Nodes => Kind::Node,
            Self::ServiceCidrs => Kind::ServiceCidr,
        }
    }

    /// What a path lists or watches.
    fn of_path(path: &str) -> Option<Self> {
        let last = path.rsplit('/').next()?;
        Self::ALL.into_iter().find(|resource| resource.name() == last)
    }
}

/// Bytes of answers so far, headers not counted. Clones count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Received(Arc<[AtomicU64; Resource::ALL.len()]>);

impl Received {
    /// All bytes of lists and watches of a resource.
    pub(crate) fn bytes(&self, resource: Resource) -> u64 {
        self.0[resource as usize].load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn of(resource: Resource, bytes: usize) -> Self {
        let received = Self::default();
        received.add(resource, bytes);
        received
    }

    fn add(&self, resource: Resource, bytes: usize) {
        self.0[resource as usize].fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl fmt::Display for Received {
    /// Such as `services=1024,endpointslices=0,nodes=0,servicecidrs=0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, resource) in Resource::ALL.into_iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{}={}", resource.name(), self.bytes(resource))?;
        }
        Ok(())
    }
}

impl<S> Layer<S> for Received {
    type Service = Counting<S>;

    fn layer(&self, inner: S) -> Counting<S> {
        Counting { inner, received: self.clone() }
    }
}

/// A client whose answers are counted.
#[derive(Debug)]
pub(crate) struct Counting<S> {
    inner: S,
    received: Received,
}

impl<S, Q, B> Service<Request<Q>> for Counting<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    B: 'static,
{
    type Response = Response<Counted<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let count = Resource::of_path(request.uri().path())
            .map(|resource| (self.received.clone(), resource));
        let answer = self.inner.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| Counted { body, count })) })
    }
}

/// An answer that is counted as it is read.
#[derive(Debug)]
pub(crate) struct Counted<B> {
    body: B,
    count: Option<(Received, Resource)>,
}

impl<B: Body + Unpin> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some((received, resource)) = &this.count
            && let Some(data) = frame.data_ref()
        {
            received.add(*resource, data.remaining());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_of_the_resource_it_ends_in() {
        for (path, want) in [
            ("/api/v1/services", Some(Resource::Services)),
            ("/api/v1/nodes", Some(Resource::Nodes)),
            ("/apis/discovery.k8s.io/v1/endpointslices", Some(Resource::EndpointSlices)),
            ("/apis/networking.k8s.io/v1/servicecidrs", Some(Resource::ServiceCidrs)),
            ("/api/v1/pods", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(Resource::of_path(path), want, "{path}");
        }
    }

    #[tokio::test]
    async fn bytes_are_counted_as_they_are_read_and_clones_count_together() {
        struct Answers;

        impl Service<Request<()>> for Answers {
            type Response = Response<kube::client::Body>;
            type Error = std::convert::Infallible;
            type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
                Poll::Ready(Ok(()))
            }
            fn call(&mut self, _: Request<()>) -> Self::Future {
                std::future::ready(Ok(Response::new(vec![0; 100].into())))
            }
        }

        let received = Received::default();
        let mut client = received.layer(Answers);
        for path in ["/api/v1/services", "/api/v1/services", "/api/v1/nodes", "/version"] {
            let request = Request::builder().uri(path).body(()).unwrap();
            let mut body = client.call(request).await.unwrap().into_body();
            let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            assert_eq!(frame.await.unwrap().unwrap().into_data().unwrap().len(), 100);
        }
        let want = "services=200,endpointslices=0,nodes=100,servicecidrs=0";
        assert_eq!(received.to_string(), want);
    }
}
