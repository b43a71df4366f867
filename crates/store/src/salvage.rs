//! Salvages the rows of a damaged table that can still be read.
//!
//! One damaged byte makes more than its row unreadable. An engine with files checks whole blocks of rows, and reads a
//! block again whenever it merges files. If that fails, it takes no more writes, and it fails again after each restart.
//! So a damaged table is not patched. Everything that can be read of it is written into a new one, with a mark that
//! rows are missing. The missing rows come from the peers.
//!
//! ```text
//!   damaged table    m  r r r #### r r r r # r  t t      m: meta of the checkpoint, r: rows, t: tombstones by age
//!   new table        m  r r r      r r r r   r  t t  d   d: rows are missing
//! ```
//!
//! **An old state is never taken for the newest one.** Files of an engine hold older states of a row behind the newest
//! one. A reader that steps over an unreadable block might find the older state in another file. So stepping over is
//! used only to list rows. Each row is then read by its key, and an engine that cannot read the newest state of a row
//! returns an error.
//!
//! **Without the meta no row is taken.** The meta says what the rows cover. Rows alone would be an old copy of unknown
//! age.
use crate::beside::rows_beside;
use crate::checkpoint::tombstone_line;
use crate::place::Area;
use crate::row::take_row;
use crate::store::after;
use crate::tombstone::{LineId, SHORT_LIVED};
use crate::{EngineError, Place, Snapshot, Table, TableWrite};
use bytes::{BufMut, Bytes, BytesMut};
use turnbuckle_core::{BadFrame, Hlc, Meta, Wire};

/// The most rows and bytes that are read and written at a time.
const PAGE_ROWS: usize = 1024;
const PAGE_BYTES: usize = 4 << 20;

/// The result for one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Salvage {
    /// The number of keys whose rows could be read.
    pub rows: u64,
    /// The number of places at which something could not be read.
    pub gaps: u64,
}

/// Whether everything in a table can be read.
///
/// # Errors
/// If the engine fails for a reason other than damage.
pub fn is_damaged(table: &dyn Table) -> Result<bool, EngineError> {
    let snapshot = table.snapshot()?;
    let mut pages = Pages::new(&*snapshot, &[0], &[u8::MAX]).stopping_at_gaps();
    loop {
        match pages.next() {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(false),
            Err(error) if error.is_damage() => return Ok(true),
            Err(error) => return Err(error),
        }
    }
}

/// Whether rows of a table went missing when it was salvaged, and the mark of that is still there.
pub fn lacks_rows(table: &dyn Table) -> Result<bool, EngineError> {
    Ok(table.get(&Area::Damaged.start())?.is_some())
}

/// Removes that mark: the rows are back, or their absence is recorded elsewhere.
pub fn forget_lack(table: &dyn Table) -> Result<(), EngineError> {
    table.apply(vec![TableWrite::delete(Area::Damaged.start())])
}

/// Writes into an empty table everything that can be read of another one.
///
/// # Errors
/// If the engine fails, or if the table is damaged and has no meta: it belongs to no replica, so no peer could restore
/// the missing rows.
pub fn salvage_table(from: &dyn Table, to: &dyn Table) -> Result<Salvage, EngineError> {
    let snapshot = from.snapshot()?;
    let meta = match snapshot.get(&Area::Meta.start()) {
        Ok(None) => return copy_all(&*snapshot, to),
        Ok(Some(meta)) => meta,
        Err(error) if error.is_damage() => {
            to.apply(vec![TableWrite::put(Area::Damaged.start(), Bytes::new())])?;
            return Ok(Salvage { rows: 0, gaps: 1 });
        }
        Err(error) => return Err(error),
    };
    let beside = match rows_beside(&*snapshot) {
        Ok(beside) => beside,
        // A replica with half a journal would promise what it does not have.
        Err(error) if error.is_damage() => {
            to.apply(vec![TableWrite::put(Area::Damaged.start(), Bytes::new())])?;
            return Ok(Salvage { rows: 0, gaps: 1 });
        }
        Err(error) => return Err(error),
    };
    let mut salvage = Salvage::default();
    let mut arena = BytesMut::new();
    let mut pages = Pages::new(&*snapshot, &Area::Rows.start(), &Area::Rows.end());
    while let Some(page) = pages.next()? {
        let mut writes = Vec::with_capacity(page.len());
        for (key, _) in page {
            let value = match snapshot.get(&key) {
                Ok(Some(value)) => value,
                // A row that was removed, of which only older states could be listed.
                Ok(None) => continue,
                Err(error) if error.is_damage() => {
                    salvage.gaps += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Ok(row) = take_row::<AnyMeta>(&key.slice(1..), value.clone(), false) else {
                salvage.gaps += 1;
                continue;
            };
            salvage.rows += 1;
            if let Some(line) = LineId::of(&row.chain, SHORT_LIVED) {
                writes.push(tombstone_line(&mut arena, line, row.key.as_ref()));
            }
            writes.push(TableWrite::put(key, value));
        }
        to.apply(writes)?;
    }
    salvage.gaps += pages.gaps;
    // All rows of keys may be readable although something else is not.
    if salvage.gaps == 0 && is_damaged(from)? {
        salvage.gaps = 1;
    }
    for rows in beside.chunks(PAGE_ROWS) {
        let put = |(key, value): &(Bytes, Bytes)| TableWrite::put(key.clone(), value.clone());
        to.apply(rows.iter().map(put).collect())?;
    }
    let mut last = vec![TableWrite::put(Area::Meta.start(), meta)];
    if salvage.gaps > 0 {
        last.push(TableWrite::put(Area::Damaged.start(), Bytes::new()));
    }
    to.apply(last)?;
    Ok(salvage)
}

fn copy_all(snapshot: &dyn Snapshot, to: &dyn Table) -> Result<Salvage, EngineError> {
    let mut rows = 0;
    let mut pages = Pages::new(snapshot, &[0], &[u8::MAX]).stopping_at_gaps();
    while let Some(page) = pages.next()? {
        rows += page.len() as u64;
        to.apply(
            page.into_iter()
                .map(|(key, value)| TableWrite::put(key, value))
                .collect(),
        )?;
    }
    Ok(Salvage { rows, gaps: 0 })
}

/// The rows of a range in their order, as far as they can be read.
pub(crate) struct Pages<'a> {
    snapshot: &'a dyn Snapshot,
    from: Bytes,
    until: Bytes,
    max_rows: usize,
    steps_over: bool,
    gaps: u64,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(snapshot: &'a dyn Snapshot, from: &[u8], until: &[u8]) -> Pages<'a> {
        Pages {
            snapshot,
            from: Bytes::copy_from_slice(from),
            until: Bytes::copy_from_slice(until),
            max_rows: PAGE_ROWS,
            steps_over: true,
            gaps: 0,
        }
    }

    /// Makes damage an error.
    pub(crate) fn stopping_at_gaps(self) -> Pages<'a> {
        Pages {
            steps_over: false,
            ..self
        }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Vec<(Bytes, Bytes)>>, EngineError> {
        loop {
            match self.read(&self.from, self.max_rows) {
                Ok(rows) => {
                    let Some((last, _)) = rows.last() else {
                        return Ok(None);
                    };
                    self.from = after(last);
                    self.max_rows = (self.max_rows * 2).min(PAGE_ROWS);
                    return Ok(Some(rows));
                }
                Err(error) if !error.is_damage() || !self.steps_over => return Err(error),
                // The damage may be further on: the rows before it can be read.
                Err(_) if self.max_rows > 1 => self.max_rows /= 2,
                Err(_) => {
                    self.gaps += 1;
                    match self.behind_gap()? {
                        Some(from) => self.from = from,
                        None => return Ok(None),
                    }
                }
            }
        }
    }

    fn read(&self, from: &[u8], max_rows: usize) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
        self.snapshot.range(from, &self.until, max_rows, PAGE_BYTES)
    }

    /// The next place from which on a row can be read. It is searched in steps that double, then by halving the last
    /// step. Rows between two gaps that are near each other may be passed over; they come from the peers, too.
    fn behind_gap(&self) -> Result<Option<Bytes>, EngineError> {
        let place = self
            .from
            .get(1..9)
            .and_then(|place| <[u8; 8]>::try_from(place).ok());
        let mut low = place.map_or(0, u64::from_be_bytes);
        let mut high = low;
        let mut step = 1_u64;
        loop {
            let Some(next) = high.checked_add(step) else {
                return Ok(None);
            };
            (low, high, step) = (high, next, step.saturating_mul(2));
            if self.is_readable(high)? {
                break;
            }
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.is_readable(middle)? {
                true => high = middle,
                false => low = middle,
            }
        }
        Ok(Some(Area::Rows.from(Place(high))))
    }

    fn is_readable(&self, place: u64) -> Result<bool, EngineError> {
        match self.read(&Area::Rows.from(Place(place)), 1) {
            Ok(_) => Ok(true),
            Err(error) if error.is_damage() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The metadata of any protocol.
#[derive(Debug, Clone, PartialEq)]
struct AnyMeta(Bytes);

impl Meta for AnyMeta {}

impl Wire for AnyMeta {
    fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&self.0);
    }

    fn decode(frame: Bytes) -> Result<AnyMeta, BadFrame> {
        Ok(AnyMeta(frame))
    }

    fn newest(&self) -> Hlc {
        Hlc::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Beside, Engine, MemoryEngine, Options, Store, rows, write_entry, write_named};
    use std::sync::Arc;
    use turnbuckle_core::{Key, ReplicaId, Version, VersionId, Versions};

    const OPTIONS: Options = Options {
        memory_limit_bytes: 1 << 20,
        history: true,
        short_lived: SHORT_LIVED,
        hash_seed: 1,
    };

    /// A table with this number of keys, every tenth of them deleted, after a checkpoint.
    fn table(engine: &MemoryEngine, keys: u64) -> Arc<dyn Table> {
        let table = engine.open_table("t").expect("memory works");
        let (mut store, _) = Store::<()>::open(Arc::clone(&table), OPTIONS).expect("it is empty");
        for number in 0..keys {
            let id = VersionId {
                at: Hlc(number + 1),
                replica: ReplicaId(1),
            };
            let content = (number % 10 != 0).then(|| Bytes::from("value")).into();
            store.put(
                &key(number),
                &Version {
                    id,
                    content,
                    meta: (),
                },
            );
        }
        store.begin_checkpoint("meta".into());
        while let Some(chunk) = store.next_chunk(64, |_| true) {
            chunk.write(&*table).expect("memory works");
        }
        drop(store.finish_checkpoint());
        table
    }

    fn key(number: u64) -> Key {
        Key::from(format!("key{number}").as_str())
    }

    fn salvaged(from: &dyn Table) -> (Result<Salvage, EngineError>, Arc<dyn Table>) {
        let to = MemoryEngine::new().open_table("t").expect("memory works");
        (salvage_table(from, &*to), to)
    }

    #[test]
    fn all_but_what_is_damaged_is_there_and_it_is_known_that_something_is_missing() {
        let engine = MemoryEngine::new();
        let table = table(&engine, 300);
        let all = rows::<()>(&*table.snapshot().expect("memory works"), None, 1000, 1 << 20);
        let all: Vec<Key> = all
            .expect("nothing is damaged")
            .rows
            .into_iter()
            .map(|row| row.0)
            .collect();
        let gone = [0, 100, 101, 102, 299];
        for place in gone {
            assert_eq!(engine.damage_key(all[place].as_ref()), 1);
        }
        assert!(is_damaged(&*table).expect("memory works"));
        let (salvage, to) = salvaged(&*table);
        let salvage = salvage.expect("it is a replica's");
        assert_eq!(salvage, Salvage { rows: 295, gaps: 3 });
        assert!(lacks_rows(&*to).expect("memory works"));
        assert!(!is_damaged(&*to).expect("memory works"));
        let (store, meta) = Store::<()>::open(Arc::clone(&to), OPTIONS).expect("it is whole");
        assert_eq!(meta, Some("meta".into()));
        let live = (0..300).filter(|number| number % 10 != 0);
        let live = live.filter(|&number| !gone.iter().any(|&place| all[place] == key(number)));
        assert_eq!(store.live_keys(), live.count() as u64);
        for (place, key) in all.iter().enumerate() {
            assert_eq!(
                store.chain(key.as_ref()).is_none(),
                gone.contains(&place),
                "{key}"
            );
        }
        let lines = |table: &dyn Table| {
            let snapshot = table.snapshot().expect("memory works");
            let rows = snapshot.range(&Area::Tombstones.start(), &Area::Tombstones.end(), 999, 1 << 20);
            rows.expect("nothing is damaged").len()
        };
        let deleted = gone
            .iter()
            .filter(|&&place| (0..30).any(|n| all[place] == key(n * 10)));
        assert_eq!(lines(&*to), 30 - deleted.count());
        forget_lack(&*to).expect("memory works");
        assert!(!lacks_rows(&*to).expect("memory works"));
    }

    #[test]
    fn what_is_whole_stays_as_it_was() {
        let engine = MemoryEngine::new();
        let table = table(&engine, 50);
        assert!(!is_damaged(&*table).expect("memory works"));
        let (salvage, to) = salvaged(&*table);
        assert_eq!(salvage.expect("it is whole"), Salvage { rows: 50, gaps: 0 });
        assert!(!lacks_rows(&*to).expect("memory works"));
        let all = |table: &dyn Table| {
            let snapshot = table.snapshot().expect("memory works");
            let mut rows = snapshot.range(&[0], &[255], 9999, 1 << 20).expect("memory works");
            // The counts are made anew when the store is opened.
            rows.retain(|(key, _)| *key != Area::Count.start());
            rows
        };
        assert_eq!(all(&*table), all(&*to));
    }

    #[test]
    fn a_journal_comes_along_whole_or_nothing_does() {
        for damaged in [false, true] {
            let engine = MemoryEngine::new();
            let table = table(&engine, 30);
            let writes = (1..2000).map(|n| write_entry(n, Some(Bytes::from("entry"))));
            let writes = writes.chain([write_named("vote", Some(Bytes::from("7")))]);
            table.apply(writes.collect()).expect("memory works");
            let before = Beside::read(&*table).expect("it is whole");
            if damaged {
                let mut index = vec![Area::Journal as u8];
                index.extend(1234_u64.to_be_bytes());
                assert_eq!(engine.damage_row(&index), 1);
            }
            let (salvage, to) = salvaged(&*table);
            let (expected, kept) = match damaged {
                true => (Salvage { rows: 0, gaps: 1 }, Beside::default()),
                false => (Salvage { rows: 30, gaps: 0 }, before),
            };
            assert_eq!(salvage.expect("it is a replica's"), expected);
            assert_eq!(lacks_rows(&*to).expect("memory works"), damaged);
            assert_eq!(Beside::read(&*to).expect("it is whole"), kept);
        }
    }

    #[test]
    fn a_damaged_table_that_is_no_replicas_is_an_error() {
        let engine = MemoryEngine::new();
        let table = table(&engine, 5);
        table
            .apply(vec![TableWrite::delete(Area::Meta.start())])
            .expect("memory works");
        engine.damage_key(key(3).as_ref());
        assert!(salvaged(&*table).0.is_err_and(|error| error.is_damage()));
    }
}
