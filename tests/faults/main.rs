//! The faults tier: an agent that is killed, lied to and meddled with, on the real kernel. Whatever
//! happened, once quiet the kernel holds what a fresh start would have put there. Needs root, nft, strace,
//! setpriv and what `tests/control-plane/build` builds; fails, never skips, without.

mod held;
mod histories;
mod node;
mod script;
mod soak;
