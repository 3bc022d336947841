//! What can go wrong while a lab is built or changed. What happens to a probe is never an error
//! but an [`Answer`](crate::Answer).

use std::io;
use std::net::IpAddr;

/// Why a lab, or a part of it, could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// Namespaces are entered per thread, so a process can only move as a whole while it has one.
    #[error(
        "enter private namespaces: the process has {threads} threads; do it before starting any other"
    )]
    Threads {
        /// How many there are.
        threads: usize,
    },
    /// The system refuses namespaces to this process.
    #[error("{action}: {hint}")]
    Forbidden {
        /// What was attempted.
        action: &'static str,
        /// What is missing and how to get it.
        hint: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A namespace could not be made, opened or entered.
    #[error("{action}")]
    Namespace {
        /// What was attempted.
        action: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A kernel setting of a namespace could not be written.
    #[error("set {path} to {value}")]
    Sysctl {
        /// The file below `/proc/sys`.
        path: String,
        /// The value it should have.
        value: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel refused a link, an address or a route.
    #[error("{action}")]
    Netlink {
        /// What was attempted, with the names involved.
        action: String,
        /// What the kernel said.
        #[source]
        source: rtnetlink::Error,
    },
    /// A link was set up but never came up, or an address on it never became usable.
    #[error("wait for the link {link} and its addresses: not ready after {seconds} s")]
    NotReady {
        /// The interface.
        link: String,
        /// How long it was given.
        seconds: u64,
    },
    /// A name that cannot be a host's.
    #[error("add host {name:?}: {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No host has this name.
    #[error("find host {name:?} in the lab: there is none of that name")]
    UnknownHost {
        /// The name asked for.
        name: String,
    },
    /// A server could not be started.
    #[error("serve on port {port} of {address} at host {host:?}")]
    Serve {
        /// The host.
        host: String,
        /// The address, unspecified for all.
        address: IpAddr,
        /// The port.
        port: u16,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A thread or the runtime on it could not be started.
    #[error("start {what}")]
    Start {
        /// What should have run there.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}
