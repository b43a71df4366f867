//! Writes: stamped by the leader of the site, and answered when their entries are applied.
use crate::apply::note_ahead;
use crate::entry::{Entry, Work, Write};
use crate::replica::{Cx, Nukv};
use crate::request::{Outcome, Request, Response};
use turnbuckle_core::{
    Change, Hlc, Key, PlainRequest, PlainResponse, Receipt, RequestId, Shown, Version, VersionId,
};
use turnbuckle_raft::sessions::Found;
use turnbuckle_raft::waiting::{self, Client};
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
            match self
                .sessions
                .find(request.by, request.index, request.is_repeated, first)
            {
                Found::Nothing if request.is_repeated && self.may_have_lost(cx, request.tried) => {
                    let why = "this site has lost its log since the write was asked for first";
                    let outcome = Outcome::Answered(PlainResponse::Unknown(why.to_string()));
                    return self.reply(cx, id, level, outcome);
                }
                Found::Nothing => {}
                Found::Same(index) => {
                    // What was proposed in this turn is not in the log before.
                    self.handle_ready(cx);
                    return self.attach(cx, id, request, index);
                }
                Found::Late => return self.reply(cx, id, level, Outcome::Late),
                Found::Unknown(why) => {
                    let outcome = Outcome::Answered(PlainResponse::Unknown(why.to_string()));
                    return self.reply(cx, id, level, outcome);
                }
            }
        }
        let lacks = self.lacks(&request.needs);
        if lacks.is_some() && self.config.wait == 1 {
            return self.wait_for_needs(cx, id, request);
        }
        let PlainRequest::Put(key, value, _, options) = &request.work else {
            return;
        };
        let change = Change::new(value.clone(), options.clone());
        if change.adds().is_some() || change.decides() {
            // The gateway refuses it before.
            let why = "this keyspace takes no conditions, and computes no values";
            return self.refuse(cx, id, level, why.to_string());
        }
        let now = self.read_time(cx, request.above);
        let found = self.found(cx, key);
        let (is_delete, reads) = (change.is_delete(), change.reads());
        let new = change.of(&Shown::one(found.as_ref()), now);
        // It tells of what is there, as a read does. What the session has seen may be under way to here: without it, a delete would not delete that.
        let reads = if is_delete { new.is_err() } else { reads };
        if reads && self.lacks(&request.needs).is_some() {
            return self.wait_for_needs(cx, id, request);
        }
        // Algorithm 4.2, lines 6 and 7: the clock follows what the session has seen.
        cx.observe(request.above);
        let Some(link) = self.next_link(cx) else {
            let outcome = match self.awaited().filter(|_| !self.has_begun()) {
                Some(site) => Outcome::NotBegun(site),
                None => Outcome::NotLeader(None),
            };
            return self.reply(cx, id, level, outcome);
        };
        let PlainRequest::Put(key, ..) = request.work else {
            return;
        };
        let name = VersionId {
            at: link.place.at,
            replica: cx.me.site.into(),
        };
        let stamped = new.and_then(|new| new.stamped(name));
        let write = match stamped {
            Ok((content, changed)) => {
                let content = match self.config.bugs.expiry_revives {
                    true => content.without_base(),
                    false => content,
                };
                Write::of(key.0, &content, changed)
            }
            Err(changed) => Write::nothing(key.0, found.as_ref().map(Version::label), changed),
        };
        let Some((at, entry)) = self.propose_own(cx, link, Work::Write(write), request.by) else {
            let why = "too many writes wait for a majority of the site's replicas".to_string();
            return self.refuse(cx, id, level, why);
        };
        self.sessions.note(request.by, at.index, self.group.first());
        note_ahead(&mut self.ahead, at.index, &entry);
        let since = cx.now.monotonic;
        self.wait_for(cx, Client { id, level, at, since });
        self.flush_soon(cx);
    }

    /// What the key has at the end of the leader's log.
    fn found(&self, cx: &Cx<'_>, key: &Key) -> Option<Version<()>> {
        let there = cx.chain(key).map(|chain| chain.newest().clone());
        let ahead = self.ahead.get(key).map(|ahead| ahead.version.clone());
        there.into_iter().chain(ahead).max_by_key(Version::rank)
    }

    /// The client waits until its entry is applied.
    fn wait_for(&mut self, cx: &mut Cx<'_>, client: Client) {
        if let Some(before) = self.waiting.add(client) {
            self.leave_open(cx, before, waiting::REPLACED);
        }
    }

    /// It is not known what becomes of an operation.
    pub(crate) fn leave_open(&mut self, cx: &mut Cx<'_>, client: Client, why: &str) {
        let outcome = Outcome::Answered(PlainResponse::Unknown(why.to_string()));
        self.reply(cx, client.id, client.level, outcome);
    }

    /// This replica takes no part any more. Its clients have to ask another one.
    pub(crate) fn leave_group(&mut self, cx: &mut Cx<'_>) {
        for client in self.waiting.take_all() {
            self.leave_open(cx, client, waiting::NO_MEMBER);
        }
    }

    /// Gives up writes that have waited for too long.
    pub(crate) fn give_up(&mut self, cx: &mut Cx<'_>) {
        let (now, patience) = (cx.now.monotonic, self.config.patience);
        for client in self.waiting.take_late(now, patience) {
            self.given_up += 1;
            let site = cx.topology.site_name(self.site);
            let why = format!("no majority of the replicas at site {site} was reached in time");
            self.leave_open(cx, client, &why);
        }
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
        let since = cx.now.monotonic;
        let client = Client { id, level, at, since };
        match at.index <= self.applied {
            // Less may have been here when it was decided.
            true => self.reply_written(cx, client, &entry, false),
            false => self.wait_for(cx, client),
        }
    }

    /// Another leader's entry is where this replica has proposed one. So that one will never be committed.
    pub(crate) fn lost_its_place(&mut self, cx: &mut Cx<'_>, client: Client) {
        let outcome = Outcome::NotLeader(self.group.leader());
        self.reply(cx, client.id, client.level, outcome);
    }

    /// Answers a client whose entry is applied. `proves`: what was here when the write was decided is what is here now, besides the entries before it in the log.
    pub(crate) fn reply_written(&self, cx: &mut Cx<'_>, client: Client, entry: &Entry, proves: bool) {
        let Some(write) = entry.write() else {
            // No client waits for other entries.
            return;
        };
        let version = match write.puts_nothing {
            true => write.found(),
            false => Some(write.label(entry.id())),
        };
        let (epoch, floor) = self.needs_of(version.map(|version| version.id));
        let proves = proves || self.config.bugs.claims_what_came_later;
        // Not less what the request at hand has waited: that may be another client's.
        let staleness = cx
            .now
            .wall
            .age_of_oldest(self.walls_of_all())
            .filter(|_| proves && !self.has_gap);
        let receipt = Receipt {
            waited: cx.now.monotonic.since(client.since),
            staleness,
            ..self.receipt(cx, client.level, None, client.at.index)
        };
        let receipt = receipt.of(version);
        let expired = write.until().filter(|_| write.puts_nothing && !write.existed);
        let response = Response {
            outcome: Outcome::Answered(write.changed().into()),
            index: client.at.index,
            epoch,
            floor,
            expired: expired.map_or(Hlc::ZERO, Hlc::from_wall),
        };
        cx.reply(client.id, response, receipt);
    }
}
