use crate::census::Kind;
use crate::checkpoint::tombstone_line;
use crate::entry::Entry;
use crate::place::{Area, LONGEST_PLAIN_KEY_BYTES, split_row_key};
use crate::store::after;
use crate::{EngineError, Store, StoreError, Table, TableWrite};
use bytes::{Buf, Bytes, BytesMut};
use turnbuckle_core::{BadFrame, Chain, Gone, Hlc, Key, Meta, Micros, ReplicaId};

/// Some lines of the table's index of tombstones, i.e. deletes and values that expire, oldest first: the half of a collection that is done without the store's
/// lock.
#[derive(Debug, Clone)]
pub struct TombstonePage {
    lines: Vec<Line>,
    /// Everything that is due before this time may be forgotten.
    below: Hlc,
    next: Option<TombstoneCursor>,
}

/// Where the next page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TombstoneCursor(Bytes);

/// Lines of the index whose tombstones are gone already, and lines that move on to a later time.
#[derive(Debug, Default)]
#[must_use = "lines that are not erased are read again and again"]
pub struct StaleTombstones(Vec<TableWrite>);

/// What [`Store::collect_tombstones`] has done.
#[derive(Debug)]
#[must_use = "lines that are not erased are read again and again"]
pub struct Collected {
    /// The number of tombstones that were removed.
    pub tombstones: u64,
    /// How many of them were values that had expired.
    pub expired: u64,
    /// What is to be erased from the index.
    pub stale: StaleTombstones,
}

#[derive(Debug, Clone)]
struct Line {
    id: LineId,
    key: Key,
    index_key: Bytes,
}

/// What a line of the index says beside its key: when the line is due, and the replica that stamped the version.
///
/// The line of a delete is due when the delete was stamped. The line of a value that expires must not stay until then: the key may be written or deleted long before, and
/// nothing knows of its line then. So its line is due several times ([`STEPS`]): first when a 64th of the time has passed for which the value is shown, then
/// each time after twice as long. A line that is due and belongs to the key's newest version moves on to the next time, and any other is erased. So a stale line
/// stays for about as long as its version was the newest one, or for a 64th of the time that it would have been shown.
///
/// Each time is rounded up, by at most a sixteenth of the span. So a key that is written again and again has some 20 lines of each replica that writes it, and
/// not one for each write.
///
/// A line that moves on costs two writes into the engine each time. So no line is due earlier than [`Options::short_lived`](crate::Options::short_lived) after the stamp, except the last one:
/// a value that is shown for less than twice that has one line only. Lines are recognised whatever the option was when they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineId {
    pub at: Hlc,
    pub replica: ReplicaId,
}

/// How often the line of a value that expires moves on.
const STEPS: u32 = 6;

/// A value that is shown for less than twice this has one line in the index of tombstones, which stays until the value has expired. Stale lines of some minutes cost less than
/// lines that move on.
pub const SHORT_LIVED: Micros = Micros(300_000_000);

impl LineId {
    /// The first line of a key, if it may be forgotten at some time.
    pub(crate) fn of<M: Meta>(chain: &Chain<M>, short_lived: Micros) -> Option<LineId> {
        let gone = chain.gone()?;
        let shown = gone.at.wall().0.saturating_sub(gone.by.at.wall().0);
        let left = (0..=STEPS).rev().find(|left| shown >> left >= short_lived.0);
        Some(LineId::at_step(gone, left.unwrap_or(0)))
    }

    /// The line of a key with `left` more steps to go. At the last one, the key may be forgotten.
    fn at_step(gone: Gone, left: u32) -> LineId {
        let span = gone.at.0.saturating_sub(gone.by.at.0) >> left;
        LineId {
            at: gone.by.at.about_after(span),
            replica: gone.by.replica,
        }
    }

    /// How many more steps this line of a key has to go, if it is one.
    fn steps_left(self, gone: Gone) -> Option<u32> {
        (0..=STEPS).find(|&left| LineId::at_step(gone, left) == self)
    }
}

impl TombstonePage {
    /// Reads up to `max` lines of the index that are older than `below`, from the beginning or from where the page
    /// before ended.
    pub fn read(
        table: &dyn Table,
        below: Hlc,
        from: Option<&TombstoneCursor>,
        max: usize,
    ) -> Result<TombstonePage, StoreError> {
        let from = from.map_or_else(|| Area::Tombstones.start(), |cursor| cursor.0.clone());
        let mut until = Area::Tombstones.start().to_vec();
        until.extend_from_slice(&below.0.to_be_bytes());
        let rows = table.snapshot()?.range(&from, &until, max, usize::MAX)?;
        let next = rows.last().map(|(last, _)| TombstoneCursor(after(last)));
        let lines = rows.into_iter().map(|(key, value)| {
            let line = read_line(&key, value);
            line.map_err(|source| StoreError::bad_row(&key, source))
        });
        Ok(TombstonePage {
            lines: lines.collect::<Result<_, _>>()?,
            below,
            next,
        })
    }

    /// When the first line of the page is due, if there is one.
    pub fn first(&self) -> Option<Hlc> {
        self.lines.first().map(|line| line.id.at)
    }

    /// The keys to make resident before [`Store::collect_tombstones`]. It passes over keys that are not resident.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.lines.iter().map(|line| &line.key)
    }

    /// Each tombstone in a page of its own, with its key: where memory is scarce, not all keys of a page are resident
    /// at the same time.
    pub fn each(&self) -> impl Iterator<Item = (&Key, TombstonePage)> {
        self.lines.iter().map(|line| {
            let (lines, below, next) = (vec![line.clone()], self.below, None);
            (&line.key, TombstonePage { lines, below, next })
        })
    }

    /// The page in parts of `max` tombstones at most.
    pub fn parts(&self, max: usize) -> impl Iterator<Item = TombstonePage> {
        self.lines.chunks(max).map(|lines| TombstonePage {
            lines: lines.to_vec(),
            below: self.below,
            next: None,
        })
    }

    /// Where the next page begins, or `None` if there are no more lines.
    pub fn next(&self) -> Option<&TombstoneCursor> {
        self.next.as_ref()
    }
}

fn read_line(line: &Bytes, value: Bytes) -> Result<Line, BadFrame> {
    let mut rest = line.clone();
    if rest.len() < 1 + 8 + 2 {
        return Err(BadFrame::new(
            "a tombstone's line",
            format!("{} bytes", rest.len()),
        ));
    }
    rest.advance(1);
    let id = LineId {
        at: Hlc(rest.get_u64()),
        replica: ReplicaId(rest.get_u16()),
    };
    let key = match split_row_key(&rest) {
        Some((_, Some(key))) => key,
        Some((_, None)) if value.len() > LONGEST_PLAIN_KEY_BYTES => Key(value),
        _ => {
            return Err(BadFrame::new(
                "a row's key in a tombstone's line",
                "something else",
            ));
        }
    };
    Ok(Line {
        id,
        key: key.compact(),
        index_key: Bytes::copy_from_slice(line),
    })
}

impl StaleTombstones {
    /// Whether there is nothing to erase.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds these lines.
    pub fn add(&mut self, others: StaleTombstones) {
        self.0.extend(others.0);
    }

    /// Removes the lines. Only the task that makes the checkpoints may call it, and only between two of them: a line
    /// must not be removed after it was written again.
    pub fn erase(self, table: &dyn Table) -> Result<(), EngineError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            table.apply(self.0)
        }
    }
}

impl<M: Meta> Store<M> {
    /// Removes those deletes and expired values of a page that are still their keys' newest versions, together with everything below
    /// them. A key with siblings of which one is a value stays as it is. The next checkpoint removes their rows and lines.
    ///
    /// The caller must know that they are not needed: no peer may still send what they delete, and no read asks for a
    /// time before them. Keys with shares stay until everything up to their end is `closed` at every site ([`turnbuckle_core::Protocol::closed_everywhere`]).
    ///
    /// Their rows are removed with the next checkpoint's last chunk, in one batch with the meta. So collect some
    /// thousands per checkpoint, not millions.
    ///
    /// # Panics
    /// If a checkpoint is under way. Its meta does not cover what arrived since it began, so a replay could bring back
    /// an older version of a key whose tombstone was removed with it.
    pub fn collect_tombstones(&mut self, page: &TombstonePage, closed: Hlc) -> Collected {
        assert!(
            !self.is_checkpointing(),
            "tombstones are collected between checkpoints, not during one"
        );
        let (mut tombstones, mut expired) = (0, 0);
        let mut stale = Vec::new();
        for line in &page.lines {
            match self.judge(line, page.below, closed) {
                Verdict::Skip => {}
                Verdict::Stale => stale.push(TableWrite::delete(line.index_key.clone())),
                Verdict::MoveTo(next) => {
                    let mut arena = BytesMut::new();
                    stale.push(TableWrite::delete(line.index_key.clone()));
                    stale.push(tombstone_line(&mut arena, next, line.key.as_ref()));
                }
                Verdict::Bury(index) => {
                    let kind = self.entries[index].kind();
                    tombstones += u64::from(kind != Kind::Nothing);
                    expired += u64::from(kind == Kind::Expiring);
                    self.change(index, |entry| entry.set_chain(None, Some(line.id)));
                }
            }
        }
        Collected {
            tombstones,
            expired,
            stale: StaleTombstones(stale),
        }
    }

    fn judge(&self, line: &Line, below: Hlc, closed: Hlc) -> Verdict {
        let Some(index) = self.entries.get_index_of(line.key.as_ref()) else {
            return if self.complete {
                Verdict::Stale
            } else {
                Verdict::Skip
            };
        };
        let entry = &self.entries[index];
        match entry {
            Entry::Held { chain, .. }
                if entry.kind().has_line()
                    && let Some(gone) = chain.gone()
                    && let Some(left) = line.id.steps_left(gone) =>
            {
                let mut later = (0..left).rev().map(|left| LineId::at_step(gone, left));
                match later.find(|later| later.at >= below) {
                    None if chain.concerns_shares() && gone.at > closed => Verdict::Skip,
                    None => Verdict::Bury(index),
                    Some(_) if self.is_dirty(entry) => Verdict::Skip,
                    Some(later) => Verdict::MoveTo(later),
                }
            }
            // The row is to be removed by the next checkpoint, but without its line in the index.
            Entry::Absent { was, .. } if self.is_dirty(entry) && was.is_none() => Verdict::Bury(index),
            // The version that replaced it may be lost with the tail of a log. The line is removed once that version is
            // in the table.
            _ if self.is_dirty(entry) => Verdict::Skip,
            _ => Verdict::Stale,
        }
    }
}

enum Verdict {
    Skip,
    Stale,
    /// The version has not expired yet: its line is due again at this later time.
    MoveTo(LineId),
    Bury(usize),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, MemoryEngine, Options};
    use std::sync::Arc;
    use turnbuckle_core::{
        Change, Compute, Content, Expiry, Micros, Placed, PutOptions, Retimes, Shown, Version, VersionId,
        Versions,
    };

    fn version(at: u64, value: Option<&'static str>) -> Version<()> {
        let id = VersionId {
            at: Hlc(at),
            replica: ReplicaId(0),
        };
        Version {
            id,
            content: value.map(|value| Bytes::from_static(value.as_bytes())).into(),
            meta: (),
        }
    }

    /// A version that is shown for `shown` from its stamp on, in microseconds.
    fn expiring(at: u64, shown: u64) -> Version<()> {
        let until = Some(Micros(at + shown));
        Version {
            content: Content::new(Bytes::from_static(b"v"), until),
            ..version(Hlc::from_wall(Micros(at)).0, None)
        }
    }

    #[test]
    fn a_line_is_due_when_its_value_has_expired_and_not_much_later() {
        let lines = |shown: u64| {
            (0..1000).map(move |at| {
                let chain = Chain::new(expiring(at * 1_000_003, shown));
                let gone = chain.gone().expect("it expires");
                let steps: Vec<LineId> = (0..=STEPS).map(|left| LineId::at_step(gone, left)).collect();
                assert!(steps.windows(2).all(|pair| pair[0].at >= pair[1].at), "{steps:?}");
                let line = steps[0];
                assert!(line.at >= gone.at, "a line is due before its value has expired");
                assert!((line.at.0 - gone.at.0) / 4096 <= shown / 16);
                assert_eq!(line.steps_left(gone), Some(0));
                LineId::of(&chain, Micros(0)).expect("it expires").at
            })
        };
        for shown in [0, 1, 1_000, 60_000_000, 3_600_000_000] {
            assert_eq!(lines(shown).count(), 1000);
        }
        // Written again every second for as long as the value is shown.
        let until = Hlc::from_wall(Micros(1000 * 1_000_003));
        let span = 64 * 1000 * 1_000_003;
        let different: std::collections::BTreeSet<Hlc> = lines(span).filter(|line| *line <= until).collect();
        assert!(different.len() <= 33, "{} lines", different.len());
        let never = Content::new(Bytes::new(), Some(Micros(u64::MAX)));
        let never = Version {
            content: never,
            ..version(1, None)
        };
        let gone = never.gone().expect("it expires at the end of time");
        let line = LineId::at_step(gone, 0);
        assert!(line.at > Hlc::LATEST);
    }

    /// Writes everything down, and then handles all lines that are due, until none is.
    fn collect(store: &mut Store<()>, below: Hlc) {
        let table = store.table();
        store.begin_checkpoint(Bytes::new());
        while let Some(chunk) = store.next_chunk(99, |_| true) {
            chunk.write(&*table).expect("memory works");
        }
        drop(store.finish_checkpoint());
        for _ in 0..=STEPS {
            let page = TombstonePage::read(&*table, below, None, 99).expect("memory works");
            store
                .collect_tombstones(&page, Hlc::ZERO)
                .stale
                .erase(&*table)
                .expect("memory works");
        }
    }

    fn lines(store: &Store<()>) -> usize {
        let page = TombstonePage::read(&*store.table(), Hlc(u64::MAX), None, 99);
        page.expect("memory works").keys().count()
    }

    #[test]
    fn a_key_that_was_to_be_shown_for_a_month_and_is_deleted_leaves_no_line_for_a_month() {
        const DAY: u64 = 86_400_000_000;
        let options = Options {
            memory_limit_bytes: 1 << 20,
            history: false,
            short_lived: SHORT_LIVED,
            hash_seed: 1,
        };
        let table = MemoryEngine::new().open_table("t").expect("memory works");
        let (mut store, _) = Store::open(table, options).expect("memory works");
        let (kept, deleted) = (Key::from("kept"), Key::from("deleted"));
        for key in [&kept, &deleted] {
            store.put(key, &expiring(DAY, 30 * DAY));
        }
        collect(&mut store, Hlc::from_wall(Micros(DAY)));
        store.put(
            &deleted,
            &version(Hlc::from_wall(Micros(DAY + 60_000_000)).0, None),
        );
        collect(&mut store, Hlc::from_wall(Micros(DAY + 1)));
        assert_eq!(lines(&store), 3, "two of values, and one of a delete");
        collect(&mut store, Hlc::from_wall(Micros(2 * DAY)));
        collect(&mut store, Hlc::from_wall(Micros(2 * DAY)));
        assert_eq!((lines(&store), store.live_keys()), (1, 1));
        collect(&mut store, Hlc::from_wall(Micros(31 * DAY)));
        assert_eq!(
            (lines(&store), store.live_keys()),
            (1, 1),
            "it is shown until then"
        );
        collect(&mut store, Hlc::from_wall(Micros(34 * DAY)));
        assert_eq!(
            (lines(&store), store.live_keys()),
            (1, 0),
            "the next checkpoint removes the line"
        );
        collect(&mut store, Hlc::from_wall(Micros(34 * DAY)));
        assert_eq!(lines(&store), 0);
    }

    /// Two sites have added to two keys. One key expires, the other one is deleted.
    #[test]
    fn a_key_with_shares_is_counted_and_is_forgotten_once_its_end_is_closed_everywhere() {
        let options = Options {
            memory_limit_bytes: 1 << 20,
            history: true,
            short_lived: SHORT_LIVED,
            hash_seed: 1,
        };
        let table = MemoryEngine::new().open_table("t").expect("memory works");
        let (mut store, _) = Store::open(table, options).expect("memory works");
        let (counted, key) = (Key::from("counted"), Key::from("deleted"));
        let change = |adds, retimes, expiry| {
            let options = PutOptions {
                computes: adds,
                retimes,
                expiry,
                ..PutOptions::default()
            };
            Change::new(None, Some(Box::new(options)))
        };
        let adds = change(Some(Compute::Add(1)), None, None);
        let expires = change(None, Some(Retimes::Any), Some(Expiry::At(Micros(90))));
        let deletes = Change::from(None);
        let write = |store: &mut Store<()>, key: &Key, change: &Change, at: u64| {
            let id = VersionId {
                at: Hlc::from_wall(Micros(at)),
                replica: ReplicaId(at as u16 % 2),
            };
            let new = change.clone().of(
                &Shown::all(store.chain(key.as_ref())),
                Hlc::from_wall(Micros(at - 1)),
            );
            let (content, _) = new.and_then(|new| new.stamped(id)).expect("it is written");
            let meta = ();
            assert!(store.put(key, &Version { id, content, meta }).is_wanted());
        };
        let counts = |store: &Store<()>| (store.live_keys(), store.expiring_keys(), store.deleted_keys());
        for at in [10, 11] {
            write(&mut store, &counted, &adds, at);
            write(&mut store, &key, &adds, at);
        }
        assert_eq!(counts(&store), (2, 0, 0));
        write(&mut store, &counted, &expires, 20);
        write(&mut store, &key, &deletes, 30);
        assert_eq!(counts(&store), (1, 1, 1));
        let everything = Hlc::from_wall(Micros(200));
        let collect = |store: &mut Store<()>, closed| {
            let table = store.table();
            let page = TombstonePage::read(&*table, everything, None, 99).expect("memory works");
            let collected = store.collect_tombstones(&page, Hlc::from_wall(Micros(closed)));
            collected.stale.erase(&*table).expect("memory works");
            store.begin_checkpoint(Bytes::new());
            while let Some(chunk) = store.next_chunk(1, |_| true) {
                chunk.write(&*table).expect("memory works");
            }
            drop(store.finish_checkpoint());
            store.validate();
            (collected.tombstones, collected.expired)
        };
        assert_eq!(collect(&mut store, 200), (0, 0), "nothing is written down");
        assert_eq!(collect(&mut store, 29), (0, 0));
        assert_eq!(collect(&mut store, 30), (1, 0));
        assert_eq!(collect(&mut store, 89), (0, 0));
        assert_eq!(collect(&mut store, 90), (1, 1));
        assert_eq!((counts(&store), lines(&store)), ((0, 0, 0), 0));
    }

    #[test]
    fn a_short_lived_value_has_one_line_which_is_due_when_it_has_expired() {
        for (shown, left) in [(SHORT_LIVED.0, 0), (2 * SHORT_LIVED.0, 1)] {
            let chain = Chain::new(expiring(1_000_003, shown));
            let (line, gone) = (LineId::of(&chain, SHORT_LIVED), chain.gone());
            let (line, gone) = line.zip(gone).expect("it expires");
            assert_eq!(line.steps_left(gone), Some(left));
            assert!(left > 0 || line.at >= gone.at);
        }
    }

    #[test]
    fn a_replay_after_half_a_checkpoint_does_not_bring_back_what_a_collected_tombstone_deleted() {
        let engine = MemoryEngine::new();
        let table = engine.open_table("t").expect("memory works");
        let options = Options {
            memory_limit_bytes: 1 << 20,
            history: true,
            short_lived: SHORT_LIVED,
            hash_seed: 1,
        };
        let (mut store, _) = Store::open(Arc::clone(&table), options).expect("memory works");
        let key = Key::from("key");
        store.put(&key, &version(10, None));
        store.begin_checkpoint(Bytes::from_static(b"1"));
        while let Some(chunk) = store.next_chunk(1, |_| true) {
            chunk.write(&*table).expect("memory works");
        }
        engine.persist().expect("memory works");
        drop(store.finish_checkpoint());

        // An older version arrives late. It is in the log behind the checkpoint. After that, no older version can come
        // any more.
        let late = version(5, Some("deleted long ago"));
        store.put(&key, &late);
        let page = TombstonePage::read(&*table, Hlc(11), None, 10).expect("memory works");
        let collected = store.collect_tombstones(&page, Hlc::ZERO);
        assert_eq!((collected.tombstones, collected.expired), (1, 0));
        assert!(collected.stale.is_empty());
        store.begin_checkpoint(Bytes::from_static(b"2"));
        let first = store.next_chunk(1, |_| true).expect("the key is dirty");
        first.write(&*table).expect("memory works");
        engine.crash_keeping(usize::MAX);

        let table = engine.open_table("t").expect("memory works");
        let (mut store, meta) = Store::open(table, options).expect("memory works");
        assert_eq!(meta.as_deref(), Some(&b"1"[..]));
        store.put(&key, &late);
        assert_eq!(store.live_keys(), 0, "a deleted key is back");
    }

    /// Shares that are over were forgotten by a checkpoint that was not finished, so their row is still there. What was written after that has seen nothing of them.
    #[test]
    fn a_replay_of_a_keys_first_version_does_not_put_it_beside_what_was_forgotten() {
        let share = |at, replica| Version {
            id: VersionId {
                at: Hlc(at),
                replica: ReplicaId(replica),
            },
            content: Content::sharing(turnbuckle_core::Share::default()),
            meta: (),
        };
        for history in [true, false] {
            let engine = MemoryEngine::new();
            let table = engine.open_table("t").expect("memory works");
            let options = Options {
                memory_limit_bytes: 1 << 20,
                history,
                short_lived: SHORT_LIVED,
                hash_seed: 1,
            };
            let (mut store, _) = Store::open(Arc::clone(&table), options).expect("memory works");
            let key = Key::from("key");
            assert_eq!(store.put(&key, &share(30, 1)), Placed::First);
            assert_eq!(store.put(&key, &share(40, 0)), Placed::Added);
            assert_eq!(store.put(&key, &share(40, 0)), Placed::Unwanted);
            store.begin_checkpoint(Bytes::from_static(b"1"));
            while let Some(chunk) = store.next_chunk(1, |_| true) {
                chunk.write(&*table).expect("memory works");
            }
            engine.persist().expect("memory works");
            drop(store.finish_checkpoint());
            store.forget(key.as_ref(), |_| true);
            let new = share(80, 0);
            assert_eq!(store.put(&key, &new), Placed::First);
            drop(store);

            let (mut store, _) = Store::open(table, options).expect("memory works");
            store.load(&key).expect("memory works");
            let ids = |store: &Store<()>| -> Vec<u64> {
                let chain = store.chain(key.as_ref()).expect("it has versions");
                chain.iter().map(|version| version.id.at.0).collect()
            };
            store.replay(&key, &new, true);
            assert_eq!(ids(&store), [80], "history: {history}");
            // A row that is from later has this version and others.
            store.put(&key, &share(70, 1));
            store.replay(&key, &new, true);
            assert_eq!(ids(&store), [80, 70], "history: {history}");
        }
    }
}
