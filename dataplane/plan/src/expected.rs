//! How large the sets that grow with the cluster are made.
//!
//! The kernel inserts into a set that was told its size in two thirds of the time: it need not rearrange
//! it again and again. But it takes no more elements than that, unless it is told another size later, so
//! the writer leaves the size out where the kernel cannot be told (before Linux 6.5). And nft 1.0.6 cannot
//! load what it lists of such a map, so an ordinary cluster's are left as they are.

use zw_model::{Family, Service, Slice};

use crate::sets::SetName;

/// For fewer than so many it makes no difference that anybody would feel.
const MANY: usize = 1 << 14;

/// About how many elements there will be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    pub(crate) services: usize,
    v4: Elements,
    v6: Elements,
}

/// Of one family, in the sets that grow with the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Elements {
    services: usize,
    endpoints: usize,
    cluster_ips: usize,
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
        for (family, elements) in [(Family::V4, &mut self.v4), (Family::V6, &mut self.v6)] {
            if service.cluster_ip(family).is_none() {
                continue;
            }
            let of_family = external.clone().filter(|addr| Family::of(**addr) == family);
            let frontends = service.ports.len() * (1 + of_family.count());
            let slices = slices.clone().into_iter().filter(|slice| slice.family == family);
            let endpoints: usize = slices.map(|slice| slice.endpoints.len()).sum();
            elements.services += frontends;
            elements.endpoints += frontends * endpoints;
            elements.cluster_ips += 1;
        }
    }

    /// How many frontends and cluster IPs there will be in both families.
    pub(crate) fn both(&self) -> (usize, usize) {
        let Self { v4, v6, .. } = self;
        (v4.services + v6.services, v4.cluster_ips + v6.cluster_ips)
    }

    /// What the kernel is told where it is many: half as many again, for a cluster grows.
    pub(crate) fn size(&self, family: Family, set: SetName) -> Option<u32> {
        let of_family = match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        let elements = match set {
            SetName::Services => of_family.services,
            SetName::Endpoints => of_family.endpoints,
            SetName::ClusterIps => of_family.cluster_ips,
            _ => return None,
        };
        let size = u32::try_from(elements + elements / 2).unwrap_or(u32::MAX);
        (elements >= MANY).then_some(size)
    }
}
