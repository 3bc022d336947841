//! The buckets of network programming latency.

/// kube-proxy's own: fine where the promise is, a few seconds, and coarse up to five minutes.
pub(super) fn buckets() -> impl Iterator<Item = f64> {
    let steps = |first: u32, step: usize, last: u32| (first..=last).step_by(step).map(f64::from);
    [0.25, 0.5]
        .into_iter()
        .chain(steps(1, 1, 59))
        .chain(steps(60, 5, 115))
        .chain(steps(120, 30, 300))
}
