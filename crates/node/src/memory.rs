//! How the lanes of a node share its memory for versions.
//!
//! A node has many lanes: one for each partition of each keyspace. Most are small, or nobody uses them. If each had the same part of the memory, a keyspace that is used
//! alone would read from disk although most of the memory is free. So a lane may grow into what the others do not use. Once memory is short, those lanes evict that have more than an equal share.

/// The limit of each lane, if the lanes use this much of a memory of `total` bytes.
///
/// While memory is left, each lane may grow by an equal part of it, and up to an equal share of the whole in any case. So the lanes can use more than the whole until this is
/// called again. Once they do, what is too much is taken from those that have more than an equal share, from each in proportion.
pub(crate) fn limits(total: u64, used: &[u64]) -> Vec<u64> {
    let lanes = used.len().max(1) as u64;
    let fair = total / lanes;
    let all = used.iter().sum::<u64>();
    let (left, excess) = (total.saturating_sub(all) / lanes, all.saturating_sub(total));
    let above = |used: u64| used.saturating_sub(fair);
    let all_above = used.iter().map(|&used| above(used)).sum::<u64>().max(1);
    let limit = |&used: &u64| {
        let takes = u128::from(excess) * u128::from(above(used)) / u128::from(all_above);
        fair.max((used + left).saturating_sub(takes as u64))
    };
    used.iter().map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_lane_that_is_used_alone_gets_nearly_everything() {
        let mut used = vec![0; 8];
        for _ in 0..100 {
            used[3] = limits(1000, &used)[3];
        }
        assert_eq!(used[3], 993, "the rest is less than a byte for each lane");
    }

    #[test]
    fn what_is_too_much_is_taken_from_those_that_have_more_than_their_share() {
        assert_eq!(limits(1000, &[900, 250, 50, 0]), [700, 250, 250, 250]);
        assert_eq!(limits(1000, &[500, 500, 300, 100]), [319, 319, 264, 250]);
        assert_eq!(limits(1000, &[]), Vec::<u64>::new());
    }

    proptest! {
        #[test]
        fn lanes_that_evict_down_to_their_limits_use_no_more_than_the_whole(
            used in proptest::collection::vec(0..2_000_u64, 1..9),
            total in 0..3_000_u64,
        ) {
            let limits = limits(total, &used);
            let fair = total / used.len() as u64;
            prop_assert!(limits.iter().all(|&limit| limit >= fair));
            let after: u64 = used.iter().zip(&limits).map(|(used, limit)| used.min(limit)).sum();
            prop_assert!(after <= total + used.len() as u64, "{after} of {total}");
        }
    }
}
