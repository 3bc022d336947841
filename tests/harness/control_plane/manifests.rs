//! Manifests and where their objects live in the API.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::client::Client;
use crate::binary::eventually;

/// Whose fields these are; where someone else set one of them, ours counts.
const MANAGER: &str = "fieldManager=test&force=true";

/// All objects of a text, lists taken apart.
pub(super) fn parse(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .unwrap_or_else(|error| panic!("a manifest is YAML: {error}\n{text}"));
    documents
        .into_iter()
        .filter(|document| !document.is_null())
        .flat_map(|mut document| match document.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => vec![document],
        })
        .collect()
}

/// A collection: the end of its path, and whether its objects are in namespaces.
type Collection = (String, bool);

/// What the API server said about its kinds so far, by version and kind.
#[derive(Default)]
pub(super) struct Kinds(Mutex<BTreeMap<(String, String), Collection>>);

impl Kinds {
    /// Creates an object or makes it what the manifest says; returns what the API server keeps.
    pub(super) fn apply(&self, client: &Client, object: &Value) -> Value {
        let path = self.path(client, object);
        let mut kept = patch(client, &format!("{path}?{MANAGER}"), object);
        // A write to an object ignores the status, and the other way round.
        if let Some(status) = object.get("status") {
            let (name, namespace) = (&kept["metadata"]["name"], &kept["metadata"]["namespace"]);
            let object = json!({
                "apiVersion": object["apiVersion"],
                "kind": object["kind"],
                "metadata": {"name": name, "namespace": namespace},
                "status": status,
            });
            kept = patch(client, &format!("{path}/status?{MANAGER}"), &object);
        }
        kept
    }

    fn path(&self, client: &Client, object: &Value) -> String {
        let field = |value: &Value, name: &str| {
            value
                .as_str()
                .unwrap_or_else(|| panic!("an object without {name}: {object}"))
                .to_owned()
        };
        let version = field(&object["apiVersion"], "apiVersion");
        let kind = field(&object["kind"], "kind");
        let name = field(&object["metadata"]["name"], "metadata.name");
        let root = if version.contains('/') { "/apis" } else { "/api" };
        let (collection, namespaced) = self.collection(client, root, &version, &kind);
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        if namespaced {
            format!("{root}/{version}/namespaces/{namespace}/{collection}/{name}")
        } else {
            format!("{root}/{version}/{collection}/{name}")
        }
    }

    fn collection(&self, client: &Client, root: &str, version: &str, kind: &str) -> Collection {
        let key = (version.to_owned(), kind.to_owned());
        let mut known = self.0.lock().expect("nobody panics with it");
        // The kind of a new CustomResourceDefinition is served a moment later.
        eventually(&format!("the API to know {version} {kind}"), || {
            if !known.contains_key(&key) {
                let list = client.get(&format!("{root}/{version}")).expect("an answer").json();
                for resource in list["resources"].as_array().into_iter().flatten() {
                    let text =
                        |field: &str| resource[field].as_str().unwrap_or_default().to_owned();
                    // The others are parts of objects: `services/status`.
                    if !text("name").contains('/') {
                        let namespaced = resource["namespaced"] == true;
                        known
                            .insert((version.to_owned(), text("kind")), (text("name"), namespaced));
                    }
                }
            }
            known.contains_key(&key)
        });
        known[&key].clone()
    }
}

fn patch(client: &Client, path: &str, object: &Value) -> Value {
    client
        .request("PATCH", path, Some(("application/apply-patch+yaml", object)))
        .unwrap_or_else(|error| panic!("apply {path}: {error}"))
        .expect("PATCH", path)
}
