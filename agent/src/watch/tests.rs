//! What a watch makes of a server's answers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::config::ContentType;
use crate::convert::Content;
use crate::protobuf::write::{self, SERVICE, STATUS, encode};

/// An answer's body, and how it ends.
struct Chunks {
    left: VecDeque<Bytes>,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Proper,
    Broken,
    /// It does not.
    Never,
}

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match (self.left.pop_front(), self.end) {
            (Some(chunk), _) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
            (None, End::Proper) => Poll::Ready(None),
            (None, End::Broken) => {
                Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into())))
            }
            (None, End::Never) => Poll::Pending,
        }
    }
}

/// A server that answers as it was told to, one request after the other; then it knows nothing.
#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    answers: VecDeque<Response<Chunks>>,
    /// Query and Accept header of each request.
    asked: Vec<(String, String)>,
}

impl tower::Service<Request<kube::client::Body>> for Scripted {
    type Response = Response<Chunks>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Chunks>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let mut script = self.0.lock().unwrap();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let accept = request.headers()[http::header::ACCEPT].to_str().unwrap().to_owned();
        script.asked.push((query, accept));
        let status = json!({"message": "the server could not find the requested resource"});
        let unknown = || answer(404, Form::Json, vec![status.to_string().into()], End::Proper);
        ready(Ok(script.answers.pop_front().unwrap_or_else(unknown)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Protobuf,
}

fn answer(code: u16, form: Form, body: Vec<Vec<u8>>, end: End) -> Response<Chunks> {
    let content_type = match form {
        Form::Json => "application/json",
        Form::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
    };
    let left = body.into_iter().map(Bytes::from).collect();
    let answer = Response::builder().status(code).header("content-type", content_type);
    answer.body(Chunks { left, end }).unwrap()
}

fn service(name: &str, version: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "web", "resourceVersion": version},
        "spec": {"clusterIP": "10.96.0.1"},
    })
}

impl Form {
    fn list(self, version: &str, next: &str, items: &[Value]) -> Response<Chunks> {
        let body = match self {
            Form::Json => {
                let metadata = json!({"resourceVersion": version, "continue": next});
                json!({"metadata": metadata, "items": items}).to_string().into_bytes()
            }
            Form::Protobuf => {
                let items: Vec<_> =
                    items.iter().map(|item| encode(SERVICE, item).unwrap()).collect();
                write::list(version, next, &items)
            }
        };
        answer(200, self, body.chunks(10).map(<[u8]>::to_vec).collect(), End::Proper)
    }

    fn watch(self, events: &[(&str, Value)], end: End) -> Response<Chunks> {
        let event = |(name, object): &(&str, Value)| match self {
            Form::Json => format!("{}\n", json!({"type": name, "object": object})).into_bytes(),
            Form::Protobuf => {
                let message = if *name == "ERROR" { STATUS } else { SERVICE };
                write::event(name, &write::envelope("", &encode(message, object).unwrap()))
            }
        };
        answer(200, self, events.iter().map(event).collect(), end)
    }
}

/// What a watch of Services says, in a line each, and what it asked: up to so many lines.
async fn told(
    script: Vec<Response<Chunks>>,
    content_type: ContentType,
    lines: usize,
) -> (Vec<String>, Vec<(String, String)>) {
    let server = Scripted::default();
    server.0.lock().unwrap().answers = script.into();
    let client = Client::new(server.clone(), "default");
    let (mut watches, mut seen) = Watches::new(Server::new(client, content_type));
    let _watch = watches.services();
    let mut told = Vec::new();
    while told.len() < lines {
        let next = timeout(Duration::from_secs(600), seen.recv()).await;
        told.push(match next.expect("in time").expect("the watch runs").event {
            StreamEvent::Begin => "begin".to_owned(),
            StreamEvent::Complete(version) => format!("complete {version}"),
            StreamEvent::Apply(Wire { content: Content::Good(object, _), version }) => {
                format!("+ {} {version}", object.id)
            }
            StreamEvent::Delete(id, version) => format!("- {id} {version}"),
            StreamEvent::Told(version) => format!("at {version}"),
            other => format!("{other:?}"),
        });
    }
    // It asks on while nobody listens; what was asked until all was told is what counts.
    let asked = std::mem::take(&mut server.0.lock().unwrap().asked);
    (told, asked)
}

fn versions(asked: &[(String, String)]) -> Vec<String> {
    let part = |query: &str, name: &str| {
        let found = query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        found.map(str::to_owned)
    };
    let of = |(query, _): &(String, String)| match part(query, "watch") {
        None => format!("list {}", part(query, "continue").unwrap_or_default()),
        Some(_) => format!("watch {}", part(query, "resourceVersion").unwrap_or_default()),
    };
    asked.iter().map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn pages_are_one_list_and_the_watch_goes_on_from_there() {
    for form in [Form::Json, Form::Protobuf] {
        let script = vec![
            form.list("10", "more", &[service("a", "7")]),
            form.list("10", "", &[service("b", "8")]),
            form.watch(&[("ADDED", service("c", "11"))], End::Proper),
            form.watch(
                &[("BOOKMARK", json!({"metadata": {"resourceVersion": "20"}}))],
                End::Proper,
            ),
            form.watch(&[("DELETED", service("a", "21"))], End::Never),
        ];
        let (told, asked) = told(script, ContentType::Protobuf, 7).await;
        let want = [
            "begin",
            "+ Service web/a 7",
            "+ Service web/b 8",
            "complete 10",
            "+ Service web/c 11",
            "at 20",
            "- Service web/a 21",
        ];
        assert_eq!(told, want, "{form:?}");
        assert_eq!(versions(&asked), ["list ", "list more", "watch 10", "watch 11", "watch 20"]);
        for (query, accept) in asked {
            assert_eq!(accept, "application/vnd.kubernetes.protobuf,application/json");
            assert!(query.contains("labelSelector=%21service.kubernetes.io%2Fservice-proxy-name"));
            assert!(query.contains("fieldSelector=spec.clusterIP%21%3DNone"), "{query}");
        }
    }
}

/// What is read as it comes is asked for whole; what has to be kept as a whole, in pages.
#[tokio::test(start_paused = true)]
async fn only_json_is_asked_for_in_pages() {
    for (content_type, in_pages) in [(ContentType::Json, true), (ContentType::Protobuf, false)] {
        let script = vec![Form::Json.list("10", "", &[])];
        let (_, asked) = told(script, content_type, 2).await;
        assert_eq!(asked[0].0.contains("limit=10000"), in_pages, "{}", asked[0].0);
        assert_eq!(asked[0].0.contains("limit"), in_pages, "{}", asked[0].0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_the_server_has_forgotten_means_to_list_again() {
    for form in [Form::Json, Form::Protobuf] {
        let gone = json!({"status": "Failure", "message": "too old resource version", "code": 410});
        let refused = answer(410, Form::Json, vec![gone.to_string().into()], End::Proper);
        let script = vec![
            form.list("10", "", &[]),
            form.watch(&[("ERROR", gone)], End::Proper),
            form.list("30", "", &[service("a", "25")]),
            refused,
            form.list("40", "", &[]),
            form.watch(&[("ADDED", service("b", "41"))], End::Never),
        ];
        let (told, asked) = told(script, ContentType::Protobuf, 8).await;
        let want = ["begin", "complete 10", "begin", "+ Service web/a 25", "complete 30", "begin"];
        assert_eq!(told[..6], want, "{form:?}");
        assert_eq!(told[6..], ["complete 40", "+ Service web/b 41"], "{form:?}");
        let want = ["list ", "watch 10", "list ", "watch 30", "list ", "watch 40"];
        assert_eq!(versions(&asked), want, "{form:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_goes_on_where_it_was() {
    for form in [Form::Json, Form::Protobuf] {
        let script = vec![
            form.list("10", "", &[]),
            form.watch(&[("ADDED", service("a", "11"))], End::Broken),
            // Half an event.
            answer(200, form, vec![b"\0\0\0\x09".to_vec()], End::Proper),
            form.watch(&[("ADDED", service("b", "12"))], End::Never),
        ];
        let (told, asked) = told(script, ContentType::Protobuf, 4).await;
        assert_eq!(told, ["begin", "complete 10", "+ Service web/a 11", "+ Service web/b 12"]);
        assert_eq!(versions(&asked), ["list ", "watch 10", "watch 11", "watch 11"], "{form:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_answer_now_is_not_asked_for_everything() {
    for form in [Form::Json, Form::Protobuf] {
        let refused = |code| answer(code, Form::Json, vec![b"not now".to_vec()], End::Proper);
        let passing = [401, 403, 429, 500, 502, 503];
        let mut script = vec![form.list("10", "", &[])];
        script.extend(passing.map(refused));
        script.push(form.watch(&[("ADDED", service("a", "11"))], End::Proper));
        // A version that it never had, and an event that it cannot tell.
        script.extend([refused(504), form.list("5", "", &[])]);
        let broken = json!({"status": "Failure", "message": "unable to decode", "code": 500});
        script.push(form.watch(&[("ERROR", broken)], End::Proper));
        script.push(form.list("6", "", &[]));
        let (told, asked) = told(script, ContentType::Protobuf, 7).await;
        let want = [
            "begin",
            "complete 10",
            "+ Service web/a 11",
            "begin",
            "complete 5",
            "begin",
            "complete 6",
        ];
        assert_eq!(told, want, "{form:?}");
        let asked = versions(&asked);
        assert_eq!(asked[..8], [&["list "][..], &["watch 10"; 7]].concat(), "{form:?}");
        assert_eq!(asked[8..12], ["watch 11", "list ", "watch 5", "list "], "{form:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_begun_anew() {
    for form in [Form::Json, Form::Protobuf] {
        let nonsense = || answer(200, form, vec![b"nonsense".to_vec()], End::Proper);
        let script = vec![
            nonsense(),
            form.list("10", "more", &[service("a", "7")]),
            answer(200, form, vec![b"k8".to_vec()], End::Broken),
            form.list("", "", &[]),
            form.list("10", "", &[service("a", "7")]),
            nonsense(),
            // The rest of a frame or of a line is nobody's version: everything is asked for again.
            form.list("11", "", &[]),
        ];
        let (told, asked) = told(script, ContentType::Protobuf, 7).await;
        let a = "+ Service web/a 7";
        assert_eq!(told, ["begin", "begin", a, "begin", "begin", a, "complete 10"], "{form:?}");
        assert_eq!(versions(&asked)[..5], ["list ", "list ", "list more", "list ", "list "]);
    }
}

#[tokio::test(start_paused = true)]
async fn json_alone_is_asked_for_where_that_is_wanted() {
    let script = vec![Form::Json.list("10", "", &[])];
    let (_, asked) = told(script, ContentType::Json, 2).await;
    assert_eq!(asked[0].1, "application/json");
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_the_server_does_not_know_is_empty_only_where_servers_may_lack_it() {
    let server = Server::new(Client::new(Scripted::default(), "default"), ContentType::Protobuf);
    let (mut watches, mut seen) = Watches::new(server);
    // Watches that the server must know come first, so what they wrongly said would be there.
    let needed = [watches.services(), watches.node("node-1")];
    let optional = watches.service_cidrs();
    loop {
        let next = timeout(Duration::from_secs(60), seen.recv()).await;
        let Seen { stream, event } = next.expect("in time").expect("the watches run");
        match event {
            StreamEvent::Complete(_) => {
                assert_eq!(stream, optional.id, "of {needed:?}");
                return;
            }
            StreamEvent::Begin => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Not in pages: those are the server's whole cache in one answer, and JSON is kept as a whole.
#[tokio::test(start_paused = true)]
async fn only_the_first_list_may_come_from_a_cache_that_is_behind() {
    for (content_type, first) in [(ContentType::Protobuf, true), (ContentType::Json, false)] {
        let gone = || answer(410, Form::Json, vec![b"gone".to_vec()], End::Proper);
        let script = vec![
            Form::Json.list("10", "", &[]),
            gone(),
            Form::Json.list("20", "", &[]),
            gone(),
            Form::Json.list("30", "", &[]),
        ];
        let (_, asked) = told(script, content_type, 6).await;
        let lists = asked.iter().filter(|(query, _)| !query.contains("watch="));
        let from_cache: Vec<bool> =
            lists.map(|(query, _)| query.contains("resourceVersion=0")).collect();
        assert_eq!(from_cache, [first, false, false], "{content_type:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn slices_for_another_place_are_not_older_than_those_that_are_known() {
    let script = Scripted::default();
    let server = Server::new(Client::new(script.clone(), "default"), ContentType::Protobuf);
    let (mut watches, mut seen) = Watches::new(server);
    for first in [true, false] {
        let watching = watches.slices(&Place::default());
        // The script is at its end: it is refused, and asked again.
        for _ in 0..2 {
            seen.recv().await.unwrap();
        }
        drop(watching);
        let asked = std::mem::take(&mut script.0.lock().unwrap().asked);
        assert!(!asked.is_empty());
        for (query, _) in asked {
            assert_eq!(query.contains("resourceVersion=0"), first, "{query}");
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
    assert_eq!(request::with_causes(&client), want);
}
