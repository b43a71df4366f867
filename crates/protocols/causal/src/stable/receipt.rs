use super::{Line, Request, Stable};
use crate::metrics::lag;
use turnbuckle_core::{
    Bounded, Context, Hidden, Hlc, Level, Micros, Now, Proof, Protocol, Reading, Receipt, ReplicaId, Vector,
    Vitals,
};

/// What clients, and monitoring, are told of what is stable.
impl Stable {
    /// The receipt of an answer that was read at `cut`, or of a write. Without a cut the own site's versions were visible at once.
    ///
    /// Every write that any site acknowledged before the oldest of the sites' walls is stamped below what is stable. So is everything that it depends
    /// on, which was written before. So the write was visible.
    pub fn receipt<P: Protocol>(
        &self,
        cx: &Context<'_, P>,
        given: Level,
        cut: Option<Vector>,
        hidden: Hidden,
    ) -> Receipt {
        Receipt {
            staleness: cx.staleness(self.walls_of(cx.now, cut.is_some())),
            proof: Proof::Causal {
                cut: match self.scalar {
                    true => self.gst_of_each(),
                    false => cut.unwrap_or_else(|| self.dsv.clone()),
                },
                hidden,
            },
            ..cx.receipt(given, None)
        }
    }

    /// Of each site, a wall time: everything that the site had acknowledged by then is shown. 0 if that is not known. What one replica shows of its own site is
    /// complete; a snapshot, which shows what is stable, needs the own site's wall, too.
    fn walls_of(&self, now: Now, is_snapshot: bool) -> impl Iterator<Item = Micros> + Clone {
        let own = (!is_snapshot).then_some(self.me.replica());
        let sites = (0..self.sites as u16)
            .map(ReplicaId)
            .filter(move |&replica| Some(replica) != own);
        // If the newest stamp is beyond what a clock within its bound can show, nothing is proven.
        let clocks_count = self.scalar && !self.bugs.proves_by_the_least_clock;
        // It is at least what is stable, which may have come by a client.
        let newest = self.newest.max(self.dsv.newest());
        let newest = clocks_count.then(|| newest.wall().since(Stable::raw_bound(now)));
        let walls = sites.map(move |replica| match self.scalar {
            true => self.dsv.newest().wall().since(Stable::raw_bound(now)),
            false => self.dsv_walls.at(replica).wall(),
        });
        walls.chain(newest)
    }

    /// Raw clocks: a server that acknowledged a write this long before a stamp, by a clock within its bound, stamped the write in an earlier microsecond.
    fn raw_bound(now: Now) -> Micros {
        now.wall.bound() + Micros(1)
    }

    /// Whether a read can be answered now, if it is at `bounded(t)`.
    pub fn bounded<P: Protocol>(&self, cx: &Context<'_, P>, request: &Request) -> Bounded {
        match request.bound() {
            Some(bound) => {
                let count = if self.bugs.waits_for_one_site {
                    1
                } else {
                    usize::MAX
                };
                cx.bounded(
                    bound,
                    self.patience(),
                    self.walls_of(cx.now, request.is_snapshot()).take(count),
                )
            }
            None => Bounded::Proven,
        }
    }

    /// What is said to a client whose read at `bounded(t)` cannot be answered, for this reason.
    pub fn excuse_of_bound<P: Protocol>(&self, cx: &Context<'_, P>, request: &Request, why: &str) -> String {
        let walls = self.walls_of(cx.now, request.is_snapshot());
        let bound = request.bound().unwrap_or_default();
        cx.unproven(bound, walls, why)
    }

    /// The line on which a read waits until all walls have reached a time, and the point.
    pub fn line_of_wall(&self, now: Now, wall: Micros, is_snapshot: bool) -> (Line, Hlc) {
        match self.scalar {
            true => {
                let stable = Hlc::from_wall(wall + Stable::raw_bound(now));
                (Line::Stable(ReplicaId(0)), stable)
            }
            false => (Line::OldestWall { is_snapshot }, Hlc(wall.0)),
        }
    }

    /// The sites' walls have risen: reads at `bounded(t)` go on.
    pub(super) fn advance_walls<P: Protocol<Line = Line>>(&self, cx: &mut Context<'_, P>) {
        for is_snapshot in [false, true] {
            let oldest = self.walls_of(cx.now, is_snapshot).min();
            cx.advance(Line::OldestWall { is_snapshot }, oldest.unwrap_or_default().0);
        }
    }

    /// What is stable, in the numbers that every protocol reports.
    pub fn vitals(&self) -> Vitals {
        let stable_until = match self.scalar {
            true => self.dsv.newest(),
            false => self.dsv.oldest(self.sites),
        };
        self.deletes.vitals(Some(stable_until))
    }

    /// The number of hidden versions, at least.
    pub fn hidden(&self) -> u64 {
        self.hidden.len() as u64
    }

    /// How far what is stable, of each other site, is behind the wall clock.
    pub fn lags(&self, now: Now) -> Vec<(ReplicaId, Reading)> {
        let entry = |replica| if self.scalar { ReplicaId(0) } else { replica };
        self.others()
            .map(|replica| (replica, lag(self.dsv.at(entry(replica)), now)))
            .collect()
    }

    /// How long the versions of each other site took until they could be seen.
    pub fn spans(&self) -> Vec<(ReplicaId, Reading)> {
        self.others()
            .map(|replica| (replica, Reading::Spans(Box::new(self.hidden.spans(replica)))))
            .collect()
    }

    fn others(&self) -> impl Iterator<Item = ReplicaId> {
        let me = self.me.replica();
        (0..self.sites as u16)
            .map(ReplicaId)
            .filter(move |&replica| replica != me)
    }

    /// What to tell a client that has waited for `need` of `replica` until its time was up, and when to try again.
    pub fn excuse<P: Protocol>(&self, cx: &Context<'_, P>, replica: ReplicaId, need: Hlc) -> String {
        let has = self.dsv.at(replica);
        let behind = need.wall().since(has.wall());
        let [(then, before), _] = &self.pace_seen;
        let moved = has.wall().since(before.at(replica).wall()).0;
        let took = cx.now.monotonic.since(*then).0.max(1);
        let shown = |micros: u64| match micros {
            0..=9_999 => format!("{micros} us"),
            10_000..=9_999_999 => format!("{} ms", micros / 1_000),
            _ => format!("{} s", micros / 1_000_000),
        };
        let when = match u128::from(behind.0) * u128::from(took) / u128::from(moved.max(1)) {
            _ if moved == 0 || before.at(replica) == Hlc::ZERO => match self.scalar {
                true => {
                    "nothing arrives from some site or partition now, so it is not known when".to_string()
                }
                false => "nothing arrives from there now, so it is not known when".to_string(),
            },
            eta => format!(
                "expected in about {}",
                shown(eta.min(u128::from(u64::MAX)) as u64)
            ),
        };
        let of = match self.scalar {
            true => String::new(),
            false => format!(" of site {}", cx.topology.replica_name(replica)),
        };
        format!(
            "not all writes{of} that the answer must show have arrived yet: this site is {} behind them; {when}",
            shown(behind.0)
        )
    }
}
