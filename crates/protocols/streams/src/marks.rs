//! How far a replica is with the streams of its peers.
use crate::{Deletes, Mark, Planted, Replaced, Said};
use std::collections::BTreeMap;
use turnbuckle_core::{Bounded, Context, Hlc, Micros, Protocol, Recovered, ReplicaId, ServerId, Topology};

/// What one replica knows by its own marks and those of its peers.
///
/// At regular intervals, each replica sends a [`Mark`] behind everything that it has stamped so far: a promise that all its later stamps are above this time.
/// When the mark arrives at a peer, everything that the sender stamped up to its promise has arrived there.
pub struct Marks {
    me: ReplicaId,
    /// For each other replica, what its marks have promised. Everything that it stamped up to `promise` is in the store, or was superseded.
    theirs: BTreeMap<ReplicaId, Mark>,
    /// Everything that was stamped here up to this time is in the store.
    own: Hlc,
    /// What was lost here or elsewhere, and replaced.
    replaced: Replaced,
    /// Which deletes may be forgotten.
    pub deletes: Deletes,
    forgets_early: bool,
    waits_for_one_site: bool,
}

impl Marks {
    /// The state as it was left before a restart.
    pub fn open(me: ServerId, topology: &Topology, recovered: &Recovered, planted: Planted) -> Marks {
        let until = |replica| {
            let mut cut = recovered.cut.iter();
            cut.find(|(of, _)| *of == replica)
                .map_or(Hlc::ZERO, |&(_, until)| until)
        };
        let recovered_mark = |replica| Mark {
            promise: until(replica),
            settled: until(replica),
            deletes: Said::default(),
            wall: Micros(0),
            replaced: Hlc::ZERO,
        };
        let others = topology.others_of(me).iter();
        Marks {
            me: me.replica(),
            theirs: others.map(|replica| (replica, recovered_mark(replica))).collect(),
            own: until(me.replica()),
            replaced: Replaced::open(recovered),
            deletes: Deletes::open(me, topology, recovered, planted),
            forgets_early: planted.forgets_deletes_early,
            waits_for_one_site: planted.waits_for_one_site,
        }
    }

    /// This replica has stamped a version, and put it into the store.
    pub fn stamped(&mut self, at: Hlc) {
        self.own = at;
    }

    /// The mark that is sent now.
    pub fn next<P: Protocol>(&mut self, cx: &mut Context<'_, P>) -> Mark {
        self.own = cx.promise();
        Mark {
            promise: self.own,
            settled: cx.settled_promise(),
            deletes: self.deletes.said(cx),
            wall: cx.now.wall.earliest,
            replaced: self.replaced.said(),
        }
    }

    /// Takes in a peer's mark: everything that `from` stamped up to its promise has been handled.
    pub fn heard<P: Protocol>(&mut self, cx: &mut Context<'_, P>, from: ReplicaId, mark: Mark) {
        cx.observe(mark.promise);
        let Some(known) = self.theirs.get_mut(&from) else {
            return;
        };
        known.promise = known.promise.max(mark.promise);
        known.settled = known.settled.max(mark.settled);
        self.replaced.heard(mark.replaced);
        let promises = self.theirs.values().map(|mark| mark.promise);
        if self.replaced.lets_prove(cx, promises) {
            self.prove(from, mark.wall);
        }
        self.deletes.heard(cx, from, mark.deletes);
    }

    /// Everything that a peer had acknowledged by this wall time is here, or something newer.
    fn prove(&mut self, peer: ReplicaId, wall: Micros) {
        if let Some(known) = self.theirs.get_mut(&peer) {
            known.wall = known.wall.max(wall);
        }
    }

    /// A peer has sent back what this replica lost: see [`Replaced::returned`].
    pub fn returned<P: Protocol>(&mut self, cx: &mut Context<'_, P>, returned: &Recovered) {
        self.replaced.returned(cx, returned);
    }

    /// Whether this replica may decide by what it has: see [`Replaced::lets_decide`].
    pub fn lets_decide(&self) -> bool {
        self.replaced
            .lets_decide(self.theirs.values().map(|mark| mark.promise))
    }

    /// Everything that a peer stamped up to this time is here.
    pub fn promise_of(&self, peer: ReplicaId) -> Hlc {
        self.theirs.get(&peer).map_or(Hlc::ZERO, |mark| mark.promise)
    }

    /// A full copy is in place: see [`Protocol::on_copied`].
    pub fn copied(&mut self, copied: &Recovered) {
        for &(replica, until) in &copied.cut {
            if let Some(known) = self.theirs.get_mut(&replica) {
                known.promise = known.promise.max(until);
                known.settled = known.settled.max(until);
            }
        }
    }

    /// Writes down what is shown here. Call it about once a second.
    pub fn keep<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        // Everything that any replica stamped up to this time was handled, and staged for the log, before this.
        let others = self.theirs.values().map(|mark| mark.promise).min();
        self.deletes.keep(cx, others.unwrap_or(Hlc::LATEST).min(self.own));
    }

    /// Everything that this replica stamped up to this time is here. For another replica, that is what it has promised, if no power loss there takes
    /// any of that. See [`Protocol::cut`].
    pub fn cut(&self) -> Vec<(ReplicaId, Hlc)> {
        let others = self.theirs.iter();
        let others = others.map(|(&replica, mark)| (replica, mark.promise.min(mark.settled)));
        others.chain([(self.me, self.own)]).collect()
    }

    /// Which deletes may be forgotten: see [`Protocol::settled`].
    pub fn settled(&self) -> Hlc {
        let stamped = || self.theirs.values().map(|mark| mark.settled).min();
        match self.forgets_early {
            true => stamped().unwrap_or(Hlc::LATEST).min(self.own),
            false => self.deletes.forgotten().min(self.own),
        }
    }

    /// See [`Protocol::closed_everywhere`].
    pub fn closed_everywhere(&self) -> Hlc {
        self.deletes.closed_everywhere().min(self.settled())
    }

    /// How old the state is that reads here show, at most, counted from when the request came: the last mark of every other replica proves that everything
    /// which the replica had acknowledged by the mark's wall time is here. `None` if that is not known.
    pub fn staleness<P: Protocol>(&self, cx: &Context<'_, P>) -> Option<Micros> {
        cx.staleness(self.walls())
    }

    /// Whether the request at hand, a read at `bounded(bound)`, can be answered now. It may wait for `patience` in all.
    pub fn bounded<P: Protocol>(&self, cx: &Context<'_, P>, bound: Micros, patience: Micros) -> Bounded {
        let count = if self.waits_for_one_site { 1 } else { usize::MAX };
        cx.bounded(bound, patience, self.walls().take(count))
    }

    /// Of each other replica, the wall time by which everything that it had acknowledged is here. 0 if it was not heard yet.
    pub fn walls(&self) -> impl Iterator<Item = Micros> + Clone {
        self.theirs.values().map(|mark| mark.wall)
    }

    /// Checks the invariants, and panics with words: see [`Protocol::validate`].
    pub fn validate(&self) {
        for (replica, mark) in &self.theirs {
            assert!(
                Hlc::from_wall(mark.wall) <= mark.promise,
                "site {} promised {} at {}: its promise is behind its own clock",
                replica.0,
                mark.promise,
                mark.wall
            );
            assert!(*replica != self.me, "a replica has no mark of its own site");
        }
    }
}
