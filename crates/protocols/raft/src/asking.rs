//! How a session asks for an operation until it is answered: what the sessions of all protocols over a group have in common.
//!
//! An operation has one part for each key that it reads, or one part that writes. Each part is asked for on its own. A session asks the leader, as far as its gateway knows it ([`Known`]), or the nearest replica.
//! Which of the two, and what a request says, depends on the protocol and the level.
//!
//! - **Asking again.** If there is no leader, the session asks again after a pause, until its patience ends. It asks with the same name, so that a leader that finds the write in its log does not carry it out
//!   twice ([`mod@crate::sessions`]).
//! - **Asking another replica.** If a replica has not answered for an election timeout, it may be paused, and another one may lead by then. So the session asks another replica, whatever the gateway has learned before.
//! - **Doubt.** If an answer is lost, the write may have been carried out. A later refusal does not say that it was not. So if the patience of the session ends after that, the client is told that the write
//!   may have happened ([`Failure::Timeout`]), and else that it did not ([`Failure::Unavailable`]).
//!
//! ```text
//!   ask --> answered ------------------------------------> the client is told
//!    ^ +--> not the leader, or behind --> at once ----+
//!    | +--> lost, or no leader ---------> a pause ----+--> is there time left? no: the operation has failed
//!    | +--> silence --------------------> a timeout --+
//!    +------------------------------------------------+ yes
//! ```
use crate::sessions::OperationName;
use crate::timing::Timing;
use bytes::Bytes;
use std::collections::BTreeMap;
use turnbuckle_core::{
    Answer, Failure, Key, Level, Micros, Outcome, Reach, Receipt, ReplicaId, ReplicaSet, ServerId, Session,
    SessionContext, SessionId, VersionId,
};

/// What a gateway knows of a group. All its sessions share it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// The leader.
    pub leader: Option<ReplicaId>,
    /// The highest index that was seen.
    pub index: u64,
}

impl Known {
    /// A replica does not lead, or not any more, as far as is known.
    pub fn leads_not(&mut self, replica: ReplicaId) {
        self.leader = self.leader.filter(|&leader| leader != replica);
    }

    /// A replica is behind. It may know the leader.
    pub fn is_behind(&mut self, replica: ReplicaId, leader: Option<ReplicaId>) {
        self.leads_not(replica);
        self.leader = leader.or(self.leader);
    }
}

/// Why a write is asked for again: see [`Part::is_late`].
pub const LATE: &str = "the leader does not keep the entries any more among which the write would be";

/// The nearest replica of a partition that can be reached; if none can, the nearest.
pub fn nearest(reach: &dyn Reach, partition: u16) -> ServerId {
    let nearest = reach.nearest(partition);
    match reach.is_reached(nearest) {
        true => nearest,
        false => reach.nearest_elsewhere(partition).unwrap_or(nearest),
    }
}

/// When a session wakes up. Each names an operation, and a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// When to ask again, because no replica leads.
    AskAgain(u64, u32),
    /// When to ask another replica, because the one that was asked has not answered: its process may be paused.
    AskAnother(u64, u32),
}

/// What the answers to the parts of an operation make together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// The answer to the only part.
    One,
    /// The values.
    Values,
    /// The versions.
    Versions,
}

/// A part of an operation. `W` is what a protocol asks for if it is a write.
#[derive(Debug)]
pub struct Part<W> {
    /// The key. Of a write of several keys one of them, which are all in one partition.
    pub key: Key,
    /// The write; `None` for a read.
    pub write: Option<W>,
    /// The highest index that was known of the group when the part was asked for first: a write has no entry up to it.
    pub since_index: u64,
    /// Whether the write may have been carried out.
    pub is_doubtful: bool,
    /// Whether a replica lacked what a read needs, or has not answered: the leader is asked instead.
    pub is_redirected: bool,
    /// Why the last replica has not carried it out that knew no other one to ask. If the session gives up, that says more than that a node cannot be reached.
    pub said: Option<String>,
    /// How often it was asked for.
    pub asked: u32,
    /// How often another server was asked than the time before.
    pub redirects: u32,
    /// The server that was asked last.
    server: Option<ServerId>,
    /// When it was asked for first, and last.
    asked_at: Option<(Micros, Micros)>,
    /// Whether it is done.
    pub is_answered: bool,
    value: Option<Bytes>,
    /// The version that was read, if it has a value.
    version: Option<VersionId>,
}

impl<W> Part<W> {
    /// A part that was not asked for yet.
    pub fn new(key: Key, write: Option<W>) -> Part<W> {
        Part {
            key,
            write,
            since_index: 0,
            is_doubtful: false,
            is_redirected: false,
            said: None,
            asked: 0,
            redirects: 0,
            server: None,
            asked_at: None,
            is_answered: false,
            value: None,
            version: None,
        }
    }

    /// The part is to be asked for now: chooses the server. If the leader is wanted and not known, these replicas are asked one after the other, the nearest first.
    pub fn choose(
        &mut self,
        now: Micros,
        known: &Known,
        nearest: ServerId,
        wants_leader: bool,
        among: ReplicaSet,
    ) -> ServerId {
        let one_of_them = || {
            let first = among.iter().position(|replica| replica == nearest.replica());
            let place = (first.unwrap_or(0) + self.asked as usize) % among.len().max(1);
            among.iter().nth(place)
        };
        let replica = match wants_leader {
            true => known.leader.or_else(one_of_them),
            false => None,
        };
        let server = replica.map_or(nearest, |replica| ServerId::of(nearest.partition, replica));
        if self.asked == 0 {
            self.since_index = known.index;
        }
        self.asked += 1;
        self.redirects += u32::from(self.server.is_some_and(|before| before != server));
        self.server = Some(server);
        let first = self.asked_at.map_or(now, |(first, _)| first);
        self.asked_at = Some((first, now));
        server
    }

    /// How long the session had tried when it asked last.
    pub fn tried(&self) -> Micros {
        self.asked_at.map_or(Micros(0), |(first, last)| last.since(first))
    }

    /// How long the operation has waited until it was answered by a replica at which it had waited for `there`. The answer may be one to an earlier question.
    pub fn waited(&self, now: Micros, there: Micros) -> Micros {
        let whole = self.asked_at.map_or(there, |(first, _)| now.since(first));
        (there + self.tried()).min(whole.max(there))
    }

    /// The leader does not keep the entries any more among which the write would be. The write is asked for with a later index, unless another request for it may be under way: then it is not known which entries
    /// must be kept.
    pub fn is_late(&mut self, index: u64) {
        if !self.is_doubtful {
            self.since_index = index;
        }
    }
}

/// An operation under way.
#[derive(Debug)]
struct Open<W> {
    /// The session's number for it.
    number: u64,
    level: Level,
    since: Micros,
    parts: Vec<Part<W>>,
    wants: Wants,
    /// The number of parts that are not answered.
    missing: usize,
    receipt: Option<Box<Receipt>>,
}

/// The operations of a session that are under way.
#[derive(Debug)]
pub struct Operations<W> {
    session: SessionId,
    /// How long a replica may take to answer: then the session asks another one.
    pub election: Micros,
    /// How long an operation may take.
    patience: Micros,
    /// How long the session waits before it asks again.
    pause: Micros,
    open: BTreeMap<u64, Open<W>>,
    /// The number of operations so far. The gateway's tags do not rise: each try of a chain of levels has one from another range.
    count: u64,
}

impl<W> Operations<W> {
    /// Those of a new session.
    pub fn new(session: SessionId, timing: Timing, patience: Micros, pause: Micros) -> Operations<W> {
        Operations {
            session,
            election: timing.timeout(),
            patience,
            pause,
            open: BTreeMap::new(),
            count: 0,
        }
    }

    /// An operation begins. Returns the numbers of its parts, which are to be asked for.
    pub fn begin(
        &mut self,
        now: Micros,
        tag: u64,
        level: Level,
        parts: Vec<Part<W>>,
        wants: Wants,
    ) -> std::ops::Range<u32> {
        self.count += 1;
        let missing = parts.len();
        let open = Open {
            number: self.count,
            level,
            since: now,
            parts,
            wants,
            missing,
            receipt: None,
        };
        self.open.insert(tag, open);
        0..missing as u32
    }

    /// Forgets an operation.
    pub fn remove(&mut self, tag: u64) {
        self.open.remove(&tag);
    }

    /// The name of an operation, its level, and a part of it.
    pub fn part(&mut self, tag: u64, part: u32) -> Option<(OperationName, Level, &mut Part<W>)> {
        let open = self.open.get_mut(&tag)?;
        let name = OperationName::new(self.session, open.number);
        Some((name, open.level, open.parts.get_mut(part as usize)?))
    }

    // ---- not answered -----------------------------------------------------------------------------------------

    /// A replica has not answered for an election timeout. Returns the replica, if there is time to ask another one.
    pub fn silent(&mut self, now: Micros, tag: u64, part: u32) -> Option<ServerId> {
        let has_time = self.has_time(now, tag);
        let (_, _, part) = self.part(tag, part)?;
        let server = part.server.filter(|_| has_time && !part.is_answered)?;
        part.is_doubtful |= part.write.is_some();
        part.is_redirected = true;
        Some(server)
    }

    fn has_time(&self, now: Micros, tag: u64) -> bool {
        let open = self.open.get(&tag);
        open.is_some_and(|open| (open.since + self.patience).since(now) > self.pause)
    }

    /// A part was not carried out, or may not have been. It is asked for again: after a pause, or at once. Returns true if the session is to ask at once. If there is no time left, the operation has failed.
    pub fn ask_again<S: Session<Timer = Timer>>(
        &mut self,
        cx: &mut SessionContext<'_, S>,
        tag: u64,
        part: u32,
        why: String,
        at_once: bool,
    ) -> bool {
        if self.has_time(cx.now.monotonic, tag) {
            if !at_once {
                cx.set_timer(Timer::AskAgain(tag, part), self.pause);
            }
            return at_once;
        }
        if let Some(open) = self.open.remove(&tag) {
            let failure = match open.parts.iter().any(|part| part.is_doubtful) {
                true => Failure::Timeout(why),
                false => Failure::Unavailable(why),
            };
            cx.fail(tag, failure);
        }
        false
    }

    /// A replica that was asked for a part has not answered.
    pub fn lose<S: Session<Timer = Timer>, R>(
        &mut self,
        cx: &mut SessionContext<'_, S>,
        tag: u64,
        number: u32,
        outcome: Outcome<R>,
    ) {
        let Some((_, _, part)) = self.part(tag, number) else {
            return;
        };
        let (why, may_have_happened) = match outcome {
            Outcome::Refused(why) => (why, false),
            Outcome::Lost(why) => (why, true),
            Outcome::Answered(..) => return,
        };
        part.is_doubtful |= part.write.is_some() && may_have_happened;
        let why = part.said.clone().unwrap_or(why);
        self.ask_again(cx, tag, number, why, false);
    }

    // ---- answered ---------------------------------------------------------------------------------------------

    /// A replica answers that a part has failed.
    pub fn fail<S: Session<Timer = Timer>>(
        &mut self,
        cx: &mut SessionContext<'_, S>,
        tag: u64,
        number: u32,
        failure: Failure,
    ) {
        let Some((_, _, part)) = self.part(tag, number) else {
            return;
        };
        match failure {
            // The replica does not know what became of it: the session does not, either.
            Failure::Timeout(why) => {
                part.is_doubtful = true;
                self.ask_again(cx, tag, number, why, false);
            }
            // That it is refused now does not say that it was not carried out before.
            Failure::Unavailable(why) if part.is_doubtful => {
                self.ask_again(cx, tag, number, why, false);
            }
            failure => {
                self.open.remove(&tag);
                cx.fail(tag, failure);
            }
        }
    }

    /// A part that reads a key is answered. If it was the last one, the client is told.
    pub fn read<S: Session>(
        &mut self,
        cx: &mut SessionContext<'_, S>,
        tag: u64,
        part: u32,
        value: Option<Bytes>,
        receipt: Box<Receipt>,
    ) {
        let Some(open) = self.open.get_mut(&tag) else {
            return;
        };
        let Some(part) = open.parts.get_mut(part as usize) else {
            return;
        };
        part.is_answered = true;
        part.version = receipt.version.filter(|_| value.is_some());
        part.value = value.filter(|_| open.wants != Wants::Versions);
        open.receipt = Some(match open.receipt.take() {
            Some(so_far) => Box::new(so_far.merged(*receipt)),
            None => receipt,
        });
        open.missing -= 1;
        if open.missing == 0
            && let Some(done) = self.open.remove(&tag)
        {
            let mut parts = done.parts.into_iter();
            let answer = match done.wants {
                Wants::One => Answer::Value(parts.next().and_then(|part| part.value)),
                Wants::Values => Answer::Values(parts.map(|part| part.value).collect()),
                Wants::Versions => Answer::Versions(parts.map(|part| part.version).collect()),
            };
            cx.answer(tag, answer, done.receipt);
        }
    }
}
