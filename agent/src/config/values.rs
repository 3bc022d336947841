//! Single values as they are written, the same in the file and on the command line.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

/// What programs the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Nftables,
    Ipvs,
}

impl Mode {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Mode::Nftables => "nftables",
            Mode::Ipvs => "ipvs",
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "nftables" => Ok(Mode::Nftables),
            "ipvs" => Ok(Mode::Ipvs),
            "iptables" => {
                Err("iptables is not a mode of Zoneward: nftables takes its place, write nftables"
                    .into())
            }
            other => Err(format!("{other:?} is not a mode: write nftables or ipvs")),
        }
    }
}

/// In what form the API server is asked for objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ContentType {
    /// Or JSON, from a server that does not speak it.
    #[default]
    Protobuf,
    Json,
}

impl ContentType {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::Json => "application/json",
        }
    }
}

impl FromStr for ContentType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Protobuf, Self::Json].into_iter().find(|form| form.as_str() == text).ok_or_else(
            || {
                format!(
                    "{text:?} is not a content type that Zoneward reads: write {} or {}",
                    Self::Protobuf.as_str(),
                    Self::Json.as_str()
                )
            },
        )
    }
}

/// How traffic of pods on this node is told apart, in kube-proxy's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetectLocalMode {
    ClusterCidr,
    NodeCidr,
    BridgeInterface,
    InterfaceNamePrefix,
}

impl DetectLocalMode {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ClusterCidr => "ClusterCIDR",
            Self::NodeCidr => "NodeCIDR",
            Self::BridgeInterface => "BridgeInterface",
            Self::InterfaceNamePrefix => "InterfaceNamePrefix",
        }
    }
}

impl FromStr for DetectLocalMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::ClusterCidr, Self::NodeCidr, Self::BridgeInterface, Self::InterfaceNamePrefix]
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or_else(|| {
                format!(
                    "{text:?} is not a way to tell local traffic: write ClusterCIDR, NodeCIDR, \
                     BridgeInterface or InterfaceNamePrefix"
                )
            })
    }
}

/// One entry of the list of addresses that NodePorts are served on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum NodePortAddress {
    Range(IpNet),
    Primary,
    Localhost,
    All,
}

impl fmt::Display for NodePortAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(net) => net.fmt(f),
            Self::Primary => f.write_str("primary"),
            Self::Localhost => f.write_str("localhost"),
            Self::All => f.write_str("all"),
        }
    }
}

impl FromStr for NodePortAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "primary" => Ok(Self::Primary),
            "localhost" => Ok(Self::Localhost),
            "all" => Ok(Self::All),
            range => cidr(range)
                .map(Self::Range)
                .map_err(|why| format!("{why}, nor one of primary, localhost, all")),
        }
    }
}

impl TryFrom<String> for NodePortAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// An address.
pub(crate) fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an IP address"))
}

/// A range, without the bits below its length.
pub(crate) fn cidr(text: &str) -> Result<IpNet, String> {
    let net: Result<IpNet, _> = text.trim().parse();
    net.map(|net| net.trunc())
        .map_err(|_| format!("{text:?} is not a CIDR such as 10.244.0.0/16 or fd00:10:244::/48"))
}

/// A range in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Cidr(pub(crate) IpNet);

impl TryFrom<String> for Cidr {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        cidr(&text).map(Self)
    }
}

/// Several ranges, separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cidrs(pub(crate) Vec<IpNet>);

impl FromStr for Cidrs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(cidr).collect::<Result<_, _>>().map(Self)
    }
}

/// Where a server listens; the port may be left to its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) ip: IpAddr,
    pub(crate) port: Option<u16>,
}

impl Listen {
    pub(crate) fn or_port(self, default: u16) -> SocketAddr {
        SocketAddr::new(self.ip, self.port.unwrap_or(default))
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse() {
            return Ok(Self { ip, port: None });
        }
        match text.parse::<SocketAddr>() {
            Ok(addr) if addr.port() > 0 => Ok(Self { ip: addr.ip(), port: Some(addr.port()) }),
            _ => Err(format!(
                "{text:?} is not an address and port such as 0.0.0.0:10256 or [::]:10256"
            )),
        }
    }
}

/// An address to listen on as a flag has it, where an empty one means not to listen at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenFlag {
    Off,
    At(Listen),
}

impl FromStr for ListenFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(Self::Off) } else { text.parse().map(Self::At) }
    }
}

/// A duration as Go writes it, such as `1h0m0s`. Never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a duration such as 30s or 1h0m0s");
        if text.starts_with('-') {
            return Err(format!("{text:?} is negative: write a duration such as 30s, or 0s"));
        }
        let mut rest = text.strip_prefix('+').unwrap_or(text);
        if rest == "0" {
            return Ok(Self::default());
        }
        if rest.is_empty() {
            return Err(wrong());
        }
        let mut total: u128 = 0;
        while !rest.is_empty() {
            let number_end =
                rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
            let (number, after) = rest.split_at(number_end);
            let unit_end =
                after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
            let (unit, after) = after.split_at(unit_end);
            total += nanoseconds(number, unit).ok_or_else(wrong)?;
            rest = after;
        }
        // Go's own are 64 bits of nanoseconds.
        let total = u64::try_from(total).ok().filter(|total| i64::try_from(*total).is_ok());
        total.map(|total| Self(Duration::from_nanos(total))).ok_or_else(wrong)
    }
}

fn nanoseconds(number: &str, unit: &str) -> Option<u128> {
    let unit: u128 = match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && part.is_empty()) || part.contains('.') || number.len() > 30 {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut sum = whole.checked_mul(unit)?;
    let mut scale = unit;
    for digit in part.bytes() {
        scale /= 10;
        sum += u128::from(digit - b'0') * scale;
    }
    Some(sum)
}

impl fmt::Display for Span {
    /// As Go writes it, in the precision that settings have.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (hours, minutes, left) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let millis = self.0.subsec_millis();
        if seconds == 0 && millis > 0 {
            return write!(f, "{millis}ms");
        }
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        if millis > 0 {
            let fraction = format!("{millis:03}");
            return write!(f, "{left}.{}s", fraction.trim_end_matches('0'));
        }
        write!(f, "{left}s")
    }
}

/// A number within bounds that its type names.
macro_rules! bounded {
    ($(#[$doc:meta])* $name:ident, $range:expr, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) i32);

        impl TryFrom<i64> for $name {
            type Error = String;

            fn try_from(number: i64) -> Result<Self, String> {
                match i32::try_from(number) {
                    Ok(fits) if ($range).contains(&fits) => Ok(Self(fits)),
                    _ => Err(format!(concat!("{} is not ", $what), number)),
                }
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let number: Result<i64, _> = text.parse();
                number.map_err(|_| format!(concat!("{:?} is not ", $what), text))?.try_into()
            }
        }
    };
}

bounded!(
    /// A bit of the packet mark.
    MarkBit, 0..=31, "a bit of the packet mark (0 to 31)"
);
bounded!(
    /// How willingly the kernel kills the process for want of memory.
    OomScore, -1000..=1000, "an OOM score adjustment (-1000 to 1000)"
);
bounded!(
    /// How many of something.
    Count, 0..=i32::MAX, "a number from 0 to 2147483647"
);
