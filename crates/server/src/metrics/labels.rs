use turnbuckle_core::{Answer, Failure, Level, Operation};

/// Declares an enum whose variants have a place and a label.
macro_rules! labels {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $variant_doc:literal])+ $variant:ident = $label:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[doc = $variant_doc])+ $variant,)+
        }

        impl $name {
            /// All variants, by their places.
            pub const ALL: &[$name] = &[$($name::$variant,)+];

            /// The label's value.
            pub const fn label(self) -> &'static str {
                match self {
                    $($name::$variant => $label,)+
                }
            }
        }
    };
}

labels! {
    /// What an operation did.
    OperationKind {
        /// It read one key.
        Get = "get",
        /// It wrote one key.
        Put = "put",
        /// It deleted one key.
        Delete = "delete",
        /// It computed the value of one key from the value before.
        Compute = "compute",
        /// It was a transaction.
        Transact = "transact",
        /// It read several keys.
        ReadMany = "read_many",
        /// It listed keys.
        Scan = "scan",
        /// It counted keys.
        Count = "count",
        /// A client waited for sites.
        Wait = "wait",
        /// It was a message to a channel.
        Publish = "publish",
    }
}

impl From<&Operation> for OperationKind {
    fn from(operation: &Operation) -> OperationKind {
        match operation {
            Operation::Get { .. } | Operation::Siblings { .. } => OperationKind::Get,
            Operation::Put { .. } if operation.computes() => OperationKind::Compute,
            Operation::Put { value: Some(_), .. } => OperationKind::Put,
            Operation::Put { .. } if operation.retimes().is_some() => OperationKind::Put,
            Operation::Put { value: None, .. } => OperationKind::Delete,
            Operation::Transact { .. } => OperationKind::Transact,
            Operation::ReadMany { .. } | Operation::Watch { .. } => OperationKind::ReadMany,
            Operation::Scan { .. } => OperationKind::Scan,
            Operation::Count => OperationKind::Count,
            Operation::Wait { .. } => OperationKind::Wait,
            Operation::Publish { .. } => OperationKind::Publish,
            Operation::First(first) => OperationKind::from(&first.operation),
        }
    }
}

labels! {
    /// How an operation ended.
    Outcome {
        /// It was carried out.
        Ok = "ok",
        /// There was no answer in time. It may have been carried out.
        Timeout = "timeout",
        /// It could not be served, and was not carried out.
        Unavailable = "unavailable",
        /// The keyspace does not offer its level.
        BadLevel = "bad_level",
        /// The keyspace has no such operation.
        Unsupported = "unsupported",
        /// Its key or value was too long.
        TooBig = "too_big",
    }
}

impl From<&Answer> for Outcome {
    fn from(answer: &Answer) -> Outcome {
        match answer {
            Answer::Failed(Failure::Timeout(_)) => Outcome::Timeout,
            Answer::Failed(Failure::Unavailable(_)) => Outcome::Unavailable,
            Answer::Failed(Failure::BadLevel { .. }) => Outcome::BadLevel,
            Answer::Failed(Failure::Unsupported(_)) => Outcome::Unsupported,
            _ => Outcome::Ok,
        }
    }
}

labels! {
    /// The level of an operation, without its argument.
    LevelLabel {
        /// The operation named no level: the keyspace's default applies.
        Default = "default",
        /// `eventual`.
        Eventual = "eventual",
        /// `session`.
        Session = "session",
        /// `read-your-writes`.
        ReadYourWrites = "read-your-writes",
        /// `monotonic-reads`.
        MonotonicReads = "monotonic-reads",
        /// `monotonic-writes`.
        MonotonicWrites = "monotonic-writes",
        /// `writes-follow-reads`.
        WritesFollowReads = "writes-follow-reads",
        /// `per-key-causal`.
        PerKeyCausal = "per-key-causal",
        /// `causal`.
        Causal = "causal",
        /// `one`.
        One = "one",
        /// `quorum`.
        Quorum = "quorum",
        /// `all`.
        All = "all",
        /// `replicas(..)`.
        Replicas = "replicas",
        /// `cpq(..)`.
        Cpq = "cpq",
        /// `delay(..)`.
        Delay = "delay",
        /// `bounded(..)`.
        Bounded = "bounded",
        /// `per-key-sequential`.
        PerKeySequential = "per-key-sequential",
        /// `partition-sequential`.
        PartitionSequential = "partition-sequential",
        /// `sequential`.
        Sequential = "sequential",
        /// `atomic`.
        Atomic = "atomic",
        /// `linearizable`.
        Linearizable = "linearizable",
        /// Several levels, of which the first that can be given is given.
        Chain = "chain",
    }
}

impl From<&Operation> for LevelLabel {
    fn from(operation: &Operation) -> LevelLabel {
        match operation {
            Operation::First(_) => LevelLabel::Chain,
            operation => LevelLabel::from(operation.level()),
        }
    }
}

impl From<Option<Level>> for LevelLabel {
    fn from(level: Option<Level>) -> LevelLabel {
        match level {
            None => LevelLabel::Default,
            Some(Level::Eventual) => LevelLabel::Eventual,
            Some(Level::Session) => LevelLabel::Session,
            Some(Level::ReadYourWrites) => LevelLabel::ReadYourWrites,
            Some(Level::MonotonicReads) => LevelLabel::MonotonicReads,
            Some(Level::MonotonicWrites) => LevelLabel::MonotonicWrites,
            Some(Level::WritesFollowReads) => LevelLabel::WritesFollowReads,
            Some(Level::PerKeyCausal) => LevelLabel::PerKeyCausal,
            Some(Level::Causal) => LevelLabel::Causal,
            Some(Level::One) => LevelLabel::One,
            Some(Level::Quorum) => LevelLabel::Quorum,
            Some(Level::All) => LevelLabel::All,
            Some(Level::Replicas(_)) => LevelLabel::Replicas,
            Some(Level::Cpq(_)) => LevelLabel::Cpq,
            Some(Level::Delay(_)) => LevelLabel::Delay,
            Some(Level::Bounded(_)) => LevelLabel::Bounded,
            Some(Level::PerKeySequential) => LevelLabel::PerKeySequential,
            Some(Level::PartitionSequential) => LevelLabel::PartitionSequential,
            Some(Level::Sequential) => LevelLabel::Sequential,
            Some(Level::Atomic) => LevelLabel::Atomic,
            Some(Level::Linearizable) => LevelLabel::Linearizable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_the_name_of_its_level() {
        for label in &LevelLabel::ALL[1..LevelLabel::ALL.len() - 1] {
            let name = match label {
                LevelLabel::Replicas => "replicas(2)",
                LevelLabel::Cpq => "cpq(0.5)",
                LevelLabel::Delay => "delay(1ms)",
                LevelLabel::Bounded => "bounded(1ms)",
                word => word.label(),
            };
            let level: Level = name.parse().expect(name);
            assert_eq!(LevelLabel::from(Some(level)), *label);
        }
    }
}
