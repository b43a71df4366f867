//! A replica: its part in the group of its site, what it has of each site, the writes that it has proposed, and the requests that wait.
//!
//! This file has the state and the inputs. What an input does is in the other files: [`crate::writes`], [`crate::reads`], [`crate::apply`], [`mod@crate::epochs`], [`mod@crate::copies`], [`crate::forwarder`].
use crate::apply::Ahead;
use crate::config::{BUGS, NukvConfig, PARAMETERS};
use crate::copies::{Kept, SITES};
use crate::entry::Entry;
use crate::expiries::Expiries;
use crate::forwarder::Way;
use crate::message::{Body, Message};
use crate::request::{Outcome, Request, Response};
use crate::sites::{Place, Sites};
use std::collections::BTreeMap;
use turnbuckle_core::{
    Applied, Bug, Completeness, Context, Descriptor, Forwarding, GroupStatus, Hlc, Key, Level, Metric,
    Micros, Misfit, Now, Parameter, PlainRequest, PlainResponse, Proof, Protocol, Reading, Receipt,
    Recovered, RegionalProof, ReplicaId, ReplicaSet, Replication, RequestId, ServerId, SiteId, Topology,
    VersionId, Vitals, Wish,
};
use turnbuckle_raft::applying::Fetching;
use turnbuckle_raft::waiting::Waiting;
use turnbuckle_raft::{Group, RaftMessage, Role, Sessions};

/// One replica of one partition.
pub struct Nukv {
    pub(crate) config: NukvConfig,
    /// Its site.
    pub(crate) site: SiteId,
    /// The replicas of the partition at each site.
    pub(crate) replicas: BTreeMap<SiteId, ReplicaSet>,
    pub(crate) group: Group,
    /// Everything up to this index is applied here.
    pub(crate) applied: u64,
    /// What is applied of each site: the paper's `sv`.
    pub(crate) sites: Sites,
    /// Of each site, a time by a clock there: everything that the site had acknowledged by then is applied here.
    pub(crate) walls: BTreeMap<SiteId, Micros>,
    /// Every site has everything up to this time.
    pub(crate) settled: Hlc,
    /// Of each other site, the same by the newest of its marks that is applied here.
    pub(crate) marks: BTreeMap<SiteId, Hlc>,
    /// Other sites have everything of this one up to here: so the entries up to there need not be kept for them.
    pub(crate) held: Hlc,
    /// The newest timestamp of a write that is applied here; after a start, of any entry.
    pub(crate) newest_write: Hlc,
    /// When values expire that were put here.
    pub(crate) expiries: Expiries,
    /// The latest of them when the replica was opened.
    kept_expiry: Hlc,
    /// The next committed entry, if it waits for its key to be in memory.
    pub(crate) fetching: Fetching<Entry>,
    /// The replica of which a full copy is wanted.
    pub(crate) copying: Option<ServerId>,
    /// Whether the rows of a full copy are being put in place. The copy is here, so that ends whatever becomes of its source.
    pub(crate) is_placing: bool,
    /// What its site has, as far as the applied entries tell, besides what they brought: copies that leaders have taken brought that.
    pub(crate) wanted: Sites,
    /// The newest epoch of each site that it has heard of, if it is newer than what it has of the site.
    pub(crate) heard: BTreeMap<SiteId, Hlc>,
    /// Whether it lacks some of that.
    pub(crate) has_gap: bool,
    /// Whether an entry has set it back in a site's writes. That never happens.
    pub(crate) went_back: bool,
    /// If it leads, and its site has lost writes that other sites may have: what it has, without those of its own site, and with what copies have brought since. When it has what the other sites have, it begins a new epoch.
    pub(crate) refill: Option<Sites>,
    /// If it leads: the round that it has begun to know whether its site has lost writes, and the place up to which another site has them.
    pub(crate) suspected: Option<(u64, Place)>,
    /// The index of the last entry with which its site has begun an epoch.
    pub(crate) begun: u64,
    /// Whether the first epoch of its site has begun in this life.
    pub(crate) is_new: bool,
    /// Its site has begun an epoch here, and its leader had taken copies: this replica takes one of it. Zero: no.
    pub(crate) copy_behind: Hlc,
    /// When the last full copy was in place; and how many in a row have brought nothing of any site.
    pub(crate) copied: Micros,
    pub(crate) in_vain: u32,
    is_flushing: bool,

    // ---- if it leads ----
    pub(crate) leads: bool,
    /// What its log has of each site, applied or not.
    pub(crate) taken: Sites,
    /// The ways to the other sites.
    pub(crate) ways: BTreeMap<SiteId, Way>,
    /// The forwarders of other sites, and what they were told last.
    pub(crate) told: BTreeMap<SiteId, (ServerId, Sites)>,
    /// The operations that clients wait for, by the index of their entries.
    pub(crate) waiting: Waiting,
    /// What entries that are not applied will put, of this site and of others: the newest version of each key.
    pub(crate) ahead: BTreeMap<Key, Ahead>,
    /// The newest write of each session in its log.
    pub(crate) sessions: Sessions,
    /// Entries up to this index may have been decided when less was here than when they are applied: by an earlier leader, or before a full copy came. So the answers to their clients prove nothing.
    pub(crate) decided_on_less: u64,
    /// When it has proposed the last mark.
    pub(crate) marked: Micros,

    /// What other replicas have sent and no sound replica would have.
    pub(crate) faults: u64,
    elections: u64,
    /// The reads that had to wait here: for what their sessions have read, for what they have written, and for either.
    pub(crate) blocked: Blocked,
    pub(crate) redirected: u64,
    pub(crate) given_up: u64,
}

/// How many reads had to wait, by what they needed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Blocked {
    pub monotonic_reads: u64,
    pub read_your_writes: u64,
    pub session: u64,
}

/// When to wake up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// When to count a tick of the group.
    Tick,
    /// When to send what the inputs of this turn have made necessary, together.
    Flush,
    /// When the key of the next committed entry is in memory.
    Apply,
}

/// What requests wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// What is applied of a site.
    Site(SiteId),
}

pub(crate) type Cx<'a> = Context<'a, Nukv>;

impl Protocol for Nukv {
    type Config = NukvConfig;
    type Request = Request;
    type Response = Response;
    type Message = Message;
    type Timer = Timer;
    type Meta = ();
    type Line = Line;

    const DESCRIPTOR: Descriptor = Descriptor {
        agrees_by_site: true,
        tells_losses: true,
        takes_expiry: true,
        confirms_sites: true,
        max_members: ReplicaId::MAX_MEMBERS,
        ..Descriptor::of(Replication::Consensus)
    };
    const PARAMETERS: &'static [Parameter<NukvConfig>] = PARAMETERS;
    const BUGS: &'static [Bug] = BUGS;

    const METRICS: &'static [Metric<Nukv>] = &[
        Metric::new("nukv_term", "The highest term of a group.", |replica, _| {
            Reading::Highest(replica.group.term())
        }),
        Metric::new(
            "nukv_elections_total",
            "How often a replica here was elected as the leader of its site's group.",
            |replica, _| Reading::Count(replica.elections),
        ),
        Metric::new("nukv_groups_led", "Groups whose leader is here.", |replica, _| {
            Reading::Count(u64::from(replica.group.role() == Role::Leader))
        }),
        Metric::new(
            "nukv_groups_without_leader",
            "Groups whose replica here takes part and knows no leader.",
            |replica, _| Reading::Count(u64::from(replica.group.lacks_leader())),
        ),
        Metric::new(
            "nukv_entries_to_apply",
            "Entries that are committed and not applied here.",
            |replica, _| Reading::Count(replica.group.committed().saturating_sub(replica.applied)),
        ),
        Metric::to_peers(
            "nukv_entries_to_forward",
            "Entries of the groups led here that another site has not applied, as far as it has said so.",
            |replica, now| {
                let ways = replica.ways_to_others(now).into_iter();
                ways.map(|way| (way.to.into(), Reading::Count(way.entries)))
                    .collect()
            },
        ),
        Metric::to_peers(
            "nukv_forward_lag_seconds",
            "How old the oldest entry of the groups led here is that another site has not applied.",
            |replica, now| {
                let ways = replica.ways_to_others(now).into_iter();
                ways.map(|way| (way.to.into(), Reading::Lag(Some(way.lag))))
                    .collect()
            },
        ),
        Metric::new(
            "nukv_reads_blocked_by_monotonic_reads_total",
            "Reads that waited here at level monotonic-reads, because the replica lacked what the session had read.",
            |replica, _| Reading::Count(replica.blocked.monotonic_reads),
        ),
        Metric::new(
            "nukv_reads_blocked_by_read_your_writes_total",
            "Reads that waited here at level read-your-writes, because the replica lacked what the session had written.",
            |replica, _| Reading::Count(replica.blocked.read_your_writes),
        ),
        Metric::new(
            "nukv_reads_blocked_by_session_total",
            "Reads that waited here at level session, because the replica lacked what the session had read or written.",
            |replica, _| Reading::Count(replica.blocked.session),
        ),
        Metric::new(
            "nukv_reads_redirected_total",
            "Reads that went to the leader because the replica here lacked what the session had seen.",
            |replica, _| Reading::Count(replica.redirected),
        ),
        Metric::new(
            "nukv_given_up_total",
            "Operations that failed because no leader, no majority or not what the session had seen was there in time.",
            |replica, _| Reading::Count(replica.given_up),
        ),
        Metric::new(
            "nukv_faulty_messages_total",
            "Messages that no sound replica would have sent. They were dropped.",
            |replica, _| Reading::Count(replica.faults),
        ),
    ];

    fn check(config: &NukvConfig) -> Result<(), Misfit> {
        config.timing.check()
    }

    fn shrink(config: &mut NukvConfig, by: u32) {
        config.log_entries = (config.log_entries / by as usize).max(1);
        config.mark = Micros((config.mark.0 / u64::from(by)).max(20_000));
    }

    fn plant(config: &mut NukvConfig, bug: &str) -> bool {
        config.bugs.named(bug).map(|planted| *planted = true).is_some()
    }

    fn open(config: &NukvConfig, me: ServerId, topology: Topology, recovered: &Recovered, seed: u64) -> Nukv {
        let mut replicas: BTreeMap<SiteId, ReplicaSet> = BTreeMap::new();
        for replica in topology.replicas_of(me.partition).iter() {
            let there = replicas.entry(replica.site()).or_default();
            *there = there.union(ReplicaSet::one(replica));
        }
        let voters = replicas.get(&me.site).copied().unwrap_or_default();
        let group = Group::open(
            config.timing,
            config.bugs.raft,
            me.replica(),
            voters,
            me.partition.into(),
            recovered,
            seed,
        )
        .beginning_anew();
        let kept = recovered.kept(SITES).cloned();
        let kept = kept.and_then(Kept::decode).unwrap_or_default();
        Nukv {
            config: config.clone(),
            site: me.site,
            replicas,
            applied: group.applied().index,
            group,
            newest_write: kept.sites.newest(),
            expiries: Expiries::default(),
            kept_expiry: kept.newest_expiry,
            taken: kept.sites.clone(),
            settled: kept.settled,
            marks: kept.marks,
            held: kept.held,
            fetching: Fetching::NONE,
            copying: None,
            is_placing: false,
            went_back: false,
            has_gap: !kept.sites.covers(&kept.wanted) || kept.copy_behind > Hlc::ZERO,
            wanted: kept.wanted,
            heard: BTreeMap::new(),
            sites: kept.sites,
            walls: kept.walls,
            refill: None,
            suspected: None,
            begun: kept.begun,
            is_new: false,
            copy_behind: kept.copy_behind,
            copied: Micros(0),
            in_vain: 0,
            is_flushing: false,
            leads: false,
            ways: BTreeMap::new(),
            told: BTreeMap::new(),
            waiting: Waiting::default(),
            ahead: BTreeMap::new(),
            sessions: Sessions::default(),
            decided_on_less: 0,
            marked: Micros(0),
            faults: 0,
            elections: 0,
            blocked: Blocked::default(),
            redirected: 0,
            given_up: 0,
        }
    }

    fn keys(&self, request: &Request, each: &mut dyn FnMut(&Key)) {
        each(request.work.key());
    }

    fn is_write(request: &Request) -> bool {
        request.work.is_write()
    }

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        self.group.start(now);
        self.expiries.add_all(self.kept_expiry, cx.read_time());
        self.advance_lines(cx);
        cx.set_timer(Timer::Tick, self.config.timing.until_tick(now));
    }

    fn on_request(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        if self.group.broken().is_some() || !self.group.is_member() {
            // Other replicas can carry it out.
            let outcome = match request.work.is_write() {
                true => Outcome::NotLeader(None),
                false => Outcome::Behind(None),
            };
            return self.reply(cx, id, request.work.level(), outcome);
        }
        match &request.work {
            PlainRequest::Put(..) => self.write(cx, id, request),
            PlainRequest::Get(..) => self.read(cx, id, request),
            PlainRequest::Siblings(_, level) => {
                let why = "a regional keyspace keeps no siblings".to_string();
                self.refuse(cx, id, *level, why);
            }
        }
    }

    fn on_deadline(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        self.is_late(cx, id, request);
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, from: ServerId, message: Message) {
        if from.partition != cx.me.partition || !cx.others().contains(from.replica()) {
            self.faults += 1;
            return;
        }
        let is_here = from.site == self.site;
        match message.body {
            Some(Body::Raft(message)) if is_here => self.on_raft(cx, from, message),
            Some(Body::AskToLead(())) if is_here => {
                self.group.let_lead(cx.now.monotonic, from.replica());
                self.handle_ready(cx);
            }
            Some(Body::Forward(forward)) if !is_here => self.on_forward(cx, from, forward),
            Some(Body::Have(have)) if !is_here => self.on_have(cx, from, &have),
            Some(Body::Dropped(epoch)) if !is_here => {
                if self.group.role() == Role::Leader {
                    self.hear_epoch(from.site, Hlc(epoch));
                    self.want_copy(cx, from);
                }
            }
            _ => self.faults += 1,
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>, timer: Timer) {
        match timer {
            Timer::Tick => {
                self.group.tick(cx.now.monotonic);
                self.give_up(cx);
                self.begin_epoch(cx);
                self.mark(cx);
                self.handle_ready(cx);
                self.ask_sites_again(cx);
                self.tell_news(cx);
                let timing = self.config.timing;
                cx.set_timer(Timer::Tick, timing.until_tick(cx.now.monotonic));
            }
            Timer::Flush => {
                self.is_flushing = false;
                self.group.tell();
                self.handle_ready(cx);
            }
            Timer::Apply => {
                // It waits once more for its key if a copy is being put in place.
                if let Some(entry) = self.fetching.take(&self.group)
                    && !self.is_placing
                {
                    self.apply(cx, Some(entry));
                }
                self.handle_ready(cx);
            }
        }
    }

    fn on_link(&mut self, cx: &mut Cx<'_>, peer: ServerId, up: bool) {
        if up || !cx.others().contains(peer.replica()) {
            return;
        }
        if self.copying == Some(peer) {
            // Its node may be gone for good. So another replica may be asked.
            self.copying = None;
        }
        match peer.site == self.site {
            true => self.group.lose(peer.replica()),
            false => self.lose_way(peer.replica()),
        }
        self.handle_ready(cx);
    }

    // ---- full copies ------------------------------------------------------------------------------------------

    fn cut(&self) -> Vec<(ReplicaId, Hlc)> {
        self.covered()
    }

    fn applied(&self) -> Applied {
        self.group.applied()
    }

    fn on_copying(&mut self, cx: &mut Cx<'_>, _: ServerId, copied: &Recovered) {
        self.copy_comes(cx, copied);
    }

    fn on_copied(&mut self, cx: &mut Cx<'_>, from: ServerId, copied: &Recovered) {
        self.copy_is_in_place(cx, from, copied);
    }

    /// No older write may still come: also where a copy has told of more than entries have brought.
    fn settled(&self) -> Hlc {
        self.forgettable()
            .min(self.sites.until(self.replicas.keys().copied()))
    }

    fn on_wish(&mut self, cx: &mut Cx<'_>, mut wish: Wish) {
        if let Wish::Members(changes) = &mut wish {
            // An operator tells the leaders of all sites.
            changes.retain(|change| change.replica.site() == self.site);
            if changes.is_empty() {
                return;
            }
        }
        if let Some(leader) = self.group.fulfil(cx.now.monotonic, wish) {
            cx.send(cx.me.peer(leader), Body::AskToLead(()).into());
        }
        self.handle_ready(cx);
    }

    fn group(&self) -> Option<GroupStatus> {
        Some(GroupStatus {
            awaits: self.awaited().filter(|_| self.leads && !self.has_begun()),
            ..self.group.status()
        })
    }

    fn forwards(&self, now: Now) -> Vec<Forwarding> {
        self.ways_to_others(now)
    }

    fn is_sound_source(&self) -> bool {
        self.group.is_sound_source()
    }

    fn completeness(&self) -> Completeness {
        match self.group.completeness() {
            // The directories were empty because the cluster is new: no site had anything of this one.
            Completeness::Partial if self.is_new => Completeness::Whole,
            completeness => completeness,
        }
    }

    fn vitals(&self, now: Now) -> Vitals {
        // If all sites have every write, and are beyond what has expired, there is none for whose sake deletes are kept.
        let expired = self.expiries.due(Hlc::from_wall(now.wall.reading));
        let newest = self.newest_write.max(expired.unwrap_or_default());
        let forgettable = self.forgettable();
        let settled = match forgettable >= newest && !self.has_gap {
            true => forgettable.max(Hlc::from_wall(now.wall.earliest)),
            false => forgettable,
        };
        let waits = self.has_gap || self.copying.is_some() || self.group.is_busy();
        let forwards = self.leads && self.is_forwarding();
        Vitals {
            // Nothing is hidden until other sites have it.
            stable_until: None,
            deletes_until: Some(settled).filter(|&settled| settled > Hlc::ZERO),
            under_way: self.waiting.count() + u64::from(waits || forwards),
            is_filling: self.group.is_incomplete(),
            is_outdated: self.group.broken().is_some(),
        }
    }

    fn validate(&self) {
        self.group.validate();
        assert!(
            !self.went_back,
            "an entry has set the stable vector back: {:?}",
            self.sites
        );
        self.waiting.validate(self.applied);
        for (key, ahead) in &self.ahead {
            let is_ahead = ahead.index > self.applied;
            assert!(is_ahead, "entry {} of {key} is applied", ahead.index);
        }
    }
}

impl Nukv {
    // ---- the group --------------------------------------------------------------------------------------------

    fn on_raft(&mut self, cx: &mut Cx<'_>, from: ServerId, message: RaftMessage) {
        // Without room nothing is stored. The leader sends it again.
        if message.has_entries() && !cx.has_room() {
            return;
        }
        let heard = self.group.hear(cx.now.monotonic, from.replica(), message);
        self.faults += u64::from(heard.is_err());
        self.handle_ready(cx);
    }

    /// Hands on what the group wants, and applies what is committed.
    pub(crate) fn handle_ready(&mut self, cx: &mut Cx<'_>) {
        for round in self.group.handle_ready(cx) {
            if let Some((_, place)) = self.suspected.take_if(|(number, _)| *number == round.number) {
                // It led when the round began, and has applied all that was acknowledged before: what it does not have is lost.
                if self.applied >= round.index && self.has_lost(place) {
                    self.lose_epoch();
                }
            }
        }
        self.follow_role(cx);
        self.look_for_loss();
        self.apply_soon(cx);
        self.forward(cx);
        let has_epoch = self.sites.place(self.site).epoch > Hlc::ZERO;
        self.group.look_whether_complete(has_epoch && !self.has_gap);
        if let Some(replica) = self.group.take_wanted_copy() {
            self.want_copy(cx, cx.me.peer(replica));
        }
        self.fill_gap(cx);
        if self.group.has_news() || self.group.has_more() {
            self.flush_soon(cx);
        }
    }

    /// This replica may have been elected, or another one.
    fn follow_role(&mut self, cx: &mut Cx<'_>) {
        let leads = self.group.role() == Role::Leader;
        if leads == self.leads {
            return;
        }
        self.leads = leads;
        self.ahead.clear();
        self.sessions.clear();
        self.told.clear();
        if !leads {
            return;
        }
        self.elections += 1;
        self.suspected = None;
        self.refill = None;
        // Whatever is in the log may be committed: new timestamps are above it.
        cx.observe(self.group.newest().max(self.sites.newest()));
        self.look_at_log();
        self.decided_on_less = self.group.last();
        self.begin_forwarding(cx);
    }

    // ---- answers ----------------------------------------------------------------------------------------------

    /// What an answer proves: this replica has everything up to its stable vector.
    pub(crate) fn receipt(
        &self,
        cx: &Cx<'_>,
        level: Level,
        version: Option<VersionId>,
        index: u64,
    ) -> Receipt {
        let places = self
            .sites
            .places()
            .map(|(site, place)| (ReplicaId::from(site), place.at));
        Receipt {
            // If it has a gap, its leader has rows that it lacks.
            staleness: cx.staleness(self.walls_of_all()).filter(|_| !self.has_gap),
            proof: Proof::Regional(RegionalProof {
                applied: places.collect(),
                at: cx.now.wall.reading,
                index,
                redirects: 0,
            }),
            ..cx.receipt(level, version)
        }
    }

    /// Of each site, the time by which everything that it had acknowledged is applied here. 0: none of it.
    pub(crate) fn walls_of_all(&self) -> impl Iterator<Item = Micros> + Clone {
        let sites = self.replicas.keys();
        sites.map(|site| self.walls.get(site).copied().unwrap_or_default())
    }

    pub(crate) fn reply(&self, cx: &mut Cx<'_>, id: RequestId, level: Level, outcome: Outcome) {
        let receipt = cx.receipt(level, None);
        let response = Response {
            outcome,
            index: self.applied,
            epoch: Hlc::ZERO,
            floor: Hlc::ZERO,
            expired: Hlc::ZERO,
        };
        cx.reply(id, response, receipt);
    }

    pub(crate) fn refuse(&self, cx: &mut Cx<'_>, id: RequestId, level: Level, why: String) {
        self.reply(cx, id, level, Outcome::Answered(PlainResponse::Refused(why)));
    }

    /// What the inputs of this turn ask for is done together, once.
    pub(crate) fn flush_soon(&mut self, cx: &mut Cx<'_>) {
        if !std::mem::replace(&mut self.is_flushing, true) {
            cx.set_timer(Timer::Flush, Micros(0));
        }
    }
}
