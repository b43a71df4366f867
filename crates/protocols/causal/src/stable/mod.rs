//! # What a site knows to be stable
//!
//! CausalSpartanX and GentleRain decide by time alone which versions may be seen: a version may be seen when everything that it can depend on is
//! here. For that, each site works out up to which time it has everything.
//!
//! ```text
//!   site a, partition 1                         site b, partition 1            partition 0 (root of b's tree)
//!      | x stamped 17                               |                               |
//!      | ~~~~ x@17 ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~> |                               |
//!      | ~~~~ heartbeat: up to 20, wall 20 ~~~~~~~> | VV[a] = 20                    |
//!      |                                            | -- Up [20, ..] -------------> | min over the partitions, when all have reported
//!      |                                            | <------------ Down [20, ..] --|
//!      |                                            | DSV[a] = 20: x may be seen    |
//! ```
//!
//! In the text, heartbeats are sent every Delta and reports every theta. Here that holds while nothing is written. What is written is told sooner: see
//! `news.rs`.
//!
//! - **VV** (version vector), one per partition: `VV[k]` is the last time up to which this partition has everything that its peer at site k stamped.
//!   Only heartbeats raise it (Algorithm 5.3, line 9), never versions (5.2, line 22). The reason: a version that is sent back after a power loss has
//!   an old stamp, and the node of a peer that is still being sent lost versions withholds the peer's heartbeats. This rule costs
//!   the time between a version and the heartbeat behind it.
//! - **DSV** (data center stable vector), one per site: the entry-wise minimum of the partitions' VV, over a tree ([`Tree`]).
//! - **The collection vector**: the entry-wise minimum of all partitions' DSV and of the snapshots under way, over the same tree. Of each key, the
//!   newest version that it covers is kept, and all newer ones. A partition collects only what is below a DSV that it has written down (`kept`), so
//!   that after a restart its DSV begins above that.
//!
//! Over the tree a site's partitions also keep their clocks together (the text does not). Otherwise a partition whose clock is ahead, after a restart
//! or because its machine's clock is, would stamp versions that no client sees before the other clocks have come as far. Each partition also learns
//! up to which wall time no partition of its site has stamped anything higher than its own clock. Its heartbeats report that time, and by it other
//! sites prove how fresh their answers are. A heartbeat also reports how far the sender's disk is, and which deletes every site shows (`deletes`).
//!
//! ```text
//!   for each origin o:   collected[o] <= kept[o] <= DSV[o] <= VV[o] of each partition <= what o's stream has brought
//! ```
//!
//! A partition keeps up the third of these relations by itself. After a restart, a power loss or the loss of its directory it has less than the other
//! partitions of its site, and so less than clients have been told. If it is asked for something that it does not have, it waits until it has it.
//!
//! GentleRain's GST is the same with one number: the minimum of all of VV. It uses a vector with one entry for it.
pub use turnbuckle_streams::Said;
mod hidden;
pub use hidden::HiddenVersions;
mod message;
pub use message::{Get, Heartbeat, Message, Numbers, Put, Report, Request, Response, Rotx, Slice, Work};
mod news;
use news::News;
mod pace;
pub use pace::{Intervals, Line, Timer};
mod receipt;
mod replica;
pub use replica::{Cx, Rules, TimedReplica};
mod reports;
use reports::Reports;
mod session;
pub use session::TimedSession;
mod snapshot;
pub use snapshot::{Snapshot, Snapshots};
mod tree;
pub use tree::Tree;

use crate::Bugs;
use bytes::{Bytes, BytesMut};
use turnbuckle_core::{
    BadFrame, Chain, Context, Forgotten, Hlc, Meta, Micros, Now, Protocol, Recovered, ReplicaId, ServerId,
    Vector, Version, VersionId,
};
use turnbuckle_streams::Deletes;

/// After this many versions, what is stable is written down before its time. Where many versions are overwritten, many can be collected. Until they
/// are, they take memory, and are no longer in a CPU cache when they are freed. One record in the log for this many versions costs next to nothing.
const KEEP_AFTER: u32 = 128;

/// No site. It stands in for the own site where the own site's entry counts like the others.
const NOBODY: ReplicaId = ReplicaId(u16::MAX);

/// The name under which what is stable is written down.
const NAME: &str = "stable";

/// What one partition knows of what is stable.
pub struct Stable {
    me: ServerId,
    sites: usize,
    tree: Tree,
    pace: Intervals,
    /// Whether one number is used for all sites, as in GentleRain, instead of one for each.
    scalar: bool,
    /// For each site, what its heartbeats have promised; of the own site, what this replica has.
    vv: Vector,
    /// For each other site, the wall clock at its last heartbeat.
    walls: Vector,
    /// For each site, the time up to which no power loss there takes anything any more.
    settled: Vector,
    deletes: Deletes,
    bugs: Bugs,
    /// What was last sent, and what is still to be sent.
    news: News,
    /// What was reported in the site's tree.
    reports: Reports,
    /// What is stable at this site (DSV, or GST), and the sites' wall clocks that belong to it.
    dsv: Vector,
    dsv_walls: Vector,
    /// Everything that any partition of this site stamped before this wall time has a stamp no higher than this clock.
    clock_wall: Micros,
    /// The newest stamp that any partition of this site has heard of, from any site.
    newest: Hlc,
    /// The collection vector.
    collectable: Vector,
    hidden: HiddenVersions,
    /// The DSV that is written down: after a restart, DSV begins here.
    kept: Vector,
    /// VV at the time when that was written down.
    kept_vv: Vector,
    /// The number of versions that were put since then.
    put_since: u32,
    /// What was collected up to: the lower of `collectable` and `kept`. No client may be shown less.
    collected: Vector,
    /// Versions were lost here that no peer could send back, because newer ones had replaced them there. Those newer ones are stamped up to this.
    replaced: Vector,
    /// When DSV was written down the last two times, and what it was, the older first: they tell how fast it moves.
    pace_seen: [(Micros, Vector); 2],
}

impl Stable {
    /// What a partition knows when it starts.
    pub fn open(
        me: ServerId,
        topology: &turnbuckle_core::Topology,
        pace: Intervals,
        scalar: bool,
        bugs: Bugs,
        recovered: &Recovered,
    ) -> Stable {
        let cut: Vector = recovered.cut.iter().copied().collect();
        // This code wrote it. If it does not decode, its content is learnt again.
        let kept = recovered.named.get(NAME).map(Kept::decode);
        let mut kept = kept.and_then(Result::ok).unwrap_or_default();
        if recovered.lacks_rows {
            // Versions of this site that are sent back were written by clients that knew this to be stable.
            let floor = kept.dsv.merged(&kept.collected);
            kept = Kept {
                collected: floor,
                replaced: kept.replaced,
                ..Kept::default()
            };
        }
        let Kept {
            vv,
            dsv,
            collected,
            replaced,
        } = kept;
        let newest = vv.newest();
        let mut settled = cut.clone();
        settled.set(me.replica(), Hlc::ZERO);
        Stable {
            me,
            sites: topology.site_count(),
            tree: Tree::new(me.partition, topology.partitions()),
            pace,
            scalar,
            vv: vv.clone().merged(&cut),
            walls: Vector::ZERO,
            settled,
            deletes: Deletes::open(me, topology, recovered, bugs.in_streams()),
            bugs,
            news: News::new(pace.pause_of(topology.partitions())),
            reports: Reports::default(),
            kept: dsv.clone(),
            kept_vv: vv.merged(&cut),
            put_since: 0,
            collected: collected.merged(&dsv),
            collectable: dsv.clone(),
            dsv,
            replaced,
            dsv_walls: Vector::ZERO,
            clock_wall: Micros(0),
            newest,
            hidden: HiddenVersions::new(topology.site_count()),
            pace_seen: [(Micros(0), Vector::ZERO), (Micros(0), Vector::ZERO)],
        }
    }

    // ---- what is known --------------------------------------------------------------------------------------

    /// What is stable here: DSV, or GST in the only entry.
    pub fn dsv(&self) -> &Vector {
        &self.dsv
    }

    /// For each site, the time up to which everything that it stamped is in this partition.
    pub fn vv(&self) -> &Vector {
        &self.vv
    }

    /// Versions below this may have been collected: no client may be shown less.
    pub fn collected(&self) -> &Vector {
        &self.collected
    }

    /// The planted bugs.
    pub fn bugs(&self) -> Bugs {
        self.bugs
    }

    /// How long requests may wait.
    pub fn patience(&self) -> Micros {
        self.pace.patience
    }

    /// For each site, a time up to which everything that it stamped is here, and which no power loss at that site can take, so that it would come
    /// again.
    pub fn cut(&self) -> Vec<(ReplicaId, Hlc)> {
        let until = |replica| match replica == self.me.replica() {
            true => self.vv.at(replica),
            false => self.vv.at(replica).min(self.settled.at(replica)),
        };
        let sites = (0..self.sites as u16).map(ReplicaId);
        sites.map(|replica| (replica, until(replica))).collect()
    }

    /// Every site shows what was stamped up to this time, and no snapshot is older.
    pub fn settled(&self) -> Hlc {
        let everywhere = match self.bugs.forgets_deletes_early {
            true => self.settled.oldest(self.sites),
            false => self.deletes.forgotten(),
        };
        everywhere.min(self.until(&self.collected))
    }

    /// See [`Protocol::closed_everywhere`].
    pub fn closed_everywhere(&self) -> Hlc {
        self.deletes.closed_everywhere().min(self.settled())
    }

    /// See [`Deletes::floor`].
    pub fn floor<M: Meta>(&self, chain: Option<&Chain<M>>) -> Hlc {
        self.deletes.floor(chain)
    }

    /// See [`Deletes::is_of_the_forgotten`].
    pub fn is_of_the_forgotten<M: Meta>(&self, chain: Option<&Chain<M>>, version: &Version<M>) -> bool {
        self.deletes.is_of_the_forgotten(chain, version)
    }

    /// Why this replica serves nothing. `None` if it serves.
    pub fn refusal(&self) -> Option<&'static str> {
        self.deletes.refusal()
    }

    /// The entry of what is stable in which a site is: one number is in the first.
    fn entry_of(&self, replica: ReplicaId) -> ReplicaId {
        match self.scalar {
            true => ReplicaId(0),
            false => replica,
        }
    }

    /// The time up to which a vector covers every site. If one number is used for all sites, that number.
    fn until(&self, vector: &Vector) -> Hlc {
        match self.scalar {
            true => vector.newest(),
            false => vector.oldest(self.sites),
        }
    }

    /// Up to this time everything that a site stamped is in this partition. The own site's versions all are.
    fn here(&self, replica: ReplicaId) -> Hlc {
        let others = || {
            (0..self.sites as u16)
                .map(ReplicaId)
                .filter(|&replica| replica != self.me.replica())
        };
        match self.scalar {
            _ if self.bugs.answers_above_what_it_has => Hlc::LATEST,
            true => others()
                .map(|replica| self.vv.at(replica))
                .min()
                .unwrap_or(Hlc::LATEST),
            false if replica == self.me.replica() => Hlc::LATEST,
            false => self.vv.at(replica),
        }
    }

    /// The first site of which this partition does not have everything up to `stable`, although that is stable at this site. The partition has lost
    /// versions, in a power loss or with its directory, or a restart has forgotten how much it had.
    pub fn absent(&self, stable: &Vector) -> Option<(ReplicaId, Hlc)> {
        let mut entries = stable.entries();
        entries.find(|&(replica, at)| at > self.here(replica))
    }

    // ---- heartbeats -----------------------------------------------------------------------------------------

    /// Sets the timers. That this replica was opened is written down at once.
    pub fn start<P: Protocol<Timer = Timer>>(&mut self, cx: &mut Context<'_, P>) {
        cx.set_timer(Timer::Heartbeat, Micros(0));
        cx.set_timer(Timer::Stabilise, Micros(0));
        self.deletes.start(cx);
        self.keep(cx);
    }

    /// Everything that was stamped here so far is in this replica: `promise` is what [`Context::promise`], or a raw clock, returned.
    pub fn promised(&mut self, promise: Hlc) {
        self.vv.raise(self.me.replica(), promise);
    }

    /// Algorithm 5.3, lines 3-7. The heartbeat is sent even when versions were sent: they do not raise VV.
    pub fn heartbeat<P, X>(&mut self, cx: &mut Context<'_, P>)
    where
        P: Protocol<Timer = Timer, Message = Message<X>>,
    {
        let settled = cx.settled_promise();
        self.settled.raise(self.me.replica(), settled);
        let promise = self.vv.at(self.me.replica());
        let heartbeat = Heartbeat {
            promise,
            settled,
            wall: self.clock_wall,
            deletes: self.deletes.said(cx),
            written: self.reports.written().at(self.me.replica()),
            replaced: self.replaced.clone(),
        };
        cx.mark(cx.others(), Message::Heartbeat(heartbeat));
        cx.set_timer(Timer::Heartbeat, self.pace.heartbeat);
        self.news.promised(cx.now.monotonic, promise);
    }

    /// Algorithm 5.3, lines 8-9.
    pub fn on_heartbeat<P>(&mut self, cx: &mut Context<'_, P>, from: ReplicaId, heartbeat: Heartbeat)
    where
        P: Protocol<Line = Line>,
    {
        if usize::from(from.0) >= self.sites {
            return;
        }
        self.floor_at(cx, &heartbeat.replaced);
        self.reports.heard_of(from, heartbeat.written);
        self.has(cx, from, heartbeat.promise);
        self.settled.raise(from, heartbeat.settled);
        self.walls.raise(from, Hlc::from_wall(heartbeat.wall));
        if self.deletes.heard(cx, from, heartbeat.deletes) {
            let floor = self.floor_of(heartbeat.deletes.forgotten);
            self.floor_at(cx, &floor);
        }
    }

    /// A site reports which deletes it has forgotten.
    pub fn on_resumed<P: Protocol>(
        &mut self,
        cx: &mut Context<'_, P>,
        from: ReplicaId,
        forgotten: &Forgotten,
    ) {
        if self.deletes.resumed(cx, from, forgotten) {
            let floor = self.floor_of(forgotten.until.unwrap_or_default());
            self.floor_at(cx, &floor);
        }
    }

    /// A client that is shown less than what was forgotten may be shown what was deleted.
    fn floor_of(&self, forgotten: Hlc) -> Vector {
        Vector::filled(if self.scalar { 1 } else { self.sites }, forgotten)
    }

    /// From now on no client may be shown less, not after a restart either.
    fn floor_at<P: Protocol>(&mut self, cx: &mut Context<'_, P>, floor: &Vector) {
        if !self.collected.covers(floor) {
            self.collected.merge(floor);
            self.write_down(cx);
        }
    }

    /// Everything that a site stamped up to `until` is in this partition: requests that waited for it go on.
    fn has<P: Protocol<Line = Line>>(&mut self, cx: &mut Context<'_, P>, replica: ReplicaId, until: Hlc) {
        if self.vv.raise(replica, until) {
            let replica = self.entry_of(replica);
            cx.advance(Line::Here(replica), self.here(replica).0);
            self.news.arrived();
        }
    }

    /// The link to a site is down.
    pub fn left(&mut self, replica: ReplicaId) {
        self.deletes.left(replica);
    }

    /// A full copy brought everything up to its cut.
    pub fn on_copied<P: Protocol<Line = Line>>(&mut self, cx: &mut Context<'_, P>, copied: &Recovered) {
        for &(replica, until) in &copied.cut {
            if replica != self.me.replica() && usize::from(replica.0) < self.sites {
                self.has(cx, replica, until);
                self.settled.raise(replica, until);
            }
        }
    }

    /// A site has sent back what this partition lost, but nothing that was deleted or collected there. What replaced those versions may not have come
    /// here yet: a client that is shown less than that may be shown something older than what was lost. The same holds at third sites, which are told
    /// by heartbeats.
    pub fn on_returned(&mut self, returned: &Recovered) {
        let mut withheld: Vector = returned.cut.iter().copied().collect();
        withheld.set(self.me.replica(), Hlc::ZERO);
        let withheld = match self.scalar {
            true => Vector::filled(1, withheld.newest()),
            false => withheld,
        };
        let replaced = withheld.merged(&Stable::collected_at(returned));
        self.collected.merge(&replaced);
        if !self.bugs.tells_nothing_replaced {
            self.replaced.merge(&replaced);
        }
    }

    /// The vector up to which a replica may have collected older versions.
    fn collected_at(replica: &Recovered) -> Vector {
        let kept = replica.named.get(NAME).map(Kept::decode);
        let kept = kept.and_then(Result::ok).unwrap_or_default();
        kept.dsv.merged(&kept.collected)
    }

    /// A full copy is coming. Its source may have collected what is older than what it had written down as stable. A client that is shown less than
    /// that may miss something.
    pub fn on_copying(&mut self, copied: &Recovered) {
        self.collected.merge(&Stable::collected_at(copied));
    }

    // ---- what is stable -----------------------------------------------------------------------------------

    /// Raises DSV to at least this, as far as this partition has everything itself. Requests that waited for it go on.
    pub fn raise<P: Protocol<Line = Line>>(&mut self, cx: &mut Context<'_, P>, stable: &Vector) {
        if self.dsv.covers(stable) {
            return;
        }
        for (replica, at) in stable.entries() {
            let at = at.min(self.here(replica));
            if self.dsv.raise(replica, at) {
                cx.advance(Line::Stable(replica), at.0);
                self.unhide(replica, cx.now.wall.reading);
            }
        }
    }

    fn unhide(&mut self, replica: ReplicaId, wall: Micros) {
        if !self.scalar {
            return self.hidden.raised(replica, self.me.replica(), &self.dsv, wall);
        }
        let gst = self.gst_of_each();
        for replica in 0..self.sites as u16 {
            self.hidden.raised(ReplicaId(replica), NOBODY, &gst, wall);
        }
    }

    /// A version of another site has arrived, which depends on `ds`.
    pub fn arrived(&mut self, now: Now, id: VersionId, ds: &Vector) {
        let wall = now.wall.reading;
        match self.scalar {
            true => self.hidden.arrive(id, ds, NOBODY, &self.gst_of_each(), wall),
            false => self.hidden.arrive(id, ds, self.me.replica(), &self.dsv, wall),
        }
    }

    /// GST, as a vector with the same entry for each site.
    fn gst_of_each(&self) -> Vector {
        Vector::filled(self.sites, self.dsv.newest())
    }

    // ---- what is kept and collected -------------------------------------------------------------------------

    /// Writes down what is stable.
    pub fn keep<P: Protocol<Timer = Timer>>(&mut self, cx: &mut Context<'_, P>) {
        cx.set_timer(Timer::Keep, self.pace.keep_every);
        let [_, last] = &self.pace_seen;
        self.pace_seen = [last.clone(), (cx.now.monotonic, self.dsv.clone())];
        self.write_down(cx);
        let shown = self.until(&self.kept);
        self.deletes.keep(cx, shown);
    }

    /// A version was put.
    pub fn has_put<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        self.put_since += 1;
        if self.put_since >= KEEP_AFTER {
            self.write_down(cx);
        }
    }

    /// Writes down what is stable at once, as [`Stable::keep`] does regularly: a site that can be heard no more reports nothing again after a restart.
    pub fn write_down<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        let mut bytes = BytesMut::new();
        // Every site shows versions that are newer than `replaced`: no client is shown older ones any more.
        if self.replaced.newest() <= self.deletes.shown_by_all() {
            self.replaced = Vector::ZERO;
        }
        for vector in [&self.vv, &self.dsv, &self.collected, &self.replaced] {
            vector.put(&mut bytes);
        }
        cx.put_named(NAME, bytes.freeze());
        self.kept = self.dsv.clone();
        self.kept_vv = self.vv.clone();
        self.put_since = 0;
        self.collect();
    }

    /// As [`Stable::write_down`], if it is not written down yet that `past` is here. What depends on it goes into the log with it, or not at all.
    pub fn write_down_what_is_here<P: Protocol>(&mut self, cx: &mut Context<'_, P>, past: &Vector) {
        let of_others = |&(replica, _): &(ReplicaId, Hlc)| replica != self.me.replica();
        let mut needed = past.entries().filter(of_others);
        if needed.any(|(replica, at)| at > self.kept_vv.at(replica)) {
            self.write_down(cx);
        }
    }

    /// As [`Stable::write_down`], if more is stable than is written down.
    pub fn write_down_if_higher<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        if !self.kept.covers(&self.dsv) {
            self.write_down(cx);
        }
    }

    fn collect(&mut self) {
        let mut collected = self.collectable.clone();
        collected.meet(&self.kept);
        self.collected.merge(&collected);
    }

    // ---- waiting --------------------------------------------------------------------------------------------

    /// The first site of which more is needed than is stable, also counting what a client knows to be stable. Everything of the own site is here. If
    /// one number is used for all sites, it is of no site.
    pub fn missing(&self, need: &Vector, known: &Vector) -> Option<ReplicaId> {
        let is_missing = |&(replica, at): &(ReplicaId, Hlc)| {
            (self.scalar || replica != self.me.replica()) && self.dsv.at(replica).max(known.at(replica)) < at
        };
        need.entries().find(is_missing).map(|(replica, _)| replica)
    }

    /// Checks the invariants, with words.
    pub fn validate(&self) {
        if !self.scalar {
            assert!(
                self.kept <= self.dsv,
                "recorded as stable and not stable: {self:?}"
            );
        }
        assert!(self.absent(&self.dsv).is_none(), "stable and not here: {self:?}");
        assert!(
            self.walls.at(self.me.replica()) == Hlc::ZERO,
            "a replica has no heartbeat of its own site"
        );
    }
}

impl std::fmt::Debug for Stable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stable")
            .field("vv", &self.vv)
            .field("dsv", &self.dsv)
            .field("kept", &self.kept)
            .field("collected", &self.collected)
            .finish_non_exhaustive()
    }
}

/// The state that is written down.
#[derive(Default)]
struct Kept {
    vv: Vector,
    dsv: Vector,
    /// It may be above the other vectors: the source of a full copy may have collected more.
    collected: Vector,
    replaced: Vector,
}

impl Kept {
    fn decode(bytes: &Bytes) -> Result<Kept, BadFrame> {
        let mut bytes = bytes.clone();
        Ok(Kept {
            vv: Vector::take(&mut bytes)?,
            dsv: Vector::take(&mut bytes)?,
            collected: Vector::take(&mut bytes)?,
            replaced: Vector::take(&mut bytes)?,
        })
    }
}
