//! # Siblings: writes that did not know of each other are all kept
//!
//! In a keyspace where the last writer wins, one of two concurrent writes is lost, and nobody is told. Here both are kept, as *siblings*, until a client
//! that has read both writes what replaces them. Dynamo's shopping cart is the classic example.
//!
//! **Causal context.** Each version has one: for each replica, a timestamp. The version replaces those versions of its key which the context *covers*:
//! stamped by that replica up to that timestamp. The version itself is a *dot*, its timestamp and its replica, beside its context. A chain keeps the versions
//! that no other one replaces ([`Chain::insert`]). These are dotted version vectors, with timestamps of a hybrid clock in place of counters.
//!
//! ```text
//!   put x=1 at a                    {x@a5 replaces: -}
//!   siblings x at b, at c    ->     context a5: "1"
//!   put x=2 at b, context a5        {x@b7 replaces: a5}               x@a5 is gone
//!   put x=3 at c, context a5        {x@b7, x@c8 replaces: a5}         two siblings
//!   siblings x               ->     context a5 b7 c8: "3", "2"
//!   put x=23, context a5 b7 c8      {x@a9 replaces: a5 b7 c8}         one version again
//! ```
//!
//! **What a write replaces.** A write that names a context replaces what the context covers, and nothing else. A write that names none replaces what
//! its coordinator has. So clients that never ask for siblings see a store in which the last writer wins, but two writes that meet at different coordinators
//! at the same moment leave siblings.
//!
//! **What a plain read shows.** The newest of the siblings: what would be there if the last writer won. The receipt says that there are siblings. If the
//! newest one is a delete, a plain read shows nothing.
//!
//! **Why a context may cover a range.** A context that says `a7` covers everything that replica a stamped for the key up to then, also what its reader has not
//! seen. That is sound because no replica has a gap: if it has a version of a, it has all earlier versions of a, or versions that replace them. Streams
//! keep that order, an answer and a repair have all versions that the other replica lacks, and a row of a full copy comes as a whole. There are two exceptions.
//! A version at `one` that a power loss took may come back after its replica has stamped newer ones. And if several peers fill a lost directory, they may send
//! back two siblings in the wrong order, and the link to a third replica may break between the two.
//!
//! **Deletes** are versions without a value, and may be siblings. One is listed only if it is the newest version. Deletes are forgotten once every replica
//! shows them, but not while the key has a value beside them.
//!
//! **Limits.** A coordinator refuses a write that would leave `max_siblings` versions beside it, or values of more than [`MAX_BYTES`].
//! Each coordinator knows only of what has reached it, so there can be up to that many for each replica. If they are too large for one answer, reads that need
//! other replicas fail, until a write replaces them.
//!
//! **Whole contexts only.** If z replaces y, and y had replaced x, then z must replace x, too:
//!
//! ```text
//!   z replaces y alone.   a receives x, y, z:   {x} {y} {z}
//!                         b receives z, x, y:   {z} {z x} {z x}      y is not taken, because z is there. So b keeps x
//! ```
//!
//! The context of an answer is whole: it has the contexts of all versions that it covers. A part of it, or one that is made up, is not. So clients get contexts
//! signed for their key ([`turnbuckle_core::TokenHeader::seal_context`]), and the gateway takes no others.
//!
//! **Sources.** DeCandia et al.: *Dynamo*, SOSP 2007, 4.4. Preguiça, Baquero, Almeida, Fonte, Gonçalves: *Dotted version vectors*, 2010 (arXiv
//! 1011.5808). The rule for plain reads is CouchDB's.
use crate::{
    Body, Copies, QuorumConfig,
    config::{SIBLINGS_BUGS, SIBLINGS_PARAMETERS},
    conflicts::{self, Conflicts, DESCRIPTOR, Here, stored_of},
    message::{Found, Read, Stored, context_in, entries_of, name_of},
    session::{READS_OF_ANY, WRITES_OF_ANY},
};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use turnbuckle_core::{
    BadFrame, Bug, Chain, Descriptor, Hlc, Levels, Meta, Parameter, PlainRequest, PlainResponse, PutOptions,
    ReplicaSet, Siblings, Vector, Version, VersionId, Wire,
};

/// What the siblings beside a new version may have, in bytes.
pub const MAX_BYTES: usize = 8 << 20;

/// What the versions in one answer to another replica may have, in bytes.
const MAX_ANSWER_BYTES: usize = 96 << 20;

/// Writes that did not know of each other are all kept.
#[derive(Debug, Clone, Copy)]
pub struct KeepSiblings;

/// What is kept with a version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dotted {
    /// The number of replicas that must store it.
    pub copies: Copies,
    /// The causal context: what it replaces.
    pub replaces: Vector,
}

impl Meta for Dotted {
    const SIBLINGS: bool = true;

    fn replaces(&self, other: VersionId) -> bool {
        self.replaces.covers_id(other)
    }
}

impl Wire for Dotted {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(self.copies.0);
        self.replaces.put(out);
    }

    fn decode(mut frame: Bytes) -> Result<Dotted, BadFrame> {
        const WHAT: &str = "a number of copies and a causal context";
        let copies = Copies(frame.try_get_u8().map_err(|_| BadFrame::new(WHAT, "nothing"))?);
        let replaces = Vector::take(&mut frame)?;
        match frame.is_empty() {
            true => Ok(Dotted { copies, replaces }),
            false => Err(BadFrame::new(WHAT, "more")),
        }
    }

    fn newest(&self) -> Hlc {
        self.replaces.newest()
    }

    fn replicas(&self) -> ReplicaSet {
        self.replaces.replicas()
    }

    fn heap_bytes(&self) -> usize {
        self.replaces.heap_bytes()
    }
}

fn bytes_of<'a>(versions: impl Iterator<Item = &'a Version<Dotted>>) -> usize {
    versions
        .map(|version| version.content.stored().map_or(0, Bytes::len))
        .sum()
}

fn all(here: Here<'_, KeepSiblings>) -> impl Iterator<Item = &Version<Dotted>> {
    here.into_iter().flat_map(Chain::iter)
}

impl Conflicts for KeepSiblings {
    type Meta = Dotted;
    type Known = Vector;

    const DESCRIPTOR: Descriptor = Descriptor {
        keeps_siblings: true,
        ..DESCRIPTOR
    };
    const LEVELS: Levels = Levels {
        reads: READS_OF_ANY,
        writes: WRITES_OF_ANY,
    };
    const PARAMETERS: &'static [Parameter<QuorumConfig>] = SIBLINGS_PARAMETERS;
    const BUGS: &'static [Bug] = SIBLINGS_BUGS;

    fn meta(
        config: &QuorumConfig,
        here: Here<'_, Self>,
        request: &PlainRequest,
        copies: u8,
    ) -> Result<Dotted, String> {
        let named = match request {
            PlainRequest::Put(_, _, _, Some(options)) => options.replaces.clone(),
            _ => None,
        };
        let replaces = match named {
            Some(context) if config.bugs.replaces_unseen => context.merged(&Self::known(here)),
            Some(context) => context,
            None => Self::known(here),
        };
        let beside = || all(here).filter(|version| !replaces.covers_id(version.id));
        let count = beside().count();
        let how = "read them with SIBLINGS, and write what replaces them";
        if count >= config.max_siblings {
            return Err(format!(
                "the key has {count} versions that this write does not replace, and max_siblings is {}: {how}",
                config.max_siblings
            ));
        }
        let bytes = bytes_of(beside());
        if bytes > MAX_BYTES {
            return Err(format!(
                "the key has siblings of {bytes} bytes that this write does not replace, and {MAX_BYTES} are allowed: {how}"
            ));
        }
        let copies = Copies(copies);
        Ok(Dotted { copies, replaces })
    }

    fn copies(meta: &Dotted) -> Copies {
        meta.copies
    }

    fn deletes_nothing(here: Here<'_, Self>, options: Option<&PutOptions>, shown: Hlc) -> bool {
        match options.and_then(|options| options.replaces.as_ref()) {
            None => all(here).all(|version| version.content.is_delete()),
            // What it covers and is not here may be on its way.
            Some(context) => {
                let is_covered = |version: &Version<Dotted>| context.covers_id(version.id);
                let has_value = |version: &Version<Dotted>| !version.content.is_delete();
                let known = Self::known(here);
                let is_known = |(replica, at)| at <= known.at(replica).max(shown);
                context.entries().all(is_known)
                    && !all(here).any(|version| is_covered(version) && has_value(version))
            }
        }
    }

    fn known(here: Here<'_, Self>) -> Vector {
        let mut known = Vector::ZERO;
        for version in all(here) {
            known.merge(&version.meta.replaces);
            known.raise(version.id.replica, version.id.at);
        }
        known
    }

    fn covers(known: &Vector, id: VersionId) -> bool {
        known.covers_id(id)
    }

    fn gather(brought: &mut Vec<Version<Dotted>>, more: Vec<Version<Dotted>>) {
        let is_new = |version: &Version<Dotted>| !brought.iter().any(|held| held.id == version.id);
        let more: Vec<_> = more.into_iter().filter(is_new).collect();
        brought.extend(more);
    }

    fn lacking<'a>(here: Here<'a, Self>, known: &Vector) -> impl Iterator<Item = &'a Version<Dotted>> {
        let mut lacking: Vec<_> = all(here)
            .filter(|version| !Self::covers(known, version.id))
            .collect();
        lacking.reverse();
        lacking.into_iter()
    }

    fn question(key: Bytes, known: &Vector) -> Read {
        Read {
            key,
            newest: name_of(VersionId::default()),
            context: entries_of(known),
        }
    }

    fn answer(config: &QuorumConfig, here: Here<'_, Self>, question: &Read) -> Body {
        let lacking: Vec<_> = Self::lacking(here, &context_in(&question.context)).collect();
        let bytes = bytes_of(lacking.iter().copied());
        if bytes > MAX_ANSWER_BYTES {
            return Body::Declined(format!(
                "the siblings of the key have {bytes} bytes, too many for one answer: write what replaces them"
            ));
        }
        let first = match config.bugs.answers_with_newest {
            true => lacking.len().saturating_sub(1),
            false => 0,
        };
        Body::Found(Found {
            context: entries_of(&Self::known(here)),
            versions: lacking[first..]
                .iter()
                .map(|version| Self::stored(version))
                .collect(),
        })
    }

    fn found(body: Body) -> Option<conflicts::Found<Self>> {
        let Body::Found(found) = body else {
            return None;
        };
        let versions = found.versions.into_iter().filter_map(Self::version);
        Some((context_in(&found.context), versions.collect()))
    }

    fn stored(version: &Version<Dotted>) -> Stored {
        let replaces = entries_of(&version.meta.replaces);
        stored_of(version, version.meta.copies, replaces)
    }

    fn version(stored: Stored) -> Option<Version<Dotted>> {
        let meta = Dotted {
            copies: Copies(stored.copies as u8),
            replaces: context_in(&stored.replaces),
        };
        let Version { id, content, .. } = stored.version.version()?;
        Some(Version { id, content, meta })
    }

    fn has_siblings(here: Here<'_, Self>) -> bool {
        all(here).skip(1).any(|version| !version.content.is_delete())
    }

    fn response(config: &QuorumConfig, here: Here<'_, Self>, request: &PlainRequest) -> PlainResponse {
        match request {
            PlainRequest::Siblings(..) => {
                let versions = all(here).map(|version| (version.id, version.content.stored().cloned()));
                let mut siblings = Siblings::new(Self::known(here), versions);
                if config.bugs.shows_one_sibling {
                    siblings.versions.truncate(1);
                }
                PlainResponse::Siblings(Box::new(siblings))
            }
            _ => PlainResponse::Value(here.and_then(|chain| chain.newest().content.stored().cloned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use turnbuckle_core::{Key, Level, ReplicaId};

    fn id(replica: u16, at: u64) -> VersionId {
        VersionId {
            at: Hlc(at),
            replica: ReplicaId(replica),
        }
    }

    fn version(id: VersionId, replaces: Vector) -> Version<Dotted> {
        let meta = Dotted {
            copies: Copies(1),
            replaces,
        };
        let content = Bytes::from_static(b"v").into();
        Version { id, content, meta }
    }

    fn ids(chain: &Chain<Dotted>) -> BTreeSet<Stamp> {
        chain.iter().map(|version| version.id.stamp()).collect()
    }

    type Stamp = (Hlc, ReplicaId);

    /// What a replica has.
    #[derive(Default)]
    struct Replica {
        chain: Option<Chain<Dotted>>,
        /// How far it is with the stream of each replica.
        read: [usize; 3],
    }

    impl Replica {
        fn take(&mut self, version: Version<Dotted>) {
            match &mut self.chain {
                Some(chain) => drop(chain.insert(version)),
                None => self.chain = Some(Chain::new(version)),
            }
        }
    }

    /// A dumb oracle beside it: the exact set of versions that each version has in its past. Three replicas write, with the context of what some replica
    /// shows or with none, read each other's streams and answers in any order, and must always show the versions that no other one that has
    /// reached them has in its past.
    #[test]
    fn what_is_shown_is_what_no_other_version_has_in_its_past() {
        let mut state = 7_u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for _ in 0..300 {
            let mut replicas: [Replica; 3] = Default::default();
            let mut streams: [Vec<Version<Dotted>>; 3] = Default::default();
            let mut past: BTreeMap<Stamp, BTreeSet<Stamp>> = BTreeMap::new();
            // What has reached each replica.
            let mut reached: [BTreeSet<Stamp>; 3] = Default::default();
            for at in 1..40 {
                let (one, other) = (random(3), random(3));
                match random(4) {
                    0 | 1 => {
                        let shown = replicas[other].chain.as_ref();
                        let known = match random(4) {
                            0 => Vector::ZERO,
                            _ => KeepSiblings::known(shown),
                        };
                        let seen = match known == Vector::ZERO {
                            true => BTreeSet::new(),
                            false => shown.map(ids).unwrap_or_default(),
                        };
                        let mut all = seen.clone();
                        seen.iter().for_each(|seen| all.extend(past[seen].clone()));
                        let id = id(one as u16, at);
                        past.insert(id.stamp(), all);
                        let version = version(id, known);
                        replicas[one].take(version.clone());
                        reached[one].insert(id.stamp());
                        streams[one].push(version);
                    }
                    2 => {
                        let from = replicas[one].read[other];
                        if one != other
                            && let Some(next) = streams[other].get(from).cloned()
                        {
                            replicas[one].read[other] += 1;
                            reached[one].insert(next.id.stamp());
                            replicas[one].take(next);
                        }
                    }
                    _ => {
                        let known = KeepSiblings::known(replicas[one].chain.as_ref());
                        let question = KeepSiblings::question(Bytes::new(), &known);
                        let here = replicas[other].chain.as_ref();
                        let answer = KeepSiblings::answer(&QuorumConfig::default(), here, &question);
                        let (_, versions) = KeepSiblings::found(answer).expect("an answer");
                        let come: BTreeSet<_> = reached[other].clone();
                        reached[one].extend(come);
                        versions
                            .into_iter()
                            .for_each(|version| replicas[one].take(version));
                    }
                }
                for (replica, reached) in replicas.iter().zip(&reached) {
                    let is_replaced = |id: &&Stamp| reached.iter().any(|other| past[other].contains(id));
                    let expected: BTreeSet<_> =
                        reached.iter().filter(|id| !is_replaced(id)).copied().collect();
                    let found = replica.chain.as_ref().map(ids).unwrap_or_default();
                    assert_eq!(found, expected);
                }
            }
        }
    }

    fn put(context: Option<Vector>) -> PlainRequest {
        let options = PutOptions {
            replaces: context,
            ..PutOptions::default()
        };
        let options = Some(Box::new(options));
        PlainRequest::Put(Key::from("k"), Some(Bytes::new()), Level::One, options)
    }

    #[test]
    fn a_write_beside_too_many_siblings_or_too_large_ones_is_refused_and_one_that_replaces_them_is_not() {
        let config = QuorumConfig {
            max_siblings: 2,
            ..QuorumConfig::default()
        };
        let mut chain = Chain::new(version(id(0, 1), Vector::ZERO));
        let meta =
            |chain: &Chain<Dotted>, context| KeepSiblings::meta(&config, Some(chain), &put(context), 1);
        assert!(meta(&chain, Some(Vector::ZERO)).is_ok());
        chain.insert(version(id(1, 2), Vector::ZERO));
        let refused = meta(&chain, Some(Vector::ZERO)).expect_err("they are two");
        assert!(refused.contains("has 2 versions") && refused.contains("max_siblings is 2"));
        assert!(meta(&chain, Some(Vector::of(id(0, 1)))).is_ok());
        assert!(meta(&chain, None).is_ok());
        let large = Version {
            content: Bytes::from(vec![0; MAX_BYTES + 1]).into(),
            ..version(id(0, 3), KeepSiblings::known(Some(&chain)))
        };
        chain.insert(large);
        let refused = meta(&chain, Some(Vector::ZERO)).expect_err("it is too large");
        assert!(refused.contains("8388609 bytes"), "{refused}");
        assert!(meta(&chain, None).is_ok());
    }

    #[test]
    fn what_is_kept_comes_back_as_it_was_and_part_of_it_is_refused() {
        let version = version(id(2, 9), Vector::of(id(1, 7)));
        let sent = KeepSiblings::stored(&version);
        assert_eq!(KeepSiblings::version(sent), Some(version.clone()));
        let mut out = BytesMut::new();
        version.meta.encode(&mut out);
        let bytes = out.freeze();
        assert_eq!(Dotted::decode(bytes.clone()), Ok(version.meta));
        for len in 0..bytes.len() {
            assert!(Dotted::decode(bytes.slice(..len)).is_err());
        }
        let longer: Bytes = [&bytes[..], &[0]].concat().into();
        assert!(Dotted::decode(longer).is_err());
    }
}
