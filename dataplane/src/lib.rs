//! Zoneward's kernel side: reads the table back as `zw-plan` understands it and writes planned
//! changes in one transaction for both families; in the ipvs mode also virtual servers and the
//! interface with their addresses.
//!
//! The only part that touches nf_tables and IPVS. Owns its own table `zoneward` in `ip` and `ip6`, the
//! interface `zoneward-ipvs` and the virtual servers that carry its flag; never reads or writes any other
//! (but for short-lived tables of its own, to probe and to trace, and kube-proxy's, where it is asked to
//! remove that), never runs a program.

mod error;
mod flows;
mod ipvs;
mod kernel;
mod live;
mod nft;
mod probe;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod watch;
mod writer;

pub use error::{Reaction, WriteError};
pub use flows::{FlowError, FlowFilter, FlowTable, TrackedFlow};
pub use ipvs::{
    Ipvs, IpvsOptions, IpvsRemoved, LINK, RefusedReal, Unserved, WhyUnserved, WithIpvs, link_index,
    probe_ipvs,
};
pub use kernel::{Committed, Kernel, KubeProxyLeftovers, ReadBack};
pub use live::{LiveTrace, TraceEvent, TraceKind, TraceVerdict};
pub use nft::encode::Encoded;
pub use probe::{Capability, probe};
pub use watch::TableWatch;
pub use writer::{Tables, Writer};
