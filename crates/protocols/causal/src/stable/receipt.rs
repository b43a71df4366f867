use super::Stable;
use crate::metrics::lag;
use turnbuckle_core::{
    Context, Hidden, Hlc, Level, Micros, Now, Proof, Protocol, Reading, Receipt, ReplicaId, Vector,
    VersionId, Vitals,
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
        version: Option<VersionId>,
        cut: Option<Vector>,
        hidden: Hidden,
    ) -> Receipt {
        let own = cut.is_none().then_some(self.me.replica());
        let sites = (0..self.sites as u16)
            .map(ReplicaId)
            .filter(|&replica| Some(replica) != own);
        // Raw clocks: a server that acknowledged a write before, by a clock within its bound, stamped it in an earlier microsecond. If the newest
        // stamp is beyond what a clock within its bound can show, nothing is proven.
        let raw = |at: Hlc| at.wall().since(cx.now.wall.bound() + Micros(1));
        let newest = (self.scalar && !self.bugs.proves_by_the_least_clock).then(|| raw(self.newest));
        let walls = sites.map(|replica| match self.scalar {
            true => raw(self.dsv.newest()),
            false => self.dsv_walls.at(replica).wall(),
        });
        let walls = walls.chain(newest);
        Receipt {
            staleness: cx.now.wall.age_of_oldest(walls),
            proof: Proof::Causal {
                cut: match self.scalar {
                    true => self.gst_of_each(),
                    false => cut.unwrap_or_else(|| self.dsv.clone()),
                },
                hidden,
            },
            ..cx.receipt(given, version)
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
