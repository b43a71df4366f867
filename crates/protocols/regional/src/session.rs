//! A client: what it has read and written of each site's writes, and whom it asks (Algorithm 4.1).
//!
//! For each partition a session keeps the places of what it has read (the paper's `hrm`), and of what it has written (`hwm`). Over all partitions it keeps the newest timestamp of each (`dt_r`, `dt_w`). The level of an operation decides which of these
//! the request carries:
//!
//! | level | a read needs | a write is stamped above |
//! |---|---|---|
//! | `session` | what was read and what was written | both |
//! | `monotonic-reads` | what was read | |
//! | `read-your-writes` | what was written | |
//! | `monotonic-writes` | | what was written |
//! | `writes-follow-reads` | | what was read |
//! | `eventual` | nothing | nothing |
//!
//! By the second of these times a replica also looks at values that expire: for a read, by what its level needs.
//!
//! A write goes to the leader of the session's site, and to no other site: if the site has no majority, it says so. A read goes to the nearest replica, and to the leader of its site if that one lacks what the session needs.
//!
//! What all sessions over a group do if a replica does not answer, or does not lead, is in [`turnbuckle_raft::asking`].
use crate::config::NukvConfig;
use crate::reads::missing;
use crate::replica::Nukv;
use crate::request::{MAX_EPOCHS, Outcome, Request, Response, put_places, take_places};
use crate::sites::Place;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use turnbuckle_core::{
    Answer, BadFrame, BadToken, Change, Failure, Hlc, Level, Levels, Micros, Operation, PlainRequest, Proof,
    Receipt, ReplicaSet, ServerId, Session, SessionContext, SessionId, SiteId, Topology,
};
use turnbuckle_raft::asking::{self, Known, Operations, Part, Timer, Wants};

const READS: &[Level] = &[
    Level::Session,
    Level::ReadYourWrites,
    Level::MonotonicReads,
    Level::Eventual,
];

const WRITES: &[Level] = &[
    Level::Session,
    Level::MonotonicWrites,
    Level::WritesFollowReads,
    Level::Eventual,
];

/// How long a session waits before it asks again, while there is no leader.
const PAUSE: Micros = Micros::from_millis(25);

/// What all sessions of a gateway know together.
#[derive(Debug, Default)]
pub struct Shared {
    groups: BTreeMap<(u16, SiteId), Known>,
}

/// A client of a regional keyspace.
pub struct NukvSession {
    topology: Topology,
    home: SiteId,
    drops_dependency: bool,
    waits: bool,
    /// The operations under way.
    open: Operations<Change>,
    seen: Seen,
}

/// What a session has seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Seen {
    /// Of each partition.
    partitions: BTreeMap<u16, Rows>,
    /// The newest time that it has read, of a version or of a value that it has seen expired; and the newest timestamp that it has written.
    read: Hlc,
    written: Hlc,
}

/// What a session has read and written in a partition: of each site and epoch, the newest timestamp.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Rows {
    read: BTreeMap<(SiteId, Hlc), Hlc>,
    written: BTreeMap<(SiteId, Hlc), Hlc>,
}

fn raise(row: &mut BTreeMap<(SiteId, Hlc), Hlc>, site: SiteId, place: Place) {
    let known = row.entry((site, place.epoch)).or_default();
    *known = place.at.max(*known);
    // Replicas do not remember older epochs, either.
    let epochs = (site, Hlc::ZERO)..=(site, Hlc(u64::MAX));
    if row.range(epochs.clone()).count() > MAX_EPOCHS {
        let oldest = row.range(epochs).map(|(&place, _)| place);
        if let Some(oldest) = oldest.filter(|&(_, epoch)| epoch > Hlc::ZERO).min() {
            row.remove(&oldest);
        }
    }
}

fn places(row: &BTreeMap<(SiteId, Hlc), Hlc>) -> Vec<(SiteId, Place)> {
    let places = row.iter();
    places
        .map(|(&(site, epoch), &at)| (site, Place { epoch, at }))
        .collect()
}

/// The level at which a write reads if its outcome tells of the version before it ([`Change::reads`]). The leader must have what the session has read and written, unless the
/// session asks for nothing.
fn reads_at(level: Level) -> Level {
    match level {
        Level::Eventual => Level::Eventual,
        _ => Level::Session,
    }
}

impl Seen {
    /// What a replica must have, to read a key of the partition at this level; of a write that waits, to write it.
    fn needs(&self, level: Level, partition: u16) -> Vec<(SiteId, Place)> {
        let Some(rows) = self.partitions.get(&partition) else {
            return Vec::new();
        };
        let (reads, writes) = match level {
            Level::MonotonicReads | Level::WritesFollowReads => (true, false),
            Level::ReadYourWrites | Level::MonotonicWrites => (false, true),
            Level::Session => (true, true),
            _ => (false, false),
        };
        match (reads, writes) {
            (true, false) => places(&rows.read),
            (false, true) => places(&rows.written),
            (true, true) => {
                let mut both = rows.read.clone();
                for (&(site, epoch), &at) in &rows.written {
                    raise(&mut both, site, Place { epoch, at });
                }
                places(&both)
            }
            (false, false) => Vec::new(),
        }
    }

    /// The time above which a write is to be stamped, and at which a read looks at values that expire, at the earliest.
    fn above(&self, level: Level) -> Hlc {
        match level {
            Level::MonotonicWrites | Level::ReadYourWrites => self.written,
            Level::WritesFollowReads | Level::MonotonicReads => self.read,
            Level::Session => self.written.max(self.read),
            _ => Hlc::ZERO,
        }
    }

    fn note(&mut self, partition: u16, site: SiteId, place: Place, is_write: bool) {
        let rows = self.partitions.entry(partition).or_default();
        let (row, newest) = match is_write {
            true => (&mut rows.written, &mut self.written),
            false => (&mut rows.read, &mut self.read),
        };
        if place.epoch > Hlc::ZERO {
            raise(row, site, place);
        }
        *newest = place.at.max(*newest);
    }

    /// What it has read rests on everything that these sites had stamped up to this time, in whatever epoch: a key without a version, where deletes up to it are forgotten; or a version whose epoch is not known.
    fn note_floor(&mut self, partition: u16, sites: impl Iterator<Item = SiteId>, floor: Hlc) {
        let rows = self.partitions.entry(partition).or_default();
        for site in sites.filter(|_| floor > Hlc::ZERO) {
            let place = Place {
                epoch: Hlc::ZERO,
                at: floor,
            };
            raise(&mut rows.read, site, place);
        }
        self.read = self.read.max(floor);
    }

    fn put(&self, out: &mut BytesMut) {
        out.put_u64(self.read.0);
        out.put_u64(self.written.0);
        out.put_u16(self.partitions.len() as u16);
        for (&partition, rows) in &self.partitions {
            out.put_u16(partition);
            put_places(out, &places(&rows.read));
            put_places(out, &places(&rows.written));
        }
    }

    fn take(mut from: Bytes) -> Result<Seen, BadFrame> {
        let bad = |found: &str| BadFrame::new("what a session of a regional keyspace has seen", found);
        let cut_short = |_| bad("a part of it");
        let mut seen = Seen {
            read: Hlc(from.try_get_u64().map_err(cut_short)?),
            written: Hlc(from.try_get_u64().map_err(cut_short)?),
            ..Seen::default()
        };
        for _ in 0..from.try_get_u16().map_err(cut_short)? {
            let partition = from.try_get_u16().map_err(cut_short)?;
            let rows = seen.partitions.entry(partition).or_default();
            for row in [&mut rows.read, &mut rows.written] {
                for (site, place) in take_places(&mut from)? {
                    raise(row, site, place);
                }
            }
        }
        let newest = |of: fn(&Rows) -> &BTreeMap<(SiteId, Hlc), Hlc>| {
            let rows = seen.partitions.values();
            rows.flat_map(|rows| of(rows).values().copied())
                .max()
                .unwrap_or_default()
        };
        let is_sound = newest(|rows| &rows.read) <= seen.read && newest(|rows| &rows.written) <= seen.written;
        match from.is_empty() && is_sound && seen.read.max(seen.written) <= Hlc::LATEST {
            true => Ok(seen),
            false => Err(bad("more, or timestamps that do not fit each other")),
        }
    }
}

impl NukvSession {
    /// Asks for a part of an operation.
    fn ask(&mut self, cx: &mut SessionContext<'_, Self>, tag: u64, number: u32) {
        let Some((by, level, part)) = self.open.part(tag, number) else {
            return;
        };
        if part.is_answered {
            return;
        }
        let partition = self.topology.partition_of_slot(part.key.slot());
        let replicas = self.topology.replicas_of(partition);
        let members =
            |site: SiteId| -> ReplicaSet { replicas.iter().filter(|member| member.site() == site).collect() };
        let nearest = asking::nearest(cx.reach, partition);
        // Writes stay at the session's site, if that has replicas of the partition.
        let site = match part.write.is_some() && !members(self.home).is_empty() {
            true => self.home,
            false => nearest.site,
        };
        let known = cx.shared.groups.entry((partition, site)).or_default();
        let wants_leader = part.write.is_some() || part.is_redirected;
        let server = part.choose(cx.now.monotonic, known, nearest, wants_leader, members(site));
        let needs = || self.seen.needs(level, partition);
        let (needs, above) = match (&part.write, self.drops_dependency) {
            (None, _) => (needs(), self.seen.above(level)),
            (Some(_), true) => (Vec::new(), Hlc::ZERO),
            (Some(write), false) if write.reads() => (
                self.seen.needs(reads_at(level), partition),
                self.seen.above(reads_at(level)),
            ),
            (Some(_), false) if self.waits => (needs(), self.seen.above(level)),
            (Some(_), false) => (Vec::new(), self.seen.above(level)),
        };
        let key = part.key.clone();
        let request = Request {
            work: match &part.write {
                None => PlainRequest::Get(key, level),
                Some(change) => {
                    let (value, options) = change.clone().into_put();
                    PlainRequest::Put(key, value, level, options)
                }
            },
            by,
            index: part.since_index,
            is_repeated: part.is_doubtful,
            needs,
            above,
            tried: part.tried(),
        };
        cx.ask(tag, number, server, request);
        cx.set_timer(Timer::AskAnother(tag, number), self.open.election);
    }

    /// A replica has carried a part out, or refused it.
    fn on_answer(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        number: u32,
        answer: Answer,
        receipt: Box<Receipt>,
        (epoch, floor, expired): (Hlc, Hlc, Hlc),
    ) {
        if let Answer::Failed(failure) = answer {
            return self.open.fail(cx, tag, number, failure);
        }
        let Some((_, _, part)) = self.open.part(tag, number) else {
            return;
        };
        let partition = self.topology.partition_of_slot(part.key.slot());
        // A delete that finds nothing is a read, and so is a change of an expiry that is not made.
        let is_read = match (&answer, &part.write) {
            (Answer::Value(_), None) => true,
            (Answer::Written { existed }, Some(change)) => change.is_delete() && !existed,
            (Answer::Replaced(_), Some(change)) if change.retimes().is_some() => false,
            (Answer::Unmet(_), Some(change)) if change.retimes().is_some() => true,
            _ => {
                let why = "the replica gives an answer to another question".to_string();
                self.open.ask_again(cx, tag, number, why, false);
                return;
            }
        };
        // A change of an expiry has also told of the value, which is in the version that it wrote.
        let is_read_too = part
            .write
            .as_ref()
            .is_some_and(|change| change.retimes().is_some());
        self.seen.read = self.seen.read.max(expired);
        match receipt.version {
            Some(id) => {
                let site = id.replica.site();
                if epoch == Hlc::ZERO {
                    self.seen.note_floor(partition, [site].into_iter(), floor);
                }
                let place = Place { epoch, at: id.at };
                self.seen.note(partition, site, place, !is_read);
                if is_read_too && !is_read {
                    self.seen.note(partition, site, place, false);
                }
            }
            None => self
                .seen
                .note_floor(partition, self.topology.sites_of(partition), floor),
        }
        match answer {
            Answer::Value(value) => self.open.read(cx, tag, number, value, receipt),
            written => {
                self.open.remove(tag);
                cx.answer(tag, written, Some(receipt));
            }
        }
    }
}

impl Session for NukvSession {
    type Protocol = Nukv;
    type Shared = Shared;
    type Timer = Timer;

    const LEVELS: Levels = Levels {
        reads: READS,
        writes: WRITES,
    };
    /// What an operation needs is known when the one before it is answered.
    const OVERLAPS: bool = false;

    fn open(config: &NukvConfig, home: SiteId, topology: Topology, id: SessionId) -> NukvSession {
        NukvSession {
            topology,
            home,
            drops_dependency: config.bugs.drops_dependency,
            waits: config.wait == 1,
            open: Operations::new(id, config.timing, config.patience, PAUSE),
            seen: Seen::default(),
        }
    }

    fn resume(&mut self, state: Bytes) -> Result<(), BadToken> {
        let other = Seen::take(state)?;
        let names_others = |&(site, _): &(SiteId, Hlc)| usize::from(site.0) >= self.topology.sites().count();
        let is_foreign = |(&partition, rows): (&u16, &Rows)| {
            partition >= self.topology.partitions()
                || rows.read.keys().chain(rows.written.keys()).any(names_others)
        };
        if other.partitions.iter().any(is_foreign) {
            let found = "a site or a partition that the keyspace does not have";
            return Err(BadFrame::new("what a session of a regional keyspace has seen", found).into());
        }
        for (partition, rows) in other.partitions {
            let mine = self.seen.partitions.entry(partition).or_default();
            for (site, place) in places(&rows.read) {
                raise(&mut mine.read, site, place);
            }
            for (site, place) in places(&rows.written) {
                raise(&mut mine.written, site, place);
            }
        }
        self.seen.read = self.seen.read.max(other.read);
        self.seen.written = self.seen.written.max(other.written);
        Ok(())
    }

    fn on_operation(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        operation: Operation,
        level: Level,
    ) {
        let (parts, wants) = match operation {
            Operation::Get { key, .. } => (vec![Part::new(key, None)], Wants::One),
            Operation::Put {
                key, value, options, ..
            } => {
                let change = Change::new(value, options);
                (vec![Part::new(key, Some(change))], Wants::One)
            }
            Operation::ReadMany { keys, .. } if keys.is_empty() => {
                return cx.answer(tag, Answer::Values(Vec::new()), None);
            }
            Operation::ReadMany { keys, .. } => {
                let parts = keys.into_iter().map(|key| Part::new(key, None));
                (parts.collect(), Wants::Values)
            }
            _ => {
                let why = "a regional keyspace has no such operation, or only the gateway carries it out";
                return cx.fail(tag, Failure::Unsupported(why.into()));
            }
        };
        for number in self.open.begin(cx.now.monotonic, tag, level, parts, wants) {
            self.ask(cx, tag, number);
        }
    }

    fn on_response(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        number: u32,
        from: ServerId,
        outcome: turnbuckle_core::Outcome<Response>,
    ) {
        let Some((_, level, part)) = self.open.part(tag, number) else {
            return;
        };
        // Two replicas may have been asked, and one has answered before.
        if part.is_answered {
            return;
        }
        let site = self.topology.site_name(from.site);
        let known = cx.shared.groups.entry((from.partition, from.site)).or_default();
        let (response, receipt) = match outcome {
            turnbuckle_core::Outcome::Answered(response, receipt) => (response, receipt),
            lost => {
                known.leads_not(from.replica());
                // Another member of the site may answer.
                part.is_redirected = true;
                return self.open.lose(cx, tag, number, lost);
            }
        };
        known.index = known.index.max(response.index);
        let (why, at_once) = match response.outcome {
            Outcome::Answered(answer) => {
                if part.write.is_some() {
                    known.leader = Some(from.replica());
                }
                let mut receipt = Box::new(Receipt {
                    asked: level.into(),
                    given: level,
                    waited: part.waited(cx.now.monotonic, receipt.waited),
                    ..*receipt
                });
                if let Proof::Regional(proof) = &mut receipt.proof {
                    proof.redirects = part.redirects;
                }
                let shown = (response.epoch, response.floor, response.expired);
                return self.on_answer(cx, tag, number, answer.into(), receipt, shown);
            }
            Outcome::NotLeader(leader) => {
                known.leader = leader;
                let why = format!(
                    "site {site} has no leader of the key's partition: a majority of its replicas there does not reach each other"
                );
                (why, leader.is_some())
            }
            Outcome::Late => {
                part.is_late(response.index);
                (asking::LATE.to_string(), true)
            }
            Outcome::Behind(leader) => {
                part.is_redirected = true;
                known.is_behind(from.replica(), leader);
                let why = format!("no replica at site {site} has what the session has seen");
                (why, known.leader.is_some())
            }
            Outcome::StillLacks(of) => {
                known.leader = Some(from.replica());
                let of = self.topology.site_name(of);
                (missing(of, site), true)
            }
            Outcome::NotBegun(other) => {
                known.leader = Some(from.replica());
                let other = self.topology.site_name(other);
                let why = format!(
                    "site {site} takes no writes of this partition yet: it first has to learn from site {other} which writes of site {site} there are"
                );
                (why, false)
            }
        };
        if let Some((_, _, part)) = self.open.part(tag, number) {
            part.said = Some(why.clone()).filter(|_| !at_once);
        }
        if self.open.ask_again(cx, tag, number, why, at_once) {
            self.ask(cx, tag, number);
        }
    }

    fn on_timer(&mut self, cx: &mut SessionContext<'_, Self>, timer: Timer) {
        let (Timer::AskAgain(tag, number) | Timer::AskAnother(tag, number)) = timer;
        if matches!(timer, Timer::AskAnother(..)) {
            let Some(server) = self.open.silent(cx.now.monotonic, tag, number) else {
                return;
            };
            let group = (server.partition, server.site);
            cx.shared
                .groups
                .entry(group)
                .or_default()
                .leads_not(server.replica());
        }
        self.ask(cx, tag, number);
    }

    fn give_up(&mut self, _: &mut SessionContext<'_, Self>, tag: u64) {
        self.open.remove(tag);
    }

    fn token(&self, out: &mut BytesMut) {
        self.seen.put(out);
    }
}
