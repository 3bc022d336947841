//! Zoneward's kernel side: reads the table back as `zw-plan` understands it and writes planned
//! changes in one transaction for both families.
//!
//! The only part that touches nf_tables. Owns its own table `zoneward` in `ip` and `ip6`; never reads
//! or writes any other (but kube-proxy's, where it is asked to remove that), never runs a program.

mod error;
mod flows;
mod kernel;
mod kube_proxy;
mod nft;
mod probe;
mod watch;
mod writer;

pub use error::{Reaction, WriteError};
pub use flows::{FlowError, FlowTable, TrackedFlow};
pub use kernel::{Committed, Kernel, ReadBack};
pub use kube_proxy::KubeProxyLeftovers;
pub use probe::{Capability, probe};
pub use watch::TableWatch;
pub use writer::{Tables, Writer};
