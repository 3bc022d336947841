//! The vm tier: Debian's kernel in a virtual machine, with what the kernel of a build machine may lack (IPVS,
//! SCTP, dummy interfaces), and a second kernel for what runs on the first. Every test's body stands in
//! `inside`. Needs qemu-system-x86_64, nft and the kernel that `tests/vm/kernel` fetches; fails, never skips,
//! without.

mod kernel;
mod packets;
