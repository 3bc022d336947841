//! What the fuzz targets run: one function each, from any bytes, which may refuse but never panic.
//!
//! The agent is a program and offers no library. Its readers are compiled in here from their files, so
//! that nothing of the agent becomes public for the sake of this crate. A new reader is a `mod` line here
//! and a function, a file in `targets`, a `[[bin]]` in Cargo.toml, a number of executions in .ci/fuzz and a
//! folder in `corpus`.
#![allow(dead_code, unused_imports, reason = "the agent uses more of its modules than one reader")]

/// The agent's modules, at their places.
#[path = "../../../agent/src"]
mod agent {
    pub(crate) mod config;
    pub(crate) mod convert;
    pub(crate) mod state;
    pub(crate) mod watch {
        pub(crate) mod wire;
    }
}

use std::path::Path;

use kube::core::{ObjectList, WatchEvent};
use serde::de::DeserializeOwned;
use zw_netlink::nft::{parse_notice, reply};

// As the modules call each other.
use agent::{config, convert, state};

use agent::watch::wire::{EndpointSlice, Node, Service, ServiceCidr, Wire};
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

/// An answer of the API server: a list, an event of a watch, or a single object.
pub fn watch(json: &str) {
    of_kind::<Service>(json);
    of_kind::<EndpointSlice>(json);
    of_kind::<Node>(json);
    of_kind::<ServiceCidr>(json);
    for kind in [Kind::Service, Kind::EndpointSlice, Kind::Node, Kind::ServiceCidr] {
        let Decoded { content, .. } = decode(kind, json);
        if let Content::Good(object, _) = content {
            assert_eq!(object.id.kind, kind);
        }
    }
}

fn of_kind<K>(json: &str)
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Into<Wire>,
{
    if let Ok(list) = serde_json::from_str::<ObjectList<K>>(json) {
        list.items.into_iter().for_each(|object| drop(object.into().into_id()));
    }
    if let Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) = serde_json::from_str(json)
    {
        let object: K = object;
        drop(object.into().into_id());
    }
}
