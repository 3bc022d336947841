//! What was measured, as it is written to results.json.

use serde::Serialize;

/// Everything of one run of the benchmark.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where it was measured.
    pub conditions: Conditions,
    /// The main shapes first, then those for the plot.
    pub shapes: Vec<ShapeReport>,
    /// Connections at several numbers of Services.
    pub connections: Vec<Ways>,
}

/// Where a run was made, and how busy that was besides.
#[derive(Debug, Clone, Serialize)]
pub struct Conditions {
    /// As /proc/cpuinfo names it.
    pub processor: String,
    /// How many of them.
    pub processors: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The load average of the last minute before the run.
    pub load_before: f64,
    /// And at its end; the run itself adds about one.
    pub load_after: f64,
}

/// All of one shape.
#[derive(Debug, Clone, Serialize)]
pub struct ShapeReport {
    /// As it was asked for.
    pub name: String,
    /// How many Services.
    pub services: usize,
    /// How many endpoints in all.
    pub endpoints: usize,
    /// How long it took to write it to the API.
    pub load_seconds: f64,
    /// Only for the plot.
    pub growth: bool,
    /// kube-proxy, one of each round.
    pub kube_proxy: Vec<Run>,
    /// Zoneward, one of each round.
    pub zoneward: Vec<Run>,
    /// The bare loop, one of each round.
    pub bare: Vec<Bare>,
    /// With slices for three zones beside those for everyone.
    pub zoned: Option<Zoned>,
}

/// One start of one proxy and what followed.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// (a) From the start of the process until every sampled cluster IP answered.
    pub cold_start_seconds: f64,
    /// (b) From the first list complete until committed.
    pub programming_seconds: f64,
    /// (c) Single changes.
    pub changes: Vec<Change>,
    /// (d) Changes without a pause.
    pub sustained: Option<Sustained>,
    /// (e) Memory after all changes.
    pub resident_kb: u64,
    /// (e) The most until then.
    pub peak_kb: u64,
    /// (f) From the start of another process of it until it had synced, with nothing changed.
    pub restart_seconds: f64,
    /// (f) Transactions that it committed meanwhile.
    pub restart_commits: u32,
    /// (h) Bytes that the API server sent until the cluster IPs answered.
    pub start_bytes: u64,
}

/// What happened to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Another took its place.
    Replaced,
    /// It went.
    Removed,
    /// It came.
    Added,
}

/// One change of one endpoint, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Change {
    /// What it was.
    pub kind: Kind,
    /// From the request to the API server's answer.
    pub answer_ms: f64,
    /// From the request until a bare watcher beside the proxy had the event.
    pub event_ms: f64,
    /// From the request until the kernel told of the commit.
    pub commit_ms: f64,
    /// From the event to the commit: the proxy's own share.
    pub own_ms: f64,
}

/// Many changes at a fixed rate.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Sustained {
    /// How many.
    pub changes: usize,
    /// How long they took to make.
    pub seconds: f64,
    /// What the proxy, and the programs it ran, used of the processors.
    pub cpu_seconds: f64,
    /// How many transactions they became.
    pub commits: u32,
    /// What the API server sent of them.
    pub received_bytes: u64,
}

/// The bare loop.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Bare {
    /// How many elements it inserted.
    pub elements: usize,
    /// How long it took.
    pub seconds: f64,
}

/// What the API server sends where slices are divided over three zones.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Zoned {
    /// To kube-proxy, until the cluster IPs answer.
    pub kube_proxy_start_bytes: Option<u64>,
    /// To Zoneward.
    pub zoneward_start_bytes: Option<u64>,
    /// For each change of an endpoint, to kube-proxy.
    pub kube_proxy_change_bytes: Option<f64>,
    /// To Zoneward.
    pub zoneward_change_bytes: Option<f64>,
}

/// Connections at one number of Services.
#[derive(Debug, Clone, Serialize)]
pub struct Ways {
    /// How many Services.
    pub services: usize,
    /// Through kube-proxy.
    pub kube_proxy: Option<Connections>,
    /// Through Zoneward.
    pub zoneward: Option<Connections>,
    /// Straight to the endpoint, on a node without a proxy.
    pub direct: Connections,
}

/// Connections by one way.
#[derive(Debug, Clone, Serialize)]
pub struct Connections {
    /// How long each took to stand, one after the other.
    pub latency_us: Vec<f64>,
    /// How many a second stood, from several clients at once; one of each turn.
    pub per_second: Vec<f64>,
}

impl Report {
    /// The shapes of the table.
    pub(crate) fn main_shapes(&self) -> impl Iterator<Item = &ShapeReport> {
        self.shapes.iter().filter(|shape| !shape.growth)
    }
}
