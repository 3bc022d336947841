//! The proxy we are compared with, on a node of its own.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use zw_lab::Namespace;

use super::ControlPlane;
use super::process::{Keeper, Process};

/// A running kube-proxy; killed when dropped. Its rules stay.
pub struct KubeProxy {
    process: Process,
    log: PathBuf,
    // Its end would be the end of the process.
    _keeper: Keeper,
}

impl ControlPlane {
    /// Writes a KubeProxyConfiguration into the folder of the control plane.
    pub fn write_proxy_config(&self, name: &str, config: &Value) -> PathBuf {
        let path = self.folder.path().join(format!("{name}.yaml"));
        // JSON is YAML.
        fs::write(&path, config.to_string()).expect("the folder is writable");
        path
    }

    /// Starts kube-proxy in a namespace that reaches the API server, see
    /// [`ControlPlane::reach_from`]. The configuration names its kubeconfig; the name is for the log.
    pub fn start_kube_proxy(&self, namespace: &Namespace, name: &str, config: &Value) -> KubeProxy {
        let config = self.write_proxy_config(name, config);
        let keeper = Keeper::new(namespace);
        let log = self.folder.log(name);
        let args = [format!("--config={}", config.display())];
        let process = keeper.start(&super::PROGRAMS.join("kube-proxy"), &args, &log);
        KubeProxy { process, log, _keeper: keeper }
    }
}

impl KubeProxy {
    /// Panics with its last words if it has ended.
    pub fn assert_runs(&mut self) {
        if let Some(status) = self.process.ended() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(20)..].join("\n");
            panic!("kube-proxy ended, {status}\n{last}");
        }
    }
}
