//! A peer tells where it is in this lane's stream: what it is sent from there on, and what it must restore first.
use super::Lane;
use crate::environment::Environment;
use turnbuckle_core::{BadFrame, Hlc, Now, Protocol, ReplicaId, ReplicaSet, ServerId};
use turnbuckle_replication::{
    CursorState, Incarnation, ResumeFrame, Resumption, StreamBody, StreamPosition, TakeBackFrame,
};

impl<P: Protocol> Lane<P> {
    pub(super) fn on_resume(&mut self, now: Now, from: ServerId, frame: ResumeFrame) -> Result<(), BadFrame> {
        if let Some(cursor) = self.outgoing.cursor(from.replica()) {
            cursor.heard_word = frame.word_number;
        }
        match self.streams {
            Some(_) => self.resume_stream(now, from, frame),
            None => self.resume_copies(now, from, &frame),
        }
    }

    /// A peer of a protocol without streams is there. If it asks for a copy, it is sent one.
    fn resume_copies(&mut self, now: Now, from: ServerId, frame: &ResumeFrame) -> Result<(), BadFrame> {
        let replica = from.replica();
        let clock = Hlc(frame.clock);
        if clock <= self.horizon(now) {
            self.replica.observe(clock);
        }
        self.rows.drop_copies(replica);
        match frame.copy {
            Some(behind) => self.want_copy(replica, Some(behind.into()), 0),
            None => drop(self.outgoing.resume(replica, StreamPosition::default(), false)),
        }
        Ok(())
    }

    fn resume_stream(&mut self, now: Now, from: ServerId, frame: ResumeFrame) -> Result<(), BadFrame> {
        let (replica, at) = (from.replica(), frame.at());
        let word = frame.word(self.env.topology())?;
        let held = frame.held.map(StreamPosition::from);
        self.hear_of_earlier_life([at, held.unwrap_or_default()], &word);
        self.hear_word(now, from, Hlc(frame.clock), word);
        self.rows.drop_copies(replica);
        let resumption = self.resumption(replica, at, frame.copy.is_some());
        if matches!(resumption, Resumption::Stream | Resumption::Copy) {
            // A peer that lacks rows restores nothing now: it resumes again when it has its rows.
            if frame.copy.is_none()
                && let Some(held) = held
                && let Some(since) = self.outgoing.lost(replica, held)
            {
                return self.take_held(now, from, at, (held, since));
            }
            self.settle_peer(replica);
            self.end_startup_wait(now);
        }
        match resumption {
            Resumption::Stream => self.wake_links(ReplicaSet::one(replica)),
            Resumption::TakeBack { since, .. } => {
                let why =
                    "the end of this node's log was lost; asking the peer to send back what this site wrote";
                self.warn_of(from, &format!("{why} since {since}"));
                self.take_back(from, since);
            }
            Resumption::Copy => {
                let behind = frame.copy.map(StreamPosition::from);
                self.want_copy(replica, behind, at.number);
            }
            Resumption::BeyondSource => {
                check_begun(&self.env, now, at)?;
                self.begin_anew(from, at);
            }
        }
        Ok(())
    }

    /// How the stream goes on with a peer that is at position `at`.
    fn resumption(&mut self, replica: ReplicaId, at: StreamPosition, wants_copy: bool) -> Resumption {
        // A lane that lacks rows sends no copy, and may wait until the peer has taken in its stream. So it streams all the same.
        let forgets = self.repair.is_none()
            && self.has_forgotten()
            && !self.env.shared().config.planted.replays_to_the_empty;
        // While it is not known whether this directory is an old copy, a peer that has nothing counts as needing a full copy, and the copy
        // waits.
        match self.outgoing.resume(replica, at, forgets || !self.may_give()) {
            // Versions that are to be taken back come first.
            Resumption::Stream if wants_copy => {
                self.outgoing.silence(replica);
                Resumption::Copy
            }
            resumption => resumption,
        }
    }

    /// The peer holds more of this lane's stream than the lane remembers: the lane's directory was lost, or is an old copy. A new
    /// incarnation begins beyond what the peer has seen, and the peer restores everything that this site ever wrote.
    fn begin_anew(&mut self, peer: ServerId, at: StreamPosition) {
        self.warn_of(
            peer,
            "the peer holds more of this node's stream than this node does: the data directory of this node was lost or is an old copy. \
             Asking the peer to send back what this site wrote",
        );
        let Some(opened) = self.begin_incarnation(at.incarnation + 1) else {
            return;
        };
        if let Some(cursor) = self.outgoing.cursor(peer.replica()) {
            // Only if the directory was empty is it known how much of the earlier lives the peer has.
            let end = (opened.start == 1).then_some(0);
            cursor.set_state(CursorState::TakingBack { end });
        }
        self.take_back(peer, Hlc::ZERO);
    }

    /// Full copies of third sites have brought the peer versions that this lane wrote and lost. The peer restores them before anything
    /// else.
    fn take_held(
        &mut self,
        now: Now,
        peer: ServerId,
        at: StreamPosition,
        (held, since): (StreamPosition, Hlc),
    ) -> Result<(), BadFrame> {
        check_begun(&self.env, now, held)?;
        let why = "the peer holds versions that this node has lost, from a full copy of another site; asking it to send back what this site wrote";
        self.warn_of(peer, &format!("{why} since {since}"));
        let is_behind = held.incarnation >= self.outgoing.incarnation();
        if is_behind && self.begin_incarnation(held.incarnation + 1).is_none() {
            return Ok(());
        }
        if let Some(cursor) = self.outgoing.cursor(peer.replica()) {
            cursor.set_state(CursorState::TakingHeld { at, held });
        }
        self.take_back(peer, since);
        Ok(())
    }

    /// Asks the peer for the versions that this lane stamped after `since` and has lost.
    fn take_back(&mut self, peer: ServerId, since: Hlc) {
        let frame = TakeBackFrame { since: since.0 };
        self.say(peer, StreamBody::TakeBack(frame));
    }

    fn begin_incarnation(&mut self, number: u64) -> Option<Incarnation> {
        let opened = self.outgoing.begin(number, self.replica.clock());
        let logged = self.log_incarnation(opened);
        let logged = logged.inspect_err(|error| {
            tracing::error!(
                keyspace = self.env.name(),
                "a new incarnation cannot be written: {error}"
            );
        });
        logged.is_ok().then_some(opened)
    }

    fn warn_of(&self, peer: ServerId, why: &str) {
        tracing::warn!(
            keyspace = self.env.name(),
            partition = self.me.partition,
            peer = self.env.topology().replica_name(peer.replica()),
            "{why}"
        );
    }
}

/// Incarnations are times of day. If one lay in the future, the incarnations after it would be refused by every peer.
fn check_begun(env: &Environment, now: Now, at: StreamPosition) -> Result<(), BadFrame> {
    let horizon = env.shared().config.horizon(now).wall();
    if at.incarnation > horizon.0 {
        let found = format!("{}: check both clocks", at.incarnation);
        return Err(BadFrame::new("an incarnation that can have begun", found));
    }
    Ok(())
}
