//! From kube-proxy to Zoneward and back on one node, with the real kube-proxy and connections through all
//! of it: the steps of deploy/migrate.md.

use serde_json::{Value, json};
use zw_tests::binary::{eventually, run_in, text, tool_in};
use zw_tests::control_plane::{ControlPlane, NodeProgram, shared};

use crate::road::Road;

impl Road {
    /// Starts kube-proxy on the node and waits until its rules are there.
    fn kube_proxy(&self, plane: &ControlPlane) -> NodeProgram {
        let config = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "hostnameOverride": self.name,
            "clusterCIDR": "10.244.0.0/16,fd00:10:244::/48",
            "clientConnection": {"kubeconfig": plane.kubeconfig()},
            // Leave the sysctls of the machine alone.
            "conntrack": {
                "maxPerCore": 0, "min": 0,
                "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
            },
        });
        let mut proxy = plane.start_kube_proxy(self.lab.node(), self.name, &config);
        eventually("kube-proxy has its rules", || {
            proxy.assert_runs();
            ["ip", "ip6"].iter().all(|family| {
                let map = ["-j", "list", "map", family, "kube-proxy", "service-ips"];
                let listed = tool_in(self.lab.node(), "nft", &map, "");
                listed.status.success() && text(&listed.stdout).contains(self.name)
            })
        });
        proxy
    }

    /// The tables on the node, such as `ip zoneward`.
    fn tables(&self) -> Vec<String> {
        let listed = tool_in(self.lab.node(), "nft", &["-j", "list", "tables"], "");
        let json: Value = serde_json::from_slice(&listed.stdout).unwrap();
        let tables = json["nftables"].as_array().unwrap().iter().filter_map(|it| it.get("table"));
        let name = |table: &Value| {
            format!("{} {}", table["family"].as_str().unwrap(), table["name"].as_str().unwrap())
        };
        let mut names: Vec<String> = tables.map(name).collect();
        names.sort();
        names
    }

    fn clean_up(&self, args: &[&str]) -> String {
        let output = run_in(self.lab.node(), &[&["cleanup"], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }
}

#[test]
fn from_kube_proxy_and_back_fails_no_connection() {
    let plane = shared();
    let road = Road::new(&plane, "road-migrate");
    let addresses = ["192.0.2.10", "2001:db8::10"]
        .map(|address| json!({"type": "InternalIP", "address": address}));
    let status = json!({"status": {"addresses": addresses}});
    plane.patch(&format!("/api/v1/nodes/{}/status", road.name), &status);
    road.publish(&plane, "api", None, &[1, 2]);
    let kube_proxy = road.kube_proxy(&plane);
    eventually("kube-proxy serves", || road.is_open());
    assert_eq!(road.tables(), ["ip kube-proxy", "ip6 kube-proxy"]);
    road.travel(|| {
        // There: the new one beside the old one, both follow a change; then the old one and its rules go.
        let agent = road.synced_agent();
        road.expect(&[1, 2]);
        road.publish(&plane, "api", None, &[1]);
        road.expect(&[1]);
        drop(kube_proxy);
        let said = road.clean_up(&["--kube-proxy"]);
        assert_eq!(said, "removed the IPv4 table kube-proxy\nremoved the IPv6 table kube-proxy\n");
        assert_eq!(road.tables(), ["ip zoneward", "ip6 zoneward"]);
        assert_eq!(road.clean_up(&["--kube-proxy"]), "nothing of kube-proxy to remove\n");
        road.publish(&plane, "api", None, &[2]);
        road.expect(&[2]);

        // And back, in the same way.
        let kube_proxy = road.kube_proxy(&plane);
        assert!(agent.terminate().success());
        let said = road.clean_up(&[]);
        assert_eq!(said, "removed the IPv4 table zoneward\nremoved the IPv6 table zoneward\n");
        assert_eq!(road.tables(), ["ip kube-proxy", "ip6 kube-proxy"]);
        // Once more, so that connections are made with kube-proxy alone.
        let agent = road.synced_agent();
        road.expect(&[2]);
        drop((agent, kube_proxy));
    });
}
