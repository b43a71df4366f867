use crate::{
    Computed, Elements, FirstOf, Key, Level, Micros, NotComputed, PutOptions, Receipt, Retimes, Siblings,
    Transaction, Unmet, VersionId, Wanted,
};
use bytes::Bytes;
use std::{fmt, sync::Arc};

/// What a client asks of a keyspace; the same for all protocols. A level of `None` is the keyspace's default for that kind of operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Reads one key.
    Get {
        /// The key.
        key: Key,
        /// How consistent the read must be.
        level: Option<Level>,
    },
    /// Reads all siblings of one key. Only for protocols that keep them ([`crate::Descriptor::keeps_siblings`]).
    Siblings {
        /// The key.
        key: Key,
        /// How consistent the read must be.
        level: Option<Level>,
    },
    /// Writes or deletes one key.
    Put {
        /// The key.
        key: Key,
        /// The value, or `None` to delete. Also `None` if it is computed ([`PutOptions::computes`]).
        value: Option<Bytes>,
        /// How consistent the write must be.
        level: Option<Level>,
        /// What the put asks for beside its value. Boxed, because almost no put has options, and without the box every operation would be larger.
        options: Option<Box<PutOptions>>,
    },
    /// Reads several keys; a snapshot where the protocol has one.
    ReadMany {
        /// The keys, in the order of the answer. A key may occur twice.
        keys: Vec<Key>,
        /// How consistent the reads must be.
        level: Option<Level>,
    },
    /// Carries out several operations on keys of one partition, as one. Only for protocols that have transactions
    /// ([`crate::Descriptor::transactions`]).
    Transact {
        /// Boxed, so that the other operations are not larger.
        transaction: Box<Transaction>,
        /// How consistent it must be: a level of writes.
        level: Option<Level>,
    },
    /// Reads the versions of keys, as conditions of a transaction. Only for protocols that have transactions.
    Watch {
        /// The keys.
        keys: Vec<Key>,
        /// How consistent the reads must be.
        level: Option<Level>,
    },
    /// Lists some keys that have a value. A key that has a value from the first call to the last is listed at least once.
    Scan {
        /// 0 to begin, or the cursor that the last call returned.
        cursor: u64,
        /// About how many keys to look at.
        count: u32,
    },
    /// Counts the keys that have a value here.
    Count,
    /// Waits until sites have, durably, everything that the session has seen and written. The answer is how many do, less one: one of them has taken the writes, and it is not always the client's own site. The client's later operations wait
    /// for it. Only for protocols whose sessions say what a site must have ([`crate::Descriptor::confirms_sites`]).
    Wait {
        /// Which answer is enough. If there are fewer other sites, all of them are enough.
        sites: u16,
        /// After what time it is answered in any case. `None`: it may wait for as long as the client does.
        timeout: Option<Micros>,
    },
    /// Sends a message to the clients that listen to a channel, at all sites. At a site they hear it once the site has everything that the session has seen
    /// and written. It may be lost, and is heard once at most.
    Publish {
        /// The message and its channel. Boxed, so that the other operations are not larger.
        message: Box<Message>,
    },
    /// Reads or writes at the first of several levels that can be given. The gateway tries one level after the other; a session never gets this. Boxed, so
    /// that the other operations are not larger.
    First(Box<FirstOf>),
}

/// A message to the clients that listen to a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The channel.
    pub channel: Bytes,
    /// The message.
    pub text: Bytes,
}

impl Operation {
    /// The same operation at what it wants: one level, or the first of several. Operations on the whole keyspace have no level and stay as they are.
    #[inline]
    #[must_use]
    pub fn wanting(self, wanted: impl Into<Option<Wanted>>) -> Operation {
        match wanted.into() {
            None => self,
            Some(Wanted::Level(level)) => self.at(level),
            Some(Wanted::First(chain)) => match self {
                whole @ (Operation::Scan { .. }
                | Operation::Count
                | Operation::Wait { .. }
                | Operation::Publish { .. }) => whole,
                operation => Operation::First(Box::new(FirstOf { operation, chain })),
            },
        }
    }

    /// What the operation wants, if it names that.
    pub fn wanted(&self) -> Option<Wanted> {
        match self {
            Operation::First(first) => Some(Wanted::First(first.chain.clone())),
            operation => operation.level().map(Wanted::Level),
        }
    }

    /// A write of one key: a new value, or `None` to delete it. It names no level and has no options.
    #[inline]
    pub fn put(key: Key, value: impl Into<Option<Bytes>>) -> Operation {
        Operation::Put {
            key,
            value: value.into(),
            level: None,
            options: None,
        }
    }

    /// A delete of one key. It names no level and has no options.
    #[inline]
    pub fn delete(key: Key) -> Operation {
        Operation::put(key, None::<Bytes>)
    }

    /// A read of one key. It names no level.
    #[inline]
    pub fn get(key: Key) -> Operation {
        Operation::Get { key, level: None }
    }

    /// A read of all siblings of one key. It names no level.
    pub fn siblings(key: Key) -> Operation {
        Operation::Siblings { key, level: None }
    }

    /// The same operation at a level. Operations on the whole keyspace have no level and stay as they are.
    #[inline]
    #[must_use]
    pub fn at(mut self, named: impl Into<Option<Level>>) -> Operation {
        match &mut self {
            Operation::Get { level, .. }
            | Operation::Siblings { level, .. }
            | Operation::Put { level, .. }
            | Operation::Transact { level, .. }
            | Operation::Watch { level, .. }
            | Operation::ReadMany { level, .. } => *level = named.into(),
            Operation::Scan { .. }
            | Operation::Count
            | Operation::Wait { .. }
            | Operation::Publish { .. }
            | Operation::First(_) => {}
        }
        self
    }

    /// The same put with options.
    ///
    /// # Panics
    /// If it is no put.
    #[must_use]
    pub fn with(mut self, wanted: PutOptions) -> Operation {
        let Operation::Put { options, .. } = &mut self else {
            panic!("only a put has options");
        };
        *options = (wanted != PutOptions::default()).then(|| Box::new(wanted));
        self
    }

    /// Whether it may write, and so has a level of writes.
    pub fn is_write(&self) -> bool {
        match self {
            Operation::Put { .. } | Operation::Transact { .. } => true,
            Operation::First(first) => first.operation.is_write(),
            _ => false,
        }
    }

    /// If it is a put that only changes when its key's value expires: which changes are made.
    pub fn retimes(&self) -> Option<Retimes> {
        match self {
            Operation::Put {
                options: Some(options),
                ..
            } => options.retimes,
            _ => None,
        }
    }

    /// Whether it is a put that computes its value.
    pub fn computes(&self) -> bool {
        let Operation::Put {
            options: Some(options),
            ..
        } = self
        else {
            return false;
        };
        options.computes.is_some()
    }

    /// The level that the operation names, if it names one alone.
    pub fn level(&self) -> Option<Level> {
        match self {
            Operation::Get { level, .. }
            | Operation::Siblings { level, .. }
            | Operation::Put { level, .. }
            | Operation::Transact { level, .. }
            | Operation::Watch { level, .. }
            | Operation::ReadMany { level, .. } => *level,
            Operation::Scan { .. }
            | Operation::Count
            | Operation::Wait { .. }
            | Operation::Publish { .. }
            | Operation::First(_) => None,
        }
    }
}

/// The answer to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To a get: the value, or `None` if the key has none.
    Value(Option<Bytes>),
    /// To a get of a key that has elements in the place of a value of bytes.
    Elements(Arc<Elements>),
    /// To a read of all siblings. Boxed, so that the other answers are not larger.
    Siblings(Box<Siblings>),
    /// To a put or delete that is done.
    Written {
        /// Whether the key had a value before, as seen by the replica that took the write.
        existed: bool,
    },
    /// To a put or delete that is done and asked for the value before it: that value, or `None` if there was none.
    Replaced(Option<Bytes>),
    /// To a put or delete whose condition did not hold: it was not carried out, and never will be. That is not a failure. As after a read, the
    /// receipt names the version that is there. Boxed, so that the other answers are not larger.
    Unmet(Box<Unmet>),
    /// To a put that computes its value: what it has put.
    Computed(Computed),
    /// To a put whose value could not be computed: it was not carried out, and never will be. That is not a failure. As after a read, the receipt names
    /// the version that is there.
    NotComputed(NotComputed),
    /// To a read of versions: of each key, in order. `None`: the key has no value.
    Versions(Vec<Option<VersionId>>),
    /// To a step of a transaction that asks when a value expires.
    Lifetime(Lifetime),
    /// To a transaction: the answers to its steps, or `None` if one of its conditions did not hold.
    Transacted(Option<Vec<Answer>>),
    /// To a read of several keys: their values, in the order of the keys. `None` also if a key has elements in the place of a value of bytes.
    Values(Vec<Option<Bytes>>),
    /// To a scan.
    Keys {
        /// The cursor for the next call; 0 when the scan is complete.
        cursor: u64,
        /// The keys found, each with a value.
        keys: Vec<Key>,
    },
    /// To a count: the number of keys.
    Count(u64),
    /// To a message: it is on its way.
    Published,
    /// To a wait: the number of sites that have what the session has seen and written, less one.
    Sites(u16),
    /// The operation was not carried out, or may not have been.
    Failed(Failure),
}

/// Until when a key has its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// It has none.
    NoValue,
    /// The value never expires.
    Forever,
    /// Until this time, in microseconds since 1970.
    Until(Micros),
}

impl Lifetime {
    /// That of a key, if it has a value, and that value expires at this time or never.
    pub fn new(has_value: bool, until: Option<Micros>) -> Lifetime {
        match (has_value, until) {
            (false, _) => Lifetime::NoValue,
            (true, None) => Lifetime::Forever,
            (true, Some(until)) => Lifetime::Until(until),
        }
    }
}

/// An answer, and how fresh it provably was. Failures and whole-keyspace operations have no receipt.
pub type Answered = (Answer, Option<Box<Receipt>>);

/// Why an operation failed, and whether it may have happened all the same. Each has a stable first word
/// ([`Failure::word`]) by which clients tell them apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// No answer in time. **It may have happened**, or may still.
    Timeout(String),
    /// It cannot be served now. It did not happen.
    Unavailable(String),
    /// The keyspace cannot give that level. It did not happen.
    BadLevel {
        /// The level that was asked for.
        asked: Level,
        /// Whether it was asked for a write.
        is_write: bool,
        /// The levels that this keyspace offers, to reads or to writes.
        offered: Vec<Level>,
    },
    /// This kind of keyspace has no such operation. It did not happen.
    Unsupported(String),
}

impl Failure {
    /// The stable first word.
    pub fn word(&self) -> &'static str {
        match self {
            Failure::Timeout(_) => "TIMEOUT",
            Failure::Unavailable(_) => "UNAVAILABLE",
            Failure::BadLevel { .. } => "BADLEVEL",
            Failure::Unsupported(_) => "UNSUPPORTED",
        }
    }

    /// Whether the operation definitely did not happen.
    pub fn is_definite(&self) -> bool {
        !matches!(self, Failure::Timeout(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Timeout(why) => write!(f, "{why}; the operation may have happened"),
            Failure::Unavailable(why) | Failure::Unsupported(why) => f.write_str(why),
            Failure::BadLevel {
                asked,
                is_write,
                offered,
            } => {
                let what = if *is_write { "writes" } else { "reads" };
                write!(f, "this keyspace cannot give {asked}; it offers {what} at ")?;
                for (place, level) in offered.iter().enumerate() {
                    write!(f, "{}{}", if place == 0 { "" } else { ", " }, level.form())?;
                }
                Ok(())
            }
        }
    }
}
