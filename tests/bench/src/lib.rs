//! Two proxies measured alike, from outside: the real kube-proxy and Zoneward, one at a time on a node of
//! network namespaces, behind the same etcd and kube-apiserver.
//!
//! Owns the shapes of clusters, what is measured and how it is told. Nothing here knows how either proxy
//! works: times are those of packets, of the kernel's own notifications and of the metrics that both have
//! under the same names.

mod args;
mod bare;
mod calm;
mod changes;
mod cluster;
mod connections;
mod kernel;
mod markdown;
mod measure;
mod node;
mod plot;
mod progress;
mod proxy;
mod results;
mod shape;
mod statistics;
mod suite;

pub use args::Args;
pub use markdown::markdown;
pub use plot::svg;
pub use proxy::Proxy;
pub use results::{
    Bare, Change, Conditions, Connections, Report, Run, ShapeReport, Sustained, Ways, Zoned,
};
pub use shape::Shape;
pub use suite::run;
