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
//! That this has happened is written down: a restart in between finds the directory as good as empty.
//!
//! **A directory with something in it may be an old copy.** A peer says what it has forgotten when the link to it comes up. If deletes are among that which
//! the copy does not have, the replica refuses to serve. So requests wait for the word of any other site. And nothing is given to others, rows that they
//! lost or a full copy, before all other sites were heard, ten seconds at most: what was deleted since would come back there. One that knows that
//! it is old gives nothing, and whoever waits for what it gives back is told that there is nothing.
//!
//! Nobody waits longer than two seconds: a site may be away, and in a new cluster one may be late. Then requests are served, or refused while a site
//! is still giving back. What is stamped then can be below what only a site that is away has heard.
use super::{Lane, MOST_COLD, Question, Waiting};
use crate::{
    frame::{Body, ResumeFrame, ReturnedFrame},
    incoming::Purpose,
    keyspace::Keyspace,
    stream::CursorState,
};
use std::collections::VecDeque;
use turnbuckle_core::{BadFrame, Hlc, Input, Micros, Now, Outcome, Protocol, ServerId, SiteId, SiteSet};

/// How long requests wait at most.
const PATIENCE: Micros = Micros::from_millis(2_000);

/// How long others wait at most for what is given to them: a site that was away itself is heard only when it has sent a full copy.
const GIVES_AFTER: Micros = Micros::from_millis(10_000);

/// What a replica waits for after a start, and what waits for it.
pub(crate) struct Unheard<P: Protocol> {
    missing: Missing,
    until: Micros,
    waiting: VecDeque<Waiting<P>>,
}

enum Missing {
    /// What these sites give back.
    Returns(SiteSet),
    /// What any site has forgotten.
    Word,
}

impl<P: Protocol> Lane<P> {
    /// The lane begins a life.
    pub(super) fn begin_unheard(&mut self, ks: &Keyspace<P>, now: Now) {
        let config = &ks.shared().config;
        self.unheard_of = self.unsettled;
        self.gives_from = match config.is_new_cluster {
            true => Micros(0),
            false => now.monotonic + GIVES_AFTER,
        };
        if self.unsettled.0 == 0 || config.is_new_cluster || config.planted.stamps_unheard {
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
    pub(super) fn hold_question(&mut self, ks: &Keyspace<P>, now: Now, question: Question<P>) {
        if let Some(unheard) = self
            .unheard
            .as_mut()
            .filter(|unheard| now.monotonic < unheard.until)
        {
            return unheard.waiting.push_back(Waiting::Question(question));
        }
        let why = "this node began with an empty data directory, and other sites are still giving back what it had written";
        ks.deliver(question.id, Outcome::Refused(why.to_string()));
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
    /// clock too far ahead is not taken; the link is held then until the clocks agree.
    pub(crate) fn hear_word(
        &mut self,
        ks: &Keyspace<P>,
        now: Now,
        from: ServerId,
        word: &ResumeFrame,
    ) -> Result<(), BadFrame> {
        let forgotten = word.word(ks.topology())?;
        if Hlc(word.clock).max(forgotten.until.unwrap_or_default()) > self.horizon(ks, now) {
            return Ok(());
        }
        self.replica.observe(Hlc(word.clock));
        self.unheard_of = self.unheard_of.without(from.site);
        let knows = forgotten.until.is_some();
        self.step(ks, now, Input::Resumed { from, forgotten });
        if knows {
            self.hear_any();
        }
        self.give_nothing(ks);
        self.end_unheard(ks, now);
        Ok(())
    }

    /// Whether this node's directory is an old copy, as far as it knows.
    pub(super) fn is_outdated(&self) -> bool {
        self.replica.protocol().is_outdated()
    }

    /// Who waits for what an old copy gives back is told that there is nothing.
    pub(crate) fn give_nothing(&mut self, ks: &Keyspace<P>) {
        if !self.is_outdated() {
            return;
        }
        let is_return = |purpose: &Purpose| matches!(purpose, Purpose::Return(_));
        let mut waiting = Vec::new();
        for (&site, errands) in &mut self.rows_wanted {
            let dropped = errands.extract_if(.., |errand| is_return(&errand.purpose));
            waiting.extend(dropped.map(|_| site));
        }
        for (&site, rows) in &mut self.rows_out {
            let before = rows.len();
            rows.retain(|rows| !is_return(&rows.purpose));
            waiting.extend((rows.len() < before).then_some(site));
        }
        for site in waiting {
            let nothing = ReturnedFrame {
                entries: Vec::new(),
                end: true,
            };
            let peer = ks.topology().peer_at(self.me, site);
            ks.send_frame(self.me, peer, Body::Returned(nothing));
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
            unheard.missing = Missing::Returns(SiteSet::default());
        }
    }

    /// A site holds nothing more of this one.
    pub(super) fn hear_return(&mut self, site: SiteId) {
        if let Some(Unheard {
            missing: Missing::Returns(sites),
            ..
        }) = &mut self.unheard
        {
            *sites = sites.without(site);
        }
    }

    /// Nothing is missing any more, or it is not waited for any longer: what has waited goes on.
    pub(crate) fn end_unheard(&mut self, ks: &Keyspace<P>, now: Now) {
        if self.wants_row_checkpoint() {
            ks.shared().wake.wake_worker();
        }
        let Some(unheard) = &mut self.unheard else { return };
        let is_late = now.monotonic >= unheard.until;
        let is_over = match unheard.missing {
            Missing::Returns(SiteSet(0)) => true,
            Missing::Returns(_) => {
                let gives =
                    |cursor: &crate::stream::Cursor| matches!(cursor.state, CursorState::TakingBack { .. });
                is_late && !self.outgoing.cursors().any(|(_, cursor)| gives(cursor))
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
                Waiting::Question(question) => self.run_or_park(ks, now, question),
                Waiting::Message { from, message } => self.hear_or_park(ks, now, from, message),
            }
        }
        self.settle(ks, now);
    }
}
