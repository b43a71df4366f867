//! Reads: what a replica must have before it answers (Algorithm 4.2, lines 1-4). A write that waits for what its session has seen waits in the same way.
use crate::replica::{Cx, Line, Nukv};
use crate::request::{Outcome, Request, Response};
use crate::sites::{Has, Place};
use turnbuckle_core::{Hlc, Level, Micros, PlainResponse, RequestId, SiteId, Version, VersionId};
use turnbuckle_raft::Role;

impl Nukv {
    /// A read, which any replica answers that has what the session needs.
    pub(crate) fn read(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        if self.lacks(&request.needs).is_some() && !self.config.bugs.ignores_needs {
            return self.wait_for_needs(cx, id, request);
        }
        let newest = cx.chain(request.work.key()).map(|chain| chain.newest());
        let now = self.read_time(cx, request.above);
        let version = newest.map(Version::label);
        let value = newest.and_then(|newest| newest.content.at(now).cloned());
        let expired = newest.and_then(|newest| newest.content.expired_at(now));
        let (epoch, floor) = self.needs_of(version.map(|version| version.id));
        let receipt = self.receipt(cx, request.work.level(), None, self.applied);
        let receipt = receipt.of(version);
        let response = Response {
            outcome: Outcome::Answered(PlainResponse::Value(value)),
            index: self.applied,
            epoch,
            floor,
            expired: expired.unwrap_or_default(),
        };
        cx.reply(id, response, receipt);
    }

    /// The time at which a request looks at values that expire: that of the clock or, if that is later, the newest one that its session has seen.
    pub(crate) fn read_time(&self, cx: &Cx<'_>, seen: Hlc) -> Hlc {
        match self.config.bugs.forgets_what_expired {
            true => cx.read_time(),
            false => cx.read_time().max(seen),
        }
    }

    /// What a session that has been shown this needs of other replicas from then on: the epoch of the version, or else a time ([`Response::floor`]).
    pub(crate) fn needs_of(&self, version: Option<VersionId>) -> (Hlc, Hlc) {
        let Some(VersionId { at, replica }) = version else {
            // A delete may be forgotten: then all sites have everything up to it. Other replicas at these sites may not have applied it yet.
            return (Hlc::ZERO, self.settled);
        };
        let epoch = self.sites.epoch_of(replica.site(), at);
        match self.sites.has(replica.site(), Place { epoch, at }) {
            Has::Yes => (epoch, Hlc::ZERO),
            // A full copy has brought a row that is newer than what the copy covers. In which epoch it was stamped is not known here.
            Has::NotYet => (Hlc::ZERO, at),
            // The same, and what is between was lost with its site. All sites have copied the row since.
            Has::Never => (Hlc::ZERO, Hlc::ZERO),
        }
    }

    /// The first of these needs that this replica lacks.
    pub(crate) fn lacks(&self, needs: &[(SiteId, Place)]) -> Option<(SiteId, Place, Has)> {
        needs.iter().find_map(|&(site, place)| {
            let has = self.sites.has(site, place);
            (has != Has::Yes).then_some((site, place, has))
        })
    }

    /// The request waits for what it needs, unless that is in vain.
    pub(crate) fn wait_for_needs(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let Some((site, need, has)) = self.lacks(&request.needs) else {
            return;
        };
        let level = request.work.level();
        let name = cx.topology.site_name(site).to_string();
        // A place that no replica can know, as in a token of another cluster.
        let is_bogus = self.sites.place(site).at >= need.at;
        // Only a leader that lacks nothing knows what its site has lost.
        let is_lost = has == Has::Never && self.group.role() == Role::Leader && !self.has_gap;
        if is_lost || is_bogus && has == Has::NotYet {
            self.given_up += 1;
            let why = match has {
                Has::Never => format!(
                    "the session has seen writes of site {name} that are lost: replicas there have lost their directories, before the \
                     writes came to this site"
                ),
                _ => format!("the session has seen writes of site {name} in an epoch that is not known here"),
            };
            return self.refuse(cx, id, level, why);
        }
        if has == Has::Never {
            // To wait for it is in vain. Its leader may have it from a copy that this replica lacks.
            let leader = self.group.leader().filter(|&leader| leader != cx.me.replica());
            let outcome = match request.work.is_write() {
                true => Outcome::NotLeader(leader),
                false => Outcome::Behind(leader),
            };
            return self.reply(cx, id, level, outcome);
        }
        let limit = match self.group.role() {
            Role::Follower | Role::Candidate if !request.work.is_write() => self.config.redirect,
            // A session that hears nothing for an election timeout takes the leader for silent.
            _ => Micros(self.config.timing.timeout().0 / 2).min(self.patience_left(&request)),
        };
        if cx.waited >= limit && limit > Micros(0) {
            return self.is_late(cx, id, request);
        }
        if cx.waited == Micros(0) && request.tried == Micros(0) && !request.work.is_write() {
            *match level {
                Level::MonotonicReads => &mut self.blocked.monotonic_reads,
                Level::ReadYourWrites => &mut self.blocked.read_your_writes,
                _ => &mut self.blocked.session,
            } += 1;
        }
        let deadline = cx.now.monotonic + Micros(limit.0.saturating_sub(cx.waited.0));
        cx.wait(Line::Site(site), need.at.0, deadline, id, request);
    }

    /// How much of its session's patience a request had left when it arrived.
    fn patience_left(&self, request: &Request) -> Micros {
        Micros(self.config.patience.0.saturating_sub(request.tried.0))
    }

    /// A request has waited for too long.
    pub(crate) fn is_late(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let level = request.work.level();
        if self.group.role() != Role::Leader {
            self.redirected += 1;
            let outcome = match request.work.is_write() {
                true => Outcome::NotLeader(self.group.leader()),
                false => Outcome::Behind(self.group.leader()),
            };
            return self.reply(cx, id, level, outcome);
        }
        let lacks = self.lacks(&request.needs).map(|(site, ..)| site);
        if let Some(site) = lacks
            && cx.waited < self.patience_left(&request)
        {
            return self.reply(cx, id, level, Outcome::StillLacks(site));
        }
        self.given_up += 1;
        let name = |site| cx.topology.site_name(site);
        let why = match lacks {
            Some(site) => missing(name(site), name(self.site)),
            None => "the replica was busy".to_string(),
        };
        self.refuse(cx, id, level, why);
    }
}

/// Why a request has waited in vain.
pub(crate) fn missing(site: &str, here: &str) -> String {
    format!("what the session has seen of site {site} has not arrived at site {here} in time")
}
