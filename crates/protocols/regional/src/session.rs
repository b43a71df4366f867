//! A client: what it has read and written of each site's writes, and whom it asks (Algorithm 4.1).
//!
//! For each partition it keeps the places of what it has read (`hrm`), and of what it has written (`hwm`); and over all partitions, the newest timestamps of both (`dt_r`, `dt_w`). What of that an operation takes along
//! is its level:
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
//! A write goes to the leader of the session's site, and to no other site: if the site has no majority, it says so. A read goes to the nearest replica, and to the leader of its site if that one lacks what the session needs.
//!
//! **Asking again.** If there is no leader, or an answer is lost, the session asks again until its patience ends. It asks with the same name, so that a leader that finds the write in its log does not carry it out twice. If the
//! last that it heard of a write was nothing, the client is told that the write may have happened.
use crate::config::NukvConfig;
use crate::replica::Nukv;
use crate::request::{Outcome, Request, Response, put_places, take_places};
use crate::sites::Place;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use turnbuckle_core::{
    Answer, BadFrame, BadToken, Failure, Hlc, Key, Level, Levels, Micros, Operation, PlainRequest, Receipt,
    ReplicaId, ServerId, Session, SessionContext, SessionId, SiteId, Topology,
};
use turnbuckle_raft::OperationName;

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

/// What is known of a group.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    leader: Option<ReplicaId>,
    /// The highest index that was seen.
    index: u64,
}

/// A client of a regional keyspace.
pub struct NukvSession {
    topology: Topology,
    home: SiteId,
    id: SessionId,
    patience: Micros,
    election: Micros,
    drops_dependency: bool,
    waits: bool,
    open: BTreeMap<u64, Open>,
    /// The number of its operations so far.
    operations: u64,
    seen: Seen,
}

/// What a session has seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Seen {
    /// Of each partition.
    partitions: BTreeMap<u16, Rows>,
    /// The newest timestamp that it has read, and that it has written.
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
}

fn places(row: &BTreeMap<(SiteId, Hlc), Hlc>) -> Vec<(SiteId, Place)> {
    let places = row.iter();
    places
        .map(|(&(site, epoch), &at)| (site, Place { epoch, at }))
        .collect()
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

    /// The timestamp above which a write is to be stamped.
    fn above(&self, level: Level) -> Hlc {
        match level {
            Level::MonotonicWrites => self.written,
            Level::WritesFollowReads => self.read,
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

    /// It has read that a key has no version, where deletes up to this time are forgotten.
    fn note_nothing(&mut self, partition: u16, sites: impl Iterator<Item = SiteId>, floor: Hlc) {
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

/// An operation under way.
struct Open {
    /// Its number in this session.
    number: u64,
    level: Level,
    since: Micros,
    parts: Vec<Part>,
    /// Whether it reads several keys.
    is_many: bool,
    missing: usize,
    receipt: Option<Receipt>,
}

/// A key of an operation.
struct Part {
    key: Key,
    /// The write, if it is one: its value.
    write: Option<Option<Bytes>>,
    value: Option<Bytes>,
    /// The highest index that was known of the group when the write was asked for first.
    since_index: u64,
    /// Whether it may have been carried out.
    is_doubtful: bool,
    /// The server that was asked last.
    server: Option<ServerId>,
    is_answered: bool,
    /// How often it was asked for.
    asked: u32,
    /// Whether a replica lacked what it needs: the leader is asked instead.
    is_redirected: bool,
}

/// When to wake up. Each names an operation, and a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// When to ask again, because nobody leads.
    AskAgain(u64, u32),
    /// When to ask another replica, because the one that was asked has not answered: its process may be paused.
    AskAnother(u64, u32),
}

impl NukvSession {
    fn partition_of(&self, key: &Key) -> u16 {
        self.topology.partition_of_slot(key.slot())
    }

    /// A delete that finds nothing is a read. So the leader must have what the session has read and written, unless the session asks for nothing.
    fn needs_of_delete(&self, level: Level, partition: u16) -> Vec<(SiteId, Place)> {
        match level {
            Level::Eventual => Vec::new(),
            _ => self.seen.needs(Level::Session, partition),
        }
    }

    /// The replicas of a partition at a site.
    fn members(&self, partition: u16, site: SiteId) -> Vec<ReplicaId> {
        let all = self.topology.replicas_of(partition);
        all.iter().filter(|replica| replica.site() == site).collect()
    }

    /// Asks for a part of an operation.
    fn ask(&mut self, cx: &mut SessionContext<'_, Self>, tag: u64, number: u32) {
        let Some(open) = self.open.get(&tag) else {
            return;
        };
        let (level, operation) = (open.level, open.number);
        let Some(part) = open.parts.get(number as usize) else {
            return;
        };
        let partition = self.partition_of(&part.key);
        let nearest = cx.reach.nearest(partition);
        let nearest = match cx.reach.is_reached(nearest) {
            true => nearest,
            false => cx.reach.nearest_elsewhere(partition).unwrap_or(nearest),
        };
        let has_home = !self.members(partition, self.home).is_empty();
        // Writes stay at the session's site, if that has replicas of the partition.
        let site = match part.write.is_some() && has_home {
            true => self.home,
            false => nearest.site,
        };
        let members = self.members(partition, site);
        let known = cx.shared.groups.entry((partition, site)).or_default();
        let wants_leader = part.write.is_some() || part.is_redirected;
        let first = members.iter().position(|&member| member == nearest.replica());
        let server = match known.leader.filter(|_| wants_leader) {
            Some(leader) => ServerId::of(partition, leader),
            // One after the other, the nearest first.
            None if wants_leader && !members.is_empty() => {
                let place = (first.unwrap_or(0) + part.asked as usize) % members.len();
                ServerId::of(partition, members[place])
            }
            None => nearest,
        };
        let (needs, above) = match (&part.write, self.drops_dependency) {
            (None, _) => (self.seen.needs(level, partition), Hlc::ZERO),
            (Some(_), true) => (Vec::new(), Hlc::ZERO),
            (Some(None), false) => (self.needs_of_delete(level, partition), self.seen.above(level)),
            (Some(Some(_)), false) if self.waits => {
                (self.seen.needs(level, partition), self.seen.above(level))
            }
            (Some(Some(_)), false) => (Vec::new(), self.seen.above(level)),
        };
        let index = known.index;
        let by = OperationName::new(self.id, operation);
        let Some(part) = self
            .open
            .get_mut(&tag)
            .and_then(|open| open.parts.get_mut(number as usize))
        else {
            return;
        };
        if part.asked == 0 {
            part.since_index = index;
        }
        part.asked += 1;
        part.server = Some(server);
        let work = match &part.write {
            None => PlainRequest::Get(part.key.clone(), level),
            Some(value) => PlainRequest::Put(part.key.clone(), value.clone(), level, None),
        };
        let request = Request {
            work,
            by,
            index: part.since_index,
            is_repeated: part.is_doubtful,
            needs,
            above,
        };
        cx.ask(tag, number, server, request);
        cx.set_timer(Timer::AskAnother(tag, number), self.election);
    }

    /// A replica has not answered for an election timeout. Perhaps another one leads by now. A read may wait for what its session has seen elsewhere: so the leader is asked once only.
    fn ask_another(&mut self, cx: &mut SessionContext<'_, Self>, tag: u64, number: u32) {
        let Some(open) = self.open.get_mut(&tag) else {
            return;
        };
        let left = (open.since + self.patience).since(cx.now.monotonic);
        let Some(part) = open.parts.get_mut(number as usize) else {
            return;
        };
        let Some(server) = part.server.filter(|_| !part.is_answered && left > PAUSE) else {
            return;
        };
        let known = cx
            .shared
            .groups
            .entry((server.partition, server.site))
            .or_default();
        known.leader = known.leader.filter(|&leader| leader != server.replica());
        part.is_doubtful |= part.write.is_some();
        part.is_redirected = true;
        self.ask(cx, tag, number);
    }

    /// A part was not carried out, or may not have been. It is asked for again, unless that takes too long.
    fn ask_later(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        number: u32,
        why: String,
        at_once: bool,
    ) {
        let Some(open) = self.open.get(&tag) else {
            return;
        };
        let left = (open.since + self.patience).since(cx.now.monotonic);
        if left > PAUSE {
            return match at_once {
                true => self.ask(cx, tag, number),
                false => cx.set_timer(Timer::AskAgain(tag, number), PAUSE),
            };
        }
        let is_doubtful = open.parts.iter().any(|part| part.is_doubtful);
        self.open.remove(&tag);
        let failure = match is_doubtful {
            true => Failure::Timeout(why),
            false => Failure::Unavailable(why),
        };
        cx.fail(tag, failure);
    }

    /// A replica has carried a part out, or refused it.
    fn on_answer(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        number: u32,
        answer: Answer,
        receipt: Receipt,
        (epoch, floor): (Hlc, Hlc),
    ) {
        let Some(open) = self.open.get_mut(&tag) else {
            return;
        };
        let Some(part) = open.parts.get_mut(number as usize) else {
            return;
        };
        let partition = self.topology.partition_of_slot(part.key.slot());
        let is_write = part.write.is_some();
        let existed = match answer {
            // The replica does not know what became of it: the session does not, either.
            Answer::Failed(Failure::Timeout(why)) => {
                part.is_doubtful = true;
                return self.ask_later(cx, tag, number, why, false);
            }
            // That it is refused now does not say that it was not carried out before.
            Answer::Failed(Failure::Unavailable(why)) if part.is_doubtful => {
                return self.ask_later(cx, tag, number, why, false);
            }
            Answer::Failed(failure) => {
                self.open.remove(&tag);
                return cx.fail(tag, failure);
            }
            Answer::Value(value) if !is_write => {
                part.value = value;
                None
            }
            Answer::Written { existed } if is_write => Some(existed),
            _ => {
                let why = "the replica gives an answer to another question".to_string();
                return self.ask_later(cx, tag, number, why, false);
            }
        };
        part.is_answered = true;
        // A delete that finds nothing is a read.
        let is_put = matches!(part.write, Some(Some(_)));
        let is_read = !is_put && existed != Some(true);
        match receipt.version {
            Some(id) => {
                let place = Place { epoch, at: id.at };
                self.seen.note(partition, id.replica.site(), place, !is_read);
            }
            None => self
                .seen
                .note_nothing(partition, self.topology.sites_of(partition), floor),
        }
        if let Some(existed) = existed {
            self.open.remove(&tag);
            return cx.answer(tag, Answer::Written { existed }, Some(receipt));
        }
        open.receipt = Some(match open.receipt.take() {
            Some(so_far) => so_far.merged(receipt),
            None => receipt,
        });
        open.missing -= 1;
        if open.missing == 0
            && let Some(done) = self.open.remove(&tag)
        {
            let mut values = done.parts.into_iter().map(|part| part.value);
            let answer = match done.is_many {
                false => Answer::Value(values.next().flatten()),
                true => Answer::Values(values.collect()),
            };
            cx.answer(tag, answer, done.receipt);
        }
    }
}

impl Part {
    fn new(key: Key, write: Option<Option<Bytes>>) -> Part {
        Part {
            key,
            write,
            value: None,
            since_index: 0,
            is_doubtful: false,
            server: None,
            is_answered: false,
            asked: 0,
            is_redirected: false,
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
            id,
            patience: config.patience,
            election: config.timing.timeout(),
            drops_dependency: config.bugs.drops_dependency,
            waits: config.wait == 1,
            open: BTreeMap::new(),
            operations: 0,
            seen: Seen::default(),
        }
    }

    fn resume(&mut self, state: Bytes) -> Result<(), BadToken> {
        let other = Seen::take(state)?;
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
        let (parts, is_many) = match operation {
            Operation::Get { key, .. } => (vec![Part::new(key, None)], false),
            Operation::Put { key, value, .. } => (vec![Part::new(key, Some(value))], false),
            Operation::ReadMany { keys, .. } if keys.is_empty() => {
                return cx.answer(tag, Answer::Values(Vec::new()), None);
            }
            Operation::ReadMany { keys, .. } => {
                let parts = keys.into_iter().map(|key| Part::new(key, None));
                (parts.collect(), true)
            }
            _ => {
                let why = "a regional keyspace has no such operation, or only the gateway carries it out";
                return cx.fail(tag, Failure::Unsupported(why.into()));
            }
        };
        let missing = parts.len();
        self.operations += 1;
        let open = Open {
            number: self.operations,
            level,
            since: cx.now.monotonic,
            parts,
            is_many,
            missing,
            receipt: None,
        };
        self.open.insert(tag, open);
        for number in 0..missing {
            self.ask(cx, tag, number as u32);
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
        let Some(open) = self.open.get_mut(&tag) else {
            return;
        };
        // Two replicas may have been asked, and one has answered before.
        let Some(part) = open
            .parts
            .get_mut(number as usize)
            .filter(|part| !part.is_answered)
        else {
            return;
        };
        let site = self.topology.site_name(from.site).to_string();
        let known = cx.shared.groups.entry((from.partition, from.site)).or_default();
        let (response, receipt) = match outcome {
            turnbuckle_core::Outcome::Answered(response, receipt) => (response, receipt),
            lost => {
                if known.leader == Some(from.replica()) {
                    known.leader = None;
                }
                let (why, may_have_happened) = match lost {
                    turnbuckle_core::Outcome::Refused(why) => (why, false),
                    turnbuckle_core::Outcome::Lost(why) => (why, true),
                    turnbuckle_core::Outcome::Answered(..) => return,
                };
                part.is_doubtful |= part.write.is_some() && may_have_happened;
                // Another member of the site may answer.
                part.is_redirected = true;
                return self.ask_later(cx, tag, number, why, false);
            }
        };
        known.index = known.index.max(response.index);
        match response.outcome {
            Outcome::Answered(answer) => {
                if part.write.is_some() {
                    known.leader = Some(from.replica());
                }
                let receipt = Receipt {
                    asked: open.level.into(),
                    given: open.level,
                    ..receipt
                };
                let shown = (response.epoch, response.floor);
                self.on_answer(cx, tag, number, answer.into(), receipt, shown);
            }
            Outcome::NotLeader(leader) => {
                known.leader = leader;
                let why = format!(
                    "site {site} has no leader of the key's partition: a majority of its replicas there does not reach each other"
                );
                self.ask_later(cx, tag, number, why, leader.is_some());
            }
            Outcome::Late => {
                // Another request for it may be under way. Then it is not known which entries must be kept.
                if !part.is_doubtful {
                    part.since_index = response.index;
                }
                let why = "the leader does not keep the entries any more among which the write would be";
                self.ask_later(cx, tag, number, why.to_string(), true);
            }
            Outcome::Behind(leader) => {
                part.is_redirected = true;
                known.leader = leader.or(known.leader.filter(|&leader| leader != from.replica()));
                let has_leader = known.leader.is_some();
                let why = format!("no replica at site {site} has what the session has seen");
                self.ask_later(cx, tag, number, why, has_leader);
            }
        }
    }

    fn on_timer(&mut self, cx: &mut SessionContext<'_, Self>, timer: Timer) {
        match timer {
            Timer::AskAgain(tag, part) => self.ask(cx, tag, part),
            Timer::AskAnother(tag, part) => self.ask_another(cx, tag, part),
        }
    }

    fn give_up(&mut self, _: &mut SessionContext<'_, Self>, tag: u64) {
        self.open.remove(&tag);
    }

    fn token(&self, out: &mut BytesMut) {
        self.seen.put(out);
    }
}
