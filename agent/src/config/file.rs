//! The configuration file: kube-proxy's KubeProxyConfiguration, read strictly. What is wrong is named by
//! its path; what is known and without effect is listed.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::ConfigError;
use super::values::{
    Cidr, Cidrs, ContentType, Count, DetectLocalMode, Listen, MarkBit, Mode, NodePortAddress,
    OomScore, Span, address,
};

const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
const KIND: &str = "KubeProxyConfiguration";

/// Known fields without effect here, named in a warning where they say something.
const IGNORED: [&str; 16] = [
    "clientConnection.acceptContentTypes",
    "clientConnection.qps",
    "clientConnection.burst",
    "nftables.minSyncPeriod",
    "iptables.minSyncPeriod",
    "ipvs.minSyncPeriod",
    "ipvs.excludeCIDRs",
    "featureGates",
    "enableProfiling",
    "showHiddenMetricsForVersion",
    "logging",
    "configSyncPeriod",
    "iptables.localhostNodePorts",
    "winkernel",
    "portRange",
    "windowsRunAsService",
];

/// Also without effect when the mode is nftables by name: kube-proxy then reads nftables' own.
const IGNORED_IN_NFTABLES: [&str; 1] = ["iptables.syncPeriod"];

/// The fields, each absent unless it was set to something.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct File {
    api_version: String,
    kind: String,
    pub(crate) client_connection: ClientConnection,
    #[serde(deserialize_with = "text")]
    pub(crate) hostname_override: Option<String>,
    #[serde(deserialize_with = "bind_address")]
    pub(crate) bind_address: Option<IpAddr>,
    #[serde(deserialize_with = "text")]
    pub(crate) healthz_bind_address: Option<Listen>,
    #[serde(deserialize_with = "text")]
    pub(crate) metrics_bind_address: Option<Listen>,
    pub(crate) bind_address_hard_fail: Option<bool>,
    #[serde(deserialize_with = "text")]
    pub(crate) mode: Option<Mode>,
    pub(crate) iptables: Iptables,
    pub(crate) ipvs: IpvsFile,
    pub(crate) nftables: Nftables,
    #[serde(deserialize_with = "text")]
    pub(crate) detect_local_mode: Option<DetectLocalMode>,
    pub(crate) detect_local: DetectLocalFile,
    #[serde(rename = "clusterCIDR", deserialize_with = "text")]
    pub(crate) cluster_cidr: Option<Cidrs>,
    pub(crate) node_port_addresses: Vec<NodePortAddress>,
    #[serde(deserialize_with = "number")]
    pub(crate) oom_score_adj: Option<OomScore>,
    pub(crate) conntrack: ConntrackFile,
    feature_gates: BTreeMap<String, bool>,
    logging: Logging,
    enable_profiling: bool,
    show_hidden_metrics_for_version: String,
    winkernel: Winkernel,
    #[serde(deserialize_with = "duration")]
    config_sync_period: Option<Span>,
    port_range: String,
    windows_run_as_service: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ClientConnection {
    #[serde(deserialize_with = "text")]
    pub(crate) kubeconfig: Option<PathBuf>,
    accept_content_types: String,
    #[serde(deserialize_with = "text")]
    pub(crate) content_type: Option<ContentType>,
    qps: f32,
    burst: i32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Iptables {
    #[serde(deserialize_with = "number")]
    pub(crate) masquerade_bit: Option<MarkBit>,
    pub(crate) masquerade_all: bool,
    localhost_node_ports: bool,
    #[serde(deserialize_with = "duration")]
    pub(crate) sync_period: Option<Span>,
    #[serde(deserialize_with = "duration")]
    pub(crate) min_sync_period: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Nftables {
    #[serde(deserialize_with = "number")]
    pub(crate) masquerade_bit: Option<MarkBit>,
    pub(crate) masquerade_all: Option<bool>,
    #[serde(deserialize_with = "duration")]
    pub(crate) sync_period: Option<Span>,
    #[serde(deserialize_with = "duration")]
    pub(crate) min_sync_period: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct IpvsFile {
    #[serde(deserialize_with = "duration")]
    pub(crate) sync_period: Option<Span>,
    #[serde(deserialize_with = "duration")]
    pub(crate) min_sync_period: Option<Span>,
    #[serde(deserialize_with = "text")]
    pub(crate) scheduler: Option<String>,
    #[serde(rename = "excludeCIDRs")]
    pub(crate) exclude_cidrs: Vec<Cidr>,
    #[serde(rename = "strictARP")]
    pub(crate) strict_arp: Option<bool>,
    #[serde(deserialize_with = "duration")]
    pub(crate) tcp_timeout: Option<Span>,
    #[serde(deserialize_with = "duration")]
    pub(crate) tcp_fin_timeout: Option<Span>,
    #[serde(deserialize_with = "duration")]
    pub(crate) udp_timeout: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct DetectLocalFile {
    #[serde(deserialize_with = "text")]
    pub(crate) bridge_interface: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(crate) interface_name_prefix: Option<String>,
}

/// Here 0 says something: leave it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ConntrackFile {
    #[serde(deserialize_with = "number")]
    pub(crate) max_per_core: Option<Count>,
    #[serde(deserialize_with = "number")]
    pub(crate) min: Option<Count>,
    #[serde(deserialize_with = "span")]
    pub(crate) tcp_established_timeout: Option<Span>,
    #[serde(deserialize_with = "span")]
    pub(crate) tcp_close_wait_timeout: Option<Span>,
    pub(crate) tcp_be_liberal: Option<bool>,
    #[serde(deserialize_with = "duration")]
    pub(crate) udp_timeout: Option<Span>,
    #[serde(deserialize_with = "duration")]
    pub(crate) udp_stream_timeout: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Winkernel {
    network_name: String,
    source_vip: String,
    #[serde(rename = "enableDSR")]
    enable_dsr: bool,
    root_hns_endpoint_name: String,
    forward_health_check_vip: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Logging {
    format: String,
    /// A duration, or nanoseconds.
    flush_frequency: Value,
    verbosity: u32,
    vmodule: Vec<Value>,
    options: Value,
}

impl File {
    /// Reads a file's text. With it come the fields that have no effect, to be told.
    pub(crate) fn parse(text: &str) -> Result<(Self, Vec<&'static str>), ConfigError> {
        // JSON is YAML, and this reader refuses a key that stands there twice.
        let options = serde_saphyr::options! { with_snippet: false };
        let mut value: Value =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| {
                let error = error.to_string();
                let first = error.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
                ConfigError::new("", format!("neither YAML nor JSON: {}", first.trim()))
            })?;
        if !value.is_object() {
            return Err(ConfigError::new("", format!("not a {KIND}: there are no fields")));
        }
        for (field, want) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            match value.get(field).and_then(Value::as_str) {
                Some(is) if is == want => {}
                Some(is) => return Err(ConfigError::new(field, format!("{is:?} is not {want}"))),
                None => return Err(ConfigError::new(field, format!("missing: write {want}"))),
            }
        }
        drop_nulls(&mut value);
        let ignored = ignored(&value);
        let file = serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            ConfigError::new(&path, with_suggestion(error.into_inner().to_string()))
        })?;
        Ok((file, ignored))
    }
}

/// For an unknown field, the known one that was probably meant.
fn with_suggestion(message: String) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    match (message.starts_with("unknown field"), names.next()) {
        (true, Some(unknown)) => match names.find(|name| alike(unknown, name)) {
            Some(meant) => format!("unknown field, did you mean `{meant}`?"),
            None => message,
        },
        _ => message,
    }
}

/// Differs in case, or by one letter too many, too few or wrong.
fn alike(typed: &str, known: &str) -> bool {
    let (a, b) = (typed.to_ascii_lowercase(), known.to_ascii_lowercase());
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[same..], &b[same..]);
    let without = |rest: &[u8]| rest.get(1..).unwrap_or_default().to_vec();
    a == b || without(a) == b || a == without(b) || without(a) == without(b)
}

/// What is null is not set, as in Go.
fn drop_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(drop_nulls);
    }
}

fn ignored(value: &Value) -> Vec<&'static str> {
    let says = |path: &&str| {
        let found = path.split('.').try_fold(value, |value, field| value.get(field));
        found.is_some_and(says_something)
    };
    let nftables = value.get("mode").and_then(Value::as_str) == Some("nftables");
    let more = IGNORED_IN_NFTABLES.iter().filter(|_| nftables);
    IGNORED.iter().chain(more).filter(|path| says(path)).copied().collect()
}

/// Not what Go's zero value is written as: kubeadm writes out every field.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is) => *is,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !matches!(text.as_str(), "" | "0" | "0s"),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.values().any(says_something),
    }
}

/// Text that means something of its own; empty, it means nothing.
fn text<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: Display>,
{
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(D::Error::custom) }
}

fn bind_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Ok(None) } else { address(&text).map(Some).map_err(D::Error::custom) }
}

/// A duration of which 0 leaves the default.
fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Span>, D::Error> {
    Ok(span(deserializer)?.filter(|span| *span != Span::default()))
}

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Span>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(D::Error::custom)
}

fn number<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: TryFrom<i64, Error = String>,
{
    i64::deserialize(deserializer)?.try_into().map(Some).map_err(D::Error::custom)
}
