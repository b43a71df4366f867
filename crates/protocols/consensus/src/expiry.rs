//! Values that expire: by the time of the partition, which the entries of its log tell.
//!
//! The *time of the partition* at a replica is the newest timestamp of the entries that are applied there. It is the same at each replica that has applied the same entries, and it never goes back. A
//! value has expired once this time has come to its end. So what an operation sees depends on its place in the log, and a session that has seen a value expire never sees it again: its reads wait for
//! what it has seen, as all reads do.
//!
//! The time of the partition stands still while nobody writes. So a read may find a value that has expired by the clock of its replica, and not by the time of the partition. Neither answer would be right: the
//! value is shown too long, or another replica shows it again. Then the leader proposes an entry that has a timestamp and nothing else, and answers when it is applied. Other replicas send the session to the leader.
//!
//! ```text
//!   entries       17: SET x 1, until 40      18: SET y 2             19: nothing
//!   timestamps             30                       35                      41
//!                           |                        |     GET x            |
//!   x is                    1                        1     at 41: wait      none
//! ```
//!
//! Each partition has a time of its own. So a session also keeps the newest time that it has seen anywhere, and names it in its requests. A replica goes by the later of this time and its own clock, to see whether a value has
//! expired. What the session writes is stamped above this time.
//!
//! At `eventual`, which promises no order, a replica answers by its own clock.
//!
//! **In silence.** While a leader has values that expire, or deletes, and nobody writes, it proposes such an entry every ten seconds. So what has expired is forgotten, here and at the other replicas.
use crate::change::Index;
use crate::replica::{Cx, Dacian, Line};
use crate::request::{Outcome, Request};
use bytes::Bytes;
use turnbuckle_core::{Hlc, Level, Micros, RequestId, Version};
use turnbuckle_raft::{Proposed, Role};

/// An entry that this replica has proposed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastProposed {
    index: u64,
    /// Its stamp.
    stamped: Hlc,
    /// When it was proposed.
    at: Micros,
}

/// While more entries than this wait for a majority, no read makes the leader propose another one: entries without data are not among the bytes that the group bounds.
const MAX_UNCOMMITTED: u64 = 10_000;

/// At which time a read sees a key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reads {
    /// At this one.
    At(Hlc),
    /// The value has expired, and the time of the partition has not come to that: the read waits until it has come to this.
    AfterTime(Hlc),
}

/// While nobody writes, a leader with values that expire, or deletes, proposes an entry this often.
const SILENCE: Micros = Micros::from_millis(10_000);

impl Dacian {
    /// Proposes an entry with this stamp. `None` if too much is proposed and not committed, or if this replica does not lead.
    pub(crate) fn propose(&mut self, cx: &Cx<'_>, stamped: Hlc, entry: Bytes) -> Option<Proposed> {
        let proposed = self.group.propose(stamped, entry)?;
        self.last_proposed = Some(LastProposed {
            index: proposed.index,
            stamped,
            at: cx.now.monotonic,
        });
        Some(proposed)
    }

    /// What a read at a level sees of a key's newest version. `above` is the newest time that its session has seen.
    pub(crate) fn reads(&self, cx: &Cx<'_>, level: Level, above: Hlc, newest: &Version<Index>) -> Reads {
        // After a full copy a row may be newer than what is applied. Its answer tells so.
        let time = self.group.applied_until().max(newest.id.at);
        let own = cx.read_time().max(above).max(time);
        match newest.content.until() {
            _ if level == Level::Eventual || self.config.bugs.expires_by_own_clocks => Reads::At(own),
            Some(until) if Hlc::from_wall(until) <= own && Hlc::from_wall(until) > time => {
                Reads::AfterTime(Hlc::from_wall(until))
            }
            _ => Reads::At(time),
        }
    }

    /// A read waits until the time of the partition has come to this.
    pub(crate) fn wait_for_time(&mut self, cx: &mut Cx<'_>, id: RequestId, mut request: Request, time: Hlc) {
        let level = request.work.level();
        if self.group.role() != Role::Leader || self.group.is_handing_over() {
            let leader = self.group.leader().filter(|&leader| leader != cx.me.replica());
            self.redirected += 1;
            return self.reply(cx, id, level, Outcome::Behind(leader));
        }
        let now = cx.now.monotonic;
        let deadline = *request.patience_ends.get_or_insert(now + self.config.patience);
        if now >= deadline {
            return self.is_behind(cx, id, request);
        }
        if !cx.has_room() || self.group.last() - self.group.committed() > MAX_UNCOMMITTED {
            let why = "the value has expired, and the leader cannot write that down now".to_string();
            return self.refuse(cx, id, level, why);
        }
        let is_enough = |last: &LastProposed| last.stamped >= time && last.index > self.applied;
        let index = match self.last_proposed.filter(is_enough) {
            Some(last) => Some(last.index),
            None => self.propose_time(cx, time),
        };
        let Some(index) = index else {
            let why = "too many writes wait for a majority of the replicas".to_string();
            return self.refuse(cx, id, level, why);
        };
        request.index = request.index.max(index);
        cx.wait(Line::Applied, index, deadline, id, request);
    }

    /// Proposes an entry that has a timestamp above this one, and nothing else. Returns its index.
    fn propose_time(&mut self, cx: &mut Cx<'_>, above: Hlc) -> Option<u64> {
        // A session may have seen it by a clock that is ahead of this one.
        cx.observe(above);
        let stamped = cx.stamp();
        let proposed = self.propose(cx, stamped, Bytes::new())?;
        self.flush_soon(cx);
        Some(proposed.index)
    }

    /// At each tick: whether the time of the partition has stood still for too long.
    pub(crate) fn break_silence(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        let is_silent = self.last_proposed.is_none_or(|last| now >= last.at + SILENCE);
        if is_silent && self.group.knows_committed() && cx.has_room() && cx.forgettable_keys() > 0 {
            self.propose_time(cx, Hlc::ZERO);
        }
    }
}
