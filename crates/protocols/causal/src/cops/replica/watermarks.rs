use super::{Cops, Cx, Kept, Line, NAME, Timer};
use crate::cops::message::{Heartbeat, Message};
use crate::cops::waiting::{At, at_of};
use turnbuckle_core::{Hlc, Key, ReplicaId, ServerId};

/// The times up to which everything is visible, and what is reported, written down and collected by them.
impl Cops {
    /// Up to this time this partition has everything of every site.
    pub(super) fn has_all_until(&self) -> Hlc {
        let others = self.peers.keys().map(|&replica| self.vv.at(replica));
        others.min().unwrap_or(Hlc::LATEST)
    }

    /// Raises the watermarks: below the oldest version that waits, and up to the last mark. If there may be versions that are not looked after, only
    /// those are certainly visible up to whose time the whole site has everything.
    pub(super) fn raise_watermarks(&mut self, cx: &mut Cx<'_>) {
        let me = self.me.replica();
        for replica in self.replicas().filter(|&replica| replica != me) {
            let mut until = self.recovery.safe().min(self.vv.at(replica));
            if self.unsure.at(replica) <= self.visible.at(replica).max(until) {
                let mut waiting = self
                    .pending
                    .range((replica, until.next())..=(replica, Hlc(u64::MAX)));
                let oldest = waiting.next().map(|((_, at), _)| Hlc(at.0 - 1));
                until = oldest.map_or(self.vv.at(replica), |oldest| oldest.min(self.vv.at(replica)));
            }
            if self.visible.raise(replica, until) {
                self.watermark_rose(cx, replica);
            }
        }
        let shown = self.peers.keys().map(|&replica| self.visible.at(replica));
        if self.replaced.lets_prove(cx, shown) {
            for (&replica, peer) in &mut self.peers {
                peer.prove(self.visible.at(replica));
            }
        }
        let oldest = self.walls().min().unwrap_or_default();
        cx.advance(Line::OldestWall, oldest.0);
        self.catch_up(cx);
        self.everywhere = self.visible.clone();
        for peer in self.peers.values() {
            self.everywhere.meet(&peer.visible);
        }
    }

    pub(super) fn watermark_rose(&mut self, cx: &mut Cx<'_>, replica: ReplicaId) {
        let until = self.visible.at(replica);
        let below = (replica, Hlc::ZERO)..=(replica, until);
        let released: Vec<At> = self.pending.range(below.clone()).map(|(&at, _)| at).collect();
        released.into_iter().for_each(|at| self.become_visible(cx, at));
        for at in self.questions.below(self.me.partition, replica, until) {
            self.become_visible(cx, at);
        }
        while let Some(&at) = self.above.range(below.clone()).next() {
            self.above.remove(&at);
        }
    }

    pub(super) fn heartbeat(&mut self, cx: &mut Cx<'_>) {
        let promise = cx.promise();
        self.vv.raise(self.me.replica(), promise);
        self.visible.raise(self.me.replica(), promise);
        self.own_settled = self.own_settled.max(cx.settled_promise());
        let heartbeat = Heartbeat {
            promise,
            settled: self.own_settled,
            wall: cx.now.wall.earliest,
            visible: self.visible.clone(),
            deletes: self.deletes.said(cx),
            replaced: self.replaced.said(),
        };
        cx.mark(cx.others(), Message::Heartbeat(heartbeat));
        cx.set_timer(Timer::Heartbeat, self.config.heartbeat);
    }

    /// Asks again, because messages inside a site are lost when a connection breaks.
    pub(super) fn ask_again(&mut self, cx: &mut Cx<'_>) {
        cx.set_timer(Timer::Retry, self.config.retry);
        self.catch_up(cx);
        for (partition, (key, id)) in
            self.questions
                .old(cx.now.monotonic, self.config.retry, self.config.max_again)
        {
            let server = ServerId { partition, ..self.me };
            cx.send(server, Message::DepCheck(key, id));
        }
        let is_unsure = |&replica: &ReplicaId| self.unsure.at(replica) > self.visible.at(replica);
        let is_unsure = self.peers.keys().any(is_unsure);
        let is_held = || self.pending.keys().any(|&(_, at)| self.recovery.holds(at));
        if is_unsure || is_held() {
            for partition in (0..self.partitions).filter(|&partition| partition != self.me.partition) {
                let server = ServerId { partition, ..self.me };
                cx.send(server, Message::HowFar(self.recovery.question()));
            }
        }
    }

    /// Writes down what is visible, once a second.
    pub(super) fn keep(&mut self, cx: &mut Cx<'_>) {
        cx.set_timer(Timer::Keep, self.config.keep_every);
        self.write_down(cx);
        let shown = self.kept.oldest(usize::from(self.sites));
        self.deletes.keep(cx, shown);
    }

    /// If a partition that started has caught up, the readers that wait for that go on.
    pub(super) fn catch_up(&mut self, cx: &mut Cx<'_>) {
        let is_placing = self.is_placing && !self.config.bugs.answers_before_a_copy;
        if !is_placing && self.caught_up.look(&self.visible, cx.now.monotonic) {
            cx.advance(Line::CaughtUp, 1);
        }
    }

    pub(super) fn write_down(&mut self, cx: &mut Cx<'_>) {
        let kept = Kept::encode(&self.vv, &self.visible, &self.above);
        cx.put_named(NAME, kept);
        self.kept = self.visible.clone();
        self.fresh = Hlc::LATEST;
    }

    /// Shortens a hot key's chain without a checkpoint, before another version is put. Versions that are older than a visible one are dropped, if this replica looks after all that
    /// are not visible.
    pub(super) fn make_room(&mut self, cx: &mut Cx<'_>, key: &Key) {
        const LONG: usize = 16;
        let Some(chain) = cx.chain(key).filter(|chain| chain.has_doubled(LONG)) else {
            return;
        };
        let is_known = |id| self.is_visible(id) || self.pending.contains_key(&at_of(id));
        let unknown = chain.iter().filter(|version| !is_known(version.id)).last();
        let unknown = unknown.map(|version| (version.rank(), version.meta.clone()));
        let fresh = self.fresh;
        cx.make_room(key, |version| {
            let is_above = unknown
                .as_ref()
                .is_some_and(|(unknown, _)| version.rank() > *unknown);
            !is_above && version.id.at < fresh && self.is_visible(version.id)
        });
        if let Some((unknown, nearest)) = unknown {
            self.look_after(cx, unknown.id, &nearest, true);
        }
    }
}
