//! Numbers from the kernel's `include/uapi/linux/ip_vs.h`, in its spelling.

pub(crate) const IPVS_GENL_NAME: &str = "IPVS";
pub(crate) const IPVS_GENL_VERSION: u8 = 1;

pub(crate) const IPVS_CMD_NEW_SERVICE: u8 = 1;
pub(crate) const IPVS_CMD_SET_SERVICE: u8 = 2;
pub(crate) const IPVS_CMD_DEL_SERVICE: u8 = 3;
pub(crate) const IPVS_CMD_GET_SERVICE: u8 = 4;
pub(crate) const IPVS_CMD_NEW_DEST: u8 = 5;
pub(crate) const IPVS_CMD_SET_DEST: u8 = 6;
pub(crate) const IPVS_CMD_DEL_DEST: u8 = 7;
pub(crate) const IPVS_CMD_GET_DEST: u8 = 8;
pub(crate) const IPVS_CMD_SET_CONFIG: u8 = 12;
pub(crate) const IPVS_CMD_GET_CONFIG: u8 = 13;
pub(crate) const IPVS_CMD_GET_INFO: u8 = 15;

pub(crate) const IPVS_CMD_ATTR_SERVICE: u16 = 1;
pub(crate) const IPVS_CMD_ATTR_DEST: u16 = 2;
pub(crate) const IPVS_CMD_ATTR_TIMEOUT_TCP: u16 = 4;
pub(crate) const IPVS_CMD_ATTR_TIMEOUT_TCP_FIN: u16 = 5;
pub(crate) const IPVS_CMD_ATTR_TIMEOUT_UDP: u16 = 6;

pub(crate) const IPVS_SVC_ATTR_AF: u16 = 1;
pub(crate) const IPVS_SVC_ATTR_PROTOCOL: u16 = 2;
pub(crate) const IPVS_SVC_ATTR_ADDR: u16 = 3;
pub(crate) const IPVS_SVC_ATTR_PORT: u16 = 4;
pub(crate) const IPVS_SVC_ATTR_FWMARK: u16 = 5;
pub(crate) const IPVS_SVC_ATTR_SCHED_NAME: u16 = 6;
pub(crate) const IPVS_SVC_ATTR_FLAGS: u16 = 7;
pub(crate) const IPVS_SVC_ATTR_TIMEOUT: u16 = 8;
pub(crate) const IPVS_SVC_ATTR_NETMASK: u16 = 9;

pub(crate) const IPVS_DEST_ATTR_ADDR: u16 = 1;
pub(crate) const IPVS_DEST_ATTR_PORT: u16 = 2;
pub(crate) const IPVS_DEST_ATTR_FWD_METHOD: u16 = 3;
pub(crate) const IPVS_DEST_ATTR_WEIGHT: u16 = 4;
pub(crate) const IPVS_DEST_ATTR_U_THRESH: u16 = 5;
pub(crate) const IPVS_DEST_ATTR_L_THRESH: u16 = 6;
pub(crate) const IPVS_DEST_ATTR_ACTIVE_CONNS: u16 = 7;
pub(crate) const IPVS_DEST_ATTR_INACT_CONNS: u16 = 8;
pub(crate) const IPVS_DEST_ATTR_ADDR_FAMILY: u16 = 11;

pub(crate) const IPVS_INFO_ATTR_VERSION: u16 = 1;
pub(crate) const IPVS_INFO_ATTR_CONN_TAB_SIZE: u16 = 2;

/// A client stays with its real server.
pub const IP_VS_SVC_F_PERSISTENT: u32 = 0x0001;
/// The kernel's own; means nothing outside.
pub(crate) const IP_VS_SVC_F_HASHED: u32 = 0x0002;
/// `sh-fallback` and `mh-fallback`: another real server where the chosen one has no weight.
pub const IP_VS_SVC_F_SCHED1: u32 = 0x0008;
/// `sh-port` and `mh-port`: the client's port counts too.
pub const IP_VS_SVC_F_SCHED2: u32 = 0x0010;
/// `flag-3`, which no scheduler reads.
pub const IP_VS_SVC_F_SCHED3: u32 = 0x0020;

/// The destination is rewritten.
pub const IP_VS_CONN_F_MASQ: u32 = 0;
/// The bits of a real server's flags that tell how packets get to it.
pub(crate) const IP_VS_CONN_F_FWD_MASK: u32 = 7;

pub(crate) const AF_INET: u16 = 2;
pub(crate) const AF_INET6: u16 = 10;
