use crate::{Compute, Condition, Conditional, Edit, Failure, Operation, PutOptions, Step};

/// The properties that a protocol declares. The drivers that run it and the judges that check it know nothing else of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Whether the protocol ever reads a version that is not its key's newest. If not, the store keeps one version of each key.
    pub history: bool,
    /// How versions reach other replicas.
    pub replication: Replication,
    /// Whether the replicas of a partition at one site agree among themselves, and other sites are told later: what is acknowledged is at one site first.
    pub agrees_by_site: bool,
    /// Whether a session that has seen a write that is lost with its replicas' directories is told so, and not shown less.
    pub tells_losses: bool,
    /// How many members a partition may have inside a site.
    pub max_members: u16,
    /// Whether a partition may have replicas at some of the sites only.
    pub leaves_sites_out: bool,
    /// Whether it keeps its promises when a node's clock is set.
    pub tolerates_clock_steps: bool,
    /// Whether it keeps its promises, or refuses to serve, when a data directory is replaced by an old copy of itself.
    pub tolerates_old_directories: bool,
    /// Whether a put may have a condition, and may ask for the value that it replaces. Such a protocol puts all writes to a key into one order, and
    /// reads the key at the put's place in that order.
    pub takes_conditions: bool,
    /// Whether a keyspace may say that one site decides such puts alone ([`Conditional::Site`]), and puts that compute their value. For protocols that do not put all writes into one order.
    pub decides_at_site: bool,
    /// Whether a put may compute its value from the one before it.
    pub computes: bool,
    /// Whether a put may add to a number, also where it takes no other computed values: what each replica has added is kept apart, and added up by readers
    /// ([`crate::Count`]).
    pub counts: bool,
    /// Whether a key may have elements: whether a put may change a hash or a set ([`crate::Edit`]).
    pub keeps_elements: bool,
    /// Which transactions it carries out.
    pub transactions: Transactions,
    /// Whether a put may say when its value expires, and may change when an existing value expires.
    pub takes_expiry: bool,
    /// Whether a session says what another site must have to have everything that it has seen, so that a client can wait for that ([`Operation::Wait`]).
    /// For protocols that acknowledge a write when one site has it.
    pub confirms_sites: bool,
    /// Whether it keeps versions that were written without knowledge of each other, so that clients can read them all, and say which of them a put
    /// replaces.
    pub keeps_siblings: bool,
}

/// Which transactions a protocol carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transactions {
    /// None.
    None,
    /// Those without conditions: what they do is seen as a whole or not at all, at levels that go by more than what has arrived.
    WithoutConditions,
    /// All: also on the condition that keys were not written since they were watched.
    All,
}

impl Descriptor {
    /// The descriptor that promises the least: no history, one member at each site, a replica at every site. The protocol tolerates neither clock
    /// steps nor old directories, and puts have no options. A protocol's descriptor names what it does beyond that, and takes the rest by
    /// `..Descriptor::of(replication)`.
    pub const fn of(replication: Replication) -> Descriptor {
        Descriptor {
            history: false,
            replication,
            agrees_by_site: false,
            tells_losses: false,
            max_members: 1,
            leaves_sites_out: false,
            tolerates_clock_steps: false,
            tolerates_old_directories: false,
            takes_conditions: false,
            decides_at_site: false,
            computes: false,
            counts: false,
            keeps_elements: false,
            transactions: Transactions::None,
            takes_expiry: false,
            confirms_sites: false,
            keeps_siblings: false,
        }
    }

    /// Why a keyspace of this protocol refuses an operation, at any level; `None` if it takes the operation. A refused operation did not happen.
    #[inline]
    pub fn refusal(
        &self,
        keyspace: &str,
        conditional: Conditional,
        operation: &Operation,
    ) -> Option<Failure> {
        match operation {
            Operation::Put {
                options: Some(options),
                ..
            } => self.refusal_of_options(keyspace, conditional, options),
            Operation::Transact { .. } | Operation::Watch { .. }
                if self.transactions == Transactions::None =>
            {
                Some(refused(keyspace, "has no transactions", TRANSACTIONS))
            }
            Operation::Watch { .. } if self.transactions != Transactions::All => Some(refused(
                keyspace,
                "has no transactions with conditions",
                CONSENSUS,
            )),
            Operation::Transact { transaction, .. }
                if self.transactions != Transactions::All && !transaction.conditions.is_empty() =>
            {
                Some(refused(
                    keyspace,
                    "has no transactions with conditions",
                    CONSENSUS,
                ))
            }
            Operation::Transact { transaction, .. } => {
                let mut options = transaction.steps.iter().filter_map(|step| match step {
                    Step::Put(_, _, options) => options.as_deref(),
                    Step::Get(_) | Step::Lifetime(_) => None,
                });
                options.find_map(|options| self.refusal_of_options(keyspace, conditional, options))
            }
            Operation::Count | Operation::Scan { .. } if self.replication == Replication::Majority => {
                let why =
                    "no replica of this keyspace has every key, so its keys cannot be listed or counted";
                Some(Failure::Unsupported(why.into()))
            }
            Operation::Wait { .. } if !self.confirms_sites => Some(match self.replication {
                Replication::Streams => {
                    refused(keyspace, "does not remember what a client has written", WAIT)
                }
                Replication::Majority | Replication::Consensus => Failure::Unsupported(format!(
                    "the keyspace '{keyspace}' answers a write when enough replicas have it; no other site is to be waited for"
                )),
            }),
            Operation::Siblings { .. } if !self.keeps_siblings => {
                Some(refused(keyspace, "keeps no siblings", SIBLINGS))
            }
            _ => None,
        }
    }

    fn refusal_of_options(
        &self,
        keyspace: &str,
        conditional: Conditional,
        options: &PutOptions,
    ) -> Option<Failure> {
        let decides = self.decides_at_site && conditional == Conditional::Site;
        let exact = match self.decides_at_site {
            true => CONSENSUS_OR_SITE,
            false => CONSENSUS,
        };
        let edit = options.computes.as_ref().and_then(Compute::edit);
        let (what, needed) = if edit.is_some() && !self.keeps_elements {
            ("keeps no hashes and no sets", ELEMENTS)
        } else if edit.is_some_and(Edit::decides) && !self.takes_conditions && !decides {
            ("takes no conditions", SITE)
        } else if let Some(Condition::Version(_)) = options.condition
            && !self.takes_conditions
        {
            match decides {
                true => ("takes no condition on a version", CONSENSUS),
                false => ("takes no conditions", CONSENSUS),
            }
        } else if options.condition.is_some() && !self.takes_conditions && !decides {
            ("takes no conditions", exact)
        } else if options.returns_previous && options.retimes.is_none() && !self.takes_conditions && !decides
        {
            ("does not return the value that a write replaces", exact)
        } else if let Some(compute) = &options.computes
            && edit.is_none()
            && !self.computes
            && !match compute.added() {
                Some(_) => self.counts,
                None => decides,
            }
        {
            match compute.added() {
                Some(_) => ("adds nothing up", COUNTS),
                None => ("computes no values", exact),
            }
        } else if (options.expiry.is_some() || options.retimes.is_some()) && !self.takes_expiry {
            ("takes no expiry", EXPIRY)
        } else if options.replaces.is_some() && !self.keeps_siblings {
            ("keeps no siblings", SIBLINGS)
        } else {
            return None;
        };
        Some(refused(keyspace, what, needed))
    }
}

const CONSENSUS: &str = "a keyspace with `protocol = \"dacian\"`, such as `consensus` in the demo";
const TRANSACTIONS: &str =
    "a `causalspartanx`, `gentlerain` or `dacian` keyspace, such as `causal` or `consensus` in the demo";
const CONSENSUS_OR_SITE: &str = "a keyspace with `protocol = \"dacian\"`, such as `consensus` in the demo, or `conditional = \"site\"` in the configuration of this one, with which each site decides alone";
const SITE: &str =
    "`conditional = \"site\"` in the configuration of the keyspace, with which each site decides alone";
const COUNTS: &str = "a causal, eventual or consensus keyspace, such as `causal` in the demo";
const ELEMENTS: &str = "an eventual keyspace, or one with `protocol = \"causalspartanx\"` or `\"gentlerain\"`, such as `causal` in the demo";
const WAIT: &str = "a causal or regional keyspace, such as `causal` in the demo";
const EXPIRY: &str = "a causal, eventual, regional or consensus keyspace, such as `causal` in the demo";
const SIBLINGS: &str = "a keyspace with `protocol = \"quorum-siblings\"`";

fn refused(keyspace: &str, what: &str, needed: &str) -> Failure {
    Failure::Unsupported(format!("the keyspace '{keyspace}' {what}; that needs {needed}"))
}

/// A bug that can be planted into a protocol ([`crate::Protocol::plant`]): one of the protocol's rules is left out. Worlds drawn from seeds must find
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bug {
    /// Its name on command lines.
    pub name: &'static str,
    /// What goes wrong with it.
    pub what: &'static str,
}

impl Bug {
    /// A bug with its name and what goes wrong with it.
    pub const fn new(name: &'static str, what: &'static str) -> Bug {
        Bug { name, what }
    }
}

/// How versions reach other sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// By durable streams ([`crate::Context::replicate`]): in the end each replica has every version, or a newer one of the same key. What a replica
    /// has lost, its peers send again.
    Streams,
    /// By the protocol's own messages ([`crate::Context::send`]), to a majority of a partition's replicas. A replica need not have every version. If
    /// its data directory was lost or its rows were damaged, a replica serves nothing and takes no messages until it has a full copy of each of the
    /// other replicas.
    Majority,
    /// By the protocol's journal, on which a majority of a partition's replicas agrees. In the end each replica has the effects of every entry. If its
    /// data directory was lost or its rows were damaged, a replica is opened without its journal and without what it kept by name
    /// ([`crate::Recovered::lacks_rows`]). What it then may do is for the protocol to decide, which asks for full copies by itself
    /// ([`crate::Context::want_copy`]). Requests are refused until [`crate::Protocol::completeness`] says that it has enough.
    Consensus,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compute, Expiry, Key, Micros, Vector, VersionId};

    const NONE: Descriptor = Descriptor::of(Replication::Streams);

    fn put(condition: Option<Condition>, expiry: Option<Expiry>, returns_previous: bool) -> Operation {
        Operation::delete(Key::from("k")).with(PutOptions {
            condition,
            expiry,
            returns_previous,
            ..PutOptions::default()
        })
    }

    #[test]
    fn each_option_is_refused_by_its_own_reason_and_taken_where_the_protocol_takes_it() {
        let siblings = Descriptor {
            keeps_siblings: true,
            ..NONE
        };
        let replaces = Operation::delete(Key::from("k")).with(PutOptions {
            replaces: Some(Vector::ZERO),
            ..PutOptions::default()
        });
        let (conditions, expiry) = (
            Descriptor {
                takes_conditions: true,
                ..NONE
            },
            Descriptor {
                takes_expiry: true,
                ..NONE
            },
        );
        let after = Some(Expiry::After(Micros(1)));
        for (operation, taking, why) in [
            (
                put(Some(Condition::Absent), None, false),
                conditions,
                "takes no conditions",
            ),
            (put(None, None, true), conditions, "does not return the value"),
            (put(None, after, false), expiry, "takes no expiry"),
            (replaces, siblings, "keeps no siblings"),
            (Operation::siblings(Key::from("k")), siblings, "keeps no siblings"),
        ] {
            let refused = NONE.refusal("likes", Conditional::Refuse, &operation).expect(why);
            assert!(refused.is_definite() && refused.word() == "UNSUPPORTED");
            assert!(
                refused
                    .to_string()
                    .starts_with(&format!("the keyspace 'likes' {why}")),
                "{refused}"
            );
            assert_eq!(taking.refusal("likes", Conditional::Refuse, &operation), None);
        }
        let plain = Operation::put(Key::from("k"), bytes::Bytes::new());
        assert_eq!(NONE.refusal("likes", Conditional::Refuse, &plain), None);
    }
    #[test]
    fn a_keyspace_may_say_that_one_site_decides() {
        let deciding = Descriptor {
            decides_at_site: true,
            ..NONE
        };
        let appends = Operation::delete(Key::from("k")).with(PutOptions {
            computes: Some(Compute::Append(bytes::Bytes::new())),
            ..PutOptions::default()
        });
        let id = VersionId {
            at: crate::Hlc(1),
            replica: crate::ReplicaId(0),
        };
        for operation in [
            put(Some(Condition::Absent), None, false),
            put(Some(Condition::Present), None, true),
            put(None, None, true),
            appends,
        ] {
            let refused = deciding.refusal("likes", Conditional::Refuse, &operation);
            let words = refused.expect("it is refused").to_string();
            assert!(words.contains("`conditional = \"site\"`"), "{words}");
            assert_eq!(deciding.refusal("likes", Conditional::Site, &operation), None);
            // The setting does not help a protocol that cannot decide.
            let refused = NONE.refusal("likes", Conditional::Site, &operation);
            let words = refused.expect("it is refused").to_string();
            assert!(!words.contains("conditional"), "{words}");
        }
        let on_version = put(Some(Condition::Version(id)), None, false);
        let refused = deciding.refusal("likes", Conditional::Site, &on_version);
        let words = refused.expect("it is refused").to_string();
        assert!(words.contains("takes no condition on a version"), "{words}");
    }
}
