//! Numbers from the kernel's `rtnetlink.h`, `if_link.h` and `if_addr.h`, in its spelling.

pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_NEWADDR: u16 = 20;
pub(crate) const RTM_DELADDR: u16 = 21;
pub(crate) const RTM_GETADDR: u16 = 22;

pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_LINKINFO: u16 = 18;
pub(crate) const IFLA_AF_SPEC: u16 = 26;
pub(crate) const IFLA_INFO_KIND: u16 = 1;
pub(crate) const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
pub(crate) const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
pub(crate) const IFF_UP: u32 = 1;
pub(crate) const IFF_NOARP: u32 = 0x80;

pub(crate) const IFA_ADDRESS: u16 = 1;
pub(crate) const IFA_LOCAL: u16 = 2;
pub(crate) const IFA_CACHEINFO: u16 = 6;
pub(crate) const IFA_FLAGS: u16 = 8;
pub(crate) const IFA_F_NODAD: u32 = 0x02;
pub(crate) const IFA_F_NOPREFIXROUTE: u32 = 0x200;
pub(crate) const RT_SCOPE_UNIVERSE: u8 = 0;
pub(crate) const RT_SCOPE_HOST: u8 = 254;

pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;
