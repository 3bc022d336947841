//! Single parts of the ruleset, found by their name or key.

use zw_model::Family;

use super::Desired;
use crate::adopt::{decode_frontend, decode_slot};
use crate::base::base_table;
use crate::element::{Element, Key};
use crate::ruleset::Chain;
use crate::sets::SetName;
use crate::shape::Shape;

impl Desired {
    /// The chain of this name.
    pub(crate) fn chain(&self, family: Family, name: &str) -> Option<Chain> {
        let base = base_table(family, &self.config, self.shared.any_sticky(family));
        let shape = || Shape::parse(name).filter(|shape| self.shared.has_shape(family, shape));
        let base = base.into_iter().find(|chain| chain.name == name);
        base.or_else(|| Some(shape()?.chain(family, &self.config)))
    }

    /// There is an affinity map of this name.
    pub(crate) fn has_affinity_map(&self, family: Family, name: &str) -> bool {
        self.shared.has_affinity_map(family, name)
    }

    /// The element of a set with this key. Sets of ranges have none that a key tells.
    pub(crate) fn element(&self, family: Family, set: SetName, key: &Key) -> Option<Element> {
        match set {
            SetName::ClusterIps | SetName::Hairpin => {
                self.shared.has_element(family, set, *key).then(|| Element::bare(*key))
            }
            SetName::NodeAddresses | SetName::ServiceRanges => {
                let elements = self.surroundings.elements(family).into_iter();
                let mut of_set = elements.filter(|(of, element)| *of == set && element.key == *key);
                of_set.next().map(|(_, element)| element)
            }
            SetName::Endpoints
            | SetName::LocalEndpoints
            | SetName::NodePortEndpoints
            | SetName::NodePortLocalEndpoints => {
                let (frontend, slot) = decode_slot(family, set, key)?;
                let port = self.active(&frontend)?;
                let (_, backends) =
                    port.lists(self.picker()).into_iter().find(|(of, _)| *of == set)?;
                Some(port.endpoint(slot, backends.get(usize::try_from(slot).ok()?)?))
            }
            _ => {
                let port = self.active(&decode_frontend(family, set, key)?)?;
                let mut heads = port.heads(self.picker()).into_iter();
                heads.find(|(of, head)| *of == set && head.key == *key).map(|(_, head)| head)
            }
        }
    }
}
