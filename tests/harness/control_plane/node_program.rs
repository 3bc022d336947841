//! A program on a node of its own that follows the cluster, as a proxy does.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use zw_lab::Namespace;

use super::ControlPlane;
use super::process::{Keeper, Process};

/// A running program; killed when dropped. What it put into the kernel stays.
pub struct NodeProgram {
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

    /// Starts a program in a namespace that reaches the API server, see [`ControlPlane::reach_from`].
    /// The name is for the log.
    pub fn start_on_node(
        &self,
        namespace: &Namespace,
        name: &str,
        program: &Path,
        args: &[String],
    ) -> NodeProgram {
        let keeper = Keeper::new(namespace);
        let log = self.folder.log(name);
        let process = keeper.start(program, args, &log);
        NodeProgram { process, log, _keeper: keeper }
    }

    /// Starts kube-proxy, of the control plane's version. The configuration names its kubeconfig.
    pub fn start_kube_proxy(
        &self,
        namespace: &Namespace,
        name: &str,
        config: &Value,
    ) -> NodeProgram {
        let config = self.write_proxy_config(name, config);
        let args = [format!("--config={}", config.display())];
        self.start_on_node(namespace, name, &super::PROGRAMS.join("kube-proxy"), &args)
    }
}

impl NodeProgram {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it has written so far, with what others of its name wrote before.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Panics with its last words if it has ended.
    pub fn assert_runs(&mut self) {
        if let Some(status) = self.process.ended() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(20)..].join("\n");
            panic!("{} ended, {status}\n{last}", self.log.display());
        }
    }
}
