use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use super::file::File;
use super::values::{ContentType, Span};
use super::{
    Config, ConfigFile, Conntrack, DetectLocal, Difference, Flags, IgnoredFlags, Ipvs, Mode,
    NodePortAddresses, Wanted,
};

const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

/// The command line of `run`, as far as it is about configuration.
#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    ignored: IgnoredFlags,
    /// What some flags exclude.
    #[arg(long)]
    state: Option<PathBuf>,
}

fn line(args: &[&str]) -> Line {
    let mut line = Line::try_parse_from(["run"].iter().chain(args)).unwrap();
    // The machine's environment is none of the tests' business.
    line.flags.node_name = line.flags.node_name.filter(|_| args.iter().any(|a| a.contains("name")));
    line
}

fn both(yaml: &str, args: &[&str]) -> Result<Config, String> {
    let (file, _) = File::parse(&format!("{HEAD}{yaml}")).map_err(|e| e.to_string())?;
    Config::of(&line(args).flags, file, "Host.Example\n").map_err(|e| e.to_string())
}

fn config(yaml: &str) -> Config {
    both(yaml, &[]).unwrap()
}

fn flags(args: &[&str]) -> Config {
    both("", args).unwrap()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn default<T>(value: T) -> Wanted<T> {
    Wanted { value, explicit: false }
}

fn asked<T>(value: T) -> Wanted<T> {
    Wanted { value, explicit: true }
}

fn socket(text: &str) -> Option<SocketAddr> {
    Some(text.parse().unwrap())
}

/// What nothing but a host name gives.
pub(super) fn defaults() -> Config {
    Config {
        node_name: "host.example".into(),
        kubeconfig: None,
        master: None,
        content_type: ContentType::Protobuf,
        mode: Mode::Nftables,
        node_address: None,
        health: socket("[::]:10256"),
        metrics: socket("127.0.0.1:10249"),
        bind_hard_fail: false,
        cluster_cidrs: Vec::new(),
        detect_local: DetectLocal::ClusterCidr,
        node_port_addresses: NodePortAddresses { primary: true, ..NodePortAddresses::default() },
        masquerade_all: false,
        masquerade_bit: 14,
        balance: zw_plan::Balance::Random,
        sync_period: seconds(30),
        min_sync_period: seconds(1),
        conntrack: Conntrack {
            max_per_core: default(32768),
            min: default(131_072),
            tcp_established: default(seconds(86400)),
            tcp_close_wait: default(seconds(3600)),
            tcp_be_liberal: false,
            udp: Duration::ZERO,
            udp_stream: Duration::ZERO,
            tcp_cleanup: false,
        },
        oom_score_adj: default(-999),
        ipvs: Ipvs {
            sync_period: seconds(30),
            min_sync_period: Duration::ZERO,
            scheduler: String::new(),
            exclude_cidrs: Vec::new(),
            strict_arp: false,
            tcp_timeout: Duration::ZERO,
            tcp_fin_timeout: Duration::ZERO,
            udp_timeout: Duration::ZERO,
        },
    }
}

/// As kubeadm writes it: every field, most of them empty.
const KUBEADM: &str = r#"
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection: {acceptContentTypes: "", burst: 0, contentType: "", kubeconfig: /var/lib/kube-proxy/kubeconfig.conf, qps: 0}
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack: {maxPerCore: null, min: null, tcpBeLiberal: false, tcpCloseWaitTimeout: null, tcpEstablishedTimeout: null, udpStreamTimeout: 0s, udpTimeout: 0s}
detectLocal: {bridgeInterface: "", interfaceNamePrefix: ""}
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables: {localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
ipvs: {excludeCIDRs: null, minSyncPeriod: 0s, scheduler: "", strictARP: false, syncPeriod: 0s, tcpFinTimeout: 0s, tcpTimeout: 0s, udpTimeout: 0s}
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 0}
metricsBindAddress: ""
mode: ""
nftables: {masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel: {enableDSR: false, forwardHealthCheckVip: false, networkName: "", rootHnsEndpointName: "", sourceVip: ""}
"#;

#[test]
fn nothing_at_all_gives_kube_proxys_defaults() {
    assert_eq!(config(""), defaults());
}

#[test]
fn what_kubeadm_writes_is_taken_without_a_word() {
    let (file, ignored) = File::parse(&format!("{HEAD}{KUBEADM}")).unwrap();
    assert_eq!(ignored, [""; 0]);
    let want = Config {
        kubeconfig: Some("/var/lib/kube-proxy/kubeconfig.conf".into()),
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        ..defaults()
    };
    assert_eq!(Config::of(&Flags::default(), file, "host.example").unwrap(), want);
}

#[test]
fn every_field_of_the_file_takes_effect() {
    let yaml = r#"
clientConnection: {kubeconfig: /etc/kubeconfig, qps: 5, burst: 10, contentType: application/json}
hostnameOverride: " Node-7 "
bindAddress: 192.0.2.7
healthzBindAddress: 192.0.2.7:1
metricsBindAddress: "[::1]"
bindAddressHardFail: true
mode: nftables
clusterCIDR: 10.244.3.0/16,fd00:10:244::/48
detectLocalMode: BridgeInterface
detectLocal: {bridgeInterface: cni0}
nodePortAddresses: [primary, localhost, 192.0.2.0/24]
oomScoreAdj: -5
nftables: {masqueradeAll: true, masqueradeBit: 3, syncPeriod: 1m0s, minSyncPeriod: 500ms}
conntrack: {maxPerCore: 1, min: 2, tcpEstablishedTimeout: 1h0m0s, tcpCloseWaitTimeout: 0s, tcpBeLiberal: true, udpTimeout: 4s, udpStreamTimeout: 5s}
ipvs: {syncPeriod: 6s, minSyncPeriod: 7s, scheduler: mh, excludeCIDRs: [198.51.100.0/24], strictARP: true, tcpTimeout: 8s, tcpFinTimeout: 9s, udpTimeout: 10s}
"#;
    let net = |text: &str| text.parse().unwrap();
    let want = Config {
        node_name: "node-7".into(),
        kubeconfig: Some("/etc/kubeconfig".into()),
        master: None,
        content_type: ContentType::Json,
        mode: Mode::Nftables,
        node_address: Some("192.0.2.7".parse().unwrap()),
        health: socket("192.0.2.7:1"),
        metrics: socket("[::1]:10249"),
        bind_hard_fail: true,
        cluster_cidrs: vec![net("10.244.0.0/16"), net("fd00:10:244::/48")],
        detect_local: DetectLocal::BridgeInterface("cni0".into()),
        node_port_addresses: NodePortAddresses {
            cidrs: vec![net("192.0.2.0/24")],
            primary: true,
            localhost: true,
            all: false,
        },
        masquerade_all: true,
        masquerade_bit: 3,
        balance: zw_plan::Balance::Random,
        sync_period: seconds(60),
        min_sync_period: Duration::from_millis(500),
        conntrack: Conntrack {
            max_per_core: asked(1),
            min: asked(2),
            tcp_established: asked(seconds(3600)),
            tcp_close_wait: asked(Duration::ZERO),
            tcp_be_liberal: true,
            udp: seconds(4),
            udp_stream: seconds(5),
            tcp_cleanup: false,
        },
        oom_score_adj: asked(-5),
        ipvs: Ipvs {
            sync_period: seconds(6),
            min_sync_period: seconds(7),
            scheduler: "mh".into(),
            exclude_cidrs: vec![net("198.51.100.0/24")],
            strict_arp: true,
            tcp_timeout: seconds(8),
            tcp_fin_timeout: seconds(9),
            udp_timeout: seconds(10),
        },
    };
    assert_eq!(config(yaml), want);
    // What is shown is what it was made from.
    let shown = want.show()["kubeproxy.config.k8s.io"].clone();
    let (file, ignored) = File::parse(&shown.to_string()).unwrap();
    assert_eq!(ignored, ["nftables.minSyncPeriod", "ipvs.minSyncPeriod", "ipvs.excludeCIDRs"]);
    assert_eq!(Config::of(&Flags::default(), file, "other").unwrap(), want);
}

#[test]
fn every_flag_takes_effect_and_wins_over_the_file() {
    let yaml = "hostnameOverride: file\nclusterCIDR: 10.0.0.0/8\nnftables: {masqueradeBit: 1, \
                masqueradeAll: true}\nconntrack: {min: 7}\nnodePortAddresses: [all]\n";
    let args = [
        "--hostname-override=Flag",
        "--kubeconfig=/k",
        "--master=https://192.0.2.1:6443",
        "--proxy-mode=nftables",
        "--cluster-cidr=10.244.0.0/16,fd00::/48",
        "--detect-local-mode=InterfaceNamePrefix",
        "--pod-interface-name-prefix=veth",
        "--bind-address=fd00::7",
        "--healthz-bind-address=192.0.2.7",
        "--bind-address-hard-fail",
        "--nodeport-addresses=primary,192.0.2.0/24",
        "--masquerade-all=false",
        "--iptables-masquerade-bit=2",
        "--iptables-sync-period=2s",
        "--iptables-min-sync-period=0",
        "--conntrack-max-per-core=3",
        "--conntrack-tcp-timeout-established=4s",
        "--conntrack-tcp-timeout-close-wait=5s",
        "--conntrack-tcp-be-liberal",
        "--conntrack-udp-timeout=6s",
        "--conntrack-udp-timeout-stream=7s",
        "--conntrack-tcp-cleanup",
        "--oom-score-adj=-8",
        "--ipvs-scheduler=lc",
    ];
    let net = |text: &str| text.parse().unwrap();
    let want = Config {
        node_name: "flag".into(),
        kubeconfig: Some("/k".into()),
        master: Some("https://192.0.2.1:6443".into()),
        node_address: Some("fd00::7".parse().unwrap()),
        health: socket("192.0.2.7:10256"),
        metrics: socket("[::1]:10249"),
        bind_hard_fail: true,
        cluster_cidrs: vec![net("10.244.0.0/16"), net("fd00::/48")],
        detect_local: DetectLocal::InterfaceNamePrefix("veth".into()),
        node_port_addresses: NodePortAddresses {
            cidrs: vec![net("192.0.2.0/24")],
            primary: true,
            ..NodePortAddresses::default()
        },
        masquerade_bit: 2,
        sync_period: seconds(2),
        min_sync_period: Duration::ZERO,
        conntrack: Conntrack {
            max_per_core: asked(3),
            min: asked(7),
            tcp_established: asked(seconds(4)),
            tcp_close_wait: asked(seconds(5)),
            tcp_be_liberal: true,
            udp: seconds(6),
            udp_stream: seconds(7),
            tcp_cleanup: true,
        },
        oom_score_adj: asked(-8),
        ipvs: Ipvs { scheduler: "lc".into(), ..defaults().ipvs },
        ..defaults()
    };
    assert_eq!(both(yaml, &args).unwrap(), want);
}

#[test]
fn kube_proxys_flags_without_effect_are_accepted_and_told() {
    let args = [
        "--v=2",
        "--feature-gates=A=true",
        "--config-sync-period=15m",
        "--profiling",
        "--kube-api-qps=5",
        "--logging-format=json",
        "--iptables-localhost-nodeports=false",
    ];
    let want = [
        "--logging-format",
        "--feature-gates",
        "--config-sync-period",
        "--kube-api-qps",
        "--profiling",
        "--iptables-localhost-nodeports",
    ];
    assert_eq!(line(&args).ignored.given(), want);
    assert_eq!(line(&["-v", "4"]).ignored.given(), [""; 0]);
}

#[test]
fn a_server_may_be_turned_off_or_moved_by_its_port() {
    let config = flags(&["--healthz-bind-address=", "--metrics-bind-address="]);
    assert_eq!((config.health, config.metrics), (None, None));
    let config = flags(&["--healthz-port=1", "--metrics-port=0"]);
    assert_eq!((config.health, config.metrics), (socket("[::]:1"), None));
}

#[test]
fn the_settings_of_iptables_count_where_kube_proxy_would_read_them() {
    let iptables =
        "iptables: {masqueradeAll: true, masqueradeBit: 5, syncPeriod: 9s, minSyncPeriod: 2s}\n";
    let read = |yaml: &str| {
        let config = config(yaml);
        let periods = (config.sync_period.as_secs(), config.min_sync_period.as_secs());
        (config.masquerade_all, config.masquerade_bit, periods)
    };
    assert_eq!(read(iptables), (true, 5, (9, 2)));
    assert_eq!(read(&format!("{iptables}mode: nftables\n")), (true, 5, (30, 1)));
    let nftables = "nftables: {masqueradeAll: false, masqueradeBit: 6, syncPeriod: 8s}\n";
    assert_eq!(read(&format!("{iptables}{nftables}mode: nftables\n")), (false, 6, (8, 1)));
    assert_eq!(read(&format!("{iptables}{nftables}")), (true, 6, (8, 2)));
}

#[test]
fn only_fields_that_say_something_are_told_as_ignored() {
    let yaml = "featureGates: {A: true}\nenableProfiling: true\nshowHiddenMetricsForVersion: '1.36'\n\
                logging: {verbosity: 2}\nconfigSyncPeriod: 15m0s\niptables: {localhostNodePorts: true, \
                syncPeriod: 30s, minSyncPeriod: 2s}\nwinkernel: {networkName: x}\nportRange: 1-2\n\
                windowsRunAsService: true\nmode: nftables\nnftables: {minSyncPeriod: 2s}\n\
                ipvs: {minSyncPeriod: 2s, excludeCIDRs: [10.0.0.0/8]}\n\
                clientConnection: {qps: 5, burst: 10, acceptContentTypes: application/json}\n";
    let (_, ignored) = File::parse(&format!("{HEAD}{yaml}")).unwrap();
    let want = [
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
        "iptables.syncPeriod",
    ];
    assert_eq!(ignored, want);
}

#[test]
fn every_mistake_is_named_by_its_path_with_what_would_be_right() {
    let rows = [
        (
            "nftables: {masqueradebit: 3}",
            "nftables.masqueradebit: unknown field, did you mean `masqueradeBit`?",
        ),
        ("clusterCDR: 10.0.0.0/8", "clusterCDR: unknown field, did you mean `clusterCIDR`?"),
        (
            "detectLocal: {frobnicate: true}",
            "detectLocal.frobnicate: unknown field `frobnicate`, expected `bridgeInterface` or \
             `interfaceNamePrefix`",
        ),
        (
            "nftables: {masqueradeBit: 32}",
            "nftables.masqueradeBit: 32 is not a bit of the packet mark (0 to 31)",
        ),
        (
            "iptables: {masqueradeBit: -1}",
            "iptables.masqueradeBit: -1 is not a bit of the packet mark (0 to 31)",
        ),
        (
            "nftables: {masqueradeAll: maybe}",
            "nftables.masqueradeAll: invalid type: string \"maybe\", expected a boolean",
        ),
        (
            "nftables: {syncPeriod: soon}",
            "nftables.syncPeriod: \"soon\" is not a duration such as 30s or 1h0m0s",
        ),
        (
            "nftables: {syncPeriod: -1s}",
            "nftables.syncPeriod: \"-1s\" is negative: write a duration such as 30s, or 0s",
        ),
        (
            "nftables: {syncPeriod: 30}",
            "nftables.syncPeriod: invalid type: integer `30`, expected a string",
        ),
        (
            "nftables: {minSyncPeriod: 1h}",
            "nftables.minSyncPeriod: 1h0m0s is longer than syncPeriod, 30s",
        ),
        (
            "mode: iptables",
            "mode: iptables is not a mode of Zoneward: nftables takes its place, write nftables",
        ),
        (
            "mode: ipvs\nipvs: {scheduler: random}",
            "ipvs.scheduler: \"random\" is no scheduler of IPVS: write one of rr, wrr, lc, wlc, lblc, lblcr, \
             dh, sh, sed, nq, fo, ovf, mh, twos",
        ),
        ("mode: userspace", "mode: \"userspace\" is not a mode: write nftables or ipvs"),
        ("bindAddress: eth0", "bindAddress: \"eth0\" is not an IP address"),
        (
            "healthzBindAddress: localhost:10256",
            "healthzBindAddress: \"localhost:10256\" is not an address and port such as 0.0.0.0:10256 or \
             [::]:10256",
        ),
        (
            "metricsBindAddress: 127.0.0.1:0",
            "metricsBindAddress: \"127.0.0.1:0\" is not an address and port such as 0.0.0.0:10256 or \
             [::]:10256",
        ),
        (
            "clusterCIDR: 10.244.0.0/16,pods",
            "clusterCIDR: \"pods\" is not a CIDR such as 10.244.0.0/16 or fd00:10:244::/48",
        ),
        (
            "detectLocalMode: NodeCidr",
            "detectLocalMode: \"NodeCidr\" is not a way to tell local traffic: write ClusterCIDR, \
             NodeCIDR, BridgeInterface or InterfaceNamePrefix",
        ),
        (
            "detectLocalMode: BridgeInterface",
            "detectLocal.bridgeInterface: missing, and detectLocalMode BridgeInterface needs it",
        ),
        (
            "detectLocalMode: InterfaceNamePrefix",
            "detectLocal.interfaceNamePrefix: missing, and detectLocalMode InterfaceNamePrefix needs it",
        ),
        (
            "nodePortAddresses: [10.0.0.0/8, eth0]",
            "nodePortAddresses[1]: \"eth0\" is not a CIDR such as 10.244.0.0/16 or fd00:10:244::/48, nor \
             one of primary, localhost, all",
        ),
        (
            "nodePortAddresses: [primary, primary]",
            "nodePortAddresses[1]: primary stands there twice",
        ),
        ("oomScoreAdj: 1001", "oomScoreAdj: 1001 is not an OOM score adjustment (-1000 to 1000)"),
        ("conntrack: {min: -1}", "conntrack.min: -1 is not a number from 0 to 2147483647"),
        (
            "conntrack: {maxPerCore: many}",
            "conntrack.maxPerCore: invalid type: string \"many\", expected i64",
        ),
        (
            "conntrack: {udpTimeout: 1 minute}",
            "conntrack.udpTimeout: \"1 minute\" is not a duration such as 30s or 1h0m0s",
        ),
        (
            "ipvs: {excludeCIDRs: [x]}",
            "ipvs.excludeCIDRs[0]: \"x\" is not a CIDR such as 10.244.0.0/16 or fd00:10:244::/48",
        ),
        ("featureGates: {A: 1}", "featureGates.A: invalid type: integer `1`, expected a boolean"),
        (
            "winkernel: {networkNam: x}",
            "winkernel.networkNam: unknown field, did you mean `networkName`?",
        ),
    ];
    for (yaml, want) in rows {
        assert_eq!(both(yaml, &[]).unwrap_err(), want, "{yaml}");
    }
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let rows = [
        ("", "not a KubeProxyConfiguration: there are no fields"),
        ("mode: nftables", "apiVersion: missing: write kubeproxy.config.k8s.io/v1alpha1"),
        (
            "apiVersion: v1\nkind: Service",
            "apiVersion: \"v1\" is not kubeproxy.config.k8s.io/v1alpha1",
        ),
        (
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: Kube",
            "kind: \"Kube\" is not KubeProxyConfiguration",
        ),
    ];
    for (text, want) in rows {
        assert_eq!(File::parse(text).unwrap_err().to_string(), want, "{text}");
    }
    let twice = format!("{HEAD}mode: nftables\nmode: nftables\n");
    let error = File::parse(&twice).unwrap_err().to_string();
    assert!(error.starts_with("neither YAML nor JSON: ") && error.contains("mode"), "{error}");
}

#[test]
fn json_is_read_too() {
    let json = r#"{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
	"kind": "KubeProxyConfiguration", "nftables": {"masqueradeBit": 9}}"#;
    let (file, _) = File::parse(json).unwrap();
    assert_eq!(Config::of(&Flags::default(), file, "h").unwrap().masquerade_bit, 9);
}

#[test]
fn durations_are_read_and_written_as_go_does() {
    for (text, want, written) in [
        ("1h0m0s", Duration::from_secs(3600), "1h0m0s"),
        ("0", Duration::ZERO, "0s"),
        ("1.5s", Duration::from_millis(1500), "1.5s"),
        ("250ms", Duration::from_millis(250), "250ms"),
        ("2h22m", Duration::from_secs(8520), "2h22m0s"),
        ("90s", Duration::from_secs(90), "1m30s"),
        ("+1m", Duration::from_secs(60), "1m0s"),
        (".5h", Duration::from_secs(1800), "30m0s"),
    ] {
        let span: Span = text.parse().unwrap();
        assert_eq!((span.0, span.to_string().as_str()), (want, written), "{text}");
    }
    for text in ["", "5", "s", "1.2.3s", "1d", "1h-1m", "99999999999h", "1 s", "."] {
        assert!(text.parse::<Span>().is_err(), "{text}");
    }
}

#[test]
fn a_change_takes_effect_at_once_where_it_can() {
    let mut config = config("clusterCIDR: 10.0.0.0/8\n");
    assert_eq!(config.update(config.clone()), Difference::default());
    let new = Config { masquerade_bit: 3, ..config.clone() };
    let live = Difference { live: true, ..Difference::default() };
    assert_eq!(config.update(new.clone()), live);
    assert_eq!(config, new);

    let new = Config { health: None, ..config.clone() };
    let live = Difference { live: true, ..Difference::default() };
    assert_eq!(config.update(new), Difference { servers: true, ..live });
    let new = Config { oom_score_adj: asked(3), ..config.clone() };
    let live = Difference { live: true, ..Difference::default() };
    assert_eq!(config.update(new), Difference { sysctls: true, ..live });
    let new = Config { sync_period: seconds(3), ..config.clone() };
    assert_eq!(config.update(new), Difference { live: true, ..Difference::default() });
}

#[test]
fn what_needs_a_restart_is_named_and_stays() {
    let mut config = config("");
    let before = config.clone();
    let new =
        Config { kubeconfig: Some("/other".into()), node_name: "other".into(), ..config.clone() };
    let restart = vec!["clientConnection.kubeconfig", "hostnameOverride"];
    assert_eq!(config.update(new), Difference { restart, ..Difference::default() });
    assert_eq!(config, before);
}

#[test]
fn a_file_is_read_again_only_when_it_says_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let write = |yaml: &str| {
        // As a ConfigMap does it: another file takes the place.
        let new = folder.path().join("new");
        fs::write(&new, format!("{HEAD}{yaml}")).unwrap();
        fs::rename(new, &path).unwrap();
    };
    let mut file = ConfigFile::new(Some(path.clone()), Flags::default());
    let missing = file.load().unwrap_err().to_string();
    assert_eq!(missing, "cannot read it: No such file or directory (os error 2)");
    write("oomScoreAdj: 1");
    assert_eq!(file.load().unwrap().config.oom_score_adj, asked(1));
    assert!(file.poll().is_none());
    write("oomScoreAdj: 1");
    assert!(file.poll().is_none(), "another file that says the same");
    write("oomScoreAdj: 2000");
    assert!(file.poll().unwrap().unwrap_err().to_string().starts_with("oomScoreAdj: "));
    assert!(file.poll().is_none(), "told once");
    write("oomScoreAdj: 2");
    assert_eq!(file.poll().unwrap().unwrap().config.oom_score_adj, asked(2));
    fs::remove_file(&path).unwrap();
    assert!(file.poll().unwrap().is_err());
    assert!(file.poll().is_none(), "told once");
}
