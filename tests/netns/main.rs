//! The netns tier: real packets on the real kernel of this machine, in namespaces of their own.
//! Needs root, nft and nothing else; fails, never skips, without.

mod affinity;
mod counts;
mod drift;
mod flows;
mod flush;
mod listing;
mod packets;
mod restart;
mod scale;
mod storm;
mod table;
mod trace;

/// Runs a test's body here. The vm tier has the same tests, and runs them on another kernel.
fn on_the_kernel(test: impl FnOnce()) {
    test();
}
