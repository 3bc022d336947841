use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::apply;
use crate::config::{Config, ConfigFile, Flags};

const MAX: &str = "proc/sys/net/netfilter/nf_conntrack_max";
const ESTABLISHED: &str = "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established";
const CLOSE_WAIT: &str = "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait";
const LIBERAL: &str = "proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal";
const UDP: &str = "proc/sys/net/netfilter/nf_conntrack_udp_timeout";
const STREAM: &str = "proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream";
const HASH: &str = "sys/module/nf_conntrack/parameters/hashsize";
const OOM: &str = "proc/self/oom_score_adj";
const CPUS: &str = "sys/devices/system/cpu/online";

/// A machine of a kind, with the kernel's own settings.
fn machine(cpus: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (file, text) in [
        (MAX, "65536"),
        (ESTABLISHED, "432000"),
        (CLOSE_WAIT, "60"),
        (LIBERAL, "0"),
        (UDP, "30"),
        (STREAM, "120"),
        (HASH, "16384"),
        (OOM, "0"),
        (CPUS, cpus),
    ] {
        write(root.path(), file, text);
    }
    root
}

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

fn read(root: &TempDir, file: &str) -> String {
    fs::read_to_string(root.path().join(file)).unwrap().trim().to_owned()
}

fn config(yaml: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    fs::write(&path, format!("{head}hostnameOverride: node\n{yaml}")).unwrap();
    ConfigFile::new(Some(path), Flags::default()).load().unwrap().config
}

#[test]
fn the_defaults_are_those_of_kube_proxy() {
    let root = machine("0-7");
    apply(root.path(), &config("")).unwrap();
    let files = [MAX, HASH, ESTABLISHED, CLOSE_WAIT, LIBERAL, UDP, STREAM, OOM];
    let now = files.map(|file| read(&root, file));
    assert_eq!(now, ["262144", "65536", "86400", "3600", "0", "30", "120", "-999"]);
}

#[test]
fn the_limit_scales_with_the_cpus_between_its_bounds() {
    for (cpus, max) in [("0", "131072"), ("0-3,6-8", "229376"), ("0-255", "1048576")] {
        let root = machine(cpus);
        apply(root.path(), &config("")).unwrap();
        assert_eq!(read(&root, MAX), max, "{cpus} CPUs");
    }
}

#[test]
fn zero_leaves_what_is_there() {
    let root = machine("0-7");
    let zero = "conntrack: {maxPerCore: 0, min: 5000000, tcpEstablishedTimeout: 0s, \
                tcpCloseWaitTimeout: 0s, udpTimeout: 0s}";
    apply(root.path(), &config(zero)).unwrap();
    let now = [MAX, HASH, ESTABLISHED, CLOSE_WAIT, UDP].map(|file| read(&root, file));
    assert_eq!(now, ["65536", "16384", "432000", "60", "30"]);
}

#[test]
fn everything_that_is_asked_for_is_set() {
    let root = machine("0-1");
    let all = "conntrack: {maxPerCore: 1000, min: 10, tcpEstablishedTimeout: 2h0m0s, \
               tcpCloseWaitTimeout: 90s, tcpBeLiberal: true, udpTimeout: 31s, udpStreamTimeout: 5m0s}\n\
               oomScoreAdj: 12";
    apply(root.path(), &config(all)).unwrap();
    let files = [MAX, HASH, ESTABLISHED, CLOSE_WAIT, LIBERAL, UDP, STREAM, OOM];
    let now = files.map(|file| read(&root, file));
    assert_eq!(now, ["2000", "16384", "7200", "90", "1", "31", "300", "12"]);
}

#[test]
fn a_higher_limit_is_lowered_only_on_request() {
    let root = machine("0-1");
    write(root.path(), MAX, "4000000");
    apply(root.path(), &config("")).unwrap();
    assert_eq!(read(&root, MAX), "4000000");
    apply(root.path(), &config("conntrack: {min: 200000}")).unwrap();
    assert_eq!(read(&root, MAX), "200000");
}

#[test]
fn only_what_was_asked_for_fails() {
    let root = machine("0-1");
    fs::remove_file(root.path().join(ESTABLISHED)).unwrap();
    fs::remove_file(root.path().join(OOM)).unwrap();
    apply(root.path(), &config("")).unwrap();
    assert_eq!(read(&root, CLOSE_WAIT), "3600", "the rest is set");

    let asked = config("conntrack: {tcpEstablishedTimeout: 1h0m0s}\noomScoreAdj: -5");
    let error = apply(root.path(), &asked).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "cannot make these settings of the kernel: {ESTABLISHED} = 3600: No such file or \
             directory (os error 2); {OOM} = -5: No such file or directory (os error 2)"
        )
    );
}
