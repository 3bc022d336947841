//! How IPVS spreads connections, in the words of `ipvsadm`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The schedulers the kernel has; which of them are built or loaded is another question.
const KNOWN: [&str; 14] =
    ["rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "sed", "nq", "fo", "ovf", "mh", "twos"];

/// Those that a client's address decides, and that have flags.
const HASHING: [&str; 2] = ["sh", "mh"];

/// An IPVS scheduler with its flags, written `rr`, `sh,port` or `mh,fallback,port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scheduler {
    /// Its name.
    pub name: Arc<str>,
    /// `sh-fallback`, `mh-fallback`: where the chosen endpoint gets no more connections, another one.
    pub fallback: bool,
    /// `sh-port`, `mh-port`: the client's port counts too.
    pub port: bool,
}

impl Default for Scheduler {
    /// One after the other, kube-proxy's default.
    fn default() -> Self {
        Self { name: "rr".into(), fallback: false, port: false }
    }
}

impl FromStr for Scheduler {
    type Err = String;

    /// `mh` alone counts the client's port, as with kube-proxy.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split(',').map(str::trim);
        let name = words.next().unwrap_or_default();
        if !KNOWN.contains(&name) {
            return Err(format!(
                "{name:?} is no scheduler of IPVS: write one of {}",
                KNOWN.join(", ")
            ));
        }
        let flags: Vec<&str> = words.collect();
        let hashing = HASHING.contains(&name);
        if let Some(flag) =
            flags.iter().find(|flag| !hashing || !["fallback", "port"].contains(flag))
        {
            return Err(format!("{name} has no flag {flag:?}: sh and mh have fallback and port"));
        }
        let has = |flag: &str| flags.contains(&flag);
        Ok(Self {
            name: name.into(),
            fallback: has("fallback"),
            port: has("port") || (name == "mh" && flags.is_empty()),
        })
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let flags = [(self.fallback, ",fallback"), (self.port, ",port")];
        flags.into_iter().filter(|(set, _)| *set).try_for_each(|(_, flag)| f.write_str(flag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers_are_read_as_they_are_written() {
        for text in ["rr", "wlc", "sh", "sh,port", "mh,port", "mh,fallback", "mh,fallback,port"] {
            assert_eq!(text.parse::<Scheduler>().unwrap().to_string(), text);
        }
        assert_eq!("mh".parse::<Scheduler>().unwrap().to_string(), "mh,port", "as kube-proxy");
        assert_eq!(Scheduler::default().to_string(), "rr");
    }

    #[test]
    fn what_is_no_scheduler_is_refused() {
        for text in ["", "random", "rr,port", "sh,ports", "mh,", "ip_vs_rr"] {
            assert!(text.parse::<Scheduler>().is_err(), "{text}");
        }
    }
}
