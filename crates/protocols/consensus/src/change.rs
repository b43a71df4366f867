//! What an entry of the log does: the effects of one operation, or of the steps of a transaction, as its leader has computed them.
use crate::request::Work;
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use turnbuckle_core::{
    Computed, Hlc, Key, NotComputed, PlainRequest, PlainResponse, PutOptions, ReplicaId, ReplicaSet, Step,
    Unmet, Version, VersionId,
};
use turnbuckle_raft::OperationName;

/// The effects of an operation or of a transaction.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Change {
    /// The session that has asked for it, and its number for the operation.
    #[prost(fixed64, tag = "1")]
    session: u64,
    #[prost(uint64, tag = "2")]
    tag: u64,
    /// When the versions that are put were stamped, all of them together. 0 if none is put.
    #[prost(fixed64, tag = "3")]
    at: u64,
    /// The leader that has stamped them.
    #[prost(uint32, tag = "4")]
    replica: u32,
    /// What was done, in order.
    #[prost(message, repeated, tag = "5")]
    effects: Vec<Effect>,
    /// Whether it is a transaction.
    #[prost(bool, tag = "6")]
    is_transaction: bool,
    /// Whether a condition of the transaction did not hold. Then it has no effects.
    #[prost(bool, tag = "7")]
    is_refused: bool,
}

/// The effect of one operation on its key.
#[derive(Clone, PartialEq, prost::Message)]
struct Effect {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    /// What the client is told.
    #[prost(enumeration = "Told", tag = "2")]
    told: i32,
    /// Whether a version is put. A delete that finds nothing puts nothing, and neither does a step whose key a later step of the transaction puts.
    #[prost(bool, tag = "3")]
    puts: bool,
    /// The value that is put, or the number that the client is told; none for a delete.
    #[prost(bytes = "bytes", optional, tag = "4")]
    value: Option<Bytes>,
    /// Whether the key had a value before.
    #[prost(bool, tag = "5")]
    existed: bool,
    /// The value before, if the client is told that.
    #[prost(bytes = "bytes", optional, tag = "6")]
    previous: Option<Bytes>,
    /// The version that was there, if there was one and none is put.
    #[prost(fixed64, tag = "7")]
    found_at: u64,
    #[prost(uint32, tag = "8")]
    found_replica: u32,
    /// Why no value was computed.
    #[prost(enumeration = "NotComputed", tag = "9")]
    why: i32,
    /// The length of the value that was computed, if the client is told that.
    #[prost(uint64, tag = "10")]
    length: u64,
}

/// What the client is told of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Told {
    /// That the key is written, and whether it had a value before.
    Written = 0,
    /// The value before.
    Replaced = 1,
    /// That a condition did not hold.
    Unmet = 2,
    /// The number that was computed.
    Number = 3,
    /// The length of the value that was computed.
    Length = 4,
    /// Why none was computed.
    NotComputed = 5,
    /// The value, which is not changed.
    Read = 6,
}

/// What a key has when an operation is carried out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    /// Its newest version, which may be a delete.
    pub id: Option<VersionId>,
    pub value: Option<Bytes>,
}

/// Carries steps out, one after the other: each finds what those before it have put.
struct Carrying<F> {
    /// What a key has before the first step.
    found: F,
    /// The value that steps have put, and the place of the last one that has.
    put: BTreeMap<Key, (usize, Option<Bytes>)>,
    effects: Vec<Effect>,
    /// The bytes of the values in the effects.
    bytes: usize,
}

/// The effects of a transaction take too much room: more bytes than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge(pub usize);

/// The most bytes of the values that a transaction reads and writes: its entry is sent in one message.
const MAX_TRANSACTION_BYTES: usize = 32 << 20;

impl<F: Fn(&Key) -> Found> Carrying<F> {
    fn found(&self, key: &Key) -> Found {
        match self.put.get(key) {
            // No client knows the version that is about to be put. So no condition is on it.
            Some((_, value)) => Found {
                id: None,
                value: value.clone(),
            },
            None => (self.found)(key),
        }
    }

    fn get(&mut self, key: &Key) {
        let found = self.found(key);
        self.bytes += key.0.len() + found.value.as_ref().map_or(0, Bytes::len);
        let id = found.id.unwrap_or_default();
        self.effects.push(Effect {
            key: key.0.clone(),
            told: Told::Read.into(),
            existed: found.value.is_some(),
            previous: found.value,
            found_at: id.at.0,
            found_replica: id.replica.0.into(),
            ..Effect::default()
        });
    }

    /// A delete that finds no value puts nothing, and neither does a put whose condition does not hold or whose value cannot be computed. They have a place in the order all the same.
    fn put(&mut self, key: &Key, value: Option<&Bytes>, options: Option<&PutOptions>) {
        let found = self.found(key);
        let existed = found.value.is_some();
        let condition = options.and_then(|options| options.condition);
        let returns_previous = options.is_some_and(|options| options.returns_previous);
        let mut effect = Effect {
            key: key.0.clone(),
            existed,
            value: value.cloned(),
            puts: existed || value.is_some(),
            ..Effect::default()
        };
        if returns_previous {
            effect.told = Told::Replaced.into();
            effect.previous = found.value.clone();
        }
        if condition.is_some_and(|condition| !condition.holds(existed, found.id)) {
            effect.told = Told::Unmet.into();
            effect.puts = false;
            effect.value = None;
        } else if let Some(compute) = options.and_then(|options| options.computes.as_ref()) {
            match compute.apply(found.value.as_ref()) {
                Ok((value, computed)) => {
                    effect.told = match computed {
                        Computed::Number(_) => Told::Number.into(),
                        Computed::Length(length) => {
                            effect.length = length;
                            Told::Length.into()
                        }
                    };
                    effect.puts = compute.puts();
                    effect.value = Some(value);
                }
                Err(why) => {
                    effect.told = Told::NotComputed.into();
                    effect.why = why.into();
                    effect.puts = false;
                }
            }
        }
        match effect.puts {
            true => {
                let put = (self.effects.len(), effect.value.clone());
                if let Some((before, _)) = self.put.insert(key.clone(), put) {
                    self.take_back(before);
                }
            }
            false => {
                let id = found.id.unwrap_or_default();
                effect.found_at = id.at.0;
                effect.found_replica = id.replica.0.into();
            }
        }
        // Nothing is put, and nobody is told: `SETRANGE` of nothing.
        if !effect.puts && effect.told() != Told::Number {
            effect.value = None;
        }
        self.bytes += key.0.len() + effect.bytes();
        self.effects.push(effect);
    }

    /// A later step puts the key of this one: of its value only a number is needed, which the client is told.
    fn take_back(&mut self, place: usize) {
        let effect = &mut self.effects[place];
        effect.puts = false;
        if effect.told() != Told::Number {
            let value = effect.value.take();
            self.bytes -= value.map_or(0, |value| value.len());
        }
    }

    fn check(&self) -> Result<(), TooLarge> {
        match self.bytes > MAX_TRANSACTION_BYTES {
            true => Err(TooLarge(MAX_TRANSACTION_BYTES)),
            false => Ok(()),
        }
    }
}

impl Change {
    /// The effects of an operation, or of a transaction, on what it finds. What is put is not stamped yet ([`Change::stamp`]).
    ///
    /// # Errors
    /// If a transaction reads and writes too much. It is not carried out further than to there.
    pub fn of(by: OperationName, work: &Work, found: impl Fn(&Key) -> Found) -> Result<Change, TooLarge> {
        let mut carrying = Carrying {
            found,
            put: BTreeMap::new(),
            effects: Vec::new(),
            bytes: 0,
        };
        let mut is_refused = false;
        match work {
            Work::One(PlainRequest::Put(key, value, _, options)) => {
                carrying.put(key, value.as_ref(), options.as_deref());
            }
            Work::One(read) => carrying.get(read.key()),
            Work::Many(transaction) => {
                let mut conditions = transaction.conditions.iter();
                is_refused = !conditions.all(|(key, condition)| {
                    let found = carrying.found(key);
                    condition.holds(found.value.is_some(), found.id)
                });
                for step in transaction.steps.iter().filter(|_| !is_refused) {
                    match step {
                        Step::Get(key) => carrying.get(key),
                        Step::Put(key, value, options) => {
                            carrying.put(key, value.as_ref(), options.as_deref());
                        }
                    }
                    carrying.check()?;
                }
            }
        }
        Ok(Change {
            session: by.session,
            tag: by.tag,
            at: 0,
            replica: 0,
            effects: carrying.effects,
            is_transaction: matches!(work, Work::Many(_)),
            is_refused,
        })
    }

    /// Stamps what is put, if anything is.
    pub fn stamp(&mut self, stamp: impl FnOnce() -> VersionId) {
        if self.effects.iter().any(|effect| effect.puts) {
            let id = stamp();
            (self.at, self.replica) = (id.at.0, id.replica.0.into());
        }
    }

    /// What the client is told: of each step; `None` if a condition of the transaction did not hold.
    pub fn responses(&self) -> Option<Vec<PlainResponse>> {
        (!self.is_refused).then(|| self.effects.iter().map(Effect::response).collect())
    }

    /// Whether it is a transaction. If not, it has one effect.
    pub fn is_transaction(&self) -> bool {
        self.is_transaction
    }

    pub fn encode(&self) -> Bytes {
        self.encode_to_vec().into()
    }

    /// # Errors
    /// If it is something else. No replica proposes that.
    pub fn decode(data: Bytes) -> Result<Change, String> {
        let change = <Change as Message>::decode(data).map_err(|error| error.to_string())?;
        let mut replicas = change.effects.iter().map(|effect| effect.found_replica);
        let is_none = |replica: u32| replica >= u32::from(ReplicaSet::MAX);
        if is_none(change.replica) || replicas.any(is_none) {
            return Err("a version of a replica that no partition has".to_string());
        }
        if change.at == 0 && change.effects.iter().any(|effect| effect.puts) {
            return Err("a version without a time".to_string());
        }
        match change.is_transaction || change.effects.len() == 1 {
            true => Ok(change),
            false => Err(format!("an operation with {} effects", change.effects.len())),
        }
    }

    pub fn by(&self) -> OperationName {
        OperationName {
            session: self.session,
            tag: self.tag,
        }
    }

    /// The keys of the versions that are put.
    pub fn keys_put(&self) -> impl Iterator<Item = Key> + '_ {
        let puts = self.effects.iter().filter(|effect| effect.puts);
        puts.map(|effect| Key(effect.key.clone()))
    }

    /// The versions that are put: one of a key.
    pub fn into_versions(self, index: u64) -> impl Iterator<Item = (Key, Version<Index>)> {
        let id = version(self.at, self.replica).unwrap_or_default();
        let puts = self.effects.into_iter().filter(|effect| effect.puts);
        puts.map(move |effect| {
            let (content, meta) = (effect.value.into(), Index(index));
            (Key(effect.key), Version { id, content, meta })
        })
    }

    /// The version that the client is told: the one that is put, or the one that its operation has found.
    pub fn id(&self) -> Option<VersionId> {
        let put = self.effects.iter().any(|effect| effect.puts);
        match self.effects.first() {
            Some(effect) if !put && !self.is_transaction => version(effect.found_at, effect.found_replica),
            _ => version(self.at, self.replica),
        }
    }

    /// The stamp of what is put.
    pub fn stamped(&self) -> Hlc {
        Hlc(self.at)
    }
}

fn version(at: u64, replica: u32) -> Option<VersionId> {
    (at > 0).then_some(VersionId {
        at: Hlc(at),
        replica: ReplicaId(replica as u16),
    })
}

impl Effect {
    /// The bytes of its values.
    fn bytes(&self) -> usize {
        let len = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
        len(&self.value) + len(&self.previous)
    }

    fn response(&self) -> PlainResponse {
        let (existed, previous) = (self.existed, || self.previous.clone());
        let value = || self.value.clone().unwrap_or_default();
        match self.told() {
            Told::Written => PlainResponse::Written { existed },
            Told::Replaced => PlainResponse::Replaced(previous()),
            Told::Unmet => {
                let (has_value, value) = (existed, previous());
                PlainResponse::Unmet(Box::new(Unmet { has_value, value }))
            }
            Told::Number => PlainResponse::Computed(Computed::Number(value())),
            Told::Length => PlainResponse::Computed(Computed::Length(self.length)),
            Told::NotComputed => PlainResponse::NotComputed(self.why()),
            Told::Read => PlainResponse::Value(previous()),
        }
    }
}

/// The index of the entry that has put a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Index(pub u64);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use turnbuckle_core::{Compute, Condition, Level, Transaction};

    /// What keys have: the dumb oracle carries one operation out after the other.
    type Rows = BTreeMap<Key, Found>;

    fn found(rows: &Rows) -> impl Fn(&Key) -> Found + '_ {
        |key| rows.get(key).cloned().unwrap_or_default()
    }

    fn stamp(at: u64) -> VersionId {
        VersionId {
            at: Hlc(at),
            replica: ReplicaId(1),
        }
    }

    /// Carries one write out, and says what its client is told.
    fn carry_out(rows: &mut Rows, work: &Work, at: u64) -> Option<Vec<PlainResponse>> {
        let mut change = Change::of(OperationName::default(), work, found(rows)).expect("it is small");
        change.stamp(|| stamp(at));
        let change = Change::decode(change.encode()).expect("it is a change");
        let responses = change.responses();
        for (key, version) in change.into_versions(7) {
            assert_eq!(version.id, stamp(at));
            let (id, value) = (Some(version.id), version.content.stored().cloned());
            rows.insert(key, Found { id, value });
        }
        responses
    }

    fn key() -> impl Strategy<Value = Key> {
        (0..3_u8).prop_map(|number| Key::from(format!("k{number}").as_str()))
    }

    fn options() -> impl Strategy<Value = Option<Box<PutOptions>>> {
        let compute = prop_oneof![
            (-2..3_i64).prop_map(Compute::Add),
            Just(Compute::Append(Bytes::from_static(b"x"))),
            Just(Compute::Overwrite(2, Bytes::new())),
        ];
        let condition = prop_oneof![Just(Condition::Absent), Just(Condition::Present)];
        let options = (
            proptest::option::of(compute),
            proptest::option::of(condition),
            any::<bool>(),
        );
        let options = options.prop_map(|(computes, condition, returns_previous)| {
            Box::new(PutOptions {
                computes,
                condition,
                returns_previous,
                ..PutOptions::default()
            })
        });
        proptest::option::of(options)
    }

    fn step() -> impl Strategy<Value = Step> {
        let value = proptest::option::of((0..3_u8).prop_map(|number| Bytes::from(number.to_string())));
        prop_oneof![
            1 => key().prop_map(Step::Get),
            3 => (key(), value, options()).prop_map(|(key, value, options)| Step::Put(key, value, options)),
        ]
    }

    fn alone(step: &Step) -> Work {
        let level = Level::Linearizable;
        Work::One(match step.clone() {
            Step::Get(key) => PlainRequest::Get(key, level),
            Step::Put(key, value, options) => PlainRequest::Put(key, value, level, options),
        })
    }

    proptest! {
        #[test]
        fn a_transaction_does_what_its_steps_do_one_after_the_other(
            before in proptest::collection::vec(step(), 0..5),
            steps in proptest::collection::vec(step(), 0..8),
        ) {
            let mut together = Rows::new();
            for (at, step) in (1..).zip(&before) {
                carry_out(&mut together, &alone(step), at);
            }
            let mut apart = together.clone();
            let expected: Vec<PlainResponse> = steps
                .iter()
                .flat_map(|step| carry_out(&mut apart, &alone(step), 100).expect("it has no conditions"))
                .collect();
            let conditions = Vec::new();
            let transaction = Work::Many(Box::new(Transaction { conditions, steps }));
            prop_assert_eq!(carry_out(&mut together, &transaction, 100), Some(expected));
            let values = |rows: &Rows| -> Vec<(Key, Option<VersionId>, Option<Bytes>)> {
                rows.iter().map(|(key, found)| (key.clone(), found.id, found.value.clone())).collect()
            };
            prop_assert_eq!(values(&together), values(&apart));
        }
    }

    #[test]
    fn a_transaction_whose_condition_does_not_hold_has_no_effect() {
        let mut rows = Rows::new();
        let x = Key::from("x");
        let put = Step::Put(x.clone(), Some(Bytes::from_static(b"1")), None);
        let only_if = |condition| {
            let (conditions, steps) = (vec![(x.clone(), condition)], vec![put.clone()]);
            Work::Many(Box::new(Transaction { conditions, steps }))
        };
        assert_eq!(carry_out(&mut rows, &only_if(Condition::Present), 1), None);
        assert!(rows.is_empty());
        assert!(carry_out(&mut rows, &only_if(Condition::Absent), 2).is_some());
        assert_eq!(
            carry_out(&mut rows, &only_if(Condition::Version(stamp(1))), 3),
            None
        );
        assert!(carry_out(&mut rows, &only_if(Condition::Version(stamp(2))), 4).is_some());
    }

    #[test]
    fn a_transaction_that_reads_or_writes_too_much_is_not_carried_out_to_its_end() {
        let long = Compute::Overwrite(Compute::MAX_BYTES as u32 - 1, Bytes::from_static(b"x"));
        let put = |number: usize, computes: &Compute| {
            let options = PutOptions {
                computes: Some(computes.clone()),
                ..PutOptions::default()
            };
            let key = Key::from(format!("k{number}").as_str());
            Step::Put(key, None, Some(Box::new(options)))
        };
        let by = OperationName::default();
        let of = |steps| {
            let conditions = Vec::new();
            let work = Work::Many(Box::new(Transaction { conditions, steps }));
            Change::of(by, &work, |_| Found::default())
        };
        let many = (0..Transaction::MAX).map(|number| put(number, &long)).collect();
        assert_eq!(of(many), Err(TooLarge(MAX_TRANSACTION_BYTES)));
        // What a later step replaces is not kept.
        let append = Compute::Append(Bytes::from_static(b"x"));
        let one: Vec<Step> = [put(0, &long), put(0, &long), put(0, &long)].into();
        let change = of(one).expect("one value");
        assert!(change.encode().len() < Compute::MAX_BYTES + 100);
        let refused = of(vec![put(0, &long), put(0, &append)]).expect("one value");
        assert_eq!(
            refused.responses().expect("no conditions")[1],
            PlainResponse::NotComputed(NotComputed::TooLong)
        );
    }

    #[test]
    fn entries_that_no_leader_proposes_are_refused() {
        let effect = Effect {
            puts: true,
            ..Effect::default()
        };
        let change = |change: Change| Change::decode(change.encode());
        // A version without a time, of a replica that no partition has, and no effect of an operation.
        assert!(
            change(Change {
                effects: vec![effect],
                ..Change::default()
            })
            .is_err()
        );
        let replica = u32::from(ReplicaSet::MAX);
        assert!(
            change(Change {
                replica,
                is_transaction: true,
                ..Change::default()
            })
            .is_err()
        );
        assert!(change(Change::default()).is_err());
        assert!(
            change(Change {
                is_transaction: true,
                ..Change::default()
            })
            .is_ok()
        );
    }
}
