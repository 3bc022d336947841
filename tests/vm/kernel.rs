//! The machine itself.

use std::fs;

use zw_lab::Namespace;
use zw_tests::vm::inside;

#[test]
fn the_kernel_has_what_the_tier_is_for() {
    inside(|| {
        let modules = fs::read_to_string("/proc/modules").unwrap();
        let loaded: Vec<&str> =
            modules.lines().filter_map(|line| line.split_whitespace().next()).collect();
        for module in ["ip_vs", "ip_vs_rr", "dummy", "sctp", "nf_tables", "nf_conntrack"] {
            assert!(loaded.contains(&module), "{module} is not among {loaded:?}");
        }
        // Namespaces have them too.
        Namespace::new().unwrap().run(|| {
            for file in ["sys/net/ipv4/vs/conntrack", "sys/net/sctp/rto_initial"] {
                assert!(fs::exists(format!("/proc/{file}")).unwrap(), "{file}");
            }
            let servers = fs::read_to_string("/proc/thread-self/net/ip_vs").unwrap();
            assert!(servers.starts_with("IP Virtual Server"), "{servers}");
        });
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        println!("Linux {}, {} modules", release.trim(), loaded.len());
    });
}
