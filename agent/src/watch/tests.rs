//! What a watch makes of a server's answers.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use tokio::time::timeout;
use tower_service::Service as _;

use super::*;

/// A server that knows nothing: 404 for whatever it is asked.
struct KnowsNothing;

impl tower_service::Service<Request<Body>> for KnowsNothing {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let status = r#"{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "the server could not find the requested resource", "reason": "NotFound",
            "code": 404}"#;
        let answer = Response::builder().status(404).body(status.as_bytes().to_vec().into());
        ready(Ok(answer.expect("it is valid")))
    }
}

#[tokio::test]
async fn a_resource_that_the_server_does_not_know_is_empty_only_where_servers_may_lack_it() {
    assert!(KnowsNothing.call(Request::new(Body::empty())).await.unwrap().status() == 404);
    let (mut watches, mut seen) = Watches::new(Client::new(KnowsNothing, "default"));
    // Watches that the server must know come first, so what they wrongly said would be there.
    let needed = [watches.services(), watches.node("node-1")];
    let optional = watches.service_cidrs();
    loop {
        let next = timeout(Duration::from_secs(60), seen.recv()).await;
        let Seen { stream, event } = next.expect("in time").expect("the watches run");
        match event {
            StreamEvent::Complete => {
                assert_eq!(stream, optional.id, "of {needed:?}");
                return;
            }
            StreamEvent::Begin => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_cause_of_a_failure_is_told_once() {
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Failure(&'static str, #[source] Option<Box<Failure>>);

    let refused = Failure("Connection refused", None);
    let connect = Failure("tcp connect error: Connection refused", Some(Box::new(refused)));
    let client = Failure("client error (Connect)", Some(Box::new(connect)));
    let want = "client error (Connect): tcp connect error: Connection refused";
    assert_eq!(with_causes(&client), want);
}
