//! # The exchange of freshness: how one replica proves a bound by itself
//!
//! Cadidas (section III) serves a read at `bounded(t)` from one replica, if that replica can prove that it has every write that a majority had stored and
//! that was acknowledged more than t before the read began. For that, replicas regularly ask each other what they have.
//!
//! ```text
//!   replica r                              replica q
//!      | -- round 7 --------------------> |      r remembers when round 7 left: c, by its own monotonic clock
//!      | <~~ mark: round 7, q has         |      the mark travels behind everything that q itself has stamped
//!      |     a up to 41, c up to 37 ~~~~~ |
//!      | r has a up to 41, c up to 37     |      now, or when their marks have come: q's entry is c
//! ```
//!
//! - **What is compared.** Cadidas exchanges the versions of keys that have changed. Here every version comes by its coordinator's stream, in order. So
//!   how far a replica has the stream of each coordinator says everything, in a few bytes, however many keys have changed.
//! - **The entry of q** in the real-time vector is the time at which the question left, not when the answer came: q has answered from everything that it
//!   had acknowledged until then, and maybe for longer. The clock is r's own, so the proof rests on no clock bound.
//! - **The entry rises only when r has everything that q has.** What q has of a coordinator is what its stream has brought there. What r has is what the
//!   coordinator's last mark promised. A mark waits while its sender is being sent back what it lost, so nothing below it comes later.
//! - **How many entries are needed.** A write that k replicas had stored when it was acknowledged is missed only if none of those k counts. So N - k + 1
//!   replicas must be fresh, r itself among them. The receipt says what k was: `covers`.
//! - **If the bound is not proven**, the read asks a majority, as at level `quorum`. It never waits for the exchange.
//! - **After a restart** q does not know how far it has acknowledged a coordinator's stream, until it hears a mark of that coordinator. Until then it
//!   answers no round.
//!
//! The exchange runs only while somebody reads at `bounded(t)`: it begins with such a read, and ends a while after the last one.
use crate::{
    Body, Conflicts, Message,
    message::{Entry, Held},
    replica::{Cx, Quorum, Timer, say},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use turnbuckle_core::{
    Freshness, Hlc, Level, Micros, PlainRequest, QuorumProof, Receipt, ReplicaId, ReplicaSet, RequestId,
    Spans,
};
use turnbuckle_streams::Mark;

/// For this number of heartbeats after a round, the heartbeats to the peer that asked carry the answer.
const ANSWER_AGAIN: u32 = 20;

/// The most rounds that are remembered. Answers to earlier ones come too late.
const MAX_ROUNDS: usize = 4_096;

/// The most answers of one peer that wait.
const MAX_WAITING: usize = 64;

/// What a replica knows of the freshness of what it has.
#[derive(Default)]
pub(crate) struct Exchange {
    /// Whether rounds are asked, and when a read last wanted that, in monotonic time.
    is_on: bool,
    wanted_at: Micros,
    /// The last round.
    round: u64,
    /// When each of the last rounds was asked, in monotonic time.
    asked_at: VecDeque<(u64, Micros)>,
    peers: BTreeMap<ReplicaId, Peer>,
    /// The last round of each peer that asks, and the number of heartbeats since. Of marks that cannot be sent, only the newest is kept, so the heartbeats
    /// carry the answer, too.
    asked_by: BTreeMap<ReplicaId, (u64, u32)>,
    /// The peers whose marks have come since this replica was opened: it is known how far their streams were acknowledged.
    known: BTreeSet<ReplicaId>,
    /// Reads at `bounded(t)` that this replica could answer by itself, and that had to ask others.
    pub proven: u64,
    pub fell_back: u64,
    /// How old the answers to these reads were at most, as far as this replica could prove.
    pub spans: Spans,
    /// The rounds that were asked, and the questions and answers that were sent, in messages and in bytes.
    pub messages: u64,
    pub bytes: u64,
}

#[derive(Default)]
struct Peer {
    /// Everything that the peer had acknowledged by this monotonic time of this replica is here: its entry of the real-time vector.
    fresh_at: Option<Micros>,
    /// Everything that the peer had acknowledged by this wall time is here.
    fresh_wall: Micros,
    /// What the peer has said that speaks of more than is here, the oldest first.
    waiting: VecDeque<Said>,
}

/// How far a peer said that it is.
struct Said {
    /// When the round that it answers was asked, in monotonic time. `None` if it answers none that is remembered.
    asked_at: Option<Micros>,
    /// The peer's wall time.
    wall: Micros,
    /// How far it may have acknowledged the streams of other replicas.
    entries: Vec<(ReplicaId, Hlc)>,
}

impl Exchange {
    /// Of each peer that has said how far it is, the wall time by which everything that it had acknowledged is here.
    pub fn walls(&self) -> impl Iterator<Item = (ReplicaId, Micros)> {
        let peers = self.peers.iter().map(|(&peer, known)| (peer, known.fresh_wall));
        peers.filter(|&(_, wall)| wall > Micros(0))
    }

    /// A question or an answer is sent.
    fn count(&mut self, body: &Body) {
        self.messages += 1;
        self.bytes += body.encoded_len() as u64;
    }
}

impl<C: Conflicts> Quorum<C> {
    /// A read at `bounded(t)`: answered here if the bound is proven. If not, a majority is asked.
    pub(crate) fn read_bounded(
        &mut self,
        cx: &mut Cx<'_, C>,
        id: RequestId,
        request: PlainRequest,
        bound: Micros,
    ) {
        self.want_exchange(cx);
        let ages = self.ages(cx);
        let found = self.coverages(&ages).find(|(age, _)| *age <= bound);
        let best = self.coverages(&ages).map(|(age, _)| age).min();
        if let Some(best) = best {
            self.exchange.spans.add(best);
        }
        match found.filter(|_| cx.proves()) {
            Some((age, covers)) => {
                self.exchange.proven += 1;
                let shown = self.shown_here(cx, &request);
                let me = ReplicaSet::one(cx.me.replica());
                let others = self.replicas - usize::from(covers);
                let fresh = ages.iter().take(others).map(|(peer, _)| *peer);
                let proof = QuorumProof {
                    asked: me,
                    answered: me,
                    covers,
                    freshness: Some(Box::new(Freshness::Proven(fresh.collect()))),
                };
                let receipt = Receipt {
                    staleness: Some(age),
                    // The claim rests on no clock but this replica's own.
                    clock_bound: Micros(0),
                    siblings: shown.has_siblings,
                    ..self.receipt(cx, Level::Bounded(bound), shown.version, proof, cx.now.monotonic)
                };
                cx.reply(id, shown.response, receipt);
            }
            None => {
                self.exchange.fell_back += 1;
                let fallback = match best {
                    Some(best) => Freshness::Stale(best),
                    None => Freshness::Unknown,
                };
                let majority = self.majority();
                self.begin_read(cx, id, request, majority, Some(fallback));
            }
        }
    }

    /// Of each other replica of which that is known: everything that it had acknowledged this long before the request at hand came is here. The freshest
    /// first.
    fn ages(&self, cx: &Cx<'_, C>) -> Vec<(ReplicaId, Micros)> {
        let began = cx.now.monotonic.since(cx.waited);
        let peers = self.exchange.peers.iter();
        let known = peers.filter_map(|(&peer, known)| Some((peer, began.since(known.fresh_at?))));
        let mut ages: Vec<(ReplicaId, Micros)> = known.collect();
        ages.sort_by_key(|&(_, age)| age);
        ages
    }

    /// What is proven: for k = 1, 2, .. up to the majority's, how old an answer is at most, if only writes count that at least k replicas had stored.
    fn coverages(&self, ages: &[(ReplicaId, Micros)]) -> impl Iterator<Item = (Micros, u8)> {
        let most = self.replicas - self.majority() + 1;
        (1..=most).filter_map(move |covers| {
            // This replica is one of the N - k + 1.
            let others = self.replicas - covers;
            let age = match others {
                0 => Micros(0),
                others => ages.get(others - 1)?.1,
            };
            Some((age, covers as u8))
        })
    }

    /// A read at `bounded(t)` has come: the exchange is needed.
    fn want_exchange(&mut self, cx: &mut Cx<'_, C>) {
        self.exchange.wanted_at = cx.now.monotonic;
        if !self.exchange.is_on {
            self.exchange.is_on = true;
            self.ask_round(cx);
        }
    }

    /// Asks every peer how far it is.
    pub(crate) fn ask_round(&mut self, cx: &mut Cx<'_, C>) {
        let exchange = &mut self.exchange;
        if cx.now.monotonic >= exchange.wanted_at + self.config.idle {
            exchange.is_on = false;
            return;
        }
        exchange.round += 1;
        exchange.asked_at.push_back((exchange.round, cx.now.monotonic));
        if exchange.asked_at.len() > MAX_ROUNDS {
            exchange.asked_at.pop_front();
        }
        let round = exchange.round;
        for peer in self.links.iter() {
            self.say_of_exchange(cx, peer, Body::Round(round));
        }
        cx.set_timer(Timer::Exchange, self.config.exchange);
    }

    pub(crate) fn say_of_exchange(&mut self, cx: &mut Cx<'_, C>, to: ReplicaId, body: Body) {
        self.exchange.count(&body);
        say(cx, to, 0, body);
    }

    /// A peer asks how far this replica is.
    pub(crate) fn on_round(&mut self, cx: &mut Cx<'_, C>, from: ReplicaId, round: u64) {
        self.exchange.asked_by.insert(from, (round, 0));
        let mark = self.marks.next(cx);
        self.mark_with_status(cx, from, mark);
    }

    /// The regular mark, and with it the answers to peers that have asked lately.
    pub(crate) fn heartbeat(&mut self, cx: &mut Cx<'_, C>) {
        let mark = self.marks.next(cx);
        self.exchange.asked_by.retain(|_, (_, heartbeats)| {
            *heartbeats += 1;
            *heartbeats <= ANSWER_AGAIN
        });
        let asking: ReplicaSet = self.exchange.asked_by.keys().copied().collect();
        let body = Some(Body::Mark(mark.into()));
        cx.mark(cx.others().minus(asking), Message { operation: 0, body });
        for peer in asking.iter() {
            self.mark_with_status(cx, peer, mark);
        }
    }

    /// A mark for a peer, with how far this replica is, which answers the peer's last round. It travels behind everything that was stamped here.
    pub(crate) fn mark_with_status(&mut self, cx: &mut Cx<'_, C>, to: ReplicaId, mark: Mark) {
        let round = self.exchange.asked_by.get(&to).map_or(0, |&(round, _)| round);
        let others = self.all.without(cx.me.replica()).without(to);
        let is_known = others
            .iter()
            .all(|replica| self.exchange.known.contains(&replica));
        let body = match is_known && self.refusal().is_none() && cx.proves() {
            true => Body::Held(Held {
                mark: mark.into(),
                round,
                entries: others
                    .iter()
                    .map(|replica| Entry {
                        replica: replica.0.into(),
                        until: self.acknowledged_until(replica).0,
                    })
                    .collect(),
            }),
            // It is not known how far this replica has acknowledged the others' streams.
            false => Body::Mark(mark.into()),
        };
        if matches!(body, Body::Held(_)) {
            self.exchange.count(&body);
        }
        let body = Some(body);
        cx.mark(ReplicaSet::one(to), Message { operation: 0, body });
    }

    /// How far this replica may have acknowledged the stream of another one.
    pub(crate) fn acknowledged_until(&self, replica: ReplicaId) -> Hlc {
        let received = self.acknowledgements.received_of(replica);
        received.max(self.marks.promise_of(replica))
    }

    /// From which round on rounds are counted: above those of earlier lives, whose answers may still come.
    pub(crate) fn begin_rounds(&mut self, after: u64) {
        self.exchange.round = after;
    }

    /// A peer says how far it is. Its mark has been handled.
    pub(crate) fn on_held(&mut self, cx: &mut Cx<'_, C>, from: ReplicaId, held: &Held) {
        let exchange = &mut self.exchange;
        // Rounds are numbered one after the other.
        let first = exchange.asked_at.front().map_or(0, |&(number, _)| number);
        let place = held
            .round
            .checked_sub(first)
            .and_then(|place| usize::try_from(place).ok());
        let asked = place.and_then(|place| exchange.asked_at.get(place));
        let asked_at = match self.config.bugs.stamps_at_arrival {
            true => asked.map(|_| cx.now.monotonic),
            false => asked.map(|&(_, asked_at)| asked_at),
        };
        let peer = exchange.peers.entry(from).or_default();
        // The oldest are kept: they are the first of which everything is here.
        if peer.waiting.len() < MAX_WAITING {
            let entries = held.entries.iter();
            let entries = entries.map(|entry| (ReplicaId(entry.replica as u16), Hlc(entry.until)));
            peer.waiting.push_back(Said {
                asked_at,
                wall: held.mark.mark().wall,
                entries: entries.collect(),
            });
        }
        self.catch_up(cx);
    }

    /// More may be here than before: entries of the real-time vector rise.
    pub(crate) fn catch_up(&mut self, cx: &mut Cx<'_, C>) {
        let me = cx.me.replica();
        let compares = !self.config.bugs.compares_nothing;
        let marks = &self.marks;
        let has = |&(replica, until): &(ReplicaId, Hlc)| {
            replica == me || until <= marks.promise_of(replica) || !compares
        };
        for peer in self.exchange.peers.values_mut() {
            while let Some(said) = peer.waiting.front()
                && said.entries.iter().all(has)
            {
                peer.fresh_at = peer.fresh_at.max(said.asked_at);
                peer.fresh_wall = peer.fresh_wall.max(said.wall);
                peer.waiting.pop_front();
            }
        }
        self.wake(cx);
    }

    /// A peer's mark has come: everything of its stream that was acknowledged before this replica was opened was stamped before it.
    pub(crate) fn on_any_mark(&mut self, cx: &mut Cx<'_, C>, from: ReplicaId, mark: Mark) {
        self.marks.heard(cx, from, mark);
        self.note_promise(from, mark);
        self.exchange.known.insert(from);
        self.catch_up(cx);
    }
}
