//! What deletes have taken away, and so have seen.
//!
//! Who is told that there was a value has learnt of its write as one who reads has: what that write depends on must be shown from then on.
//! But the answer does not say which value it was. It was that of some put that had begun before the delete was over, acknowledged or
//! not; if there is one such put only, it was that one. Where there are several nothing is said, and nothing is learnt.
//!
//! That a delete has seen a put means here that it comes after it, and no more: the delete itself is not judged as a read.
use crate::Operation;
use std::collections::HashMap;

/// For each of these deletes the one put that it can have taken away, where there is one only. All are places among the operations; the deletes
/// rise. Where clocks differ nobody knows what began before what.
pub(crate) fn only_puts(
    operations: &[Operation],
    mut deletes: Vec<usize>,
    is_put: impl Fn(&Operation) -> bool,
    have_clocks_in_common: bool,
) -> Vec<(usize, usize)> {
    if deletes.is_empty() {
        return Vec::new();
    }
    deletes.sort_unstable();
    let of_deletes = deletes.iter().map(|&delete| (operations[delete].key, Vec::new()));
    let mut puts: HashMap<u32, Vec<usize>> = of_deletes.collect();
    for (place, operation) in operations.iter().enumerate().filter(|(_, it)| is_put(it)) {
        if let Some(puts) = puts.get_mut(&operation.key) {
            puts.push(place);
        }
    }
    for puts in puts.values_mut() {
        puts.sort_unstable_by_key(|&put| (operations[put].start, put));
    }
    let only = |delete: usize| {
        let by = &operations[delete];
        let has_begun = |put: &&usize| !have_clocks_in_common || operations[**put].start <= by.finish;
        // A session's operations follow each other, also those that were sent without waiting.
        let is_later = |put: &Operation| put.client == by.client && put.start > by.start;
        let mut candidates = puts[&by.key].iter().take_while(has_begun);
        let mut candidates = candidates.by_ref().filter(|&&put| !is_later(&operations[put]));
        let put = *candidates.next()?;
        candidates.next().is_none().then_some((delete, put))
    };
    deletes.iter().filter_map(|&delete| only(delete)).collect()
}
