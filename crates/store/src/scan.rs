use crate::place::Area;
use crate::store::{after, place_at, read_row};
use crate::{Epoch, Place, Retry, Store, StoreError, Table};
use std::collections::BTreeSet;
use std::ops::Range;
use turnbuckle_core::{Hlc, Key, Meta, Shown};

/// The rows that a scan found in the table: the half of a scan that is done without the store's lock.
#[derive(Debug, Clone)]
pub struct ScanRows {
    /// In the order of places; the flag says whether the key has a value at the time of the scan.
    rows: Vec<(Place, Key, bool)>,
    /// Where this part of the scan began, and the end of the slots.
    from: Place,
    end: Place,
    /// The first place that was not read.
    until: Place,
    count: usize,
    epoch: Epoch,
    now: Hlc,
}

/// The most keys that a client can ask for at once: the lock is held while they are looked at.
const MAX_KEYS: usize = 4096;

/// The most bytes of a table that are read at a time.
const PAGE_BYTES: usize = 1 << 20;

/// Reads the next rows of a scan of some hash slots from the table: about `count` (4096 at most), where all rows with
/// one place stay together. The cursor is 0 at first, then what [`Store::finish_scan`] returned. `epoch` is
/// [`Store::epoch`] from before the call. Values that have expired at `now` are passed over.
pub fn scan_rows<M: Meta>(
    table: &dyn Table,
    slots: Range<u16>,
    cursor: u64,
    count: usize,
    epoch: Epoch,
    now: Hlc,
) -> Result<ScanRows, StoreError> {
    let end = Place::first_of(slots.end);
    let from = Place(cursor).max(Place::first_of(slots.start)).min(end);
    let mut found = ScanRows {
        rows: Vec::new(),
        from,
        end,
        until: end,
        count: count.clamp(1, MAX_KEYS),
        epoch,
        now,
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
            let live = Shown::all(Some(&row.chain)).has_value(now);
            found.rows.push((row.place, row.key.compact(), live));
        }
    }
}

impl<M: Meta> Store<M> {
    /// The other half of a scan: corrects what was read from the table by what memory has. Returns the cursor to go on
    /// with (0: the slots are finished) and the keys that have a value.
    ///
    /// A key that has a value from the first call of a scan to the last is returned at least once. The reason: it is in
    /// the table when the table is read, or it is dirty then. As long as no checkpoint finishes, it stays dirty. Work
    /// and answer are bounded by about twice the count, and by the longest list of a slot.
    pub fn finish_scan(&self, scan: ScanRows) -> Result<(u64, Vec<Key>), Retry> {
        if scan.epoch != self.epoch() {
            return Err(Retry);
        }
        let (dirty, until) = self.dirty_keys(scan.from, scan.until, scan.count);
        let mut found: BTreeSet<(Place, Key)> = dirty
            .into_iter()
            .map(|(place, index)| (place, index as usize))
            .filter(|&(_, index)| self.entries[index].is_live(scan.now))
            .map(|(place, index)| (place, self.copy_key(index)))
            .collect();
        for (place, key, live) in scan.rows {
            let live = match self.entries.get(key.as_ref()) {
                Some(entry) => entry.is_live(scan.now),
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

    /// About `max` dirty keys from one place on (at most about twice that), not beyond `until`. Also returns the place
    /// up to which all of them are included.
    fn dirty_keys(&self, from: Place, until: Place, max: usize) -> (Vec<(Place, u32)>, Place) {
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
                let (more, rest) = set.page(next, from, max, |index| place_at(&self.entries, index));
                page.extend(more);
                until = rest.map_or(until, |rest| rest.min(until));
            }
            page.retain(|&(place, _)| place < until);
            found.extend(page);
            // If this slot was cut short, its keys are complete only up to there. If there are enough keys, the scan
            // goes on at the next slot.
            let behind = Place::first_of(next + 1);
            if until < behind {
                return (found, until);
            }
            if found.len() >= max {
                return (found, until.min(behind));
            }
            slot = next + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, Fetched, MemoryEngine, Options};
    use bytes::Bytes;
    use turnbuckle_core::{HASH_SLOTS, Hlc, ReplicaId, Version, VersionId, Versions};

    fn store() -> Store<()> {
        let table = MemoryEngine::new().open_table("t").expect("memory works");
        let options = Options {
            memory_limit_bytes: 1 << 20,
            history: false,
            short_lived: crate::SHORT_LIVED,
            hash_seed: 1,
        };
        Store::open(table, options).expect("an empty table opens").0
    }

    fn put(store: &mut Store<()>, key: &Key, at: u64, value: &'static str) {
        let id = VersionId {
            at: Hlc(at),
            replica: ReplicaId(0),
        };
        let value = (!value.is_empty()).then(|| Bytes::from_static(value.as_bytes()));
        let content = value.into();
        store.put(
            key,
            &Version {
                id,
                content,
                meta: (),
            },
        );
    }

    fn checkpoint(store: &mut Store<()>) {
        let table = store.table();
        store.begin_checkpoint(Bytes::new());
        while let Some(chunk) = store.next_chunk(10, |_| true) {
            chunk.write(&*table).expect("memory works");
        }
        drop(store.finish_checkpoint());
    }

    fn scan(store: &Store<()>, cursor: u64, count: usize) -> ScanRows {
        scan_rows::<()>(
            &*store.table(),
            0..HASH_SLOTS,
            cursor,
            count,
            store.epoch(),
            Hlc::LATEST,
        )
        .expect("memory works")
    }

    /// Planted: a scan that ignores the checkpoint. It shows what the epoch is for.
    #[test]
    fn without_the_epoch_a_checkpoint_in_between_would_hide_a_key() {
        let mut store = store();
        let key = Key::from("key");
        put(&mut store, &key, 1, "value");
        let mut rows = scan(&store, 0, 10);
        checkpoint(&mut store);
        assert_eq!(store.finish_scan(rows.clone()), Err(Retry));
        rows.epoch = store.epoch();
        assert_eq!(
            store.finish_scan(rows),
            Ok((0, vec![])),
            "the bug is not there to be seen"
        );
        assert_eq!(store.finish_scan(scan(&store, 0, 10)), Ok((0, vec![key])));
    }

    #[test]
    fn keys_of_one_slot_come_in_pages_before_and_after_a_checkpoint() {
        let mut store = store();
        let keys = 3000;
        for n in 0..keys {
            put(&mut store, &Key::from(format!("{{tag}}{n}").as_str()), 1, "value");
        }
        for _ in 0..2 {
            let mut cursor = 0;
            let mut found = BTreeSet::new();
            let mut calls = 0;
            loop {
                let (next, page) = store
                    .finish_scan(scan(&store, cursor, 100))
                    .expect("no checkpoint");
                assert!(page.len() <= 210, "a page of {} keys", page.len());
                found.extend(page);
                calls += 1;
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(found.len(), keys);
            assert!(calls <= keys / 100 + 1, "{calls} calls");
            checkpoint(&mut store);
        }
    }

    #[test]
    fn a_scan_of_some_slots_lists_only_those_and_any_cursor_is_taken() {
        let mut store = store();
        for n in 0..500 {
            put(&mut store, &Key::from(format!("{n}").as_str()), 1, "value");
            if n == 250 {
                checkpoint(&mut store);
            }
        }
        let slots = 3000..9000;
        let table = store.table();
        let rows = |cursor| {
            let rows = scan_rows::<()>(&*table, slots.clone(), cursor, 1000, store.epoch(), Hlc::LATEST);
            store
                .finish_scan(rows.expect("memory works"))
                .expect("no checkpoint")
        };
        let (cursor, keys) = rows(0);
        assert_eq!(cursor, 0);
        assert!(keys.iter().all(|key| slots.contains(&key.slot())));
        let expected = (0..500).map(|n| Key::from(format!("{n}").as_str()));
        assert_eq!(
            keys.len(),
            expected.filter(|key| slots.contains(&key.slot())).count()
        );
        assert_eq!(rows(u64::MAX), (0, vec![]));
        assert_eq!(rows(Place::first_of(9000).0), (0, vec![]));
    }

    /// Planted: a read that was overtaken by a checkpoint and an eviction. It shows what the epoch is for.
    #[test]
    fn without_the_epoch_an_old_read_would_undo_a_write() {
        let mut store = store();
        let key = Key::from("key");
        put(&mut store, &key, 1, "old");
        checkpoint(&mut store);
        let table = store.table();
        let fetched = Store::<()>::fetch(&*table, &key, store.epoch()).expect("memory works");
        put(&mut store, &key, 2, "new");
        assert_eq!(
            store.admit(fetched.clone()),
            Ok(()),
            "what is resident is not touched"
        );
        checkpoint(&mut store);
        store.options.memory_limit_bytes = 0;
        assert_eq!(store.evict(10), 1);
        assert_eq!(store.admit(fetched.clone()), Err(Retry));
        let newest = |store: &Store<()>| store.chain(key.as_ref()).map(|chain| chain.newest().id.at);
        let planted = Fetched {
            epoch: store.epoch(),
            ..fetched
        };
        assert_eq!(store.admit(planted), Ok(()));
        assert_eq!(newest(&store), Some(Hlc(1)), "the bug is not there to be seen");
        store.evict(10);
        store.evict(10);
        store.load(&key).expect("memory works");
        assert_eq!(newest(&store), Some(Hlc(2)));
    }
}
