//! Clusters of a given size, written as manifests.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// How many endpoints a slice holds, as the stock controller packs them.
const PER_SLICE: usize = 100;

/// A cluster of equal Services.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// How many Services.
    pub services: usize,
    /// How many endpoints each has.
    pub endpoints: usize,
}

impl Shape {
    /// Writes the cluster into a folder, one file per Service as JSON, which reads faster than YAML.
    pub fn write(self, folder: &Path) {
        for service in 0..self.services {
            self.write_service(folder, service, self.endpoints);
        }
    }

    /// Writes one Service with another number of endpoints: the last ones come and go.
    pub fn write_service(self, folder: &Path, service: usize, endpoints: usize) {
        self.write_endpoints(folder, service, &(0..endpoints).collect::<Vec<_>>());
    }

    /// Writes one Service with these of its endpoints.
    pub fn write_endpoints(self, folder: &Path, service: usize, numbers: &[usize]) {
        let mut text = String::new();
        let name = format!("svc-{service}");
        let vip = Ipv4Addr::from_bits(0x0a60_0000 + 1 + service as u32);
        let ports = r#"[{"name":"http","port":80,"protocol":"TCP"}]"#;
        writeln!(
            text,
            r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}","namespace":"load"}},"spec":{{"clusterIP":"{vip}","ports":{ports}}}}}"#
        )
        .expect("a String takes all");
        for (i, numbers) in numbers.chunks(PER_SLICE).enumerate() {
            let endpoints: Vec<String> =
                numbers.iter().map(|n| endpoint(service * self.endpoints.max(1) + n, *n)).collect();
            let labels = format!(r#"{{"kubernetes.io/service-name":"{name}"}}"#);
            let ports = r#"[{"name":"http","port":8080,"protocol":"TCP"}]"#;
            writeln!(
                text,
                r#"{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{{"name":"{name}-{i}","namespace":"load","labels":{labels}}},"addressType":"IPv4","ports":{ports},"endpoints":[{}]}}"#,
                endpoints.join(",")
            )
            .expect("a String takes all");
        }
        // In one step, so that a follower never sees half a file.
        let hidden = folder.join(format!(".{name}.json"));
        fs::write(&hidden, text).expect("the folder is writable");
        fs::rename(hidden, folder.join(format!("{name}.json"))).expect("the folder is writable");
    }
}

fn endpoint(address: usize, number: usize) -> String {
    let address = Ipv4Addr::from_bits(0x0b00_0000 + 1 + address as u32);
    let node = number % 100;
    format!(
        r#"{{"addresses":["{address}"],"conditions":{{"ready":true}},"nodeName":"node-{node}","zone":"zone-{}"}}"#,
        node % 3
    )
}

/// A Service and its endpoints in both families, as one YAML file's text.
pub fn dual_stack(
    key: (&str, &str),
    last: u8,
    port: (&str, &str, u16, u16),
    endpoints: &[(Ipv4Addr, Ipv6Addr)],
) -> String {
    let ((namespace, name), (port_name, protocol, number, target)) = (key, port);
    let list = |addresses: Vec<String>| {
        addresses.iter().map(|a| format!("- addresses: [\"{a}\"]\n")).collect::<String>()
    };
    let slice = |family: &str, addresses: Vec<String>| {
        format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {name}-{}\n  \
             namespace: {namespace}\n  labels: {{kubernetes.io/service-name: {name}}}\naddressType: \
             {family}\nports:\n- {{name: {port_name}, port: {target}, protocol: {protocol}}}\nendpoints:\n{}",
            family.to_lowercase(),
            list(addresses)
        )
    };
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
         clusterIPs: [10.96.0.{last}, \"fd00:10:96::{last:x}\"]\n  ports:\n  - {{name: {port_name}, port: \
         {number}, protocol: {protocol}}}\n{}{}",
        slice("IPv4", endpoints.iter().map(|(v4, _)| v4.to_string()).collect()),
        slice("IPv6", endpoints.iter().map(|(_, v6)| v6.to_string()).collect()),
    )
}
