//! Records become operations: names become numbers, and what does not count is left out.
//!
//! # Deletes
//!
//! A delete writes a *tombstone*. It is a value like any other, except that a read shows it as nothing. Only the version of a read of
//! nothing tells which tombstone it has seen:
//!
//! | record | treatment |
//! |---|---|
//! | a delete with a version | writes the tombstone of that version |
//! | a second delete with the same version | read that tombstone: there was no value to delete, and the store wrote nothing |
//! | a delete without version, of a store that names versions | read the initial value, in the same way |
//! | a read of nothing, with a version | read the tombstone of that version; a phantom if no delete wrote it |
//! | a read of nothing, without version | read the initial value; in doubt if the first delete had begun before the read was over |
//!
//! Of several deletes with one version, the delete that began first is taken for the writer; the zones of the key do not depend on this choice. How
//! many replicas had stored its tombstone is not known then: one is assumed. A
//! read in doubt may have seen a delete that the store has forgotten: it is left out, and counted in [`History::doubtful_reads`]. Leaving out a
//! read never makes a correct trace incorrect. A key is *not auditable*, and all its operations are left out, if the doubt is about a write:
//! a delete without version in a trace without versions; tombstones that several deletes of unknown outcome could have written.
//!
//! # Values from before the trace
//!
//! A value that no record wrote is a phantom: the store made it up. That is so only if the keyspace was empty when the trace
//! began. If it may have had data ([`HistoryBuilder::on_existing_data`]), such a value counts as one from before the trace. Then a
//! write of it is added behind the operations of the trace ([`Operation::is_from_before`]): it began before everything, and its outcome
//! is unknown, so that it may take effect at any time until its first read is over. It contradicts nothing by itself. What its reads
//! contradict would be contradicted wherever that write is put.
//!
//! If the trace has the value's write and says that it failed, the value is a phantom in any case.
//!
//! # Versions
//!
//! A value and its version are one to one within a key. Where they are not, the record that comes later is noted in
//! [`History::findings`], and the earlier one is used.
use crate::{
    BadTrace, Finding, History, KeyHistory, Kind, NotAuditable, Operation, Promised, Receipt, Value, Version,
    taken_away::only_puts,
    version::{VersionNames, parse_stamp},
};
use bytes::Bytes;
use indexmap::IndexMap;
use std::{
    collections::{HashMap, HashSet},
    hash::RandomState,
    num::NonZeroU8,
    ops::Range,
};
use turnbuckle_workload::{Claim, Op, Record, SnapshotRead, Status};

/// Takes records in, in any order.
#[derive(Debug, Default)]
pub struct HistoryBuilder {
    clients: Names,
    recorders: Names,
    sites: Names,
    levels: Names,
    recorder_of: Vec<Option<u32>>,
    keys: IndexMap<Bytes, KeyBuilder, RandomState>,
    operations: Vec<Operation>,
    promises: Vec<Promised>,
    findings: Vec<Finding>,
    /// Deletes that removed a value: places among the operations.
    took_away: Vec<usize>,
    /// Deletes that are taken for the writers of their tombstones, although another delete may have written them: places among the operations.
    guessed_writers: HashSet<u32>,
    version_names: VersionNames,
    /// Records that were sent before the client's last operation was answered.
    pipelined: HashSet<u64>,
    records: u64,
    /// A value that no record wrote may be one from before the trace.
    is_on_existing_data: bool,
}

/// Names, each with a number.
#[derive(Debug, Default)]
struct Names(IndexMap<String, (), RandomState>);

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        let place = match self.0.get_index_of(name) {
            Some(place) => place,
            None => self.0.insert_full(name.to_owned(), ()).0,
        };
        place as u32
    }

    fn into_vec(self) -> Vec<String> {
        self.0.into_keys().collect()
    }
}

#[derive(Debug, Default)]
struct KeyBuilder {
    /// The values of the key, after the initial value.
    values: IndexMap<Bytes, Written, RandomState>,
    has_unknown_writes: bool,
    /// Reads that returned nothing and name no version.
    bare_reads: u64,
    /// When the key's first delete began, if there is one.
    first_delete: Option<i64>,
    /// Data that only few keys have.
    extras: Option<Box<Extras>>,
}

/// What is known of a value's write so far.
#[derive(Debug, Default)]
struct Written {
    /// Its place among the operations.
    by: Option<usize>,
    is_read: bool,
    /// Of a tombstone: the delete that is taken for its writer was sent to the site that its version names.
    at_home: bool,
}

/// Versions, deletes and failures of a key.
#[derive(Debug, Default)]
struct Extras {
    /// What each version stands for, and the record that said so.
    meaning: HashMap<Version, (Value, u64)>,
    /// For each value, by its place, the version and the record that named it.
    versions: HashMap<Value, (Version, u64)>,
    /// By version.
    tombstones: IndexMap<Version, Written, RandomState>,
    /// Acknowledged deletes that say nothing about a version.
    bare_deletes: u64,
    /// Deletes that may have happened: their places among the operations.
    unknown_deletes: Vec<usize>,
    /// Values of writes that failed, and their records.
    failed: HashMap<Bytes, u64>,
}

/// While a trace is read, tombstones are counted from here on: where they will be is known when all values are.
const TOMBSTONES: u32 = 1 << 31;
/// The value of an acknowledged delete without version.
const BARE_DELETE: u32 = u32::MAX;
/// The value of a delete that may have happened.
const UNKNOWN_DELETE: u32 = u32::MAX - 1;
/// Stands for all sites beyond the largest number of sites that are told apart.
const MAX_SITES: u32 = 1 << 10;

/// What an operation is, before its value is known.
#[derive(Clone, Copy)]
struct Draft {
    record: u64,
    client: u32,
    site: u16,
    start: i64,
    finish: i64,
    status: Status,
    has_receipt: bool,
}

impl HistoryBuilder {
    /// Nothing yet.
    pub fn new() -> HistoryBuilder {
        HistoryBuilder::default()
    }

    /// The keyspace may have had data when the trace began. Without this, a value that no record wrote is a phantom.
    pub fn on_existing_data(self) -> HistoryBuilder {
        HistoryBuilder {
            is_on_existing_data: true,
            ..self
        }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`BadTrace`], with this record's number.
    pub fn add(&mut self, record: &Record) -> Result<(), BadTrace> {
        let number = self.records;
        self.records += 1;
        if record.pipelined {
            self.pipelined.insert(number);
        }
        let before = self.operations.len() as u32;
        let contradictions = self.findings.len();
        if let Some(finish) = finish_of(record, number)? {
            let client = self.client(record);
            let draft = Draft {
                record: number,
                client,
                site: self.site(&record.site),
                start: record.start_ns,
                finish,
                status: record.status,
                has_receipt: record.receipt.is_some(),
            };
            match record.op {
                Op::Read => {
                    let value = record.value.as_ref().map(|value| &value.0);
                    self.read(draft, &record.key.0, value, &record.version);
                }
                Op::Write => self.write(draft, record)?,
                Op::Delete => self.delete(draft, record),
                Op::Snapshot => self.snapshot(draft, record)?,
            }
        } else if record.op == Op::Write && record.status == Status::Fail {
            self.failed(record, number);
        }
        let is_contradicted = self.findings.len() > contradictions;
        self.promise(record, number, before, is_contradicted);
        Ok(())
    }

    fn client(&mut self, record: &Record) -> u32 {
        let recorder = self
            .recorders
            .number(record.recorder.as_deref().unwrap_or_default());
        let client = self.clients.number(&record.client);
        match self.recorder_of.get_mut(client as usize) {
            Some(known) if *known != Some(recorder) => *known = None,
            Some(_) => {}
            None => self.recorder_of.push(Some(recorder)),
        }
        client
    }

    fn site(&mut self, name: &str) -> u16 {
        let is_full = self.sites.0.len() >= MAX_SITES as usize && !self.sites.0.contains_key(name);
        self.sites.number(if is_full { "(others)" } else { name }) as u16
    }

    fn promise(&mut self, record: &Record, number: u64, before: u32, is_contradicted: bool) {
        if record.level.is_none() && record.receipt.is_none() {
            return;
        }
        let names_version =
            record.version.is_some() || record.reads.iter().flatten().any(|read| read.version.is_some());
        let mut receipt = |claim: &Claim| Receipt {
            asked: self.levels.number(&claim.asked),
            given: self.levels.number(&claim.given),
            contradicts: names_version.then_some(is_contradicted),
            staleness_us: claim.staleness_us,
            covers: claim.covers.map_or(1, NonZeroU8::get),
            copies: match record.status {
                Status::Ok => claim.copies.map_or(1, NonZeroU8::get),
                Status::Fail | Status::Unknown => 1,
            },
            as_of: claim.as_of.as_deref().and_then(parse_stamp),
        };
        let receipt = record.receipt.as_ref().map(&mut receipt);
        let level = record.level.as_ref().map(|level| self.levels.number(level));
        let operations = before..self.operations.len() as u32;
        self.promises.push(Promised {
            record: number,
            parts: operations.len().max(1) as u32,
            operations,
            level,
            receipt,
        });
    }

    fn key(&mut self, name: &Bytes) -> (u32, &mut KeyBuilder) {
        let place = match self.keys.get_index_of(name) {
            Some(place) => place,
            None => self.keys.insert_full(name.clone(), KeyBuilder::default()).0,
        };
        (place as u32, &mut self.keys[place])
    }

    fn push(&mut self, draft: Draft, key: u32, kind: Kind, value: Value) {
        self.operations.push(Operation {
            client: draft.client,
            key,
            value,
            site: draft.site,
            kind,
            start: draft.start,
            finish: draft.finish,
            record: draft.record,
        });
    }

    fn read(&mut self, draft: Draft, name: &Bytes, value: Option<&Bytes>, version: &Option<String>) {
        let version = version.as_ref().map(|version| self.version_names.intern(version));
        let (key, about) = self.key(name);
        let value = match (value, version) {
            (Some(value), _) => {
                let (value, written) = about.value(value);
                written.is_read = true;
                value
            }
            (None, Some(version)) => {
                let (tombstone, written) = about.tombstone(version);
                written.is_read = true;
                tombstone
            }
            (None, None) => {
                about.bare_reads += 1;
                Value::INITIAL
            }
        };
        let finding = version.and_then(|version| about.pair(name, value, version, draft.record));
        self.findings.extend(finding);
        self.push(draft, key, Kind::Read, value);
    }

    fn write(&mut self, draft: Draft, record: &Record) -> Result<(), BadTrace> {
        let Some(bytes) = &record.value else {
            return Err(BadTrace::BadRecord {
                record: draft.record,
                expected: "the value that was written",
                found: "null".into(),
            });
        };
        let version = record
            .version
            .as_ref()
            .map(|version| self.version_names.intern(version));
        let place = self.operations.len();
        let (key, about) = self.key(&record.key.0);
        let (value, written) = about.value(&bytes.0);
        if let Some(first) = written.by {
            return Err(BadTrace::WrittenTwice {
                key: lossy(&record.key.0),
                value: lossy(&bytes.0),
                first: self.operations[first].record,
                second: draft.record,
            });
        }
        written.by = Some(place);
        about.has_unknown_writes |= draft.status == Status::Unknown;
        let finding = version.and_then(|version| about.pair(&record.key.0, value, version, draft.record));
        self.findings.extend(finding);
        self.push(draft, key, write_kind(draft.status), value);
        Ok(())
    }

    fn delete(&mut self, draft: Draft, record: &Record) {
        let version = record
            .version
            .as_ref()
            .map(|version| self.version_names.intern(version));
        let place = self.operations.len();
        let at_home = record
            .version
            .as_ref()
            .and_then(|version| version.rsplit_once('@'))
            .is_some_and(|(_, site)| site == record.site);
        let (key, about) = self.key(&record.key.0);
        about.has_unknown_writes |= draft.status == Status::Unknown;
        let (mut kind, mut demoted) = (write_kind(draft.status), None);
        let value = match (version, draft.status) {
            (_, Status::Unknown) => {
                about.extras().unknown_deletes.push(place);
                Value::at(UNKNOWN_DELETE)
            }
            (Some(version), _) => {
                let (tombstone, written) = about.tombstone(version);
                let first_at_home = std::mem::replace(&mut written.at_home, at_home);
                if let Some(first) = written.by.replace(place) {
                    written.is_read = true;
                    written.at_home |= first_at_home;
                    // Only the site that a version names has stamped it. If both deletes were sent there, or neither, the one that began first is the writer.
                    let writer = (first_at_home != at_home).then_some(if at_home { place } else { first });
                    demoted = Some((first, writer));
                }
                let finding = about.pair(&record.key.0, tombstone, version, draft.record);
                self.findings.extend(finding);
                tombstone
            }
            (None, _) if draft.has_receipt => {
                about.bare_reads += 1;
                kind = Kind::Read;
                Value::INITIAL
            }
            (None, _) => {
                about.extras().bare_deletes += 1;
                Value::at(BARE_DELETE)
            }
        };
        self.push(draft, key, kind, value);
        if record.existed && draft.status == Status::Ok {
            self.took_away.push(place);
        }
        if let Some((first, writer)) = demoted {
            self.keep_one_delete(first, place, writer);
        }
    }

    /// Of two deletes that answered with one tombstone, one wrote it and the other read it. If nothing else is known, the one that began
    /// first wrote it.
    fn keep_one_delete(&mut self, first: usize, second: usize, writer: Option<usize>) {
        let began = |place: usize| (self.operations[place].start, place);
        let earlier = match began(first) <= began(second) {
            true => first,
            false => second,
        };
        if writer.is_none() {
            self.guessed_writers.insert(earlier as u32);
        }
        let writer = writer.unwrap_or(earlier);
        let reader = if writer == first { second } else { first };
        self.operations[reader].kind = Kind::Read;
        let Operation { key, value, .. } = self.operations[writer];
        let tombstones = &mut self.keys[key as usize].extras().tombstones;
        tombstones[(value.index() as u32 - TOMBSTONES) as usize].by = Some(writer);
    }

    fn snapshot(&mut self, draft: Draft, record: &Record) -> Result<(), BadTrace> {
        let Some(reads) = &record.reads else {
            return Err(BadTrace::BadRecord {
                record: draft.record,
                expected: "the keys that a snapshot read (reads)",
                found: "none".into(),
            });
        };
        let mut seen: HashMap<&Bytes, &SnapshotRead> = HashMap::with_capacity(reads.len());
        for read in reads {
            match seen.insert(&read.key.0, read) {
                Some(before) if before == read => continue,
                Some(_) => self.findings.push(Finding::TornSnapshot {
                    key: read.key.0.clone(),
                    record: draft.record,
                }),
                None => {}
            }
            let value = read.value.as_ref().map(|value| &value.0);
            self.read(draft, &read.key.0, value, &read.version);
        }
        Ok(())
    }

    /// A write that was certainly not done.
    fn failed(&mut self, record: &Record, number: u64) {
        if let Some(value) = &record.value {
            let (_, about) = self.key(&record.key.0);
            about.extras().failed.entry(value.0.clone()).or_insert(number);
        }
    }

    /// All records are in.
    ///
    /// # Errors
    /// [`BadTrace::Overlap`].
    pub fn finish(mut self) -> Result<History, BadTrace> {
        let first_read = self.first_reads_of_tombstones();
        self.disown_tombstones(&first_read);
        self.find_first_deletes();
        let taken_away = self.taken_away();
        let mut outcomes: Vec<Outcome> = self.keys.values().map(KeyBuilder::outcome).collect();
        if self.is_on_existing_data {
            self.disown_early_tombstones(&first_read, &mut outcomes);
        }
        self.see_failed_writes();
        let kept_before = self.renumber(&mut outcomes);
        let place_of = |old: usize| {
            let (place, next) = (kept_before[old], kept_before[old + 1]);
            (place < next).then_some(place as usize)
        };
        let (mut keys, mut not_auditable, mut from_before) = (Vec::new(), Vec::new(), Vec::new());
        for ((name, about), outcome) in std::mem::take(&mut self.keys).into_iter().zip(&outcomes) {
            match outcome.not_auditable {
                // A key of failed writes alone says nothing.
                None if about.is_silent() => {}
                None => {
                    let unwritten = about.unwritten_values(outcome).into_iter();
                    from_before.extend(unwritten.map(|value| (keys.len() as u32, value)));
                    keys.push(about.into_history(name, outcome, &place_of));
                }
                Some(reason) => not_auditable.push(NotAuditable {
                    key: name,
                    reason,
                    operations: outcome.left_out,
                }),
            }
        }
        let doubtful_reads = outcomes.iter().map(|outcome| outcome.doubtful_reads).sum();
        not_auditable.sort_by(|one, other| one.key.cmp(&other.key));
        for promise in &mut self.promises {
            let Range { start, end } = promise.operations;
            if let Some(receipt) = &mut promise.receipt
                && self.guessed_writers.contains(&start)
            {
                receipt.copies = 1;
            }
            promise.operations = kept_before[start as usize]..kept_before[end as usize];
        }
        let mut history = History {
            clients: self.clients.into_vec(),
            recorder_of: self.recorder_of,
            recorders: self.recorders.into_vec(),
            sites: self.sites.into_vec(),
            levels: self.levels.into_vec(),
            keys,
            not_auditable,
            doubtful_reads,
            operations: self.operations,
            taken_away: taken_away
                .into_iter()
                .filter_map(|(delete, put)| Some((place_of(delete)?, place_of(put)?)))
                .collect(),
            promises: self.promises,
            findings: self.findings,
            version_names: self.version_names,
        };
        history.check_sessions(&self.pipelined)?;
        if self.is_on_existing_data {
            add_from_before(&mut history, &from_before);
        }
        Ok(history)
    }
}

/// Adds a write from before the trace for each of these keys and values, where a read that counts has returned it.
fn add_from_before(history: &mut History, unwritten: &[(u32, Value)]) {
    if unwritten.is_empty() {
        return;
    }
    let reads = history.operations.iter();
    let reads = reads.filter(|operation| operation.kind == Kind::Read);
    let is_read: HashSet<(u32, Value)> = reads.map(|read| (read.key, read.value)).collect();
    let client = history.clients.len() as u32;
    for &(key, value) in unwritten.iter().filter(|it| is_read.contains(it)) {
        history.keys[key as usize].writers[value.index()] = Some(history.operations.len());
        history.operations.push(Operation {
            client,
            key,
            value,
            // None that has a name.
            site: u16::MAX,
            kind: Kind::UnknownWrite,
            start: i64::MIN,
            finish: i64::MAX,
            record: Operation::NO_RECORD,
        });
    }
    if history.recorded() < history.operations.len() {
        history.clients.push("before the trace".into());
        history.recorder_of.push(Some(0));
    }
}

impl HistoryBuilder {
    /// By key and tombstone, when the first read of it was over.
    fn first_reads_of_tombstones(&self) -> HashMap<(u32, Value), i64> {
        let mut first_read: HashMap<(u32, Value), i64> = HashMap::new();
        for read in &self.operations {
            let is_tombstone = (TOMBSTONES..UNKNOWN_DELETE).contains(&(read.value.index() as u32));
            if read.kind == Kind::Read && is_tombstone {
                let first = first_read.entry((read.key, read.value)).or_insert(i64::MAX);
                *first = (*first).min(read.finish);
            }
        }
        first_read
    }

    /// A tombstone that was read before the delete that answered with it began is that of a delete of unknown outcome: this one
    /// found no value to delete.
    fn disown_tombstones(&mut self, first_read: &HashMap<(u32, Value), i64>) {
        for (&(key, value), &first) in first_read {
            let Some(extras) = self.keys[key as usize].extras.as_deref_mut() else {
                continue;
            };
            if extras.unknown_deletes.is_empty() {
                continue;
            }
            let written = &mut extras.tombstones[(value.index() as u32 - TOMBSTONES) as usize];
            if let Some(by) = written.by.filter(|&by| self.operations[by].start > first) {
                written.by = None;
                self.operations[by].kind = Kind::Read;
            }
        }
    }

    /// A tombstone that was read before the one delete of unknown outcome began is not that delete's: it is from before the trace.
    fn disown_early_tombstones(&self, first_read: &HashMap<(u32, Value), i64>, outcomes: &mut [Outcome]) {
        for (key, (about, outcome)) in self.keys.values().zip(outcomes).enumerate() {
            let (Some(found), Some(extras)) = (outcome.found, &about.extras) else {
                continue;
            };
            let first = first_read.get(&(key as u32, Value::at(TOMBSTONES + found)));
            let is_later = |&place: &usize| first.is_some_and(|&first| self.operations[place].start > first);
            if extras.unknown_deletes.iter().all(is_later) {
                outcome.found = None;
            }
        }
    }

    /// A read of nothing without version that was over before the first delete of its key began read the initial value: there is no
    /// doubt. If there are several clocks, it is not known which came first.
    fn find_first_deletes(&mut self) {
        let have_clocks_in_common = self.recorders.0.len() <= 1;
        for delete in &self.operations {
            let is_delete = (TOMBSTONES..BARE_DELETE).contains(&(delete.value.index() as u32));
            if delete.kind != Kind::Read && is_delete {
                let start = if have_clocks_in_common {
                    delete.start
                } else {
                    i64::MIN
                };
                let first = self.keys[delete.key as usize].first_delete.get_or_insert(start);
                *first = (*first).min(start);
            }
        }
    }

    /// Each delete with the put whose value it can have deleted, if only one put is possible.
    fn taken_away(&mut self) -> Vec<(usize, usize)> {
        let found = self.took_away.iter().copied();
        let found = found.filter(|&delete| {
            let operation = &self.operations[delete];
            let mut values = self.keys[operation.key as usize].values.values();
            // A value that was read and that no record wrote may have been there.
            operation.kind == Kind::Write && values.all(|written| written.by.is_some())
        });
        let is_put = |operation: &Operation| {
            operation.kind != Kind::Read && (operation.value.index() as u32) < TOMBSTONES
        };
        let have_clocks_in_common = self.recorders.0.len() <= 1;
        let taken_away = only_puts(&self.operations, found.collect(), is_put, have_clocks_in_common);
        for &(_, put) in &taken_away {
            let Operation { key, value, .. } = self.operations[put];
            self.keys[key as usize].values[value.index() - 1].is_read = true;
        }
        taken_away
    }

    /// Notes reads of values that only failed writes had written.
    fn see_failed_writes(&mut self) {
        let failed = |about: &KeyBuilder| {
            about
                .extras
                .as_ref()
                .is_some_and(|extras| !extras.failed.is_empty())
        };
        if !self.keys.values().any(failed) {
            return;
        }
        for read in self
            .operations
            .iter()
            .filter(|operation| operation.kind == Kind::Read)
        {
            let Some((name, about)) = self.keys.get_index(read.key as usize) else {
                continue;
            };
            let seen = about.unwritten(read.value).zip(about.extras.as_ref());
            if let Some(&write) = seen.and_then(|(value, extras)| extras.failed.get(value)) {
                self.findings.push(Finding::FailedWriteSeen {
                    key: name.clone(),
                    write,
                    read: read.record,
                });
            }
        }
    }

    /// Gives operations their last numbers, and drops those that do not count. Returns how many are kept before each place.
    fn renumber(&mut self, outcomes: &mut [Outcome]) -> Vec<u32> {
        let mut next = 0;
        for (outcome, about) in outcomes.iter_mut().zip(self.keys.values()) {
            outcome.key = next;
            next += u32::from(outcome.not_auditable.is_none() && !about.is_silent());
        }
        let (keys, mut kept, mut kept_before) =
            (&self.keys, 0, Vec::with_capacity(self.operations.len() + 1));
        self.operations.retain_mut(|operation| {
            kept_before.push(kept);
            let outcome = &mut outcomes[operation.key as usize];
            let is_judged = outcome.not_auditable.is_none();
            let about = &keys[operation.key as usize];
            let counts = about.resolve(operation, outcome);
            if is_judged && counts && about.is_in_doubt(operation) {
                outcome.doubtful_reads += 1;
                return false;
            }
            outcome.left_out += u64::from(counts && !is_judged);
            operation.key = outcome.key;
            kept += u32::from(counts && is_judged);
            counts && is_judged
        });
        kept_before.push(kept);
        kept_before
    }
}

/// How a key is treated.
#[derive(Debug)]
struct Outcome {
    not_auditable: Option<&'static str>,
    /// Its place among those that can be judged.
    key: u32,
    /// The tombstone that the one delete of unknown outcome must have written.
    found: Option<u32>,
    left_out: u64,
    doubtful_reads: u64,
}

impl KeyBuilder {
    fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    fn value(&mut self, value: &Bytes) -> (Value, &mut Written) {
        let place = match self.values.get_index_of(value) {
            Some(place) => place,
            None => self.values.insert_full(value.clone(), Written::default()).0,
        };
        (Value::at(place as u32 + 1), &mut self.values[place])
    }

    fn tombstone(&mut self, version: Version) -> (Value, &mut Written) {
        let entry = self.extras().tombstones.entry(version);
        (Value::at(TOMBSTONES + entry.index() as u32), entry.or_default())
    }

    /// Takes in that a value came with a version.
    fn pair(&mut self, key: &Bytes, value: Value, version: Version, record: u64) -> Option<Finding> {
        let extras = self.extras();
        if let Some(&(known, first)) = extras.versions.get(&value)
            && known != version
        {
            return Some(Finding::TwoVersions {
                key: key.clone(),
                first,
                second: record,
            });
        }
        let &mut (meaning, first) = extras.meaning.entry(version).or_insert((value, record));
        if meaning != value {
            return Some(Finding::TwoValues {
                key: key.clone(),
                first,
                second: record,
            });
        }
        extras.versions.entry(value).or_insert((version, record));
        None
    }

    /// The bytes of a value that no record wrote.
    fn unwritten(&self, value: Value) -> Option<&Bytes> {
        let (bytes, written) = self.values.get_index(value.index().checked_sub(1)?)?;
        written.by.is_none().then_some(bytes)
    }

    /// The values that no record wrote, by their last places. Those of writes that failed are not among them.
    fn unwritten_values(&self, outcome: &Outcome) -> Vec<Value> {
        let extras = self.extras.as_deref();
        let has_failed = |value: &Bytes| extras.is_some_and(|extras| extras.failed.contains_key(value));
        let values = (1..).zip(&self.values);
        let values = values.filter(|(_, (value, written))| written.by.is_none() && !has_failed(value));
        let tombstones = extras
            .map(|extras| extras.tombstones.values())
            .into_iter()
            .flatten();
        let tombstones = (0..).zip(tombstones);
        let tombstones =
            tombstones.filter(|(place, written)| written.by.is_none() && outcome.found != Some(*place));
        let values = values.map(|(place, _)| place);
        let tombstones = tombstones.map(|(place, _)| 1 + self.values.len() as u32 + place);
        values.chain(tombstones).map(Value::at).collect()
    }

    /// Nothing but writes that failed.
    fn is_silent(&self) -> bool {
        let has_deletes = |extras: &Extras| !extras.tombstones.is_empty() || extras.bare_deletes > 0;
        self.values.is_empty()
            && self.bare_reads == 0
            && !self.has_unknown_writes
            && !self.extras.as_deref().is_some_and(has_deletes)
    }

    fn outcome(&self) -> Outcome {
        let mut outcome = Outcome {
            not_auditable: None,
            key: 0,
            found: None,
            left_out: 0,
            doubtful_reads: 0,
        };
        let Some(extras) = &self.extras else {
            return outcome;
        };
        let orphan = |(place, written): (usize, &Written)| written.by.is_none().then_some(place as u32);
        let orphans: Vec<u32> = extras
            .tombstones
            .values()
            .enumerate()
            .filter_map(orphan)
            .collect();
        let names_versions = !extras.versions.is_empty();
        match (extras.unknown_deletes.len(), orphans.as_slice()) {
            (1, &[tombstone]) => outcome.found = Some(tombstone),
            (0, _) | (_, []) => {}
            _ => {
                outcome.not_auditable =
                    Some("it is not known which of its deletes of unknown outcome were read");
            }
        }
        if extras.bare_deletes > 0 && !names_versions {
            outcome.not_auditable = Some("it was deleted, and the trace names no versions");
        }
        outcome
    }

    /// Gives an operation its last value. Returns whether it counts.
    fn resolve(&self, operation: &mut Operation, outcome: &Outcome) -> bool {
        let tombstone = |place: u32| Value::at(1 + self.values.len() as u32 + place);
        match operation.value.index() as u32 {
            BARE_DELETE => {
                (operation.kind, operation.value) = (Kind::Read, Value::INITIAL);
                true
            }
            UNKNOWN_DELETE => {
                operation.value = outcome.found.map_or(Value::INITIAL, tombstone);
                outcome.found.is_some()
            }
            place if place >= TOMBSTONES => {
                operation.value = tombstone(place - TOMBSTONES);
                true
            }
            place => operation.kind != Kind::UnknownWrite || self.values[place as usize - 1].is_read,
        }
    }

    /// Whether it read nothing, without saying which nothing, and a delete had begun.
    fn is_in_doubt(&self, operation: &Operation) -> bool {
        let is_bare = operation.kind == Kind::Read && operation.value == Value::INITIAL;
        is_bare && self.first_delete.is_some_and(|first| operation.finish >= first)
    }

    fn into_history(
        self,
        name: Bytes,
        outcome: &Outcome,
        place_of: &impl Fn(usize) -> Option<usize>,
    ) -> KeyHistory {
        let writer = |written: &Written| place_of(written.by?);
        let mut writers: Vec<Option<usize>> = std::iter::once(None)
            .chain(self.values.values().map(writer))
            .collect();
        let mut versions = Vec::new();
        let mut tombstones = 0;
        if let Some(extras) = &self.extras {
            tombstones = extras.tombstones.len();
            writers.extend(extras.tombstones.values().map(writer));
            if let (Some(found), [delete]) = (outcome.found, extras.unknown_deletes.as_slice()) {
                writers[1 + self.values.len() + found as usize] = place_of(*delete);
            }
            if !extras.versions.is_empty() {
                let of_value = |place: usize| Some(extras.versions.get(&Value::at(place as u32))?.0);
                versions.extend((0..=self.values.len()).map(of_value));
                versions.extend(extras.tombstones.keys().copied().map(Some));
            }
        }
        let values = self.values.into_keys().map(Some);
        KeyHistory {
            name,
            writers,
            values: std::iter::once(None)
                .chain(values)
                .chain(std::iter::repeat_n(None, tombstones))
                .collect(),
            versions,
            has_unknown_writes: self.has_unknown_writes,
        }
    }
}

/// When an operation that may count was over; none for one that cannot.
fn finish_of(record: &Record, number: u64) -> Result<Option<i64>, BadTrace> {
    let is_read = matches!(record.op, Op::Read | Op::Snapshot);
    let finish = match (record.status, record.finish_ns) {
        (Status::Fail, _) => return Ok(None),
        (Status::Unknown, _) if is_read => return Ok(None),
        (Status::Unknown, _) => i64::MAX,
        (Status::Ok, Some(finish)) => finish,
        (Status::Ok, None) => {
            return Err(BadTrace::BadRecord {
                record: number,
                expected: "the time at which an answered operation was over (finish_ns)",
                found: "none".into(),
            });
        }
    };
    if finish < record.start_ns {
        return Err(BadTrace::BadRecord {
            record: number,
            expected: "an operation that is over after it began",
            found: format!("{} to {finish}", record.start_ns),
        });
    }
    Ok(Some(finish))
}

fn write_kind(status: Status) -> Kind {
    match status {
        Status::Unknown => Kind::UnknownWrite,
        Status::Ok | Status::Fail => Kind::Write,
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned()
}
