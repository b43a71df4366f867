//! Writes: carried out by the leader when it proposes them, and answered when their entries are applied.
//!
//! The leader tests a write's condition, and finds the value before it, on what is applied and what it has proposed since ([`Ahead`]). If it remains the leader, the entries come in
//! exactly this order. If it does not, the entry is not committed, and nobody is told what it said.
//!
//! A transaction is one entry, with the effects of all its steps. They are computed together, and applied together.
//!
//! A write whose condition does not hold is an entry as well, without effect. So its answer has a place in the order, and a leader that was deposed gives none.
use crate::change::{Change, Index, TooLarge};
use crate::replica::{Cx, Dacian};
use crate::request::{Outcome, Request, Response};
use std::collections::BTreeMap;
use turnbuckle_core::{Basis, Key, Level, Micros, PlainResponse, Receipt, RequestId, Version, VersionId};
use turnbuckle_raft::sessions::Found;
use turnbuckle_raft::waiting::{self, Client};
use turnbuckle_raft::{OperationName, Proposed, Role};

/// What a key will have when an entry is applied.
pub(crate) struct Ahead {
    pub index: u64,
    pub version: Version<()>,
}

impl Dacian {
    /// A write, which only a leader carries out.
    pub(crate) fn write(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let level = request.work.level();
        if self.group.role() != Role::Leader {
            let leader = self.group.leader().filter(|&leader| leader != cx.me.replica());
            return self.reply(cx, id, level, Outcome::NotLeader(leader));
        }
        if self.group.is_handing_over() {
            return self.reply(cx, id, level, Outcome::NotLeader(None));
        }
        let believes = self.config.bugs.believes_first_requests && !request.is_repeated;
        if !self.config.bugs.writes_twice && !believes {
            let first = self.group.first();
            match self
                .sessions
                .find(request.by, request.index, request.is_repeated, first)
            {
                Found::Nothing => {}
                Found::Same(index) => {
                    // What was proposed in this turn is not in the log before.
                    self.handle_ready(cx);
                    return self.attach(cx, id, request.by, index);
                }
                Found::Late => return self.reply(cx, id, level, Outcome::Late),
                Found::Unknown(why) => {
                    let outcome = Outcome::Answered(PlainResponse::Unknown(why.to_string()));
                    return self.reply(cx, id, level, outcome);
                }
            }
        }
        cx.observe(request.above);
        let stamp = VersionId {
            at: cx.stamp(),
            replica: cx.me.replica(),
        };
        let found = |key: &Key| self.there(cx, key);
        let change = match Change::of(request.by, stamp, &request.work, found) {
            Ok(change) => change,
            Err(TooLarge(max)) => {
                let why =
                    format!("the values that the transaction reads and writes have more than {max} bytes");
                return self.reply(cx, id, level, Outcome::TooLarge(why));
            }
        };
        let Some(at) = self.propose(cx, stamp.at, change.encode()) else {
            let why = "too many writes wait for a majority of the replicas".to_string();
            return self.refuse(cx, id, level, why);
        };
        self.sessions.note(request.by, at.index, self.group.first());
        note_ahead(&mut self.ahead, at.index, change);
        self.wait_for(cx, client_of(cx, id, at));
        self.flush_soon(cx);
    }

    /// The newest version of a key at the end of the leader's log.
    fn there(&self, cx: &Cx<'_>, key: &Key) -> Option<Version<()>> {
        if let Some(ahead) = self.ahead.get(key)
            && !self.config.bugs.forgets_proposed
        {
            return Some(ahead.version.clone());
        }
        cx.chain(key).map(|chain| without_index(chain.newest().clone()))
    }

    /// The client waits until its entry is applied.
    fn wait_for(&mut self, cx: &mut Cx<'_>, client: Client) {
        if let Some(before) = self.waiting.add(client) {
            self.leave_open(cx, before, waiting::REPLACED);
        }
    }

    /// It is not known what becomes of an operation.
    pub(crate) fn leave_open(&mut self, cx: &mut Cx<'_>, client: Client, why: &str) {
        let outcome = Outcome::Answered(PlainResponse::Unknown(why.to_string()));
        self.reply(cx, client.id, client.level, outcome);
    }

    // ---- asked for again --------------------------------------------------------------------------------------

    /// The client waits for an entry that is there already.
    fn attach(&mut self, cx: &mut Cx<'_>, id: RequestId, by: OperationName, index: u64) {
        let entry = self.group.entries(index).next();
        let found = entry.and_then(|entry| Some((entry.at, Change::decode(entry.data).ok()?)));
        // It may have been dropped just now.
        let is_it = |(at, change): &(Proposed, Change)| at.index == index && change.by() == by;
        let Some((at, change)) = found.filter(is_it) else {
            let why = "the entry of the write cannot be read any more".to_string();
            let outcome = Outcome::Answered(PlainResponse::Unknown(why));
            return self.reply(cx, id, Level::Linearizable, outcome);
        };
        let client = client_of(cx, id, at);
        match at.index <= self.applied {
            true => self.reply_written(cx, client, &change),
            false => self.wait_for(cx, client),
        }
    }

    // ---- applied ----------------------------------------------------------------------------------------------

    /// Applies a committed entry, and answers the client that waits for it. A new leader's own entry has no change, nor has one that only tells the time.
    pub(crate) fn apply_one(&mut self, cx: &mut Cx<'_>, at: Proposed, change: Option<Change>) {
        let client = self.waiting.take(at.index);
        // The answer needs the entry on disk, and not its effect here: that can be applied again.
        match (client, &change) {
            (Some(client), Some(change)) if client.at == at => self.reply_written(cx, client, change),
            (Some(client), _) => self.lost_its_place(cx, client),
            (None, _) => {}
        }
        let Some(change) = change else {
            return;
        };
        for (key, version) in change.into_versions(at.index) {
            if self.ahead.get(&key).is_some_and(|ahead| ahead.index <= at.index) {
                self.ahead.remove(&key);
            }
            cx.put(key, version);
        }
    }

    /// Another leader's entry is where this replica has proposed one. So that one will never be committed.
    fn lost_its_place(&mut self, cx: &mut Cx<'_>, client: Client) {
        let outcome = Outcome::NotLeader(self.group.leader());
        self.reply(cx, client.id, client.level, outcome);
    }

    fn reply_written(&self, cx: &mut Cx<'_>, client: Client, change: &Change) {
        let receipt = Receipt {
            staleness: Some(Micros(0)),
            clock_bound: Micros(0),
            waited: cx.now.monotonic.since(client.since),
            proof: self.proof(client.at.index, Basis::Entry),
            ..cx.receipt(client.level, None)
        };
        let receipt = receipt.of(change.label());
        let responses = change.responses();
        let outcome = match change.is_transaction() {
            true => Outcome::Transacted(responses),
            false => match responses.and_then(|mut responses| responses.pop()) {
                Some(response) => Outcome::Answered(response),
                // No leader proposes such an entry.
                None => Outcome::Answered(PlainResponse::Unknown("its entry says nothing".to_string())),
            },
        };
        let index = client.at.index;
        let time = change.stamped();
        cx.reply(client.id, Response { outcome, index, time }, receipt);
    }
}

/// The client that has sent a request, and the place of its entry.
fn client_of(cx: &Cx<'_>, id: RequestId, at: Proposed) -> Client {
    let (level, since) = (Level::Linearizable, cx.now.monotonic);
    Client { id, level, at, since }
}

/// The leader takes note of what an entry will put.
pub(crate) fn note_ahead(ahead: &mut BTreeMap<Key, Ahead>, index: u64, change: Change) {
    for (key, version) in change.into_versions(index) {
        let version = without_index(version);
        ahead.insert(key, Ahead { index, version });
    }
}

fn without_index(version: Version<Index>) -> Version<()> {
    let Version { id, content, .. } = version;
    let meta = ();
    Version { id, content, meta }
}
