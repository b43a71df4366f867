//! Epochs and marks: what a leader notes in its log beside the writes of clients.
//!
//! **An epoch** begins with the first leader of a new group. If a site has lost writes that other sites may have, its leader takes full copies of the other sites, until it has what they have, and then begins the
//! next epoch ([`crate`]).
//!
//! ```text
//!   another site has more of this site's writes --> a round: does this replica still lead? --> lost: copies of all other sites --> begin
//! ```
//!
//! **A mark** says how far all sites are. So replicas know which entries they may drop, and which deletes may be forgotten.
use crate::apply::decode;
use crate::entry::{Begin, Entry, Mark, Work};
use crate::replica::{Cx, Nukv};
use crate::sites::{Link, Place};
use turnbuckle_core::{Hlc, Micros, SiteId};
use turnbuckle_raft::{OperationName, Proposed};

impl Nukv {
    // ---- epochs -----------------------------------------------------------------------------------------------

    /// This leader's site has lost writes: its log does not have what other sites have, or what it had acknowledged.
    pub(crate) fn lose_epoch(&mut self) {
        let mut has = self.sites.clone();
        has.lose(self.site);
        self.refill.get_or_insert(has);
        self.group.lose_behind(self.applied);
    }

    /// A leader looks whether several replicas of its site have lost their directories together, and no epoch has begun since. Then writes may be lost that were acknowledged, and that no other site has. A session that has seen one would
    /// not be told if the epoch went on. The first leader of a new group finds the same.
    pub(crate) fn look_for_loss(&mut self) {
        let is_new = |index: &u64| self.begun <= *index && *index <= self.group.last();
        let lost = self.group.lost_behind().filter(is_new);
        // The first epoch has to begin in any case.
        let is_kept = self.config.bugs.keeps_epoch && self.sites.place(self.site).epoch > Hlc::ZERO;
        let Some(index) = lost.filter(|_| self.leads && self.refill.is_none() && !is_kept) else {
            return;
        };
        let begins = |entry: Entry| entry.site() == self.site && matches!(entry.work, Some(Work::Begin(_)));
        let mut waiting = self.group.entries(index.max(self.applied) + 1);
        let begins_already = waiting.any(|committed| decode(&committed).is_some_and(begins));
        drop(waiting);
        if !begins_already {
            self.lose_epoch();
        }
    }

    /// Another site has more of this one's writes than this leader. Either they are lost, or another replica leads by now: a round tells.
    pub(crate) fn suspect_loss(&mut self, cx: &mut Cx<'_>, place: Place) {
        if self.suspected.is_none()
            && self.refill.is_none()
            && let Some(round) = self.group.begin_round(cx.now.monotonic)
        {
            self.suspected = Some((round, place));
            self.flush_soon(cx);
        }
    }

    /// The first leader of a new group begins an epoch, and so does the leader of a site that has lost something: when it has everything that the other sites have. So its timestamps are above
    /// all that the site has stamped before, and what the site had is here again as far as it came anywhere.
    pub(crate) fn begin_epoch(&mut self, cx: &mut Cx<'_>) {
        let has_epoch = self.taken.place(self.site).epoch > Hlc::ZERO;
        let is_ready = self.group.knows_committed() && self.applied >= self.group.committed();
        if !self.leads || !is_ready || has_epoch && self.refill.is_none() {
            return;
        }
        if !self.copy_other_sites(cx, true) {
            return;
        }
        cx.observe(self.sites.newest());
        let at = cx.stamp();
        let link = Link {
            place: Place { epoch: at, at },
            before: Hlc::ZERO,
        };
        let begin = Begin::with(&self.sites, cx.me.member);
        if self
            .propose_own(cx, link, Work::Begin(begin), OperationName::default())
            .is_some()
        {
            self.refill = None;
        }
    }

    /// Whether a write may have been carried out in an earlier epoch of this site, and its entry lost since. `tried` is how long its session has asked for it.
    ///
    /// The times are those of two clocks at this site. A request is under way for an election timeout at most: then its session asks again.
    pub(crate) fn may_have_lost(&self, cx: &Cx<'_>, tried: Micros) -> bool {
        let slack = self.config.timing.timeout() + cx.now.wall.bound();
        let asked_first = cx.now.wall.earliest.since(tried).since(slack);
        let is_first = self.is_new && !self.sites.has_ended(self.site);
        !is_first && self.sites.place(self.site).epoch.wall() >= asked_first
    }

    // ---- marks ------------------------------------------------------------------------------------------------

    /// A mark of another site is applied, and everything that the site had stamped before it.
    pub(crate) fn mark_of(&mut self, site: SiteId, settled: Hlc) {
        let known = self.marks.entry(site).or_default();
        *known = settled.max(*known);
    }

    /// Deletes up to this time are forgotten, and values that have expired by then. Every site has everything up to it. And from every site this one has the
    /// mark that says so, with all that the site had stamped before: a site that did not have a delete yet may have changed the expiry of what was deleted.
    pub(crate) fn forgettable(&self) -> Hlc {
        let of_site = |site| self.marks.get(&site).copied().unwrap_or_default();
        let marks = self.others().map(of_site);
        marks.fold(self.settled, Hlc::min)
    }

    /// Notes how far all sites are, until all know that all have every write. For that, each site's own entries have to come as far as the newest write of any site.
    ///
    /// It does so again when values have expired: they are forgotten when all sites are beyond the time at which they expire.
    pub(crate) fn mark(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        self.expiries.forget(self.settled);
        self.expiries.pass(cx.read_time());
        let expired = self.expiries.due(cx.read_time());
        let newest = self.newest_write.max(expired.unwrap_or_default());
        let is_due =
            now >= self.marked + self.config.mark && (self.settled < self.newest_write || expired.is_some());
        if !self.leads || !is_due || !self.group.knows_committed() {
            return;
        }
        self.marked = now;
        for site in self.others() {
            self.note_held(site);
        }
        let (held, settled) = self.what_all_have().unwrap_or_default();
        let is_news = settled > self.settled || self.taken.place(self.site).at <= newest;
        let Some(link) = self.next_link(cx).filter(|_| is_news) else {
            return;
        };
        let mark = Mark {
            held: held.0,
            settled: settled.0,
        };
        self.propose_own(cx, link, Work::Mark(mark), OperationName::default());
    }

    // ---- the site's own entries -------------------------------------------------------------------------------

    /// Whether its site has an epoch in which this leader may stamp.
    pub(crate) fn has_begun(&self) -> bool {
        self.refill.is_none() && self.taken.place(self.site).epoch > Hlc::ZERO
    }

    /// The link of the next entry of this site. `None` before its epoch has begun, while the site takes copies of others, and as long as a new leader may not have heard that its site has lost writes ([`Nukv::look_for_loss`]).
    pub(crate) fn next_link(&self, cx: &mut Cx<'_>) -> Option<Link> {
        if !self.has_begun() || !self.group.knows_committed() {
            return None;
        }
        let last = self.taken.place(self.site);
        let at = cx.stamp();
        Some(Link {
            place: Place {
                epoch: last.epoch,
                at,
            },
            before: last.at,
        })
    }

    /// Proposes an entry of this site. Returns its place in the log, and the entry.
    pub(crate) fn propose_own(
        &mut self,
        cx: &Cx<'_>,
        link: Link,
        work: Work,
        by: OperationName,
    ) -> Option<(Proposed, Entry)> {
        let wall = match self.config.bugs.claims_by_stamps {
            true => link.place.at.wall(),
            false => cx.now.wall.earliest,
        };
        let entry = Entry::new(self.site, link, work, by, wall);
        let at = self.group.propose(link.place.at, entry.encode())?;
        self.taken.take(self.site, link);
        Some((at, entry))
    }
}
