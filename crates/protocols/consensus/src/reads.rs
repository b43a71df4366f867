//! Reads: what a replica must know before it answers, and whom it asks.
//!
//! A read at `linearizable` or `bounded(t)` waits for a *confirmed index*: everything that was acknowledged before the read is at or below it. The leader confirms its own by
//! its lease, or by a round. Another replica asks the leader. One question, or one round, serves all readers that came before it left.
//!
//! ```text
//!   reader --> unconfirmed --(question or round)--> asking --(index)--> waits for the index --> answer
//! ```
use crate::expiry::Reads;
use crate::message::{self, Body};
use crate::replica::{Asking, Cx, Dacian, Line, Reader};
use crate::request::{Outcome, Request, Response};
use turnbuckle_core::{Basis, Hlc, Level, Micros, PlainResponse, Receipt, RequestId, Version};
use turnbuckle_raft::Role;

/// Everything that was acknowledged before a question left has at most this index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fresh {
    pub departed: Micros,
    pub index: u64,
    /// By what it is known.
    pub basis: Basis,
}

impl Dacian {
    /// A read, at the level that its operation names.
    pub(crate) fn read(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let now = cx.now.monotonic;
        match request.work.level() {
            _ if request.confirmed.is_some() => {
                let basis = request.confirmed.unwrap_or_default();
                self.answer(cx, id, request, Some((Micros(0), basis)));
            }
            Level::Linearizable => self.confirm(cx, Reader::Here(id, request, now)),
            Level::Bounded(bound) => match self.staleness(now) {
                Some(proven) if proven.0 <= bound => self.answer(cx, id, request, Some(proven)),
                _ => self.confirm(cx, Reader::Here(id, request, now)),
            },
            Level::Eventual => {
                let proven = self.staleness(now);
                self.answer(cx, id, request, proven);
            }
            _ if request.index.max(self.floor) <= self.applied || self.config.bugs.ignores_seen => {
                let proven = self.staleness(now);
                self.answer(cx, id, request, proven);
            }
            _ => {
                let wait = match self.group.role() {
                    Role::Leader => self.config.patience,
                    Role::Follower | Role::Candidate => self.config.redirect,
                };
                cx.wait(
                    Line::Applied,
                    request.index.max(self.floor),
                    now + wait,
                    id,
                    request,
                );
            }
        }
    }

    /// A read has waited for an index for too long.
    pub(crate) fn is_behind(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let level = request.work.level();
        if request.confirmed.is_some() || self.group.role() == Role::Leader {
            let why = format!(
                "the replica has applied {} of {} entries that the read must reflect",
                self.applied, request.index
            );
            self.given_up += 1;
            return self.refuse(cx, id, level, why);
        }
        self.redirected += 1;
        self.reply(cx, id, level, Outcome::Behind(self.group.leader()));
    }

    // ---- confirmed indexes -------------------------------------------------------------------------------------

    /// How stale this replica is, as far as it can prove that by itself, and by what.
    pub(crate) fn staleness(&self, now: Micros) -> Option<(Micros, Basis)> {
        if self.group.has_lease(now) && self.group.committed() <= self.applied {
            return Some((Micros(0), Basis::Lease));
        }
        let fresh = self
            .fresh
            .filter(|fresh| fresh.index.max(self.floor) <= self.applied)?;
        Some((now.since(fresh.departed), fresh.basis))
    }

    /// A reader wants to know which index reflects everything that was acknowledged before now.
    pub(crate) fn confirm(&mut self, cx: &mut Cx<'_>, reader: Reader) {
        if self.group.has_lease(cx.now.monotonic) {
            self.is_lease_used = true;
            let index = self.group.committed();
            return self.go_on_reading(cx, reader, index, Basis::Lease);
        }
        if let Reader::Elsewhere(from, _) = reader {
            // It waits for its last question only.
            let is_same = |other: &Reader| matches!(other, Reader::Elsewhere(other, _) if *other == from);
            self.unconfirmed.retain(|other| !is_same(other));
        }
        self.unconfirmed.push(reader);
        self.flush_soon(cx);
    }

    /// Begins a round, or asks the leader, for all readers that wait.
    pub(crate) fn ask(&mut self, cx: &mut Cx<'_>) {
        if self.asking.is_some() || self.unconfirmed.is_empty() {
            return;
        }
        self.begin_asking(cx);
    }

    /// At each tick, a leader whose lease was used since the last one renews it: so reads need not wait for a round while clients go on reading.
    pub(crate) fn renew_lease(&mut self, cx: &mut Cx<'_>) {
        let is_used = std::mem::take(&mut self.is_lease_used);
        if is_used && self.asking.is_none() && self.group.role() == Role::Leader {
            self.begin_asking(cx);
        }
    }

    fn begin_asking(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        let (number, leader) = match (self.group.role(), self.group.leader()) {
            (Role::Leader, _) => match self.group.begin_round(now) {
                Some(round) => (round, None),
                // It begins once an entry of this term is committed.
                None => return,
            },
            (_, Some(leader)) if cx.others().contains(leader) => {
                self.questions += 1;
                cx.send(cx.me.peer(leader), Body::AskIndex(self.questions).into());
                (self.questions, Some(leader))
            }
            _ => return,
        };
        self.asking = Some(Asking {
            number,
            departed: now,
            repeated: now,
            leader,
            term: self.group.term(),
            readers: std::mem::take(&mut self.unconfirmed),
        });
    }

    /// Whether there is a leader that knows what is committed, or may know it.
    pub(crate) fn may_ask(&self, cx: &Cx<'_>) -> bool {
        match self.group.leader() {
            Some(leader) if leader == cx.me.replica() => self.group.knows_committed(),
            leader => leader.is_some(),
        }
    }

    /// Asks again for the readers of a question or round that will not be answered, or not soon. A question that may be lost is repeated with its number: any answer to it comes from after its first
    /// departure. With a new number, an answer that takes longer than the pause between two questions would never be taken.
    pub(crate) fn ask_again(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        let (term, leader) = (self.group.term(), self.group.leader());
        let leads = self.group.role() == Role::Leader;
        // The question or the answer may be lost.
        let wait = self
            .config
            .timing
            .election
            .min(Micros(self.config.patience.0 / 2));
        let is_over = |asking: &mut Asking| match asking.leader {
            None => !leads || asking.term != term,
            Some(asked) => leader != Some(asked),
        };
        if let Some(asking) = self.asking.take_if(is_over) {
            self.unconfirmed.extend(asking.readers);
        }
        if let Some(asking) = &mut self.asking
            && let Some(asked) = asking.leader
            && now >= asking.repeated + wait
        {
            asking.repeated = now;
            cx.send(cx.me.peer(asked), Body::AskIndex(asking.number).into());
        }
        if !leads {
            // Another leader is asked for what these want to know.
            self.unconfirmed
                .retain(|reader| matches!(reader, Reader::Here(..)));
        }
        if !self.unconfirmed.is_empty() && self.asking.is_none() {
            self.flush_soon(cx);
        }
    }

    pub(crate) fn on_confirmed(&mut self, cx: &mut Cx<'_>, asking: Asking, index: u64) {
        let basis = match asking.leader {
            Some(_) => Basis::Leader,
            None => Basis::Round,
        };
        if self.fresh.is_none_or(|fresh| fresh.departed < asking.departed) {
            let departed = match self.config.bugs.stamps_at_arrival {
                true => cx.now.monotonic,
                false => asking.departed,
            };
            self.fresh = Some(Fresh {
                departed,
                index,
                basis,
            });
        }
        for reader in asking.readers {
            self.go_on_reading(cx, reader, index, basis);
        }
    }

    fn go_on_reading(&mut self, cx: &mut Cx<'_>, reader: Reader, index: u64, basis: Basis) {
        match reader {
            Reader::Here(id, mut request, since) => {
                request.confirmed = Some(basis);
                request.index = index;
                let deadline = since + self.config.patience;
                match index <= self.applied {
                    true => cx.run_again(id, request),
                    false => cx.wait(Line::Applied, index, deadline, id, request),
                }
            }
            Reader::Elsewhere(from, number) => {
                cx.send(from, Body::Index(message::Index { number, index }).into());
            }
        }
    }

    /// Answers a read from what is applied here. `proven`: how fresh that is, and by what.
    fn answer(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request, proven: Option<(Micros, Basis)>) {
        let level = request.work.level();
        let newest = request.work.keys().next().and_then(|key| cx.chain(key));
        let newest = newest.map(|chain| chain.newest());
        let mut time = Hlc::ZERO;
        let value = match newest.map(|newest| (newest, self.reads(cx, level, request.above, newest))) {
            None => None,
            Some((newest, Reads::At(now))) => {
                time = newest
                    .id
                    .at
                    .max(newest.content.expired_at(now).unwrap_or_default());
                newest.content.at(now).cloned()
            }
            Some((_, Reads::AfterTime(time))) => return self.wait_for_time(cx, id, request, time),
        };
        let label = newest.map(Version::label);
        // After a full copy a row may be newer than what is applied.
        let index = self.applied.max(newest.map_or(0, |newest| newest.meta.0));
        let (staleness, basis) = proven.unzip();
        let receipt = Receipt {
            staleness,
            clock_bound: Micros(0),
            proof: self.proof(index, basis.unwrap_or_default()),
            ..cx.receipt(level, None)
        };
        let receipt = receipt.of(label);
        let outcome = Outcome::Answered(PlainResponse::Value(value));
        cx.reply(id, Response { outcome, index, time }, receipt);
    }
}
