//! The ruleset in nf_tables' terms.

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod rules;

use zw_model::Family;

/// The same family, as zw-netlink calls it.
pub(crate) fn family(family: Family) -> zw_netlink::nft::Family {
    match family {
        Family::V4 => zw_netlink::nft::Family::Ip,
        Family::V6 => zw_netlink::nft::Family::Ip6,
    }
}
