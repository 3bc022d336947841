//! The netns tier: real packets on the real kernel of this machine, in namespaces of their own.
//! Needs root, nft and nothing else; fails, never skips, without.

mod affinity;
mod flows;
mod listing;
mod packets;
mod scale;
mod table;
mod trace;
