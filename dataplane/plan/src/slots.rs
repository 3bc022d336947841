//! Which endpoint stands in which slot. A slot is the last field of an `endpoints` key; moving an
//! endpoint costs a delete and an add, so nobody moves who need not.

/// Puts `wanted` into slots `0..wanted.len()`, keeping everyone of `previous` in place who can stay.
///
/// 1. Who is still wanted and whose slot still exists stays.
/// 2. Holes are filled by newcomers, in the order of `wanted`.
/// 3. Holes left over are filled from the end; newcomers left over go to the end.
pub fn assign<T: Copy + Ord>(previous: &[T], wanted: &[T]) -> Vec<T> {
    let mut unplaced = wanted.to_vec();
    unplaced.sort_unstable();
    unplaced.dedup();
    let count = unplaced.len();
    // Everyone once: also takes the second of two equal entries out of `previous`.
    let mut placed = vec![false; count];
    let mut place = |endpoint: &T| {
        let at = unplaced.binary_search(endpoint).ok()?;
        (!std::mem::replace(&mut placed[at], true)).then_some(*endpoint)
    };
    let mut slots: Vec<Option<T>> = previous.iter().map(&mut place).collect();

    let newcomers: Vec<T> = wanted.iter().filter_map(place).collect();
    let mut newcomers = newcomers.into_iter();
    for hole in slots.iter_mut().take(count).filter(|slot| slot.is_none()) {
        match newcomers.next() {
            Some(newcomer) => *hole = Some(newcomer),
            None => break,
        }
    }
    let beyond = slots.split_off(slots.len().min(count));
    let mut movers = beyond.into_iter().flatten();
    for hole in slots.iter_mut().filter(|slot| slot.is_none()) {
        *hole = movers.next();
    }
    slots.into_iter().flatten().chain(newcomers).chain(movers).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::assign;

    #[test]
    fn removing_one_moves_only_the_last() {
        assert_eq!(assign(&[1, 2, 3, 4], &[1, 3, 4]), [1, 4, 3]);
        assert_eq!(assign(&[1, 2, 3, 4], &[1, 2, 3]), [1, 2, 3]);
    }

    #[test]
    fn replacing_one_writes_only_its_slot() {
        assert_eq!(assign(&[1, 2, 3], &[1, 3, 9]), [1, 9, 3]);
    }

    #[test]
    fn adding_goes_to_the_end() {
        assert_eq!(assign(&[3, 1], &[1, 2, 3]), [3, 1, 2]);
    }

    proptest! {
        #[test]
        fn slots_hold_each_wanted_once_and_writes_are_minimal(
            previous in proptest::collection::vec(0u8..12, 0..10),
            wanted in proptest::collection::vec(0u8..12, 0..10),
        ) {
            let slots = assign(&previous, &wanted);
            let mut sorted = slots.clone();
            sorted.sort_unstable();
            let mut want = wanted.clone();
            want.sort_unstable();
            want.dedup();
            prop_assert_eq!(&sorted, &want);

            // Nobody leaves a slot that exists before and after, unless he stands twice.
            for (i, kept) in previous.iter().enumerate() {
                let first = previous.iter().position(|p| p == kept) == Some(i);
                if first && i < slots.len() && want.contains(kept) {
                    prop_assert_eq!(slots[i], *kept);
                }
            }
            prop_assert_eq!(assign(&slots, &wanted), slots, "assigning again changes nothing");
        }
    }
}
