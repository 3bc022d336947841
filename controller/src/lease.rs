//! Which of several controllers works: a Lease that its holder renews.
//!
//! Whether another's lease has run out is judged by this machine's clock alone, from when its last
//! renewal was seen here: clocks of different machines are never compared. (The crate that fits this
//! version of kube, kube-lease-manager, compares the renewal time with the local wall clock.) A holder
//! that could not renew in time stops working well before another may start.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

/// As Kubernetes' own controllers have them: how long a lease holds, how long its holder works without
/// a renewal, and how often it is looked at.
const DURATION: Duration = Duration::from_secs(15);
const RENEW_WITHIN: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_secs(2);

/// Where the Lease is, and who asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who asks: unlike anybody else.
    pub identity: String,
}

/// What decides, without IO and with time passed in.
#[derive(Debug)]
struct Election {
    identity: String,
    /// Holder and renewal as last seen, and since when that has not changed.
    seen: Option<(String, Option<Timestamp>, Instant)>,
    /// When the last renewal that succeeded was begun.
    renewed: Option<Instant>,
}

/// What to do about the Lease.
#[derive(Debug, PartialEq, Eq)]
enum Act {
    /// It is ours, or may become so.
    Hold {
        /// It was another's.
        new: bool,
    },
    /// Another holds it.
    Wait,
}

impl Election {
    fn new(identity: &str) -> Self {
        Self { identity: identity.to_owned(), seen: None, renewed: None }
    }

    /// The Lease as the API server has it.
    fn see(&mut self, spec: &LeaseSpec, now: Instant) -> Act {
        let holder = spec.holder_identity.clone().unwrap_or_default();
        let renewal = spec.renew_time.as_ref().map(|time| time.0);
        let unchanged =
            |(h, r, _): &&(String, Option<Timestamp>, Instant)| *h == holder && *r == renewal;
        let since = self.seen.as_ref().filter(unchanged).map_or(now, |(_, _, since)| *since);
        self.seen = Some((holder.clone(), renewal, since));
        if holder == self.identity {
            return Act::Hold { new: self.renewed.is_none() };
        }
        self.renewed = None;
        let duration = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = duration.map_or(DURATION, Duration::from_secs);
        let free = holder.is_empty() || now.saturating_duration_since(since) >= duration;
        if free { Act::Hold { new: true } } else { Act::Wait }
    }

    /// A renewal that was begun at this time has succeeded.
    fn renewed(&mut self, began: Instant) {
        self.renewed = Some(began);
    }

    fn lost(&mut self) {
        self.renewed = None;
    }

    /// How much longer this one may work.
    fn left(&self, now: Instant) -> Option<Duration> {
        let renewed = self.renewed?;
        let left = RENEW_WITHIN.checked_sub(now.saturating_duration_since(renewed))?;
        (!left.is_zero()).then_some(left)
    }
}

/// Asks for the Lease as long as it is followed; tells whether this one holds it.
pub(crate) struct Elector {
    leases: Api<Lease>,
    name: LeaseName,
    election: Election,
    tell: watch::Sender<bool>,
}

impl Elector {
    pub(crate) fn new(client: Client, name: LeaseName) -> (Self, watch::Receiver<bool>) {
        let (tell, told) = watch::channel(false);
        let leases = Api::namespaced(client, &name.namespace);
        let election = Election::new(&name.identity);
        (Self { leases, name, election, tell }, told)
    }

    /// Looks at the Lease every two seconds, for ever.
    pub(crate) async fn follow(&mut self) {
        loop {
            let began = Instant::now();
            // A request that hangs must not keep this one from noticing that its time is up.
            let patience = self.election.left(began).unwrap_or(RENEW_WITHIN);
            match timeout(patience, self.attempt(began)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    warn!(%error, lease = self.name.name, "cannot look after the lease")
                }
                Err(_) => warn!(lease = self.name.name, "no answer about the lease in time"),
            }
            let leads = self.election.left(Instant::now()).is_some();
            self.tell.send_if_modified(|was| {
                if *was != leads {
                    info!(leads, identity = self.name.identity, "leadership changed");
                }
                std::mem::replace(was, leads) != leads
            });
            sleep(LOOK).await;
        }
    }

    async fn attempt(&mut self, began: Instant) -> Result<(), kube::Error> {
        let mut lease = match self.leases.get_opt(&self.name.name).await? {
            Some(lease) => lease,
            None => {
                let metadata =
                    ObjectMeta { name: Some(self.name.name.clone()), ..ObjectMeta::default() };
                let new = Lease { metadata, spec: Some(self.spec(&LeaseSpec::default(), true)) };
                return self.outcome(self.leases.create(&PostParams::default(), &new).await, began);
            }
        };
        let spec = lease.spec.unwrap_or_default();
        match self.election.see(&spec, Instant::now()) {
            Act::Wait => {
                debug!(holder = spec.holder_identity, "another controller leads");
                Ok(())
            }
            Act::Hold { new } => {
                lease.spec = Some(self.spec(&spec, new));
                let written =
                    self.leases.replace(&self.name.name, &PostParams::default(), &lease).await;
                self.outcome(written, began)
            }
        }
    }

    fn outcome(
        &mut self,
        written: Result<Lease, kube::Error>,
        began: Instant,
    ) -> Result<(), kube::Error> {
        match written {
            Ok(_) => {
                self.election.renewed(began);
                Ok(())
            }
            // Somebody else was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.election.lost();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn spec(&self, old: &LeaseSpec, new: bool) -> LeaseSpec {
        let now = Some(MicroTime(Timestamp::now()));
        let transitions = old.lease_transitions.unwrap_or(0) + i32::from(new);
        LeaseSpec {
            holder_identity: Some(self.name.identity.clone()),
            lease_duration_seconds: Some(DURATION.as_secs() as i32),
            acquire_time: if new { now.clone() } else { old.acquire_time.clone() },
            renew_time: now,
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    /// Gives the Lease up, so that another need not wait for it to run out.
    pub(crate) async fn release(&mut self) {
        if self.election.left(Instant::now()).is_none() {
            return;
        }
        self.election.lost();
        let give_up = async {
            let Some(mut lease) = self.leases.get_opt(&self.name.name).await? else {
                return Ok(());
            };
            let mine =
                |spec: &LeaseSpec| spec.holder_identity.as_ref() == Some(&self.name.identity);
            if lease.spec.as_ref().is_some_and(mine) {
                if let Some(spec) = &mut lease.spec {
                    spec.holder_identity = Some(String::new());
                }
                self.leases.replace(&self.name.name, &PostParams::default(), &lease).await?;
            }
            Ok::<(), kube::Error>(())
        };
        match timeout(LOOK, give_up).await {
            Ok(Ok(())) => info!("the lease is given up"),
            Ok(Err(error)) => warn!(%error, "the lease is not given up and has to run out"),
            Err(_) => warn!("no answer in time; the lease has to run out"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(holder: &str, renewal: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.into()),
            renew_time: Some(MicroTime(Timestamp::from_second(renewal).unwrap())),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn anothers_lease_is_left_alone_as_long_as_it_is_renewed() {
        let (mut election, start) = (Election::new("me"), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..100 {
            // Its clock is years behind ours, which does not matter.
            assert_eq!(election.see(&spec("other", second as i64), at(second)), Act::Wait);
        }
        assert_eq!(election.see(&spec("other", 99), at(113)), Act::Wait);
        assert_eq!(election.see(&spec("other", 99), at(114)), Act::Hold { new: true });
    }

    #[test]
    fn a_lease_that_was_given_up_is_free_at_once() {
        let (mut election, start) = (Election::new("me"), Instant::now());
        assert_eq!(election.see(&spec("other", 5), start), Act::Wait);
        assert_eq!(election.see(&spec("", 5), start), Act::Hold { new: true });
    }

    #[test]
    fn who_cannot_renew_stops_before_another_may_start() {
        let (mut election, start) = (Election::new("me"), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(election.left(at(0)), None, "not before it is held");
        assert_eq!(election.see(&spec("", 0), at(0)), Act::Hold { new: true });
        election.renewed(at(0));
        assert_eq!(election.see(&spec("me", 0), at(2)), Act::Hold { new: false });
        assert_eq!(election.left(at(9)), Some(Duration::from_secs(1)));
        assert_eq!(election.left(at(10)), None);
        assert!(RENEW_WITHIN < DURATION);
    }

    #[test]
    fn a_lease_that_another_took_is_lost() {
        let (mut election, start) = (Election::new("me"), Instant::now());
        election.renewed(start);
        assert_eq!(election.see(&spec("other", 1), start), Act::Wait);
        assert_eq!(election.left(start), None);
    }

    #[test]
    fn a_controller_that_restarts_under_its_name_takes_its_own_lease_again() {
        let (mut election, start) = (Election::new("me"), Instant::now());
        assert_eq!(election.see(&spec("me", 1), start), Act::Hold { new: true });
    }
}
