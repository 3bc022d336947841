//! The zone-slice controller: publishes EndpointSlices per zone, next to an unmodified control plane.
//!
//! Services whose owners ask for it get one group of slices for each zone. Which endpoints a zone gets
//! is `zw-topology`'s business; here it is decided whether a Service is divided at all ([`approach`]),
//! which endpoint goes where ([`groups`]), how that becomes slices with few writes ([`pack`]), and in
//! which order, so that nothing is ever missing ([`handover`]). These are pure, and [`plan`] is all of
//! them in a row.
//!
//! Around them: what there is (`watch`, `store`), which Service is next (`queue`), who
//! leads (`lease`) and what is written (`write`), all of which [`run()`] puts together.
//!
//! The agent crate owns the binary: it brings the client and serves what is measured here.

pub mod approach;
mod events;
pub mod groups;
pub mod handover;
pub mod input;
mod lease;
mod metrics;
pub mod mirror;
pub mod names;
pub mod objects;
pub mod pack;
pub mod plan;
mod queue;
mod run;
pub mod settings;
mod store;
mod watch;
mod write;
pub mod zones;

pub use lease::LeaseName;
pub use metrics::Metrics;
pub use run::{Config, Status, run};

#[cfg(test)]
mod testing;
#[cfg(test)]
mod world;
