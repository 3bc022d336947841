//! A small network of hosts on one machine: every host is a network namespace, the traffic
//! between them is real.
//!
//! Owns namespaces, the links, addresses and routes in them, the servers that answer and the
//! probes that ask. It never loads a rule and knows no Service: whoever tests a dataplane loads it
//! inside [`Lab::node`] and asks with [`Lab::probe`] what became of a packet.
//!
//! Needs `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`; a process without them gets them for a network of
//! its own from [`enter_private`]. Needs no binary besides the caller's own, and leaves nothing
//! behind: a namespace lives as long as a file, a thread or a socket of this process refers to it.

mod answer;
mod batch;
mod error;
mod lab;
mod links;
mod namespace;
mod private;
mod probe;
mod server;
mod sockets;
mod sysctl;

pub use answer::Answer;
pub use error::LabError;
pub use lab::{Lab, NODE};
pub use namespace::Namespace;
pub use private::enter_private;
pub use probe::{Held, Protocol};
