//! The kernel settings of a lab's namespaces. `/proc/sys/net` shows the namespace of the thread
//! that reads it, so these functions apply to wherever they are called.

use std::fs;
use std::io::ErrorKind;

use crate::LabError;

/// For every namespace. A new one takes its IPv4 settings from the machine it is made on, so what
/// matters is set even where it is the kernel's default.
const ANY: &[(&str, &str)] = &[
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/conf/all/arp_ignore", "0"),
    ("net/ipv4/conf/default/arp_ignore", "0"),
    // A packet that leaves by the link it came on must not earn a redirect: the star has no
    // shorter way.
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/default/send_redirects", "0"),
    ("net/ipv4/conf/all/accept_redirects", "0"),
    ("net/ipv4/conf/default/accept_redirects", "0"),
    ("net/ipv6/conf/all/disable_ipv6", "0"),
    ("net/ipv6/conf/default/disable_ipv6", "0"),
    ("net/ipv6/conf/all/accept_redirects", "0"),
    ("net/ipv6/conf/default/accept_redirects", "0"),
    ("net/ipv6/conf/all/accept_ra", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    // An address is usable the moment it is added.
    ("net/ipv6/conf/all/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    // No link-local addresses but those the lab gives.
    ("net/ipv6/conf/default/addr_gen_mode", "1"),
    // Refusals are counted by tests: none may be lost to a rate limit, per peer or for all.
    ("net/ipv4/icmp_ratelimit", "0"),
    ("net/ipv4/icmp_ratemask", "0"),
    ("net/ipv6/icmp/ratelimit", "0"),
];

/// For the node and for nobody else.
const ROUTER: &[(&str, &str)] = &[
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv6/conf/default/forwarding", "1"),
];

/// For the others: also what a host's routing depends on when the machine is a router.
const LEAF: &[(&str, &str)] =
    &[("net/ipv4/ip_forward", "0"), ("net/ipv6/conf/all/forwarding", "0")];

/// How long the first packet of an SCTP association waits for its answer before it is sent again, and how
/// long any does at least, in milliseconds. An ICMP error that is back while `connect` still holds the
/// socket is forgotten; the next one is heard. Kernels without SCTP have no such files.
const SCTP: &[(&str, &str)] = &[("net/sctp/rto_min", "100"), ("net/sctp/rto_initial", "100")];

/// The ICMPv6 types under a rate limit, as a list; kernels before 5.0 have none.
const ICMPV6_RATEMASK: &str = "net/ipv6/icmp/ratemask";

/// Makes the calling thread's namespace one that forwards.
pub(crate) fn router() -> Result<(), LabError> {
    // Writing ip_forward resets the per-interface settings, so it comes first.
    all(ROUTER)?;
    any()
}

/// Makes the calling thread's namespace one that only sends and receives.
pub(crate) fn leaf() -> Result<(), LabError> {
    all(LEAF)?;
    any()
}

fn any() -> Result<(), LabError> {
    all(ANY)?;
    SCTP.iter().try_for_each(|(path, value)| set_if_there(path, value))?;
    set_if_there(ICMPV6_RATEMASK, "\n")
}

fn all(settings: &[(&str, &'static str)]) -> Result<(), LabError> {
    settings.iter().try_for_each(|(path, value)| set(path, value))
}

fn set_if_there(name: &str, value: &'static str) -> Result<(), LabError> {
    match set(name, value) {
        Err(LabError::Sysctl { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

fn set(name: &str, value: &'static str) -> Result<(), LabError> {
    let path = format!("/proc/sys/{name}");
    // A container may mount /proc/sys read-only; what is right already needs no writing.
    if fs::read_to_string(&path).is_ok_and(|now| now.trim() == value.trim()) {
        return Ok(());
    }
    fs::write(&path, value).map_err(|source| LabError::Sysctl { path, value, source })
}
