//! Writes: stamped by the leader of the site, and answered when their entries are applied.
use crate::entry::{Entry, Work, Write};
use crate::replica::{Cx, Line, Nukv, Waiting, note_ahead};
use crate::request::{Outcome, Request, Response};
use turnbuckle_core::{Hlc, Key, Level, PlainRequest, PlainResponse, Receipt, RequestId};
use turnbuckle_raft::sessions::Found;
use turnbuckle_raft::{Proposed, Role};

impl Nukv {
    /// A write, which only the leader of the site carries out.
    pub(crate) fn write(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let level = request.work.level();
        if self.group.role() != Role::Leader {
            let leader = self.group.leader().filter(|&leader| leader != cx.me.replica());
            return self.reply(cx, id, level, Outcome::NotLeader(leader));
        }
        if self.group.is_handing_over() {
            return self.reply(cx, id, level, Outcome::NotLeader(None));
        }
        if !self.config.bugs.writes_twice {
            let first = self.group.first();
            match self.sessions.find(request.by, first) {
                Found::Same(index) => {
                    // What was proposed in this turn is not in the log before.
                    self.handle_ready(cx);
                    return self.attach(cx, id, request, index);
                }
                Found::Later => {
                    let why = "its session has asked for a later write".to_string();
                    let outcome = Outcome::Answered(PlainResponse::Unknown(why));
                    return self.reply(cx, id, level, outcome);
                }
                Found::Nothing if request.index + 1 < first && request.is_repeated => {
                    let why = "the entries among which the write would be are not kept any more".to_string();
                    let outcome = Outcome::Answered(PlainResponse::Unknown(why));
                    return self.reply(cx, id, level, outcome);
                }
                Found::Nothing if request.index + 1 < first => {
                    return self.reply(cx, id, level, Outcome::Late);
                }
                Found::Nothing => {}
            }
        }
        let lacks = self.lacks(&request.needs);
        if lacks.is_some() && self.config.wait == 1 {
            return self.wait_for_needs(cx, id, request);
        }
        let PlainRequest::Put(key, value, ..) = &request.work else {
            return;
        };
        let existed = self.exists(cx, key);
        if value.is_none() && !existed {
            return self.delete_nothing(cx, id, request);
        }
        let write = Write {
            key: key.0.clone(),
            value: value.clone(),
            existed,
        };
        // Algorithm 4.2, lines 6 and 7: the clock follows what the session has seen.
        cx.observe(request.above);
        let Some(link) = self.next_link(cx) else {
            return self.reply(cx, id, level, Outcome::NotLeader(None));
        };
        let Some((at, entry)) = self.propose_own(link, Work::Write(write), request.by) else {
            let why = "too many writes wait for a majority of the site's replicas".to_string();
            return self.refuse(cx, id, level, why);
        };
        self.sessions.note(request.by, at.index, self.group.first());
        note_ahead(&mut self.ahead, at.index, &entry);
        self.wait_for(cx, at, id, level);
        self.flush_soon(cx);
    }

    /// A delete finds no value. It is answered as a read is: with nothing, when this replica has what the session needs, and has applied the entries that leave nothing. What the session has seen may be under way to here; a
    /// delete that did not wait for it would not delete it.
    fn delete_nothing(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        if self.lacks(&request.needs).is_some() {
            return self.wait_for_needs(cx, id, request);
        }
        if let Some((index, _)) = self.ahead.get(request.work.key()) {
            let deadline = cx.now.monotonic + self.config.patience;
            return cx.wait(Line::Applied, *index, deadline, id, request);
        }
        self.answer(cx, id, request, |_| PlainResponse::Written { existed: false });
    }

    /// Whether the key has a value at the end of the leader's log.
    fn exists(&self, cx: &Cx<'_>, key: &Key) -> bool {
        if let Some((_, has_value)) = self.ahead.get(key) {
            return *has_value;
        }
        let newest = cx.chain(key).map(|chain| chain.newest());
        newest.is_some_and(|newest| newest.value.is_some())
    }

    /// The client waits until the entry is applied.
    fn wait_for(&mut self, cx: &mut Cx<'_>, at: Proposed, id: RequestId, level: Level) {
        let waiting = Waiting {
            id,
            level,
            term: at.term,
            since: cx.now.monotonic,
        };
        if let Some(before) = self.proposed.insert(at.index, waiting) {
            // Its session has asked again; or its entry was replaced here, and another replica may still have it.
            self.leave_open(cx, before, "the replica waits for another entry at its place");
        }
    }

    /// It is not known what becomes of an operation.
    pub(crate) fn leave_open(&mut self, cx: &mut Cx<'_>, waiting: Waiting, why: &str) {
        let outcome = Outcome::Answered(PlainResponse::Unknown(why.to_string()));
        self.reply(cx, waiting.id, waiting.level, outcome);
    }

    /// The client waits for an entry that is there already.
    fn attach(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request, index: u64) {
        let level = request.work.level();
        let committed = self.group.entries(index).next();
        let found = committed.and_then(|committed| Some((committed.at, Entry::decode(committed.data).ok()?)));
        // It may have been dropped just now.
        let is_it = |(at, entry): &(Proposed, Entry)| at.index == index && entry.by() == Some(request.by);
        let Some((at, entry)) = found.filter(is_it) else {
            let why = "the entry of the write cannot be read any more".to_string();
            let outcome = Outcome::Answered(PlainResponse::Unknown(why));
            return self.reply(cx, id, level, outcome);
        };
        if at.index <= self.applied {
            let waiting = Waiting {
                id,
                level,
                term: at.term,
                since: cx.now.monotonic,
            };
            return self.reply_written(cx, waiting, at.index, &entry);
        }
        self.wait_for(cx, at, id, level);
    }

    /// Another leader's entry is where this replica has proposed one. So that one will never be committed.
    pub(crate) fn lost_its_place(&mut self, cx: &mut Cx<'_>, waiting: Waiting) {
        let outcome = Outcome::NotLeader(self.group.leader());
        self.reply(cx, waiting.id, waiting.level, outcome);
    }

    pub(crate) fn reply_written(&self, cx: &mut Cx<'_>, waiting: Waiting, index: u64, entry: &Entry) {
        let Some(write) = entry.write() else {
            // No client waits for other entries.
            return;
        };
        let response = PlainResponse::Written {
            existed: write.existed,
        };
        let receipt = Receipt {
            waited: cx.now.monotonic.since(waiting.since),
            ..cx.receipt(waiting.level, Some(entry.id()))
        };
        let response = Response {
            outcome: Outcome::Answered(response),
            index,
            epoch: entry.link().place.epoch,
            floor: Hlc::ZERO,
        };
        cx.reply(waiting.id, response, receipt);
    }
}
