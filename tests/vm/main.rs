//! The vm tier: Debian's kernel in a virtual machine, with what the kernel of a build machine may lack (IPVS,
//! SCTP, dummy interfaces), and a second kernel for what runs on the first. Every test's body stands in
//! `inside`. Needs qemu-system-x86_64, nft, ip and the kernel that `tests/vm/kernel` fetches; fails, never skips,
//! without.

mod agent;
mod ipvs;
mod kernel;
mod packets;
mod scale;

// Of the netns tier, whose kernel is this machine's own.
#[path = "../netns/affinity.rs"]
mod affinity;
#[path = "../netns/flows.rs"]
mod flows;

use zw_tests::vm::inside as on_the_kernel;
