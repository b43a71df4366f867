//! What the two nodes of a link must agree on about their keyspaces, and what they may differ in.
//!
//! A keyspace is added to a cluster, or removed from it, by restarting one node after the other with a new configuration. Meanwhile nodes have
//! different keyspaces. A link serves those that both have; for every other keyspace the peer counts as away, as if its process did not run:
//! streams wait, the log is kept for it, no delete is forgotten, and requests for its partitions are refused by name.
//!
//! ```text
//!   a1: carts users          a1 -- b1: carts         users: b1 is away
//!   b1: carts       list     (list: a1 is away)
//! ```
//!
//! What both have must be the same there: a keyspace whose protocol or number of partitions differs is a mistake in one of the two
//! configurations, and there is no link until it is mended. So are two names that frames could not tell apart: frames name a keyspace by the
//! checksum of its name, so that no numbering has to be agreed on.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};
use thiserror::Error;

/// A keyspace, as a node tells others of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceTerms {
    /// Its name.
    pub name: String,
    /// Its protocol's own name.
    pub protocol: String,
    /// How many partitions it has.
    pub partitions: u32,
    /// How many members a partition has at each site.
    pub members: u32,
    /// At how many of the sites each partition stands; `None`: at all.
    pub replica_sites: Option<u32>,
}

impl fmt::Display for KeyspaceTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let partitions = match self.partitions {
            1 => "1 partition".to_string(),
            partitions => format!("{partitions} partitions"),
        };
        write!(f, "protocol {} and {partitions}", self.protocol)?;
        match self.members {
            1 => Ok(()),
            members => write!(f, " of {members} members at each site"),
        }?;
        match self.replica_sites {
            None => Ok(()),
            Some(sites) => write!(f, ", each at {sites} of the sites"),
        }
    }
}

/// What a link serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agreement {
    /// The tags of the keyspaces that both nodes have.
    both: BTreeSet<u32>,
    /// The keyspaces that this node has and the peer lacks, by name.
    pub only_here: Vec<String>,
    /// Those that the peer has and this node lacks.
    pub only_there: Vec<String>,
}

/// Why there can be no link.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Disagreement {
    /// Both have it, and not the same.
    #[error(
        "expected the keyspace '{name}' with {here}, found it with {there}: one of the two configurations is wrong"
    )]
    Differs {
        /// Which.
        name: String,
        /// How it is here.
        here: String,
        /// How it is there.
        there: String,
    },
    /// Two names with one checksum.
    #[error(
        "expected keyspaces whose names have different checksums, found '{here}' here and '{there}' there: rename one of them"
    )]
    SameTag {
        /// The name here.
        here: String,
        /// The name there.
        there: String,
    },
    /// The peer names one twice.
    #[error("expected each keyspace once, found '{0}' twice")]
    Twice(String),
}

/// How frames and records name a keyspace.
pub(crate) fn tag_of(name: &str) -> u32 {
    crc32c::crc32c(name.as_bytes())
}

impl Agreement {
    /// What two nodes can serve each other, `mine` being of this one.
    ///
    /// # Errors
    /// If there is one that both have, and not the same.
    pub fn between(mine: &[KeyspaceTerms], theirs: &[KeyspaceTerms]) -> Result<Agreement, Disagreement> {
        let by_tag: BTreeMap<u32, &KeyspaceTerms> =
            mine.iter().map(|terms| (tag_of(&terms.name), terms)).collect();
        let mut agreement = Agreement::default();
        let mut said = BTreeSet::new();
        for there in theirs {
            if !said.insert(&there.name) {
                return Err(Disagreement::Twice(there.name.clone()));
            }
            let tag = tag_of(&there.name);
            match by_tag.get(&tag).copied() {
                None => agreement.only_there.push(there.name.clone()),
                Some(here) if here.name != there.name => {
                    return Err(Disagreement::SameTag {
                        here: here.name.clone(),
                        there: there.name.clone(),
                    });
                }
                Some(here) if here != there => {
                    return Err(Disagreement::Differs {
                        name: here.name.clone(),
                        here: here.to_string(),
                        there: there.to_string(),
                    });
                }
                Some(_) => drop(agreement.both.insert(tag)),
            }
        }
        let lacked = mine.iter().filter(|here| !said.contains(&here.name));
        agreement.only_here = lacked.map(|here| here.name.clone()).collect();
        Ok(agreement)
    }

    /// Whether both have the keyspace of a tag.
    pub(crate) fn has(&self, tag: u32) -> bool {
        self.both.contains(&tag)
    }
}

/// What differs, for the log: nothing if both have the same.
impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (here, there) = (self.only_here.join(", "), self.only_there.join(", "));
        match (here.is_empty(), there.is_empty()) {
            (true, true) => Ok(()),
            (false, true) => write!(f, "the peer does not have: {here}"),
            (true, false) => write!(f, "this node does not have: {there}"),
            (false, false) => write!(
                f,
                "the peer does not have: {here}; this node does not have: {there}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(name: &str, protocol: &str, partitions: u32) -> KeyspaceTerms {
        KeyspaceTerms {
            name: name.into(),
            protocol: protocol.into(),
            partitions,
            members: 1,
            replica_sites: None,
        }
    }

    #[test]
    fn a_link_serves_what_both_have_in_whichever_order() {
        let mine = [terms("carts", "cops", 2), terms("users", "eventual", 1)];
        let theirs = [terms("list", "eventual", 4), terms("carts", "cops", 2)];
        let agreement = Agreement::between(&mine, &theirs).expect("they agree");
        assert!(agreement.has(tag_of("carts")));
        assert!(!agreement.has(tag_of("users")) && !agreement.has(tag_of("list")));
        assert_eq!(agreement.only_here, ["users"]);
        assert_eq!(agreement.only_there, ["list"]);
        let words = "the peer does not have: users; this node does not have: list";
        assert_eq!(agreement.to_string(), words);
        let same = Agreement::between(&mine, &mine).expect("they are the same");
        assert_eq!(same.to_string(), "");
        let none = Agreement::between(&mine, &[]).expect("nothing is no contradiction");
        assert_eq!(none.only_here, ["carts", "users"]);
    }

    #[test]
    fn a_keyspace_that_differs_is_refused_by_name() {
        let mine = [terms("carts", "cops", 2)];
        for (theirs, found) in [
            (
                terms("carts", "eventual", 2),
                "protocol eventual and 2 partitions",
            ),
            (terms("carts", "cops", 1), "protocol cops and 1 partition:"),
        ] {
            let error = Agreement::between(&mine, &[theirs])
                .expect_err("they differ")
                .to_string();
            let expected = format!(
                "expected the keyspace 'carts' with protocol cops and 2 partitions, found it with {found}"
            );
            assert!(error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn names_that_frames_cannot_tell_apart_are_refused() {
        // Two names with one CRC-32C.
        let (one, other) = same_tag();
        let error = Agreement::between(&[terms(&one, "cops", 2)], &[terms(&other, "cops", 2)]);
        let error = error.expect_err("they cannot be told apart").to_string();
        assert!(error.contains(&one) && error.contains(&other), "{error}");
        let twice = [terms("x", "cops", 2), terms("x", "cops", 2)];
        let error = Agreement::between(&[], &twice).expect_err("it is named twice");
        assert_eq!(error, Disagreement::Twice("x".into()));
    }

    fn same_tag() -> (String, String) {
        let mut seen = BTreeMap::new();
        for number in 0_u32.. {
            let name = format!("k{:08x}", number.wrapping_mul(0x9E37_79B1));
            if let Some(other) = seen.insert(tag_of(&name), name.clone()) {
                return (other, name);
            }
        }
        unreachable!("there are far more names than checksums")
    }
}
