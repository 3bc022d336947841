//! nf_tables messages over a raw netlink socket.
//!
//! Owns the byte formats: it turns tables, sets, chains, rules and elements into one netlink batch,
//! sends it, and reads the kernel's replies and dumps back. It knows no Service, keeps no state
//! between batches, decides nothing about what should be in the kernel and never runs `nft`.
//!
//! Bytes go out through [`nft::Batch`] and [`nft::Socket`]; bytes come in through the pure parsers
//! in [`nft::reply`], which take any input without panicking.

mod attr;
mod error;
mod exchange;
mod message;
pub mod nft;
mod socket;

pub use error::Error;
