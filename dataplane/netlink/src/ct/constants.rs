//! Numbers of the kernel's interface (`linux/netfilter/nfnetlink_conntrack.h`), under their own
//! names. Only those this crate uses.

pub(crate) const NFNL_SUBSYS_CTNETLINK: u16 = 1;
pub(crate) const IPCTNL_MSG_CT_NEW: u16 = 0;
pub(crate) const IPCTNL_MSG_CT_GET: u16 = 1;
pub(crate) const IPCTNL_MSG_CT_DELETE: u16 = 2;

pub(crate) const CTA_TUPLE_ORIG: u16 = 1;
pub(crate) const CTA_TUPLE_REPLY: u16 = 2;
pub(crate) const CTA_STATUS: u16 = 3;
pub(crate) const CTA_ID: u16 = 12;
pub(crate) const CTA_ZONE: u16 = 18;
pub(crate) const CTA_FILTER: u16 = 25;
pub(crate) const CTA_STATUS_MASK: u16 = 26;

pub(crate) const CTA_TUPLE_IP: u16 = 1;
pub(crate) const CTA_TUPLE_PROTO: u16 = 2;
pub(crate) const CTA_TUPLE_ZONE: u16 = 3;
pub(crate) const CTA_IP_V4_SRC: u16 = 1;
pub(crate) const CTA_IP_V4_DST: u16 = 2;
pub(crate) const CTA_IP_V6_SRC: u16 = 3;
pub(crate) const CTA_IP_V6_DST: u16 = 4;
pub(crate) const CTA_PROTO_NUM: u16 = 1;
pub(crate) const CTA_PROTO_SRC_PORT: u16 = 2;
pub(crate) const CTA_PROTO_DST_PORT: u16 = 3;

pub(crate) const CTA_FILTER_ORIG_FLAGS: u16 = 1;
// The kernel's CTA_FILTER_F_*, from `nf_internals.h`: stable since 5.8, though in no header of its
// interface.
pub(crate) const CTA_FILTER_F_IP_DST: u32 = 1 << 1;
pub(crate) const CTA_FILTER_F_PROTO_NUM: u32 = 1 << 3;
pub(crate) const CTA_FILTER_F_PROTO_DST_PORT: u32 = 1 << 5;
