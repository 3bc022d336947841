//! What holds for every input: tiny domains, so that ties and shortages are common.

use super::*;

fn any_zones() -> impl Strategy<Value = Vec<Counts>> {
    let zone = (0..8_u32, 0..12_u32).prop_map(|(nodes, endpoints)| Counts { nodes, endpoints });
    let many = (0..20_u32, 0..250_u32).prop_map(|(nodes, endpoints)| Counts { nodes, endpoints });
    prop_oneof![
        4 => prop::collection::vec(zone, 1..6),
        1 => prop::collection::vec(many, 1..12),
    ]
}

fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    prop::sample::select(Algorithm::ALL.to_vec())
}

fn score(zones: &[Counts], groups: &Groups) -> Result<Score, Unscored> {
    Scorer::default().score(zones, groups)
}

/// True when no group is consumed by two zones, unless there is only the one for all.
fn no_zone_shares(groups: &Groups) -> bool {
    groups.is_balanced()
        || groups.iter().all(|(_, weight)| weight.iter().filter(|&&w| w > 0.0).count() <= 1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_endpoint_is_in_exactly_one_group(zones in any_zones(), algorithm in any_algorithm()) {
        let groups = plan(&zones, algorithm);
        for (home, zone) in zones.iter().enumerate() {
            let held: u32 = groups.iter().map(|(composition, _)| composition[home]).sum();
            prop_assert_eq!(held, zone.endpoints, "zone {} in {:?}", home, groups);
        }
    }

    #[test]
    fn no_zone_with_nodes_is_left_without_endpoints(
        zones in any_zones(),
        algorithm in any_algorithm(),
    ) {
        let result = score(&zones, &plan(&zones, algorithm));
        prop_assert_ne!(result, Err(Unscored::Unreachable));
        let (nodes, endpoints) =
            zones.iter().fold((0, 0), |(n, e), zone| (n + zone.nodes, e + zone.endpoints));
        prop_assert_eq!(result.is_ok(), nodes > 0 && endpoints > 0);
    }

    #[test]
    fn the_overload_threshold_is_kept(zones in any_zones()) {
        for algorithm in [Algorithm::Local, Algorithm::LocalShared, Algorithm::Fair] {
            if let Ok(score) = score(&zones, &plan(&zones, algorithm)) {
                prop_assert!(score.max_overload < 0.5 - 1e-9, "{} {:?}", algorithm, score);
            }
        }
        if let Ok(score) = score(&zones, &plan(&zones, Algorithm::LocalWeighted)) {
            prop_assert!(score.max_overload < 1e-9, "{:?}", score);
        }
    }

    #[test]
    fn scaling_all_node_counts_changes_nothing(
        zones in any_zones(),
        algorithm in any_algorithm(),
        factor in 2..50_u32,
    ) {
        let scaled: Vec<Counts> =
            zones.iter().map(|zone| Counts { nodes: zone.nodes * factor, ..*zone }).collect();
        let (groups, same) = (plan(&zones, algorithm), plan(&scaled, algorithm));
        prop_assert_eq!(score(&zones, &groups), score(&scaled, &same));
        prop_assert_eq!(groups, same);
    }

    /// Renaming puts zones in another order. For `fair` every zone keeps the size of its group,
    /// up to zones that differ in name only.
    #[test]
    fn renaming_zones_changes_nothing_for_fair(
        (zones, order) in any_zones().prop_flat_map(|zones| {
            let order: Vec<usize> = (0..zones.len()).collect();
            (Just(zones), Just(order).prop_shuffle())
        })
    ) {
        let renamed: Vec<Counts> = order.iter().map(|&z| zones[z]).collect();
        let (groups, other) = (plan(&zones, Algorithm::Fair), plan(&renamed, Algorithm::Fair));
        prop_assert_eq!(groups.is_balanced(), other.is_balanced());
        if !groups.is_balanced() {
            let sizes = |zones: &[Counts], groups: &Groups| {
                let mut sizes: Vec<(Counts, u32)> =
                    zones.iter().enumerate().map(|(z, zone)| (*zone, groups.size(z))).collect();
                sizes.sort_unstable();
                sizes
            };
            prop_assert_eq!(sizes(&zones, &groups), sizes(&renamed, &other));
        }
    }

    #[test]
    fn fair_and_local_never_share_a_group(zones in any_zones()) {
        for algorithm in [Algorithm::Fair, Algorithm::Local] {
            let groups = plan(&zones, algorithm);
            prop_assert!(no_zone_shares(&groups), "{} {:?}", algorithm, groups);
        }
    }

    /// A buffer left over from another input, larger or smaller, must not show.
    #[test]
    fn a_used_planner_plans_like_a_new_one(
        first in any_zones(),
        second in any_zones(),
        before in any_algorithm(),
        algorithm in any_algorithm(),
    ) {
        let mut planner = Planner::default();
        planner.plan(&first, before, &Options::default());
        let groups = planner.plan(&second, algorithm, &Options::default());
        prop_assert_eq!(groups, &plan(&second, algorithm));
    }
}
