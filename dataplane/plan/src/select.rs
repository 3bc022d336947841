//! Which endpoints of a Service port this node uses, and why.
//!
//! For one Service port in one address family:
//!
//! 1. A slice labelled for another zone or region is not ours. With the node's own zone
//!    unknown, labels decide nothing: take everything, never nothing. With only its region unknown, any
//!    region's slices may stand in for the zone's.
//! 2. If any visible slice is labelled for this zone or region, even an empty one, the Service is
//!    *zoned*: its unlabelled slices are ignored, and so are hints, because the label has decided.
//! 3. An endpoint that appears twice counts once; the better copy wins.
//! 4. Zoned: the most specific tier with a ready endpoint, zone before region; if nothing is ready in
//!    either, the most specific tier with a serving and terminating one.
//! 5. Not zoned: the ready endpoints, narrowed to this node's or this zone's by hints if every
//!    ready endpoint has one and at least one names us; if nothing is ready, the serving and
//!    terminating ones, whatever their hints.

use std::fmt;

use zw_model::{Family, NodeContext, Scope, ServicePort, Slice, SliceEndpoint};

/// The outcome for one Service port and family.
#[derive(Debug)]
pub struct Selection<'a> {
    /// Where the endpoints were taken from.
    pub tier: Tier,
    /// Every endpoint seen, used or not, by address and port.
    pub candidates: Vec<Candidate<'a>>,
}

impl<'a> Selection<'a> {
    /// The endpoints in use.
    pub fn used(&self) -> impl Iterator<Item = &Candidate<'a>> {
        self.candidates.iter().filter(|c| matches!(c.verdict, Verdict::Used(_)))
    }

    /// The endpoints on this node that answer where a policy keeps traffic local: the ready ones, else
    /// the serving and terminating ones. Neither hints nor zones have a say, and whether others are ready
    /// elsewhere does not matter.
    pub fn local(&self, node: &NodeContext) -> Vec<&Candidate<'a>> {
        let here = |c: &&Candidate<'a>| {
            let hidden = [WhyNot::OtherZone, WhyNot::Duplicate].map(Verdict::Unused);
            c.endpoint.node.as_ref() == Some(&node.name) && !hidden.contains(&c.verdict)
        };
        let with = |usable: fn(&Candidate<'_>) -> bool| -> Vec<&Candidate<'a>> {
            let mut usable: Vec<_> =
                self.candidates.iter().filter(here).filter(|c| usable(c)).collect();
            // The same endpoint in a labelled and in an unlabelled slice.
            usable.dedup_by_key(|c| (c.endpoint.addr, c.port));
            usable
        };
        let ready = with(is_ready);
        if ready.is_empty() { with(is_last_resort) } else { ready }
    }
}

/// Which slices a Service port's endpoints come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Slices labelled for this node's zone.
    Zone,
    /// Slices labelled for this node's region.
    Region,
    /// Unlabelled slices.
    Everyone,
}

/// An endpoint with what was decided about it.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// The slice it is in.
    pub slice: &'a Slice,
    /// The endpoint.
    pub endpoint: &'a SliceEndpoint,
    /// The number its slice gives the port.
    pub port: u16,
    /// The decision.
    pub verdict: Verdict,
    /// What its slice is to this node; `None`: not for it.
    tier: Option<Tier>,
}

/// Used or not, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Receives traffic.
    Used(Why),
    /// Does not.
    Unused(WhyNot),
}

/// Why an endpoint receives traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is ready.
    Ready,
    /// It is ready and hinted for this node.
    NodeHint,
    /// It is ready and hinted for this zone.
    ZoneHint,
    /// It is ready and in a slice labelled for this zone.
    ZoneSlice,
    /// It is ready and in a slice labelled for this region.
    RegionSlice,
    /// Nothing is ready; it is terminating but still serving.
    LastResort,
}

/// Why an endpoint receives no traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyNot {
    /// It is not ready, nor a last resort.
    NotReady,
    /// It is terminating, and others are ready.
    Terminating,
    /// The hints keep this node's traffic elsewhere.
    HintedElsewhere,
    /// Its slice is labelled for another zone or region.
    OtherZone,
    /// Its slice has no label, and the Service is zoned.
    Unlabelled,
    /// Its slice is for the region, and the zone has endpoints of its own.
    ZoneFirst,
    /// Another slice has the same address and port.
    Duplicate,
}

/// Decides about every endpoint of `slices`, which may hold several families and several ports.
pub fn select<'a>(
    port: &ServicePort,
    family: Family,
    slices: impl IntoIterator<Item = &'a Slice> + Clone,
    node: &NodeContext,
) -> Selection<'a> {
    let of_family = || slices.clone().into_iter().filter(|slice| slice.family == family);
    let zoned = of_family().any(|slice| match tier_of(&slice.scope, node) {
        Some(Tier::Zone) => true,
        Some(Tier::Region) => node.region.is_some(),
        _ => false,
    });

    let mut candidates = Vec::new();
    for slice in of_family() {
        let tier = match tier_of(&slice.scope, node) {
            // Slices for a region, and ours is unknown: one more label that decides nothing.
            Some(_) if !zoned => Some(Tier::Everyone),
            tier => tier,
        };
        let verdict = match tier {
            None => Verdict::Unused(WhyNot::OtherZone),
            Some(Tier::Everyone) if zoned => Verdict::Unused(WhyNot::Unlabelled),
            // Until a later step says otherwise.
            Some(_) => Verdict::Unused(WhyNot::NotReady),
        };
        let numbers =
            slice.ports.iter().filter(|p| p.name == port.name && p.protocol == port.protocol);
        for number in numbers.map(|p| p.port) {
            let endpoints = slice.endpoints.iter();
            candidates.extend(endpoints.map(|endpoint| Candidate {
                slice,
                endpoint,
                port: number,
                verdict,
                tier,
            }));
        }
    }
    // The slice's name last: which of two equal copies stays must not depend on who came first.
    let order = |c: &Candidate<'a>| (c.endpoint.addr, c.port, c.tier, &c.slice.key);
    candidates.sort_by(|one, other| order(one).cmp(&order(other)));

    let in_play = candidates
        .iter_mut()
        .filter(|c| c.verdict == Verdict::Unused(WhyNot::NotReady))
        .filter_map(|candidate| Some((candidate.tier?, candidate)));
    let mut in_play = drop_duplicates(in_play);
    let tier = if zoned { decide_zoned(&mut in_play) } else { decide_plain(&mut in_play, node) };
    Selection { tier, candidates }
}

/// Step 1: `None` means the slice is not for this node.
fn tier_of(scope: &Scope, node: &NodeContext) -> Option<Tier> {
    match (scope, &node.zone, &node.region) {
        (Scope::Everyone, ..) | (Scope::Zone(_), None, _) => Some(Tier::Everyone),
        (Scope::Zone(zone), Some(mine), _) => (zone == mine).then_some(Tier::Zone),
        // Without a zone the node takes zone slices as if unlabelled; a region slice must not turn
        // that into a zoned Service.
        (Scope::Region(_), None, _) => Some(Tier::Everyone),
        (Scope::Region(_), Some(_), None) => Some(Tier::Region),
        (Scope::Region(region), Some(_), Some(mine)) => (region == mine).then_some(Tier::Region),
    }
}

/// Step 3: of several copies in one tier, which the caller's order puts side by side, the ready one
/// stays, else one that is not terminating. kube-proxy asks first whether a copy is terminating, and
/// so may drop the only usable one.
fn drop_duplicates<'c, 'a>(
    in_play: impl Iterator<Item = (Tier, &'c mut Candidate<'a>)>,
) -> Vec<(Tier, &'c mut Candidate<'a>)> {
    let rank = |c: &Candidate<'_>| {
        let conditions = c.endpoint.conditions;
        (conditions.ready, !conditions.terminating, conditions.serving)
    };
    let place = |tier: Tier, c: &Candidate<'_>| (tier, c.endpoint.addr, c.port);
    let mut kept: Vec<(Tier, &mut Candidate<'a>)> = Vec::new();
    for (tier, candidate) in in_play {
        match kept.last_mut() {
            Some((other, best)) if place(*other, best) == place(tier, candidate) => {
                let duplicate = if rank(candidate) > rank(best) {
                    std::mem::replace(best, candidate)
                } else {
                    candidate
                };
                duplicate.verdict = Verdict::Unused(WhyNot::Duplicate);
            }
            _ => kept.push((tier, candidate)),
        }
    }
    kept
}

/// Step 4.
fn decide_zoned(in_play: &mut [(Tier, &mut Candidate<'_>)]) -> Tier {
    let tier_with = |usable: fn(&Candidate<'_>) -> bool| {
        in_play.iter().filter(|(_, c)| usable(c)).map(|(tier, _)| *tier).min()
    };
    let ready = tier_with(is_ready);
    let Some(chosen) = ready.or_else(|| tier_with(is_last_resort)) else { return Tier::Zone };
    for (tier, candidate) in in_play {
        candidate.verdict = if ready.is_none() {
            last_resort(candidate, *tier == chosen)
        } else if !is_ready(candidate) {
            Verdict::Unused(why_not_ready(candidate))
        } else {
            match (*tier, chosen) {
                (Tier::Zone, _) => Verdict::Used(Why::ZoneSlice),
                (_, Tier::Zone) => Verdict::Unused(WhyNot::ZoneFirst),
                _ => Verdict::Used(Why::RegionSlice),
            }
        };
    }
    chosen
}

/// Step 5.
fn decide_plain(in_play: &mut [(Tier, &mut Candidate<'_>)], node: &NodeContext) -> Tier {
    if !in_play.iter().any(|(_, c)| is_ready(c)) {
        for (_, candidate) in in_play {
            candidate.verdict = last_resort(candidate, true);
        }
        return Tier::Everyone;
    }
    let hint = deciding_hint(in_play, node);
    for (_, candidate) in in_play {
        candidate.verdict = if !is_ready(candidate) {
            Verdict::Unused(why_not_ready(candidate))
        } else if hint.is_some_and(|hint| !names_us(hint, candidate, node)) {
            Verdict::Unused(WhyNot::HintedElsewhere)
        } else {
            Verdict::Used(hint.unwrap_or(Why::Ready))
        };
    }
    Tier::Everyone
}

/// The kind of hint that every ready endpoint has and that names us at least once, node hints first.
fn deciding_hint(in_play: &[(Tier, &mut Candidate<'_>)], node: &NodeContext) -> Option<Why> {
    [Why::NodeHint, Why::ZoneHint].into_iter().find(|hint| {
        let mut ready = in_play.iter().map(|(_, c)| &**c).filter(|c| is_ready(c));
        let complete = ready.clone().all(|c| has_hint(*hint, c));
        complete && ready.any(|c| names_us(*hint, c, node))
    })
}

fn has_hint(hint: Why, candidate: &Candidate<'_>) -> bool {
    candidate.endpoint.hints.as_ref().is_some_and(|hints| match hint {
        Why::NodeHint => !hints.nodes.is_empty(),
        _ => !hints.zones.is_empty(),
    })
}

fn names_us(hint: Why, candidate: &Candidate<'_>, node: &NodeContext) -> bool {
    candidate.endpoint.hints.as_ref().is_some_and(|hints| match hint {
        Why::NodeHint => hints.nodes.contains(&node.name),
        _ => node.zone.as_ref().is_some_and(|zone| hints.zones.contains(zone)),
    })
}

fn is_ready(candidate: &Candidate<'_>) -> bool {
    candidate.endpoint.conditions.ready
}

fn is_last_resort(candidate: &Candidate<'_>) -> bool {
    candidate.endpoint.conditions.usable_as_last_resort()
}

fn last_resort(candidate: &Candidate<'_>, in_tier: bool) -> Verdict {
    match (is_last_resort(candidate), in_tier) {
        (true, true) => Verdict::Used(Why::LastResort),
        (true, false) => Verdict::Unused(WhyNot::ZoneFirst),
        (false, _) => Verdict::Unused(WhyNot::NotReady),
    }
}

fn why_not_ready(candidate: &Candidate<'_>) -> WhyNot {
    if candidate.endpoint.conditions.terminating { WhyNot::Terminating } else { WhyNot::NotReady }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Used(Why::Ready) => "ready",
            Verdict::Used(Why::NodeHint) => "ready, hinted for this node",
            Verdict::Used(Why::ZoneHint) => "ready, hinted for this zone",
            Verdict::Used(Why::ZoneSlice) => "ready, in a slice for this zone",
            Verdict::Used(Why::RegionSlice) => "ready, in a slice for this region",
            Verdict::Used(Why::LastResort) => {
                "last resort: terminating but serving, nothing is ready"
            }
            Verdict::Unused(WhyNot::NotReady) => "not ready",
            Verdict::Unused(WhyNot::Terminating) => "terminating, others are ready",
            Verdict::Unused(WhyNot::HintedElsewhere) => "hinted for others",
            Verdict::Unused(WhyNot::OtherZone) => "in a slice for another zone or region",
            Verdict::Unused(WhyNot::Unlabelled) => "in an unlabelled slice of a zoned Service",
            Verdict::Unused(WhyNot::ZoneFirst) => "for the region; the zone has its own",
            Verdict::Unused(WhyNot::Duplicate) => "listed twice",
        })
    }
}

#[cfg(test)]
mod tests;
