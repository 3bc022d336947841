//! The zones of the cluster and how much traffic is expected to start in each.
//!
//! Kept by changes: one Node more or less is one entry, whatever the size of the cluster.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::input::Node;

/// Zones that have Nodes, each with how many of them count: in name order.
pub type ZoneNodes = BTreeMap<Arc<str>, u32>;

/// All Nodes.
#[derive(Debug, Default)]
pub struct Zones {
    nodes: HashMap<Arc<str>, (Node, u64)>,
    zones: BTreeMap<Arc<str>, Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    all: u32,
    counting: u32,
}

impl Zones {
    /// Takes in a Node; true if a zone has come, gone or another number of nodes, or if endpoints may
    /// have another home now.
    pub fn apply(&mut self, node: Node, version: u64) -> bool {
        let old = self.nodes.get(&node.name);
        if old.is_some_and(|(old, known)| *known > version || *old == node) {
            return false;
        }
        let old = self.nodes.insert(node.name.clone(), (node.clone(), version));
        if let Some((old, _)) = old {
            self.count(&old, false);
        }
        self.count(&node, true);
        true
    }

    /// A Node is gone; true if there was one.
    pub fn delete(&mut self, name: &str) -> bool {
        let Some((old, _)) = self.nodes.remove(name) else { return false };
        self.count(&old, false);
        true
    }

    /// Forgets every Node that is not one of these; true if there was one.
    pub fn retain(&mut self, listed: impl Fn(&str) -> bool) -> bool {
        let gone: Vec<Arc<str>> = self.nodes.keys().filter(|name| !listed(name)).cloned().collect();
        gone.iter().for_each(|name| {
            self.delete(name);
        });
        !gone.is_empty()
    }

    /// Where a Node is.
    pub fn of_node(&self, name: &str) -> Option<&Arc<str>> {
        self.nodes.get(name)?.0.zone.as_ref()
    }

    /// Zones with Nodes. A zone of which no Node counts has 1 all the same: pods still run on cordoned
    /// Nodes, and a Node that is not ready yet may be a second later.
    pub fn nodes(&self) -> ZoneNodes {
        self.zones.iter().map(|(name, tally)| (name.clone(), tally.counting.max(1))).collect()
    }

    fn count(&mut self, node: &Node, comes: bool) {
        let Some(zone) = &node.zone else { return };
        let tally = self.zones.entry(zone.clone()).or_default();
        let counting = u32::from(node.counts);
        if comes {
            tally.all += 1;
            tally.counting += counting;
        } else {
            tally.all -= 1;
            tally.counting -= counting;
        }
        if tally.all == 0 {
            self.zones.remove(zone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, zone: &str, counts: bool) -> Node {
        let zone = (!zone.is_empty()).then(|| zone.into());
        Node { name: name.into(), zone, counts }
    }

    fn shown(zones: &Zones) -> String {
        let zones = zones.nodes();
        zones.iter().map(|(zone, nodes)| format!("{zone}:{nodes} ")).collect()
    }

    #[test]
    fn nodes_that_come_move_and_go_are_counted() {
        let mut zones = Zones::default();
        for (i, zone) in ["a", "a", "b", ""].into_iter().enumerate() {
            assert!(zones.apply(node(&format!("n{i}"), zone, true), 1));
        }
        assert_eq!(shown(&zones), "a:2 b:1 ");
        assert!(zones.apply(node("n1", "c", true), 2), "it moves");
        assert_eq!(shown(&zones), "a:1 b:1 c:1 ");
        assert_eq!(zones.of_node("n1").map(|zone| &**zone), Some("c"));
        assert!(!zones.apply(node("n1", "c", true), 3), "a heartbeat is no news");
        assert!(!zones.apply(node("n1", "a", true), 1), "nor is what is older");
        assert!(zones.delete("n2"));
        assert!(!zones.delete("n2"));
        assert_eq!(shown(&zones), "a:1 c:1 ");
        assert!(zones.retain(|name| name == "n0"));
        assert_eq!(shown(&zones), "a:1 ");
    }

    #[test]
    fn cordoned_and_unready_nodes_do_not_count_but_keep_their_zone() {
        let mut zones = Zones::default();
        zones.apply(node("n0", "a", true), 1);
        zones.apply(node("n1", "a", false), 1);
        zones.apply(node("n2", "b", false), 1);
        zones.apply(node("n3", "b", false), 1);
        assert_eq!(shown(&zones), "a:1 b:1 ");
        zones.apply(node("n1", "a", true), 2);
        zones.apply(node("n2", "b", true), 2);
        zones.apply(node("n3", "b", true), 2);
        assert_eq!(shown(&zones), "a:2 b:2 ");
    }
}
