//! What the test tiers share: the packet cases on a real kernel, the binary under test, clusters of a
//! given size as manifests, a real control plane, connections without a pause, random numbers, and a
//! virtual machine with another kernel.

pub mod binary;
pub mod cluster;
pub mod control_plane;
pub mod plane;
pub mod rng;
pub mod traffic;
pub mod vm;
