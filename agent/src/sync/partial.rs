//! Services that changed, planned and committed: the usual sync.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use tracing::warn;
use zw_dataplane::{Encoded, WriteError};
use zw_model::ServiceKey;
use zw_plan::{Contested, Frontend, ServiceRules, Slots, Surroundings, plan_service};

use super::{Engine, Planned, Report};
use crate::events::Reason;
use crate::index::Known;

impl Engine {
    pub(super) async fn sync_changed(
        &mut self,
        keys: BTreeSet<ServiceKey>,
        around: Option<Surroundings>,
    ) -> Result<Report, WriteError> {
        let started = Instant::now();
        let mut planned = self.plan_changed(keys);
        if let Some(around) = around {
            planned.changes = planned.changes.then(self.desired.surround(around));
        }
        let took = started.elapsed();
        let mut report = self.sync_planned(planned).await?;
        report.did.plan += took;
        Ok(report)
    }

    /// Commits what was planned.
    pub(super) async fn sync_planned(&mut self, planned: Planned) -> Result<Report, WriteError> {
        let again = !self.is_sent();
        let mut report = Report { services: planned.services, again, ..Report::default() };
        let encoded = planned.encoded.filter(|_| self.unsent.is_empty());
        let changes = std::mem::take(&mut self.unsent).then(planned.changes);
        self.write(changes, encoded, &mut report).await?;
        report.did.repaired |= std::mem::take(&mut self.mending);
        self.attend();
        Ok(report)
    }

    /// Plans the next of the Services that were never written, while the kernel is busy with those
    /// before them. Not if there is something new, which comes first.
    pub(super) fn plan_ahead(&mut self) {
        let something_new = self.look_around || self.index.is_changed();
        if self.ahead.is_none() && !self.waiting.is_empty() && !something_new {
            let next = self.waiting.take(&self.index).into_iter();
            let updates = next.map(|known| (known.key.clone(), self.plan_anew(known))).collect();
            let planned = self.update(updates);
            let encoded = Encoded::of(&planned.changes);
            self.ahead = Some(Planned { encoded, ..planned });
        }
    }

    /// Each key once.
    fn plan_changed(&mut self, keys: BTreeSet<ServiceKey>) -> Planned {
        let plan = |key| {
            let rules = self.index.known(&key).and_then(|known| self.plan_anew(known));
            (key, rules)
        };
        let updates = keys.into_iter().map(plan).collect();
        self.update(updates)
    }

    fn plan_anew(&self, known: Known<'_>) -> Option<ServiceRules> {
        let held = self.desired.service(known.key);
        self.plan(known, |frontend| held.map(|rules| rules.slots(frontend)).unwrap_or_default())
    }

    fn update(&mut self, updates: Vec<(ServiceKey, Option<ServiceRules>)>) -> Planned {
        let keys: Vec<ServiceKey> = updates.iter().map(|(key, _)| key.clone()).collect();
        for rules in keys.iter().filter_map(|key| self.desired.service(key)) {
            self.unattended.1.note(rules);
        }
        let changes = self.desired.update(updates);
        self.report_contested(keys.iter());
        let services = keys.len();
        self.unattended.0.extend(keys);
        Planned { services, changes, encoded: None }
    }

    /// Tells the attendants what is in the kernel now, once all of it is.
    pub(super) fn attend(&mut self) {
        if !self.is_starting() {
            let (keys, before) = std::mem::take(&mut self.unattended);
            self.attendants.attend(&self.index, &self.desired, keys.iter(), before);
        }
    }

    /// A Service's rules; none while it is set aside.
    pub(super) fn plan(
        &self,
        known: Known<'_>,
        previous: impl Fn(&Frontend) -> Slots,
    ) -> Option<ServiceRules> {
        let Known { key, service, slices } = known;
        let is_set_aside = self.status.is_set_aside(key);
        (!is_set_aside).then(|| plan_service(service, slices, self.index.node(), previous))
    }

    /// Two Services may claim one address and port only by somebody's mistake: it is told with every
    /// change of either, and for all of them with a full sync.
    pub(super) fn report_contested<'a>(&self, keys: impl Iterator<Item = &'a ServiceKey>) {
        let contested: BTreeMap<Frontend, Contested> = keys
            .flat_map(|key| self.desired.contested(key))
            .map(|contested| (contested.frontend, contested))
            .collect();
        let mut lost: BTreeMap<ServiceKey, Vec<String>> = BTreeMap::new();
        for Contested { frontend, owner, losers } in contested.into_values() {
            for svc in losers {
                warn!(%svc, %frontend, %owner, "not programmed: another Service has this address and port");
                lost.entry(svc).or_default().push(format!("{frontend} is {owner}'s"));
            }
        }
        for (svc, lost) in lost {
            let message = format!("not programmed, another Service has it: {}", lost.join("; "));
            self.status.events.service(&svc, Reason::AddressInUse, message);
        }
    }
}
