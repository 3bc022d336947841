//! The netns tier: real packets on the real kernel of this machine, in namespaces of their own.
//! Needs root, nft and nothing else; fails, never skips, without.

mod affinity;
mod drift;
mod flows;
mod listing;
mod packets;
mod restart;
mod scale;
mod storm;
mod table;
