//! A backend for tests: maps in memory that answer at once, or only when they are told to.
#![allow(dead_code, reason = "each test uses a part of it")]

use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use turnbuckle_core::DoorId;
use turnbuckle_core::{
    Answer, Answered, BadFrame, BadToken, ClusterSecret, Compute, Computed, Descriptor, Edit, Elements,
    Expiry, Failure, Hlc, Key, KeyspaceLevels, Kind, Level, Levels, Lifetime, Message, Micros, NotComputed,
    Operation, PutOptions, Receipt, Replication, Route, ServerId, Siblings, SiteId, Step, TokenHeader,
    Transactions, Unmet, Vector, VersionId,
};
use turnbuckle_resp::{
    Backend, Channels, ClusterNode, Connection, Greeting, InfoSection, Keyspace, Limits, Listener, Refused,
    SelectError,
};

#[derive(Default)]
pub struct World {
    maps: BTreeMap<String, BTreeMap<Key, (Held, VersionId)>>,
    kept: Kept,
    /// When values expire, in the keyspace that takes an expiry.
    untils: BTreeMap<Key, Micros>,
    doors: BTreeMap<DoorId, Door>,
    opened: u64,
    writes: u64,
    /// Answers are kept until the test asks for them.
    pub deferring: bool,
    pub deferred: VecDeque<(u64, Answered)>,
    /// What operations on these keys fail with.
    pub failing: BTreeMap<Key, Failure>,
    pub route: Option<Route>,
    pub operations: u64,
    /// What the last put asked for beside its value.
    pub options: PutOptions,
    /// Whether reads of several keys may be divided.
    pub divides: bool,
    /// Whether the site is no Redis cluster.
    pub is_standalone: bool,
    /// How many bytes a connection may hold; `None` is unbounded.
    pub room: Option<usize>,
    /// What was refused because of the client's user.
    pub refused: Vec<String>,
    /// The keyspaces and keys of all operations so far; the key `*` stands for all keys.
    pub touched: BTreeSet<(String, Key)>,
    /// How far the monotonic clock is ahead of its beginning.
    pub passed: Micros,
    /// Who listens to which channels.
    pub channels: Arc<Channels>,
    /// The messages that were sent, and were not delivered yet.
    pub sent: VecDeque<Message>,
}

/// What a key has.
#[derive(Clone)]
enum Held {
    Value(Bytes),
    Elements(Kind, BTreeMap<Bytes, Bytes>),
}

impl Held {
    fn value(&self) -> Option<&Bytes> {
        match self {
            Held::Value(value) => Some(value),
            Held::Elements(..) => None,
        }
    }

    fn answer(&self) -> Answer {
        match self {
            Held::Value(value) => Answer::Value(Some(value.clone())),
            Held::Elements(kind, elements) => {
                let elements = elements.clone().into_iter().collect();
                let elements = Elements::new(*kind, elements).expect("a key without elements is removed");
                Answer::Elements(Arc::new(elements))
            }
        }
    }
}

/// What a put computes from what a key has: what it has then, or nothing, and what the client is told.
fn computed(compute: &Compute, there: Option<&Held>) -> Result<(Option<Held>, Computed), NotComputed> {
    let Some(edit) = compute.edit() else {
        if matches!(there, Some(Held::Elements(..))) {
            return Err(NotComputed::WrongType);
        }
        let (value, computed) = compute.apply(there.and_then(Held::value))?;
        return Ok((Some(Held::Value(value)), computed));
    };
    let mut elements = match there {
        None => BTreeMap::new(),
        Some(Held::Elements(kind, elements)) if *kind == edit.kind() => elements.clone(),
        Some(_) => return Err(NotComputed::WrongType),
    };
    let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
    let mut new = 0;
    let mut set = |elements: &mut BTreeMap<Bytes, Bytes>, name: &Bytes, value: Bytes| {
        new += u64::from(elements.insert(copy(name), value).is_none());
    };
    let mut number = |name: &Bytes, compute: Compute| {
        let (value, computed) = compute.apply(elements.get(name)).map_err(|why| match why {
            NotComputed::NotAnInteger => NotComputed::FieldNotAnInteger,
            NotComputed::NotANumber => NotComputed::FieldNotANumber,
            why => why,
        })?;
        elements.insert(copy(name), value);
        Ok(computed)
    };
    let told = match edit {
        Edit::Add(name, more) => Some(number(name, Compute::Add(*more))?),
        Edit::AddDecimal(name, more) => Some(number(name, Compute::AddDecimal(*more))?),
        Edit::Set(fields) => {
            fields
                .iter()
                .for_each(|(name, value)| set(&mut elements, name, copy(value)));
            None
        }
        Edit::SetNew(name, _) if elements.contains_key(name) => None,
        Edit::SetNew(name, value) => {
            set(&mut elements, name, copy(value));
            None
        }
        Edit::Insert(names) => {
            names
                .iter()
                .for_each(|name| set(&mut elements, name, Bytes::new()));
            None
        }
        Edit::Remove(_, names) => {
            let removed = names.iter().filter(|name| elements.remove(*name).is_some());
            Some(Computed::Elements(removed.count() as u64))
        }
    };
    let held = (!elements.is_empty()).then_some(Held::Elements(edit.kind(), elements));
    Ok((held, told.unwrap_or(Computed::Elements(new))))
}

/// A session that counts its operations.
struct Door {
    keyspace: String,
    operations: u64,
}

/// The versions of keys that no write has replaced, in the keyspace that keeps them.
type Kept = BTreeMap<Key, Vec<(VersionId, Option<Bytes>)>>;

/// A keyspace that takes conditions and expiry, computes values, keeps hashes and sets and has transactions. Time stands still: a value whose time has not passed never expires.
const ORDERED: &str = "ordered";

/// The time.
const NOW: Micros = Micros(1_785_000_000_123_456);

pub const KEYSPACES: [(&str, &[Level]); 3] = [
    ("causal", &[Level::Causal, Level::Eventual]),
    (
        "quorum",
        &[
            Level::Quorum,
            Level::One,
            Level::All,
            Level::Bounded(Micros(2_000_000)),
        ],
    ),
    (ORDERED, &[Level::Linearizable]),
];

fn descriptor(keyspace: &str) -> Descriptor {
    Descriptor {
        history: false,
        replication: Replication::Streams,
        agrees_by_site: false,
        tells_losses: false,
        max_members: 1,
        leaves_sites_out: false,
        tolerates_clock_steps: true,
        tolerates_old_directories: true,
        takes_conditions: keyspace == ORDERED,
        computes: keyspace == ORDERED,
        transactions: if keyspace == ORDERED {
            Transactions::All
        } else {
            Transactions::None
        },
        keeps_elements: keyspace != "quorum",
        takes_expiry: keyspace == ORDERED,
        confirms_sites: keyspace == "causal",
        keeps_siblings: keyspace == "quorum",
        ..Descriptor::of(Replication::Streams)
    }
}

pub fn greeting(limits: Limits) -> Greeting {
    Greeting {
        id: 7,
        peer: "10.0.0.9:5000".into(),
        local: "10.0.0.1:6379".into(),
        keyspace: "causal".into(),
        limits,
    }
}

pub fn connection() -> Connection {
    Connection::new(greeting(Limits::default()))
}

impl World {
    pub fn open_doors(&self) -> usize {
        self.doors.len()
    }

    fn levels(keyspace: &str) -> &'static [Level] {
        let found = KEYSPACES.iter().find(|(name, _)| *name == keyspace);
        found.expect("the door is of a keyspace that exists").1
    }

    fn header(keyspace: &str) -> TokenHeader {
        TokenHeader {
            cluster: "test".into(),
            keyspace: keyspace.into(),
        }
    }

    fn secret() -> ClusterSecret {
        ClusterSecret::new(&b"secret"[..])
    }

    /// Answers the deferred operation with this tag.
    pub fn answer(&mut self, tag: u64, connection: &mut Connection) {
        let place = self.deferred.iter().position(|(known, _)| *known == tag);
        let (_, answered) = place
            .and_then(|place| self.deferred.remove(place))
            .unwrap_or_else(|| panic!("no operation {tag} is deferred"));
        connection.handle_answer(tag, answered, self);
    }

    /// Delivers a message to a connection, as its event loop does. Returns whether something was to be done for the connection then.
    pub fn deliver(&mut self, message: Message, connection: &mut Connection) -> bool {
        let Message { channel, text } = message;
        assert_eq!(
            self.channels.is_heard(0, &channel),
            !self.channels.listeners(0, &channel).is_empty()
        );
        let mut is_served = false;
        for (number, ways) in self.channels.listeners(0, &channel) {
            assert_eq!(number, connection.id());
            for way in ways {
                is_served |= connection.handle_message(way.as_ref(), &channel, &text, self);
            }
        }
        is_served
    }

    fn answered(&mut self, keyspace: &str, operation: Operation) -> Answered {
        if let Some(failure) = descriptor(keyspace).refusal(keyspace, Default::default(), &operation) {
            return (Answer::Failed(failure), None);
        }
        let wanted = operation.wanted();
        // Of a chain this world always gives the first level.
        let operation = match operation {
            Operation::First(first) => first.operation.at(first.chain.choices()[0].level),
            operation => operation,
        };
        let level = operation.level();
        let offered = Self::levels(keyspace);
        let named = level.map_or(Ok(offered[0]), |level| {
            level.offered_by(turnbuckle_core::Levels::of_both(offered), operation.is_write())
        });
        let asked = match named {
            Ok(level) => level,
            Err(failure) => return (Answer::Failed(failure), None),
        };
        let map = self.maps.entry(keyspace.into()).or_default();
        let mut receipt = Box::new(Receipt {
            asked: wanted.unwrap_or(asked.into()),
            given: asked,
            version: None,
            base: None,
            server: ServerId::default(),
            route: self.route.unwrap_or(Route::Local),
            waited: Micros(0),
            staleness: None,
            clock_bound: Micros(250),
            siblings: false,
            until: None,
            decided_at_site: false,
            proof: turnbuckle_core::Proof::Plain,
        });
        let answer = match operation {
            Operation::Get { key, .. } => {
                if let Some(failure) = self.failing.get(&key) {
                    return (Answer::Failed(failure.clone()), None);
                }
                receipt.server.partition = key.slot() / 8192;
                receipt.staleness = Some(Micros(40_000));
                let found = map.get(&key);
                receipt.version = found.map(|(_, version)| *version);
                receipt.until = self.untils.get(&key).copied().filter(|_| keyspace == ORDERED);
                found.map_or(Answer::Value(None), |(held, _)| held.answer())
            }
            Operation::Put {
                key, value, options, ..
            } => {
                if let Some(failure) = self.failing.get(&key) {
                    return (Answer::Failed(failure.clone()), None);
                }
                receipt.server.partition = key.slot() / 8192;
                self.options = options.map(|options| *options).unwrap_or_default();
                let PutOptions {
                    condition,
                    returns_previous,
                    ..
                } = self.options;
                let (held, newest) = map.get(&key).cloned().unzip();
                let there = held.as_ref().and_then(Held::value).cloned();
                if condition.is_some_and(|condition| !condition.holds(held.is_some(), newest)) {
                    receipt.version = newest;
                    let has_value = held.is_some();
                    let value = there.filter(|_| returns_previous);
                    let unmet = Unmet { has_value, value };
                    return (Answer::Unmet(Box::new(unmet)), Some(receipt));
                }
                if returns_previous && held.is_some() && there.is_none() {
                    receipt.version = newest;
                    return (Answer::NotComputed(NotComputed::WrongType), Some(receipt));
                }
                let value = match self.options.retimes {
                    None => value.map(Held::Value),
                    Some(retimes) => {
                        let before = self.untils.get(&key).copied();
                        let after = self.options.expiry.and_then(|expiry| expiry.deadline(NOW, None));
                        if held.is_none() || !retimes.holds(before, after) {
                            (receipt.version, receipt.until) = (newest, before);
                            let has_value = held.is_some();
                            let value = there.filter(|_| returns_previous);
                            let unmet = Unmet { has_value, value };
                            return (Answer::Unmet(Box::new(unmet)), Some(receipt));
                        }
                        receipt.base = newest;
                        held.clone()
                    }
                };
                let computed = match &self.options.computes {
                    None => None,
                    Some(compute) => match computed(compute, held.as_ref()) {
                        Ok(computed) => Some(computed),
                        Err(why) => {
                            receipt.version = newest;
                            return (Answer::NotComputed(why), Some(receipt));
                        }
                    },
                };
                let (value, computed) = match computed {
                    Some((value, computed)) => (value, Some(computed)),
                    None => (value, None),
                };
                self.writes += 1;
                let version = VersionId {
                    at: Hlc::from_wall(Micros(1_000_000 + self.writes)),
                    replica: turnbuckle_core::ReplicaId(0),
                };
                receipt.version = Some(version);
                let kept = self.kept.entry(key.compact()).or_default();
                match &self.options.replaces {
                    Some(context) => kept.retain(|(id, _)| !context.covers_id(*id)),
                    None => kept.clear(),
                }
                let value_of = value.as_ref().and_then(Held::value);
                kept.insert(0, (version, value_of.map(|value| Bytes::copy_from_slice(value))));
                let previous = self.untils.remove(&key);
                // A computed value expires when the one before it would have.
                let kept = computed.as_ref().map(|_| Expiry::Kept);
                let expiry = self.options.expiry.or(kept);
                let until = expiry.and_then(|expiry| expiry.deadline(NOW, previous));
                receipt.until = until.filter(|_| value.is_some());
                if let Some(until) = receipt.until {
                    self.untils.insert(key.compact(), until);
                }
                match value.filter(|_| until.is_none_or(|until| until > NOW)) {
                    Some(Held::Value(value)) => {
                        let value = Held::Value(Bytes::copy_from_slice(&value));
                        map.insert(key.compact(), (value, version))
                    }
                    Some(held) => map.insert(key.compact(), (held, version)),
                    None => map.remove(&key),
                };
                match (returns_previous, computed) {
                    (_, Some(computed)) => Answer::Computed(computed),
                    (true, None) => Answer::Replaced(there),
                    (false, None) => Answer::Written {
                        existed: held.is_some(),
                    },
                }
            }
            Operation::Watch { keys, .. } => {
                let failing = keys.iter().find_map(|key| self.failing.get(key));
                if let Some(failure) = failing {
                    return (Answer::Failed(failure.clone()), None);
                }
                let version = |key| map.get(key).map(|(_, version)| *version);
                Answer::Versions(keys.iter().map(version).collect())
            }
            Operation::Transact { transaction, .. } => {
                let failing = transaction.keys().find_map(|key| self.failing.get(key));
                if let Some(failure) = failing {
                    return (Answer::Failed(failure.clone()), None);
                }
                let hold = transaction.conditions.iter().all(|(key, condition)| {
                    let found = map.get(key);
                    condition.holds(found.is_some(), found.map(|(_, version)| *version))
                });
                let mut answer = |step: Step| match step {
                    Step::Get(key) => self.answered(keyspace, Operation::get(key)).0,
                    Step::Lifetime(key) => {
                        let (answer, receipt) = self.answered(keyspace, Operation::get(key));
                        let has_value = answer != Answer::Value(None);
                        let until = receipt.and_then(|receipt| receipt.until);
                        Answer::Lifetime(Lifetime::new(has_value, until))
                    }
                    Step::Put(key, value, options) => {
                        let options = options.map(|options| *options).unwrap_or_default();
                        self.answered(keyspace, Operation::put(key, value).with(options))
                            .0
                    }
                };
                let steps = transaction.steps.into_iter().filter(|_| hold);
                let steps: Vec<Answer> = steps.map(&mut answer).collect();
                Answer::Transacted(hold.then_some(steps))
            }
            Operation::Siblings { key, .. } => {
                let versions = self.kept.get(&key).cloned().unwrap_or_default();
                let context = versions.iter().map(|(id, _)| (id.replica, id.at)).collect();
                receipt.siblings = versions.len() > 1;
                Answer::Siblings(Box::new(Siblings::new(context, versions)))
            }
            Operation::ReadMany { keys, .. } => {
                let failing = keys.iter().find_map(|key| self.failing.get(key));
                if let Some(failure) = failing {
                    return (Answer::Failed(failure.clone()), None);
                }
                let value = |key| map.get(key).and_then(|(held, _)| held.value().cloned());
                Answer::Values(keys.iter().map(value).collect())
            }
            Operation::Scan { cursor, count } => {
                let all = map.keys().skip(cursor as usize);
                let keys: Vec<Key> = all.take(count as usize).cloned().collect();
                let next = cursor + keys.len() as u64;
                let done = next >= map.len() as u64;
                return (
                    Answer::Keys {
                        cursor: if done { 0 } else { next },
                        keys,
                    },
                    None,
                );
            }
            Operation::Count => return (Answer::Count(map.len() as u64), None),
            Operation::Publish { message } => {
                if let Some(failure) = self.failing.get(&Key(message.channel.clone())) {
                    return (Answer::Failed(failure.clone()), None);
                }
                self.sent.push_back(*message);
                return (Answer::Published, None);
            }
            Operation::Wait { sites, .. } => return (Answer::Sites(sites.min(2)), None),
            Operation::First(_) => unreachable!("it was taken apart"),
        };
        (answer, Some(receipt))
    }
}

impl Backend for World {
    fn open(&mut self, keyspace: &str) -> Result<DoorId, SelectError> {
        if !KEYSPACES.iter().any(|(name, _)| *name == keyspace) {
            return Err(SelectError::NoKeyspace);
        }
        self.opened += 1;
        let door = DoorId {
            keyspace: 0,
            number: self.opened,
        };
        let (keyspace, operations) = (keyspace.to_owned(), 0);
        self.doors.insert(door, Door { keyspace, operations });
        Ok(door)
    }

    fn resume(&mut self, door: DoorId, token: &[u8]) -> Result<(), BadToken> {
        let door = self.doors.get_mut(&door).expect("the door is open");
        let state = Self::header(&door.keyspace).open(&Self::secret(), token)?;
        let known: [u8; 8] = state
            .as_ref()
            .try_into()
            .map_err(|_| BadToken::from(BadFrame::new("8 bytes", "others")))?;
        door.operations += u64::from_be_bytes(known);
        Ok(())
    }

    fn close(&mut self, door: DoorId) {
        self.doors.remove(&door).expect("a door is closed once");
    }

    fn operate(&mut self, door: DoorId, tag: u64, operation: Operation) -> Option<Answered> {
        let door = self.doors.get_mut(&door).expect("the door is open");
        door.operations += 1;
        let keyspace = door.keyspace.clone();
        let touched = keys_of_operation(&operation).into_iter();
        self.touched.extend(touched.map(|key| (keyspace.clone(), key)));
        self.operations += 1;
        let answered = self.answered(&keyspace, operation);
        if self.deferring {
            self.deferred.push_back((tag, answered));
            return None;
        }
        Some(answered)
    }

    fn refusal(&self, door: DoorId, operation: &Operation) -> Option<Failure> {
        let keyspace = &self.doors[&door].keyspace;
        descriptor(keyspace).refusal(keyspace, Default::default(), operation)
    }

    fn transactions(&self, door: DoorId) -> Transactions {
        descriptor(&self.doors[&door].keyspace).transactions
    }

    fn divides_reads(&self, _: DoorId, _: Option<&turnbuckle_core::Wanted>) -> bool {
        self.divides
    }

    fn note_refused(&mut self, refused: &Refused<'_>) {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        self.refused.push(format!(
            "{} {} user={} command={} keyspace={} key={}",
            refused.why.label(),
            refused.client,
            text(refused.user),
            refused.command,
            refused.keyspace,
            refused.key.map(text).unwrap_or_default()
        ));
    }

    fn monotonic_time(&self) -> Micros {
        NOW + self.passed
    }

    fn fill_random(&mut self, bytes: &mut [u8]) -> bool {
        bytes.fill(0xab);
        true
    }

    fn grow_to(&mut self, bytes: usize) -> bool {
        self.room.is_none_or(|room| bytes <= room)
    }

    fn channels(&self) -> Option<&Arc<Channels>> {
        Some(&self.channels)
    }

    fn listener(&self) -> Listener {
        Listener {
            event_loop: 0,
            number: 7,
        }
    }

    fn token(&mut self, door: DoorId) -> Bytes {
        let door = &self.doors[&door];
        Self::header(&door.keyspace).seal(&Self::secret(), &door.operations.to_be_bytes())
    }

    fn seal_context(&self, door: DoorId, key: &Key, context: &Vector) -> Bytes {
        Self::header(&self.doors[&door].keyspace).seal_context(&Self::secret(), key, context)
    }

    fn open_context(&self, door: DoorId, key: &Key, sealed: &[u8]) -> Option<Vector> {
        Self::header(&self.doors[&door].keyspace).open_context(&Self::secret(), key, sealed)
    }

    fn keyspaces(&self) -> Vec<Keyspace> {
        let described = |(name, levels): &(&str, &'static [Level])| Keyspace {
            name: (*name).into(),
            kind: (*name).into(),
            protocol: "test".into(),
            levels: KeyspaceLevels::of(Levels::of_both(levels)),
            db: [("quorum", 3)]
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, db)| *db),
            partitions: 2,
            details: vec![("durability".into(), "interval(10ms)".into())],
        };
        KEYSPACES.iter().map(described).collect()
    }

    fn cluster_mode(&self) -> bool {
        !self.is_standalone
    }

    fn cluster(&self, _: &str) -> Vec<ClusterNode> {
        let node = |place: u16, is_me| ClusterNode {
            is_up: true,
            id: format!("{place:040x}"),
            host: format!("10.0.0.{place}"),
            port: 6378 + place,
            slots: vec![(place - 1) * 8192..=place * 8192 - 1],
            is_me,
        };
        vec![node(1, true), node(2, false)]
    }

    fn wall_time(&self) -> Micros {
        NOW
    }

    fn site_name(&self, site: SiteId) -> &str {
        ["a", "b", "c"][usize::from(site.0)]
    }

    fn site_named(&self, name: &str) -> Option<SiteId> {
        let place = ["a", "b", "c"].iter().position(|known| *known == name)?;
        Some(SiteId(place as u16))
    }

    fn info(&self) -> Vec<InfoSection> {
        let section = |title: &str, name: &str, value: &str| InfoSection {
            title: title.into(),
            lines: vec![(name.into(), value.into())],
        };
        vec![
            section("Server", "turnbuckle_version", "0.0.0"),
            section("Clients", "connected_clients", "1"),
        ]
    }

    fn config(&self) -> Vec<(String, String)> {
        [("save", ""), ("appendonly", "yes"), ("maxmemory", "0")]
            .map(|(name, value)| (name.into(), value.into()))
            .to_vec()
    }
}

fn keys_of_operation(operation: &Operation) -> Vec<Key> {
    let keys = match operation {
        Operation::Get { key, .. } | Operation::Put { key, .. } | Operation::Siblings { key, .. } => {
            vec![key]
        }
        Operation::ReadMany { keys, .. } | Operation::Watch { keys, .. } => keys.iter().collect(),
        Operation::Transact { transaction, .. } => transaction.keys().collect(),
        Operation::Scan { .. } | Operation::Count | Operation::Wait { .. } => return vec![Key::from("*")],
        Operation::Publish { message } => return vec![Key(message.channel.clone()).compact()],
        Operation::First(first) => return keys_of_operation(&first.operation),
    };
    keys.into_iter().map(Key::compact).collect()
}

/// Sends bytes and returns what comes back.
pub fn send(bytes: impl AsRef<[u8]>, connection: &mut Connection, world: &mut World) -> Bytes {
    let mut input = BytesMut::from(bytes.as_ref());
    connection.handle_bytes(&mut input, world);
    connection.output().split().freeze()
}

/// The keys that have a value, for tests that look behind the connection.
pub fn keys_of(world: &World, keyspace: &str) -> BTreeSet<Key> {
    world
        .maps
        .get(keyspace)
        .map(|map| map.keys().cloned().collect())
        .unwrap_or_default()
}
