//! Lists and watches in both forms, whole and in pieces.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::convert::Content;
use crate::protobuf::write::{self, SERVICE, STATUS, encode};

const FORMS: [Form; 2] = [Form::Json, Form::Protobuf];

fn service(name: &str, version: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "web", "resourceVersion": version},
        "spec": {"clusterIP": "10.96.0.1"},
    })
}

fn list(form: Form, items: &[Value]) -> Vec<u8> {
    match form {
        Form::Json => json!({
            "kind": "ServiceList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "9", "continue": "more"},
            "items": items,
        })
        .to_string()
        .into_bytes(),
        Form::Protobuf => {
            let items: Vec<_> = items.iter().map(|item| encode(SERVICE, item).unwrap()).collect();
            write::list("9", "more", &items)
        }
    }
}

fn event(form: Form, name: &str, object: &Value) -> Vec<u8> {
    match form {
        Form::Json => format!("{}\n", json!({"type": name, "object": object})).into_bytes(),
        Form::Protobuf => {
            let message = if name == "ERROR" { STATUS } else { SERVICE };
            write::event(name, &write::envelope("", &encode(message, object).unwrap()))
        }
    }
}

/// What comes of bytes that arrive in pieces, in a line each.
fn told<D: Decoder<Part: Told>>(mut decoder: D, pieces: &[&[u8]]) -> Vec<String> {
    let mut buffer = BytesMut::new();
    let mut lines = Vec::new();
    for (i, piece) in pieces.iter().chain([&&[][..]]).enumerate() {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buffer, i == pieces.len()) {
                Ok(Some(part)) => lines.push(part.told()),
                Ok(None) => break,
                Err(error) => {
                    lines.push(error.to_string());
                    return lines;
                }
            }
        }
    }
    lines
}

trait Told {
    fn told(self) -> String;
}

impl Told for Decoded {
    fn told(self) -> String {
        let version = self.version.unwrap_or_default();
        match self.content {
            Content::Good(object, problems) => {
                format!("{} {version} {}", object.id, problems.len())
            }
            Content::Bad(Some(id), problem) => format!("{id} {version} bad: {problem}"),
            Content::Bad(None, problem) => format!("nobody {version} bad: {problem}"),
        }
    }
}

impl Told for ListPart {
    fn told(self) -> String {
        match self {
            Self::Object(object) => object.told(),
            Self::About(ListMeta { version, next }) => format!("version {version}, next {next:?}"),
        }
    }
}

impl Told for WatchPart {
    fn told(self) -> String {
        match self {
            Self::Apply(object) => format!("+ {}", object.told()),
            Self::Delete(object) => format!("- {}", object.told()),
            Self::Bookmark(version) => format!("at {}", version.unwrap_or_default()),
            Self::Error(refusal) => refusal.to_string(),
        }
    }
}

fn list_told(form: Form, pieces: &[&[u8]]) -> Vec<String> {
    told(ListDecoder::new(form, Kind::Service), pieces)
}

fn watch_told(form: Form, pieces: &[&[u8]]) -> Vec<String> {
    told(WatchDecoder::new(form, Kind::Service), pieces)
}

#[test]
fn the_content_type_tells_the_form() {
    for (text, want) in [
        ("application/vnd.kubernetes.protobuf", Form::Protobuf),
        ("application/vnd.kubernetes.protobuf;stream=watch", Form::Protobuf),
        ("Application/Vnd.Kubernetes.Protobuf ; stream=watch", Form::Protobuf),
        ("application/json", Form::Json),
        ("application/json;stream=watch", Form::Json),
        ("text/html", Form::Json),
        ("", Form::Json),
    ] {
        assert_eq!(Form::of(text), want, "{text}");
    }
}

#[test]
fn a_list_is_its_objects_and_where_it_goes_on() {
    for form in FORMS {
        let bytes = list(form, &[service("a", "7"), service("b", "8")]);
        let want = [r#"version 9, next "more""#, "Service web/a 7 0", "Service web/b 8 0"];
        assert_eq!(list_told(form, &[&bytes]), want, "{form:?}");
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(list_told(form, &single), want, "{form:?}, byte by byte");
    }
}

#[test]
fn an_empty_list_is_one() {
    for form in FORMS {
        assert_eq!(list_told(form, &[&list(form, &[])]), [r#"version 9, next "more""#], "{form:?}");
    }
}

#[test]
fn an_odd_object_costs_itself_and_not_the_list() {
    let odd = r#"{"metadata": {"name": "b", "namespace": "web", "resourceVersion": "8"},
        "spec": {"ports": "none"}}"#;
    let good = service("a", "7").to_string();
    let json = format!(
        r#"{{"metadata": {{"resourceVersion": "9"}}, "items": [{good}, {odd}, 5, {{}}, {good}]}}"#
    );
    let lines = list_told(Form::Json, &[json.as_bytes()]);
    assert_eq!(lines.len(), 6);
    assert_eq!((&*lines[1], &*lines[5]), ("Service web/a 7 0", "Service web/a 7 0"));
    let said = "Service web/b 8 bad: spec.ports: invalid type: string \"none\"";
    assert!(lines[2].starts_with(said), "{}", lines[2]);
    assert!(lines[3].starts_with("nobody  bad: "), "{}", lines[3]);
    assert_eq!(lines[4], "nobody  bad: metadata.name: missing");

    let good = encode(SERVICE, &service("a", "7")).unwrap();
    let mut odd = encode(SERVICE, &json!({"metadata": service("b", "8")["metadata"]})).unwrap();
    write::tagged(&mut odd, 2, b"\x1a\x01\xff");
    let items = [good.clone(), odd, b"\xff".to_vec(), vec![], good];
    assert_eq!(
        list_told(Form::Protobuf, &[&write::list("9", "", &items)])[1..],
        [
            "Service web/a 7 0",
            "Service web/b 8 bad: spec.clusterIP: not UTF-8",
            "nobody  bad: .: it ends in the middle of a field",
            "nobody  bad: metadata.name: missing",
            "Service web/a 7 0",
        ]
    );
}

#[test]
fn a_list_that_breaks_off_is_none() {
    for form in FORMS {
        let bytes = list(form, &[service("a", "7")]);
        for len in 0..bytes.len() - 5 {
            let lines = list_told(form, &[&bytes[..len]]);
            let last = lines.last().unwrap();
            assert!(last.starts_with("cannot read the answer: "), "{form:?} {len}: {lines:?}");
        }
    }
}

#[test]
fn a_watch_is_its_events() {
    for form in FORMS {
        let bookmark = json!({"metadata": {"resourceVersion": "20"}});
        let gone = json!({"status": "Failure", "message": "too old", "code": 410});
        let bytes = [
            event(form, "ADDED", &service("a", "7")),
            event(form, "MODIFIED", &service("a", "8")),
            event(form, "DELETED", &service("a", "9")),
            event(form, "BOOKMARK", &bookmark),
            event(form, "SURPRISE", &service("a", "10")),
            event(form, "ERROR", &gone),
        ]
        .concat();
        let want = [
            "+ Service web/a 7 0",
            "+ Service web/a 8 0",
            "- Service web/a 9 0",
            "at 20",
            "too old (410)",
        ];
        assert_eq!(watch_told(form, &[&bytes]), want, "{form:?}");
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(watch_told(form, &single), want, "{form:?}, byte by byte");
    }
}

#[test]
fn an_odd_object_costs_itself_and_not_the_watch() {
    let json = b"{\"type\": \"ADDED\", \"object\": 5}\n\n";
    let lines = watch_told(Form::Json, &[json, &event(Form::Json, "ADDED", &service("a", "7"))]);
    assert!(lines[0].starts_with("+ nobody  bad: "), "{lines:?}");
    assert_eq!(lines[1], "+ Service web/a 7 0");

    let odd = write::event("ADDED", b"no envelope");
    let good = event(Form::Protobuf, "ADDED", &service("a", "7"));
    assert_eq!(
        watch_told(Form::Protobuf, &[&odd, &good]),
        ["+ nobody  bad: .: it does not begin with k8s", "+ Service web/a 7 0"]
    );
}

#[test]
fn a_watch_that_makes_no_sense_is_told() {
    let lines = watch_told(Form::Json, &[b"<html>\n"]);
    assert!(lines[0].starts_with("cannot read the answer: "), "{lines:?}");
    let lines = watch_told(Form::Protobuf, &[b"\0\0\0\x01\xff"]);
    assert_eq!(lines, ["cannot read the answer: it ends in the middle of a field"]);
    let lines = watch_told(Form::Protobuf, &[b"\xff\xff\xff\xff"]);
    assert_eq!(lines, ["cannot read the answer: a field says that it has 4294967295 bytes"]);
}

#[test]
fn a_refusal_is_in_the_servers_words_or_in_whosever_it_was() {
    let status = json!({"status": "Failure", "message": "services is forbidden", "code": 403});
    let protobuf = write::envelope("Status", &encode(STATUS, &status).unwrap());
    for (form, body) in [
        (Form::Json, status.to_string().into_bytes()),
        (Form::Protobuf, protobuf),
        (Form::Json, b" services is forbidden\n".to_vec()),
        (Form::Protobuf, b"services is forbidden".to_vec()),
    ] {
        let want = Refusal { code: 403, message: "services is forbidden".into() };
        assert_eq!(form.refusal(403, &body), want, "{form:?}");
    }
}

/// How answers begin that get further than to their first byte.
const PREFIXES: &[&[u8]] = &[b"", b"k8s\0", b"\0\0\0\x10", b"k8s\0\x12\x20"];

proptest! {
    #[test]
    fn no_bytes_are_too_strange(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cut in 0usize..200,
        prefix in prop::sample::select(PREFIXES),
    ) {
        let bytes = [prefix, &bytes].concat();
        let (head, tail) = bytes.split_at(cut.min(bytes.len()));
        for form in FORMS {
            let (whole, cut) = (list_told(form, &[&bytes]), list_told(form, &[head, tail]));
            prop_assert_eq!(whole, cut, "in pieces it is the same");
            let (whole, cut) = (watch_told(form, &[&bytes]), watch_told(form, &[head, tail]));
            prop_assert_eq!(whole, cut, "in pieces it is the same");
        }
    }
}
