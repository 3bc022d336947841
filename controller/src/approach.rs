//! Which approach a Service gets: what its owner asks for, held against thresholds with a padding.
//!
//! Pure. The only memory is what is in force, which comes from the Service itself, so that any leader
//! decides the same.

use std::fmt;

use crate::input::{Obstacle, Service};
use crate::names;
use crate::settings::Settings;

/// A way to route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Approach {
    /// Every zone uses every endpoint.
    Balanced,
    /// Every zone uses its own endpoints and no others.
    Require,
    /// Every zone uses its own endpoints as far as they suffice.
    Prefer,
}

impl Approach {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Balanced, Self::Require, Self::Prefer];

    /// As the annotations spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Balanced => "Balanced",
            Self::Require => "Require",
            Self::Prefer => "Prefer",
        }
    }

    /// What an annotation's value means: anything but `Require` and `Prefer` is balanced.
    pub fn of(value: Option<&str>) -> Self {
        match value {
            Some("Require") => Self::Require,
            Some("Prefer") => Self::Prefer,
            _ => Self::Balanced,
        }
    }

    /// What a Service's owner asks for.
    pub fn asked_by(service: &Service) -> Self {
        Self::of(service.annotation(names::SAME_ZONE))
    }

    /// What is in force.
    pub fn in_force(service: &Service) -> Self {
        Self::of(service.annotation(names::APPROACH))
    }
}

impl fmt::Display for Approach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why an approach is the one to use. As text it changes only when the decision does: an annotation
/// that tells the number of endpoints would be written with every one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its owner asks for it.
    Asked,
    /// The kind of Service.
    Obstacle(Obstacle),
    /// No zone has a Node.
    NoZones,
    /// There is nothing to choose from.
    OneZone,
    /// Too few endpoints to start, or to go on.
    TooFew {
        /// From how many on it starts.
        starts_at: usize,
        /// At how many it stops.
        stops_at: usize,
    },
    /// No division keeps the threshold.
    Overload {
        /// The threshold.
        percent: u32,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("as annotated"),
            Self::Obstacle(obstacle) => f.write_str(obstacle.text()),
            Self::NoZones => f.write_str("no Node has a zone"),
            Self::OneZone => f.write_str("all Nodes are in one zone"),
            Self::TooFew { starts_at, stops_at } => {
                write!(f, "Prefer starts at {starts_at} ready endpoints and stops at {stops_at}")
            }
            Self::Overload { percent } => {
                write!(f, "no division keeps every zone below {percent} % overload")
            }
        }
    }
}

/// What a Service has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Ready endpoints, of the family that has fewer.
    pub endpoints: usize,
    /// Zones with Nodes.
    pub zones: usize,
}

/// The approach for a Service of this size, before anybody has tried to divide its endpoints.
pub fn decide(service: &Service, size: Size, settings: &Settings) -> (Approach, Why) {
    use Approach::{Balanced, Prefer, Require};
    let asked = Approach::asked_by(service);
    if asked == Balanced {
        return (Balanced, Why::Asked);
    }
    if let Some(obstacle) = service.obstacle {
        return (Balanced, Why::Obstacle(obstacle));
    }
    if size.zones == 0 {
        return (Balanced, Why::NoZones);
    }
    if asked == Require {
        return (Require, Why::Asked);
    }
    if size.zones == 1 {
        return (Balanced, Why::OneZone);
    }
    let (starts_at, stops_at) = (settings.starts_at(size.zones), settings.stops_at(size.zones));
    match Approach::in_force(service) {
        // One that was required is preferred at once: its groups are there.
        Prefer | Require if size.endpoints > stops_at => (Prefer, Why::Asked),
        Balanced if size.endpoints >= starts_at => (Prefer, Why::Asked),
        _ => (Balanced, Why::TooFew { starts_at, stops_at }),
    }
}

#[cfg(test)]
mod tests;
