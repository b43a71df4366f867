//! What a replica must hear after a start, before it answers anybody.
//!
//! **An empty directory may have been lost.** Then peers hold versions that this site stamped in a life of which it knows nothing. Whoever
//! has read them must not be told that there is nothing. And some may lie ahead of its wall clock, since each restart leads a clock by up to
//! three seconds: what it stamped below those would be passed over everywhere, because the older version of the key would win. So requests wait until every
//! other site has given back what it holds. By then each has said how far its clock is, which is above all that this site ever told it.
//!
//! ```text
//!   site b: directory lost                        site a
//!      | wall clock 100                              | has x of b, stamped 103, and b's promise of 103
//!      | PUT x, GET x wait                           |
//!      | <------- resume, clock 104 ---------------- |
//!      | <------- x@103 is given back -------------- |
//!      | stamps x with 105                           |
//! ```
//!
//! It waits for at least one other site: alone it cannot tell a new cluster from a lost directory. If none that it has heard after two seconds speaks of an
//! earlier life, it serves: the cluster is new, and one site may be late. But once a peer speaks of an earlier life of this node, its directory was
//! lost, and it waits for all sites: what it answered and stamped in that life may be known to a site that is away, and to no other. Its requests are
//! refused meanwhile, by the names of those sites, and it promises nothing.
//!
//! What it stamped last may have reached nobody but its clients. Where its clock was ahead of the wall clock it counted on from the newest stamp that it had
//! heard. Its peers know that one, and from there it would give the same stamps to other values. So its clock is put ahead by as much as a
//! restart puts the first bound, once for each peer that is heard: nobody counts that far while a message is under way. The same holds for an old copy of a
//! directory, whose peers know more of its stream than it does.
//!
//! Once all have given back, that is written down. A node that is restarted before asks all of them again.
//!
//! **A directory with something in it may be an old copy.** A peer says what it has forgotten when the link to it comes up. If deletes are among that which
//! the copy does not have, the replica refuses to serve. So requests wait for the word of any other site. And nothing is given to others, rows that they
//! lost or a full copy, before all other sites were heard, ten seconds at most: what was deleted since would come back there. One that knows that
//! it is old gives nothing, and whoever waits for what it gives back is told that there is nothing. One that serves has lost what it wrote after it was made,
//! and others may not have that either: where writes are synced, a peer that holds more than the copy shows that it is one, and it promises nothing until
//! all have given back what they hold. Under `interval` and `none` an old copy looks like the end of a log that a power loss took.
//!
//! For that word requests wait two seconds at most, then they are served.
use super::{
    Lane, MOST_COLD,
    missing::{Missing, Unheard},
    waiting::{Question, Waiting},
};
use crate::{durability::Durability, incoming::Purpose};
use std::collections::VecDeque;
use turnbuckle_core::{
    Forgotten, Hlc, HybridClock, Input, Micros, Now, Outcome, Protocol, ReplicaId, ReplicaSet, ServerId,
};
use turnbuckle_replication::{Cursor, ReturnedFrame, StreamBody, StreamPosition};

/// How long requests wait at most.
const PATIENCE: Micros = Micros::from_millis(2_000);

/// How long others wait at most for what is given to them: a site that was away itself is heard only when it has sent a full copy.
const GIVES_AFTER: Micros = Micros::from_millis(10_000);

impl<P: Protocol> Lane<P> {
    /// The lane begins a life.
    pub(super) fn begin_unheard(&mut self, now: Now) {
        let env = self.env.clone();
        let config = &env.shared().config;
        self.unheard_of = self.unsettled;
        let is_new = config.is_first_life_of(env.name());
        self.gives_from = match is_new {
            true => Micros(0),
            false => now.monotonic + GIVES_AFTER,
        };
        if is_new && !self.given_back {
            // Nobody has anything of it: also after a restart.
            self.log_given_back();
        }
        if self.unsettled.0 == 0 || is_new || config.planted.stamps_unheard {
            return;
        }
        self.unheard = Some(Unheard {
            missing: match self.given_back {
                true => Missing::Word,
                false => Missing::Returns(self.unsettled),
            },
            until: now.monotonic + PATIENCE,
            waiting: VecDeque::new(),
        });
    }

    /// A question waits, or is refused.
    pub(super) fn hold_question(&mut self, now: Now, question: Question<P>) {
        if let Some(unheard) = self
            .unheard
            .as_mut()
            .filter(|unheard| now.monotonic < unheard.until)
        {
            return unheard.waiting.push_back(Waiting::Question(question));
        }
        self.deliver(question.id, Outcome::Refused(self.missing_returns()));
    }

    fn missing_returns(&self) -> String {
        let sites = self
            .unsettled
            .iter()
            .map(|replica| self.env.topology().replica_name(replica));
        let sites = sites.collect::<Vec<_>>().join(", ");
        match self.had_earlier_life {
            true => format!(
                "this node began with an empty data directory, and what it had written before is not back yet from: {sites}"
            ),
            false => format!(
                "this node began with an empty data directory, and waits for another site ({sites}) to say whether it has served before; a \
                 cluster that has never served is started with --new-cluster"
            ),
        }
    }

    /// Whether a start with an empty directory has still to be told, by anybody, whether it was lost.
    fn has_heard_nobody(&self) -> bool {
        self.unheard_of == self.env.topology().others_of(self.me)
    }

    /// Why no request is taken, if the directory was lost.
    pub(crate) fn unheard_refusal(&self) -> Option<String> {
        let is_late = |unheard: &Unheard<P>| {
            matches!(unheard.missing, Missing::Returns(_)) && self.time.monotonic >= unheard.until
        };
        let is_alone = self.has_heard_nobody() && self.unheard.as_ref().is_some_and(is_late);
        let waits = self.unheard.is_some() && self.had_earlier_life;
        (waits || is_alone).then(|| self.missing_returns())
    }

    /// A message that names keys waits, or is lost: its sender is prepared for that.
    pub(super) fn hold_message(&mut self, now: Now, message: Waiting<P>) {
        if let Some(unheard) = &mut self.unheard
            && now.monotonic < unheard.until
            && unheard.waiting.len() < MOST_COLD
        {
            unheard.waiting.push_back(message);
        }
    }

    /// A site has said where it is. Its clock is above everything that it has heard of this one, and above the deletes that it has forgotten. A
    /// clock too far ahead is not taken; the link is held then until the clocks agree. The births of directories are taken all the same: they are no
    /// clocks, and are said in full on each link once.
    pub(crate) fn hear_word(&mut self, now: Now, from: ServerId, clock: Hlc, mut forgotten: Forgotten) {
        if clock.max(forgotten.until.unwrap_or_default()) > self.horizon(now) {
            forgotten.until = None;
            self.step(now, Input::Resumed { from, forgotten });
            return self.give_nothing();
        }
        self.replica.observe(clock);
        if self.has_lost_directory && self.unheard_of.contains(from.replica()) {
            let ahead = self.replica.clock().wall() + HybridClock::FIRST_LEASE;
            self.replica.observe(Hlc::from_wall(ahead));
        }
        self.unheard_of = self.unheard_of.without(from.replica());
        let is_enough = forgotten.until.is_some() || self.unheard_of.0 == 0;
        self.step(now, Input::Resumed { from, forgotten });
        self.say_outdated();
        if is_enough {
            self.hear_any();
        }
        self.give_nothing();
        self.end_unheard(now);
    }

    /// A peer at another site may know this node by a life of which nothing is on its disk, or not all: by its stream, by what copies of third
    /// sites have brought from there, or by the birth of its directory.
    pub(crate) fn hear_of_earlier_life(&mut self, at: [StreamPosition; 2], word: &Forgotten) {
        let is_another = |at: StreamPosition| self.outgoing.is_of_another_life(at);
        let mine = self.replica.protocol().forgotten().directories;
        let [mine, known] = [&mine, &word.met].map(|births| births.get(&self.id));
        let is_met = known.is_some_and(|known| mine != Some(known));
        let is_heard_of = at.into_iter().any(is_another) || is_met || word.directories.contains_key(&self.id);
        self.had_earlier_life |= is_heard_of && !self.given_back;
        // Where every write is synced before it is acknowledged or sent, no power loss takes any.
        let is_fsync = self.env.durability() == Durability::Fsync;
        let is_lost = |at: StreamPosition| is_another(at) || is_fsync && self.outgoing.has_lost(at);
        self.has_lost_directory |= self.had_earlier_life || at.into_iter().any(is_lost);
        if self.takes_back() {
            self.outgoing.withdraw_marks();
        }
    }

    /// Whether this node's directory is an old copy, as far as it knows.
    pub(super) fn is_outdated(&self) -> bool {
        self.replica.protocol().is_outdated()
    }

    /// Says once that nothing is served, and what to do.
    fn say_outdated(&mut self) {
        if self.is_outdated() && !std::mem::replace(&mut self.said_outdated, true) {
            tracing::error!(
                keyspace = self.env.name(),
                partition = self.me.partition,
                "the data directory of this node is an old copy: nothing is served. Stop the node, empty its data directory and start it again"
            );
        }
    }

    /// Who waits for what an old copy gives back is told that there is nothing.
    pub(crate) fn give_nothing(&mut self) {
        if !self.is_outdated() {
            return;
        }
        let is_return = |purpose: &Purpose| matches!(purpose, Purpose::Return(_));
        let mut waiting = Vec::new();
        for (&replica, errands) in &mut self.rows_wanted {
            let dropped = errands.extract_if(.., |errand| is_return(&errand.purpose));
            waiting.extend(dropped.map(|_| replica));
        }
        for (&replica, rows) in &mut self.rows_out {
            let before = rows.len();
            rows.retain(|rows| !is_return(&rows.purpose));
            waiting.extend((rows.len() < before).then_some(replica));
        }
        for replica in waiting {
            let nothing = ReturnedFrame {
                end: true,
                ..ReturnedFrame::default()
            };
            let peer = self.me.peer(replica);
            self.say(peer, StreamBody::Returned(nothing));
        }
    }

    /// Whether others may be given what they lost, or a full copy.
    pub(crate) fn may_give(&self) -> bool {
        let is_heard = self.unheard_of.0 == 0 || self.time.monotonic >= self.gives_from;
        is_heard && !self.is_outdated()
    }

    /// A site has said what it has forgotten.
    fn hear_any(&mut self) {
        if let Some(unheard) = &mut self.unheard
            && matches!(unheard.missing, Missing::Word)
        {
            unheard.missing = Missing::Returns(ReplicaSet::default());
        }
    }

    /// A site holds nothing more of this one.
    pub(super) fn hear_return(&mut self, replica: ReplicaId) {
        if let Some(Unheard {
            missing: Missing::Returns(sites),
            ..
        }) = &mut self.unheard
        {
            *sites = sites.without(replica);
        }
    }

    /// Nothing is missing any more, or it is not waited for any longer: what has waited goes on.
    pub(crate) fn end_unheard(&mut self, now: Now) {
        if self.wants_row_checkpoint() {
            self.wake_worker();
        }
        let is_alone = self.has_heard_nobody();
        let Some(unheard) = &mut self.unheard else { return };
        let is_late = now.monotonic >= unheard.until;
        let is_over = match unheard.missing {
            Missing::Returns(ReplicaSet(0)) => true,
            Missing::Returns(_) => {
                let gives = |cursor: &Cursor| cursor.state.takes_back();
                let is_given = self.outgoing.cursors().any(|(_, cursor)| gives(cursor));
                is_late && !self.had_earlier_life && !is_given && !is_alone
            }
            Missing::Word => is_late,
        };
        if !is_over && !is_late {
            return;
        }
        let waiting = std::mem::take(&mut unheard.waiting);
        if is_over {
            self.unheard = None;
        }
        for input in waiting {
            match input {
                Waiting::Question(question) => self.run_or_park(now, question),
                Waiting::Message { from, message } => self.hear_or_park(now, from, message),
                Waiting::Timer { keys, timer } => self.fire_or_park(now, keys, timer),
            }
        }
        self.finish_input(now);
    }
}
