//! What an entry of the log does: the effects of one operation, or of the steps of a transaction, as its leader has computed them.
//!
//! Each entry is stamped before its operation is carried out. By this stamp the operation sees which values have expired, and with it the versions are named that are put. So what an operation sees depends on its
//! place in the log alone.
use crate::request::Work;
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use turnbuckle_core::{
    Change as Asked, Changed, Computed, Content, Hlc, Key, Label, Lifetime, Micros, NotComputed,
    PlainRequest, PlainResponse, PutOptions, ReplicaId, ReplicaSet, Shown, Step, Unmet, Version, VersionId,
    VersionIdRecord,
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
    /// The stamp of the entry, and of the versions that are put.
    #[prost(fixed64, tag = "3")]
    at: u64,
    /// The leader that has stamped it.
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
    /// When the value expires that is put or, if none is put, that was found; in microseconds since 1970.
    #[prost(uint64, optional, tag = "11")]
    until: Option<u64>,
    /// The version that wrote this value, if another one has changed its expiry since.
    #[prost(message, optional, tag = "12")]
    base: Option<VersionIdRecord>,
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
    /// When the value expires.
    Lifetime = 7,
}

/// Carries steps out, one after the other: each finds what those before it have put.
struct Carrying<F> {
    /// The stamp of the entry.
    stamp: VersionId,
    /// The newest version that a key has before the first step.
    found: F,
    /// The version that steps have put, and the place of the last one that has.
    put: BTreeMap<Key, (usize, Version<()>)>,
    effects: Vec<Effect>,
    /// The bytes of the values in the effects.
    bytes: usize,
}

/// The effects of a transaction take too much room: more bytes than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge(pub usize);

/// The most bytes of the values that a transaction reads and writes: its entry is sent in one message.
const MAX_TRANSACTION_BYTES: usize = 32 << 20;

impl<F: Fn(&Key) -> Option<Version<()>>> Carrying<F> {
    fn found(&self, key: &Key) -> Option<Version<()>> {
        match self.put.get(key) {
            Some((_, version)) => Some(version.clone()),
            None => (self.found)(key),
        }
    }

    /// Whether the key has a value, and the version of which a condition may be. A value that has expired is none of them: whoever names its version has seen the value.
    fn condition_on(&self, found: Option<&Version<()>>) -> (bool, Option<VersionId>) {
        let existed = found.is_some_and(|found| found.content.has_value(self.stamp.at));
        let version = found.filter(|found| existed || found.content.is_delete());
        (existed, version.map(|version| version.id))
    }

    fn get(&mut self, key: &Key) {
        let found = self.found(key);
        let value = found.as_ref().and_then(|found| found.content.at(self.stamp.at));
        let value = value.cloned();
        self.bytes += key.0.len() + value.as_ref().map_or(0, Bytes::len);
        let mut effect = Effect {
            key: key.0.clone(),
            told: Told::Read.into(),
            existed: value.is_some(),
            previous: value,
            ..Effect::default()
        };
        effect.note_found(found.as_ref());
        self.effects.push(effect);
    }

    fn lifetime(&mut self, key: &Key) {
        let found = self.found(key);
        let (existed, _) = self.condition_on(found.as_ref());
        let mut effect = Effect {
            key: key.0.clone(),
            told: Told::Lifetime.into(),
            existed,
            ..Effect::default()
        };
        effect.note_found(found.as_ref());
        self.bytes += key.0.len();
        self.effects.push(effect);
    }

    /// A delete that finds no value puts nothing, and neither does a put whose condition does not hold, whose value cannot be computed, or which changes the expiry of no value. They have a place in the order all the same.
    fn put(&mut self, key: &Key, value: Option<&Bytes>, options: Option<&PutOptions>) {
        let found = self.found(key);
        let there = found.as_ref().and_then(|found| found.content.at(self.stamp.at));
        let (existed, newest) = self.condition_on(found.as_ref());
        let condition = options.and_then(|options| options.condition);
        let returns_previous = options.is_some_and(|options| options.returns_previous);
        let mut effect = Effect {
            key: key.0.clone(),
            existed,
            previous: there.filter(|_| returns_previous).cloned(),
            ..Effect::default()
        };
        let content = if condition.is_some_and(|condition| !condition.holds(existed, newest)) {
            effect.told = Told::Unmet.into();
            None
        } else {
            // The condition holds: see above.
            let options = options.map(|options| PutOptions {
                condition: None,
                ..options.clone()
            });
            let asked = Asked::whole(value.cloned(), options.map(Box::new));
            let (content, changed) = match self.make(found.clone(), &asked) {
                Ok((content, changed)) => (Some(content), changed),
                Err(changed) => (None, changed),
            };
            let told = match changed {
                Changed::Made { .. } => Told::Written,
                Changed::Retimed(_) | Changed::Replaced(_) => Told::Replaced,
                Changed::Unmet(_) => Told::Unmet,
                Changed::Computed(Computed::Number(number)) => {
                    effect.value = Some(number);
                    Told::Number
                }
                Changed::Computed(Computed::Length(length)) => {
                    effect.length = length;
                    Told::Length
                }
                // Keys have no elements here.
                Changed::Computed(Computed::Elements(_)) => {
                    effect.why = NotComputed::WrongType.into();
                    Told::NotComputed
                }
                Changed::NotComputed(why) => {
                    effect.why = why.into();
                    Told::NotComputed
                }
            };
            effect.told = told.into();
            content
        };
        match content {
            Some(content) => {
                effect.puts = true;
                effect.value = content.stored().cloned();
                effect.until = content.until().map(|until| until.0);
                effect.base = content.base().map(VersionIdRecord::from);
                let (id, meta) = (self.stamp, ());
                let put = (self.effects.len(), Version { id, content, meta });
                if let Some((before, _)) = self.put.insert(key.clone(), put) {
                    self.take_back(before);
                }
            }
            None => effect.note_found(found.as_ref()),
        }
        self.bytes += key.0.len() + effect.bytes();
        self.effects.push(effect);
    }

    /// What a put asks for whose condition holds, and what its client is told.
    fn make(&self, found: Option<Version<()>>, asked: &Asked) -> Result<(Content, Changed), Changed> {
        let at = self.stamp.at;
        // The transaction may change when a value expires that it has put itself. The result is a value that it has put.
        let is_own = |found: &Version<()>| found.id == self.stamp && found.content.base().is_none();
        match found {
            Some(mut own) if is_own(&own) => {
                own.id.at = Hlc(at.0 - 1);
                let (content, changed) = asked
                    .clone()
                    .of(&Shown::one(Some(&own)), at)?
                    .stamped(self.stamp)?;
                Ok((content.without_base(), changed))
            }
            found => asked
                .clone()
                .of(&Shown::one(found.as_ref()), at)?
                .stamped(self.stamp),
        }
    }

    /// A later step puts the key of this one: of its value only a number is needed, which the client is told.
    fn take_back(&mut self, place: usize) {
        let effect = &mut self.effects[place];
        effect.puts = false;
        (effect.until, effect.base) = (None, None);
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
    /// The effects of an operation, or of a transaction, whose entry has this stamp. `found` is the newest version that a key has before it.
    ///
    /// # Errors
    /// If a transaction reads and writes too much. It is not carried out further than to there.
    pub fn of(
        by: OperationName,
        stamp: VersionId,
        work: &Work,
        found: impl Fn(&Key) -> Option<Version<()>>,
    ) -> Result<Change, TooLarge> {
        let mut carrying = Carrying {
            stamp,
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
                    let (existed, version) = carrying.condition_on(found.as_ref());
                    condition.holds(existed, version)
                });
                for step in transaction.steps.iter().filter(|_| !is_refused) {
                    match step {
                        Step::Get(key) => carrying.get(key),
                        Step::Lifetime(key) => carrying.lifetime(key),
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
            at: stamp.at.0,
            replica: stamp.replica.0.into(),
            effects: carrying.effects,
            is_transaction: matches!(work, Work::Many(_)),
            is_refused,
        })
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
        // Entries of older releases that put nothing have no stamp.
        if change.at == 0 && change.effects.iter().any(|effect| effect.puts) {
            return Err("a version without a time".to_string());
        }
        change
            .effects
            .iter()
            .try_for_each(|effect| effect.check(change.version()))?;
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
        let id = self.version();
        let puts = self.effects.into_iter().filter(|effect| effect.puts);
        puts.map(move |effect| {
            let (content, meta) = (effect.content(), Index(index));
            (Key(effect.key), Version { id, content, meta })
        })
    }

    /// What the receipt says of a version: of the one that is put, or that the operation has found; of a transaction, the name of what it has put.
    pub fn label(&self) -> Option<Label> {
        match self.effects.first() {
            Some(effect) if !self.is_transaction => {
                let found = || version(effect.found_at, effect.found_replica);
                let id = if effect.puts { self.version() } else { found()? };
                let (until, base) = (effect.until.map(Micros), effect.base());
                Some(Label { id, base, until })
            }
            _ => self.effects.iter().any(|effect| effect.puts).then(|| Label {
                id: self.version(),
                base: None,
                until: None,
            }),
        }
    }

    /// When it was stamped.
    pub fn stamped(&self) -> Hlc {
        Hlc(self.at)
    }

    /// Its stamp, which is the name of the versions that are put.
    fn version(&self) -> VersionId {
        version(self.at, self.replica).unwrap_or_default()
    }
}

fn version(at: u64, replica: u32) -> Option<VersionId> {
    (at > 0).then_some(VersionId {
        at: Hlc(at),
        replica: ReplicaId(replica as u16),
    })
}

impl Effect {
    /// The version that was there, and none is put.
    fn note_found(&mut self, found: Option<&Version<()>>) {
        let Some(found) = found else { return };
        self.found_at = found.id.at.0;
        self.found_replica = found.id.replica.0.into();
        self.until = found.content.until().map(|until| until.0);
        self.base = found.content.base().map(VersionIdRecord::from);
    }

    fn base(&self) -> Option<VersionId> {
        self.base.and_then(|base| base.id().ok())
    }

    /// What is put.
    fn content(&self) -> Content {
        let until = self.until.map(Micros);
        let value = self.value.clone();
        value.map_or(Content::DELETE, |value| {
            Content::with_base(value, until, self.base())
        })
    }

    /// Checks an effect of an entry that has this stamp.
    fn check(&self, stamp: VersionId) -> Result<(), String> {
        let id = match self.puts {
            true => stamp,
            false => version(self.found_at, self.found_replica).unwrap_or_default(),
        };
        if self.puts && self.value.is_none() && (self.until.is_some() || self.base.is_some()) {
            return Err("a delete with an expiry".to_string());
        }
        let base = self.base.map(VersionIdRecord::id).transpose();
        let checked = base.and_then(|base| base.map_or(Ok(()), |base| base.check_base_of(id)));
        checked.map_err(|error| error.found)
    }

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
            Told::Lifetime => PlainResponse::Lifetime(Lifetime::new(existed, self.until.map(Micros))),
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
    use turnbuckle_core::{Compute, Condition, Expiry, Level, Retimes, Transaction};

    /// What keys have: the dumb oracle carries one operation out after the other.
    type Rows = BTreeMap<Key, Version<()>>;

    fn found(rows: &Rows) -> impl Fn(&Key) -> Option<Version<()>> + '_ {
        |key| rows.get(key).cloned()
    }

    fn stamp(at: u64) -> VersionId {
        VersionId {
            at: Hlc::from_wall(Micros(at)),
            replica: ReplicaId(1),
        }
    }

    /// Carries one write out, and says what its client is told.
    fn carry_out(rows: &mut Rows, work: &Work, at: VersionId) -> Option<Vec<PlainResponse>> {
        let change = Change::of(OperationName::default(), at, work, found(rows)).expect("it is small");
        let change = Change::decode(change.encode()).expect("it is a change");
        let responses = change.responses();
        for (key, version) in change.into_versions(7) {
            assert_eq!(version.id, at);
            let Version { id, content, .. } = version;
            let meta = ();
            rows.insert(key, Version { id, content, meta });
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
        let expiry = prop_oneof![
            Just(Expiry::Kept),
            // Some of them are over by the stamp of the steps.
            (1..200_u64).prop_map(|until| Expiry::At(Micros(until))),
            (1..200_u64).prop_map(|span| Expiry::After(Micros(span))),
        ];
        let options = (
            proptest::option::of(compute),
            proptest::option::of(condition),
            proptest::option::of(expiry),
            any::<bool>(),
        );
        let options = options.prop_map(|(computes, condition, expiry, returns_previous)| {
            Box::new(PutOptions {
                expiry: expiry.filter(|_| computes.is_none()),
                computes,
                condition,
                returns_previous,
                ..PutOptions::default()
            })
        });
        proptest::option::of(options)
    }

    /// `EXPIRE`, `PERSIST`, `GETEX`.
    fn retimes() -> impl Strategy<Value = Option<Box<PutOptions>>> {
        let expiry = proptest::option::of((1..200_u64).prop_map(|span| Expiry::After(Micros(span))));
        let retimes = proptest::sample::select(Retimes::ALL.to_vec());
        (expiry, retimes, any::<bool>()).prop_map(|(expiry, retimes, returns_previous)| {
            Some(Box::new(PutOptions {
                expiry,
                retimes: Some(retimes),
                returns_previous,
                ..PutOptions::default()
            }))
        })
    }

    fn step() -> impl Strategy<Value = Step> {
        let value = proptest::option::of((0..3_u8).prop_map(|number| Bytes::from(number.to_string())));
        prop_oneof![
            1 => key().prop_map(Step::Get),
            3 => (key(), value, options()).prop_map(|(key, value, options)| Step::Put(key, value, options)),
            1 => (key(), retimes()).prop_map(|(key, options)| Step::Put(key, None, options)),
        ]
    }

    fn alone(step: &Step) -> Work {
        let level = Level::Linearizable;
        Work::One(match step.clone() {
            Step::Get(key) => PlainRequest::Get(key, level),
            Step::Lifetime(_) => unreachable!("only a step of a transaction asks for it"),
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
                carry_out(&mut together, &alone(step), stamp(at));
            }
            let mut apart = together.clone();
            let mut at = stamp(100);
            let expected: Vec<PlainResponse> = steps
                .iter()
                .flat_map(|step| {
                    // Each comes a moment later, in the same microsecond.
                    at.at = at.at.next();
                    carry_out(&mut apart, &alone(step), at).expect("it has no conditions")
                })
                .collect();
            let conditions = Vec::new();
            let transaction = Work::Many(Box::new(Transaction { conditions, steps }));
            prop_assert_eq!(carry_out(&mut together, &transaction, stamp(100)), Some(expected));
            let values = |rows: &Rows| -> Vec<(Key, Option<Bytes>, Option<Micros>)> {
                let of = |(key, found): (&Key, &Version<()>)| {
                    (key.clone(), found.content.stored().cloned(), found.content.until())
                };
                rows.iter().map(of).collect()
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
        assert_eq!(carry_out(&mut rows, &only_if(Condition::Present), stamp(1)), None);
        assert!(rows.is_empty());
        assert!(carry_out(&mut rows, &only_if(Condition::Absent), stamp(2)).is_some());
        assert_eq!(
            carry_out(&mut rows, &only_if(Condition::Version(stamp(1))), stamp(3)),
            None
        );
        assert!(carry_out(&mut rows, &only_if(Condition::Version(stamp(2))), stamp(4)).is_some());
    }

    fn alone_with(key: &str, value: Option<&'static str>, options: PutOptions) -> Work {
        let value = value.map(|value| Bytes::from_static(value.as_bytes()));
        alone(&Step::Put(Key::from(key), value, Some(Box::new(options))))
    }

    #[test]
    fn a_value_that_has_expired_by_the_stamp_is_none() {
        let mut rows = Rows::new();
        let expires = PutOptions {
            expiry: Some(Expiry::After(Micros(10))),
            ..PutOptions::default()
        };
        carry_out(
            &mut rows,
            &alone_with("x", Some("1"), expires.clone()),
            stamp(100),
        );
        let get = alone(&Step::Get(Key::from("x")));
        let one = Some(Bytes::from_static(b"1"));
        let told = |response| Some(vec![response]);
        assert_eq!(
            carry_out(&mut rows, &get, stamp(109)),
            told(PlainResponse::Value(one))
        );
        assert_eq!(
            carry_out(&mut rows, &get, stamp(110)),
            told(PlainResponse::Value(None))
        );
        // Its version is no condition any more: whoever names it has seen the value.
        let condition = |condition| PutOptions {
            condition: Some(condition),
            ..PutOptions::default()
        };
        let unmet = Unmet {
            has_value: false,
            value: None,
        };
        for refused in [Condition::Present, Condition::Version(stamp(100))] {
            let work = alone_with("x", Some("2"), condition(refused));
            let unmet = PlainResponse::Unmet(Box::new(unmet.clone()));
            assert_eq!(carry_out(&mut rows, &work, stamp(110)), told(unmet));
        }
        let work = alone_with("x", Some("2"), condition(Condition::Absent));
        let written = PlainResponse::Written { existed: false };
        assert_eq!(carry_out(&mut rows, &work, stamp(110)), told(written));
    }

    #[test]
    fn a_computed_value_expires_when_the_one_before_it_would_have() {
        let mut rows = Rows::new();
        let x = Key::from("x");
        let expires = PutOptions {
            expiry: Some(Expiry::After(Micros(10))),
            ..PutOptions::default()
        };
        let increment = PutOptions {
            computes: Some(Compute::Add(1)),
            ..PutOptions::default()
        };
        carry_out(&mut rows, &alone_with("x", Some("1"), expires), stamp(100));
        carry_out(&mut rows, &alone_with("x", None, increment.clone()), stamp(109));
        let until = |rows: &Rows| rows[&x].content.until();
        assert_eq!(until(&rows), Some(Micros(110)));
        carry_out(&mut rows, &alone_with("x", None, increment), stamp(110));
        assert_eq!(
            (rows[&x].content.stored(), until(&rows)),
            (Some(&Bytes::from_static(b"1")), None),
            "it had expired"
        );
    }

    #[test]
    fn a_transaction_may_change_the_expiry_of_what_it_has_put() {
        let mut rows = Rows::new();
        let x = Key::from("x");
        let expire = PutOptions {
            expiry: Some(Expiry::After(Micros(10))),
            retimes: Some(Retimes::Any),
            ..PutOptions::default()
        };
        let steps = vec![
            Step::Put(x.clone(), Some(Bytes::from_static(b"1")), None),
            Step::Put(x.clone(), None, Some(Box::new(expire.clone()))),
        ];
        let conditions = Vec::new();
        let work = Work::Many(Box::new(Transaction { conditions, steps }));
        carry_out(&mut rows, &work, stamp(100));
        let content = &rows[&x].content;
        assert_eq!((content.until(), content.base()), (Some(Micros(110)), None));
        let lifetime = || {
            let (conditions, steps) = (Vec::new(), vec![Step::Lifetime(x.clone())]);
            Work::Many(Box::new(Transaction { conditions, steps }))
        };
        let told = |lifetime| Some(vec![PlainResponse::Lifetime(lifetime)]);
        assert_eq!(
            carry_out(&mut rows.clone(), &lifetime(), stamp(109)),
            told(Lifetime::Until(Micros(110)))
        );
        assert_eq!(
            carry_out(&mut rows.clone(), &lifetime(), stamp(110)),
            told(Lifetime::NoValue)
        );
        // Of an earlier value, the result names the version that wrote it.
        carry_out(&mut rows, &alone_with("x", None, expire), stamp(105));
        let content = &rows[&x].content;
        assert_eq!(
            (content.until(), content.base()),
            (Some(Micros(115)), Some(stamp(100)))
        );
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
            Change::of(by, stamp(1), &work, |_| None)
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
        let effect = |value| Effect {
            puts: true,
            value,
            ..Effect::default()
        };
        let change = |change: Change| Change::decode(change.encode());
        // A version without a time, of a replica that no partition has, and no effect of an operation.
        assert!(
            change(Change {
                effects: vec![effect(None)],
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
        let expires = Effect {
            until: Some(7),
            ..effect(None)
        };
        let based = Effect {
            base: Some(stamp(2).into()),
            ..effect(Some(Bytes::from_static(b"v")))
        };
        for effect in [expires, based] {
            // A delete that expires, and a value of a version that is newer than its own.
            let effects = vec![effect];
            let at = stamp(1).at.0;
            assert!(
                change(Change {
                    at,
                    effects,
                    ..Change::default()
                })
                .is_err()
            );
        }
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
