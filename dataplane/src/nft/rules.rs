//! Statements to nf_tables expressions. Above each: the rule in nft's syntax.

use ipnet::IpNet;
use std::time::Duration;
use zw_model::Family;

use zw_netlink::nft::{
    CmpOp, CtKey, Expr, FibAddress, MetaKey, NameMatch, PayloadBase, REG_VERDICT, REG32_00,
    RTN_LOCAL, RejectWith, Verdict,
};
use zw_plan::{Field, Interface, Rule, Statement};

/// `IP_CT_NEW` as a bit of `ct state`.
const STATE_NEW: u32 = 1 << 3;
/// `IPS_DST_NAT`
const STATUS_DNAT: u32 = 1 << 5;
/// `th dport` starts here in TCP, UDP and SCTP alike.
const DPORT_OFFSET: u32 = 2;

/// One rule.
pub(crate) fn encode(family: Family, rule: &Rule) -> Vec<Expr> {
    rule.iter().flat_map(|statement| encode_statement(family, statement)).collect()
}

/// `ip daddr 10.96.0.10 th dport 80 meta nftrace set 1`
pub(crate) fn to_and_trace(family: Family, to: std::net::SocketAddr) -> Vec<Expr> {
    let mut exprs = within(family, Field::Daddr, to.ip().into(), CmpOp::Eq);
    let port = to.port().to_be_bytes().to_vec();
    exprs.extend([
        load(family, Field::Dport, REG32_00),
        Expr::Cmp { sreg: REG32_00, op: CmpOp::Eq, data: port },
        Expr::Immediate { dreg: REG32_00, data: vec![1] },
        Expr::MetaSet { key: MetaKey::Nftrace, sreg: REG32_00 },
    ]);
    exprs
}

fn encode_statement(family: Family, statement: &Statement) -> Vec<Expr> {
    match statement {
        // ct state new
        Statement::New => has_bit(Expr::Ct { key: CtKey::State, dreg: REG32_00 }, STATE_NEW),
        // ct status dnat
        Statement::Redirected => {
            has_bit(Expr::Ct { key: CtKey::Status, dreg: REG32_00 }, STATUS_DNAT)
        }
        // ip saddr 10.244.0.0/16
        Statement::From(net) => within(family, Field::Saddr, *net, CmpOp::Eq),
        // ip saddr != 10.244.0.0/16
        Statement::NotFrom(net) => within(family, Field::Saddr, *net, CmpOp::Neq),
        // ip daddr != 127.0.0.0/8
        Statement::NotTo(net) => within(family, Field::Daddr, *net, CmpOp::Neq),
        // iifname "veth*"
        Statement::Via(interface) => came_through(interface, CmpOp::Eq),
        // iifname != "veth*"
        Statement::NotVia(interface) => came_through(interface, CmpOp::Neq),
        // fib saddr type local
        Statement::FromNode => is_local(FibAddress::Saddr),
        // fib daddr type local
        Statement::ToNode => is_local(FibAddress::Daddr),
        // meta l4proto tcp
        Statement::Protocol(protocol) => vec![
            Expr::Meta { key: MetaKey::L4proto, dreg: REG32_00 },
            Expr::Cmp { sreg: REG32_00, op: CmpOp::Eq, data: vec![protocol.number()] },
        ],
        // ip daddr . meta l4proto . th dport @no-endpoints
        Statement::In(key, set) => look_up(family, key, set.as_str(), None),
        // ip daddr . meta l4proto . th dport . ip saddr != @allowed
        Statement::NotIn(key, set) => {
            let mut exprs = look_up(family, key, set.as_str(), None);
            if let Some(Expr::Lookup { invert, .. }) = exprs.last_mut() {
                *invert = true;
            }
            exprs
        }
        // update @connections { ip daddr . meta l4proto . th dport }
        Statement::Count(key, set) => {
            let set = set.to_string();
            let count = Expr::Update { set, key_reg: REG32_00, data_reg: None, timeout: None };
            [load_all(family, key), vec![count]].concat()
        }
        // ip daddr . meta l4proto . th dport vmap @services
        Statement::Dispatch(key, set) => look_up(family, key, set.as_str(), Some(REG_VERDICT)),
        // meta mark & 0x00004000 == 0x00004000
        Statement::Marked(bit) => vec![
            Expr::Meta { key: MetaKey::Mark, dreg: REG32_00 },
            keep(*bit),
            Expr::Cmp { sreg: REG32_00, op: CmpOp::Eq, data: bit.to_ne_bytes().to_vec() },
        ],
        // meta mark set meta mark | 0x00004000
        Statement::Mark(bit) => set_mark(!bit, *bit),
        // meta mark set meta mark ^ 0x00004000
        Statement::Unmark(bit) => set_mark(u32::MAX, *bit),
        // dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @endpoints
        Statement::Dnat { slots, map, balance } => {
            let key = Statement::dnat_key(*slots, *map, *balance);
            redirect(family, look_up(family, &key, map.as_str(), Some(REG32_00)))
        }
        // dnat ip to ip saddr map @affinity-...
        Statement::DnatAsBefore(map) => {
            redirect(family, look_up(family, &[Field::Saddr], map, Some(REG32_00)))
        }
        // update @affinity-... { ct original ip saddr timeout 3h : ip daddr . th dport }
        Statement::Remember { map, timeout } => {
            let client = match family {
                Family::V4 => CtKey::OriginalIpSaddr,
                Family::V6 => CtKey::OriginalIp6Saddr,
            };
            let endpoint = REG32_00 + registers(family, Field::Saddr);
            vec![
                Expr::Ct { key: client, dreg: REG32_00 },
                load(family, Field::Daddr, endpoint),
                load(family, Field::Dport, endpoint + registers(family, Field::Daddr)),
                Expr::Update {
                    set: map.clone(),
                    key_reg: REG32_00,
                    data_reg: Some(endpoint),
                    timeout: Some(Duration::from_secs((*timeout).into())),
                },
            ]
        }
        // masquerade fully-random
        Statement::Masquerade => vec![Expr::Masquerade { fully_random: true }],
        // reject
        Statement::Reject => vec![Expr::Reject(RejectWith::IcmpPortUnreachable)],
        // drop
        Statement::Drop => vec![Expr::Verdict(Verdict::Drop)],
        // accept
        Statement::Accept => vec![Expr::Verdict(Verdict::Accept)],
        // jump dispatch
        Statement::Jump(chain) => vec![Expr::Verdict(Verdict::Jump(chain.clone().into_owned()))],
        // goto leave-as-node
        Statement::Goto(chain) => vec![Expr::Verdict(Verdict::Goto(chain.clone().into_owned()))],
    }
}

/// Loads a concatenation into consecutive registers and looks it up.
fn look_up(family: Family, key: &[Field], set: &str, dreg: Option<u32>) -> Vec<Expr> {
    let mut exprs = load_all(family, key);
    exprs.push(Expr::Lookup { set: set.into(), sreg: REG32_00, dreg, invert: false });
    exprs
}

/// Loads a concatenation into consecutive registers.
fn load_all(family: Family, key: &[Field]) -> Vec<Expr> {
    let mut register = REG32_00;
    let each = key.iter().map(|field| {
        let loaded = load(family, *field, register);
        register += registers(family, *field);
        loaded
    });
    each.collect()
}

fn load(family: Family, field: Field, dreg: u32) -> Expr {
    // Where the addresses stand in an IPv4 and in an IPv6 header.
    let (source, destination, len) = match family {
        Family::V4 => (12, 16, 4),
        Family::V6 => (8, 24, 16),
    };
    let network = |offset| Expr::Payload { base: PayloadBase::Network, offset, len, dreg };
    match field {
        Field::Saddr => network(source),
        Field::Daddr => network(destination),
        Field::OriginalDaddr => {
            let key = match family {
                Family::V4 => CtKey::OriginalIpDaddr,
                Family::V6 => CtKey::OriginalIp6Daddr,
            };
            Expr::Ct { key, dreg }
        }
        Field::OriginalDport => Expr::Ct { key: CtKey::OriginalProtoDst, dreg },
        Field::Protocol => Expr::Meta { key: MetaKey::L4proto, dreg },
        Field::Dport => {
            Expr::Payload { base: PayloadBase::Transport, offset: DPORT_OFFSET, len: 2, dreg }
        }
        Field::Pick(modulus) => Expr::Numgen { dreg, modulus, random: true },
        Field::Next(modulus) => Expr::Numgen { dreg, modulus, random: false },
    }
}

/// How many 4-byte registers a field takes.
fn registers(family: Family, field: Field) -> u32 {
    match (field, family) {
        (Field::Saddr | Field::Daddr | Field::OriginalDaddr, Family::V6) => 4,
        _ => 1,
    }
}

/// To the address and port that a lookup has left in the first registers.
fn redirect(family: Family, mut exprs: Vec<Expr>) -> Vec<Expr> {
    exprs.push(Expr::Nat {
        dnat: true,
        family: super::family(family),
        addr_reg: REG32_00,
        port_reg: Some(REG32_00 + registers(family, Field::Daddr)),
        flags: 0,
    });
    exprs
}

fn came_through(interface: &Interface, op: CmpOp) -> Vec<Expr> {
    let name = if interface.prefix {
        NameMatch::Prefix(&interface.name)
    } else {
        NameMatch::Exact(&interface.name)
    };
    Expr::iifname(REG32_00, op, name).to_vec()
}

fn is_local(address: FibAddress) -> Vec<Expr> {
    let data = RTN_LOCAL.to_ne_bytes().to_vec();
    vec![
        Expr::FibType { address, dreg: REG32_00 },
        Expr::Cmp { sreg: REG32_00, op: CmpOp::Eq, data },
    ]
}

fn has_bit(load: Expr, bit: u32) -> Vec<Expr> {
    let nothing = 0u32.to_ne_bytes().to_vec();
    vec![load, keep(bit), Expr::Cmp { sreg: REG32_00, op: CmpOp::Neq, data: nothing }]
}

fn keep(bits: u32) -> Expr {
    bitwise(bits, 0)
}

fn bitwise(mask: u32, xor: u32) -> Expr {
    let (mask, xor) = (mask.to_ne_bytes().to_vec(), xor.to_ne_bytes().to_vec());
    Expr::Bitwise { sreg: REG32_00, dreg: REG32_00, mask, xor }
}

fn set_mark(mask: u32, xor: u32) -> Vec<Expr> {
    vec![
        Expr::Meta { key: MetaKey::Mark, dreg: REG32_00 },
        bitwise(mask, xor),
        Expr::MetaSet { key: MetaKey::Mark, sreg: REG32_00 },
    ]
}

fn within(family: Family, field: Field, net: IpNet, op: CmpOp) -> Vec<Expr> {
    let bytes = |addr: std::net::IpAddr| match addr {
        std::net::IpAddr::V4(v4) => v4.octets().to_vec(),
        std::net::IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let (mask, network) = (bytes(net.netmask()), bytes(net.network()));
    let xor = vec![0; mask.len()];
    // nft leaves out a mask that keeps everything, and so must we for its listing.
    let whole = net.prefix_len() == net.max_prefix_len();
    let masked = Expr::Bitwise { sreg: REG32_00, dreg: REG32_00, mask, xor };
    let compared = Expr::Cmp { sreg: REG32_00, op, data: network };
    let loaded = load(family, field, REG32_00);
    if whole { vec![loaded, compared] } else { vec![loaded, masked, compared] }
}
