//! What expressions load: parts of a packet, properties of it, of its connection and of its
//! addresses, under the kernel's numbers.

/// The kind of address that is this host's own, as [`Expr::FibType`](super::Expr::FibType) loads it.
pub const RTN_LOCAL: u32 = 2;

/// Bytes of an interface name in a register, its NUL included.
const IFNAMSIZ: usize = 16;

/// Where a payload offset counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadBase {
    /// The network header.
    Network,
    /// The transport header.
    Transport,
}

/// A property of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaKey {
    /// `meta mark`, 4 bytes in host order.
    Mark,
    /// `iif`, 4 bytes in host order.
    Iif,
    /// `oif`, 4 bytes in host order.
    Oif,
    /// `iifname`, 16 bytes.
    Iifname,
    /// `oifname`, 16 bytes.
    Oifname,
    /// `meta nftrace`, 1 byte: whether the packet is traced.
    Nftrace,
    /// `meta nfproto`, 1 byte.
    Nfproto,
    /// `meta l4proto`, 1 byte.
    L4proto,
}

/// A property of a connection. `Original` is the packet that began it, before any translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtKey {
    /// `ct state`, 4 bytes of flags in host order.
    State,
    /// `ct direction`, 1 byte.
    Direction,
    /// `ct status`, 4 bytes of flags in host order.
    Status,
    /// `ct mark`, 4 bytes in host order.
    Mark,
    /// `ct original ip saddr`, 4 bytes.
    OriginalIpSaddr,
    /// `ct original ip daddr`, 4 bytes.
    OriginalIpDaddr,
    /// `ct original ip6 saddr`, 16 bytes.
    OriginalIp6Saddr,
    /// `ct original ip6 daddr`, 16 bytes.
    OriginalIp6Daddr,
    /// `ct original proto-dst`, 2 bytes: the port. In a concatenation nft 1.0.6 lists it but does
    /// not load the listing back (1.0.8 does).
    OriginalProtoDst,
}

/// An address of a packet, to ask the routing tables about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FibAddress {
    /// The source.
    Saddr,
    /// The destination.
    Daddr,
}

/// What an interface's name is compared with. The kernel refuses an empty prefix and names that no
/// interface can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameMatch<'a> {
    /// The whole name, `"eth0"`.
    Exact(&'a str),
    /// Its start, `"veth*"`.
    Prefix(&'a str),
}

impl MetaKey {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Mark => 3,
            Self::Iif => 4,
            Self::Oif => 5,
            Self::Iifname => 6,
            Self::Oifname => 7,
            Self::Nftrace => 12,
            Self::Nfproto => 15,
            Self::L4proto => 16,
        }
    }
}

impl CtKey {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::State => 0,
            Self::Direction => 1,
            Self::Status => 2,
            Self::Mark => 3,
            Self::OriginalProtoDst => 12,
            Self::OriginalIpSaddr => 19,
            Self::OriginalIpDaddr => 20,
            Self::OriginalIp6Saddr => 21,
            Self::OriginalIp6Daddr => 22,
        }
    }

    /// Whether the kernel wants to be told the direction.
    pub(crate) fn is_original(self) -> bool {
        match self {
            Self::State | Self::Direction | Self::Status | Self::Mark => false,
            Self::OriginalIpSaddr | Self::OriginalIpDaddr => true,
            Self::OriginalIp6Saddr | Self::OriginalIp6Daddr => true,
            Self::OriginalProtoDst => true,
        }
    }
}

impl NameMatch<'_> {
    /// The bytes compared: a name is padded to the register's 16, a prefix is left as it is.
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Prefix(prefix) => prefix.as_bytes().to_vec(),
            Self::Exact(name) => {
                let mut bytes = name.as_bytes().to_vec();
                bytes.resize(bytes.len().max(IFNAMSIZ), 0);
                bytes
            }
        }
    }
}
