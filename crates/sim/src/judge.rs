//! What must be true of every answer, whatever happened, checked while the world runs.
//!
//! 1. **Receipts.** A receipt that claims a staleness of s for an operation begun at t: every write to its key that was
//!    acknowledged at or before t - s, in true time, at any site, is reflected.
//! 2. **Nothing shown is undone.** Once a replica has shown a version of a key, it never again shows less, across any crash. Where
//!    the protocol has sessions that see more than others, this is asked of each session instead, wherever it goes.
//! 3. **Values are real.** What is read was written, to that key, and carries one version only.
//! 4. **Nothing acknowledged is lost.** In the end every site has each key's last acknowledged write, or something newer.
//!
//! Excused are only writes that were acknowledged under `interval` or `none` by a node that then lost power before its next sync, and
//! those that a node had acknowledged alone when its data directory was lost.
//!
//! "Reflected" means: the version shown is at least as new; or nothing is shown and a delete that is at least as new was made,
//! or may have been made (one that was never answered).
mod lost;

use crate::{OperationId, Record};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};
use turnbuckle_core::{Answer, Key, Micros, Operation, Receipt, ServerId, VersionId};

/// Which rule was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A receipt claimed what is not so.
    TrueReceipts,
    /// A replica, or to its session, somebody showed less than before.
    NothingUndone,
    /// What was read was never written, or has two versions.
    RealValues,
    /// An acknowledged write is not there in the end.
    NothingLost,
    /// The sites differ in the end, or do not come to rest.
    Convergence,
    /// A node does not do its work: it does not open, answer, or understand another.
    Service,
}

impl Rule {
    /// In a word, for those who count.
    pub fn name(self) -> &'static str {
        match self {
            Rule::TrueReceipts => "receipt",
            Rule::NothingUndone => "undone",
            Rule::RealValues => "unreal",
            Rule::NothingLost => "lost",
            Rule::Convergence => "diverged",
            Rule::Service => "service",
        }
    }
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which rule it breaks.
    pub rule: Rule,
    /// What happened.
    pub words: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// Judges the answers of one world.
#[derive(Default)]
pub struct Judge {
    keys: BTreeMap<Key, OfKey>,
    /// What was written to which key.
    values: BTreeMap<(Key, Bytes), Value>,
    /// Versions that a power loss may have taken.
    excused: BTreeSet<VersionId>,
    /// When each replica last lost power. An answer from before may still be under way through another node.
    losses: BTreeMap<ServerId, Micros>,
    /// Servers that lost their directories: what they acknowledged between the two times is nowhere but at their peers.
    directories: BTreeMap<ServerId, (Micros, Micros)>,
    /// How many versions were lost with them.
    gone: u64,
    /// How many receipts' claims of staleness were checked.
    pub audited: u64,
    /// How many were not, because a clock had been outside its bound.
    pub unaudited: u64,
    /// A clock was outside its bound: claims that rest on clocks are not checked any more.
    clocks_lie: bool,
    /// It looks at nothing.
    sleeps: bool,
    violations: Vec<Violation>,
}

#[derive(Default)]
struct OfKey {
    /// Acknowledged writes in the order of their acknowledgement.
    acknowledged: Vec<Acknowledged>,
    /// Versions of deletes.
    deletes: BTreeSet<VersionId>,
    /// Deletes that were asked for and not answered.
    vague_deletes: u32,
    /// The newest version that each has shown, or been shown.
    floors: BTreeMap<Witness, VersionId>,
}

/// Whose answers must not go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Witness {
    /// All of a replica.
    Replica(ServerId),
    /// All that one session of a client is given.
    Session(usize, u32),
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Witness::Replica(server) => write!(f, "replica {server} had shown"),
            Witness::Session(client, session) => write!(f, "session {session} of client {client} had seen"),
        }
    }
}

#[derive(Clone, Copy)]
enum Value {
    /// Written once; the version, if it is known.
    Once(Option<VersionId>),
    /// Written more than once: it does not tell its version.
    Often,
    /// Its only writer was told that it was certainly not written.
    Refused,
}

struct Acknowledged {
    at: Micros,
    version: VersionId,
    by: ServerId,
}

impl Judge {
    /// What was found wrong so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Something is wrong.
    pub fn report(&mut self, rule: Rule, words: String) {
        self.violations.push(Violation { rule, words });
    }

    /// The newest version that a replica has shown of a key, or a session has seen.
    pub(crate) fn floor(&self, key: &Key, witness: Witness) -> Option<VersionId> {
        self.keys.get(key)?.floors.get(&witness).copied()
    }

    /// From now on it looks at nothing, and remembers nothing.
    pub(crate) fn sleep(&mut self) {
        self.sleeps = true;
    }

    /// Whether it looks at nothing.
    pub(crate) fn is_asleep(&self) -> bool {
        self.sleeps
    }

    /// A clock is not where its node believes.
    pub(crate) fn distrust_clocks(&mut self) {
        self.clocks_lie = true;
    }

    /// Whether every claim can be held against its receipt: all clocks kept their bounds, and no power loss took what
    /// `interval` and `none` let it take.
    pub fn excuses_nothing(&self) -> bool {
        !self.clocks_lie && self.lost_nothing()
    }

    /// Whether no power loss took what `interval` and `none` let it take.
    pub fn lost_nothing(&self) -> bool {
        self.losses.is_empty()
    }

    pub(crate) fn invoked(&mut self, operation: &Operation) {
        if self.sleeps {
            return;
        }
        if let Operation::Put { key, value, .. } = operation {
            match value {
                Some(value) => {
                    let written = self.values.entry((key.clone(), value.clone()));
                    written
                        .and_modify(|known| {
                            *known = match known {
                                Value::Refused => Value::Once(None),
                                _ => Value::Often,
                            }
                        })
                        .or_insert(Value::Once(None));
                }
                None => self.keys.entry(key.clone()).or_default().vague_deletes += 1,
            }
        }
    }

    pub(crate) fn returned(&mut self, id: OperationId, record: &Record) {
        let Some((at, (answer, receipt))) = record.returned.as_ref().filter(|_| !self.sleeps) else {
            return;
        };
        match (&record.operation, answer, receipt) {
            (Operation::Put { key, value, .. }, Answer::Written { existed }, Some(receipt)) => {
                if self.is_from_before_loss(record, receipt) {
                    self.excused.extend(receipt.version);
                }
                self.written(key, value.as_ref(), *existed, *at, receipt);
                self.shown(id, record, key, receipt.version, receipt);
            }
            (
                Operation::Put {
                    key,
                    value: Some(value),
                    ..
                },
                Answer::Failed(failure),
                _,
            ) if failure.is_definite() => self.refused(id, key, value),
            (Operation::Put { key, value: None, .. }, Answer::Failed(failure), _)
                if failure.is_definite() =>
            {
                self.keys.entry(key.clone()).or_default().vague_deletes -= 1;
            }
            (Operation::Get { key, .. }, Answer::Value(value), Some(receipt)) => {
                if let Some(value) = value {
                    self.read(id, key, value, receipt.version);
                }
                self.shown(id, record, key, receipt.version, receipt);
            }
            (Operation::ReadMany { keys, .. }, Answer::Values(values), Some(receipt)) => {
                for (key, value) in keys.iter().zip(values) {
                    let version = match value {
                        None => None,
                        Some(value) => match self.read(id, key, value, None) {
                            Some(version) => Some(version),
                            // Of a write that was never acknowledged: nothing to compare.
                            None => continue,
                        },
                    };
                    self.audit(id, record, key, version, receipt);
                }
            }
            _ => {}
        }
    }

    fn written(&mut self, key: &Key, value: Option<&Bytes>, existed: bool, at: Micros, receipt: &Receipt) {
        let of_key = self.keys.entry(key.clone()).or_default();
        if value.is_none() {
            of_key.vague_deletes -= 1;
            // A delete of what is not there writes nothing.
            if !existed {
                return;
            }
        }
        let Some(version) = receipt.version else {
            return self.report(
                Rule::Service,
                format!("a write to {key} was acknowledged without a version"),
            );
        };
        if value.is_none() {
            of_key.deletes.insert(version);
        }
        of_key.acknowledged.push(Acknowledged {
            at,
            version,
            by: receipt.server,
        });
        if let Some(value) = value {
            self.learn(key, value, version);
        }
    }

    /// A writer was told that its write did not happen, and never will.
    fn refused(&mut self, id: OperationId, key: &Key, value: &Bytes) {
        let Some(known) = self.values.get_mut(&(key.clone(), value.clone())) else {
            return;
        };
        match *known {
            Value::Once(None) => *known = Value::Refused,
            Value::Once(Some(version)) => {
                let words = format!(
                    "operation {}: its write of {key} was refused, and is there as {version}",
                    id.0
                );
                self.report(Rule::RealValues, words);
            }
            Value::Often | Value::Refused => {}
        }
    }

    /// A value was read. Returns its version, if that is known.
    fn read(
        &mut self,
        id: OperationId,
        key: &Key,
        value: &Bytes,
        version: Option<VersionId>,
    ) -> Option<VersionId> {
        if let Some(version) = version {
            self.learn(key, value, version);
        }
        match self.values.get(&(key.clone(), value.clone())) {
            Some(Value::Once(version)) => *version,
            Some(Value::Often) => version,
            Some(Value::Refused) => {
                let words = format!("operation {} read of {key} what was refused: {value:?}", id.0);
                self.report(Rule::RealValues, words);
                version
            }
            None => {
                let text = format!(
                    "operation {} read of {key} what nobody wrote to it: {value:?}",
                    id.0
                );
                self.report(Rule::RealValues, text);
                version
            }
        }
    }

    fn learn(&mut self, key: &Key, value: &Bytes, version: VersionId) {
        if let Some(Value::Once(known)) = self.values.get_mut(&(key.clone(), value.clone()))
            && *known.get_or_insert(version) != version
        {
            let text = format!("a value of {key} has two versions: {known:?} and {version}");
            self.report(Rule::RealValues, text);
        }
    }

    fn shown(
        &mut self,
        id: OperationId,
        record: &Record,
        key: &Key,
        version: Option<VersionId>,
        receipt: &Receipt,
    ) {
        self.audit(id, record, key, version, receipt);
        let Some((witness, floor)) = record.floor else {
            return;
        };
        if let Some(floor) = floor
            && !self.is_as_new(key, version, floor)
            && !self.is_from_before_loss(record, receipt)
            && !self.may_be_gone(witness, floor)
        {
            self.report(
                Rule::NothingUndone,
                format!(
                    "operation {}: {witness} version {floor} of {key}, and now {}",
                    id.0,
                    name(version)
                ),
            );
        }
        if let Some(version) = version
            && !self.is_from_before_loss(record, receipt)
        {
            let of_key = self.keys.entry(key.clone()).or_default();
            // What came from another replica than was expected says nothing of that one.
            let witness = match witness {
                Witness::Replica(_) => Witness::Replica(receipt.server),
                session => session,
            };
            let floor = of_key.floors.entry(witness).or_default();
            *floor = version.max(*floor);
        }
    }

    /// A power loss may have taken what a session has seen from the site that stamped it, until another site gives it back.
    fn may_be_gone(&self, witness: Witness, floor: VersionId) -> bool {
        matches!(witness, Witness::Session(..)) && self.losses.keys().any(|lost| lost.site == floor.site)
    }

    fn is_from_before_loss(&self, record: &Record, receipt: &Receipt) -> bool {
        self.losses
            .get(&receipt.server)
            .is_some_and(|&at| record.invoked <= at)
    }

    /// Checks what a receipt claims.
    fn audit(
        &mut self,
        id: OperationId,
        record: &Record,
        key: &Key,
        version: Option<VersionId>,
        receipt: &Receipt,
    ) {
        let Some(staleness) = receipt.staleness else {
            return;
        };
        if self.clocks_lie {
            self.unaudited += 1;
            return;
        }
        self.audited += 1;
        let until = record.invoked.since(staleness);
        let Some(of_key) = self.keys.get(key) else {
            return;
        };
        let count = of_key.acknowledged.partition_point(|write| write.at <= until);
        let missing = of_key.acknowledged[..count]
            .iter()
            .filter(|write| !self.reflects(key, version, write.version))
            .max_by_key(|write| write.version);
        if let Some(missing) = missing {
            let text = format!(
                "operation {}: the receipt of {key} from replica {} claims to reflect all that was acknowledged {staleness} \
                 before; version {} was, {} before, and it shows {}",
                id.0,
                receipt.server,
                missing.version,
                record.invoked.since(missing.at),
                name(version)
            );
            self.report(Rule::TrueReceipts, text);
        }
    }

    fn reflects(&self, key: &Key, shown: Option<VersionId>, required: VersionId) -> bool {
        self.excused.contains(&required) || self.is_as_new(key, shown, required)
    }

    fn is_as_new(&self, key: &Key, shown: Option<VersionId>, required: VersionId) -> bool {
        if shown >= Some(required) {
            return true;
        }
        shown.is_none()
            && self.keys.get(key).is_some_and(|of_key| {
                of_key.vague_deletes > 0 || of_key.deletes.range(required..).next().is_some()
            })
    }

    /// A replica lost power, and its node had last synced at `synced_at`: what it acknowledged since may be gone.
    pub(crate) fn excuse(&mut self, server: ServerId, now: Micros, synced_at: Micros) {
        self.losses.insert(server, now);
        for of_key in self.keys.values_mut() {
            let lost = of_key
                .acknowledged
                .iter()
                .rev()
                .take_while(|write| write.at > synced_at);
            self.excused
                .extend(lost.filter(|write| write.by == server).map(|write| write.version));
            // What it had shown may have been written by others, and not been synced here: they send it again.
            of_key
                .floors
                .retain(|witness, _| matches!(witness, Witness::Replica(other) if *other != server));
        }
    }

    /// In the end: what a site has of a key.
    pub(crate) fn settle(&mut self, site: &str, key: &Key, version: Option<VersionId>) {
        let Some(of_key) = self.keys.get(key) else {
            return;
        };
        let lost = of_key
            .acknowledged
            .iter()
            .filter(|write| !self.reflects(key, version, write.version));
        if let Some(lost) = lost.max_by_key(|write| write.version) {
            let text = format!(
                "site {site} lost version {} of {key}, acknowledged at {}: it has {}",
                lost.version,
                lost.at,
                name(version)
            );
            self.report(Rule::NothingLost, text);
        }
    }

    /// All keys that were ever written or read.
    pub fn keys(&self) -> BTreeSet<Key> {
        let written = self.values.keys().map(|(key, _)| key.clone());
        self.keys.keys().cloned().chain(written).collect()
    }
}

fn name(version: Option<VersionId>) -> String {
    version.map_or("nothing".to_string(), |version| format!("version {version}"))
}
