//! What a put may ask for beside its value. A keyspace takes it if its protocol does ([`Descriptor`](crate::Descriptor)); else the gateway
//! refuses the put before anything has happened.
use crate::compute::{Compute, decimal};
use crate::elements::EditRecord;
use crate::{Content, Hlc, Micros, ReplicaSet, Vector, Version, VersionId, VersionRecord, Wire};
use bytes::{Bytes, BytesMut};
use std::fmt;

/// What a put may ask for beside its value. Most puts ask for nothing, and carry no options.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PutOptions {
    /// What must be true of the key when the put takes effect. If it is not, the put is not carried out.
    pub condition: Option<Condition>,
    /// When the value expires. `None`: never, even if the value before it had an expiry.
    pub expiry: Option<Expiry>,
    /// Whether the answer contains the value that was there before.
    pub returns_previous: bool,
    /// Where siblings are kept: the causal context of the put ([`crate::Siblings::context`]). The put replaces the versions that the context covers, and no
    /// others. `None`: it replaces what its coordinator has.
    pub replaces: Option<Vector>,
    /// How the value is computed from the one before it. The put then names no value of its own.
    pub computes: Option<Compute>,
    /// Keeps the value, and only changes when it expires: to `expiry` or, if that is `None`, to never. The put then names no value of its own, and it is not
    /// carried out ([`Unmet`]) if the key has no value, or if the change is none of these.
    pub retimes: Option<Retimes>,
}

/// Which changes of a value's expiry are made. A value that never expires counts as one that expires later than all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Retimes {
    /// Each one.
    Any = 0,
    /// `NX`: that of a value that never expires.
    NeverExpires = 1,
    /// `XX`: that of a value that expires at some time.
    Expires = 2,
    /// `GT`: one to a later time.
    Later = 3,
    /// `LT`: one to an earlier time.
    Earlier = 4,
    /// `XX LT`: one to an earlier time, of a value that expires at some time.
    ExpiresAndEarlier = 5,
}

impl Retimes {
    /// All of them.
    pub const ALL: [Retimes; 6] = [
        Retimes::Any,
        Retimes::NeverExpires,
        Retimes::Expires,
        Retimes::Later,
        Retimes::Earlier,
        Retimes::ExpiresAndEarlier,
    ];

    /// Whether a change is made. `before`, `after`: when the value expires without it and with it; `None`: never. If a value never
    /// expires, a change to never is no change.
    pub fn holds(self, before: Option<Micros>, after: Option<Micros>) -> bool {
        let time = |until: Option<Micros>| until.unwrap_or(Micros::MAX);
        let is_change = before.is_some() || after.is_some();
        is_change
            && match self {
                Retimes::Any => true,
                Retimes::NeverExpires => before.is_none(),
                Retimes::Expires => before.is_some(),
                Retimes::Later => time(after) > time(before),
                Retimes::Earlier => time(after) < time(before),
                Retimes::ExpiresAndEarlier => before.is_some() && time(after) < time(before),
            }
    }
}

/// What must be true of a key when a put takes effect. It is tested when the put is ordered among the other writes of the key, and not before: of two
/// puts that both want the key to have no value, only one is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The key has no value.
    Absent,
    /// The key has a value.
    Present,
    /// The key's newest version, which may be a delete, is this one, and has not expired.
    Version(VersionId),
}

/// When a value expires: from then on its key has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// At this time, in microseconds since 1970. If the time has passed, the key has no value as soon as the put is carried out.
    At(Micros),
    /// This long after the put is carried out.
    After(Micros),
    /// When the value that it replaces would have expired.
    Kept,
}

/// What a put whose condition did not hold found at its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    /// Whether the key has a value.
    pub has_value: bool,
    /// That value, if the put asked for it.
    pub value: Option<Bytes>,
}

impl PutOptions {
    /// The newest timestamp of the context that they name: see [`Wire::newest`]. A condition's version is only compared: whatever time a client gives it, no
    /// clock follows that time.
    pub fn newest(&self) -> Hlc {
        self.replaces.as_ref().map_or(Hlc::ZERO, Vector::newest)
    }

    /// The replicas of the context that they name.
    pub fn replicas(&self) -> ReplicaSet {
        self.replaces
            .as_ref()
            .map_or(ReplicaSet::default(), Vector::replicas)
    }
}

impl Condition {
    /// Whether the condition holds for a key. `has_value` tells whether the key has a value, and `newest` is its newest version, unless that has expired.
    pub fn holds(self, has_value: bool, newest: Option<VersionId>) -> bool {
        match self {
            Condition::Absent => !has_value,
            Condition::Present => has_value,
            Condition::Version(version) => newest == Some(version),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Absent => f.write_str("absent"),
            Condition::Present => f.write_str("present"),
            Condition::Version(version) => write!(f, "version {version}"),
        }
    }
}

impl Expiry {
    /// When a value that is written now expires, in microseconds since 1970. `previous` is when the value that it replaces would have expired.
    pub fn deadline(self, now: Micros, previous: Option<Micros>) -> Option<Micros> {
        match self {
            Expiry::At(time) => Some(time),
            Expiry::After(span) => Some(now + span),
            Expiry::Kept => previous,
        }
    }
}

/// The encoding of [`PutOptions`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PutOptionsRecord {
    #[prost(oneof = "ConditionRecord", tags = "1, 2, 3")]
    condition: Option<ConditionRecord>,
    #[prost(oneof = "ExpiryRecord", tags = "4, 5, 6")]
    expiry: Option<ExpiryRecord>,
    #[prost(bool, tag = "7")]
    returns_previous: bool,
    /// See [`Vector::put`].
    #[prost(bytes = "bytes", optional, tag = "8")]
    replaces: Option<Bytes>,
    #[prost(oneof = "ComputeRecord", tags = "9, 10, 11, 12, 14")]
    computes: Option<ComputeRecord>,
    #[prost(enumeration = "Retimes", optional, tag = "13")]
    retimes: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ComputeRecord {
    #[prost(sint64, tag = "9")]
    Add(i64),
    /// The number as text.
    #[prost(bytes = "bytes", tag = "10")]
    AddDecimal(Bytes),
    #[prost(bytes = "bytes", tag = "11")]
    Append(Bytes),
    #[prost(message, tag = "12")]
    Overwrite(OverwriteRecord),
    #[prost(message, tag = "14")]
    Edit(EditRecord),
}

#[derive(Clone, PartialEq, prost::Message)]
struct OverwriteRecord {
    #[prost(uint32, tag = "1")]
    at: u32,
    #[prost(bytes = "bytes", tag = "2")]
    with: Bytes,
}

impl From<&Compute> for ComputeRecord {
    fn from(compute: &Compute) -> ComputeRecord {
        match compute {
            Compute::Add(more) => ComputeRecord::Add(*more),
            Compute::AddDecimal(more) => ComputeRecord::AddDecimal(more.to_string().into()),
            Compute::Append(more) => ComputeRecord::Append(more.clone()),
            Compute::Overwrite(at, with) => ComputeRecord::Overwrite(OverwriteRecord {
                at: *at,
                with: with.clone(),
            }),
            Compute::Edit(edit) => ComputeRecord::Edit(EditRecord::from(&**edit)),
        }
    }
}

impl ComputeRecord {
    fn compute(self) -> Result<Compute, String> {
        Ok(match self {
            ComputeRecord::Add(more) => Compute::Add(more),
            ComputeRecord::AddDecimal(text) => {
                Compute::AddDecimal(decimal(&text).ok_or("a decimal number that is none")?)
            }
            ComputeRecord::Append(more) => Compute::Append(more),
            ComputeRecord::Overwrite(record) => Compute::Overwrite(record.at, record.with),
            ComputeRecord::Edit(record) => Compute::Edit(Box::new(record.edit()?)),
        })
    }
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum ConditionRecord {
    #[prost(message, tag = "1")]
    Absent(()),
    #[prost(message, tag = "2")]
    Present(()),
    #[prost(message, tag = "3")]
    Version(VersionRecord),
}

#[derive(Clone, Copy, PartialEq, prost::Oneof)]
enum ExpiryRecord {
    #[prost(uint64, tag = "4")]
    At(u64),
    #[prost(uint64, tag = "5")]
    After(u64),
    #[prost(message, tag = "6")]
    Kept(()),
}

impl From<Condition> for ConditionRecord {
    fn from(condition: Condition) -> ConditionRecord {
        match condition {
            Condition::Absent => ConditionRecord::Absent(()),
            Condition::Present => ConditionRecord::Present(()),
            Condition::Version(id) => {
                let (content, meta) = (Content::DELETE, ());
                ConditionRecord::Version(VersionRecord::new(Some(&Version { id, content, meta })))
            }
        }
    }
}

impl ConditionRecord {
    /// The condition.
    ///
    /// # Errors
    /// If it names no version, or a version of a replica that no partition has. The error is what was found.
    pub(crate) fn condition(self) -> Result<Condition, String> {
        Ok(match self {
            ConditionRecord::Absent(()) => Condition::Absent,
            ConditionRecord::Present(()) => Condition::Present,
            ConditionRecord::Version(version) => {
                version.check()?;
                let version = version.version().ok_or("a condition on no version")?;
                Condition::Version(version.id)
            }
        })
    }
}

impl From<&PutOptions> for PutOptionsRecord {
    fn from(options: &PutOptions) -> PutOptionsRecord {
        PutOptionsRecord {
            condition: options.condition.map(ConditionRecord::from),
            expiry: options.expiry.map(|expiry| match expiry {
                Expiry::At(time) => ExpiryRecord::At(time.0),
                Expiry::After(span) => ExpiryRecord::After(span.0),
                Expiry::Kept => ExpiryRecord::Kept(()),
            }),
            returns_previous: options.returns_previous,
            replaces: options.replaces.as_ref().map(|context| {
                let mut out = BytesMut::new();
                context.encode(&mut out);
                out.freeze()
            }),
            computes: options.computes.as_ref().map(ComputeRecord::from),
            retimes: options.retimes.map(i32::from),
        }
    }
}

impl PutOptionsRecord {
    /// The options.
    ///
    /// # Errors
    /// If a condition names no version, or a version of a replica that no partition has, or if a number is none. The error is what was found.
    pub(crate) fn options(self) -> Result<PutOptions, String> {
        let expiry = self.expiry.map(|expiry| match expiry {
            ExpiryRecord::At(time) => Expiry::At(Micros(time)),
            ExpiryRecord::After(span) => Expiry::After(Micros(span)),
            ExpiryRecord::Kept(()) => Expiry::Kept,
        });
        Ok(PutOptions {
            condition: self.condition.map(ConditionRecord::condition).transpose()?,
            expiry,
            returns_previous: self.returns_previous,
            computes: self.computes.map(ComputeRecord::compute).transpose()?,
            retimes: match self.retimes.map(Retimes::try_from) {
                None => None,
                Some(Ok(retimes)) => Some(retimes),
                Some(Err(unknown)) => {
                    return Err(format!("a change of an expiry of an unknown kind, {}", unknown.0));
                }
            },
            replaces: match self.replaces.map(Vector::decode) {
                None => None,
                Some(context) => Some(context.map_err(|error| error.found)?),
            },
        })
    }
}
