//! The cli tier: the real binary as people run it, on manifests in a private folder and, where it
//! touches the kernel, in a network namespace of its own. Needs root, nft and bash; fails, never
//! skips, without.

mod agent_socket;
mod bad_input;
mod broken;
mod command;
mod golden;
mod ipvs;
mod json;
mod page;
mod parity;
mod permission;
mod readme;
mod texts;
mod usage;
