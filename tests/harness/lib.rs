//! What the test tiers share: the packet cases on a real kernel, the binary under test, clusters of a
//! given size as manifests, a real control plane, a virtual machine with another kernel, and random
//! numbers that repeat.

pub mod binary;
pub mod cluster;
pub mod control_plane;
pub mod plane;
pub mod rng;
pub mod vm;
