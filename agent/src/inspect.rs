//! What is programmed and why, as data: read from the kernel, from a running agent or from manifests, and
//! shown by `dump-rules`, `explain`, `trace`, `diff`, `top` and the agent's page.
//!
//! Nothing here changes anything: the kernel is only read, and the agent is only asked.

pub(crate) mod agent;
pub(crate) mod drift;
pub(crate) mod filter;
pub(crate) mod load;
pub(crate) mod manifest;
pub(crate) mod node;
pub(crate) mod page;
pub(crate) mod planned;
pub(crate) mod questions;
pub(crate) mod socket;
pub(crate) mod story;
pub(crate) mod text;
pub(crate) mod tracked;
pub(crate) mod view;
