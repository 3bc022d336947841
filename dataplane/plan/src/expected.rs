//! How large the sets that grow with the cluster are made.
//!
//! The kernel inserts into a set that was told its size in two thirds of the time: it need not rearrange
//! it again and again. But it takes no more elements than that, unless it is told another size later, so
//! the writer leaves the size out where the kernel cannot be told (before Linux 6.5).

use std::collections::BTreeMap;

use zw_model::{Family, Service, Slice};

use crate::sets::SetName;

/// Also where next to nothing is expected; the kernel keeps about 20 bytes for each.
const LEAST: u32 = 1024;

/// About how many elements there will be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    pub(crate) services: usize,
    elements: BTreeMap<(Family, SetName), u32>,
}

impl Expected {
    /// One more Service, with its slices.
    pub fn count<'a>(
        &mut self,
        service: &Service,
        slices: impl IntoIterator<Item = &'a Slice> + Clone,
    ) {
        self.services += 1;
        let external = service.external.as_deref();
        let external =
            external.into_iter().flat_map(|all| all.load_balancer_ips.iter().chain(&all.ips));
        for family in Family::BOTH {
            if service.cluster_ip(family).is_none() {
                continue;
            }
            let of_family = external.clone().filter(|addr| Family::of(**addr) == family);
            let frontends = service.ports.len() * (1 + of_family.count());
            let slices = slices.clone().into_iter().filter(|slice| slice.family == family);
            let endpoints: usize = slices.map(|slice| slice.endpoints.len()).sum();
            for (set, elements) in [
                (SetName::Services, frontends),
                (SetName::Endpoints, frontends * endpoints),
                (SetName::ClusterIps, 1),
            ] {
                let known = self.elements.entry((family, set)).or_default();
                *known = known.saturating_add(u32::try_from(elements).unwrap_or(u32::MAX));
            }
        }
    }

    /// How many there will be in both families.
    pub(crate) fn both(&self, set: SetName) -> usize {
        let each = Family::BOTH.map(|family| self.elements.get(&(family, set)).copied());
        each.into_iter().flatten().map(|elements| elements as usize).sum()
    }

    /// What the kernel is told: half as many again, for a cluster grows. Nothing for other sets.
    pub(crate) fn size(&self, family: Family, set: SetName) -> Option<u32> {
        let grows = [SetName::Services, SetName::Endpoints, SetName::ClusterIps].contains(&set);
        let elements = self.elements.get(&(family, set)).copied().unwrap_or_default();
        let size = elements.saturating_add(elements / 2).max(LEAST);
        (grows && *self != Self::default()).then_some(size)
    }
}
