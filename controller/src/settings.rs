//! What can be set: for the cluster by flags, for one Service by annotations.
//!
//! A flag that makes no sense is refused before anything runs. An annotation that makes no sense leaves
//! the cluster's value in force, and is told.

use zw_topology::{Algorithm, Options};

use crate::input::Service;
use crate::names;

/// Largest thresholds that are taken: beyond, a Service would never be divided.
const MOST_PERCENT: u32 = 1000;
const MOST_ENDPOINTS: u32 = 100_000;

/// How a Service's endpoints are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Which algorithm `Prefer` uses.
    pub algorithm: Algorithm,
    /// Overload no endpoint may reach, in percent.
    pub overload_percent: u32,
    /// Endpoints for each zone around which `Prefer` starts and stops.
    pub starting_threshold: u32,
    /// How far above that it starts, and below it stops.
    pub padding: u32,
    /// Most endpoints in one slice.
    pub slice_capacity: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Fair,
            overload_percent: 50,
            starting_threshold: 3,
            padding: 3,
            slice_capacity: 100,
        }
    }
}

/// An annotation whose value has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// Its name.
    pub annotation: &'static str,
    /// What is wrong and what holds instead.
    pub message: String,
}

impl Settings {
    /// These settings as a Service's annotations change them, and which of those make no sense.
    pub fn for_service(&self, service: &Service) -> (Self, Vec<Ignored>) {
        let (mut settings, mut ignored) = (*self, Vec::new());
        let mut take = |name: &'static str, take: &mut dyn FnMut(&str) -> Result<(), String>| {
            if let Some(value) = service.annotation(name)
                && let Err(why) = take(value)
            {
                ignored.push(Ignored { annotation: name, message: why });
            }
        };
        take(names::ALGORITHM, &mut |value| {
            settings.algorithm = algorithm(value)?;
            Ok(())
        });
        take(names::OVERLOAD, &mut |value| {
            settings.overload_percent = number(value.trim_end_matches('%'), MOST_PERCENT)?;
            Ok(())
        });
        take(names::STARTING, &mut |value| {
            settings.starting_threshold = number(value, MOST_ENDPOINTS)?;
            Ok(())
        });
        take(names::PADDING, &mut |value| {
            settings.padding = number(value, MOST_ENDPOINTS)?;
            Ok(())
        });
        (settings, ignored)
    }

    /// What the planner needs. Thresholds with a padding are ours, so it gets none.
    pub(crate) fn options(&self) -> Options {
        Options { starting_threshold: 0, overload_percent: self.overload_percent }
    }

    /// From this many endpoints on `Prefer` starts.
    pub fn starts_at(&self, zones: usize) -> usize {
        self.middle(zones) + self.padding as usize
    }

    /// At this many endpoints `Prefer` stops.
    pub fn stops_at(&self, zones: usize) -> usize {
        self.middle(zones).saturating_sub(self.padding as usize)
    }

    fn middle(&self, zones: usize) -> usize {
        self.starting_threshold as usize * zones
    }
}

/// An algorithm that labels can carry: no weights.
pub fn algorithm(name: &str) -> Result<Algorithm, String> {
    match name.parse() {
        Ok(Algorithm::LocalWeighted | Algorithm::LocalOpt) => {
            Err(format!("{name} needs weights, which slices do not have"))
        }
        Ok(algorithm) => Ok(algorithm),
        Err(unknown) => Err(unknown.to_string()),
    }
}

fn number(value: &str, most: u32) -> Result<u32, String> {
    match value.parse() {
        Ok(number) if number <= most => Ok(number),
        _ => Err(format!("{value:?} is not a number from 0 to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::service;

    #[test]
    fn three_zones_start_at_12_and_stop_at_6() {
        let settings = Settings::default();
        assert_eq!((settings.starts_at(3), settings.stops_at(3)), (12, 6));
        let settings = Settings { starting_threshold: 1, padding: 9, ..settings };
        assert_eq!((settings.starts_at(3), settings.stops_at(3)), (12, 0));
    }

    #[test]
    fn annotations_change_one_service() {
        let service = service(&[
            (names::ALGORITHM, "local"),
            (names::OVERLOAD, "20%"),
            (names::STARTING, "5"),
            (names::PADDING, "0"),
        ]);
        let want = Settings {
            algorithm: Algorithm::Local,
            overload_percent: 20,
            starting_threshold: 5,
            padding: 0,
            ..Settings::default()
        };
        assert_eq!(Settings::default().for_service(&service), (want, vec![]));
    }

    #[test]
    fn values_that_make_no_sense_leave_the_default_and_are_told() {
        for (annotation, value, why) in [
            (names::STARTING, "many", "\"many\" is not a number from 0 to 100000"),
            (names::STARTING, "-1", "\"-1\" is not a number from 0 to 100000"),
            (names::STARTING, "", "\"\" is not a number from 0 to 100000"),
            (names::OVERLOAD, "5000%", "\"5000\" is not a number from 0 to 1000"),
            (names::PADDING, "1.5", "\"1.5\" is not a number from 0 to 100000"),
            (names::ALGORITHM, "local-opt", "local-opt needs weights, which slices do not have"),
        ] {
            let (settings, ignored) =
                Settings::default().for_service(&service(&[(annotation, value)]));
            assert_eq!(settings, Settings::default(), "{annotation}={value}");
            assert_eq!(ignored, [Ignored { annotation, message: why.into() }]);
        }
    }
}
