use crate::{Hlc, Label, Level, Micros, Rank, ReplicaId, ReplicaSet, ServerId, Vector, VersionId, Wanted};

/// How an answer came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The contacted node held the replica.
    Local,
    /// The answer came from a replica on another node: of the site, or of another site.
    Forwarded,
}

/// What an answer proves about itself. A receipt is a claim that can be audited against a trace; in every simulated
/// run all receipts must be true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// What was asked for, or the connection's or keyspace's default.
    pub asked: Wanted,
    /// The level that was given: the one that was asked for, or one of those that were.
    pub given: Level,
    /// The version that was read or written; `None` if the key has none.
    pub version: Option<VersionId>,
    /// The version that wrote the value, if `version` has only changed its expiry: see [`Rank`].
    pub base: Option<VersionId>,
    /// The replica that answered; the last one, for an answer put together from several.
    pub server: ServerId,
    /// How the operation reached it.
    pub route: Route,
    /// How long the operation was parked before it could be answered.
    pub waited: Micros,
    /// The answer reflects every write that had been acknowledged this long before the operation began, at any
    /// site, if every clock is within `clock_bound` of true time. `None`: nothing is proven.
    pub staleness: Option<Micros>,
    /// The clock assumption that `staleness` rests on: how far any clock may be from true time.
    pub clock_bound: Micros,
    /// Whether concurrent versions were found that last-writer-wins hides.
    pub siblings: bool,
    /// When the value that was read or written expires, in microseconds since 1970; a read of nothing: when it expired. Each
    /// replica judges by its own clock, so the value may be gone earlier or later by that clock's error. `None`: never, or there was no value.
    pub until: Option<Micros>,
    /// Whether a condition, the value before a write, or the value that a write was computed from was decided by what the answering replica's site shows, alone: see
    /// [`crate::Conditional::Site`]. A write at another site may win.
    pub decided_at_site: bool,
    /// What receipts of this family of protocols have beyond that.
    pub proof: Proof,
}

/// What receipts of one family of protocols have, and those of other families do not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Proof {
    /// Nothing more.
    #[default]
    Plain,
    /// Causal keyspaces.
    Causal {
        /// The causal cut that the answer was read at: of each other site, everything that it stamped up to this time was visible.
        /// Empty where the protocol keeps none.
        cut: Vector,
        /// Versions that were newer here and not shown, because something that they depend on is not here yet.
        hidden: Hidden,
    },
    /// Quorum keyspaces.
    Quorum(QuorumProof),
    /// Consensus keyspaces.
    Consensus(ConsensusProof),
    /// Regional keyspaces.
    Regional(RegionalProof),
}

/// What the replica had that answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegionalProof {
    /// Of each site, everything that it had stamped up to this time was applied at the replica. The entry of a site is that of its first replica.
    pub applied: Vector,
    /// The replica's wall clock when it answered.
    pub at: Micros,
    /// A write: the index of its entry in the log of its site. A read: the index up to which entries were applied.
    pub index: u64,
    /// How often other replicas were asked before, which did not lead or were behind.
    pub redirects: u32,
}

impl RegionalProof {
    /// How far the replica was behind each site of which it had something: how old the newest is that it had. It may not lack anything, if the site has not written since.
    pub fn lags(&self) -> impl Iterator<Item = (ReplicaId, Micros)> + '_ {
        let entries = self.applied.entries();
        entries.map(|(site, until)| (site, self.at.since(until.wall())))
    }
}

/// The place of an answer in the order of everything that happens in a partition, and how it was known to be fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConsensusProof {
    /// A term of the partition's leaders: that of the entry, for a write; the one in which the replica was, for a read.
    pub term: u64,
    /// A write: the index of its entry. A read: the answer has the effects of all entries up to this index.
    pub index: u64,
    /// How the answer was known to be fresh.
    pub basis: Basis,
    /// How often other replicas were asked before, which did not lead or were behind.
    pub redirects: u32,
    /// A write: the replicas that had the entry on disk when it was answered, as far as the leader knew. They need not have applied it yet. A read: none.
    pub held_by: ReplicaSet,
}

/// How an answer of a consensus keyspace was known to be fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Basis {
    /// A majority has the operation's own entry.
    Entry,
    /// The leader had a lease: no other replica could be elected.
    Lease,
    /// A majority told the leader that it still followed it.
    Round,
    /// The replica had asked the leader, which knew by its lease or by a round.
    Leader,
    /// Nothing was asked.
    #[default]
    Nothing,
}

impl Basis {
    /// All, with their names in receipts.
    pub const ALL: [(Basis, &str); 5] = [
        (Basis::Entry, "entry"),
        (Basis::Lease, "lease"),
        (Basis::Round, "round"),
        (Basis::Leader, "leader"),
        (Basis::Nothing, "nothing"),
    ];

    /// Its name in receipts.
    pub fn name(self) -> &'static str {
        Basis::ALL[self as usize].1
    }
}

/// How replicas took part in an answer of a quorum keyspace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuorumProof {
    /// The replicas that were asked to read, or that were sent the write.
    pub asked: ReplicaSet,
    /// The replicas whose answers the operation waited for. The replica that coordinated the operation is among them.
    pub answered: ReplicaSet,
    /// What the proven staleness covers: the writes that at least this many replicas had acknowledged. 1: all writes.
    pub covers: u8,
    /// For a read whose level allows that one replica answers alone: how it could do so, or why it could not. Boxed, because few receipts have it, and without the box every
    /// receipt would be larger.
    pub freshness: Option<Box<Freshness>>,
}

/// How one replica could answer alone, or why it could not: at `bounded(t)`, `per-key-sequential` and `sequential`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// By what it knew of these replicas, which were not asked.
    Proven(ReplicaSet),
    /// It could prove this staleness, which is above the bound. So others were asked.
    Stale(Micros),
    /// It could prove nothing. So others were asked.
    Unknown,
    /// It showed the data as of this cut: everything that was stamped up to then, at any replica, and nothing that was stamped later. That is the place of a read
    /// at `sequential` in the order of all operations.
    Cut(Hlc),
}

/// Versions that are here and cannot be shown yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hidden {
    /// The number of them that are newer than what was shown.
    pub versions: u32,
    /// The newest of them, if there is one.
    pub newest: Option<VersionId>,
}

impl Hidden {
    /// Counts one more version.
    pub fn add(&mut self, version: VersionId) {
        let newest = Some(version);
        *self = self.and(Hidden { versions: 1, newest });
    }

    /// These and `other`: the numbers are added, and the newer version is kept.
    fn and(self, other: Hidden) -> Hidden {
        Hidden {
            versions: self.versions.saturating_add(other.versions),
            newest: self
                .newest
                .into_iter()
                .chain(other.newest)
                .max_by_key(|newest| newest.stamp()),
        }
    }
}

impl Proof {
    /// Adds versions that were not shown, in a receipt of a causal keyspace. Other receipts do not change.
    pub fn hide(&mut self, more: Hidden) {
        if let Proof::Causal { hidden, .. } = self {
            *hidden = hidden.and(more);
        }
    }

    fn merged(self, other: Proof) -> Proof {
        match (self, other) {
            (
                Proof::Causal { mut cut, hidden },
                Proof::Causal {
                    cut: their_cut,
                    hidden: their_hidden,
                },
            ) => {
                cut.meet(&their_cut);
                let hidden = hidden.and(their_hidden);
                Proof::Causal { cut, hidden }
            }
            (Proof::Quorum(one), Proof::Quorum(other)) => Proof::Quorum(QuorumProof {
                asked: one.asked.union(other.asked),
                answered: one.answered.intersection(other.answered),
                covers: one.covers.max(other.covers),
                freshness: match (one.freshness.as_deref(), other.freshness) {
                    (Some(Freshness::Stale(_) | Freshness::Unknown), _) => one.freshness,
                    (_, other) => other,
                },
            }),
            (Proof::Consensus(one), Proof::Consensus(other)) => Proof::Consensus(ConsensusProof {
                basis: one.basis.max(other.basis),
                redirects: one.redirects.saturating_add(other.redirects),
                held_by: one.held_by.intersection(other.held_by),
                ..other
            }),
            (Proof::Regional(mut one), Proof::Regional(other)) => {
                one.applied.meet(&other.applied);
                Proof::Regional(RegionalProof {
                    applied: one.applied,
                    at: one.at.max(other.at),
                    index: other.index,
                    redirects: one.redirects.saturating_add(other.redirects),
                })
            }
            // Only receipts of one keyspace are merged.
            (Proof::Plain, proof) | (proof, _) => proof,
        }
    }
}

impl Receipt {
    /// The same receipt, of this version of the key; `None` if the key has none.
    pub fn of(self, version: Option<Label>) -> Receipt {
        Receipt {
            version: version.map(|version| version.id),
            base: version.and_then(|version| version.base),
            until: version.and_then(|version| version.until),
            ..self
        }
    }

    /// The place of the version in the order of its key's versions; `None` if the key has none.
    pub fn rank(&self) -> Option<Rank> {
        self.version.map(|version| Rank::new(self.base, version))
    }

    /// What the proven staleness covers: the writes that at least this many replicas had acknowledged.
    pub fn covers(&self) -> usize {
        match &self.proof {
            Proof::Quorum(quorum) => usize::from(quorum.covers),
            Proof::Plain | Proof::Causal { .. } | Proof::Consensus(_) | Proof::Regional(_) => 1,
        }
    }

    /// The cut as of which a read at `sequential` shows the data.
    pub fn cut(&self) -> Option<Hlc> {
        match &self.proof {
            Proof::Quorum(QuorumProof {
                freshness: Some(freshness),
                ..
            }) => match **freshness {
                Freshness::Cut(cut) => Some(cut),
                _ => None,
            },
            _ => None,
        }
    }

    /// The number of replicas that had stored a write when it was acknowledged, or that had answered a read.
    pub fn copies(&self) -> usize {
        match &self.proof {
            Proof::Quorum(quorum) => quorum.answered.len(),
            Proof::Plain | Proof::Causal { .. } | Proof::Consensus(_) | Proof::Regional(_) => 1,
        }
    }

    /// Two answers' receipts as one. Of each claim it has the weaker one; its version and server are those of `other`.
    pub fn merged(self, other: Receipt) -> Receipt {
        Receipt {
            given: self.asked.weaker(self.given, other.given),
            route: if self.route == Route::Forwarded {
                self.route
            } else {
                other.route
            },
            waited: self.waited.max(other.waited),
            staleness: self.staleness.zip(other.staleness).map(|(a, b)| a.max(b)),
            clock_bound: self.clock_bound.max(other.clock_bound),
            siblings: self.siblings || other.siblings,
            decided_at_site: self.decided_at_site || other.decided_at_site,
            proof: self.proof.merged(other.proof),
            ..other
        }
    }
}
