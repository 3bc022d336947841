//! What the operator decides about the rules, and how the table itself remembers it.

use ipnet::IpNet;
use zw_model::{Family, Scheduler};

/// nft cuts a comment at 128 bytes including its end, and refuses to load a longer one.
pub(crate) const LONGEST_COMMENT: usize = 127;

/// What the operator decides about the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanConfig {
    /// How a pod's traffic is told from everybody else's.
    pub pods: Pods,
    /// The packet mark bit that carries "masquerade me" from the nat hooks to postrouting. Bit 14 is
    /// kube-proxy's, which every network plugin already leaves alone.
    pub masquerade_mark: u32,
    /// All traffic to cluster IPs leaves with the node's address, not only that from outside.
    pub masquerade_all: bool,
    /// Families whose node ports are served on every address of the node, not only on those listed.
    pub any_node_address: Vec<Family>,
    /// How an endpoint is picked.
    pub balance: Balance,
    /// IPVS picks endpoints, by this scheduler where a Service asks for no other; the table only marks,
    /// refuses and masquerades. `None`: the table does all of it.
    pub ipvs: Option<Scheduler>,
}

/// How a pod's traffic is told from everybody else's. What is not a pod's leaves for a Service with the
/// node's address, so that replies come back this way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pods {
    /// By source address. None of a family: unknown there, so nothing is masqueraded for its source.
    Ranges(Vec<IpNet>),
    /// By the bridge they come in through.
    Bridge(String),
    /// By the interface they come in through, whose name begins like this.
    InterfacePrefix(String),
}

/// How an endpoint is picked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Balance {
    /// At random.
    #[default]
    Random,
    /// One after the other. Service ports with the same number of endpoints share a counter.
    RoundRobin,
}

/// Who picks endpoints, and how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Picker {
    /// IPVS does, so the table has none.
    pub(crate) ipvs: bool,
    pub(crate) balance: Balance,
}

impl Picker {
    /// How many slots a chain picks from for this many endpoints: one for none, and at random a power of
    /// two. Most changes of a Service then leave it with the chain it has. Leading it to another one makes
    /// the kernel validate the whole table, Service by Service.
    pub(crate) fn room(self, endpoints: u32) -> u32 {
        match self.balance {
            Balance::Random => endpoints.next_power_of_two(),
            Balance::RoundRobin => endpoints.max(1),
        }
    }
}

impl Default for PlanConfig {
    fn default() -> Self {
        Self {
            pods: Pods::Ranges(Vec::new()),
            masquerade_mark: 1 << 14,
            masquerade_all: false,
            any_node_address: Vec::new(),
            balance: Balance::Random,
            ipvs: None,
        }
    }
}

const UNKNOWN: &str = "unknown";
const BRIDGE: &str = "bridge:";
const PREFIX: &str = "interface:";
const MASQUERADE_ALL: &str = ", masquerade all";
const ANY_ADDRESS: &str = ", node ports on any address";
const ROUND_ROBIN: &str = ", round robin";
const IPVS: &str = ", ipvs";

impl PlanConfig {
    pub(crate) fn picker(&self) -> Picker {
        Picker { ipvs: self.ipvs.is_some(), balance: self.balance }
    }

    /// The settings as far as one family's table depends on them: its comment, so that whoever reads the
    /// kernel can tell what the rules are without decoding them, and a change of settings is seen.
    pub fn note(&self, family: Family) -> String {
        let pods = match &self.pods {
            Pods::Ranges(_) => {
                let ranges: Vec<String> =
                    self.pod_ranges(family).map(ToString::to_string).collect();
                if ranges.is_empty() { UNKNOWN.to_owned() } else { ranges.join(",") }
            }
            Pods::Bridge(name) => format!("{BRIDGE}{name}"),
            Pods::InterfacePrefix(name) => format!("{PREFIX}{name}"),
        };
        let told = |yes: bool, text: &'static str| if yes { text } else { "" };
        let mut note = format!(
            "mark {:#x}{}{}{}{}, pods {pods}",
            self.masquerade_mark,
            told(self.masquerade_all, MASQUERADE_ALL),
            told(self.serves_any_address(family), ANY_ADDRESS),
            told(self.balance == Balance::RoundRobin, ROUND_ROBIN),
            told(self.ipvs.is_some(), IPVS),
        );
        note.truncate(LONGEST_COMMENT);
        note
    }

    /// The settings a family's note tells of; `None` if it is somebody else's, or was too long to keep.
    pub fn from_note(family: Family, note: &str) -> Option<Self> {
        if note.len() >= LONGEST_COMMENT {
            return None;
        }
        let (flags, pods) = note.strip_prefix("mark 0x")?.split_once(", pods ")?;
        let mark = flags.split(',').next()?;
        let told = |text: &str| flags.contains(text);
        let pods = if let Some(name) = pods.strip_prefix(BRIDGE) {
            Pods::Bridge(name.into())
        } else if let Some(name) = pods.strip_prefix(PREFIX) {
            Pods::InterfacePrefix(name.into())
        } else if pods == UNKNOWN {
            Pods::Ranges(Vec::new())
        } else {
            Pods::Ranges(pods.split(',').map(|net| net.parse().ok()).collect::<Option<_>>()?)
        };
        Some(Self {
            pods,
            masquerade_mark: u32::from_str_radix(mark, 16).ok()?,
            masquerade_all: told(MASQUERADE_ALL),
            any_node_address: told(ANY_ADDRESS).then_some(family).into_iter().collect(),
            balance: if told(ROUND_ROBIN) { Balance::RoundRobin } else { Balance::Random },
            // The table does not depend on which scheduler.
            ipvs: told(IPVS).then(Scheduler::default),
        })
    }

    /// Node ports of this family are served on every address of the node.
    pub(crate) fn serves_any_address(&self, family: Family) -> bool {
        self.any_node_address.contains(&family)
    }

    /// The pods' addresses of one family, where they are known by address.
    pub(crate) fn pod_ranges(&self, family: Family) -> impl Iterator<Item = &IpNet> {
        let ranges = match &self.pods {
            Pods::Ranges(ranges) => ranges.as_slice(),
            _ => &[],
        };
        ranges.iter().filter(move |net| Family::of(net.addr()) == family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_tells_all_settings_of_its_family() {
        let pods = |net: &str| Pods::Ranges(vec![net.parse().unwrap()]);
        for pods in [
            pods("10.244.0.0/16"),
            Pods::Ranges(Vec::new()),
            Pods::Bridge("cbr0".into()),
            Pods::InterfacePrefix("veth".into()),
        ] {
            for yes in [false, true] {
                let config = PlanConfig {
                    pods: pods.clone(),
                    masquerade_mark: 1 << 5,
                    masquerade_all: yes,
                    any_node_address: yes.then_some(Family::V4).into_iter().collect(),
                    balance: if yes { Balance::RoundRobin } else { Balance::Random },
                    ipvs: yes.then(Scheduler::default),
                };
                let note = config.note(Family::V4);
                assert_eq!(PlanConfig::from_note(Family::V4, &note), Some(config), "{note}");
            }
        }
        let note = PlanConfig::default().note(Family::V6);
        assert_eq!(note, "mark 0x4000, pods unknown");
    }
}
