//! The cli tier: the real binary as people run it, on manifests in a private folder and, where it
//! touches the kernel, in a network namespace of its own. Needs root, nft and bash; fails, never
//! skips, without.

mod bad_input;
mod command;
mod golden;
mod json;
mod parity;
mod permission;
mod readme;
mod usage;
