//! State of a lane whose protocol replicates by streams: what it may have lost in earlier lives, and inputs that wait until peers were
//! heard.
//!
//! The decisions that depend on it, and their reasons, are in [`EarlierIncarnations`] and [`StartupWait`].
use super::{
    Lane,
    inputs::MAX_COLD,
    waiting::{Question, Waiting},
};
use crate::durability::Durability;
use turnbuckle_core::{
    Forgotten, Hlc, HybridClock, Input, Micros, Now, Outcome, Protocol, ReplicaId, ReplicaSet, ServerId,
};
use turnbuckle_replication::{
    Cursor, CursorState, EarlierIncarnations, ReturnedFrame, StartupWait, StreamBody, StreamPosition,
};

/// The state of a lane with streams. A protocol without streams has none of it.
pub(super) struct Streams<P: Protocol> {
    lives: EarlierIncarnations,
    /// What requests wait for after a start. `None` when they need not wait.
    startup_wait: Option<StartupWait<Waiting<P>>>,
    /// Peers that have restored everything, in the open batch.
    givers: Vec<ReplicaId>,
    /// Whether it was logged that the directory is an old copy.
    has_said_outdated: bool,
}

impl<P: Protocol> Streams<P> {
    /// The state as the last checkpoint left it.
    pub fn restore(me: ReplicaId, recovered: Hlc, is_given_back: bool) -> Streams<P> {
        Streams {
            lives: EarlierIncarnations::restore(me, recovered, is_given_back),
            startup_wait: None,
            givers: Vec::new(),
            has_said_outdated: false,
        }
    }

    /// Replays a record's flag: whether all peers have restored what they held.
    pub fn replay(&mut self, is_given_back: bool) {
        self.lives.replay(is_given_back);
    }

    /// A peer has restored everything. That is written down with the open batch.
    pub fn push_giver(&mut self, peer: ReplicaId) {
        self.givers.push(peer);
    }
}

impl<P: Protocol> Lane<P> {
    /// The lane begins a life.
    pub(super) fn begin_life(&mut self, now: Now) {
        let env = self.env.clone();
        let config = &env.shared().config;
        let others = env.topology().others_of(self.me);
        let is_first = config.is_first_life_of(env.name());
        let Some(streams) = &mut self.streams else { return };
        let is_given_back = streams.lives.is_given_back();
        streams
            .lives
            .begin(now.monotonic, others, config.patience, is_first);
        if !(others.is_empty() || is_first || config.planted.stamps_unheard) {
            streams.startup_wait = Some(match is_given_back {
                true => StartupWait::word(now.monotonic),
                false => StartupWait::returns(now.monotonic, others),
            });
        }
        if is_first && !is_given_back {
            // No peer holds anything of it, and that stays true after a restart.
            self.log_given_back();
        }
    }

    /// The time at which inputs stop waiting to hear from peers, if any input waits.
    pub(super) fn startup_wait_until(&self) -> Option<Micros> {
        self.streams.as_ref()?.startup_wait.as_ref()?.until()
    }

    /// What is known of the lane's earlier lives.
    pub(super) fn lives(&self) -> Option<&EarlierIncarnations> {
        self.streams.as_ref().map(|streams| &streams.lives)
    }

    /// Everything that this replica stamped in its earlier lives up to this time is in the last checkpoint.
    pub(super) fn recovered_until(&self) -> Hlc {
        self.lives().map_or(Hlc::ZERO, EarlierIncarnations::recovered)
    }

    /// The time up to which this replica knows to have everything that it stamped, if its protocol says `until`.
    pub(super) fn known(&self, until: Hlc) -> Hlc {
        self.lives().map_or(until, |lives| lives.known(until))
    }

    /// Whether peers may hold versions that this replica has lost, and are waited for.
    pub(super) fn takes_back(&self) -> bool {
        let now = self.time.monotonic;
        self.lives().is_some_and(|lives| lives.takes_back(now))
    }

    /// Takes the peers that have restored everything, for the record that says so.
    pub(super) fn take_givers(&mut self) -> Vec<ReplicaId> {
        let givers = self.streams.as_mut().map(|streams| &mut streams.givers);
        givers.map(std::mem::take).unwrap_or_default()
    }

    /// A peer holds nothing that was lost here.
    pub(super) fn settle_peer(&mut self, peer: ReplicaId) {
        let Some(streams) = &mut self.streams else { return };
        let is_all = streams.lives.settle(peer);
        if let Some(startup_wait) = &mut streams.startup_wait {
            startup_wait.hear_return(peer);
        }
        if is_all {
            self.log_given_back();
        }
    }

    /// Writes down that the peers have restored what they held when the directory was empty. Nothing waits until that is on disk.
    fn log_given_back(&mut self) {
        if let Some(streams) = &mut self.streams {
            streams.lives.note_given_back();
        }
        self.moved = true;
        let mut record = self.empty_record();
        record.given_back = true;
        self.append_record(&record);
    }

    // ---- what peers tell ------------------------------------------------------------------------------------

    /// A peer at another site may know a life of this node of which nothing, or not everything, is on this node's disk.
    pub(super) fn hear_of_earlier_life(&mut self, at: [StreamPosition; 2], word: &Forgotten) {
        // Where every write is synced before it is acknowledged or sent, no power loss takes any write.
        let syncs_all = self.env.durability() == Durability::Fsync;
        let births = self.replica.protocol().forgotten().directories;
        let birth = births.get(&self.id).copied();
        let Some(streams) = &mut self.streams else { return };
        streams.lives.hear_of(at, word, birth, &self.outgoing, syncs_all);
        if self.takes_back() {
            self.outgoing.withdraw_marks();
        }
    }

    /// A peer has told where it is. Its clock is above everything that it has heard of this replica, and above the deletes that it has
    /// forgotten. A clock too far ahead is not taken; the link is held then until the clocks agree. The births of directories are taken all
    /// the same: they are not clocks, and each link tells them in full once.
    pub(super) fn hear_word(&mut self, now: Now, from: ServerId, clock: Hlc, mut forgotten: Forgotten) {
        if clock.max(forgotten.until.unwrap_or_default()) > self.horizon(now) {
            forgotten.until = None;
            self.step(now, Input::Resumed { from, forgotten });
            return self.give_nothing();
        }
        self.replica.observe(clock);
        let Some(streams) = &mut self.streams else { return };
        if streams.lives.hear(from.replica()) {
            let ahead = self.replica.clock().wall() + HybridClock::FIRST_LEASE;
            self.replica.observe(Hlc::from_wall(ahead));
        }
        let is_enough = forgotten.until.is_some() || streams.lives.not_heard_from().is_empty();
        self.step(now, Input::Resumed { from, forgotten });
        self.say_outdated();
        if is_enough
            && let Some(streams) = &mut self.streams
            && let Some(startup_wait) = &mut streams.startup_wait
        {
            startup_wait.hear_word();
        }
        self.give_nothing();
        self.end_startup_wait(now);
    }

    /// Whether this node's directory is an old copy, as far as the replica knows.
    pub(super) fn is_outdated(&self) -> bool {
        self.replica.protocol().is_outdated()
    }

    /// Logs once that nothing is served, and what the operator must do.
    fn say_outdated(&mut self) {
        let is_outdated = self.is_outdated();
        let Some(streams) = &mut self.streams else { return };
        if is_outdated && !std::mem::replace(&mut streams.has_said_outdated, true) {
            tracing::error!(
                keyspace = self.env.name(),
                partition = self.me.partition,
                "the data directory of this node is an old copy: nothing is served. Stop the node, empty its data directory and start it again"
            );
        }
    }

    /// Whether peers may be sent versions that they lost, or a full copy.
    pub(super) fn may_give(&self) -> bool {
        let now = self.time.monotonic;
        let has_heard_all = self.lives().is_none_or(|lives| lives.may_give(now));
        has_heard_all && !self.is_outdated()
    }

    /// If this directory is an old copy, peers that wait for it to restore versions are told that there are none.
    pub(super) fn give_nothing(&mut self) {
        if !self.is_outdated() {
            return;
        }
        for replica in self.rows.drop_returns() {
            let nothing = ReturnedFrame {
                end: true,
                ..ReturnedFrame::default()
            };
            self.say(self.me.peer(replica), StreamBody::Returned(nothing));
        }
    }

    // ---- what waits for it ----------------------------------------------------------------------------------

    /// Whether requests wait until peers were heard.
    pub(crate) fn is_in_startup_wait(&self) -> bool {
        self.startup_wait().is_some()
    }

    fn startup_wait(&self) -> Option<&StartupWait<Waiting<P>>> {
        self.streams.as_ref()?.startup_wait.as_ref()
    }

    fn startup_wait_mut(&mut self) -> Option<&mut StartupWait<Waiting<P>>> {
        self.streams.as_mut()?.startup_wait.as_mut()
    }

    /// Makes a request wait, or refuses it.
    pub(super) fn hold_question(&mut self, now: Now, question: Question<P>) {
        let id = question.id;
        if let Some(startup_wait) = self.startup_wait_mut()
            && startup_wait
                .hold(now.monotonic, Waiting::Question(question))
                .is_ok()
        {
            // The request is released when its time is up, also if nothing else happens in this lane.
            self.moved = true;
            return;
        }
        self.deliver(id, Outcome::Refused(self.missing_returns()));
    }

    /// Makes a message that names keys wait, or drops it: its sender asks again.
    pub(super) fn hold_message(&mut self, now: Now, message: Waiting<P>) {
        if let Some(startup_wait) = self
            .startup_wait_mut()
            .filter(|startup_wait| startup_wait.len() < MAX_COLD)
        {
            let _ = startup_wait.hold(now.monotonic, message);
            self.moved = true;
        }
    }

    fn missing_returns(&self) -> String {
        let lives = self.lives();
        let unsettled = lives.map_or(ReplicaSet::default(), EarlierIncarnations::unsettled);
        let sites = unsettled
            .iter()
            .map(|replica| self.env.topology().replica_name(replica));
        let sites = sites.collect::<Vec<_>>().join(", ");
        match lives.is_some_and(EarlierIncarnations::is_forgotten) {
            true => format!(
                "this node began with an empty data directory, and these sites have not yet sent back what it had written before: {sites}"
            ),
            false => format!(
                "this node began with an empty data directory, and waits for another site ({sites}) to say whether it has served before; a \
                 cluster that has never served is started with --new-cluster"
            ),
        }
    }

    /// Whether no peer has told yet, since a start with an empty directory, whether the directory was lost.
    fn has_heard_no_peer(&self) -> bool {
        let others = self.env.topology().others_of(self.me);
        self.lives().is_some_and(|lives| lives.not_heard_from() == others)
    }

    /// The reason, as text, why requests are refused if the directory was lost.
    pub(crate) fn startup_wait_refusal(&self) -> Option<String> {
        let streams = self.streams.as_ref()?;
        let startup_wait = streams.startup_wait.as_ref()?;
        let is_alone = self.has_heard_no_peer() && startup_wait.returns_are_late(self.time.monotonic);
        (streams.lives.is_forgotten() || is_alone).then(|| self.missing_returns())
    }

    /// If nothing is missing any more, or its time is up, the inputs that have waited are handled.
    pub(crate) fn end_startup_wait(&mut self, now: Now) {
        if self.wants_row_checkpoint() {
            self.wake_worker();
        }
        let is_new = !self.has_heard_no_peer() && !self.is_being_given_back();
        let Some(streams) = &mut self.streams else { return };
        let Some(startup_wait) = &mut streams.startup_wait else {
            return;
        };
        let is_new = is_new && !streams.lives.is_forgotten();
        let is_over = startup_wait.is_over(now.monotonic, is_new);
        if !is_over && !startup_wait.is_late(now.monotonic) {
            return;
        }
        let waiting = startup_wait.take_waiting();
        if is_over {
            streams.startup_wait = None;
        }
        for input in waiting {
            self.go_on(now, input);
        }
        self.finish_input(now);
    }

    /// Whether a peer is restoring versions that were lost here.
    fn is_being_given_back(&self) -> bool {
        let gives = |cursor: &Cursor| cursor.state.takes_back();
        self.outgoing.cursors().any(|(_, cursor)| gives(cursor))
    }

    // ---- what is restored -----------------------------------------------------------------------------------

    /// The versions that a peer restored are on disk.
    pub(super) fn taken_back(&mut self, replica: ReplicaId) {
        let state = self.outgoing.cursor(replica).map(|cursor| cursor.state);
        match state {
            Some(CursorState::TakingHeld { at, held }) => self.took_held(replica, at, held),
            Some(CursorState::TakingBack { end }) => self.took_back(replica, end),
            _ => {}
        }
    }

    /// The stream to a peer goes on behind `end`, or with a full copy if there is none.
    fn took_back(&mut self, replica: ReplicaId, end: Option<u64>) {
        // The position names an incarnation even if the number is 0, so that the peer does not look like one that has nothing. If this
        // directory is lost again before the copy arrives, the peer must be asked once more.
        let number = end.unwrap_or_default();
        let position = StreamPosition {
            incarnation: self.outgoing.incarnation_of(number),
            number,
        };
        if let Some(cursor) = self.outgoing.cursor(replica) {
            cursor.set_state(CursorState::Streaming { sent: number });
            cursor.acked = number;
        }
        self.settle_peer(replica);
        if end.is_none() {
            self.want_copy(replica, None, number);
        }
        if let Some(cursor) = self.outgoing.cursor(replica) {
            cursor.begins = Some(position);
        }
        self.wake_links(ReplicaSet::one(replica));
    }

    /// The versions that copies of third sites had brought a peer are back. The peer tells once more where it is.
    fn took_held(&mut self, replica: ReplicaId, at: StreamPosition, held: StreamPosition) {
        if let Some(cursor) = self.outgoing.cursor(replica) {
            cursor.gave = held;
            cursor.set_state(CursorState::Silent);
        }
        self.say(self.me.peer(replica), StreamBody::TakenBack(at.into()));
    }
}
