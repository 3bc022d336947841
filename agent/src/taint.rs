//! Takes a taint off this node once its Services work, so that pods can be kept away until then.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::sleep;
use tracing::{error, info, warn};

/// How often it is tried, and the pause between: half an hour.
const TRIES: u32 = 180;
const PAUSE: Duration = Duration::from_secs(10);

/// Starts to remove every taint with this key, whatever its effect.
pub(crate) fn remove(client: Client, node_name: String, key: String) {
    tokio::spawn(async move {
        let nodes: Api<Node> = Api::all(client);
        for _ in 0..TRIES {
            match try_remove(&nodes, &node_name, &key).await {
                Ok(()) => return info!(key, "taint removed"),
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    return error!(key, error = status.message, "the taint cannot be removed");
                }
                Err(error) => {
                    warn!(key, %error, "the taint is not removed yet; trying again");
                    sleep(PAUSE).await;
                }
            }
        }
        error!(key, "the taint was not removed; giving up");
    });
}

async fn try_remove(nodes: &Api<Node>, name: &str, key: &str) -> Result<(), kube::Error> {
    // The agent may list Nodes; to get one is another right.
    let found = nodes.list(&ListParams::default().fields(&format!("metadata.name={name}"))).await?;
    let spec = found.items.into_iter().next().and_then(|node| node.spec);
    let taints = spec.and_then(|spec| spec.taints).unwrap_or_default();
    let left: Vec<&Taint> = taints.iter().filter(|taint| taint.key != key).collect();
    if left.len() == taints.len() {
        return Ok(());
    }
    // The API replaces this list as a whole: only if it is still the one that was read.
    let patch = json!([
        {"op": "test", "path": "/spec/taints", "value": taints},
        {"op": "replace", "path": "/spec/taints", "value": left},
    ]);
    let patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
    nodes.patch(name, &PatchParams::default(), &Patch::<Node>::Json(patch)).await?;
    Ok(())
}
