//! What a probe learns, and the one line of text in which a server tells it.

use std::fmt;
use std::net::IpAddr;

/// What became of one probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// A server answered.
    Answered {
        /// The name of the host the server runs on.
        by: String,
        /// The port the server listens on, which after address translation is not the one asked.
        port: u16,
        /// The address the server saw the probe come from.
        seen: IpAddr,
    },
    /// Somebody said no: a TCP reset to the opening packet, or an ICMP unreachable of any code
    /// (`ECONNREFUSED`, `EHOSTUNREACH`, `ENETUNREACH` or, administratively prohibited, `EACCES`).
    Refused,
    /// Nobody said anything within the patience given. Also what a packet comes to that the
    /// prober's own output hook dropped.
    Silent,
    /// The probe could not be made or got something no lab server says. A test that expects any
    /// other answer should fail on it.
    Failed(String),
}

impl Answer {
    /// The name of the host that answered, if one did.
    pub fn by(&self) -> Option<&str> {
        match self {
            Self::Answered { by, .. } => Some(by),
            _ => None,
        }
    }

    /// Reads the line [`line()`] wrote.
    pub(crate) fn parse(text: &str) -> Self {
        let mut words = text.split_whitespace();
        let parsed = (|| {
            let by = words.next()?.to_owned();
            let port = words.next()?.parse().ok()?;
            let seen = words.next()?.parse().ok()?;
            words.next().is_none().then_some((by, port, seen))
        })();
        match parsed {
            Some((by, port, seen)) => Self::Answered { by, port, seen },
            None => Self::Failed(format!("not a lab server's line: {text:?}")),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { by, port, seen } => write!(f, "{by} port {port} (saw {seen})"),
            Self::Refused => f.write_str("refused"),
            Self::Silent => f.write_str("silent"),
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

/// The line a server sends: `<host> <port> <client address>`. The address is as a reader would
/// write it: an IPv4 client is never shown as IPv4-mapped.
pub(crate) fn line(host: &str, port: u16, seen: IpAddr) -> String {
    format!("{host} {port} {}\n", seen.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back_as_it_was_written() {
        for seen in ["203.0.113.7", "fd00::7"] {
            let seen: IpAddr = seen.parse().unwrap();
            assert_eq!(
                Answer::parse(&line("pod-a", 8080, seen)),
                Answer::Answered { by: "pod-a".into(), port: 8080, seen }
            );
        }
    }

    #[test]
    fn anything_else_is_a_failure() {
        for text in ["", "pod-a", "pod-a 80", "pod-a http 10.0.0.1", "pod-a 80 10.0.0.1 x"] {
            assert!(matches!(Answer::parse(text), Answer::Failed(_)), "{text:?}");
        }
    }
}
