//! The forwarder of a site: it sends the site's writes to the leaders of the other sites. The paper calls it XC.
//!
//! It is a part of the group's leader, and keeps nothing on disk. For each other site it remembers who leads there, how far that site said it was, and up to where it has sent since. It sends ahead without
//! waiting for answers, up to a limit of bytes. If nothing comes back for an election timeout, it asks how far the site is, and goes on from there: so lost messages, restarts and new leaders at either end are one case.
//!
//! ```text
//!   how far are you? -----> up to 16       entries from 17 are kept:      17, 18, 19 -->
//!                                          entries below 30 are dropped:  dropped ----->   the other site takes a full copy
//!   17, 18, 19 -----------> up to 18       all fitted:                    20, 21 ------>
//!                           up to 18, gap  some did not fit:              19, 20, 21 -->
//! ```
use crate::apply::note_ahead;
use crate::entry::Entry;
use crate::message::{Body, Forward, Have};
use crate::replica::{Cx, Nukv};
use crate::sites::{Fit, Place, Sites};
use std::collections::{BTreeMap, VecDeque};
use turnbuckle_core::{Forwarding, Hlc, Micros, Now, ReplicaId, ServerId, SiteId};
use turnbuckle_raft::Role;

/// The most bytes of entries that are sent to a site and not acknowledged.
const WINDOW: usize = 8 << 20;
/// The most bytes of entries in one message, unless one entry alone has more.
const MESSAGE_BYTES: usize = 1 << 20;
/// About what an entry takes besides its key and value.
const ENTRY_BYTES: usize = 64;

/// The way to another site.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// The replica that led there when it was last heard of.
    leader: Option<ReplicaId>,
    /// How often it was asked without an answer: another replica each time.
    asked: usize,
    /// The index behind which entries are to be sent; `None` until it is known how far the site is.
    next: Option<u64>,
    /// The entries that are under way: the timestamp of the last one in each message, and its bytes.
    under_way: VecDeque<(Hlc, usize)>,
    /// When something was heard, or sent after nothing was under way.
    since: Micros,
    /// How far the site was, when it was last heard; and its leader, which has said so.
    pub sites: Option<Sites>,
    pub at: Option<ServerId>,
    /// Up to where it had the writes of this site in its log then, applied or not.
    pub taken: Place,
    /// The index up to which the site has applied what this one has stamped.
    pub held: u64,
    /// Whether the site takes a full copy: what it needs was dropped here.
    is_copying: bool,
}

/// Where to go on.
enum GoOn {
    /// Behind this index.
    Behind(u64),
    /// The entries that are needed are not kept any more.
    Dropped,
    /// The site has what is not in the log here: this site has lost it.
    Lost,
}

impl Nukv {
    /// The other sites that have replicas of the partition.
    pub(crate) fn others(&self) -> impl Iterator<Item = SiteId> + use<> {
        let me = self.site;
        let sites: Vec<SiteId> = self
            .replicas
            .keys()
            .copied()
            .filter(move |&site| site != me)
            .collect();
        sites.into_iter()
    }

    /// This replica leads from now on. It does not know how far the other sites are.
    pub(crate) fn begin_forwarding(&mut self, cx: &mut Cx<'_>) {
        for site in self.others() {
            // Whoever led there is probably still the leader.
            let before = self.ways.remove(&site);
            let way = Way {
                leader: before.and_then(|way| way.leader),
                ..Way::default()
            };
            self.ways.insert(site, way);
            self.ask_site(cx, site);
        }
    }

    /// Asks a site how far it is: the replica that led there, or one after the other.
    fn ask_site(&mut self, cx: &mut Cx<'_>, site: SiteId) {
        let (Some(way), Some(members)) = (self.ways.get_mut(&site), self.replicas.get(&site)) else {
            return;
        };
        let members: Vec<ReplicaId> = members.iter().collect();
        let to = way.leader.unwrap_or(members[way.asked % members.len()]);
        way.asked += 1;
        way.since = cx.now.monotonic;
        way.under_way.clear();
        let question = Body::Forward(Forward { entries: Vec::new() });
        cx.send(cx.me.peer(to), question.into());
    }

    /// Called at each tick: asks the sites again that do not answer.
    pub(crate) fn ask_sites_again(&mut self, cx: &mut Cx<'_>) {
        if self.group.role() != Role::Leader {
            return;
        }
        let (now, patience) = (cx.now.monotonic, self.config.timing.timeout());
        for site in self.others() {
            let Some(way) = self.ways.get_mut(&site) else {
                continue;
            };
            // What is in a log may be lost with its leader. So a site is asked until it has applied everything.
            let is_behind = way
                .sites
                .as_ref()
                .is_none_or(|sites| sites.place(self.site) < self.sites.place(self.site));
            let waits = way.next.is_none() || !way.under_way.is_empty() || is_behind;
            if waits && now >= way.since + patience {
                // It may not lead any more, or not run.
                way.leader = None;
                way.next = None;
                self.ask_site(cx, site);
            }
        }
    }

    /// A site has answered.
    pub(crate) fn on_have(&mut self, cx: &mut Cx<'_>, from: ServerId, have: &Have) {
        if self.group.role() != Role::Leader {
            return;
        }
        let sites = have.sites();
        if !sites.places().all(|(site, _)| self.replicas.contains_key(&site)) {
            self.faults += 1;
            return;
        }
        let leader = have.leader().filter(|leader| leader.site() == from.site);
        let Some(way) = self.ways.get_mut(&from.site) else {
            return;
        };
        if leader != Some(from.replica()) {
            // Only the leader's word counts. Two replicas may name each other: so they are not asked for ever without a pause.
            let may_ask = way.asked <= 2 * usize::from(ReplicaId::MAX_MEMBERS);
            if way.next.is_none() && leader.is_some() && way.leader != leader && may_ask {
                way.leader = leader;
                self.ask_site(cx, from.site);
            }
            return;
        }
        if have.begins {
            // Else this replica's copies would say that they cover nothing of that site, and that site waits for such copies.
            self.heard.remove(&from.site);
        }
        let taken = Place {
            epoch: Hlc(have.epoch),
            at: Hlc(have.at),
        };
        way.leader = leader;
        way.asked = 0;
        way.since = cx.now.monotonic;
        way.sites = Some(sites);
        way.taken = taken;
        way.at = Some(from);
        while way.under_way.front().is_some_and(|&(last, _)| last <= taken.at) {
            way.under_way.pop_front();
        }
        if have.is_gap {
            // What is under way behind the gap does not fit either. It is asked how far it is, and its answer to that is not about a gap.
            if way.next.take().is_some() {
                self.ask_site(cx, from.site);
            }
            return;
        }
        if way.next.is_none() {
            way.under_way.clear();
            match self.go_on(taken) {
                GoOn::Behind(index) => {
                    if let Some(way) = self.ways.get_mut(&from.site) {
                        (way.next, way.is_copying) = (Some(index), false);
                    }
                }
                GoOn::Dropped => {
                    if let Some(way) = self.ways.get_mut(&from.site) {
                        way.is_copying = true;
                    }
                    // It is asked again how far it is, until it has taken the copy.
                    cx.send(from, Body::Dropped(self.sites.place(self.site).epoch.0).into());
                }
                GoOn::Lost => self.suspect_loss(cx, taken),
            }
        }
        self.forward(cx);
    }

    /// Where to go on for a site that has everything up to there in its log.
    fn go_on(&self, taken: Place) -> GoOn {
        let mine = self.sites.place(self.site);
        if taken == mine || self.config.bugs.forwards_only_new {
            return GoOn::Behind(self.applied);
        }
        let knows_all = self.group.knows_committed() && self.applied >= self.group.committed();
        if taken > mine {
            // A new leader has not applied everything yet.
            return match knows_all {
                true => GoOn::Lost,
                false => GoOn::Behind(self.applied),
            };
        }
        let mut is_first = true;
        for (index, entry) in self.own_entries(self.group.first()) {
            let link = entry.link();
            let follows = match link.place.epoch == taken.epoch {
                true => link.before == taken.at,
                // A site that has nothing: the first entry of all follows that, if nothing is forgotten that it would need, too.
                false => entry.is_first_of_all() && taken == Place::default() && self.settled == Hlc::ZERO,
            };
            if follows {
                return GoOn::Behind(index - 1);
            }
            if link.place.epoch == taken.epoch && link.place.at > taken.at {
                return match is_first && link.before > taken.at {
                    true => GoOn::Dropped,
                    // An entry of another log of this epoch: between two that follow each other here.
                    false => GoOn::Lost,
                };
            }
            is_first = false;
        }
        GoOn::Dropped
    }

    /// Whether another site has an entry of this one, up to there, that is not in the log here.
    pub(crate) fn has_lost(&self, taken: Place) -> bool {
        matches!(self.go_on(taken), GoOn::Lost)
    }

    /// The entries that this site has stamped and that are applied, with their indexes, from an index on.
    fn own_entries(&self, from: u64) -> impl Iterator<Item = (u64, Entry)> + use<'_> {
        let site = self.site;
        let applied = self
            .group
            .entries(from)
            .take_while(|entry| entry.at.index <= self.applied);
        applied.filter_map(move |entry| {
            // A new leader's own entry has no data.
            let decoded = (!entry.data.is_empty()).then(|| Entry::decode(entry.data.clone()));
            let decoded = decoded?.ok()?;
            (decoded.site() == site).then_some((entry.at.index, decoded))
        })
    }

    /// Sends what is applied and was not sent.
    pub(crate) fn forward(&mut self, cx: &mut Cx<'_>) {
        if self.group.role() != Role::Leader {
            return;
        }
        for site in self.others() {
            while self.forward_to(cx, site) {}
        }
    }

    /// Sends one message to a site. Returns whether there may be more to send.
    fn forward_to(&mut self, cx: &mut Cx<'_>, site: SiteId) -> bool {
        let Some(way) = self.ways.get(&site) else {
            return false;
        };
        let (Some(leader), Some(next)) = (way.leader, way.next) else {
            return false;
        };
        let sent: usize = way.under_way.iter().map(|(_, bytes)| bytes).sum();
        if next >= self.applied || sent >= WINDOW || next + 1 < self.group.first() {
            if next + 1 < self.group.first() && next < self.applied {
                self.start_over(cx, site);
            }
            return false;
        }
        let (mut entries, mut bytes, mut behind) = (Vec::new(), 0, self.applied);
        for (index, entry) in self.own_entries(next + 1) {
            let size = ENTRY_BYTES
                + entry.write().map_or(0, |write| {
                    write.key.len() + write.value.as_ref().map_or(0, |value| value.len())
                });
            if bytes > 0 && bytes + size > MESSAGE_BYTES {
                behind = index - 1;
                break;
            }
            bytes += size;
            entries.push(entry.for_others());
        }
        let now = cx.now.monotonic;
        let Some(way) = self.ways.get_mut(&site) else {
            return false;
        };
        way.next = Some(behind);
        let Some(last) = entries.last().map(|entry| entry.link().place.at) else {
            return false;
        };
        if way.under_way.is_empty() {
            way.since = now;
        }
        way.under_way.push_back((last, bytes));
        cx.send(cx.me.peer(leader), Body::Forward(Forward { entries }).into());
        behind < self.applied
    }

    /// What is to be sent next was dropped: the site has to say how far it is.
    fn start_over(&mut self, cx: &mut Cx<'_>, site: SiteId) {
        if let Some(way) = self.ways.get_mut(&site) {
            way.next = None;
        }
        self.ask_site(cx, site);
    }

    /// The link to a replica of another site is down: what was sent may be lost.
    pub(crate) fn lose_way(&mut self, replica: ReplicaId) {
        if let Some(way) = self.ways.get_mut(&replica.site())
            && way.leader == Some(replica)
        {
            way.leader = None;
            way.next = None;
            way.under_way.clear();
        }
    }

    // ---- what all sites have ----------------------------------------------------------------------------------

    /// Finds the index up to which a site has applied everything of this one.
    pub(crate) fn note_held(&mut self, site: SiteId) {
        let mine = self.site;
        let Some(way) = self.ways.get(&site) else {
            return;
        };
        let Some(place) = way.sites.as_ref().map(|sites| sites.place(mine)) else {
            return;
        };
        let mut held = way.held;
        if place.epoch == self.sites.place(mine).epoch {
            let below = self
                .own_entries(held + 1)
                .take_while(|(_, entry)| entry.link().place.at <= place.at);
            held = below.last().map_or(held, |(index, _)| index);
        }
        if let Some(way) = self.ways.get_mut(&site) {
            way.held = held;
        }
    }

    /// What a leader notes about all sites: what each of them has of this one, and what all have of all. `None` while some site has not been heard.
    pub(crate) fn what_all_have(&self) -> Option<(Hlc, Hlc)> {
        let everywhere: Vec<&Sites> = self
            .others()
            .map(|site| self.ways.get(&site).and_then(|way| way.sites.as_ref()))
            .collect::<Option<_>>()?;
        let all = || self.replicas.keys().copied();
        let held = everywhere.iter().map(|sites| sites.place(self.site).at);
        let held = held.min().unwrap_or(self.sites.place(self.site).at);
        let settled = everywhere.iter().map(|sites| sites.until(all()));
        let settled = settled.chain([self.sites.until(all())]).min();
        Some((held, settled.unwrap_or_default()))
    }

    /// If it leads: how far the other sites are, as far as they have said so.
    pub(crate) fn ways_to_others(&self, now: Now) -> Vec<Forwarding> {
        if !self.leads {
            return Vec::new();
        }
        let mine = self.sites.place(self.site);
        let ways = self.ways.iter().map(|(&to, way)| {
            let theirs = way.sites.as_ref().map(|sites| sites.place(self.site));
            let is_behind = theirs.is_none_or(|theirs| theirs < mine);
            let lacks = |(_, entry): &(u64, Entry)| theirs.is_none_or(|theirs| entry.link().place > theirs);
            // Entries before this one are known to be there.
            let oldest = is_behind
                .then(|| self.own_entries(way.held + 1).find(lacks))
                .flatten();
            let (entries, lag) = match oldest {
                Some((index, entry)) => (self.applied + 1 - index, now.wall.earliest.since(entry.wall())),
                None => (0, Micros(0)),
            };
            let state = match way.next {
                _ if way.is_copying => "copying",
                Some(_) => "forwarding",
                None => "asking",
            };
            Forwarding {
                to,
                state,
                entries,
                lag,
            }
        });
        ways.collect()
    }

    // ---- at the destination -----------------------------------------------------------------------------------

    /// A forwarder of another site sends entries, or asks how far this site is.
    pub(crate) fn on_forward(&mut self, cx: &mut Cx<'_>, from: ServerId, forward: Forward) {
        if self.group.role() != Role::Leader {
            let leader = self.group.leader().filter(|&leader| leader != cx.me.replica());
            return cx.send(from, Body::Have(Have::of(leader)).into());
        }
        // A new leader does not know what of its log is committed, and so not how far the log is.
        if !self.group.knows_committed() || !cx.has_room() {
            return;
        }
        let mut is_gap = false;
        for entry in forward.entries {
            if entry.site() != from.site {
                self.faults += 1;
                return;
            }
            // This site's later writes win over those that are here.
            cx.observe(entry.link().place.at);
            match self.take_foreign(entry) {
                Taken::Yes => {}
                Taken::Gap => {
                    is_gap = true;
                    break;
                }
                Taken::Full => break,
            }
        }
        self.flush_soon(cx);
        self.tell_how_far(cx, from, is_gap);
    }

    /// Proposes an entry of another site, if it is the next one.
    fn take_foreign(&mut self, entry: Entry) -> Taken {
        let entry = entry.for_others();
        let (site, link) = (entry.site(), entry.link());
        match fit(&self.taken, &entry) {
            Fit::Here if !self.config.bugs.sets_back => return Taken::Yes,
            Fit::Gap if !self.config.bugs.skips_gaps => return Taken::Gap,
            _ => {}
        }
        let newest = link.place.at;
        let Some(at) = self.group.propose(newest, entry.encode()) else {
            return Taken::Full;
        };
        note_ahead(&mut self.ahead, at.index, &entry);
        self.taken.take(site, link);
        Taken::Yes
    }

    /// Tells the forwarder of another site how far this one is.
    pub(crate) fn tell_how_far(&mut self, cx: &mut Cx<'_>, to: ServerId, is_gap: bool) {
        let leads = Have::of(Some(cx.me.replica()));
        let mut have = leads.with(&self.sites, self.taken.place(to.site), is_gap);
        have.begins = self.refill.is_some() && self.group.knows_committed();
        self.told.insert(to.site, (to, self.sites.clone()));
        cx.send(to, Body::Have(have).into());
    }

    /// Called at each tick: forwarders that do not know how far this site is are told.
    pub(crate) fn tell_news(&mut self, cx: &mut Cx<'_>) {
        if self.group.role() != Role::Leader {
            self.told.clear();
            return;
        }
        let told: BTreeMap<SiteId, (ServerId, Sites)> = self.told.clone();
        for (to, sites) in told.into_values() {
            if sites != self.sites {
                self.tell_how_far(cx, to, false);
            }
        }
    }
}

/// What an entry of another site is to a replica that has this.
pub(crate) fn fit(sites: &Sites, entry: &Entry) -> Fit {
    match sites.fit(entry.site(), entry.link()) {
        // It begins an epoch, and not the first one: whoever has nothing of the earlier ones takes a full copy.
        Fit::Next if entry.link().before == Hlc::ZERO && !entry.is_first_of_all() => Fit::Gap,
        fit => fit,
    }
}

/// What has become of an entry of another site.
enum Taken {
    /// It is in the log.
    Yes,
    /// Those before it are missing.
    Gap,
    /// There is no room for it now.
    Full,
}

impl Nukv {
    /// Whether another site may lack something that is applied here.
    pub(crate) fn is_forwarding(&self) -> bool {
        let mine = self.sites.place(self.site);
        let has_all = |way: &Way| {
            let sites = way.sites.as_ref();
            sites.is_some_and(|sites| sites.place(self.site) >= mine)
        };
        let mut ways = self.ways.values();
        self.others().count() > ways.len()
            || ways.any(|way| way.next.is_none() || !way.under_way.is_empty() || !has_all(way))
    }
}
