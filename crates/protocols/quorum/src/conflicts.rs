//! What becomes of writes that did not know of each other. A quorum keyspace is of one of two kinds, which share everything else: here the last writer
//! wins, and in `siblings.rs` all such writes are kept.
use crate::{
    Body, Copies, QuorumConfig,
    config::{BUGS, PARAMETERS},
    message::{Read, Stored, name_of, named_in},
    session::{ALL_READS, ALL_WRITES},
};
use turnbuckle_core::{
    Bug, Chain, Descriptor, Hlc, Levels, Meta, Parameter, PlainRequest, PlainResponse, PutOptions, ReplicaId,
    Replication, Version, VersionId, VersionRecord,
};

/// The chain of a key, if the key has a version.
pub(crate) type Here<'a, C> = Option<&'a Chain<<C as Conflicts>::Meta>>;

/// What a replica knows of a key, and versions of the key, the oldest first.
pub(crate) type Found<C> = (<C as Conflicts>::Known, Vec<Version<<C as Conflicts>::Meta>>);

/// What becomes of writes that did not know of each other.
pub trait Conflicts: Sized + Send + 'static {
    /// What is kept with each version.
    type Meta: Meta;
    /// What a replica knows of a key: enough to tell which versions it lacks.
    type Known: Clone + Default + PartialEq + Send;

    /// The protocol's properties.
    const DESCRIPTOR: Descriptor;
    /// The levels.
    const LEVELS: Levels;
    /// The parameters.
    const PARAMETERS: &'static [Parameter<QuorumConfig>];
    /// The bugs that can be planted.
    const BUGS: &'static [Bug];

    /// The metadata of a version that is about to be written, and that this number of replicas must store.
    ///
    /// # Errors
    /// If the key would then have more than it may have.
    fn meta(
        config: &QuorumConfig,
        here: Here<'_, Self>,
        request: &PlainRequest,
        copies: u8,
    ) -> Result<Self::Meta, String>;

    /// The number of replicas that must store a version.
    fn copies(meta: &Self::Meta) -> Copies;

    /// Whether a delete with these options finds nothing to delete. What was stamped up to `shown` has reached every replica.
    fn deletes_nothing(here: Here<'_, Self>, options: Option<&PutOptions>, shown: Hlc) -> bool;

    /// What this replica knows of a key.
    fn known(here: Here<'_, Self>) -> Self::Known;

    /// Whether a replica that knows this has a version, or something that replaces it.
    fn covers(known: &Self::Known, id: VersionId) -> bool;

    /// Adds versions that an answer brought to those of earlier answers, as far as they are needed.
    fn gather(brought: &mut Vec<Version<Self::Meta>>, more: Vec<Version<Self::Meta>>);

    /// The versions here that a replica which knows this lacks, the oldest first.
    fn lacking<'a>(
        here: Here<'a, Self>,
        known: &Self::Known,
    ) -> impl Iterator<Item = &'a Version<Self::Meta>>;

    /// A question about a key, of a replica that knows this.
    fn question(key: bytes::Bytes, known: &Self::Known) -> Read;

    /// The answer to a question.
    fn answer(config: &QuorumConfig, here: Here<'_, Self>, question: &Read) -> Body;

    /// What an answer says: what the other replica knows, and the versions that this one lacks, the oldest first. `None` if it is no answer.
    fn found(body: Body) -> Option<Found<Self>>;

    /// A version as it is sent.
    fn stored(version: &Version<Self::Meta>) -> Stored;

    /// A version that was sent. `None` if it is none.
    fn version(stored: Stored) -> Option<Version<Self::Meta>>;

    /// Whether answers about this key say that it has siblings.
    fn has_siblings(here: Here<'_, Self>) -> bool;

    /// The answer to a read.
    fn response(config: &QuorumConfig, here: Here<'_, Self>, request: &PlainRequest) -> PlainResponse;
}

/// Of two writes, the one with the higher timestamp replaces the other one.
#[derive(Debug, Clone, Copy)]
pub struct LastWriterWins;

/// The properties that both kinds have.
pub(crate) const DESCRIPTOR: Descriptor = Descriptor {
    max_members: ReplicaId::MAX_MEMBERS,
    leaves_sites_out: true,
    tolerates_clock_steps: true,
    ..Descriptor::of(Replication::Streams)
};

impl Conflicts for LastWriterWins {
    type Meta = Copies;
    type Known = VersionId;

    const DESCRIPTOR: Descriptor = DESCRIPTOR;
    const LEVELS: Levels = Levels {
        reads: ALL_READS,
        writes: ALL_WRITES,
    };
    const PARAMETERS: &'static [Parameter<QuorumConfig>] = PARAMETERS;
    const BUGS: &'static [Bug] = BUGS;

    fn meta(_: &QuorumConfig, _: Here<'_, Self>, _: &PlainRequest, copies: u8) -> Result<Copies, String> {
        Ok(Copies(copies))
    }

    fn copies(meta: &Copies) -> Copies {
        *meta
    }

    fn deletes_nothing(here: Here<'_, Self>, _: Option<&PutOptions>, _: Hlc) -> bool {
        here.is_none_or(|chain| chain.newest().content.is_delete())
    }

    fn known(here: Here<'_, Self>) -> VersionId {
        here.map(|chain| chain.newest().id).unwrap_or_default()
    }

    fn covers(known: &VersionId, id: VersionId) -> bool {
        id.stamp() <= known.stamp()
    }

    fn gather(brought: &mut Vec<Version<Copies>>, more: Vec<Version<Copies>>) {
        let newest = |versions: &[Version<Copies>]| versions.first().map(Version::rank);
        if newest(&more) > newest(brought) {
            *brought = more;
        }
    }

    fn lacking<'a>(here: Here<'a, Self>, known: &VersionId) -> impl Iterator<Item = &'a Version<Copies>> {
        let newest = here.map(Chain::newest);
        newest
            .filter(|newest| !Self::covers(known, newest.id))
            .into_iter()
    }

    fn question(key: bytes::Bytes, known: &VersionId) -> Read {
        Read {
            key,
            newest: name_of(*known),
            context: Vec::new(),
        }
    }

    fn answer(_: &QuorumConfig, here: Here<'_, Self>, question: &Read) -> Body {
        let known = named_in(&question.newest);
        match Self::lacking(here, &known).next() {
            Some(newer) => Body::Newer(Self::stored(newer)),
            None => Body::Older(name_of(Self::known(here))),
        }
    }

    fn found(body: Body) -> Option<Found<Self>> {
        match body {
            Body::Newer(stored) => {
                let version = Self::version(stored)?;
                Some((version.id, vec![version]))
            }
            Body::Older(found) => Some((named_in(&found), Vec::new())),
            _ => None,
        }
    }

    fn stored(version: &Version<Copies>) -> Stored {
        stored_of(version, version.meta, Vec::new())
    }

    fn version(stored: Stored) -> Option<Version<Copies>> {
        let meta = Copies(stored.copies as u8);
        let Version { id, content, .. } = stored.version.version()?;
        Some(Version { id, content, meta })
    }

    fn has_siblings(_: Here<'_, Self>) -> bool {
        false
    }

    fn response(_: &QuorumConfig, here: Here<'_, Self>, _: &PlainRequest) -> PlainResponse {
        PlainResponse::Value(here.and_then(|chain| chain.newest().content.stored().cloned()))
    }
}

/// A version as it is sent.
pub(crate) fn stored_of<M>(
    version: &Version<M>,
    copies: Copies,
    replaces: Vec<crate::message::Entry>,
) -> Stored {
    let (id, content, meta) = (version.id, version.content.clone(), ());
    Stored {
        version: VersionRecord::new(Some(&Version { id, content, meta })),
        copies: u32::from(copies.0),
        replaces,
    }
}
