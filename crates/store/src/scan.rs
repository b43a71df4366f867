use crate::place::Area;
use crate::store::{after, place_at, read_row};
use crate::{Epoch, Place, Retry, Store, StoreError, Table};
use std::collections::BTreeSet;
use std::ops::Range;
use turnbuckle_core::{Key, Wire};

/// What a scan found in the table: the half that is done without the store's lock.
#[derive(Debug, Clone)]
pub struct ScanRows {
    /// In the order of places, with whether the newest version is a value.
    rows: Vec<(Place, Key, bool)>,
    /// Where it began, the end of the slots.
    from: Place,
    end: Place,
    /// The first place that was not read.
    until: Place,
    count: usize,
    epoch: Epoch,
}

/// How much of a table is read at a time.
const PAGE_BYTES: usize = 1 << 20;

/// Reads the next rows of a scan of some hash slots from the table: about `count`, all those with one place together.
/// The cursor is 0 at first, then what [`Store::finish_scan`] said; `epoch` is [`Store::epoch`] from before.
pub fn scan_rows<M: Wire>(
    table: &dyn Table,
    slots: Range<u16>,
    cursor: u64,
    count: usize,
    epoch: Epoch,
) -> Result<ScanRows, StoreError> {
    let end = Place::first_of(slots.end);
    let from = Place(cursor).max(Place::first_of(slots.start)).min(end);
    let mut found = ScanRows {
        rows: Vec::new(),
        from,
        end,
        until: end,
        count: count.max(1),
        epoch,
    };
    let snapshot = table.snapshot()?;
    let stop = Area::Rows.from(end);
    let mut start = Area::Rows.from(from);
    loop {
        // One more than wanted, to see where the next place begins.
        let wanted = (found.count + 1).saturating_sub(found.rows.len()).clamp(1, 1024);
        let rows = snapshot.range(&start, &stop, wanted, PAGE_BYTES)?;
        let Some((last, _)) = rows.last() else {
            return Ok(found);
        };
        start = after(last);
        for (key, value) in rows {
            let row = read_row::<M>(&key, value, false)?;
            let is_next = found.rows.last().is_some_and(|last| last.0 != row.place);
            if found.rows.len() >= found.count && is_next {
                found.until = row.place;
                return Ok(found);
            }
            let live = row.chain.newest().value.is_some();
            found.rows.push((row.place, row.key.compact(), live));
        }
    }
}

impl<M: Wire + Clone + Send> Store<M> {
    /// The other half of a scan: what was read from the table, corrected by what memory knows better. Returns where to
    /// go on (0: the slots are finished) and the keys that have a value.
    ///
    /// A key that has one from the first call of a scan to the last is returned at least once. Why: it is in the
    /// table when that is read, or it is dirty then, and as long as no checkpoint finishes it is dirty still.
    /// Work and answer are bounded by about twice the count, and by the longest list of a slot.
    pub fn finish_scan(&self, scan: ScanRows) -> Result<(u64, Vec<Key>), Retry> {
        if scan.epoch != self.epoch() {
            return Err(Retry);
        }
        let (dirty, until) = self.dirty_keys(scan.from, scan.until, scan.count);
        let mut found: BTreeSet<(Place, Key)> = dirty
            .into_iter()
            .map(|(place, index)| (place, index as usize))
            .filter(|&(_, index)| self.entries[index].is_live())
            .map(|(place, index)| (place, self.copy_key(index)))
            .collect();
        for (place, key, live) in scan.rows {
            let live = match self.entries.get(key.as_ref()) {
                Some(entry) => entry.is_live(),
                None => live && !self.complete,
            };
            if live && place < until {
                found.insert((place, key));
            }
        }
        let cursor = if until >= scan.end { 0 } else { until.0 };
        Ok((cursor, found.into_iter().map(|(_, key)| key).collect()))
    }

    fn copy_key(&self, index: usize) -> Key {
        let (key, _) = self.entries.get_index(index).expect("the index was just found");
        Key(bytes::Bytes::copy_from_slice(key))
    }

    /// Dirty keys from one place on, about `most` (twice that, and some) and not beyond `until`, and up to which place
    /// they are all there.
    fn dirty_keys(&self, from: Place, until: Place, most: usize) -> (Vec<(Place, u32)>, Place) {
        let mut found = Vec::new();
        let mut slot = from.slot();
        loop {
            let next = [self.dirty.next_slot(slot), self.taking.next_slot(slot)];
            let Some(next) = next.into_iter().flatten().min() else {
                return (found, until);
            };
            if Place::first_of(next) >= until {
                return (found, until);
            }
            let from = from.max(Place::first_of(next));
            let mut until = until;
            let mut page = Vec::new();
            for set in [&self.dirty, &self.taking] {
                let (more, rest) = set.page(next, from, most, |index| place_at(&self.entries, index));
                page.extend(more);
                until = rest.map_or(until, |rest| rest.min(until));
            }
            page.retain(|&(place, _)| place < until);
            found.extend(page);
            // Either this slot was cut short, or it is enough: then the scan goes on at the next slot.
            let behind = Place::first_of(next + 1);
            if until < behind {
                return (found, until);
            }
            if found.len() >= most {
                return (found, until.min(behind));
            }
            slot = next + 1;
        }
    }
}
