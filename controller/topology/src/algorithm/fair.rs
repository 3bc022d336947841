//! `fair`, our own: one group per zone, sized by following the score.
//!
//! With one group per zone only the sizes matter. Pulling every zone towards its expected size
//! nearly always pays (less overload weighs more than the traffic that leaves its zone), except
//! for the last rounding and where it would open another EndpointSlice. So:
//!
//! 1. Every zone with nodes holds its own endpoints, but at least as many as keep it below the
//!    overload threshold; zones without nodes hold none. If there are not enough: balanced. The
//!    difference comes from the zones least loaded after giving, or goes to the most loaded.
//! 2. One endpoint at a time goes from the zone least loaded after giving to the most loaded one,
//!    until that would only swap their places. Each state on the way is scored.
//! 3. The best state wins; of equals the first, which moved least.
//! 4. With a previous division to start from: that one stays, apart from endpoints that are new or
//!    gone, and is moved towards the best state one endpoint at a time only until it keeps the
//!    threshold and scores within [`TOLERANCE`] of it.
//!
//! There are at most as many states as endpoints and each costs one pass over the zones. A jump
//! of the sizes, say across a slice boundary, costs real connections, hence step 4. For the same
//! reason balanced is never chosen for its score alone: that would be worth 0.1 in the mean total
//! but two Services of nearly the same shape would differ in every single endpoint.
//!
//! Zones are visited by nodes, then endpoints, then name, so that names decide nothing between
//! zones that differ.

use crate::groups::Groups;
use crate::model::{Counts, Totals};
use crate::score::{IN_ZONE_WEIGHT, OVERLOAD_WEIGHT, SLICE_CAPACITY, SLICE_WEIGHT};
use seat::Seat;

mod compose;
mod seat;

/// Points of total score a division may lag behind the best one before it is replaced.
pub(super) const TOLERANCE: f64 = 0.25;

/// Differences below this are rounding noise, not a better score.
const NOISE: f64 = 1e-9;

/// The walk's buffers.
#[derive(Debug, Clone, Default)]
pub(super) struct Fair {
    seats: Vec<Seat>,
    best: Vec<u32>,
    compose: compose::Buffers,
}

/// What the score needs to know about the whole input, in points of the total.
#[derive(Debug, Clone, Copy)]
struct Whole {
    endpoints: u32,
    /// Points for one endpoint's worth of in-zone traffic.
    per_in_zone: f64,
    /// Points lost for one endpoint's worth of mean overload.
    per_gap: f64,
    /// Points for slices, times the slices used.
    slice_points: f64,
    /// Most points for overload and slices that any division can get.
    most_elsewhere: f64,
}

/// Points lost for a max overload of 1, and for a mean overload of 1.
const PER_OVERLOAD: f64 = 50.0 * OVERLOAD_WEIGHT;

impl Whole {
    fn new(endpoints: u32, groups: u32) -> Self {
        let fewest_slices = endpoints.div_ceil(SLICE_CAPACITY);
        let slice_points = 100.0 * SLICE_WEIGHT * f64::from(fewest_slices);
        Self {
            endpoints,
            per_in_zone: 100.0 * IN_ZONE_WEIGHT / f64::from(endpoints),
            per_gap: PER_OVERLOAD / f64::from(endpoints),
            slice_points,
            most_elsewhere: 2.0 * PER_OVERLOAD
                + slice_points / f64::from(fewest_slices.max(groups)),
        }
    }
}

impl Fair {
    /// Fills `groups`; false means the threshold cannot be kept and the Service stays balanced.
    ///
    /// `previous` holds those endpoints of an earlier division that are still there.
    pub(super) fn plan(
        &mut self,
        zones: &[Counts],
        totals: Totals,
        previous: Option<&Groups>,
        overload_percent: u32,
        groups: &mut Groups,
    ) -> bool {
        self.seat(zones, totals, overload_percent);
        let least: u64 = self.seats.iter().map(|seat| u64::from(seat.least)).sum();
        if least > totals.endpoints {
            return false;
        }
        self.seats.sort_unstable_by_key(|seat| (zones[seat.zone].nodes, seat.own, seat.zone));

        let consuming = self.seats.iter().filter(|seat| seat.least > 0).count();
        let whole = Whole::new(totals.endpoints as u32, consuming as u32);
        self.best.clear();
        self.best.resize(self.seats.len(), 0);
        let score = walk(&mut self.seats, whole, &mut self.best);

        // From balanced everything moves anyway; with other zones the rows mean something else.
        let usable = |p: &&Groups| !p.is_balanced() && p.zones() == zones.len();
        match previous.filter(usable) {
            None => self.compose.start(zones),
            Some(previous) => {
                self.compose.keep(zones, previous);
                self.stop_early(score - TOLERANCE, whole);
            }
        }
        let sizes = self.seats.iter().zip(&self.best).map(|(seat, &held)| (seat.zone, held));
        self.compose.resize(zones, sizes);
        self.compose.write(zones.len(), groups);
        true
    }

    /// Fills `groups` with the previous division, new endpoints at home; false if a zone would
    /// reach the threshold.
    pub(super) fn keep(
        &mut self,
        zones: &[Counts],
        totals: Totals,
        previous: &Groups,
        overload_percent: u32,
        groups: &mut Groups,
    ) -> bool {
        if previous.zones() != zones.len() {
            return false;
        }
        self.compose.keep(zones, previous);
        self.seat(zones, totals, overload_percent);
        let kept = |seat: &Seat| seat.holding(self.compose.held(seat.zone)).is_sound();
        if !self.seats.iter().all(kept) {
            return false;
        }
        self.compose.write(zones.len(), groups);
        true
    }

    /// Every zone with its own endpoints, or as many as it needs at least.
    fn seat(&mut self, zones: &[Counts], totals: Totals, overload_percent: u32) {
        let seats = zones.iter().enumerate();
        self.seats.clear();
        self.seats.extend(seats.map(|(z, &zone)| Seat::new(z, zone, totals, overload_percent)));
    }

    /// Step 4: replaces the best sizes by the first ones on the way there that score `enough`.
    ///
    /// Going only to the edge of the tolerance, not to its middle, moves least in the long run:
    /// the next change may well lead back.
    fn stop_early(&mut self, enough: f64, whole: Whole) {
        for seat in &mut self.seats {
            *seat = seat.holding(self.compose.held(seat.zone));
        }
        loop {
            let mut state = State::default();
            self.seats.iter().for_each(|seat| state.add(seat));
            if self.seats.iter().all(Seat::is_sound) && state.score(whole) >= enough {
                break;
            }
            let (mut from, mut to) = (None, None);
            for (z, (seat, &best)) in self.seats.iter().zip(&self.best).enumerate() {
                let less_loaded = |&f: &usize| seat.load < self.seats[f].load;
                let more_loaded = |&t: &usize| seat.load > self.seats[t].load;
                if seat.held > best && from.as_ref().is_none_or(less_loaded) {
                    from = Some(z);
                }
                if seat.held < best && to.as_ref().is_none_or(more_loaded) {
                    to = Some(z);
                }
            }
            // Both sides add up to all endpoints, so one is never there without the other.
            let (Some(from), Some(to)) = (from, to) else { break };
            self.seats[from] = self.seats[from].holding(self.seats[from].held - 1);
            self.seats[to] = self.seats[to].holding(self.seats[to].held + 1);
        }
        for (best, seat) in self.best.iter_mut().zip(&self.seats) {
            *best = seat.held;
        }
    }
}

/// Steps 1 to 3: leaves the best sizes in `best` and returns their score.
fn walk(seats: &mut [Seat], whole: Whole, best: &mut [u32]) -> f64 {
    let mut held: u32 = seats.iter().map(|seat| seat.held).sum();
    while held > whole.endpoints {
        seats[least_loaded_after_giving(seats)].give();
        held -= 1;
    }
    while held < whole.endpoints {
        seats[most_loaded(seats)].take();
        held += 1;
    }
    let mut best_score = f64::NEG_INFINITY;
    loop {
        let mut state = State::default();
        seats.iter().for_each(|seat| state.add(seat));
        let score = state.score(whole);
        if score > best_score + NOISE {
            best_score = score;
            for (best, seat) in best.iter_mut().zip(seats.iter()) {
                *best = seat.held;
            }
        }
        // In-zone traffic only falls from here: stop when even perfection elsewhere is too little.
        if state.ceiling(whole) <= best_score {
            return best_score;
        }
        let (from, to) = (least_loaded_after_giving(seats), most_loaded(seats));
        if seats[from].load_after >= seats[to].load {
            return best_score;
        }
        seats[from].give();
        seats[to].take();
    }
}

/// Sums over all zones from which the score of one state follows.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// In-zone traffic in endpoints: 1 for each that serves only its own zone at the ideal load.
    in_zone: f64,
    /// Largest load of any endpoint, 1 = ideal.
    max_load: f64,
    /// Distance of all zones from their expected size.
    gap: f64,
    slices: u32,
}

impl State {
    #[inline(always)]
    fn add(&mut self, seat: &Seat) {
        self.in_zone += seat.in_zone;
        self.max_load = if seat.load > self.max_load { seat.load } else { self.max_load };
        self.gap += (seat.expected - f64::from(seat.held)).abs();
        self.slices += seat.held.div_ceil(SLICE_CAPACITY);
    }

    /// The total score, as [`crate::Scorer`] computes it for one group per zone.
    #[inline(always)]
    fn score(&self, whole: Whole) -> f64 {
        // 100 - 50 * (max overload + mean overload), where max overload is max load - 1.
        let overload = PER_OVERLOAD * (3.0 - self.max_load) - whole.per_gap * self.gap;
        whole.per_in_zone * self.in_zone + overload + whole.slice_points / f64::from(self.slices)
    }

    /// What the score would be without overload and with as few slices as a division can have.
    #[inline(always)]
    fn ceiling(&self, whole: Whole) -> f64 {
        whole.per_in_zone * self.in_zone + whole.most_elsewhere
    }
}

#[inline(always)]
fn least_loaded_after_giving(seats: &[Seat]) -> usize {
    (1..seats.len()).fold(
        0,
        |best, z| {
            if seats[z].load_after < seats[best].load_after { z } else { best }
        },
    )
}

#[inline(always)]
fn most_loaded(seats: &[Seat]) -> usize {
    (1..seats.len()).fold(0, |best, z| if seats[z].load > seats[best].load { z } else { best })
}

#[cfg(test)]
mod tests;
