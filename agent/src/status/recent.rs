//! What the agent did last, for whoever asks why: the last sync and error, what could not be used, how
//! long syncs take. Bounded, whatever happens.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::metrics::SyncReport;

/// How many complaints and how many syncs are remembered.
const COMPLAINTS: usize = 100;
const SYNCS: usize = 100;

/// A running record.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<Record>);

#[derive(Debug, Default)]
struct Record {
    syncs: u64,
    failures: u64,
    repairs: u64,
    last: Option<(SystemTime, SyncReport)>,
    error: Option<(SystemTime, String)>,
    /// The error is older than the last sync.
    recovered: bool,
    complaints: VecDeque<(SystemTime, String)>,
    left_out: u64,
    took: VecDeque<Duration>,
}

/// The record as it is told.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Told {
    pub(crate) syncs: u64,
    pub(crate) failed_syncs: u64,
    pub(crate) drift_repairs: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_sync: Option<LastSync>,
    /// Since the last sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Complaint>,
    /// The latest objects, or parts of them, that could not be used or that the kernel refused.
    pub(crate) complaints: Vec<Complaint>,
    /// How many there have been.
    pub(crate) complaints_total: u64,
    /// Of the latest syncs, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) median_sync_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slowest_sync_ms: Option<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LastSync {
    pub(crate) seconds_ago: f64,
    pub(crate) full: bool,
    pub(crate) elements: usize,
    pub(crate) took_ms: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Complaint {
    pub(crate) seconds_ago: f64,
    pub(crate) text: String,
}

impl Recent {
    fn record(&self) -> std::sync::MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn synced(&self, report: &SyncReport) {
        let mut record = self.record();
        record.syncs += 1;
        record.repairs += u64::from(report.repaired);
        record.recovered = true;
        record.last = Some((SystemTime::now(), *report));
        if record.took.len() == SYNCS {
            record.took.pop_front();
        }
        record.took.push_back(duration(report));
    }

    pub(crate) fn failed(&self, error: String) {
        let mut record = self.record();
        record.failures += 1;
        record.recovered = false;
        record.error = Some((SystemTime::now(), error));
    }

    /// An object, or a part of one, could not be used.
    pub(crate) fn complain(&self, text: String) {
        let mut record = self.record();
        record.left_out += 1;
        if record.complaints.len() == COMPLAINTS {
            record.complaints.pop_front();
        }
        record.complaints.push_back((SystemTime::now(), text));
    }

    pub(crate) fn tell(&self) -> Told {
        let record = self.record();
        let ago = |at: SystemTime| at.elapsed().unwrap_or_default().as_secs_f64();
        let complaint = |(at, text): &(SystemTime, String)| Complaint {
            seconds_ago: ago(*at),
            text: text.clone(),
        };
        let mut took: Vec<Duration> = record.took.iter().copied().collect();
        took.sort();
        Told {
            syncs: record.syncs,
            failed_syncs: record.failures,
            drift_repairs: record.repairs,
            last_sync: record.last.as_ref().map(|(at, report)| LastSync {
                seconds_ago: ago(*at),
                full: report.full,
                elements: report.elements,
                took_ms: milliseconds(duration(report)),
            }),
            error: record.error.as_ref().filter(|_| !record.recovered).map(complaint),
            complaints: record.complaints.iter().map(complaint).collect(),
            complaints_total: record.left_out,
            median_sync_ms: took.get(took.len() / 2).copied().map(milliseconds),
            slowest_sync_ms: took.last().copied().map(milliseconds),
        }
    }
}

fn duration(report: &SyncReport) -> Duration {
    report.read + report.plan + report.commit
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e5).round() / 1e2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_bounded_and_an_error_counts_until_the_next_sync() {
        let recent = Recent::default();
        for n in 0..150 {
            recent.complain(format!("object {n}"));
        }
        recent.failed("no memory".into());
        let told = recent.tell();
        assert_eq!((told.complaints.len(), told.complaints_total), (COMPLAINTS, 150));
        assert_eq!(told.complaints[0].text, "object 50");
        assert_eq!(told.error.unwrap().text, "no memory");
        recent.synced(&SyncReport { repaired: true, elements: 3, ..SyncReport::default() });
        let told = recent.tell();
        assert!(told.error.is_none());
        assert_eq!((told.syncs, told.failed_syncs, told.drift_repairs), (1, 1, 1));
        assert_eq!(told.last_sync.unwrap().elements, 3);
    }
}
