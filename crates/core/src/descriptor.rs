use crate::{Failure, Operation, PutOptions};

/// What a protocol is like, for those who run it and judge it and know nothing else of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Whether anybody ever asks for a version that is not a key's newest. Without history a store keeps one version a key.
    pub history: bool,
    /// How versions reach other replicas.
    pub replication: Replication,
    /// How many members a partition may have inside a site.
    pub max_members: u16,
    /// Whether a partition may stand at some sites only.
    pub leaves_sites_out: bool,
    /// Whether it keeps its promises when clocks are set.
    pub tolerates_clock_steps: bool,
    /// Whether it keeps its promises, or refuses to serve, when a data directory is replaced by an old copy of itself.
    pub stands_old_directories: bool,
    /// Whether a put may have a condition, and be told the value that it replaces: the protocol puts all writes to a key into one order, and looks at the
    /// key at the put's place in that order.
    pub takes_conditions: bool,
    /// Whether a put may say when its value expires.
    pub takes_expiry: bool,
}

impl Descriptor {
    /// A protocol that promises as little as can be: no history, one member at each site, a replica at every site; no wrong clocks and no old directories are
    /// tolerated, and puts have no options. A protocol's descriptor names what it does beyond that, and `..Descriptor::of(replication)` the rest.
    pub const fn of(replication: Replication) -> Descriptor {
        Descriptor {
            history: false,
            replication,
            max_members: 1,
            leaves_sites_out: false,
            tolerates_clock_steps: false,
            stands_old_directories: false,
            takes_conditions: false,
            takes_expiry: false,
        }
    }

    /// What a keyspace of this protocol answers to an operation that it does not take, whatever its level. The operation did not happen.
    #[inline]
    pub fn refusal(&self, keyspace: &str, operation: &Operation) -> Option<Failure> {
        match operation {
            Operation::Put {
                options: Some(options),
                ..
            } => self.refusal_of_options(keyspace, options),
            _ => None,
        }
    }

    fn refusal_of_options(&self, keyspace: &str, options: &PutOptions) -> Option<Failure> {
        const ORDER: &str = "a protocol that puts all writes to a key into one order";
        let (what, needed) = if options.condition.is_some() && !self.takes_conditions {
            ("takes no conditions", ORDER)
        } else if options.returns_previous && !self.takes_conditions {
            ("does not tell the value that a write replaces", ORDER)
        } else if options.expiry.is_some() && !self.takes_expiry {
            (
                "takes no expiry",
                "a protocol that keeps with each value when it expires",
            )
        } else {
            return None;
        };
        let why = format!("the keyspace '{keyspace}' {what}; that needs {needed}");
        Some(Failure::Unsupported(why))
    }
}

/// A bug that can be planted into a protocol ([`crate::Protocol::plant`]): a rule of it left out. Drawn worlds must find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bug {
    /// Its name on command lines.
    pub name: &'static str,
    /// What goes wrong with it.
    pub what: &'static str,
}

impl Bug {
    /// A bug.
    pub const fn new(name: &'static str, what: &'static str) -> Bug {
        Bug { name, what }
    }
}

/// How versions reach other sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// By durable streams ([`crate::Context::replicate`]): each replica has every version in the end, or a newer one. What a replica lost, its peers
    /// give back.
    Streams,
    /// By the protocol's own messages ([`crate::Context::send`]), to a majority of a partition's replicas. No replica need have everything. One whose
    /// data directory was lost, or whose rows were damaged, neither serves nor hears messages until it has a full copy of each
    /// of the others.
    Majority,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Condition, Expiry, Key, Micros};

    const NONE: Descriptor = Descriptor::of(Replication::Streams);

    fn put(condition: Option<Condition>, expiry: Option<Expiry>, returns_previous: bool) -> Operation {
        Operation::delete(Key::from("k")).with(PutOptions {
            condition,
            expiry,
            returns_previous,
        })
    }

    #[test]
    fn each_option_is_refused_by_its_own_reason_and_taken_where_the_protocol_takes_it() {
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
            (put(None, None, true), conditions, "does not tell the value"),
            (put(None, after, false), expiry, "takes no expiry"),
        ] {
            let refused = NONE.refusal("likes", &operation).expect(why);
            assert!(refused.is_definite() && refused.word() == "UNSUPPORTED");
            assert!(
                refused
                    .to_string()
                    .starts_with(&format!("the keyspace 'likes' {why}")),
                "{refused}"
            );
            assert_eq!(taking.refusal("likes", &operation), None);
        }
        let plain = Operation::put(Key::from("k"), bytes::Bytes::new());
        assert_eq!(NONE.refusal("likes", &plain), None);
    }
}
