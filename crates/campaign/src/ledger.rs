//! What every key must show in the end: the newest write that was acknowledged, or a newer one.
//!
//! | a site shows | judged as |
//! |---|---|
//! | the newest acknowledged version | right |
//! | a newer one, of a write whose outcome its client does not know | right |
//! | a newer one that no client asked for, or a known one with another value | *invented* |
//! | an older one, whichever client wrote it, or nothing | *lost*; *undeleted*, if the newest acknowledged one is a delete and a value is shown |
//! | something other than the other sites | *different* |
//!
//! A write may be gone if a node acknowledged it and had not handed it on when its data directory was taken away. It is *excused*, and the
//! newest write before it is what must be shown. A write of unknown outcome may be shown, and need not be.
use crate::{Stamp, notes::Loss};
use bytes::Bytes;
use std::collections::BTreeMap;
use turnbuckle_workload::{Octets, Op, Record, Status};

/// A write that was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// The version of the write.
    pub version: Stamp,
    /// The label of the value. `None` for a delete.
    pub value: Option<Octets>,
    /// The node that has it in its directory, if the receipt names it.
    pub node: Option<usize>,
    /// When it was sent, in the recorder's time.
    pub sent_ns: i64,
    /// When it was acknowledged, in the recorder's time.
    pub at_ns: i64,
}

/// Everything that was done to a key.
#[derive(Debug, Clone, Default)]
pub struct Fate {
    /// Acknowledged writes and deletes.
    pub acknowledged: Vec<Acknowledged>,
    /// The labels of writes of unknown outcome; `None` for a delete.
    pub unknown: Vec<Option<Octets>>,
}

/// What a site shows of a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// The value's label.
    pub value: Option<Octets>,
    /// The version, if the receipt names one.
    pub version: Option<Stamp>,
}

/// The kinds of wrong results for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// An acknowledged write is not there.
    Lost,
    /// A deleted key has a value.
    Undeleted,
    /// A value that no client wrote, or that was written in another version.
    Invented,
    /// The sites differ.
    Different,
}

impl Wrong {
    /// A description in words.
    pub fn about(self) -> &'static str {
        match self {
            Wrong::Lost => "an acknowledged write is lost",
            Wrong::Undeleted => "a deleted key is back",
            Wrong::Invented => "a site shows a value that no client wrote as that version",
            Wrong::Different => "sites differ",
        }
    }
}

/// The verdict on a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What is wrong, if anything, with the index of the site that shows it.
    pub wrong: Option<(Wrong, usize)>,
    /// Acknowledged writes that are gone and excused.
    pub excused: Vec<Acknowledged>,
    /// The write that must be shown.
    pub expected: Option<Acknowledged>,
}

/// The keys of one keyspace, with everything that was done to them.
#[derive(Debug, Default)]
pub struct Ledger {
    keys: BTreeMap<Bytes, Fate>,
}

impl Ledger {
    /// Adds a record of a trace.
    pub fn add(&mut self, record: &Record) {
        if !matches!(record.op, Op::Write | Op::Delete) || record.status == Status::Fail {
            return;
        }
        let fate = self.keys.entry(record.key.0.clone()).or_default();
        let version = record.version.as_deref().and_then(|version| version.parse().ok());
        match (record.status, version) {
            (Status::Ok, Some(version)) => {
                let server = record.receipt.as_ref().and_then(|claim| claim.server.as_deref());
                fate.acknowledged.push(Acknowledged {
                    version,
                    value: record.value.clone(),
                    node: server.and_then(crate::cluster::node_of_server),
                    sent_ns: record.start_ns,
                    at_ns: record.finish_ns.unwrap_or(i64::MAX),
                });
            }
            // Without a receipt its place among the other writes is unknown.
            _ => fate.unknown.push(record.value.clone()),
        }
    }

    /// The keys and what was done to them.
    pub fn keys(&self) -> &BTreeMap<Bytes, Fate> {
        &self.keys
    }

    /// From here on only what is shown now counts: the round is over, and its keys are not written any more.
    pub fn rebase(&mut self, key: &Bytes, shown: &Shown) {
        let Some(fate) = self.keys.get_mut(key) else {
            return;
        };
        fate.unknown.clear();
        let newest = fate.acknowledged.drain(..).map(|known| known.version).max();
        let version = match (&shown.version, &shown.value) {
            (Some(version), _) => Some(version.clone()),
            // A delete that is not remembered. If the newest acknowledged write is no delete, that delete was not acknowledged either.
            (None, None) => newest,
            (None, Some(_)) => None,
        };
        fate.acknowledged.extend(version.map(|version| Acknowledged {
            version,
            value: shown.value.clone(),
            node: None,
            sent_ns: i64::MIN,
            at_ns: i64::MIN,
        }));
    }

    /// Forgets a key that was found wrong: it is reported only once.
    pub fn remove(&mut self, key: &Bytes) {
        self.keys.remove(key);
    }

    /// Forgets all keys that are `is_over`.
    pub fn forget(&mut self, is_over: impl Fn(&Bytes) -> bool) {
        self.keys.retain(|key, _| !is_over(key));
    }
}

impl Fate {
    /// Compares what each site shows with what was done.
    pub fn judge(&self, shown: &[Shown], losses: &[Loss]) -> Verdict {
        let mut newest_first: Vec<&Acknowledged> = self.acknowledged.iter().collect();
        newest_first.sort_by(|one, other| other.version.cmp(&one.version));
        let mut excused = Vec::new();
        let mut wrong = None;
        let mut expected = None;
        for candidate in newest_first.into_iter().map(Some).chain([None]) {
            expected = candidate.cloned();
            wrong = self.wrong(shown, candidate);
            let is_gone = matches!(wrong, Some((Wrong::Lost | Wrong::Undeleted, _)));
            match candidate {
                Some(candidate) if is_gone && losses.iter().any(|loss| candidate.is_excused_by(loss)) => {
                    excused.push(candidate.clone());
                }
                _ => break,
            }
        }
        let differs = || {
            let other = shown.iter().position(|site| !site.is_same(&shown[0]))?;
            Some((Wrong::Different, other))
        };
        // A site may have a write that is excused. Then nothing is lost, and the sites must agree on it.
        let wrong = match excused.is_empty() {
            true => wrong.or_else(differs),
            false => differs().or(wrong),
        };
        Verdict {
            wrong,
            excused,
            expected,
        }
    }

    fn wrong(&self, shown: &[Shown], expected: Option<&Acknowledged>) -> Option<(Wrong, usize)> {
        let each = shown.iter().enumerate();
        let mut wrongs = each.filter_map(|(site, shown)| Some((self.wrong_at(shown, expected)?, site)));
        wrongs.next()
    }

    fn wrong_at(&self, shown: &Shown, expected: Option<&Acknowledged>) -> Option<Wrong> {
        let may_be_unknown = || self.unknown.contains(&shown.value);
        let Some(version) = &shown.version else {
            return match (expected, &shown.value) {
                (_, Some(_)) => Some(Wrong::Invented),
                (None, None) => None,
                (Some(expected), None) => {
                    (expected.value.is_some() && !may_be_unknown()).then_some(Wrong::Lost)
                }
            };
        };
        if let Some(known) = self.acknowledged.iter().find(|known| known.version == *version) {
            if known.value != shown.value {
                return Some(Wrong::Invented);
            }
            // It can be newer than what is expected only if it is an excused write. Then it is not gone.
            let is_old = expected.is_some_and(|expected| *version < expected.version);
            return is_old.then(|| gone(expected, shown));
        }
        match expected {
            Some(expected) if *version < expected.version => Some(gone(Some(expected), shown)),
            _ => (!may_be_unknown()).then_some(Wrong::Invented),
        }
    }
}

fn gone(expected: Option<&Acknowledged>, shown: &Shown) -> Wrong {
    match expected {
        Some(expected) if expected.value.is_none() && shown.value.is_some() => Wrong::Undeleted,
        _ => Wrong::Lost,
    }
}

impl Shown {
    /// Whether two sites show the same. A delete need not be remembered everywhere.
    fn is_same(&self, other: &Shown) -> bool {
        self.value == other.value && (self.value.is_none() || self.version == other.version)
    }
}

impl Acknowledged {
    /// Whether the node that acknowledged it lost its directory before it had handed the write on.
    pub fn is_excused_by(&self, loss: &Loss) -> bool {
        self.node == Some(loss.node) && self.at_ns >= loss.from_ns && self.sent_ns <= loss.to_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(text: &str) -> Stamp {
        text.parse().expect("a stamp")
    }

    fn acknowledged(version: &str, value: Option<&str>, node: usize, at_ns: i64) -> Acknowledged {
        Acknowledged {
            version: stamp(version),
            value: value.map(Octets::from),
            node: Some(node),
            sent_ns: at_ns - 1,
            at_ns,
        }
    }

    fn shown(version: &str, value: Option<&str>) -> Shown {
        Shown {
            value: value.map(Octets::from),
            version: (!version.is_empty()).then(|| stamp(version)),
        }
    }

    fn fate() -> Fate {
        Fate {
            acknowledged: vec![
                acknowledged("1.0@a", Some("one"), 0, 10),
                acknowledged("3.0@b", Some("three"), 2, 30),
                acknowledged("2.0@c", None, 4, 20),
            ],
            unknown: vec![Some("maybe".into())],
        }
    }

    fn wrong(fate: &Fate, each: &Shown) -> Option<Wrong> {
        let verdict = fate.judge(&[each.clone(), each.clone()], &[]);
        verdict.wrong.map(|(wrong, _)| wrong)
    }

    #[test]
    fn the_newest_acknowledged_write_must_be_shown_or_a_newer_one_that_somebody_sent() {
        for (version, value, expected) in [
            ("3.0@b", Some("three"), None),
            ("4.0@a", Some("maybe"), None),
            ("1.0@a", Some("one"), Some(Wrong::Lost)),
            ("2.5@a", Some("maybe"), Some(Wrong::Lost)),
            ("2.0@c", None, Some(Wrong::Lost)),
            ("", None, Some(Wrong::Lost)),
            ("3.0@b", Some("one"), Some(Wrong::Invented)),
            ("4.0@a", Some("four"), Some(Wrong::Invented)),
        ] {
            assert_eq!(
                wrong(&fate(), &shown(version, value)),
                expected,
                "{version} {value:?}"
            );
        }
    }

    #[test]
    fn a_deleted_key_may_be_forgotten_and_must_not_come_back() {
        let mut deleted = fate();
        deleted.acknowledged.push(acknowledged("5.0@a", None, 0, 50));
        for (version, value, expected) in [
            ("5.0@a", None, None),
            ("", None, None),
            ("3.0@b", Some("three"), Some(Wrong::Undeleted)),
            ("9.0@b", Some("maybe"), None),
        ] {
            assert_eq!(
                wrong(&deleted, &shown(version, value)),
                expected,
                "{version} {value:?}"
            );
        }
        deleted.unknown.push(None);
        assert_eq!(wrong(&deleted, &shown("", None)), None);
    }

    #[test]
    fn a_delete_of_unknown_outcome_may_have_taken_the_last_value_away() {
        let mut maybe = fate();
        maybe.unknown.push(None);
        assert_eq!(wrong(&maybe, &shown("", None)), None);
    }

    #[test]
    fn sites_that_differ_are_told_apart() {
        let (right, maybe) = (shown("3.0@b", Some("three")), shown("4.0@a", Some("maybe")));
        let verdict = fate().judge(&[right.clone(), right, maybe], &[]);
        assert_eq!(verdict.wrong, Some((Wrong::Different, 2)));
    }

    #[test]
    fn what_a_lost_directory_held_alone_is_excused_and_nothing_else() {
        let old = [shown("1.0@a", Some("one"))];
        let loss = |node, from_ns, to_ns| Loss { node, from_ns, to_ns };
        // The delete at c before it is not excused by the loss of a node of b.
        let verdict = fate().judge(&old, &[loss(2, 25, 40)]);
        assert_eq!(
            (verdict.wrong, verdict.excused.len()),
            (Some((Wrong::Undeleted, 0)), 1)
        );
        let both = [loss(2, 25, 40), loss(4, 15, 40)];
        let verdict = fate().judge(&old, &both);
        assert_eq!((verdict.wrong, verdict.excused.len()), (None, 2));
        // The excused write is at one site all the same: then the other sites must have it, too.
        let newest = shown("3.0@b", Some("three"));
        let verdict = fate().judge(&[old[0].clone(), newest], &both);
        assert_eq!(verdict.wrong, Some((Wrong::Different, 1)));
        // It had been handed on, or another node had it.
        for loss in [loss(2, 31, 40), loss(3, 25, 40), loss(2, 5, 28)] {
            let verdict = fate().judge(&old, &[loss]);
            assert_eq!(
                (verdict.wrong, verdict.excused.len()),
                (Some((Wrong::Lost, 0)), 0)
            );
        }
    }

    #[test]
    fn a_delete_without_an_answer_that_was_done_stays_done() {
        let mut ledger = Ledger::default();
        let key = Bytes::from_static(b"k");
        let mut maybe = fate();
        maybe.unknown.push(None);
        ledger.keys.insert(key.clone(), maybe);
        ledger.rebase(&key, &shown("", None));
        let fate = &ledger.keys()[&key];
        assert_eq!(wrong(fate, &shown("", None)), None);
        assert!(wrong(fate, &shown("3.0@b", Some("three"))).is_some());
        assert_eq!(wrong(fate, &shown("1.0@a", Some("one"))), Some(Wrong::Undeleted));
    }

    #[test]
    fn of_a_round_that_is_over_only_what_is_shown_counts() {
        let mut ledger = Ledger::default();
        let key = Bytes::from_static(b"k");
        ledger.keys.insert(key.clone(), fate());
        ledger.rebase(&key, &shown("4.0@a", Some("maybe")));
        let fate = &ledger.keys()[&key];
        assert_eq!(wrong(fate, &shown("4.0@a", Some("maybe"))), None);
        assert_eq!(wrong(fate, &shown("3.0@b", Some("three"))), Some(Wrong::Lost));
        assert_eq!(wrong(fate, &shown("", None)), Some(Wrong::Lost));
    }
}
