//! # Statuses: reads at `per-key-sequential`, without asking anybody
//!
//! A read at `quorum` takes a round trip: the question, and the answer. MeteorShower leaves the question out. Each replica regularly tells the others how far
//! it is: its *status*. A read waits for the statuses of a majority that are new enough, and then shows what this replica has.
//!
//! ```text
//!   replica r                              replica q
//!      | read x                               |  everything that q has acknowledged by now:
//!      |     <~~ status of q, 12:00:00.050 ~~~|  a up to 41, c up to 37
//!      | has a up to 41, c up to 37: q is fresh at 12:00:00.050
//!      | x, as it is here                     |
//! ```
//!
//! **What is promised.** There is one order of all operations on a key that keeps the order of each session, and in which each read shows the last write before
//! it. It is the order of versions, by timestamp and replica. Three things make it so:
//!
//! 1. A write is stamped above everything that its session has seen.
//! 2. A read shows everything that its session has seen. The session names, for each replica, the newest version stamped there that it has seen. Versions of a
//!    replica come in the order of their stamps, so this replica has all of them once it has the last.
//! 3. A replica never shows an older version than before.
//!
//! A power loss may take versions at `one` that a session has seen, if the keyspace's durability allows that. Then they are not shown any more.
//!
//! **How fresh.** Statuses have no part in that. They say how old the answer may be. If the statuses of a majority, this replica among them, were
//! sent at s or later, then the answer reflects every write at `quorum` that was acknowledged before s. A read that begins at b waits until s >= b - `status_age`. Times are
//! wall times here, so the ends of the clocks' intervals are compared. With a `status_age` of 0 the answer reflects every write that was acknowledged before the
//! read began (MeteorShower1), and the read takes one way and up to one status interval. A `status_age` just below the shortest way between two sites is
//! the paper's upper bound (MeteorShower2): reads wait for the two errors of the clocks, and up to one interval. They still reflect what was acknowledged before
//! they began, because it was at another replica by one way earlier.
//!
//! **Differences.**
//!
//! - The paper's status lists the keys that have changed since the status before. If one is lost, a reader takes a changed key for an old one. Here a status says
//!   how far its sender has the stream of each replica, so each status says everything, and a lost one does no harm.
//! - The paper promises sequential consistency, of all keys together. It does not hold: see the golden scripts `meteorshower`. It does hold for each key.
//! - The paper compares versions of the key. Here the reader must have everything that the others have: the streams bring all of it in any case.
//! - If new enough statuses do not come within the time in which answers usually come, or if a clock is visibly wrong, the read asks a majority.
//! - `status_covers` = 1 waits for every replica (the paper's ALL). Then writes at `one` are reflected, too.
//!
//! Statuses are sent only while somebody reads at this level: replicas that want them subscribe, again and again.
//!
//! **Source.** MeteorShower, section II, figures 3 to 5.
use crate::{
    Body, Conflicts, Request,
    replica::{Cx, Line, Quorum, Timer, newest_here},
};
use std::collections::BTreeMap;
use turnbuckle_core::{
    Bounded, Freshness, Hlc, Level, Micros, PlainResponse, QuorumProof, Receipt, ReplicaId, ReplicaSet,
    RequestId,
};

/// How long a subscription lasts, and how often it is renewed while reads want it.
const SUBSCRIPTION: Micros = Micros::from_millis(3_000);
const RENEW_EVERY: Micros = Micros::from_millis(1_000);

/// The longest subscription that a replica grants.
const MAX_SUBSCRIPTION: Micros = Micros::from_millis(60_000);

/// Who sends statuses to whom.
#[derive(Default)]
pub(crate) struct Statuses {
    /// Whether this replica subscribes, and until when reads want that, in monotonic time.
    is_on: bool,
    wanted_until: Micros,
    /// The replicas that want statuses of this one, each until a monotonic time.
    subscribers: BTreeMap<ReplicaId, Micros>,
    /// Reads at `per-key-sequential` that this replica answered by itself, and that had to ask others.
    pub here: u64,
    pub asked: u64,
}

impl Statuses {
    /// Whether requests may wait for what statuses and streams bring.
    pub fn are_awaited(&self) -> bool {
        self.is_on
    }
}

impl<C: Conflicts> Quorum<C> {
    /// A read at `per-key-sequential` that has waited for what its session has seen.
    pub(crate) fn read_per_key(&mut self, cx: &mut Cx<'_, C>, id: RequestId, request: Request) {
        self.want_statuses(cx);
        let age = self.config.status_age;
        let fresh: Vec<(ReplicaId, Micros)> = self.freshest(cx).collect();
        let has_all = fresh.len() == self.others_fresh();
        let walls = fresh.iter().map(|&(_, wall)| wall);
        match cx.bounded(age, self.status_patience(), walls.clone()) {
            Bounded::Proven if has_all => {
                self.statuses.here += 1;
                let (version, value) = newest_here(cx, request.operation.key());
                let me = ReplicaSet::one(cx.me.replica());
                let proof = QuorumProof {
                    asked: me,
                    answered: me,
                    covers: self.status_covers() as u8,
                    freshness: Some(Box::new(Freshness::Proven(
                        fresh.iter().map(|&(peer, _)| peer).collect(),
                    ))),
                };
                let receipt = Receipt {
                    staleness: cx.staleness(walls),
                    ..self.receipt(cx, Level::PerKeySequential, version, proof, cx.now.monotonic)
                };
                cx.reply(id, PlainResponse::Value(value), receipt);
            }
            Bounded::Once { wall, deadline } if has_all => {
                self.want_statuses_until(deadline);
                cx.wait(Line::Freshest, wall.0, deadline, id, request);
            }
            _ => {
                self.statuses.asked += 1;
                let known = cx.staleness(walls).filter(|_| has_all && cx.proves());
                let fallback = known.map_or(Freshness::Unknown, Freshness::Stale);
                let majority = self.majority();
                self.begin_read(cx, id, request.operation, majority, Some(fallback));
            }
        }
    }

    /// Waits until this replica has everything that the request's session has seen of the key's partition. Returns the request if it has.
    pub(crate) fn with_seen(
        &mut self,
        cx: &mut Cx<'_, C>,
        id: RequestId,
        request: Request,
    ) -> Option<Request> {
        let missing = request.floor.seen.entries().find(|&(replica, until)| {
            let is_other = replica != cx.me.replica() && self.all.contains(replica);
            is_other && self.acknowledged_until(replica) < until && !self.config.bugs.ignores_seen
        });
        let Some((replica, until)) = missing else {
            return Some(request);
        };
        self.want_statuses(cx);
        let deadline = cx.now.monotonic.since(cx.waited) + self.config.patience;
        if cx.now.monotonic < deadline {
            self.want_statuses_until(deadline);
            cx.wait(Line::Stream(replica), until.0, deadline, id, request);
            return None;
        }
        self.given_up += 1;
        let level = request.operation.level();
        let why = format!(
            "{level} cannot be given: the session has seen a version that {} stamped, and within {} it has not reached {}",
            cx.topology.replica_name(replica),
            self.config.patience,
            cx.topology.replica_name(cx.me.replica()),
        );
        let receipt = cx.receipt(level, None);
        cx.reply(id, PlainResponse::Refused(why), receipt);
        None
    }

    /// The number of replicas that must have stored a write, so that reads at `per-key-sequential` reflect it.
    fn status_covers(&self) -> usize {
        self.config.status_covers.min(self.replicas - self.majority() + 1)
    }

    /// The number of other replicas whose statuses must be new enough.
    fn others_fresh(&self) -> usize {
        self.replicas - self.status_covers()
    }

    /// The other replicas whose statuses count: the freshest ones, each with the wall time by which everything that it had acknowledged is here.
    fn freshest(&self, cx: &Cx<'_, C>) -> impl Iterator<Item = (ReplicaId, Micros)> + use<C> {
        let mut walls: Vec<(ReplicaId, Micros)> = self.exchange.walls().collect();
        walls.sort_by_key(|&(peer, wall)| (std::cmp::Reverse(wall), peer));
        let trusts_clocks = self.config.bugs.trusts_clocks;
        let (latest, bound) = (cx.now.wall.latest, cx.now.wall.bound());
        walls
            .into_iter()
            .take(self.others_fresh())
            .map(move |(peer, wall)| match trusts_clocks {
                true => (peer, (wall + bound + bound).min(latest)),
                false => (peer, wall),
            })
    }

    /// How long a read waits for statuses before it asks a majority: as long as a majority's answers usually take.
    fn status_patience(&self) -> Micros {
        let nearest = self.latencies.nearest_first(self.links);
        let nearest = nearest.into_iter().take(self.others_fresh()).collect();
        self.latencies.hedge(nearest).min(self.config.patience)
    }

    /// A read wants statuses.
    pub(crate) fn want_statuses(&mut self, cx: &mut Cx<'_, C>) {
        self.want_statuses_until(cx.now.monotonic + self.config.idle);
        if !self.statuses.is_on {
            self.statuses.is_on = true;
            self.subscribe(cx);
        }
    }

    /// A read may wait until then.
    pub(crate) fn want_statuses_until(&mut self, time: Micros) {
        self.statuses.wanted_until = self.statuses.wanted_until.max(time);
    }

    /// Asks every peer for statuses.
    pub(crate) fn subscribe(&mut self, cx: &mut Cx<'_, C>) {
        if cx.now.monotonic >= self.statuses.wanted_until {
            self.statuses.is_on = false;
            self.order.end();
            return;
        }
        for peer in self.links.iter() {
            self.subscribe_to(cx, peer);
        }
        cx.set_timer(Timer::Subscribe, RENEW_EVERY);
    }

    /// Asks a peer for statuses, if they are wanted.
    pub(crate) fn subscribe_to(&mut self, cx: &mut Cx<'_, C>, peer: ReplicaId) {
        if self.statuses.is_on {
            self.say_of_exchange(cx, peer, Body::Subscribe(SUBSCRIPTION.0));
        }
    }

    /// A peer wants statuses.
    pub(crate) fn on_subscribe(&mut self, cx: &mut Cx<'_, C>, from: ReplicaId, time: Micros) {
        let is_first = self.statuses.subscribers.is_empty();
        let until = cx.now.monotonic + time.min(MAX_SUBSCRIPTION);
        self.statuses.subscribers.insert(from, until);
        if is_first {
            self.send_statuses(cx);
        }
    }

    /// Tells the subscribers how far this replica is.
    pub(crate) fn send_statuses(&mut self, cx: &mut Cx<'_, C>) {
        let now = cx.now.monotonic;
        self.statuses.subscribers.retain(|_, until| *until > now);
        if self.statuses.subscribers.is_empty() {
            return;
        }
        let mark = self.marks.next(cx);
        let subscribers: ReplicaSet = self.statuses.subscribers.keys().copied().collect();
        for peer in subscribers.iter() {
            self.mark_with_status(cx, peer, mark);
        }
        cx.set_timer(Timer::Status, self.config.status);
    }

    /// More may be here than before of what statuses and streams bring: requests that wait for it go on.
    pub(crate) fn wake(&mut self, cx: &mut Cx<'_, C>) {
        if !self.statuses.is_on {
            return;
        }
        for peer in cx.others().iter() {
            self.wake_stream(cx, peer);
        }
        self.raise_cut(cx);
        let oldest = {
            let fresh: Vec<Micros> = self.freshest(cx).map(|(_, wall)| wall).collect();
            let is_all = fresh.len() == self.others_fresh();
            fresh.into_iter().min().filter(|_| is_all)
        };
        if let Some(oldest) = oldest {
            cx.advance(Line::Freshest, oldest.0);
        }
    }

    /// The stream of a peer has come further.
    pub(crate) fn wake_stream(&mut self, cx: &mut Cx<'_, C>, peer: ReplicaId) {
        let Hlc(until) = self.acknowledged_until(peer);
        cx.advance(Line::Stream(peer), until);
    }
}
