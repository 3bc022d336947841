//! Expressions: the instructions a rule is made of.
//!
//! Owns their encoding, one function per kernel expression, the nft syntax above each. Picks no
//! registers and checks no types: the kernel does, and refuses the rule.

use std::time::Duration;

use super::Family;
use super::constants::*;
use super::element::{ElementData, put_data, put_value};
use super::load::{CtKey, FibAddress, MetaKey, NameMatch, PayloadBase};
use super::set::millis;
use crate::attr;

/// The register a verdict is written to.
pub const REG_VERDICT: u32 = 0;
/// The first of sixteen 4-byte registers; the others follow it by number.
pub const REG32_00: u32 = 8;

/// `random`: pick source ports at random, seeded by a hash.
pub const NAT_RANDOM: u32 = 1 << 2;
/// `persistent`: the same client gets the same mapping.
pub const NAT_PERSISTENT: u32 = 1 << 3;
/// `fully-random`: pick source ports at random.
pub const NAT_FULLY_RANDOM: u32 = 1 << 4;

/// One instruction. A rule ends at the first comparison or lookup that does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// Loads bytes of a header.
    Payload {
        /// The header.
        base: PayloadBase,
        /// From where in it.
        offset: u32,
        /// How many bytes.
        len: u32,
        /// To which register on.
        dreg: u32,
    },
    /// Loads a property of the packet.
    Meta {
        /// Which.
        key: MetaKey,
        /// To which register.
        dreg: u32,
    },
    /// Sets a property of the packet.
    MetaSet {
        /// Which.
        key: MetaKey,
        /// From which register.
        sreg: u32,
    },
    /// Loads a property of the packet's connection.
    Ct {
        /// Which.
        key: CtKey,
        /// To which register.
        dreg: u32,
    },
    /// Loads the kind of an address as the routing tables have it, whatever the interface: `RTN_*`
    /// in host order, such as [`RTN_LOCAL`](super::RTN_LOCAL).
    FibType {
        /// Which address of the packet.
        address: FibAddress,
        /// To which register.
        dreg: u32,
    },
    /// Compares registers with a value. One shorter than what was loaded compares only the start,
    /// which is how nft writes `iifname "veth*"`: see [`Expr::iifname`].
    Cmp {
        /// From which register on.
        sreg: u32,
        /// How.
        op: CmpOp,
        /// With what.
        data: Vec<u8>,
    },
    /// `dreg = (sreg & mask) ^ xor`, all of the same length.
    Bitwise {
        /// From which register on.
        sreg: u32,
        /// To which register on.
        dreg: u32,
        /// Bits kept.
        mask: Vec<u8>,
        /// Bits flipped.
        xor: Vec<u8>,
    },
    /// Loads a constant.
    Immediate {
        /// To which register on.
        dreg: u32,
        /// The constant.
        data: Vec<u8>,
    },
    /// Ends the rule.
    Verdict(Verdict),
    /// Looks a key up; the rule goes on if it is there, or is not with `invert`.
    Lookup {
        /// The set's name. It may be created earlier in the same batch.
        set: String,
        /// The register the key starts in.
        sreg: u32,
        /// Where a map's data goes; [`REG_VERDICT`] for verdict maps.
        dreg: Option<u32>,
        /// Whether to match absence.
        invert: bool,
    },
    /// Adds an element from the packet path, or starts the time of the one that is there anew.
    /// The data of one that is there stays as it is.
    ///
    /// The set must be `dynamic`. A full one takes no more: the rule then ends there. nft 1.0.6
    /// lists an update of any map, but aborts on loading one whose key or data exceeds 16 bytes.
    Update {
        /// The set's name. It may be created earlier in the same batch.
        set: String,
        /// The register the key starts in.
        key_reg: u32,
        /// The register the data starts in, for maps.
        data_reg: Option<u32>,
        /// How long the element lives, if not for the set's own timeout.
        timeout: Option<Duration>,
    },
    /// Makes a number below the modulus, in host order.
    Numgen {
        /// To which register.
        dreg: u32,
        /// The modulus.
        modulus: u32,
        /// Random, else counting up.
        random: bool,
    },
    /// Rewrites an address and perhaps a port.
    Nat {
        /// The destination, else the source.
        dnat: bool,
        /// Of the address.
        family: Family,
        /// The register the address starts in.
        addr_reg: u32,
        /// The register the port is in.
        port_reg: Option<u32>,
        /// `NAT_*`, or 0.
        flags: u32,
    },
    /// Rewrites the source to the address of the outgoing interface.
    Masquerade {
        /// Whether ports are picked at random.
        fully_random: bool,
    },
    /// Refuses the packet and tells the sender.
    Reject(RejectWith),
    /// Counts packets and bytes.
    Counter,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmpOp {
    /// Equal.
    Eq,
    /// Not equal.
    Neq,
}

/// How a rule ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accept the packet.
    Accept,
    /// Drop the packet.
    Drop,
    /// Go back to the calling chain.
    Return,
    /// Go on in that chain and do not come back.
    Goto(String),
    /// Go on in that chain and come back.
    Jump(String),
}

/// What a refused sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectWith {
    /// ICMP or ICMPv6 port unreachable, by the table's family.
    IcmpPortUnreachable,
    /// A TCP reset.
    TcpReset,
}

impl Verdict {
    fn data(&self) -> ElementData<'_> {
        match self {
            Self::Accept => ElementData::Accept,
            Self::Drop => ElementData::Drop,
            Self::Return => ElementData::Return,
            Self::Goto(chain) => ElementData::Goto(chain),
            Self::Jump(chain) => ElementData::Jump(chain),
        }
    }
}

impl Expr {
    /// `iifname "eth0"`, `iifname != "veth*"`: the load and the comparison, through `reg` and the
    /// three after it.
    pub fn iifname(reg: u32, op: CmpOp, name: NameMatch<'_>) -> [Self; 2] {
        let load = Self::Meta { key: MetaKey::Iifname, dreg: reg };
        [load, Self::Cmp { sreg: reg, op, data: name.bytes() }]
    }

    /// Appends the expression as one element of a rule's list; `family` is the table's.
    pub(crate) fn encode(&self, buf: &mut Vec<u8>, family: Family) {
        let at = attr::nest(buf, NFTA_LIST_ELEM);
        self.encode_body(buf, family);
        attr::end_nest(buf, at);
    }

    fn encode_body(&self, buf: &mut Vec<u8>, table_family: Family) {
        match self {
            // ip daddr, th dport, ...
            Self::Payload { base, offset, len, dreg } => {
                let base = match base {
                    PayloadBase::Network => 1,
                    PayloadBase::Transport => 2,
                };
                expr(buf, "payload", |buf| {
                    attr::put_u32(buf, NFTA_PAYLOAD_DREG, *dreg);
                    attr::put_u32(buf, NFTA_PAYLOAD_BASE, base);
                    attr::put_u32(buf, NFTA_PAYLOAD_OFFSET, *offset);
                    attr::put_u32(buf, NFTA_PAYLOAD_LEN, *len);
                });
            }
            // meta mark
            Self::Meta { key, dreg } => expr(buf, "meta", |buf| {
                attr::put_u32(buf, NFTA_META_KEY, key.number());
                attr::put_u32(buf, NFTA_META_DREG, *dreg);
            }),
            // meta mark set ...
            Self::MetaSet { key, sreg } => expr(buf, "meta", |buf| {
                attr::put_u32(buf, NFTA_META_KEY, key.number());
                attr::put_u32(buf, NFTA_META_SREG, *sreg);
            }),
            // ct state, ct original ip daddr
            Self::Ct { key, dreg } => expr(buf, "ct", |buf| {
                attr::put_u32(buf, NFTA_CT_KEY, key.number());
                attr::put_u32(buf, NFTA_CT_DREG, *dreg);
                if key.is_original() {
                    attr::put(buf, NFTA_CT_DIRECTION, &[IP_CT_DIR_ORIGINAL]);
                }
            }),
            // fib daddr type
            Self::FibType { address, dreg } => expr(buf, "fib", |buf| {
                let address = match address {
                    FibAddress::Saddr => NFTA_FIB_F_SADDR,
                    FibAddress::Daddr => NFTA_FIB_F_DADDR,
                };
                attr::put_u32(buf, NFTA_FIB_DREG, *dreg);
                attr::put_u32(buf, NFTA_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE);
                attr::put_u32(buf, NFTA_FIB_FLAGS, address);
            }),
            // == 80, != 80
            Self::Cmp { sreg, op, data } => expr(buf, "cmp", |buf| {
                attr::put_u32(buf, NFTA_CMP_SREG, *sreg);
                attr::put_u32(buf, NFTA_CMP_OP, u32::from(*op == CmpOp::Neq));
                put_value(buf, NFTA_CMP_DATA, data);
            }),
            // & mask ^ xor
            Self::Bitwise { sreg, dreg, mask, xor } => expr(buf, "bitwise", |buf| {
                attr::put_u32(buf, NFTA_BITWISE_SREG, *sreg);
                attr::put_u32(buf, NFTA_BITWISE_DREG, *dreg);
                attr::put_u32(buf, NFTA_BITWISE_LEN, mask.len() as u32);
                put_value(buf, NFTA_BITWISE_MASK, mask);
                put_value(buf, NFTA_BITWISE_XOR, xor);
            }),
            // the right side of meta mark set 1
            Self::Immediate { dreg, data } => immediate(buf, *dreg, ElementData::Value(data)),
            // accept, goto chain
            Self::Verdict(verdict) => immediate(buf, REG_VERDICT, verdict.data()),
            // @set, map @map, vmap @map
            Self::Lookup { set, sreg, dreg, invert } => expr(buf, "lookup", |buf| {
                attr::put_str(buf, NFTA_LOOKUP_SET, set);
                attr::put_u32(buf, NFTA_LOOKUP_SREG, *sreg);
                if let Some(dreg) = dreg {
                    attr::put_u32(buf, NFTA_LOOKUP_DREG, *dreg);
                }
                if *invert {
                    attr::put_u32(buf, NFTA_LOOKUP_FLAGS, NFT_LOOKUP_F_INV);
                }
            }),
            // update @map { ip saddr timeout 3h : ip daddr }
            Self::Update { set, key_reg, data_reg, timeout } => expr(buf, "dynset", |buf| {
                attr::put_str(buf, NFTA_DYNSET_SET_NAME, set);
                attr::put_u32(buf, NFTA_DYNSET_OP, NFT_DYNSET_OP_UPDATE);
                attr::put_u32(buf, NFTA_DYNSET_SREG_KEY, *key_reg);
                if let Some(data) = data_reg {
                    attr::put_u32(buf, NFTA_DYNSET_SREG_DATA, *data);
                }
                if let Some(timeout) = timeout {
                    attr::put_u64(buf, NFTA_DYNSET_TIMEOUT, millis(*timeout));
                }
            }),
            // numgen random mod 2
            Self::Numgen { dreg, modulus, random } => {
                let kind = if *random { NFT_NG_RANDOM } else { NFT_NG_INCREMENTAL };
                expr(buf, "numgen", |buf| {
                    attr::put_u32(buf, NFTA_NG_DREG, *dreg);
                    attr::put_u32(buf, NFTA_NG_MODULUS, *modulus);
                    attr::put_u32(buf, NFTA_NG_TYPE, kind);
                });
            }
            // dnat ip to ...
            Self::Nat { dnat, family, addr_reg, port_reg, flags } => expr(buf, "nat", |buf| {
                let kind = if *dnat { NFT_NAT_DNAT } else { NFT_NAT_SNAT };
                attr::put_u32(buf, NFTA_NAT_TYPE, kind);
                attr::put_u32(buf, NFTA_NAT_FAMILY, u32::from(family.nfproto()));
                attr::put_u32(buf, NFTA_NAT_REG_ADDR_MIN, *addr_reg);
                if let Some(port) = port_reg {
                    attr::put_u32(buf, NFTA_NAT_REG_PROTO_MIN, *port);
                }
                if *flags != 0 {
                    attr::put_u32(buf, NFTA_NAT_FLAGS, *flags);
                }
            }),
            // masquerade fully-random
            Self::Masquerade { fully_random } => expr(buf, "masq", |buf| {
                if *fully_random {
                    attr::put_u32(buf, NFTA_MASQ_FLAGS, NAT_FULLY_RANDOM);
                }
            }),
            // reject, reject with tcp reset
            Self::Reject(with) => expr(buf, "reject", |buf| {
                let (kind, code) = match (with, table_family) {
                    (RejectWith::TcpReset, _) => (NFT_REJECT_TCP_RST, 0),
                    (_, Family::Ip) => (NFT_REJECT_ICMP_UNREACH, ICMP_PORT_UNREACH),
                    (_, Family::Ip6) => (NFT_REJECT_ICMP_UNREACH, ICMPV6_PORT_UNREACH),
                };
                attr::put_u32(buf, NFTA_REJECT_TYPE, kind);
                attr::put(buf, NFTA_REJECT_ICMP_CODE, &[code]);
            }),
            Self::Counter => put_counter(buf),
        }
    }
}

/// `counter`, inside whatever nest holds it.
pub(crate) fn put_counter(buf: &mut Vec<u8>) {
    expr(buf, "counter", |_| {});
}

fn immediate(buf: &mut Vec<u8>, dreg: u32, data: ElementData<'_>) {
    expr(buf, "immediate", |buf| {
        attr::put_u32(buf, NFTA_IMMEDIATE_DREG, dreg);
        put_data(buf, NFTA_IMMEDIATE_DATA, data);
    });
}

fn expr(buf: &mut Vec<u8>, name: &str, attributes: impl FnOnce(&mut Vec<u8>)) {
    attr::put_str(buf, NFTA_EXPR_NAME, name);
    let at = attr::nest(buf, NFTA_EXPR_DATA);
    attributes(buf);
    attr::end_nest(buf, at);
}
