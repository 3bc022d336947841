//! Connection tracking: which connections the kernel knows, and forgetting some of them.
//!
//! [`Socket`] dumps entries and deletes them, [`parse_entry`] reads bytes. Decides nothing about
//! which connection is stale and never flushes the table.

mod client;
mod constants;
mod entry;

pub use client::{Deleted, Dumped, Socket};
pub use entry::{
    Entry, Filter, IPS_DST_NAT, IPS_OFFLOAD, IPS_SEEN_REPLY, IPS_SRC_NAT, Tuple, parse_entry,
};
