//! What the two nodes of a link must agree on about their keyspaces, and what they may differ in.
//!
//! A keyspace is added to a cluster, or removed from it, by restarting one node after the other with a new configuration. Meanwhile the
//! nodes have different keyspaces. A link serves the keyspaces that both of its nodes have. For every other keyspace the peer counts as
//! away, as if its process did not run: streams wait, the log is kept for the peer, and no delete is forgotten. Requests for the peer's
//! partitions are refused, and the refusal names the keyspace.
//!
//! ```text
//!   a1: carts users          a1 -- b1: carts         users: b1 is away
//!   b1: carts       list     (list: a1 is away)
//! ```
//!
//! A keyspace that both nodes have must be the same on both. If its protocol or its number of partitions differs, one of the two
//! configurations is wrong, and there is no link until that is corrected. The same holds for two keyspaces that frames could not tell
//! apart: frames name a keyspace by the checksum of its name, so that the nodes need not agree on a numbering.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};
use thiserror::Error;
use turnbuckle_core::Members;

/// A keyspace as a node describes it to its peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceTerms {
    /// Its name.
    pub name: String,
    /// The name of its protocol.
    pub protocol: String,
    /// How many partitions it has.
    pub partitions: u32,
    /// How many members a partition has at each site.
    pub members: Members,
    /// The number of sites that hold a replica of each partition. `None`: all sites do.
    pub replica_sites: Option<u32>,
}

impl fmt::Display for KeyspaceTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let partitions = match self.partitions {
            1 => "1 partition".to_string(),
            partitions => format!("{partitions} partitions"),
        };
        write!(f, "protocol {} and {partitions}", self.protocol)?;
        match self.members.numbers() {
            [1] => Ok(()),
            [members] => write!(f, " of {members} members at each site"),
            _ => write!(f, " of {} members, site by site", self.members),
        }?;
        match self.replica_sites {
            None => Ok(()),
            Some(sites) => write!(f, ", each at {sites} of the sites"),
        }
    }
}

/// The keyspaces that a link serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agreement {
    /// The tags of the keyspaces that both nodes have.
    both: BTreeSet<u32>,
    /// The names of the keyspaces that this node has and the peer lacks.
    pub only_here: Vec<String>,
    /// The names of the keyspaces that the peer has and this node lacks.
    pub only_there: Vec<String>,
}

/// Why there can be no link.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Disagreement {
    /// Both nodes have the keyspace, with different terms.
    #[error(
        "expected the keyspace '{name}' with {here}, found it with {there}: one of the two configurations is wrong"
    )]
    Differs {
        /// The keyspace's name.
        name: String,
        /// The keyspace's terms on this node, as text.
        here: String,
        /// The keyspace's terms on the peer, as text.
        there: String,
    },
    /// Two keyspaces with different names have the same checksum.
    #[error(
        "expected keyspaces whose names have different checksums, found '{here}' on this node and '{there}' on the peer: rename one of them"
    )]
    SameTag {
        /// The name of this node's keyspace.
        here: String,
        /// The name of the peer's keyspace.
        there: String,
    },
    /// The peer names this keyspace twice.
    #[error("expected each keyspace once, found '{0}' twice")]
    Twice(String),
}

/// The tag by which frames and records name a keyspace: the CRC-32C of its name.
pub(crate) fn tag_of(name: &str) -> u32 {
    crc32c::crc32c(name.as_bytes())
}

impl Agreement {
    /// What a link between two nodes serves. `mine` are the keyspaces of this node, `theirs` those of the peer.
    ///
    /// # Errors
    /// If both have a keyspace whose terms differ, if two names have the same checksum, or if the peer names a keyspace twice.
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

    /// Whether both nodes have the keyspace with this tag.
    pub(crate) fn has(&self, tag: u32) -> bool {
        self.both.contains(&tag)
    }
}

/// What the nodes differ in, as text for the node's log. Empty if both have the same keyspaces.
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
            members: Members::from(1),
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
