//! nf_tables and connection tracking messages over a raw netlink socket.
//!
//! Owns the byte formats: it turns tables, sets, chains, rules and elements into one netlink batch,
//! sends it, and reads the kernel's replies and dumps back; it lists and deletes the connections the
//! kernel tracks. It knows no Service, keeps no state between batches, decides nothing about what
//! should be in the kernel and never runs `nft` or `conntrack`.
//!
//! Bytes go out through [`nft::Batch`], [`nft::Socket`] and [`ct::Socket`]; bytes come in through
//! the pure parsers [`nft::reply`], [`nft::parse_notice`] and [`ct::parse_entry`], which take any
//! input without panicking.

mod attr;
pub mod ct;
mod error;
mod exchange;
mod message;
pub mod nft;
mod socket;

pub use error::Error;
