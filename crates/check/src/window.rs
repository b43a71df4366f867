//! The same answers while a store is running: a window over the newest operations, judged again and again.
//!
//! Records come in roughly in the order in which operations were over, as clients report them. What has been over for
//! longer than the window's span leaves it. Which operations are judged is said exactly, so that the answers are those of
//! a [`crate::Report`] on a trace of just these records:
//!
//! ```text
//!   newest = the greatest finish seen so far            cut = newest - span
//!
//!   of each key that has such:  operations that were answered, with finish >= cut         (in the window)
//!                               + the writes of values that those return                  (carried)
//!                               + the acknowledged write with the greatest finish < cut   (carried)
//!
//!            w(1)     w(2)     |cut                          newest|
//!      ----[======]--[====]----|-----r(2)------w(3)-----r(1)-------|---->
//!         carried:    carried:
//!         it is read  the last before the cut
//! ```
//!
//! Carried writes are operations with their real times, and count: so a read of a value that was overwritten long before the cut is
//! stale, and no phantom. They are told apart in [`WindowMetrics::carried`].
//!
//! A window can miss what it has let go, and never invents anything: what is judged is a part of the trace in which each read has
//! its write, so whatever order explains the whole explains the part.
//!
//! # What is left out, and counted
//!
//! - **Unexplained reads**: of a value whose write has not been seen. It may have been written before somebody looked, its record
//!   may be on its way (a write's record often comes after those of its first reads), or the value was forgotten. They are not
//!   judged, and are once the write turns up. Only a value whose write is known to have *failed* makes its reads phantoms.
//! - **Forgotten values**: an overwritten value is remembered for a further [`Limits::memory_ns`] after it was last seen, and a key
//!   with its last value as long after anything was done to it.
//! - **A shorter window**: beyond [`Limits::most_operations`] or [`Limits::most_keys`] what is oldest goes first: values that
//!   are remembered, then operations. [`WindowMetrics::from_ns`] says where the window really begins.
//! - **Late reads**: those that were over before the cut when their record came.
//!
//! # Cost
//!
//! Adding a record takes a few look-ups. Metrics are found anew for the keys to which something came or from which something
//! left, O(n log n) of their operations, and then summed over all keys. At 100,000 operations a second, a window of ten seconds
//! over a thousand keys, and metrics once a second, that is about a quarter of a core. Memory: 56 bytes for each operation, about
//! 100 for each value remembered and 700 for each key, and the names (`examples/measure.rs`).
//!
//! # Caveats
//!
//! - Monotonic writes and writes-follow-reads go across keys and are not counted here: see [`crate::session_violations`].
//! - Deletes and snapshots are refused, and versions are not looked at: order is that of time.
//! - That a client's operations do not overlap is looked at as they come in: against the last one only.
//! - One finish far in the future moves the window there. Who watches a live cluster drops what is ahead of his own clock.
use crate::{
    BadTrace, Fraction, History, KeyHistory, Kind, Operation, Order, Value, Zones, each_stale_read,
    order::is_sensible,
};
use indexmap::IndexSet;
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap},
    hash::RandomState,
};
use turnbuckle_workload::{Op, Record, Status};

/// What a window may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For how long, behind the window, values are remembered that are seen no more.
    pub memory_ns: i64,
    /// How many operations in the window and values remembered.
    pub most_operations: usize,
    /// How many keys.
    pub most_keys: usize,
}

impl Limits {
    /// Ten spans of memory, four million operations and values, a million keys: a gigabyte or so at most.
    pub fn for_span(span_ns: i64) -> Limits {
        Limits {
            memory_ns: span_ns.saturating_mul(10),
            most_operations: 4_000_000,
            most_keys: 1_000_000,
        }
    }
}

/// What a window shows. All but the late reads are about now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct WindowMetrics {
    /// The window reaches from here..
    pub from_ns: i64,
    /// ..to the newest finish.
    pub until_ns: i64,
    /// How many keys have operations in it.
    pub keys: u64,
    /// Operations that count: those in the window and those carried.
    pub operations: u64,
    /// Writes before the window that are needed to judge it.
    pub carried: u64,
    /// The least number of operations, whole values at a time, whose removal leaves the rest atomic.
    pub removed: u64,
    /// `removed` of `operations`.
    pub proportion: Fraction,
    /// Whether one copy of the data explains all that was read.
    pub atomic: bool,
    /// The least total stretch of each operation after which it does; half of it at either side.
    pub gamma_max_ns: i64,
    /// Reads that missed a write that was over before they began.
    pub stale_reads: u64,
    /// For how long, at most, it had been over.
    pub max_staleness_ns: i64,
    /// Reads of what a failed write would have written.
    pub phantom_reads: u64,
    /// Reads that were over before their write began.
    pub future_reads: u64,
    /// Reads that broke read-your-writes.
    pub ryw: u64,
    /// Reads that broke monotonic reads.
    pub mr: u64,
    /// The same by the site that an operation was sent to.
    pub sites: BTreeMap<String, SiteMetrics>,
    /// Reads in the window whose write has not been seen: not judged.
    pub unexplained_reads: u64,
    /// Reads that came in after the window had passed them, since the beginning: not judged.
    pub late_reads: u64,
    /// By how much the window is shorter than it should be, because it holds too much.
    pub shortened_ns: i64,
}

/// What a window shows of one site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SiteMetrics {
    /// Operations that count.
    pub operations: u64,
    /// Those that read.
    pub reads: u64,
    /// Those that missed a write that was over before they began.
    pub stale_reads: u64,
    /// For how long, at most, it had been over.
    pub max_staleness_ns: i64,
}

impl SiteMetrics {
    fn add(&mut self, other: &SiteMetrics) {
        self.operations += other.operations;
        self.reads += other.reads;
        self.stale_reads += other.stale_reads;
        self.max_staleness_ns = self.max_staleness_ns.max(other.max_staleness_ns);
    }
}

/// Sites beyond so many are one, called `others`.
const MOST_SITES: usize = 256;
/// A window leaves the past behind in so many steps,
const STEPS: i64 = 64;
/// and forgets in so many.
const MEMORY_STEPS: i64 = 16;
/// In place of a value's number.
const NOTHING: u32 = u32::MAX;

/// Operations in the order in which they were over, and what the newest of them show.
#[derive(Debug)]
pub struct Window {
    span_ns: i64,
    limits: Limits,
    keys: Table<Key>,
    clients: HashMap<Box<str>, Client>,
    clients_so_far: u64,
    sites: IndexSet<Box<str>, RandomState>,
    records: u64,
    late_reads: u64,
    /// The greatest finish; `i64::MIN` before there is one.
    newest: i64,
    /// Where the window begins at the earliest, because it held too much.
    cut_floor: i64,
    /// The same for what is remembered.
    horizon_floor: i64,
    /// Keys from which operations leave, by when they do.
    leaving: Schedule,
    /// Keys of which values may be forgotten, by when.
    forgetting: Schedule,
    /// Operations in the window and values remembered.
    held: usize,
    /// Keys to be judged again.
    changed: Vec<u32>,
}

/// The session's last operation.
#[derive(Debug)]
struct Client {
    /// Never given twice.
    id: u64,
    start: i64,
    finish: i64,
    record: u64,
}

#[derive(Debug, Clone, Copy)]
struct Done {
    is_write: bool,
    site: u16,
    /// A place in [`Key::values`], or [`NOTHING`].
    value: u32,
    client: u64,
    start: i64,
    finish: i64,
    record: u64,
}

/// Who wrote a value.
#[derive(Debug, Clone, Copy, Default)]
enum Writer {
    #[default]
    Unseen,
    Failed,
    Unknown(Done),
    Certain(Done),
}

#[derive(Debug, Default)]
struct Known {
    writer: Writer,
    /// When anybody last had to do with it.
    seen: i64,
}

#[derive(Debug, Default)]
struct Key {
    name: Box<[u8]>,
    /// In the window: answered, in the order in which they came.
    operations: Vec<Done>,
    values: Table<Known>,
    /// What was written last before the window.
    last: Option<u32>,
    /// When anybody last had to do with it.
    seen: i64,
    is_changed: bool,
    leaves_at: Option<i64>,
    forgets_at: Option<i64>,
    judged: Judged,
}

/// What is known of one key.
#[derive(Debug, Default)]
struct Judged {
    operations: u64,
    carried: u64,
    removed: u64,
    gamma_ns: i64,
    phantom_reads: u64,
    future_reads: u64,
    unexplained_reads: u64,
    ryw: u64,
    mr: u64,
    sites: Vec<(u16, SiteMetrics)>,
}

/// Things with names, at places that do not change.
#[derive(Debug, Default)]
struct Table<T> {
    places: HashMap<Box<[u8]>, u32>,
    entries: Vec<T>,
    free: Vec<u32>,
}

impl<T: Default> Table<T> {
    fn find(&self, name: &[u8]) -> Option<u32> {
        self.places.get(name).copied()
    }

    /// The place, and whether it is new.
    fn place(&mut self, name: &[u8]) -> (u32, bool) {
        if let Some(place) = self.find(name) {
            return (place, false);
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(T::default());
            u32::try_from(self.entries.len() - 1).expect("limits are far below")
        });
        self.places.insert(name.into(), place);
        (place, true)
    }

    fn at(&mut self, place: u32) -> &mut T {
        &mut self.entries[place as usize]
    }

    /// Takes out what is not wanted, and says how many there were of it.
    fn retain(&mut self, mut is_wanted: impl FnMut(u32, &T) -> bool) -> usize {
        let before = self.places.len();
        self.places.retain(|_, &mut place| {
            let is_wanted = is_wanted(place, &self.entries[place as usize]);
            if !is_wanted {
                self.entries[place as usize] = T::default();
                self.free.push(place);
            }
            is_wanted
        });
        before - self.places.len()
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(place) = self.places.remove(name) {
            self.entries[place as usize] = T::default();
            self.free.push(place);
        }
    }
}

/// Which keys have to be looked at, by time in steps of some width.
#[derive(Debug)]
struct Schedule {
    width: i64,
    steps: BTreeMap<i64, Vec<u32>>,
}

impl Schedule {
    fn new(width: i64) -> Schedule {
        Schedule {
            width: width.max(1),
            steps: BTreeMap::new(),
        }
    }

    /// `at` is what the key is down for at present: it is put down again only for an earlier step.
    fn put(&mut self, key: u32, at: &mut Option<i64>, time: i64) {
        let step = time.div_euclid(self.width);
        if at.is_none_or(|at| step < at) {
            *at = Some(step);
            self.steps.entry(step).or_default().push(key);
        }
    }

    /// The end of the first step.
    fn first_end(&self) -> Option<i64> {
        let (step, _) = self.steps.first_key_value()?;
        Some(step.saturating_add(1).saturating_mul(self.width))
    }

    /// The keys of the first step that begins before `time`; that ends before it, if it has to be over.
    fn pop(&mut self, time: i64, is_over: bool) -> Option<(i64, Vec<u32>)> {
        let (&step, _) = self.steps.first_key_value()?;
        let begins = step.saturating_mul(self.width);
        let is_due = begins < time && (!is_over || self.first_end().is_some_and(|end| end <= time));
        if is_due { self.steps.pop_first() } else { None }
    }
}

impl Window {
    /// A window over the operations that were over in the last `span_ns`.
    pub fn new(span_ns: i64) -> Window {
        Window::with_limits(span_ns, Limits::for_span(span_ns))
    }

    /// The same, with other limits.
    pub fn with_limits(span_ns: i64, limits: Limits) -> Window {
        let span_ns = span_ns.max(1);
        let remembered = span_ns.saturating_add(limits.memory_ns.max(0));
        Window {
            span_ns,
            limits,
            keys: Table::default(),
            clients: HashMap::new(),
            clients_so_far: 0,
            sites: IndexSet::default(),
            records: 0,
            late_reads: 0,
            newest: i64::MIN,
            cut_floor: i64::MIN,
            horizon_floor: i64::MIN,
            leaving: Schedule::new(span_ns / STEPS),
            forgetting: Schedule::new(remembered / MEMORY_STEPS),
            held: 0,
            changed: Vec::new(),
        }
    }

    /// Takes a record in.
    ///
    /// # Errors
    /// [`BadTrace`], with the record's number. The record is then left out, and the window can be used as before.
    pub fn add(&mut self, record: &Record) -> Result<(), BadTrace> {
        let number = self.records;
        self.records += 1;
        let is_write = is_write(record, number)?;
        if !is_write && record.status != Status::Ok {
            return Ok(());
        }
        let finish = finish(record, number)?;
        if is_write && record.status != Status::Fail {
            self.check_value(record, number)?;
        }
        let answered = record.status == Status::Ok;
        if answered && !is_write && finish < self.cut() {
            self.late_reads += 1;
            return Ok(());
        }
        let client = self.client(record, number, answered.then_some(finish))?;
        let done = Done {
            is_write,
            site: self.site(&record.site),
            value: NOTHING,
            client,
            start: record.start_ns.min(i64::MAX - 1),
            finish,
            record: number,
        };
        self.put(record, done);
        if answered && finish > self.newest {
            let before = self.newest;
            self.newest = finish;
            if before.div_euclid(self.leaving.width) < finish.div_euclid(self.leaving.width) {
                self.leave(true);
                self.forget();
            }
        }
        self.shrink();
        Ok(())
    }

    /// What the window shows now.
    pub fn metrics(&mut self) -> WindowMetrics {
        self.leave(false);
        let cut = self.cut();
        for place in std::mem::take(&mut self.changed) {
            let key = self.keys.at(place);
            if std::mem::take(&mut key.is_changed) {
                key.judged = key.judge(cut);
            }
        }
        let mut sum = WindowMetrics {
            from_ns: cut,
            until_ns: self.newest,
            late_reads: self.late_reads,
            shortened_ns: cut.saturating_sub(self.newest.saturating_sub(self.span_ns)),
            ..WindowMetrics::default()
        };
        let mut sites = vec![SiteMetrics::default(); self.sites.len()];
        for judged in self.keys.entries.iter().map(|key| &key.judged) {
            sum.keys += u64::from(judged.operations > 0);
            sum.operations += judged.operations;
            sum.carried += judged.carried;
            sum.removed += judged.removed;
            sum.gamma_max_ns = sum.gamma_max_ns.max(judged.gamma_ns);
            sum.phantom_reads += judged.phantom_reads;
            sum.future_reads += judged.future_reads;
            sum.unexplained_reads += judged.unexplained_reads;
            sum.ryw += judged.ryw;
            sum.mr += judged.mr;
            for (site, of_key) in &judged.sites {
                sites[usize::from(*site)].add(of_key);
            }
        }
        for of_site in &sites {
            sum.stale_reads += of_site.stale_reads;
            sum.max_staleness_ns = sum.max_staleness_ns.max(of_site.max_staleness_ns);
        }
        let named = self.sites.iter().map(|name| name.to_string()).zip(sites);
        sum.sites = named.filter(|(_, of_site)| of_site.operations > 0).collect();
        sum.atomic = sum.removed == 0;
        sum.proportion = Fraction::new(sum.removed, sum.operations);
        sum
    }

    /// How many operations and values are held, and how many keys.
    pub fn held(&self) -> (usize, usize) {
        (self.held, self.keys.places.len())
    }

    /// Where the window begins.
    fn cut(&self) -> i64 {
        self.newest.saturating_sub(self.span_ns).max(self.cut_floor)
    }

    /// What was last seen before that may be forgotten.
    fn horizon(&self) -> i64 {
        let memory = self.limits.memory_ns.max(0);
        self.cut().saturating_sub(memory).max(self.horizon_floor)
    }

    /// A value stands for its write.
    fn check_value(&self, record: &Record, number: u64) -> Result<(), BadTrace> {
        let Some(value) = &record.value else {
            return Err(BadTrace::BadRecord {
                record: number,
                expected: "the value that was written",
                found: "null".into(),
            });
        };
        let before = self.keys.find(&record.key.0).and_then(|key| {
            let key = &self.keys.entries[key as usize];
            let value = key.values.find(&value.0)?;
            key.values.entries[value as usize].writer.write()
        });
        match before {
            Some(first) => Err(BadTrace::WrittenTwice {
                key: lossy(&record.key.0),
                value: lossy(&value.0),
                first: first.record,
                second: number,
            }),
            None => Ok(()),
        }
    }

    /// The client's number, after a look at whether the operation overlaps with its last one.
    fn client(&mut self, record: &Record, number: u64, finish: Option<i64>) -> Result<u64, BadTrace> {
        let Some(client) = self.clients.get_mut(&*record.client) else {
            let id = self.clients_so_far;
            self.clients_so_far += 1;
            let client = Client {
                id,
                start: finish.map_or(i64::MIN, |_| record.start_ns),
                finish: finish.unwrap_or(i64::MIN),
                record: number,
            };
            self.clients.insert(record.client.as_str().into(), client);
            return Ok(id);
        };
        let Some(finish) = finish else {
            return Ok(client.id);
        };
        if record.start_ns >= client.finish {
            (client.start, client.finish, client.record) = (record.start_ns, finish, number);
        } else if record.pipelined {
            client.finish = client.finish.max(finish);
        } else if finish > client.start {
            return Err(BadTrace::Overlap {
                client: record.client.clone(),
                first: client.record,
                second: number,
            });
        }
        Ok(client.id)
    }

    fn site(&mut self, name: &str) -> u16 {
        let place = match self.sites.get_index_of(name) {
            Some(place) => place,
            None if self.sites.len() < MOST_SITES => self.sites.insert_full(name.into()).0,
            None => self.sites.insert_full("others".into()).0,
        };
        u16::try_from(place).expect("sites are few")
    }

    /// Puts an operation to its key.
    fn put(&mut self, record: &Record, mut done: Done) {
        let cut = self.cut();
        let (place, is_new) = self.keys.place(&record.key.0);
        let key = self.keys.at(place);
        // An unknown write has no finish.
        let seen = match record.status {
            Status::Ok => done.finish,
            Status::Fail | Status::Unknown => done.start,
        };
        if is_new {
            (key.name, key.seen) = (record.key.0[..].into(), seen);
        }
        key.seen = key.seen.max(seen);
        if let Some(value) = &record.value {
            let (value, is_new) = key.values.place(&value.0);
            self.held += usize::from(is_new);
            done.value = value;
            let known = key.values.at(value);
            known.seen = if is_new { seen } else { known.seen.max(seen) };
            if done.is_write {
                known.writer = known.writer.or(record.status, done);
            }
        }
        if record.status == Status::Ok && done.finish >= cut {
            key.operations.push(done);
            self.held += 1;
            self.leaving.put(place, &mut key.leaves_at, done.finish);
        } else if record.status == Status::Ok {
            key.is_last(done.value);
        }
        self.forgetting.put(place, &mut key.forgets_at, seen);
        if !std::mem::replace(&mut key.is_changed, true) {
            self.changed.push(place);
        }
    }

    /// Lets operations go that are before the window: those of steps that are over, or all of them.
    fn leave(&mut self, is_over: bool) {
        let cut = self.cut();
        let mut again = Vec::new();
        while let Some((step, keys)) = self.leaving.pop(cut, is_over) {
            for place in keys {
                let key = self.keys.at(place);
                if key.leaves_at != Some(step) {
                    continue;
                }
                key.leaves_at = None;
                let before = key.operations.len();
                let least = key.leave(cut);
                let left = before - key.operations.len();
                self.held -= left;
                if left > 0 && !std::mem::replace(&mut key.is_changed, true) {
                    self.changed.push(place);
                }
                again.extend(least.map(|least| (place, least)));
            }
        }
        for (place, least) in again {
            self.leaving
                .put(place, &mut self.keys.entries[place as usize].leaves_at, least);
        }
    }

    /// Forgets values, keys and clients that were last seen too long ago.
    fn forget(&mut self) {
        let horizon = self.horizon();
        if self.forgetting.first_end().is_none_or(|end| end > horizon) {
            return;
        }
        // No operation stays behind whose value is forgotten.
        self.leave(false);
        let mut again = Vec::new();
        while let Some((step, keys)) = self.forgetting.pop(horizon, true) {
            for place in keys {
                let key = self.keys.at(place);
                if key.forgets_at != Some(step) {
                    continue;
                }
                key.forgets_at = None;
                if key.operations.is_empty() && key.seen < horizon {
                    self.held -= key.values.places.len();
                    let name = std::mem::take(&mut key.name);
                    self.keys.remove(&name);
                    continue;
                }
                let last = key.last;
                let is_wanted = |value, known: &Known| known.seen >= horizon || last == Some(value);
                self.held -= key.values.retain(is_wanted);
                again.push((place, key.least_seen()));
            }
        }
        for (place, least) in again {
            self.forgetting
                .put(place, &mut self.keys.entries[place as usize].forgets_at, least);
        }
        self.clients.retain(|_, client| client.finish >= horizon);
        let keys = &self.keys.entries;
        self.changed.retain(|&place| keys[place as usize].is_changed);
        self.changed.sort_unstable();
        self.changed.dedup();
    }

    /// Drops what is oldest as long as there is too much.
    fn shrink(&mut self) {
        while self.held > self.limits.most_operations || self.keys.places.len() > self.limits.most_keys {
            let cut = self.cut();
            match (self.forgetting.first_end(), self.leaving.first_end()) {
                (Some(end), _) if end <= cut => {
                    self.horizon_floor = self.horizon_floor.max(end);
                    self.forget();
                }
                (_, Some(end)) => {
                    self.cut_floor = self.cut_floor.max(end);
                    self.leave(true);
                }
                (Some(end), None) => {
                    // Only values are left, and they are newer than the window's beginning.
                    self.cut_floor = self.cut_floor.max(end);
                }
                (None, None) => break,
            }
        }
    }
}

impl Writer {
    fn write(&self) -> Option<&Done> {
        match self {
            Writer::Unknown(done) | Writer::Certain(done) => Some(done),
            Writer::Unseen | Writer::Failed => None,
        }
    }

    /// After one more write of the value.
    fn or(self, status: Status, done: Done) -> Writer {
        match (self, status) {
            (Writer::Unseen | Writer::Failed, Status::Ok) => Writer::Certain(done),
            (Writer::Unseen | Writer::Failed, Status::Unknown) => Writer::Unknown(done),
            (Writer::Unseen, Status::Fail) => Writer::Failed,
            (same, _) => same,
        }
    }
}

impl Key {
    /// Takes out what was over before the cut; says when the first of the rest was.
    fn leave(&mut self, cut: i64) -> Option<i64> {
        let gone = |done: &Done| done.finish < cut;
        let writes: Vec<u32> = self
            .operations
            .iter()
            .filter(|done| gone(done) && done.is_write)
            .map(|done| done.value)
            .collect();
        for value in writes {
            self.is_last(value);
        }
        self.operations.retain(|done| !gone(done));
        self.operations.iter().map(|done| done.finish).min()
    }

    /// An acknowledged write is before the window, and perhaps the last.
    fn is_last(&mut self, value: u32) {
        let when = |value: u32| {
            let write = self.values.entries[value as usize].writer.write();
            write.map(|write| (write.finish, write.start, write.record))
        };
        if self.last.is_none_or(|last| when(last) < when(value)) {
            self.last = Some(value);
        }
    }

    /// When the next value, or the key, was last seen.
    fn least_seen(&self) -> i64 {
        let values = self.values.places.values();
        let values = values.filter(|&&value| self.last != Some(value));
        let seen = values.map(|&value| self.values.entries[value as usize].seen);
        seen.min().unwrap_or(self.seen)
    }

    fn judge(&self, cut: i64) -> Judged {
        let mut part = Part::new(self.values.entries.len());
        let mut unexplained_reads = 0;
        for done in &self.operations {
            let known = self.values.entries.get(done.value as usize);
            match known.map(|known| &known.writer) {
                Some(Writer::Unseen) => unexplained_reads += 1,
                Some(Writer::Unknown(write)) => part.put_with(done, Some(write)),
                Some(Writer::Certain(write)) => {
                    part.put_with(done, Some(write).filter(|write| write.finish < cut))
                }
                Some(Writer::Failed) | None => part.put_with(done, None),
            }
        }
        if part.history.operations.is_empty() {
            return Judged {
                unexplained_reads,
                ..Judged::default()
            };
        }
        if let Some(Writer::Certain(write)) = self.last.map(|last| self.values.entries[last as usize].writer)
        {
            part.carry(&write);
        }
        part.judge(unexplained_reads)
    }
}

/// The part of a key's trace that is judged, as a history of one key.
struct Part {
    history: History,
    /// The operations as they were taken in, in the same order.
    done: Vec<Done>,
    /// For each of the key's values its place in the history.
    values: Vec<Option<Value>>,
    carried: u64,
}

impl Part {
    fn new(values: usize) -> Part {
        let key = KeyHistory {
            name: bytes::Bytes::new(),
            values: vec![None],
            writers: vec![None],
            versions: Vec::new(),
            has_unknown_writes: false,
        };
        Part {
            history: History {
                keys: vec![key],
                ..History::default()
            },
            done: Vec::new(),
            values: vec![None; values],
            carried: 0,
        }
    }

    /// Puts an operation in, and the write of its value, if that is before the window.
    fn put_with(&mut self, done: &Done, write: Option<&Done>) {
        if let Some(write) = write {
            self.carry(write);
        }
        self.put(done);
    }

    /// Puts in a write from before the window, once.
    fn carry(&mut self, write: &Done) {
        if self.values[write.value as usize].is_none() {
            self.carried += 1;
            self.put(write);
        }
    }

    fn put(&mut self, done: &Done) {
        let (key, place) = (&mut self.history.keys[0], self.done.len());
        let value = match self.values.get_mut(done.value as usize) {
            None => Value::INITIAL,
            Some(value) => *value.get_or_insert_with(|| {
                key.values.push(None);
                key.writers.push(None);
                Value::at(u32::try_from(key.values.len() - 1).expect("limits are far below"))
            }),
        };
        if done.is_write {
            key.writers[value.index()] = Some(place);
        }
        self.history.operations.push(Operation {
            client: 0,
            key: 0,
            kind: match (done.is_write, done.finish) {
                (false, _) => Kind::Read,
                (true, i64::MAX) => Kind::UnknownWrite,
                (true, _) => Kind::Write,
            },
            value,
            start: done.start,
            finish: done.finish,
            site: done.site,
            record: done.record,
        });
        self.done.push(*done);
    }

    fn judge(&self, unexplained_reads: u64) -> Judged {
        let zones = Zones::of(&self.history);
        let zones = &zones[0];
        let (ryw, mr) = self.own_violations();
        Judged {
            operations: zones.operations(),
            carried: self.carried,
            removed: zones.removed(),
            gamma_ns: zones.gamma(),
            phantom_reads: zones.phantom_reads,
            future_reads: zones.future_reads,
            unexplained_reads,
            ryw,
            mr,
            sites: self.sites(),
        }
    }

    fn sites(&self) -> Vec<(u16, SiteMetrics)> {
        let mut sites: BTreeMap<u16, SiteMetrics> = BTreeMap::new();
        for done in &self.done {
            let of_site = sites.entry(done.site).or_default();
            of_site.operations += 1;
            of_site.reads += u64::from(!done.is_write);
        }
        each_stale_read(&self.history, &Order::of(&self.history), |place, ns| {
            let of_site = sites.entry(self.done[place].site).or_default();
            of_site.stale_reads += 1;
            of_site.max_staleness_ns = of_site.max_staleness_ns.max(ns);
        });
        sites.into_iter().collect()
    }

    /// Reads that are known older than what their own client wrote to the key before (read your writes), or read before
    /// (monotonic reads): see [`crate::session_violations`].
    fn own_violations(&self) -> (u64, u64) {
        let by_effect = Order::of(&self.history);
        let mut order: Vec<usize> = (0..self.done.len()).collect();
        order.sort_unstable_by_key(|&place| {
            let done = &self.done[place];
            (done.client, done.start, done.finish, done.record)
        });
        let (mut ryw, mut mr) = (0, 0);
        for session in order.chunk_by(|&a, &b| self.done[a].client == self.done[b].client) {
            let (mut written, mut read) = (i64::MIN, i64::MIN);
            for &place in session {
                let operation = &self.history.operations[place];
                match operation.kind {
                    Kind::UnknownWrite => {}
                    Kind::Write => written = written.max(operation.start),
                    Kind::Read if !is_sensible(&self.history, operation) => {}
                    Kind::Read => {
                        let effect = by_effect.effect(operation);
                        ryw += u64::from(effect < written);
                        mr += u64::from(effect < read);
                        let source = self.history.writer_of(operation);
                        read = read.max(source.map_or(i64::MIN, |write| write.start));
                    }
                }
            }
        }
        (ryw, mr)
    }
}

/// Whether the record writes; else it reads.
fn is_write(record: &Record, number: u64) -> Result<bool, BadTrace> {
    let refused = |found: &str| {
        Err(BadTrace::BadRecord {
            record: number,
            expected: "a read or a write",
            found: found.into(),
        })
    };
    match record.op {
        Op::Read => Ok(false),
        Op::Write => Ok(true),
        Op::Delete => refused("a delete"),
        Op::Snapshot => refused("a snapshot"),
    }
}

/// When it was over; `i64::MAX`, which nothing else is, if nobody knows.
fn finish(record: &Record, number: u64) -> Result<i64, BadTrace> {
    let bad = |expected, found| {
        Err(BadTrace::BadRecord {
            record: number,
            expected,
            found,
        })
    };
    match (record.status, record.finish_ns) {
        (Status::Fail | Status::Unknown, _) => Ok(i64::MAX),
        (Status::Ok, None) => bad(
            "the time at which an answered operation was over (finish_ns)",
            "none".into(),
        ),
        (Status::Ok, Some(finish)) if finish < record.start_ns => bad(
            "an operation that is over after it began",
            format!("{} to {finish}", record.start_ns),
        ),
        (Status::Ok, Some(finish)) => Ok(finish.min(i64::MAX - 1)),
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned()
}
