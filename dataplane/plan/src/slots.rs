//! Which endpoint stands in which slot. A slot is the last field of an `endpoints` key; moving an
//! endpoint costs a delete and an add, so nobody moves who need not.

/// Puts `wanted`, which is sorted by `key` and has nobody twice, into slots `0..wanted.len()`, keeping everyone
/// of `previous` in place who can stay. Gives for each slot who of `wanted` it is.
///
/// 1. Who is still wanted and whose slot still exists stays.
/// 2. Holes are filled by newcomers, in the order of `wanted`.
/// 3. Holes left over are filled from the end; newcomers left over go to the end.
pub fn assign<T, K: Ord>(previous: &[K], wanted: &[T], key: impl Fn(&T) -> K) -> Vec<usize> {
    let count = wanted.len();
    // Everyone once: also takes the second of two equal entries out of `previous`.
    let mut placed = vec![false; count];
    // Slots that were never moved are in the order of `wanted`.
    let mut next = 0;
    let place = |endpoint: &K| {
        let at = match wanted.get(next) {
            Some(wanted) if key(wanted) == *endpoint => next,
            _ => wanted.binary_search_by(|wanted| key(wanted).cmp(endpoint)).ok()?,
        };
        next = at + 1;
        (!std::mem::replace(&mut placed[at], true)).then_some(at)
    };
    let mut slots: Vec<Option<usize>> = previous.iter().map(place).collect();

    let newcomers: Vec<usize> = (0..count).filter(|at| !placed[*at]).collect();
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

    /// The endpoints in their slots.
    fn assign(previous: &[u8], wanted: &[u8]) -> Vec<u8> {
        super::assign(previous, wanted, |endpoint| *endpoint)
            .into_iter()
            .map(|at| wanted[at])
            .collect()
    }

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
            wanted in proptest::collection::btree_set(0u8..12, 0..10),
        ) {
            let want: Vec<u8> = wanted.into_iter().collect();
            let slots = assign(&previous, &want);
            let mut sorted = slots.clone();
            sorted.sort_unstable();
            prop_assert_eq!(&sorted, &want);

            // Nobody leaves a slot that exists before and after, unless he stands twice.
            for (i, kept) in previous.iter().enumerate() {
                let first = previous.iter().position(|p| p == kept) == Some(i);
                if first && i < slots.len() && want.contains(kept) {
                    prop_assert_eq!(slots[i], *kept);
                }
            }
            prop_assert_eq!(assign(&slots, &want), slots, "assigning again changes nothing");
        }
    }
}
