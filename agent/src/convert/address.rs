//! Addresses and ranges as Kubernetes writes them.

use std::net::IpAddr;

use ipnet::IpNet;

/// Kubernetes has always read `010.0.0.1` as decimal, and old objects may hold such an address.
pub(super) fn parse_address(text: &str) -> Result<IpAddr, String> {
    // ::ffff:10.0.0.1 is an IPv4 address in disguise, and the kernel sees it as one.
    parse_literally(text)
        .map(|addr| addr.to_canonical())
        .ok_or_else(|| format!("{text:?} is not an IP address"))
}

fn parse_literally(text: &str) -> Option<IpAddr> {
    // Rust's own parser would take a sign.
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let decimal = || {
        let parts: Vec<u8> = text
            .split('.')
            .map(|part| (part.len() <= 3 && digits(part)).then(|| part.parse().ok()).flatten())
            .collect::<Option<_>>()?;
        Some(IpAddr::from(<[u8; 4]>::try_from(parts).ok()?))
    };
    text.parse().ok().or_else(decimal)
}

/// A range such as `10.0.0.0/8`; bits behind the prefix do not matter.
pub(super) fn parse_range(text: &str) -> Result<IpNet, String> {
    const MAPPED: u8 = 96;
    let parsed = || {
        let (address, length) = text.split_once('/')?;
        let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let length: u8 = length.parse().ok().filter(|_| digits)?;
        let literal = parse_literally(address)?;
        let address = literal.to_canonical();
        let length = if literal == address { length } else { length.checked_sub(MAPPED)? };
        IpNet::new(address, length).ok()
    };
    Ok(parsed().ok_or_else(|| format!("{text:?} is not a range of addresses"))?.trunc())
}

/// A unicast address that packets can be routed to.
pub(super) fn is_ordinary(addr: IpAddr) -> bool {
    let link_local = match addr {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(addr.is_unspecified() || addr.is_loopback() || addr.is_multicast() || link_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_kubernetes_reads_them() {
        for (text, want) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("010.001.0.0/16", "10.1.0.0/16"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("FD00:0::1/64", "fd00::/64"),
            ("::/0", "::/0"),
            ("::ffff:10.1.0.0/112", "10.1.0.0/16"),
        ] {
            assert_eq!(parse_range(text), Ok(want.parse().unwrap()), "{text}");
        }
        for text in [
            "",
            "/",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "10.0.0/8",
            "10.0.0.0/8/8",
            "10.0.0.0/255.0.0.0",
            "fd00::/129",
            "fd00::/300",
            "::ffff:10.0.0.0/8",
            "10.0.0.0/ 8",
            "any",
        ] {
            assert_eq!(parse_range(text), Err(format!("{text:?} is not a range of addresses")));
        }
    }

    #[test]
    fn only_unicast_addresses_that_are_routed_are_ordinary() {
        for addr in ["10.0.0.1", "203.0.113.7", "fd00::1", "2001:db8::1", "240.0.0.1"] {
            assert!(is_ordinary(addr.parse().unwrap()), "{addr}");
        }
        for addr in [
            "0.0.0.0",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.0.1",
            "224.0.0.1",
            "239.1.1.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(!is_ordinary(addr.parse().unwrap()), "{addr}");
        }
    }
}
