//! The puts whose values deletes have removed, and so have seen.
//!
//! A client that is told that its delete found a value knows of the value's write, like a client that reads it: from then on the session must be
//! shown everything that the write depends on. But the answer does not say which value it was. It was the value of some put that had begun before
//! the delete was over, acknowledged or not. If there is only one such put, it was that one. If there are several, nothing follows.
//!
//! That a delete has seen a put means here only that it comes after the put: the delete itself is not judged as a read.
use crate::Operation;
use std::collections::HashMap;

/// For each of these deletes the put whose value it can have removed, if there is only one. All are places among the operations; the deletes
/// rise. If there are several clocks, it is not known which operation began first.
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
