//! Means over many scores, as a whole and by number of endpoints.
//!
//! Kept apart from the threads that feed it: each block of inputs gets its own [`Tally`] and they
//! are merged in block order, so a mean has the same bits however many threads took part.

use crate::score::{Score, Unscored};

/// A range of endpoint totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeClass {
    /// Fewest endpoints in the class.
    pub from: u32,
    /// Most endpoints in the class.
    pub to: u32,
}

const fn class(from: u32, to: u32) -> SizeClass {
    SizeClass { from, to }
}

/// The classes scores are broken down into, narrow where few endpoints make rounding matter.
pub const SIZE_CLASSES: [SizeClass; 14] = [
    class(0, 3),
    class(4, 8),
    class(9, 14),
    class(15, 24),
    class(25, 39),
    class(40, 59),
    class(60, 99),
    class(100, 149),
    class(150, 199),
    class(200, 300),
    class(301, 600),
    class(601, 1000),
    class(1001, 2000),
    class(2001, u32::MAX),
];

/// Sums from which means are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tally {
    scored: u64,
    unscored: u64,
    balanced: u64,
    sum: Score,
    worst: f64,
    by_size: [(u64, f64); SIZE_CLASSES.len()],
}

impl Tally {
    /// Counts one result for an input with `endpoints` endpoints in all.
    pub fn add(&mut self, endpoints: u32, balanced: bool, result: &Result<Score, Unscored>) {
        let Ok(score) = result else {
            self.unscored += 1;
            return;
        };
        self.scored += 1;
        self.balanced += u64::from(balanced);
        self.accumulate(score);
        self.worst = self.worst.max(score.max_overload);
        let class = SIZE_CLASSES.iter().position(|c| endpoints <= c.to);
        let (count, total) = &mut self.by_size[class.unwrap_or(SIZE_CLASSES.len() - 1)];
        *count += 1;
        *total += score.total;
    }

    /// Adds everything another tally has counted.
    pub fn merge(&mut self, other: &Self) {
        self.scored += other.scored;
        self.unscored += other.unscored;
        self.balanced += other.balanced;
        self.accumulate(&other.sum);
        self.worst = self.worst.max(other.worst);
        for ((count, total), (other_count, other_total)) in
            self.by_size.iter_mut().zip(&other.by_size)
        {
            *count += other_count;
            *total += other_total;
        }
    }

    fn accumulate(&mut self, score: &Score) {
        self.sum.total += score.total;
        self.sum.in_zone += score.in_zone;
        self.sum.overload += score.overload;
        self.sum.slices += score.slices;
        self.sum.max_overload += score.max_overload;
        self.sum.mean_overload += score.mean_overload;
    }

    /// Inputs with a score.
    pub fn scored(&self) -> u64 {
        self.scored
    }

    /// Inputs without one.
    pub fn unscored(&self) -> u64 {
        self.unscored
    }

    /// Scored inputs that were left undivided.
    pub fn balanced(&self) -> u64 {
        self.balanced
    }

    /// Largest max overload of any input.
    pub fn worst_overload(&self) -> f64 {
        self.worst
    }

    /// Mean of every part of the score; none without a scored input.
    pub fn mean(&self) -> Option<Score> {
        let mean = |sum: f64| sum / self.scored as f64;
        (self.scored > 0).then(|| Score {
            total: mean(self.sum.total),
            in_zone: mean(self.sum.in_zone),
            overload: mean(self.sum.overload),
            slices: mean(self.sum.slices),
            max_overload: mean(self.sum.max_overload),
            mean_overload: mean(self.sum.mean_overload),
        })
    }

    /// Mean total of each size class that has inputs.
    pub fn by_size(&self) -> impl Iterator<Item = (SizeClass, f64)> {
        SIZE_CLASSES
            .into_iter()
            .zip(self.by_size)
            .filter(|(_, (count, _))| *count > 0)
            .map(|(class, (count, total))| (class, total / count as f64))
    }
}
