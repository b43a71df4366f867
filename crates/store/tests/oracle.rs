//! A store beside a map that is correct by construction, over an engine that crashes. In random order come puts, late
//! arrivals, deletes, reads of keys that were evicted, checkpoints in pieces, scans in pieces, collection, forgetting,
//! power losses and replays. Each seed is one history; a failure names its seed. `SEEDS=1000` runs more, `SEED=7` runs
//! only that.

use bytes::{Bytes, BytesMut};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use turnbuckle_core::{
    BadFrame, Content, HASH_SLOTS, Hlc, Key, Meta, Micros, Rank, ReplicaId, Vector, Version, VersionId,
    Versions, Wire,
};
use turnbuckle_store::{
    Chunk, Engine, Fetched, MemoryEngine, Options, ScanRows, Store, Table, TombstoneCursor, TombstonePage,
    scan_rows,
};

/// What is kept with versions: nothing, or what each replaces, so that siblings are kept.
trait Kind: Meta {
    /// A version's name determines what is kept with it.
    fn of(id: VersionId) -> Self;
}

impl Kind for () {
    fn of(_: VersionId) {}
}

/// What a version replaces.
#[derive(Debug, Clone, PartialEq)]
struct Context(Vector);

impl Wire for Context {
    fn encode(&self, out: &mut BytesMut) {
        self.0.encode(out);
    }

    fn decode(frame: Bytes) -> Result<Context, BadFrame> {
        Vector::decode(frame).map(Context)
    }

    fn newest(&self) -> Hlc {
        self.0.newest()
    }
}

impl Meta for Context {
    const SIBLINGS: bool = true;

    fn replaces(&self, other: VersionId) -> bool {
        self.0.covers_id(other)
    }
}

/// The timestamp of a moment. Moments count from 0.
fn stamp(moment: u64) -> Hlc {
    Hlc::from_wall(Micros(moment))
}

impl Kind for Context {
    fn of(id: VersionId) -> Context {
        let moment = id.at.wall().0;
        let drawn = (moment * 3 + u64::from(id.replica.0)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        let until = match drawn.is_multiple_of(3) {
            true => 0,
            false => moment.saturating_sub(1 + drawn % 12),
        };
        // Whoever replaces a version also replaces what that version had replaced. So the entries may differ by one, and no more.
        let entries = (0..3).map(|replica| {
            let one_less = drawn >> (8 + replica) & 1;
            (ReplicaId(replica), stamp(until.saturating_sub(one_less)))
        });
        Context(entries.collect())
    }
}

type Model = BTreeMap<Key, BTreeMap<Rank, Content>>;

enum Logged<M> {
    Put(Key, Version<M>),
    Remove(Key, Rank),
}

/// A scan that goes on through everything, crashes included: its cursor is all its state.
#[derive(Default)]
struct Scan {
    cursor: u64,
    begun: bool,
    /// Keys that had a value since the scan began.
    must: BTreeSet<Key>,
    seen: BTreeSet<Key>,
    rows: Option<ScanRows>,
    /// The moment of `rows`.
    now: u64,
}

struct World<M: Kind> {
    seed: u64,
    random: ChaCha8Rng,
    options: Options,
    engine: MemoryEngine,
    table: Arc<dyn Table>,
    store: Store<M>,
    model: Model,
    log: Vec<Logged<M>>,
    /// Everything stamped up to this moment has arrived. Every version that arrives from now on is later, so is its base, and so is every reader's time.
    stable: u64,
    fetched: Vec<(Key, Fetched<M>)>,
    chunk: Option<Chunk<M>>,
    taken_all: bool,
    scan: Scan,
    page: Option<TombstonePage>,
    cursor: Option<TombstoneCursor>,
    /// Whether the disk does not fail any more.
    calm: bool,
    counts: Counts,
}

/// Counts of what happened: they show if a run has tested nothing.
#[derive(Default, Debug)]
struct Counts {
    evicted: usize,
    retried: usize,
    finished: usize,
    crashes: usize,
    scans: usize,
    listed: usize,
    collected: usize,
    stale: usize,
    removed: usize,
    /// Values that had expired when they were looked at.
    expired: usize,
    /// Tombstones that stay, because there is a value beside them.
    kept_beside: usize,
}

impl<M: Kind> World<M> {
    fn new(seed: u64) -> World<M> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let options = Options {
            memory_limit_bytes: [600, 1500, 3000, 1 << 20][random.next_u32() as usize % 4],
            history: random.next_u32().is_multiple_of(2) && !M::SIBLINGS,
            short_lived: Micros([0, 3, 100][seed as usize % 3]),
            hash_seed: seed,
        };
        let engine = MemoryEngine::new();
        let table = engine.open_table("t").expect("the disk works");
        engine.persist().expect("the disk works");
        let (store, meta) = Store::open(Arc::clone(&table), options).expect("an empty table opens");
        assert_eq!(meta, None);
        World {
            seed,
            random,
            options,
            engine,
            table,
            store,
            model: Model::new(),
            log: Vec::new(),
            stable: 0,
            fetched: Vec::new(),
            chunk: None,
            taken_all: false,
            scan: Scan::default(),
            page: None,
            cursor: None,
            calm: false,
            counts: Counts::default(),
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.next_u64() % below
    }

    fn key(&mut self) -> Key {
        match self.draw(40) {
            n @ 0..10 => Key::from(format!("{{tag}}{n}").as_str()),
            39 => Key::from("long".repeat(300).as_str()),
            38 => Key::from(""),
            n => Key::from(format!("key {n}").as_str()),
        }
    }

    /// Whether a key has a value at a moment.
    fn is_live_at(&self, key: &Key, now: u64) -> bool {
        self.newest(key)
            .is_some_and(|content| content.at(stamp(now)).is_some())
    }

    fn is_live(&self, key: &Key) -> bool {
        self.is_live_at(key, self.stable)
    }

    fn newest(&self, key: &Key) -> Option<&Content> {
        let (_, content) = self.model.get(key)?.last_key_value()?;
        Some(content)
    }

    /// Makes the key resident as a real driver does: reads without the lock, admits some time later, reads again if it
    /// has to. Returns false if it is not resident yet.
    fn wants(&mut self, key: &Key) -> bool {
        if self.store.is_resident(key.as_ref()) {
            return true;
        }
        let fetched = Store::fetch(&*self.table, key, self.store.epoch()).expect("the disk works");
        self.fetched.push((key.clone(), fetched));
        false
    }

    fn admit_all(&mut self) {
        for (key, fetched) in std::mem::take(&mut self.fetched) {
            match self.store.admit(fetched) {
                Ok(()) => self.check_key(&key),
                Err(_) => self.counts.retried += 1,
            }
        }
    }

    fn put(&mut self) {
        let key = self.key();
        if !self.wants(&key) {
            return;
        }
        let id = VersionId {
            at: stamp(self.stable + 1 + self.draw(30)),
            replica: ReplicaId(self.draw(3) as u16),
        };
        // A version's name determines its content: a replay may bring it twice, but never another version with that
        // name.
        let moment = id.at.wall().0;
        let drawn = (moment * 3 + u64::from(id.replica.0)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let length = if drawn.is_multiple_of(20) {
            5000
        } else {
            drawn % 50
        };
        let value = Bytes::from(vec![moment as u8; length as usize]);
        // Some expire as soon as they are stamped, and some after the history ends.
        let until = (drawn % 3 == 1 && !M::SIBLINGS).then_some(Micros(moment + (drawn >> 8) % 90));
        // Some change the expiry of an older value, which may be there or not.
        let base = VersionId {
            at: stamp(moment.saturating_sub(1 + (drawn >> 16) % 12)),
            replica: ReplicaId((drawn >> 20) as u16 % 3),
        };
        let is_change = (drawn >> 24).is_multiple_of(3) && !drawn.is_multiple_of(3) && !M::SIBLINGS;
        if is_change && base.at <= stamp(self.stable) {
            return;
        }
        let content = match drawn.is_multiple_of(3) {
            true => Content::DELETE,
            false => Content::with_base(value, until, is_change.then_some(base)),
        };
        let version = Version {
            id,
            content,
            meta: M::of(id),
        };
        let rank = version.rank();
        let was_there = self
            .model
            .get(&key)
            .is_some_and(|chain| chain.contains_key(&rank));
        let newest = self
            .model
            .get(&key)
            .and_then(|chain| chain.last_key_value().map(|(rank, _)| *rank));
        let added = self.store.put(&key, &version).is_wanted();
        if M::SIBLINGS {
            let chain = self.model.get(&key);
            let is_replaced = chain.is_some_and(|chain| chain.keys().any(|held| M::of(held.id).replaces(id)));
            assert_eq!(
                added,
                !was_there && !is_replaced,
                "seed {}: {key} {id}",
                self.seed
            );
        } else if self.options.history {
            assert_eq!(added, !was_there, "seed {}: {key} {id}", self.seed);
        } else {
            assert_eq!(
                added,
                newest.is_none_or(|newest| rank > newest),
                "seed {}: {key} {id}",
                self.seed
            );
        }
        if added {
            // Only a put that had an effect is logged. Without history, an older version that arrived late would have
            // an effect in a replay that begins after the newer one was taken back.
            self.log.push(Logged::Put(key.clone(), version.clone()));
            let chain = self.model.entry(key.clone()).or_default();
            match M::SIBLINGS {
                true => chain.retain(|held, _| !M::of(id).replaces(held.id)),
                false if !self.options.history => chain.clear(),
                false => {}
            }
            chain.insert(rank, version.content);
        }
        self.after_change(&key);
    }

    fn forget(&mut self) {
        let key = self.key();
        if !self.wants(&key) {
            return;
        }
        // Only versions that are not stable are ever taken back. A stream takes back the last ones, a full copy whichever its source lacks.
        let from = stamp(self.stable + 1 + self.draw(30));
        let keeps = self.draw(3);
        let is_gone = |id: VersionId| id.at >= from && (keeps == 0 || id.at.wall().0 % 3 != keeps);
        let removed = self.store.forget(key.as_ref(), |version| is_gone(version.id));
        let stable = stamp(self.stable);
        let chain = self.model.get(&key).into_iter().flatten().rev();
        let collectable = chain
            .map(|(rank, _)| *rank)
            .skip_while(|rank| rank.id.at > stable)
            .skip(1);
        let may_be_collected: BTreeSet<_> = match M::SIBLINGS {
            true => BTreeSet::new(),
            false => collectable.collect(),
        };
        let mut expected = Vec::new();
        if let Some(chain) = self.model.get_mut(&key) {
            let gone = chain.keys().rev().filter(|rank| is_gone(rank.id));
            expected = gone.copied().collect();
            chain.retain(|rank, _| !is_gone(rank.id));
            if chain.is_empty() {
                self.model.remove(&key);
            }
        }
        // What is older than a version that every reader sees may be gone already.
        expected.retain(|rank| removed.contains(rank) || !may_be_collected.contains(rank));
        assert_eq!(removed, expected, "seed {}: {key}", self.seed);
        self.counts.removed += removed.len();
        self.log
            .extend(removed.into_iter().map(|rank| Logged::Remove(key.clone(), rank)));
        self.after_change(&key);
    }

    fn after_change(&mut self, key: &Key) {
        if !self.is_live(key) {
            self.scan.must.remove(key);
        }
        self.check_key(key);
    }

    /// Compares what a resident key has. Versions that no request may ask for any more may be there or not.
    fn check_key(&self, key: &Key) {
        let found: Vec<_> = self.store.chain(key.as_ref()).map_or(Vec::new(), |chain| {
            chain
                .iter()
                .map(|version| (version.rank(), version.content.clone()))
                .collect()
        });
        let all: Vec<_> = self.model.get(key).map_or(Vec::new(), |chain| {
            chain
                .iter()
                .rev()
                .map(|(rank, content)| (*rank, content.clone()))
                .collect()
        });
        let stable = stamp(self.stable);
        let collectable =
            |(rank, content): &(Rank, Content)| content.at(stable).is_none() && rank.id.at <= stable;
        let seed = self.seed;
        if M::SIBLINGS {
            let missing: Vec<_> = all.iter().filter(|version| !found.contains(version)).collect();
            assert!(
                missing.iter().all(|version| collectable(version))
                    && found.iter().all(|version| all.contains(version)),
                "seed {seed}: {key} has {found:?}, not {all:?}"
            );
            return;
        }
        if found.is_empty() && all.first().is_some_and(collectable) {
            return;
        }
        let newest_covered = all.iter().position(|(rank, _)| rank.id.at <= stable);
        let required = newest_covered.map_or(all.len(), |place| place + 1);
        // If something newer came, a collected tombstone may be missing at the end of the required versions.
        let tombstone_gone =
            newest_covered.is_some_and(|place| collectable(&all[place])) && found.len() + 1 == required;
        let required = if tombstone_gone { required - 1 } else { required };
        assert!(
            found.len() >= required,
            "seed {seed}: {key} has {found:?}, not {all:?}"
        );
        assert_eq!(found[..required], all[..required], "seed {seed}: {key}");
        assert!(
            found.iter().all(|version| all.contains(version)),
            "seed {seed}: {key}: {found:?}, {all:?}"
        );
    }

    fn checkpoint_step(&mut self) {
        if !self.store.is_checkpointing() {
            self.chunk = None;
            self.taken_all = false;
            self.store
                .begin_checkpoint(Bytes::copy_from_slice(&(self.log.len() as u64).to_be_bytes()));
            return;
        }
        if let Some(chunk) = self.chunk.take() {
            let fails = !self.calm && self.random.next_u32().is_multiple_of(30);
            self.engine.set_failing(fails);
            let written = chunk.write(&*self.table);
            self.engine.set_failing(false);
            if written.is_err() {
                self.store.abort_checkpoint();
            }
            return;
        }
        if self.taken_all {
            self.engine.persist().expect("the disk works");
            drop(self.store.finish_checkpoint());
            self.counts.finished += 1;
            return;
        }
        let max_keys = 1 + self.draw(10) as usize;
        let stable = stamp(self.stable);
        self.chunk = self.store.next_chunk(max_keys, |version| version.id.at <= stable);
        self.taken_all = self.chunk.is_none();
    }

    fn crash(&mut self) {
        let kept = self.draw(1 + self.engine.unpersisted_batches() as u64);
        self.engine.crash_keeping(kept as usize);
        self.table = self.engine.open_table("t").expect("the disk works");
        let (store, meta) =
            Store::open(Arc::clone(&self.table), self.options).expect("what was written opens");
        self.store = store;
        self.fetched.clear();
        self.chunk = None;
        self.scan.rows = None;
        self.page = None;
        self.cursor = None;
        let from = meta.map_or(0, |meta| {
            u64::from_be_bytes(meta[..].try_into().expect("a position is 8 bytes"))
        });
        for logged in &self.log[from as usize..] {
            match logged {
                Logged::Put(key, version) => {
                    self.store.load(key).expect("the disk works");
                    self.store.put(key, version);
                }
                Logged::Remove(key, rank) => {
                    self.store.load(key).expect("the disk works");
                    let chain = self.store.chain(key.as_ref());
                    let was_there = chain.is_some_and(|chain| chain.holds_rank(*rank));
                    assert_eq!(
                        self.store.remove(key.as_ref(), *rank),
                        was_there,
                        "seed {}",
                        self.seed
                    );
                    self.store.validate();
                }
            }
        }
        self.counts.crashes += 1;
        self.check_all();
    }

    fn scan_step(&mut self) {
        if !self.scan.begun {
            let must = self
                .model
                .keys()
                .filter(|key| self.is_live(key))
                .cloned()
                .collect();
            self.scan = Scan {
                begun: true,
                must,
                ..Scan::default()
            };
        }
        let Some(rows) = self.scan.rows.take() else {
            let count = 1 + self.draw(8) as usize;
            let rows = scan_rows::<M>(
                &*self.table,
                0..HASH_SLOTS,
                self.scan.cursor,
                count,
                self.store.epoch(),
                stamp(self.stable),
            );
            self.scan.now = self.stable;
            self.scan.rows = Some(rows.expect("the disk works"));
            return;
        };
        let Ok((cursor, keys)) = self.store.finish_scan(rows) else {
            self.counts.retried += 1;
            return;
        };
        assert!(
            cursor == 0 || cursor > self.scan.cursor,
            "seed {}: a scan stands still",
            self.seed
        );
        for key in &keys {
            assert!(
                self.is_live_at(key, self.scan.now),
                "seed {}: a scan lists {key}, which has no value",
                self.seed
            );
        }
        self.counts.listed += keys.len();
        self.scan.seen.extend(keys);
        self.scan.cursor = cursor;
        if cursor == 0 {
            let missed: Vec<&Key> = self.scan.must.difference(&self.scan.seen).collect();
            assert!(missed.is_empty(), "seed {}: a scan missed {missed:?}", self.seed);
            self.counts.scans += 1;
            self.scan.begun = false;
        }
    }

    fn collect_step(&mut self) {
        if self.store.is_checkpointing() {
            return;
        }
        let Some(page) = self.page.take() else {
            let below = stamp(self.stable + 1);
            let max = 1 + self.draw(6) as usize;
            let page =
                TombstonePage::read(&*self.table, below, self.cursor.as_ref(), max).expect("the disk works");
            self.cursor = page.next().cloned();
            let keys: Vec<Key> = page.keys().cloned().collect();
            keys.iter().for_each(|key| {
                self.wants(key);
            });
            self.page = Some(page);
            return;
        };
        let expiring = self.store.expiring_keys();
        let collected = self.store.collect_tombstones(&page, Hlc::LATEST);
        assert_eq!(
            expiring - self.store.expiring_keys(),
            collected.expired,
            "seed {}",
            self.seed
        );
        self.counts.collected += collected.tombstones as usize;
        self.counts.stale += usize::from(!collected.stale.is_empty());
        collected.stale.erase(&*self.table).expect("the disk works");
    }

    fn step(&mut self) {
        match self.draw(100) {
            0..40 => self.put(),
            40..44 => self.forget(),
            44..54 => self.admit_all(),
            54..64 => {
                let max = self.draw(10) as usize;
                self.counts.evicted += self.store.evict(max);
            }
            64..84 => self.checkpoint_step(),
            84..92 => self.scan_step(),
            92..97 => self.collect_step(),
            97..99 => self.pass(),
            _ if self.draw(4) == 0 => self.crash(),
            _ => {}
        }
        self.store.validate();
        // Expired values count until they are collected.
        let live = self.model.keys().filter(|key| self.is_live(key)).count();
        let kept = self.model.keys().filter_map(|key| self.newest(key));
        let kept = kept.filter(|content| !content.is_delete()).count();
        let counted = live as u64..=kept as u64;
        assert!(counted.contains(&self.store.live_keys()), "seed {}", self.seed);
    }

    /// Time passes: values expire.
    fn pass(&mut self) {
        self.stable += self.draw(10);
        let must = std::mem::take(&mut self.scan.must);
        let (must, expired): (BTreeSet<Key>, _) = must.into_iter().partition(|key| self.is_live(key));
        self.scan.must = must;
        self.counts.expired += expired.len();
    }

    /// Reads every key.
    fn check_all(&mut self) {
        let mut keys: BTreeSet<Key> = self.model.keys().cloned().collect();
        keys.extend(self.log.iter().map(|logged| match logged {
            Logged::Put(key, _) | Logged::Remove(key, _) => key.clone(),
        }));
        for key in keys {
            self.store.load(&key).expect("the disk works");
            self.check_key(&key);
        }
    }

    /// When everything is written and everything evicted, nothing is lost, and nothing is left of what was deleted.
    fn finish(mut self) -> Counts {
        self.calm = true;
        while self.store.is_checkpointing() {
            self.checkpoint_step();
        }
        self.stable += 1000;
        for _ in 0..3 {
            self.cursor = None;
            loop {
                self.page = None;
                self.collect_step();
                self.admit_all();
                let more = self.cursor.is_some();
                self.collect_step();
                if !more {
                    break;
                }
            }
            self.checkpoint_step();
            while self.store.is_checkpointing() {
                self.checkpoint_step();
            }
        }
        self.crash();
        let page = TombstonePage::read(&*self.table, Hlc(u64::MAX), None, 1).expect("the disk works");
        assert_eq!(page.keys().count(), 0, "seed {}: a tombstone is left", self.seed);
        assert_eq!(self.store.collectable_rows(), 0, "seed {}", self.seed);
        let kept = self.model.iter().filter(|(key, chain)| {
            // Beside a value that it does not replace.
            M::SIBLINGS && !self.is_live(key) && chain.values().any(|content| !content.is_delete())
        });
        let kept: BTreeSet<Key> = kept.map(|(key, _)| key.clone()).collect();
        let rows = turnbuckle_store::rows::<M>(
            &*self.table.snapshot().expect("the disk works"),
            None,
            999,
            usize::MAX,
        );
        let rows: BTreeSet<Key> = rows
            .expect("the disk works")
            .rows
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        let live: BTreeSet<Key> = self
            .model
            .keys()
            .filter(|key| self.is_live(key) || kept.contains(*key))
            .cloned()
            .collect();
        assert_eq!(rows, live, "seed {}", self.seed);
        self.counts.kept_beside = kept.len();
        self.counts
    }
}

#[test]
fn the_store_agrees_with_a_map_whatever_happens() {
    assert!(agrees::<()>().expired > 0);
}

#[test]
fn the_store_agrees_with_a_map_that_keeps_siblings_whatever_happens() {
    assert!(agrees::<Context>().kept_beside > 0);
}

fn agrees<M: Kind>() -> Counts {
    let seeds = std::env::var("SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(60);
    let mut total = Counts::default();
    for seed in 0..seeds {
        if std::env::var("SEED").is_ok_and(|only| only != seed.to_string()) {
            continue;
        }
        let mut world = World::<M>::new(seed);
        for _ in 0..1500 {
            world.step();
        }
        let counts = world.finish();
        total.evicted += counts.evicted;
        total.retried += counts.retried;
        total.finished += counts.finished;
        total.crashes += counts.crashes;
        total.scans += counts.scans;
        total.listed += counts.listed;
        total.collected += counts.collected;
        total.stale += counts.stale;
        total.removed += counts.removed;
        total.expired += counts.expired;
        total.kept_beside += counts.kept_beside;
    }
    println!("{seeds} seeds: {total:?}");
    for (what, count) in [
        ("evictions", total.evicted),
        ("retries", total.retried),
        ("checkpoints", total.finished),
        ("crashes", total.crashes),
        ("scans", total.scans),
        ("collections", total.collected),
        ("stale lines", total.stale),
        ("removals", total.removed),
    ] {
        assert!(count > 0, "no {what} happened");
    }
    total
}
