//! A dummy interface and its addresses, over route netlink.
//!
//! Owns these few messages, many in one send. Everything else about interfaces and routes is for a crate
//! that knows all of it; that one waits for the answer to each message, and thousands of addresses come
//! and go at once here. Touches only the interface it is told to.

mod client;
mod constants;
mod message;

pub use client::{AddressRefusal, Socket};
pub use message::{LinkInfo, OwnAddress, parse_address, parse_link};
