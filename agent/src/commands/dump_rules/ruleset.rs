//! The ruleset in the JSON schema that `nft -j` speaks: tables, chains, rules and elements.
//!
//! Definitions of sets and maps are not among them: the schema's types know neither verdict maps nor
//! the type of a slot number. The elements name their set.

use std::collections::HashSet;

use ipnet::IpNet;
use nftables::expr::{
    BinaryOperation, CT, CTDir, CTFamily, Elem, Expression, Fib, FibFlag, FibResult, Map, Meta,
    MetaKey, NamedExpression, NgMode, Numgen, Payload, PayloadField, Prefix, Range, Verdict,
};
use nftables::schema::{Chain, Element, NfListObject, Rule, Table as NfTable};
use nftables::stmt::{
    JumpTarget, Mangle, Match, NAT, NATFamily, NATFlag, Operator, Reject, RejectType, Set, SetOp,
    Statement, VerdictMap,
};
use nftables::types::{NfChainPolicy, NfChainType, NfFamily, NfHook, RejectCode};
use zw_model::Family;
use zw_plan::{
    Data, Field, HookKind, HookPoint, Interface, SetData, SetDef, TABLE, Table, Value, decode, sets,
};

/// A table's objects, in the order nft lists them.
pub(crate) fn objects(table: &Table) -> Vec<NfListObject<'_>> {
    let family = nf_family(table.family);
    let mut objects =
        vec![NfListObject::Table(NfTable { family, name: TABLE.into(), handle: None })];
    objects.extend(sets().filter_map(|set| elements(table, &set)));
    objects
        .extend(table.chains.values().map(|chain| NfListObject::Chain(self::chain(family, chain))));
    for chain in table.chains.values() {
        for (rule, fingerprint) in chain.rules.iter().zip(chain.fingerprints(table.family)) {
            objects.push(NfListObject::Rule(Rule {
                family,
                table: TABLE.into(),
                chain: chain.name.as_str().into(),
                expr: rule
                    .iter()
                    .map(|statement| self::statement(table.family, statement))
                    .collect(),
                handle: None,
                index: None,
                comment: Some(fingerprint.into()),
            }));
        }
    }
    objects
}

fn chain(family: NfFamily, chain: &zw_plan::Chain) -> Chain<'_> {
    let hook = chain.hook;
    Chain {
        family,
        table: TABLE.into(),
        name: chain.name.as_str().into(),
        newname: None,
        handle: None,
        _type: hook.map(|hook| match hook.kind {
            HookKind::Filter => NfChainType::Filter,
            HookKind::Nat => NfChainType::NAT,
        }),
        hook: hook.map(|hook| match hook.point {
            HookPoint::Prerouting => NfHook::Prerouting,
            HookPoint::Input => NfHook::Input,
            HookPoint::Forward => NfHook::Forward,
            HookPoint::Output => NfHook::Output,
            HookPoint::Postrouting => NfHook::Postrouting,
        }),
        prio: hook.map(|hook| hook.priority),
        dev: None,
        policy: hook.map(|_| NfChainPolicy::Accept),
    }
}

fn elements<'a>(table: &'a Table, set: &SetDef) -> Option<NfListObject<'a>> {
    let elements = table.elements.get(&set.name).filter(|elements| !elements.is_empty())?;
    let elem = elements.values().map(|element| {
        let from = decode(table.family, set.key, &element.key).unwrap_or_default();
        let key = match &element.data {
            Data::UpTo(end) => span(from, decode(table.family, set.key, end).unwrap_or_default()),
            _ => concat(from),
        };
        let key = match &element.comment {
            None => key,
            Some(comment) => Expression::Named(NamedExpression::Elem(Elem {
                val: Box::new(key),
                timeout: None,
                expires: None,
                comment: Some(comment.to_string().into()),
                counter: None,
            })),
        };
        match (&element.data, set.data) {
            (Data::Goto(chain), _) => {
                let target = JumpTarget { target: (**chain).into() };
                Expression::List(vec![key, Expression::Verdict(Verdict::Goto(target))])
            }
            (Data::Value(value), SetData::Fields(fields)) => {
                let value = decode(table.family, fields, value).unwrap_or_default();
                Expression::List(vec![key, concat(value)])
            }
            _ => key,
        }
    });
    Some(NfListObject::Element(Element {
        family: nf_family(table.family),
        table: TABLE.into(),
        name: set.name.as_str().into(),
        elem: elem.collect(),
    }))
}

fn concat(values: Vec<Value>) -> Expression<'static> {
    concatenated(values.into_iter().map(value).collect())
}

/// From one key to another, field by field.
fn span(from: Vec<Value>, to: Vec<Value>) -> Expression<'static> {
    let field = |(from, to): (Value, Value)| {
        if from == to {
            return value(from);
        }
        Expression::Range(Box::new(Range { range: [value(from), value(to)] }))
    };
    concatenated(from.into_iter().zip(to).map(field).collect())
}

/// One field alone is no concatenation to nft.
fn concatenated(mut fields: Vec<Expression<'static>>) -> Expression<'static> {
    match fields.pop() {
        Some(only) if fields.is_empty() => only,
        last => {
            fields.extend(last);
            Expression::Named(NamedExpression::Concat(fields))
        }
    }
}

fn value(value: Value) -> Expression<'static> {
    match value {
        Value::Port(port) => Expression::Number(port.into()),
        Value::Slot(slot) => Expression::Number(slot),
        Value::Addr(_) | Value::Protocol(_) => Expression::String(value.to_string().into()),
    }
}

fn statement(family: Family, statement: &zw_plan::Statement) -> Statement<'static> {
    use zw_plan::Statement as S;
    let mark = || Expression::Named(NamedExpression::Meta(Meta { key: MetaKey::Mark }));
    let named_set = |set: &zw_plan::SetName| Expression::String(format!("@{set}").into());
    let target = |chain: &str| JumpTarget { target: chain.to_owned().into() };
    let equal = |left, right| Statement::Match(Match { left, right, op: Operator::EQ });
    let set_mark = |operation| Statement::Mangle(Mangle { key: mark(), value: binary(operation) });
    match statement {
        S::New => has_bit("state", "new"),
        S::Redirected => has_bit("status", "dnat"),
        S::From(net) => compare(field(family, Field::Saddr), prefix(net), Operator::EQ),
        S::NotFrom(net) => compare(field(family, Field::Saddr), prefix(net), Operator::NEQ),
        S::NotTo(net) => compare(field(family, Field::Daddr), prefix(net), Operator::NEQ),
        S::Via(interface) => compare(iifname(), name(interface), Operator::EQ),
        S::NotVia(interface) => compare(iifname(), name(interface), Operator::NEQ),
        S::FromNode => equal(fib("saddr"), Expression::String("local".into())),
        S::ToNode => equal(fib("daddr"), Expression::String("local".into())),
        S::Protocol(protocol) => {
            equal(field(family, Field::Protocol), Expression::String(protocol.to_string().into()))
        }
        S::In(key, set) => equal(fields(family, key), named_set(set)),
        S::NotIn(key, set) => compare(fields(family, key), named_set(set), Operator::NEQ),
        S::Dispatch(key, set) => {
            Statement::VerdictMap(VerdictMap { key: fields(family, key), data: named_set(set) })
        }
        S::Count(key, set) => {
            let (elem, set) = (fields(family, key), format!("@{set}").into());
            Statement::Set(Set { op: SetOp::Update, elem, set })
        }
        S::Marked(bit) => {
            let masked = binary(BinaryOperation::AND(mark(), Expression::Number(*bit)));
            equal(masked, Expression::Number(*bit))
        }
        S::Mark(bit) => set_mark(BinaryOperation::OR(vec![mark(), Expression::Number(*bit)])),
        S::Unmark(bit) => set_mark(BinaryOperation::XOR(mark(), Expression::Number(*bit))),
        S::Dnat { slots, map, balance } => {
            let key = zw_plan::Statement::dnat_key(*slots, *map, *balance);
            dnat(family, Map { key: fields(family, &key), data: named_set(map) })
        }
        S::DnatAsBefore(map) => {
            let data = Expression::String(format!("@{map}").into());
            dnat(family, Map { key: field(family, Field::Saddr), data })
        }
        S::Remember { map, timeout } => {
            let client = CT { key: "saddr".into(), family: None, dir: Some(CTDir::Original) };
            let elem = Expression::Named(NamedExpression::Elem(Elem {
                val: Box::new(Expression::Named(NamedExpression::CT(client))),
                timeout: Some(*timeout),
                expires: None,
                comment: None,
                counter: None,
            }));
            Statement::Set(Set { op: SetOp::Update, elem, set: format!("@{map}").into() })
        }
        S::Masquerade => Statement::Masquerade(Some(NAT {
            addr: None,
            family: None,
            port: None,
            flags: Some(HashSet::from([NATFlag::FullyRandom])),
        })),
        S::Reject => {
            let kind = if family == Family::V4 { RejectType::ICMP } else { RejectType::ICMPv6 };
            Statement::Reject(Some(Reject::new(Some(kind), Some(RejectCode::PortUnreach))))
        }
        S::Drop => Statement::Drop(None),
        S::Accept => Statement::Accept(None),
        S::Jump(chain) => Statement::Jump(target(chain)),
        S::Goto(chain) => Statement::Goto(target(chain)),
    }
}

fn compare(
    left: Expression<'static>,
    right: Expression<'static>,
    op: Operator,
) -> Statement<'static> {
    Statement::Match(Match { left, right, op })
}

fn prefix(net: &IpNet) -> Expression<'static> {
    let addr = Expression::String(net.network().to_string().into());
    if net.prefix_len() == net.max_prefix_len() {
        return addr;
    }
    let addr = Box::new(addr);
    Expression::Named(NamedExpression::Prefix(Prefix { addr, len: net.prefix_len().into() }))
}

fn iifname() -> Expression<'static> {
    Expression::Named(NamedExpression::Meta(Meta { key: MetaKey::Iifname }))
}

fn name(interface: &Interface) -> Expression<'static> {
    let star = if interface.prefix { "*" } else { "" };
    Expression::String(format!("{}{star}", interface.name).into())
}

fn fib(address: &'static str) -> Expression<'static> {
    let flag = if address == "saddr" { FibFlag::Saddr } else { FibFlag::Daddr };
    let flags = HashSet::from([flag]);
    Expression::Named(NamedExpression::Fib(Fib { result: FibResult::Type, flags }))
}

fn dnat(family: Family, map: Map<'static>) -> Statement<'static> {
    let nat_family = if family == Family::V4 { NATFamily::IP } else { NATFamily::IP6 };
    Statement::DNAT(Some(NAT {
        addr: Some(Expression::Named(NamedExpression::Map(Box::new(map)))),
        family: Some(nat_family),
        port: None,
        flags: None,
    }))
}

fn has_bit(key: &'static str, bit: &'static str) -> Statement<'static> {
    let ct = CT { key: key.into(), family: None, dir: None };
    Statement::Match(Match {
        left: Expression::Named(NamedExpression::CT(ct)),
        right: Expression::String(bit.into()),
        op: Operator::IN,
    })
}

fn binary(operation: BinaryOperation<'static>) -> Expression<'static> {
    Expression::BinaryOperation(Box::new(operation))
}

fn fields(family: Family, key: &[Field]) -> Expression<'static> {
    concatenated(key.iter().map(|field| self::field(family, *field)).collect())
}

fn field(family: Family, field: Field) -> Expression<'static> {
    let ip = if family == Family::V4 { "ip" } else { "ip6" };
    let payload = |protocol: &'static str, field: &'static str| {
        let field = PayloadField { protocol: protocol.into(), field: field.into() };
        NamedExpression::Payload(Payload::PayloadField(field))
    };
    Expression::Named(match field {
        Field::Saddr => payload(ip, "saddr"),
        Field::Daddr => payload(ip, "daddr"),
        Field::Protocol => NamedExpression::Meta(Meta { key: MetaKey::L4proto }),
        Field::Dport => payload("th", "dport"),
        Field::OriginalDaddr => {
            let family = Some(if family == Family::V4 { CTFamily::IP } else { CTFamily::IP6 });
            let dir = Some(CTDir::Original);
            NamedExpression::CT(CT { key: "daddr".into(), family, dir })
        }
        Field::OriginalDport => {
            let dir = Some(CTDir::Original);
            NamedExpression::CT(CT { key: "proto-dst".into(), family: None, dir })
        }
        Field::Pick(slots) => {
            NamedExpression::Numgen(Numgen { mode: NgMode::Random, ng_mod: slots, offset: Some(0) })
        }
        Field::Next(slots) => {
            NamedExpression::Numgen(Numgen { mode: NgMode::Inc, ng_mod: slots, offset: Some(0) })
        }
    })
}

fn nf_family(family: Family) -> NfFamily {
    match family {
        Family::V4 => NfFamily::IP,
        Family::V6 => NfFamily::IP6,
    }
}
