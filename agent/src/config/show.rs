//! The configuration in force, in the words of kube-proxy's file.

use std::path::Path;

use serde_json::{Value, json};

use super::values::{DetectLocalMode, NodePortAddress, Span};
use super::{Config, DetectLocal};

impl Config {
    /// As `/configz` shows it.
    pub(crate) fn show(&self) -> Value {
        let strings =
            |nets: &[ipnet::IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
        let address = |address: Option<std::net::SocketAddr>| {
            address.map(|address| address.to_string()).unwrap_or_default()
        };
        let span = |duration| Span(duration).to_string();
        let (mode, bridge, prefix) = match &self.detect_local {
            DetectLocal::ClusterCidr => (DetectLocalMode::ClusterCidr, "", ""),
            DetectLocal::NodeCidr => (DetectLocalMode::NodeCidr, "", ""),
            DetectLocal::BridgeInterface(name) => {
                (DetectLocalMode::BridgeInterface, name.as_str(), "")
            }
            DetectLocal::InterfaceNamePrefix(prefix) => {
                (DetectLocalMode::InterfaceNamePrefix, "", prefix.as_str())
            }
        };
        let ports = &self.node_port_addresses;
        let words = [
            (ports.primary, NodePortAddress::Primary),
            (ports.localhost, NodePortAddress::Localhost),
            (ports.all, NodePortAddress::All),
        ];
        let words = words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word);
        let ports: Vec<String> = words
            .chain(ports.cidrs.iter().copied().map(NodePortAddress::Range))
            .map(|entry| entry.to_string())
            .collect();
        let (conntrack, ipvs) = (&self.conntrack, &self.ipvs);
        json!({"kubeproxy.config.k8s.io": {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {
                "kubeconfig": self.kubeconfig.as_deref().map(Path::to_string_lossy).unwrap_or_default(),
                "contentType": self.content_type.as_str(),
            },
            "hostnameOverride": self.node_name,
            "bindAddress": self.node_address.map(|ip| ip.to_string()).unwrap_or_default(),
            "healthzBindAddress": address(self.health),
            "metricsBindAddress": address(self.metrics),
            "bindAddressHardFail": self.bind_hard_fail,
            "mode": self.mode.as_str(),
            "clusterCIDR": strings(&self.cluster_cidrs).join(","),
            "detectLocalMode": mode.as_str(),
            "detectLocal": {"bridgeInterface": bridge, "interfaceNamePrefix": prefix},
            "nodePortAddresses": ports,
            "oomScoreAdj": self.oom_score_adj.value,
            "nftables": {
                "masqueradeAll": self.masquerade_all,
                "masqueradeBit": self.masquerade_bit,
                "syncPeriod": span(self.sync_period),
                "minSyncPeriod": span(self.min_sync_period),
            },
            "ipvs": {
                "syncPeriod": span(ipvs.sync_period),
                "minSyncPeriod": span(ipvs.min_sync_period),
                "scheduler": ipvs.scheduler,
                "excludeCIDRs": strings(&ipvs.exclude_cidrs),
                "strictARP": ipvs.strict_arp,
                "tcpTimeout": span(ipvs.tcp_timeout),
                "tcpFinTimeout": span(ipvs.tcp_fin_timeout),
                "udpTimeout": span(ipvs.udp_timeout),
            },
            "conntrack": {
                "maxPerCore": conntrack.max_per_core.value,
                "min": conntrack.min.value,
                "tcpEstablishedTimeout": span(conntrack.tcp_established.value),
                "tcpCloseWaitTimeout": span(conntrack.tcp_close_wait.value),
                "tcpBeLiberal": conntrack.tcp_be_liberal,
                "udpTimeout": span(conntrack.udp),
                "udpStreamTimeout": span(conntrack.udp_stream),
            },
        }})
    }
}
