//! Connections per Service port, from the kernel's own counters, read when somebody asks.
//!
//! A series for each port of each Service would be too much for a large cluster: at most so many Services
//! are shown. Those with the most connections come first, and who is shown stays, because series that
//! come and go are of no use; how many are left out is a metric too. What is shown never goes back, also
//! where the kernel's counter did, because the table was made anew.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use foldhash::{HashMap, HashSet};
use prometheus_client::encoding::EncodeLabelSet;
use zw_dataplane::{Kernel, WriteError};
use zw_model::Family;

use super::Metrics;
use super::labels::IpFamily;

/// Services shown unless a flag says otherwise.
pub(crate) const DEFAULT_LIMIT: usize = 1000;

/// A series.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
pub(crate) struct PortLabels {
    namespace: String,
    name: String,
    port: String,
    ip_family: IpFamily,
}

/// What the kernel said last.
#[derive(Debug)]
pub(crate) struct Connections {
    limit: usize,
    /// Each as `namespace/name`.
    shown: HashSet<String>,
    last: HashMap<PortLabels, u64>,
}

/// How many connections each Service port has had, by the port's name in the kernel and the family.
pub(crate) type Counts = Vec<(Family, BTreeMap<String, u64>)>;

/// Asks the kernel. Blocking.
pub(crate) fn read() -> Result<Counts, WriteError> {
    let mut kernel = Kernel::open()?;
    let present = kernel.present()?;
    present.into_iter().map(|family| Ok((family, kernel.named_connections(family)?))).collect()
}

impl Connections {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, shown: HashSet::default(), last: HashMap::default() }
    }

    /// Adds to the metrics what happened since the last time.
    pub(crate) fn update(&mut self, counts: &Counts, metrics: &Metrics) {
        let mut services: HashMap<&str, u64> = HashMap::default();
        for (text, count) in counts.iter().flat_map(|(_, names)| names) {
            let Some(named) = parse(text) else { continue };
            *services.entry(named.service).or_default() += count;
        }
        self.choose(&services);
        metrics.hidden_services.set((services.len() - self.shown.len()) as i64);

        let mut ports: BTreeMap<PortLabels, u64> = BTreeMap::new();
        for (family, names) in counts {
            for (text, count) in names {
                let shown = parse(text).filter(|named| self.shown.contains(named.service));
                let Some(named) = shown else { continue };
                let labels = PortLabels {
                    namespace: named.namespace.to_owned(),
                    name: named.name.to_owned(),
                    port: named.port.to_owned(),
                    ip_family: (*family).into(),
                };
                *ports.entry(labels).or_default() += count;
            }
        }
        for gone in self.last.keys().filter(|labels| !ports.contains_key(labels)) {
            metrics.connections.remove(gone);
        }
        self.last.retain(|labels, _| ports.contains_key(labels));
        for (labels, count) in ports {
            let before = self.last.get(&labels).copied().unwrap_or_default();
            // Less than before: the kernel began again at 0.
            let more = count.checked_sub(before).unwrap_or(count);
            metrics.connections.get_or_create(&labels).inc_by(more);
            self.last.insert(labels, count);
        }
    }

    fn choose(&mut self, services: &HashMap<&str, u64>) {
        self.shown.retain(|service| services.contains_key(&**service));
        let room = self.limit.saturating_sub(self.shown.len());
        if room == 0 {
            return;
        }
        let mut others: Vec<(Reverse<u64>, &str)> = services
            .iter()
            .filter(|(service, _)| !self.shown.contains(**service))
            .map(|(service, count)| (Reverse(*count), *service))
            .collect();
        others.sort_unstable();
        self.shown.extend(others.into_iter().take(room).map(|(_, service)| service.to_owned()));
    }
}

/// A port's name in the kernel, and its parts.
struct Named<'a> {
    /// As `namespace/name`.
    service: &'a str,
    namespace: &'a str,
    name: &'a str,
    port: &'a str,
}

/// Reads `namespace/name:port`; one too long for the kernel is cut at its end.
fn parse(text: &str) -> Option<Named<'_>> {
    let (service, port) = text.split_once(':').unwrap_or((text, ""));
    let (namespace, name) = service.split_once('/')?;
    Some(Named { service, namespace, name, port })
}

#[cfg(test)]
mod tests {
    use zw_model::Family;

    use super::{Connections, Counts, Metrics};

    fn counts(ports: &[(&str, u64)]) -> Counts {
        vec![(Family::V4, ports.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect())]
    }

    fn shown(metrics: &Metrics) -> Vec<String> {
        let text = metrics.encode();
        let mut lines: Vec<String> = text
            .lines()
            .filter(|line| line.starts_with("zoneward_service_connections_"))
            .map(|line| line.replace("zoneward_service_connections_", ""))
            .collect();
        lines.sort();
        lines
    }

    fn series(service: &str, port: &str, count: u64) -> String {
        format!(
            "total{{namespace=\"web\",name=\"{service}\",port=\"{port}\",ip_family=\"IPv4\"}} {count}"
        )
    }

    #[test]
    fn a_count_never_goes_back_while_its_service_lives() {
        let (mut connections, metrics) = (Connections::new(10), Metrics::new());
        connections.update(&counts(&[("web/api:http", 5), ("web/api:admin", 1)]), &metrics);
        connections.update(&counts(&[("web/api:http", 7), ("web/api:admin", 1)]), &metrics);
        let hidden = || "hidden_services 0".to_owned();
        let both = [hidden(), series("api", "admin", 1), series("api", "http", 7)];
        assert_eq!(shown(&metrics), both);
        // The table was made anew.
        connections.update(&counts(&[("web/api:http", 2)]), &metrics);
        assert_eq!(shown(&metrics), [hidden(), series("api", "http", 9)]);
        connections.update(&counts(&[]), &metrics);
        assert_eq!(shown(&metrics), [hidden()]);
    }

    #[test]
    fn the_busiest_services_are_shown_and_stay() {
        let (mut connections, metrics) = (Connections::new(2), Metrics::new());
        connections.update(&counts(&[("web/a:", 1), ("web/b:", 3), ("web/c:", 2)]), &metrics);
        let hidden = |n: u32| format!("hidden_services {n}");
        let first = [hidden(1), series("b", "", 3), series("c", "", 2)];
        assert_eq!(shown(&metrics), first);
        connections.update(&counts(&[("web/a:", 100), ("web/b:", 3), ("web/c:", 2)]), &metrics);
        assert_eq!(shown(&metrics), first);
        connections.update(&counts(&[("web/a:", 101), ("web/c:", 2)]), &metrics);
        assert_eq!(shown(&metrics), [hidden(0), series("a", "", 101), series("c", "", 2)]);
    }
}
