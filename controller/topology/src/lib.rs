//! How the endpoints of one Service are divided over zones, and how good a division is.
//!
//! Zones with node and endpoint counts come in ([`Zone`], [`Input`]), slice groups go out
//! ([`Groups`], made by a [`Planner`] for an [`Algorithm`]), [`Score`] says how well they serve.
//! [`Dataset`] and [`churn`] hold what the algorithms are measured on.
//!
//! Pure: no IO, no clock, no random source, no knowledge of Kubernetes objects. The same input
//! gives the same groups and the same bits in every score.

mod algorithm;
pub mod churn;
mod dataset;
mod groups;
mod model;
mod score;
mod tally;

pub use algorithm::{Algorithm, Options, Planner, UnknownAlgorithm};
pub use dataset::{Block, Dataset, Inputs, UnknownDataset};
pub use groups::Groups;
pub use model::{Counts, Input, InputError, MAX_TOTAL, Zone};
pub use score::{SLICE_CAPACITY, Score, Scorer, Unscored};
pub use tally::{SIZE_CLASSES, SizeClass, Tally};
