//! A part of the table by itself, and the Services that need it: where the kernel does not take one,
//! only those have to do without.

use std::collections::BTreeSet;

use zw_model::{Family, ServiceKey};

use crate::adopt::decode_frontend;
use crate::changes::Changes;
use crate::desired::Desired;
use crate::element::Key;
use crate::service::{PortRules, ServiceRules};
use crate::sets::SetName;
use crate::shape::Shape;

/// A part of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// An element of a set.
    Element(Family, SetName, Key),
    /// A chain, or a rule in it.
    Chain(Family, String),
    /// An affinity map.
    AffinityMap(Family, String),
}

impl Desired {
    /// The Services for which a part of the table is written; none if it is there without any. Looks at
    /// all of them: only a refusal pays for that.
    pub fn users(&self, part: &Part) -> BTreeSet<ServiceKey> {
        let with = |family: Family, needs: &dyn Fn(&PortRules) -> bool| {
            let needs = |rules: &ServiceRules| {
                rules.ports.iter().any(|port| port.frontend.family() == family && needs(port))
            };
            let services = self.service_keys().filter_map(|key| Some((key, self.service(key)?)));
            services.filter(|(_, rules)| needs(rules)).map(|(key, _)| key.clone()).collect()
        };
        match part {
            Part::Element(family, set @ (SetName::ClusterIps | SetName::Hairpin), key) => {
                with(*family, &|port| {
                    port.shared(self.picker()).any(|shared| shared == (*set, *key))
                })
            }
            Part::Element(_, SetName::NodeAddresses | SetName::ServiceRanges, _) => BTreeSet::new(),
            Part::Element(family, set, key) => {
                let frontend = decode_frontend(*family, *set, key);
                frontend.and_then(|frontend| self.owner(&frontend)).cloned().into_iter().collect()
            }
            Part::Chain(family, name) => match Shape::parse(name) {
                Some(shape) => {
                    with(*family, &|port| port.shapes(self.picker()).any(|is| is == shape))
                }
                None => BTreeSet::new(),
            },
            Part::AffinityMap(family, name) => with(*family, &|port| {
                port.remembered(self.picker()).iter().any(|(map, _)| map == name)
            }),
        }
    }

    /// Takes Services away because the kernel does not take a part of theirs; says what that changes, and
    /// leaves the part itself out of `changes`.
    pub fn do_without(
        &mut self,
        part: &Part,
        services: &BTreeSet<ServiceKey>,
        mut changes: Changes,
    ) -> Changes {
        let gone = self.update(services.iter().map(|key| (key.clone(), None)));
        if let Part::Chain(family, name) = part {
            self.drop_idle(*family, name);
            let table = changes.table(*family);
            table.add_chains.retain(|chain| chain.name != *name);
            table.rewrite_chains.retain(|chain| chain.name != *name);
        }
        changes.then(gone)
    }
}
