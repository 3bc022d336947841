//! What a list of measurements says.

/// Of many values: the middle one and how far the others are from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// None without values.
pub(crate) fn spread(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let (least, most) = (*values.first()?, *values.last()?);
    Some(Spread { median: middle(&values), least, most })
}

/// The value that so many in a hundred do not exceed (the nearest rank); none without values.
pub(crate) fn percentile(values: impl IntoIterator<Item = f64>, hundredth: usize) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * hundredth).div_ceil(100).max(1);
    values.get(rank - 1).copied()
}

fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends() {
        assert_eq!(spread([]), None);
        let want = |median, least, most| Some(Spread { median, least, most });
        assert_eq!(spread([3.0, 1.0, 8.0]), want(3.0, 1.0, 8.0));
        assert_eq!(spread([3.0, 1.0, 8.0, 4.0]), want(3.5, 1.0, 8.0));
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values = || (1..=200).map(f64::from);
        assert_eq!(percentile(values(), 50), Some(100.0));
        assert_eq!(percentile(values(), 99), Some(198.0));
        assert_eq!(percentile(values(), 100), Some(200.0));
        assert_eq!(percentile([7.0], 1), Some(7.0));
        assert_eq!(percentile([], 50), None);
    }
}
