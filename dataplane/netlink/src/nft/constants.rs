//! Numbers of the kernel's interface (`linux/netfilter/nf_tables.h`, `nfnetlink.h`, `nf_nat.h`)
//! and of libnftnl's userdata, under their own names. Only those this crate uses.

pub(crate) const NFNL_SUBSYS_NFTABLES: u16 = 10;
pub(crate) const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
pub(crate) const NFNL_MSG_BATCH_END: u16 = 0x11;
pub(crate) const NFNL_BATCH_GENID: u16 = 1;

pub(crate) const NFT_MSG_NEWTABLE: u16 = 0;
pub(crate) const NFT_MSG_GETTABLE: u16 = 1;
pub(crate) const NFT_MSG_DELTABLE: u16 = 2;
pub(crate) const NFT_MSG_NEWCHAIN: u16 = 3;
pub(crate) const NFT_MSG_GETCHAIN: u16 = 4;
pub(crate) const NFT_MSG_DELCHAIN: u16 = 5;
pub(crate) const NFT_MSG_NEWRULE: u16 = 6;
pub(crate) const NFT_MSG_GETRULE: u16 = 7;
pub(crate) const NFT_MSG_DELRULE: u16 = 8;
pub(crate) const NFT_MSG_NEWSET: u16 = 9;
pub(crate) const NFT_MSG_GETSET: u16 = 10;
pub(crate) const NFT_MSG_DELSET: u16 = 11;
pub(crate) const NFT_MSG_NEWSETELEM: u16 = 12;
pub(crate) const NFT_MSG_GETSETELEM: u16 = 13;
pub(crate) const NFT_MSG_DELSETELEM: u16 = 14;
pub(crate) const NFT_MSG_NEWGEN: u16 = 15;
pub(crate) const NFT_MSG_GETGEN: u16 = 16;

pub(crate) const NFTA_LIST_ELEM: u16 = 1;
pub(crate) const NFTA_GEN_ID: u16 = 1;

pub(crate) const NFTA_TABLE_NAME: u16 = 1;
pub(crate) const NFTA_TABLE_FLAGS: u16 = 2;
pub(crate) const NFTA_TABLE_USERDATA: u16 = 6;

pub(crate) const NFTA_CHAIN_TABLE: u16 = 1;
pub(crate) const NFTA_CHAIN_NAME: u16 = 3;
pub(crate) const NFTA_CHAIN_HOOK: u16 = 4;
pub(crate) const NFTA_CHAIN_POLICY: u16 = 5;
pub(crate) const NFTA_CHAIN_TYPE: u16 = 7;
pub(crate) const NFTA_CHAIN_USERDATA: u16 = 12;
pub(crate) const NFTA_HOOK_HOOKNUM: u16 = 1;
pub(crate) const NFTA_HOOK_PRIORITY: u16 = 2;

pub(crate) const NFTA_RULE_TABLE: u16 = 1;
pub(crate) const NFTA_RULE_CHAIN: u16 = 2;
pub(crate) const NFTA_RULE_EXPRESSIONS: u16 = 4;
pub(crate) const NFTA_RULE_USERDATA: u16 = 7;

pub(crate) const NFTA_SET_TABLE: u16 = 1;
pub(crate) const NFTA_SET_NAME: u16 = 2;
pub(crate) const NFTA_SET_FLAGS: u16 = 3;
pub(crate) const NFTA_SET_KEY_TYPE: u16 = 4;
pub(crate) const NFTA_SET_KEY_LEN: u16 = 5;
pub(crate) const NFTA_SET_DATA_TYPE: u16 = 6;
pub(crate) const NFTA_SET_DATA_LEN: u16 = 7;
pub(crate) const NFTA_SET_DESC: u16 = 9;
pub(crate) const NFTA_SET_ID: u16 = 10;
pub(crate) const NFTA_SET_TIMEOUT: u16 = 11;
pub(crate) const NFTA_SET_USERDATA: u16 = 13;
pub(crate) const NFTA_SET_EXPR: u16 = 17;
pub(crate) const NFTA_SET_EXPRESSIONS: u16 = 18;
pub(crate) const NFTA_SET_DESC_SIZE: u16 = 1;
pub(crate) const NFTA_SET_DESC_CONCAT: u16 = 2;
pub(crate) const NFTA_SET_FIELD_LEN: u16 = 1;

pub(crate) const NFT_SET_INTERVAL: u32 = 0x4;
pub(crate) const NFT_SET_MAP: u32 = 0x8;
pub(crate) const NFT_SET_TIMEOUT: u32 = 0x10;
pub(crate) const NFT_SET_EVAL: u32 = 0x20;
pub(crate) const NFT_SET_CONCAT: u32 = 0x80;
pub(crate) const NFT_DATA_VERDICT: u32 = 0xffff_ff00;

pub(crate) const NFTA_SET_ELEM_KEY: u16 = 1;
pub(crate) const NFTA_SET_ELEM_DATA: u16 = 2;
pub(crate) const NFTA_SET_ELEM_FLAGS: u16 = 3;
pub(crate) const NFTA_SET_ELEM_TIMEOUT: u16 = 4;
pub(crate) const NFTA_SET_ELEM_EXPIRATION: u16 = 5;
pub(crate) const NFTA_SET_ELEM_USERDATA: u16 = 6;
pub(crate) const NFTA_SET_ELEM_EXPR: u16 = 7;
pub(crate) const NFTA_SET_ELEM_KEY_END: u16 = 10;
pub(crate) const NFTA_SET_ELEM_EXPRESSIONS: u16 = 11;
pub(crate) const NFT_SET_ELEM_INTERVAL_END: u32 = 1;
pub(crate) const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
pub(crate) const NFTA_SET_ELEM_LIST_SET: u16 = 2;
pub(crate) const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;

pub(crate) const NFTA_DATA_VALUE: u16 = 1;
pub(crate) const NFTA_DATA_VERDICT: u16 = 2;
pub(crate) const NFTA_VERDICT_CODE: u16 = 1;
pub(crate) const NFTA_VERDICT_CHAIN: u16 = 2;
pub(crate) const NF_DROP: i32 = 0;
pub(crate) const NF_ACCEPT: i32 = 1;
pub(crate) const NFT_JUMP: i32 = -3;
pub(crate) const NFT_GOTO: i32 = -4;
pub(crate) const NFT_RETURN: i32 = -5;

pub(crate) const NFTA_EXPR_NAME: u16 = 1;
pub(crate) const NFTA_EXPR_DATA: u16 = 2;
pub(crate) const NFTA_PAYLOAD_DREG: u16 = 1;
pub(crate) const NFTA_PAYLOAD_BASE: u16 = 2;
pub(crate) const NFTA_PAYLOAD_OFFSET: u16 = 3;
pub(crate) const NFTA_PAYLOAD_LEN: u16 = 4;
pub(crate) const NFTA_META_DREG: u16 = 1;
pub(crate) const NFTA_META_KEY: u16 = 2;
pub(crate) const NFTA_META_SREG: u16 = 3;
pub(crate) const NFTA_CT_DREG: u16 = 1;
pub(crate) const NFTA_CT_KEY: u16 = 2;
pub(crate) const NFTA_CMP_SREG: u16 = 1;
pub(crate) const NFTA_CMP_OP: u16 = 2;
pub(crate) const NFTA_CMP_DATA: u16 = 3;
pub(crate) const NFTA_BITWISE_SREG: u16 = 1;
pub(crate) const NFTA_BITWISE_DREG: u16 = 2;
pub(crate) const NFTA_BITWISE_LEN: u16 = 3;
pub(crate) const NFTA_BITWISE_MASK: u16 = 4;
pub(crate) const NFTA_BITWISE_XOR: u16 = 5;
pub(crate) const NFTA_IMMEDIATE_DREG: u16 = 1;
pub(crate) const NFTA_IMMEDIATE_DATA: u16 = 2;
pub(crate) const NFTA_LOOKUP_SET: u16 = 1;
pub(crate) const NFTA_LOOKUP_SREG: u16 = 2;
pub(crate) const NFTA_LOOKUP_DREG: u16 = 3;
pub(crate) const NFTA_LOOKUP_FLAGS: u16 = 5;
pub(crate) const NFT_LOOKUP_F_INV: u32 = 1;
pub(crate) const NFTA_NG_DREG: u16 = 1;
pub(crate) const NFTA_NG_MODULUS: u16 = 2;
pub(crate) const NFTA_NG_TYPE: u16 = 3;
pub(crate) const NFT_NG_INCREMENTAL: u32 = 0;
pub(crate) const NFT_NG_RANDOM: u32 = 1;
pub(crate) const NFTA_NAT_TYPE: u16 = 1;
pub(crate) const NFTA_NAT_FAMILY: u16 = 2;
pub(crate) const NFTA_NAT_REG_ADDR_MIN: u16 = 3;
pub(crate) const NFTA_NAT_REG_PROTO_MIN: u16 = 5;
pub(crate) const NFTA_NAT_FLAGS: u16 = 7;
pub(crate) const NFT_NAT_SNAT: u32 = 0;
pub(crate) const NFT_NAT_DNAT: u32 = 1;
pub(crate) const NFTA_MASQ_FLAGS: u16 = 1;
pub(crate) const NFTA_REJECT_TYPE: u16 = 1;
pub(crate) const NFTA_REJECT_ICMP_CODE: u16 = 2;
pub(crate) const NFT_REJECT_ICMP_UNREACH: u32 = 0;
pub(crate) const NFT_REJECT_TCP_RST: u32 = 1;
pub(crate) const ICMP_PORT_UNREACH: u8 = 3;
pub(crate) const ICMPV6_PORT_UNREACH: u8 = 4;
pub(crate) const NFTA_COUNTER_BYTES: u16 = 1;
pub(crate) const NFTA_COUNTER_PACKETS: u16 = 2;

/// Userdata the kernel keeps for an object, at most.
pub(crate) const NFT_USERDATA_MAXLEN: usize = 256;
/// libnftnl's bound of a comment, its NUL included.
pub(crate) const NFTNL_UDATA_COMMENT_MAXLEN: usize = 128;
pub(crate) const NFTNL_UDATA_TABLE_COMMENT: u8 = 0;
pub(crate) const NFTNL_UDATA_CHAIN_COMMENT: u8 = 0;
pub(crate) const NFTNL_UDATA_RULE_COMMENT: u8 = 0;
pub(crate) const NFTNL_UDATA_SET_ELEM_COMMENT: u8 = 0;
pub(crate) const NFTNL_UDATA_SET_KEYBYTEORDER: u8 = 0;
pub(crate) const NFTNL_UDATA_SET_DATABYTEORDER: u8 = 1;
pub(crate) const NFTNL_UDATA_SET_KEY_TYPEOF: u8 = 3;
pub(crate) const NFTNL_UDATA_SET_DATA_TYPEOF: u8 = 4;
pub(crate) const NFTNL_UDATA_SET_DATA_INTERVAL: u8 = 6;
pub(crate) const NFTNL_UDATA_SET_COMMENT: u8 = 7;
pub(crate) const NFTNL_UDATA_SET_TYPEOF_EXPR: u8 = 0;
pub(crate) const NFTNL_UDATA_SET_TYPEOF_DATA: u8 = 1;
