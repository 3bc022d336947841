use super::*;

fn zones<const N: usize>(numbers: [(u32, u32); N]) -> [Counts; N] {
    numbers.map(|(nodes, endpoints)| Counts { nodes, endpoints })
}

/// Groups from rows of composition and weights.
fn groups(rows: &[(&[u32], &[f64])]) -> Groups {
    let mut groups = Groups::default();
    groups.clear(rows.first().map_or(0, |(held, _)| held.len()));
    for (held, weights) in rows {
        let (composition, weight) = groups.add();
        composition.copy_from_slice(held);
        weight.copy_from_slice(weights);
    }
    groups
}

fn assert_close(score: Score, want: Score) {
    let pairs = [
        (score.total, want.total),
        (score.in_zone, want.in_zone),
        (score.overload, want.overload),
        (score.slices, want.slices),
        (score.max_overload, want.max_overload),
        (score.mean_overload, want.mean_overload),
    ];
    assert!(pairs.iter().all(|(a, b)| (a - b).abs() < 1e-9), "{score:?}, expected {want:?}");
}

#[test]
fn one_group_for_all_is_never_overloaded_and_mostly_out_of_zone() {
    // Shares 1/4 and 3/4, in-zone 1/4 * 2/8 + 3/4 * 6/8 = 5/8.
    let score = Scorer::default()
        .score(&zones([(1, 2), (3, 6)]), &groups(&[(&[2, 6], &[1.0, 1.0])]))
        .unwrap();
    let want = Score {
        total: 0.45 * 62.5 + 40.0 + 15.0,
        in_zone: 62.5,
        overload: 100.0,
        slices: 100.0,
        max_overload: 0.0,
        mean_overload: 0.0,
    };
    assert_close(score, want);
}

#[test]
fn a_group_per_zone_is_scored_by_its_load() {
    // 10 endpoints, equal shares: 5 expected each. Zone a holds 4 of its own (load 1.25), zone b
    // 5 of its own and one of a (load 5/6): in-zone 1/2 + 1/2 * 5/6.
    let score = Scorer::default()
        .score(&zones([(2, 5), (2, 5)]), &groups(&[(&[4, 0], &[1.0, 0.0]), (&[1, 5], &[0.0, 1.0])]))
        .unwrap();
    let (in_zone, mean) = (100.0 * (0.5 + 5.0 / 12.0), (4.0 * 0.25 + 6.0 / 6.0) / 10.0);
    let overload = 100.0 - 50.0 * (0.25 + mean);
    let want = Score {
        total: 0.45 * in_zone + 0.4 * overload + 0.15 * 50.0,
        in_zone,
        overload,
        slices: 50.0,
        max_overload: 0.25,
        mean_overload: mean,
    };
    assert_close(score, want);
}

#[test]
fn weights_split_a_zones_traffic_by_size_times_weight() {
    // Zone a reaches 1 + 1 * 0.5, zone b 1 * 0.5: b sends everything to the shared endpoint.
    let rows: &[(&[u32], &[f64])] = &[(&[1, 0], &[1.0, 0.0]), (&[1, 0], &[0.5, 0.5])];
    let score = Scorer::default().score(&zones([(3, 2), (1, 0)]), &groups(rows)).unwrap();
    // Loads: 3/4 * 2/3 = 1/2 and 3/4 * 1/3 + 1/4 = 1/2, both ideal; in-zone is a's 3/4.
    let want = Score {
        total: 0.45 * 75.0 + 40.0 + 15.0 / 2.0,
        in_zone: 75.0,
        overload: 100.0,
        slices: 50.0,
        max_overload: 0.0,
        mean_overload: 0.0,
    };
    assert_close(score, want);
}

#[test]
fn slices_are_counted_per_group() {
    // 150 endpoints fit in 2 slices, 101 + 49 need 3.
    let rows: &[(&[u32], &[f64])] = &[(&[101, 0], &[1.0, 0.0]), (&[0, 49], &[0.0, 1.0])];
    let score = Scorer::default().score(&zones([(2, 101), (1, 49)]), &groups(rows)).unwrap();
    assert!((score.slices - 200.0 / 3.0).abs() < 1e-9, "{score:?}");
}

#[test]
fn what_cannot_be_scored_says_why() {
    let mut scorer = Scorer::default();
    let balanced = |held: &'static [u32]| groups(&[(held, &[1.0, 1.0])]);
    assert_eq!(
        scorer.score(&zones([(1, 0), (1, 0)]), &balanced(&[0, 0])),
        Err(Unscored::NoEndpoints)
    );
    assert_eq!(scorer.score(&zones([(0, 1), (0, 1)]), &balanced(&[1, 1])), Err(Unscored::NoNodes));
    assert_eq!(scorer.score(&[], &Groups::default()), Err(Unscored::NoEndpoints));
    let one_sided = groups(&[(&[2, 0], &[1.0, 0.0])]);
    assert_eq!(scorer.score(&zones([(1, 2), (1, 0)]), &one_sided), Err(Unscored::Unreachable));
}

#[test]
fn a_zone_without_nodes_may_reach_nothing() {
    let one_sided = groups(&[(&[2, 1], &[1.0, 0.0])]);
    let score = Scorer::default().score(&zones([(1, 2), (0, 1)]), &one_sided).unwrap();
    assert!((score.in_zone - 200.0 / 3.0).abs() < 1e-9, "{score:?}");
}
