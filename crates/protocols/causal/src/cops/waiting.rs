use super::message::Dependency;
use std::collections::BTreeMap;
use std::ops::Bound;
use turnbuckle_core::{Hlc, Key, Micros, ReplicaId, ServerId, VersionId};

/// A version of one partition: its site and stamp. In this order the versions of one site are adjacent.
pub type At = (ReplicaId, Hlc);

/// A version's site and stamp.
pub fn at_of(id: VersionId) -> At {
    (id.replica, id.at)
}

/// The versions of this site's partitions that are waited for, because they are not known to be visible. Each comes with what waits for it.
#[derive(Default)]
pub struct Questions {
    open: BTreeMap<Place, Question>,
    /// The last question that was asked again: the ones behind it are next in turn. If always the same ones were asked, others would be left out, and
    /// some of those may be what the same ones wait for.
    again: Option<Place>,
}

/// A question's partition, and the version's site and stamp.
type Place = (u16, ReplicaId, Hlc);

struct Question {
    key: Key,
    /// When its server was last asked.
    asked: Option<Micros>,
    waiting: Waiting,
}

/// What waits for a version.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Versions here that depend on it.
    pub versions: Vec<At>,
    /// Servers that have asked, because versions there depend on it.
    pub servers: Vec<ServerId>,
    /// Whether requests are parked for it.
    pub requests: bool,
}

impl Questions {
    /// The number of versions that are waited for.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether a version is waited for.
    pub fn is_open(&self, partition: u16, (replica, at): At) -> bool {
        self.open.contains_key(&(partition, replica, at))
    }

    fn question(&mut self, partition: u16, key: &Key, (replica, at): At) -> &mut Question {
        self.open
            .entry((partition, replica, at))
            .or_insert_with(|| Question {
                key: key.compact(),
                asked: None,
                waiting: Waiting::default(),
            })
    }

    /// A version here waits for another one. Returns false if the same list of dependencies has named it already.
    pub fn await_version(&mut self, partition: u16, key: &Key, needed: VersionId, version: At) -> bool {
        let waiting = &mut self.question(partition, key, at_of(needed)).waiting;
        let is_new = waiting.versions.last() != Some(&version);
        if is_new {
            waiting.versions.push(version);
        }
        is_new
    }

    /// A server waits for a version here.
    pub fn await_server(&mut self, partition: u16, key: &Key, id: VersionId, server: ServerId) {
        let waiting = &mut self.question(partition, key, at_of(id)).waiting;
        if !waiting.servers.contains(&server) {
            waiting.servers.push(server);
        }
    }

    /// A request is parked for a version of this partition.
    pub fn await_request(&mut self, partition: u16, key: &Key, at: At) {
        self.question(partition, key, at).waiting.requests = true;
    }

    /// Whether its server must be asked now: it was not asked before, or `retry` ago or earlier. It counts as asked now.
    pub fn must_ask(&mut self, partition: u16, (replica, at): At, now: Micros, retry: Micros) -> bool {
        let Some(question) = self.open.get_mut(&(partition, replica, at)) else {
            return false;
        };
        let is_due = question.asked.is_none_or(|asked| now.since(asked) >= retry);
        if is_due {
            question.asked = Some(now);
        }
        is_due
    }

    /// At most `max` versions, in turn, whose servers were asked `retry` ago or earlier. They count as asked now.
    pub fn old(&mut self, now: Micros, retry: Micros, max: usize) -> Vec<(u16, Dependency)> {
        let is_due = |question: &Question| {
            let is_due = question.asked.is_some_and(|asked| now.since(asked) >= retry);
            is_due && !question.waiting.versions.is_empty()
        };
        let after = self.again.map_or(Bound::Unbounded, Bound::Excluded);
        let until = self
            .again
            .map_or(Bound::Excluded((0, ReplicaId(0), Hlc::ZERO)), Bound::Included);
        let rest = self.open.range((after, Bound::Unbounded));
        let in_turn = rest.chain(self.open.range((Bound::Unbounded, until)));
        let due = in_turn.filter(|(_, question)| is_due(question));
        let places: Vec<Place> = due.take(max).map(|(&place, _)| place).collect();
        self.again = places.last().copied().or(self.again);
        let again = places.into_iter().filter_map(|place @ (partition, replica, at)| {
            let question = self.open.get_mut(&place)?;
            question.asked = Some(now);
            Some((partition, (question.key.clone(), VersionId { at, replica })))
        });
        again.collect()
    }

    /// The version is visible: returns what waited for it.
    pub fn answer(&mut self, partition: u16, (replica, at): At) -> Waiting {
        let question = self.open.remove(&(partition, replica, at));
        question.map(|question| question.waiting).unwrap_or_default()
    }

    /// The versions of a site in a partition that are waited for, up to a time.
    pub fn below(&self, partition: u16, replica: ReplicaId, until: Hlc) -> Vec<At> {
        let range = (partition, replica, Hlc::ZERO)..=(partition, replica, until);
        self.open
            .range(range)
            .map(|(&(_, replica, at), _)| (replica, at))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn everything_is_asked_again_in_its_turn() {
        let mut questions = Questions::default();
        let key = Key(Bytes::from_static(b"k"));
        let retry = Micros(10);
        for at in 1..=5 {
            let needed = VersionId {
                at: Hlc(at),
                replica: ReplicaId(1),
            };
            questions.await_version(0, &key, needed, (ReplicaId(1), Hlc(9)));
            questions.must_ask(0, at_of(needed), Micros(0), retry);
        }
        let mut asked = |now| -> Vec<u64> {
            let again = questions.old(Micros(now), retry, 2);
            again.into_iter().map(|(_, (_, id))| id.at.0).collect()
        };
        assert!(asked(9).is_empty(), "that is not long ago");
        assert_eq!(asked(20), [1, 2]);
        assert_eq!(asked(30), [3, 4]);
        assert_eq!(asked(40), [5, 1]);
        assert_eq!(asked(45), [2, 3]);
        assert_eq!(asked(45), [4]);
    }
}
