//! Changes on their way to the kernel, and what is done about each way to fail.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tracing::{error, info, warn};
use zw_dataplane::{Committed, Encoded, Reaction, Tables, WriteError};
use zw_plan::Changes;

use super::{Engine, Report, UNSURE};
use crate::health::PATIENCE;

/// How many refusals of one sync are dealt with one by one, before it is put off.
pub(super) const MOST_REFUSALS: usize = 64;

/// Up to this many elements are looked up one by one; for more, the table is read.
const MOST_LOOKED_UP: usize = 10_000;

/// How long after clients could not be forgotten that is tried again.
const LEFTOVERS: Duration = Duration::from_secs(1);

impl Engine {
    /// Commits what changed since the kernel was last as `desired` was. After an error that is worth
    /// another try, all of it is kept for the next time, or the kernel is in doubt.
    pub(super) async fn write(
        &mut self,
        mut changes: Changes,
        mut encoded: Option<Encoded>,
        report: &mut Report,
    ) -> Result<(), WriteError> {
        let mut looked_up = false;
        for _ in 0..MOST_REFUSALS {
            let outcome;
            (changes, outcome) = self.commit(changes, encoded.take(), None, report).await?;
            let Err(error) = outcome else { return Ok(()) };
            if let Some(planned) = self.ahead.take() {
                // It relies on this.
                report.services += planned.services;
                changes = changes.then(planned.changes);
            }
            match error.reaction() {
                Reaction::Retry => {
                    self.unsent = std::mem::take(&mut self.unsent).then(changes);
                    return Err(error);
                }
                Reaction::SetAside => match self.set_aside(&error, changes) {
                    Ok(without) => changes = without,
                    Err(()) => return Err(self.doubt(error)),
                },
                Reaction::Resync
                    if !looked_up && changes.element_operations() <= MOST_LOOKED_UP =>
                {
                    warn!(error = &error as &dyn std::error::Error, "looking what is there");
                    self.status.sync_failed(&error);
                    looked_up = true;
                    // If this is not as it was thought to be, other things may not be either.
                    self.unsure = Some(UNSURE);
                    changes = match self.look_up(changes).await {
                        Ok(changes) => changes,
                        Err(error) => return Err(self.doubt(error)),
                    };
                    report.did.repaired |= !changes.is_empty();
                }
                Reaction::Resync => return Err(self.doubt(error)),
                Reaction::Fatal => return Err(error),
            }
        }
        info!("more refusals than are dealt with at once");
        self.unsent = std::mem::take(&mut self.unsent).then(changes);
        Err(WriteError::Overtaken)
    }

    /// The kernel's state is in doubt because of this.
    fn doubt(&mut self, error: WriteError) -> WriteError {
        self.in_doubt = true;
        error
    }

    /// What is left of changes, by what is there now.
    async fn look_up(&self, changes: Changes) -> Result<Changes, WriteError> {
        let at: Vec<_> = changes.places().into_iter().collect();
        let (at, found) = self
            .on_kernel(move |kernel| {
                let found = kernel.elements(&at);
                (at, found)
            })
            .await?;
        Ok(self.desired.resume(changes, at.into_iter().zip(found?)))
    }

    /// The Services that need what the kernel refused do without rules until they change; gives what is
    /// to be written then. Fails if no Service needs it.
    pub(super) fn set_aside(
        &mut self,
        error: &WriteError,
        changes: Changes,
    ) -> Result<Changes, ()> {
        let part = error.part().ok_or(())?;
        let services = self.desired.users(part);
        if services.is_empty() {
            return Err(());
        }
        self.status.sync_failed(error);
        for svc in &services {
            warn!(%svc, error = error as &dyn std::error::Error, "set aside until it changes");
            self.status.set_aside(svc, error);
        }
        Ok(self.desired.do_without(part, &services, changes))
    }

    /// One transaction. Gives the changes back, which an error may leave to be done.
    pub(super) async fn commit(
        &mut self,
        changes: Changes,
        encoded: Option<Encoded>,
        generation: Option<u32>,
        report: &mut Report,
    ) -> Result<(Changes, Result<(), WriteError>), WriteError> {
        let (elements, chains) = (changes.element_operations(), changes.chain_operations());
        self.commits.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        let (changes, outcome) = match self.commit_at_once(&changes, generation) {
            Some(outcome) => (changes, outcome),
            None => {
                let committing = self.submit(move |kernel| {
                    let outcome = match encoded {
                        Some(encoded) => kernel.commit_encoded(&changes, encoded),
                        None => kernel.commit(&changes, generation),
                    };
                    (changes, outcome)
                })?;
                // What the kernel had no memory for must not grow with every try.
                if !report.again {
                    self.plan_ahead();
                }
                self.spent = None;
                self.told(committing).await?
            }
        };
        report.did.commit += started.elapsed();
        let committed = match outcome {
            Ok(committed) => committed,
            Err(error) => return Ok((changes, Err(error))),
        };
        let Committed {
            bytes,
            overlooked,
            left,
            requests,
            unserved,
            refused_addresses,
            refused_reals,
        } = committed;
        report.did.elements += elements;
        report.chains += chains;
        report.servers += requests;
        changes.ipvs.servers.keys().for_each(|server| drop(self.unserved.remove(server)));
        self.refused_addresses.retain(|addr| !changes.ipvs.addresses.contains_key(addr));
        self.refused_addresses.extend(refused_addresses);
        self.report_unserved(unserved);
        self.refused_reals.retain(|real| !changes.ipvs.reals.contains_key(real));
        self.report_refused(refused_reals);
        report.did.bytes += bytes;
        if overlooked {
            self.unsure = Some(UNSURE);
        }
        self.unsent = std::mem::take(&mut self.unsent).then(left);
        self.unsent_until = Instant::now() + LEFTOVERS;
        // 250,000 elements take a while to free: that is done while the kernel is busy with the next ones,
        // or off this path.
        if self.is_starting() {
            self.spent = Some(changes);
            return Ok((Changes::default(), Ok(())));
        }
        // Still there if the last ones were written at once.
        self.spent = None;
        if elements > MOST_LOOKED_UP {
            tokio::task::spawn_blocking(move || drop(changes));
            return Ok((Changes::default(), Ok(())));
        }
        Ok((changes, Ok(())))
    }

    /// Commits a small change on this thread; nothing, if it is not small. The kernel may let us wait all
    /// the same, for somebody else's large transaction, so that is told to whoever asks for our health.
    fn commit_at_once(
        &self,
        changes: &Changes,
        generation: Option<u32>,
    ) -> Option<Result<Committed, WriteError>> {
        if self.is_starting() || !changes.is_small() {
            return None;
        }
        self.status.kernel_asked(true);
        let outcome = self.writer.at_once(|kernel| kernel.commit(changes, generation));
        self.status.kernel_asked(false);
        outcome
    }

    /// Runs a job on the writer's thread without blocking this one.
    pub(super) async fn on_kernel<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut dyn Tables) -> T + Send + 'static,
    ) -> Result<T, WriteError> {
        let told = self.submit(job)?;
        self.told(told).await
    }

    /// The same, whose end [`Engine::told`] waits for.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut dyn Tables) -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, WriteError> {
        let (tell, told) = oneshot::channel();
        self.writer.submit(job, move |value| {
            // Nobody waits any more only when the agent is stopping.
            let _ = tell.send(value);
        })?;
        Ok(told)
    }

    /// What came of a job. That one takes too long is told, and whoever asks for our health hears of it
    /// until it is done.
    pub(super) async fn told<T>(&self, mut told: oneshot::Receiver<T>) -> Result<T, WriteError> {
        let started = Instant::now();
        let mut stuck = false;
        self.status.kernel_asked(true);
        loop {
            if let Ok(outcome) = timeout(PATIENCE, &mut told).await {
                self.status.kernel_asked(false);
                if stuck {
                    info!(elapsed_s = started.elapsed().as_secs(), "the kernel answers again");
                }
                return outcome.map_err(|_| WriteError::WriterGone);
            }
            error!(elapsed_s = started.elapsed().as_secs(), "the kernel does not answer");
            stuck = true;
        }
    }
}
