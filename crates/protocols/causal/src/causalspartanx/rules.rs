use crate::stable::{Cx, Intervals, Put, Rules, Stable};
use crate::{Bugs, bugs};
use turnbuckle_core::{Bug, Hlc, Parameter, ReplicaId, ServerId, Setting, Vector, Version, VersionId};

/// The configuration of a CausalSpartanX keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CausalSpartanXConfig {
    /// How often the replicas do what they do regularly.
    pub pace: Intervals,
    /// The planted bugs.
    pub bugs: Bugs,
    /// The rules that are broken, to show what they are for.
    pub departures: Departures,
}

impl CausalSpartanXConfig {
    /// The algorithms as they are printed.
    pub fn published(self) -> CausalSpartanXConfig {
        let departures = Departures::PUBLISHED;
        // DSV is raised to what clients name, even if that is not here.
        let bugs = Bugs {
            answers_above_what_it_has: true,
            ..self.bugs
        };
        CausalSpartanXConfig {
            departures,
            bugs,
            ..self
        }
    }
}

/// Each of these breaks the protocol. Some are what is printed in the text, some are bugs that the checkers must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Departures {
    /// As printed (5.2, line 3): a remote version may be seen before its own timestamp is stable.
    pub own_time_ignored: bool,
    /// As printed (5.2, line 3, after a restart): a local version is returned without making what it depends on stable.
    pub local_dependencies_ignored: bool,
    /// As the text describes it: each server collects what its own DSV covers, even if other servers have snapshots under way.
    pub collects_by_own_dsv: bool,
    /// A session that moves takes DSV_c along in its token.
    pub token_has_stable: bool,
    /// Visibility ignores the entry of this site.
    pub ignored_entry: Option<ReplicaId>,
    /// Line 21 of Algorithm 5.4 is left out.
    pub slice_promises_nothing: bool,
    /// What was read does not become part of the client's past.
    pub past_not_merged: bool,
}

impl Departures {
    /// The algorithms as they are printed.
    pub const PUBLISHED: Departures = Departures {
        own_time_ignored: true,
        local_dependencies_ignored: true,
        collects_by_own_dsv: true,
        token_has_stable: true,
        ignored_entry: None,
        slice_promises_nothing: false,
        past_not_merged: false,
    };

    /// The departure of this name, to be switched on. `None` if there is none.
    pub fn named(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "own_time_ignored" => &mut self.own_time_ignored,
            "local_dependencies_ignored" => &mut self.local_dependencies_ignored,
            "collects_by_own_dsv" => &mut self.collects_by_own_dsv,
            "token_has_stable" => &mut self.token_has_stable,
            "slice_promises_nothing" => &mut self.slice_promises_nothing,
            "past_not_merged" => &mut self.past_not_merged,
            _ => return None,
        })
    }
}

/// The rules of CausalSpartanX alone.
pub struct CausalSpartanXRules {
    me: ReplicaId,
    departures: Departures,
}

impl Rules for CausalSpartanXRules {
    type Config = CausalSpartanXConfig;
    /// `ds`
    type Meta = Vector;

    const PARAMETERS: [Parameter<Self::Config>; 4] = Intervals::parameters([
        |config| Setting::Interval(&mut config.pace.heartbeat),
        |config| Setting::Interval(&mut config.pace.theta),
        |config| Setting::Interval(&mut config.pace.pause),
        |config| Setting::Interval(&mut config.pace.patience),
    ]);
    const BUGS: &'static [Bug] = &[
        bugs::FORGETS_DELETES_EARLY,
        bugs::SERVES_AN_OLD_DIRECTORY,
        bugs::ANSWERS_ABOVE_WHAT_IT_HAS,
        bugs::DELETES_TELL_NOTHING_STABLE,
        bugs::WAITS_FOR_ONE_SITE,
        bugs::EXPIRY_REVIVES,
        bugs::CONDITIONS_IGNORE_THE_NEWEST,
        bugs::FORGETS_WHAT_EXPIRED,
        bugs::SLICES_EXPIRE_BY_OWN_CLOCKS,
        bugs::COUNTS_AS_SUMS,
        bugs::RESETS_NOTHING,
        bugs::REMOVES_UNSEEN,
        bugs::ADDS_NO_FLOORS,
        bugs::SPLITS_TRANSACTIONS,
    ];
    const TOLERATES_CLOCK_STEPS: bool = true;
    const SCALAR: bool = false;

    fn open(config: &CausalSpartanXConfig, me: ServerId) -> CausalSpartanXRules {
        CausalSpartanXRules {
            me: me.replica(),
            departures: config.departures,
        }
    }

    fn pace(config: &CausalSpartanXConfig) -> Intervals {
        config.pace
    }

    fn shrink(config: &mut Self::Config, by: u32) {
        config.pace.shrink(by);
    }

    fn bugs(config: &CausalSpartanXConfig) -> Bugs {
        config.bugs
    }

    fn plant(config: &mut CausalSpartanXConfig, bug: &str) -> bool {
        let found = config.bugs.named(bug).or(config.departures.named(bug));
        found.map(|planted| *planted = true).is_some()
    }

    // ---- the clock: HLC -------------------------------------------------------------------------------------

    fn promise(&mut self, cx: &mut Cx<'_, Self>) -> Hlc {
        cx.promise()
    }

    fn observe(cx: &mut Cx<'_, Self>, at: Hlc) {
        cx.observe(at);
    }

    // ---- GET and PUT: Algorithm 5.2 -------------------------------------------------------------------------

    /// Line 3, and `<d.sr, d.ut>` as well, which the text leaves out: what is merged into a client's past, and with it into DSV, must be stable. All
    /// of this site's own versions are here, whatever its entry of DSV says.
    fn is_visible(&self, stable: &Stable, d: &Version<Vector>) -> bool {
        let dsv = stable.dsv();
        if d.id.replica == self.me {
            return true;
        }
        if let Some(ignored) = self.departures.ignored_entry {
            let mut entries = d.meta.entries().chain([(d.id.replica, d.id.at)]);
            return entries.all(|(replica, h)| replica == ignored || h <= dsv.at(replica));
        }
        let is_here = |(replica, h)| replica == self.me || h <= dsv.at(replica);
        d.meta.entries().all(is_here) && (dsv.covers_id(d.id) || self.departures.own_time_ignored)
    }

    fn dependencies(d: &Version<Vector>) -> &Vector {
        &d.meta
    }

    /// Line 4: `maxDS(d.ds, {<d.sr, d.ut>})`.
    fn past_of(d: &Version<Vector>) -> Vector {
        Vector::of(d.id).merged(&d.meta)
    }

    /// A local version was written when everything that it depends on was stable here. A restart may have forgotten that. A power loss or a lost
    /// directory may have taken what it depends on.
    fn absent_for_local_read(&self, stable: &Stable, ds: &Vector) -> Option<(ReplicaId, Hlc)> {
        match self.departures.local_dependencies_ignored {
            true => None,
            false => stable.absent(ds),
        }
    }

    fn on_local_read(&self, stable: &mut Stable, cx: &mut Cx<'_, Self>, ds: &Vector) {
        if !self.departures.local_dependencies_ignored {
            stable.raise(cx, ds);
        }
    }

    /// Line 7.
    fn stable_for(put: &Put) -> &Vector {
        &put.past
    }

    /// A hybrid clock is above all that was stamped here.
    fn stamp(
        &mut self,
        stable: &mut Stable,
        cx: &mut Cx<'_, Self>,
        ds: &Vector,
        _: Hlc,
        _: &dyn Fn(&Cx<'_, Self>, VersionId) -> bool,
    ) -> VersionId {
        cx.observe(ds.newest().max(stable.dsv().at(self.me))); // line 8
        let id = VersionId {
            at: cx.stamp(), // lines 9 and 13
            replica: self.me,
        };
        stable.promised(id.at);
        id
    }

    fn meta(&mut self, stable: &mut Stable, cx: &mut Cx<'_, Self>, ds: Vector) -> Vector {
        stable.write_down_what_is_here(cx, &ds);
        ds
    }

    // ---- ROTX: Algorithm 5.4 --------------------------------------------------------------------------------

    /// Line 21: from now on nothing is stamped here that belongs to this snapshot, not after a restart either.
    fn on_slice(&mut self, stable: &mut Stable, cx: &mut Cx<'_, Self>, sv: &Vector) {
        if !self.departures.slice_promises_nothing {
            cx.observe(sv.at(self.me));
            stable.promised(cx.promise());
        }
    }

    /// Line 22.
    fn is_in_snapshot(sv: &Vector, d: &Version<Vector>) -> bool {
        sv.covers(&d.meta) && sv.covers_id(d.id)
    }

    // ---- planted bugs ---------------------------------------------------------------------------------------

    fn collects_by_own_dsv(&self) -> bool {
        self.departures.collects_by_own_dsv
    }

    fn forgets_what_was_read(&self) -> bool {
        self.departures.past_not_merged
    }

    fn token_has_stable(config: &CausalSpartanXConfig) -> bool {
        config.departures.token_has_stable
    }
}
