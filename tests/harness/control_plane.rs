//! A real control plane for tests: etcd, kube-apiserver and, where asked for, kube-controller-manager on
//! the loopback interface of a namespace. Ports are fixed, because the namespace is private.
//!
//! Owns the processes, their folder and the clients of the API, kubectl among them. It runs no node: there is no kubelet and
//! no scheduler, so Pods and Nodes are objects that a test writes. Two cores do not carry two of these:
//! only one runs at a time on a machine, and [`shared()`] lets tests have one together.

mod access;
mod client;
mod manifests;
mod node_program;
mod process;
mod relay;
mod shared;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zw_lab::Namespace;

use access::Access;
pub use client::{Client, Reply};
use manifests::Kinds;
pub use node_program::NodeProgram;
use process::{Folder, Keeper, Process};
pub use relay::Relay;
pub use shared::{Exclusive, Shared, exclusive, shared};
use shared::{Turn, take_turn};

/// Where Services get their addresses from.
pub const SERVICE_RANGES: &str = "10.96.0.0/16,fd00:10:96::/112";
/// The API server as everything in the namespace reaches it.
pub const SERVER: &str = "https://127.0.0.1:6443";

const ETCD: &str = "http://127.0.0.1:2379";
const CONTROLLER_MANAGER: &str = "https://127.0.0.1:10257";
/// The endpoint of the Service `default/kubernetes`. The API refuses a loopback address there.
const ADVERTISED: &str = "192.0.2.1";
/// A start takes a few seconds; a machine that builds something else besides takes longer.
const DEADLINE: Duration = Duration::from_secs(120);

/// The folder with the programs; built by `tests/control-plane/build` if they are missing.
static PROGRAMS: LazyLock<PathBuf> =
    LazyLock::new(|| build(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/control-plane"))));

/// Builds the programs that a folder's tools.go names, unless they are there, and returns where they are:
/// see `tests/control-plane/build`.
pub fn build(module: &Path) -> PathBuf {
    let build = concat!(env!("CARGO_MANIFEST_DIR"), "/control-plane/build");
    let output = Command::new(build).arg(module).stderr(Stdio::inherit()).output();
    let output = output.expect("bash is installed");
    assert!(output.status.success(), "{build} failed, its reason is above");
    PathBuf::from(String::from_utf8(output.stdout).expect("a path in UTF-8").trim_end())
}

/// What `kubectl kustomize` makes of a folder; needs no cluster.
pub fn kustomize(folder: &Path) -> String {
    let output = Command::new(PROGRAMS.join("kubectl"))
        .arg("kustomize")
        .arg(folder)
        .env_clear()
        .output()
        .expect("kubectl starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("YAML is UTF-8")
}

/// A running control plane; all its processes and files go when it is dropped, and when the test
/// process ends without dropping it.
pub struct ControlPlane {
    // In the order in which they have to go.
    controller_manager: Option<Process>,
    api_server: Option<Process>,
    etcd: Option<Process>,
    keeper: Keeper,
    folder: Folder,
    namespace: Namespace,
    access: Access,
    admin: Client,
    kinds: Kinds,
    _turn: Turn,
}

impl ControlPlane {
    /// Starts etcd and the API server in a namespace, and waits until they are ready. Waits first for any
    /// other control plane on this machine to end; an idle shared one is ended for it.
    ///
    /// # Panics
    /// If it is not ready in time; the message has the ends of the logs.
    pub fn start(namespace: &Namespace) -> Self {
        let programs = PROGRAMS.clone();
        let turn = take_turn(&programs);
        let folder = Folder::new();
        let access = Access::write(folder.path());
        let mut plane = Self {
            controller_manager: None,
            api_server: None,
            etcd: None,
            keeper: Keeper::new(namespace),
            namespace: namespace.clone(),
            admin: access.client(namespace, access::ADMIN_TOKEN),
            access,
            kinds: Kinds::default(),
            folder,
            _turn: turn,
        };
        plane.start_api_server();
        // Ready does not mean that what the API server makes for itself is there.
        for path in ["/api/v1/namespaces/default", "/api/v1/namespaces/default/services/kubernetes"]
        {
            plane.wait_for(path, |plane| plane.admin.get(path).is_ok_and(|reply| reply.ok()));
        }
        plane
    }

    /// The namespace everything runs in.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A client that may do everything.
    pub fn admin(&self) -> &Client {
        &self.admin
    }

    /// A kubeconfig that may do everything.
    pub fn kubeconfig(&self) -> PathBuf {
        self.access.kubeconfig("admin", access::ADMIN_TOKEN)
    }

    /// A kubeconfig of a service account. The account is made where it is missing, and its namespace; it
    /// may do what RBAC objects allow, nothing at first.
    pub fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> PathBuf {
        let token = self.service_account_token(namespace, name);
        self.access.kubeconfig(&format!("{namespace}-{name}"), &token)
    }

    /// A client with the rights of a service account, see
    /// [`ControlPlane::kubeconfig_for_service_account`].
    pub fn client_for_service_account(&self, namespace: &str, name: &str) -> Client {
        let token = self.service_account_token(namespace, name);
        self.access.client(&self.namespace, &token)
    }

    /// Runs kubectl as the admin.
    pub fn kubectl(&self, args: &[&str]) -> Output {
        self.namespace.run(|| {
            Command::new(PROGRAMS.join("kubectl"))
                .arg("--kubeconfig")
                .arg(self.kubeconfig())
                .args(args)
                .env_clear()
                // Where it keeps what it has learnt about the API; this API goes with the folder.
                .env("HOME", self.folder.path())
                .output()
                .expect("kubectl starts")
        })
    }

    /// Lets another namespace reach the API server under the same address, so that tests with a node
    /// each can share one control plane.
    pub fn reach_from(&self, namespace: &Namespace) -> Relay {
        Relay::start(namespace, &self.namespace)
    }

    /// Creates or replaces all objects of a YAML or JSON text (several documents, lists), in this order,
    /// and returns them as the API server keeps them. A `status` is written too.
    ///
    /// This is server-side apply: what an earlier `apply` set and this one does not goes away; what
    /// others set stays, as a Service's cluster IPs do.
    pub fn apply(&self, text: &str) -> Vec<Value> {
        let objects = manifests::parse(text);
        objects.iter().map(|object| self.kinds.apply(&self.admin, object)).collect()
    }

    /// Reads what is at a path of the API, such as `/api/v1/namespaces/default/services?limit=5`.
    pub fn get(&self, path: &str) -> Value {
        self.admin.get(path).unwrap_or_else(|e| self.failed("get", path, &e)).expect("GET", path)
    }

    /// Creates an object in the collection at a path.
    pub fn create(&self, path: &str, object: &Value) -> Value {
        self.admin
            .post(path, object)
            .unwrap_or_else(|e| self.failed("create", path, &e))
            .expect("POST", path)
    }

    /// Merges fields into the object at a path; `null` removes one.
    pub fn patch(&self, path: &str, fields: &Value) -> Value {
        self.admin
            .patch(path, fields)
            .unwrap_or_else(|e| self.failed("patch", path, &e))
            .expect("PATCH", path)
    }

    /// Deletes the object, or the whole collection, at a path. Without a controller manager a namespace
    /// never goes away.
    pub fn delete(&self, path: &str) -> Value {
        self.admin
            .delete(path)
            .unwrap_or_else(|e| self.failed("delete", path, &e))
            .expect("DELETE", path)
    }

    /// Kills the API server: connections break, and no new ones are accepted.
    pub fn stop_api_server(&mut self) {
        self.api_server = None;
    }

    /// Starts etcd and the API server, unless they run, and waits until they are ready. Data survives in etcd; the
    /// history that the watch cache held does not.
    pub fn start_api_server(&mut self) {
        if self.etcd.is_none() {
            // One that has lost it tries again only after a while.
            self.stop_api_server();
            self.start_etcd();
        }
        if self.api_server.is_none() {
            let args = self.access.api_server_args(ETCD, ADVERTISED);
            self.api_server = Some(self.launch("kube-apiserver", &args));
        }
        self.wait_for("the API server to be ready", |plane| {
            plane.admin.get("/readyz").is_ok_and(|reply| reply.ok())
        });
    }

    /// Kills etcd: the API server has only what it holds in its caches.
    pub fn stop_etcd(&mut self) {
        self.etcd = None;
    }

    /// Makes etcd forget all revisions but the present one, and returns that. A watch from an older one
    /// still works where the API server's watch cache remembers it: see
    /// [`ControlPlane::forget_history`].
    pub fn compact_etcd(&self) -> u64 {
        let etcd = Client::plain(&self.namespace, ETCD);
        let call = |path: &str, body: Value| {
            etcd.post(path, &body)
                .unwrap_or_else(|e| self.failed("call etcd", path, &e))
                .expect("POST", path)
        };
        let found = call("/v3/kv/range", json!({"key": "AA==", "count_only": true}));
        let revision = found["header"]["revision"].as_str().expect("a number as text").to_owned();
        call("/v3/kv/compaction", json!({"revision": revision, "physical": true}));
        revision.parse().expect("a number as text")
    }

    /// Makes every resource version of the past expire: etcd is compacted and the API server restarted
    /// with an empty watch cache. A watch from an older version is answered with 410.
    pub fn forget_history(&mut self) {
        self.stop_api_server();
        self.compact_etcd();
        self.start_api_server();
    }

    /// Starts kube-controller-manager with these controllers, in its words: `*` for all, or for example
    /// `endpointslice-controller,serviceaccount-controller`. Takes the place of one that runs already.
    pub fn start_controller_manager(&mut self, controllers: &str) {
        self.stop_controller_manager();
        let args = self.access.controller_manager_args(&self.kubeconfig(), controllers);
        self.controller_manager = Some(self.launch("kube-controller-manager", &args));
        let manager = self.admin.at(CONTROLLER_MANAGER);
        self.wait_for("the controller manager to be healthy", |_| {
            manager.get("/healthz").is_ok_and(|reply| reply.ok())
        });
    }

    /// Kills the controller manager, if one runs.
    pub fn stop_controller_manager(&mut self) {
        self.controller_manager = None;
    }

    /// The processes that run now, for tests that count what is left.
    pub fn processes(&self) -> Vec<u32> {
        self.running().map(Process::id).collect()
    }

    /// The last lines of every log, also of processes that were stopped.
    pub fn logs_tail(&self) -> String {
        self.folder.logs_tail()
    }

    fn start_etcd(&mut self) {
        let data = self.folder.path().join("etcd");
        let args = [
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={ETCD}"),
            format!("--advertise-client-urls={ETCD}"),
            "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
            // What a power cut would lose is of no interest here.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        self.etcd = Some(self.launch("etcd", &args));
        let client = Client::plain(&self.namespace, ETCD);
        self.wait_for("etcd to be healthy", |_| client.get("/health").is_ok_and(|r| r.ok()));
    }

    fn launch(&self, name: &str, args: &[String]) -> Process {
        self.keeper.start(&PROGRAMS.join(name), args, &self.folder.log(name))
    }

    fn running(&self) -> impl Iterator<Item = &Process> {
        [&self.etcd, &self.api_server, &self.controller_manager].into_iter().flatten()
    }

    /// Waits until something holds, as long as all processes run.
    fn wait_for(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !holds(self) {
            let processes = [&mut self.etcd, &mut self.api_server, &mut self.controller_manager];
            let ended = processes.into_iter().flatten().find_map(Process::ended);
            if let Some(status) = ended {
                panic!("waiting for {what}: a process ended, {status}\n{}", self.logs_tail());
            }
            assert!(Instant::now() < end, "waited too long for {what}\n{}", self.logs_tail());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn service_account_token(&self, namespace: &str, name: &str) -> String {
        self.apply(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}\n---\n{{apiVersion: \
             v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: {namespace}}}}}"
        ));
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
        let reply = self.create(&path, &request);
        reply["status"]["token"].as_str().expect("a token").to_owned()
    }

    fn failed(&self, action: &str, path: &str, error: &std::io::Error) -> ! {
        panic!("{action} {path}: {error}\n{}", self.logs_tail())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.logs_tail());
        }
    }
}
