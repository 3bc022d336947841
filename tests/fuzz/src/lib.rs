//! What the fuzz targets run: one function each, from any bytes, which may refuse but never panic.
//!
//! The agent is a program and offers no library. Its readers are compiled in here from their files, so
//! that nothing of the agent becomes public for the sake of this crate. A new reader is a `mod` line here
//! and a function, a file in `targets`, a `[[bin]]` in Cargo.toml, a number of executions in .ci/fuzz and a
//! folder in `corpus`, or in `hex` where they are no text.
#![allow(dead_code, unused_imports, reason = "the agent uses more of its modules than one reader")]

/// The agent's modules, at their places.
#[path = "../../../agent/src"]
mod agent {
    pub(crate) mod config;
    pub(crate) mod convert;
    pub(crate) mod protobuf;
    pub(crate) mod state;
    pub(crate) mod watch {
        pub(crate) mod decode;
    }
}

use std::path::Path;

use bytes::BytesMut;
use zw_netlink::nft::{parse_notice, reply};

// As the modules call each other.
use agent::{config, convert, protobuf, state};

use agent::watch::decode::{Decoder, Form, ListDecoder, WatchDecoder};
use config::{ConfigFile, Flags};
use convert::{Content, Decoded, Kind, decode};

/// A datagram from the kernel: every parser over every message.
pub fn netlink(datagram: &[u8]) {
    for message in reply::parse_messages(datagram).flatten() {
        let _ = reply::parse_ack(&message);
        let _ = reply::parse_table(&message);
        let _ = reply::parse_set(&message);
        let _ = reply::parse_chain(&message);
        let _ = reply::parse_rule(&message);
        let _ = zw_netlink::nft::parse_trace(&message);
        let _ = reply::parse_generation(&message);
        let _ = reply::parse_elements(&message, &mut |_| {});
        let _ = parse_notice(&message, "zoneward");
        let _ = zw_netlink::ct::parse_entry(&message);
    }
}

/// A manifest file. What is wrong with it is told on one line each, whatever it holds.
pub fn state(text: &str) {
    let mut complaints = Vec::new();
    let (objects, _) = state::read_objects(Path::new("any.yaml"), text, &mut complaints);
    for complaint in complaints {
        let line = complaint.to_string();
        assert!(!line.contains(char::is_control), "{line:?}");
    }
    for (id, object) in objects {
        assert_eq!(id, object.id);
    }
}

/// A configuration file. One that is taken can be shown, and what is shown is one that is taken.
pub fn config(text: &str) {
    let file = ConfigFile::new(None, Flags { node_name: Some("node".into()), ..Flags::default() });
    match file.parse(text) {
        Ok(loaded) => {
            let shown = loaded.config.show()["kubeproxy.config.k8s.io"].to_string();
            if let Err(error) = file.parse(&shown) {
                panic!("{error}: {shown}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

const KINDS: [Kind; 4] = [Kind::Service, Kind::EndpointSlice, Kind::Node, Kind::ServiceCidr];

/// An answer of the API server in JSON: a list, events of a watch, or a single object.
pub fn watch(json: &str) {
    answer(Form::Json, json.as_bytes());
    KINDS.into_iter().for_each(|kind| object(kind, convert::Form::Json(json)));
}

/// The same in protocol buffers.
pub fn protobuf(bytes: &[u8]) {
    answer(Form::Protobuf, bytes);
    KINDS.into_iter().for_each(|kind| object(kind, convert::Form::Protobuf(bytes)));
}

fn answer(form: Form, bytes: &[u8]) {
    for kind in KINDS {
        let _ = form.refusal(500, bytes);
        read(ListDecoder::new(form, kind), bytes);
        read(WatchDecoder::new(form, kind), bytes);
    }
}

/// In two pieces, as it may come in.
fn read(mut decoder: impl Decoder, bytes: &[u8]) {
    let mut buffer = BytesMut::new();
    let (head, tail) = bytes.split_at(bytes.len() / 2);
    for (piece, ended) in [(head, false), (tail, false), (&[][..], true)] {
        buffer.extend_from_slice(piece);
        while let Ok(Some(_)) = decoder.decode(&mut buffer, ended) {}
    }
}

fn object(kind: Kind, form: convert::Form<'_>) {
    let Decoded { content, .. } = decode(kind, form);
    if let Content::Good(object, _) = content {
        assert_eq!(object.id.kind, kind);
    }
}
