//! What the test tiers share: the packet cases on a real kernel, the binary under test, and clusters of
//! a given size as manifests.

pub mod binary;
pub mod cluster;
pub mod plane;
