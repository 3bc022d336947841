//! Elements of sets and maps, in the kernel's own layout, so that what is planned, what is sent
//! and what is read back compare byte by byte.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use zw_model::{Family, Protocol};

use crate::ruleset::Field;

/// The longest key: two IPv6 addresses, protocol and port.
const LONGEST: usize = 40;

/// A concatenation of fields, each padded to four bytes as nf_tables registers are. Network order
/// for what comes out of a packet, host order for slot numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    bytes: [u8; LONGEST],
    len: u8,
}

impl Key {
    /// A key without fields.
    pub fn new() -> Self {
        Self { bytes: [0; LONGEST], len: 0 }
    }

    /// A key from the kernel; `None` if it is longer than any of ours.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= LONGEST).then(|| Self::new().padded(bytes))
    }

    /// Appends an address.
    pub fn addr(self, addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(v4) => self.padded(&v4.octets()),
            IpAddr::V6(v6) => self.padded(&v6.octets()),
        }
    }

    /// Appends a transport protocol.
    pub fn protocol(self, protocol: Protocol) -> Self {
        self.padded(&[protocol.number()])
    }

    /// Appends a port.
    pub fn port(self, port: u16) -> Self {
        self.padded(&port.to_be_bytes())
    }

    /// Appends a slot number.
    pub fn slot(self, slot: u32) -> Self {
        self.padded(&slot.to_ne_bytes())
    }

    /// The bytes as the kernel has them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn padded(mut self, field: &[u8]) -> Self {
        let start = usize::from(self.len);
        self.bytes[start..start + field.len()].copy_from_slice(field);
        let padded = start + field.len().next_multiple_of(4);
        self.len = u8::try_from(padded).expect("a key is at most LONGEST bytes");
        self
    }
}

// Only what there is of it: most keys are half as long as the longest.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// What an element maps to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Data {
    /// A member of a set.
    Nothing,
    /// A verdict that continues in this chain. Most of them have names that are known beforehand.
    Goto(Cow<'static, str>),
    /// Registers: an address and a port.
    Value(Key),
    /// A member of a set of ranges: everything from the element's key up to this one.
    UpTo(Key),
    /// Something Zoneward never writes, seen in the kernel: always replaced.
    Foreign,
}

/// One element of a set or map.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Element {
    /// Unique in its set.
    pub key: Key,
    /// What it maps to.
    pub data: Data,
    /// `namespace/name:port` where an element stands for a Service port.
    pub comment: Option<Arc<str>>,
}

impl Element {
    /// An element that maps to nothing and says nothing.
    pub fn bare(key: Key) -> Self {
        Self { key, data: Data::Nothing, comment: None }
    }
}

/// A field of a key, decoded for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// An address.
    Addr(IpAddr),
    /// A transport protocol, by name where it is one a Service can have.
    Protocol(u8),
    /// A port.
    Port(u16),
    /// A slot number.
    Slot(u32),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Addr(addr) => addr.fmt(f),
            Value::Protocol(number) => match Protocol::from_number(*number) {
                Some(protocol) => protocol.fmt(f),
                None => number.fmt(f),
            },
            Value::Port(port) => port.fmt(f),
            Value::Slot(slot) => slot.fmt(f),
        }
    }
}

/// Reads a key's fields; `None` if the bytes are too short for them.
pub fn decode(family: Family, fields: &[Field], key: &Key) -> Option<Vec<Value>> {
    let mut rest = key.as_bytes();
    let mut take = |len: usize| -> Option<&[u8]> {
        let padded = len.next_multiple_of(4);
        let (field, after) = rest.split_at_checked(padded)?;
        rest = after;
        Some(&field[..len])
    };
    fields
        .iter()
        .map(|field| {
            Some(match (field, family) {
                (Field::Saddr | Field::Daddr | Field::OriginalDaddr, Family::V4) => {
                    let octets: [u8; 4] = take(4)?.try_into().ok()?;
                    Value::Addr(Ipv4Addr::from(octets).into())
                }
                (Field::Saddr | Field::Daddr | Field::OriginalDaddr, Family::V6) => {
                    let octets: [u8; 16] = take(16)?.try_into().ok()?;
                    Value::Addr(Ipv6Addr::from(octets).into())
                }
                (Field::Protocol, _) => Value::Protocol(take(1)?[0]),
                (Field::Dport | Field::OriginalDport, _) => {
                    Value::Port(u16::from_be_bytes(take(2)?.try_into().ok()?))
                }
                (Field::Pick(_) | Field::Next(_), _) => {
                    Value::Slot(u32::from_ne_bytes(take(4)?.try_into().ok()?))
                }
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_decodes_to_the_fields_it_was_made_of() {
        for addr in ["10.96.0.10", "fd00:10:96::a"] {
            let addr: IpAddr = addr.parse().unwrap();
            let key = Key::new().addr(addr).protocol(Protocol::Udp).port(53).slot(7);
            let fields = [Field::Daddr, Field::Protocol, Field::Dport, Field::Pick(9)];
            let want = [Value::Addr(addr), Value::Protocol(17), Value::Port(53), Value::Slot(7)];
            assert_eq!(decode(Family::of(addr), &fields, &key).unwrap(), want);
        }
    }

    #[test]
    fn a_short_key_decodes_to_nothing_and_a_long_one_is_refused() {
        let short = Key::new().port(53);
        assert_eq!(decode(Family::V6, &[Field::Daddr], &short), None);
        assert_eq!(Key::from_bytes(&[0; LONGEST + 1]), None);
    }
}
