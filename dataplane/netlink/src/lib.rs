//! nf_tables, connection tracking, IPVS and address messages over raw netlink sockets.
//!
//! Owns the byte formats: it turns tables, sets, chains, rules and elements into one netlink batch,
//! sends it, and reads the kernel's replies and dumps back; it lists and deletes the connections the
//! kernel tracks; it lists and changes IPVS' virtual servers and the addresses of a dummy interface. It
//! knows no Service, keeps no state between batches, decides nothing about what should be in the kernel
//! and never runs `nft`, `conntrack`, `ipvsadm` or `ip`.
//!
//! Bytes go out through [`nft::Batch`], [`nft::Socket`], [`ct::Socket`], [`ipvs::Batch`],
//! [`ipvs::Socket`] and [`route::Socket`]; bytes come in through the pure parsers [`nft::reply`],
//! [`nft::parse_notice`], [`ct::parse_entry`], [`ipvs::reply`] and those of [`route`], which take any
//! input without panicking.

mod attr;
pub mod ct;
mod error;
mod exchange;
mod generic;
pub mod ipvs;
mod message;
pub mod nft;
pub mod route;
mod socket;

pub use error::Error;
