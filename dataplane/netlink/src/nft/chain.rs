//! Chains: their names, hooks and comments. Rules are encoded in `expr`.

use super::constants::*;
use super::userdata;
use crate::attr;

/// A chain to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainSpec {
    /// Its name.
    pub name: String,
    /// Where it hooks into the stack; none for a chain only reached by jump or goto.
    pub hook: Option<Hook>,
    /// Shown by nft. The kernel keeps the one the chain was created with.
    pub comment: Option<String>,
}

/// What makes a chain a base chain. The policy is always accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hook {
    /// The chain's type.
    pub kind: HookKind,
    /// Where in the stack.
    pub point: HookPoint,
    /// Order among the chains there, lowest first.
    pub priority: i32,
}

/// The type of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookKind {
    /// `filter`
    Filter,
    /// `nat`: sees the first packet of a connection.
    Nat,
    /// `route`: looks the route up again after a change.
    Route,
}

/// A place in the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookPoint {
    /// Every packet received, before routing.
    Prerouting,
    /// Packets for this host.
    Input,
    /// Packets passing through.
    Forward,
    /// Packets this host makes.
    Output,
    /// Every packet sent, after routing.
    Postrouting,
}

impl HookKind {
    const ALL: [Self; 3] = [Self::Filter, Self::Nat, Self::Route];

    fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Route => "route",
        }
    }

    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }
}

impl HookPoint {
    /// The kernel's `NF_INET_*`, which is the order of declaration.
    const ALL: [Self; 5] =
        [Self::Prerouting, Self::Input, Self::Forward, Self::Output, Self::Postrouting];

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

impl ChainSpec {
    /// Appends the attributes of `NEWCHAIN` after the table's name.
    ///
    /// `type nat hook prerouting priority -100; policy accept;`
    pub(crate) fn encode(&self, buf: &mut Vec<u8>) {
        attr::put_str(buf, NFTA_CHAIN_NAME, &self.name);
        if let Some(hook) = self.hook {
            attr::put_str(buf, NFTA_CHAIN_TYPE, hook.kind.name());
            attr::put_u32(buf, NFTA_CHAIN_POLICY, NF_ACCEPT as u32);
            let at = attr::nest(buf, NFTA_CHAIN_HOOK);
            attr::put_u32(buf, NFTA_HOOK_HOOKNUM, hook.point as u32);
            attr::put_u32(buf, NFTA_HOOK_PRIORITY, hook.priority as u32);
            attr::end_nest(buf, at);
        }
        if let Some(comment) = &self.comment {
            let bytes = userdata::comment(NFTNL_UDATA_CHAIN_COMMENT, comment);
            attr::put(buf, NFTA_CHAIN_USERDATA, &bytes);
        }
    }
}
