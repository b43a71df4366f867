//! The frames that two nodes of a cluster send each other. Prost encodes them: the field tags must survive a rolling upgrade, the types
//! around them are this crate's own.
//!
//! A frame that is wrong ends the link. It is refused in one of these places, in this order: the handshake (`server/src/peer/handshake.rs`), the length
//! (`take_frames` in `server/src/peer.rs`), decoding and the keyspace (`Node::handle_frame`), the servers that it names (`Keyspace::spoken_to`), timestamps,
//! replicas and bodies (`lane/peer.rs`, `lane/receiver.rs`, `lane/copies.rs`, `keyspace/route.rs`), and positions in a stream (the crate `replication`).

use crate::entry::entry_words;
use bytes::{Bytes, BytesMut};
use prost::Message;
use turnbuckle_core::{
    BadFrame, Basis, ConsensusProof, Freshness, Hidden, Level, Micros, Proof, QuorumProof, Receipt,
    RegionalProof, ReplicaSet, Route, ServerId, SiteId, Topology, Vector, VersionId,
};
use turnbuckle_replication::{
    CutFrame, StreamBody, check_places, check_time, cut_from_frames, cut_to_frames, replica_number,
};

/// The version of these frames. A peer with another version is refused in the handshake.
pub const WIRE_VERSION: u32 = 19;

/// The largest frame that one node sends to another, in bytes without the length in front. A larger one is refused. The values that a
/// client may write are far smaller: a write, an answer and a stream entry carry one value and its dependencies.
pub const MAX_FRAME_BYTES: usize = 160 << 20;

/// The size of the length in front of a frame, in bytes.
pub(crate) const HEADER_BYTES: usize = 4;

/// One frame.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Frame {
    /// The keyspace, by its tag.
    #[prost(fixed32, tag = "1")]
    pub keyspace: u32,
    /// The server that sends the frame.
    #[prost(uint64, tag = "2")]
    from: u64,
    /// The server that the frame is for.
    #[prost(uint64, tag = "3")]
    to: u64,
    /// Either `body` or `stream` is set.
    #[prost(oneof = "Body", tags = "4, 5, 6, 16")]
    pub body: Option<Body>,
    #[prost(oneof = "StreamBody", tags = "7, 8, 9, 10, 11, 12, 13, 14, 15")]
    pub stream: Option<StreamBody>,
}

/// The content of a frame that does not belong to a stream.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(
    clippy::large_enum_variant,
    reason = "a frame is moved a few times, and a box would be allocated for each answer"
)]
pub(crate) enum Body {
    /// A request of a session, passed on to another node.
    #[prost(message, tag = "4")]
    Request(RequestFrame),
    /// The answer to a request.
    #[prost(message, tag = "5")]
    Response(ResponseFrame),
    /// A message of a protocol. It may be lost.
    #[prost(bytes = "bytes", tag = "6")]
    Message(Bytes),
    /// A message of a client to a channel. It may be lost.
    #[prost(message, tag = "16")]
    Publication(PublicationFrame),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PublicationFrame {
    #[prost(uint64, tag = "1")]
    pub publisher: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub seen: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub channel: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    pub text: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestFrame {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub body: Bytes,
    /// Set if the request is not for the protocol: keys are to be listed or counted.
    #[prost(message, optional, tag = "3")]
    pub survey: Option<SurveyFrame>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct SurveyFrame {
    #[prost(uint64, tag = "1")]
    pub cursor: u64,
    /// 0: count the keys. Otherwise: list about this number of keys.
    #[prost(uint32, tag = "2")]
    pub count: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseFrame {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub body: Bytes,
    #[prost(message, optional, tag = "3")]
    pub receipt: Option<ReceiptFrame>,
    #[prost(string, optional, tag = "4")]
    pub refused: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub survey: Option<SurveyedFrame>,
    /// Whether a refused request may have taken effect all the same.
    #[prost(bool, tag = "6")]
    pub maybe_done: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SurveyedFrame {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub keys: Vec<Bytes>,
    #[prost(bool, tag = "3")]
    pub counted: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReceiptFrame {
    #[prost(string, tag = "1")]
    asked: String,
    #[prost(string, tag = "2")]
    given: String,
    #[prost(fixed64, optional, tag = "3")]
    version_at: Option<u64>,
    #[prost(uint32, tag = "4")]
    version_site: u32,
    #[prost(uint64, tag = "5")]
    server: u64,
    #[prost(uint64, tag = "6")]
    waited_us: u64,
    #[prost(uint64, optional, tag = "7")]
    staleness_us: Option<u64>,
    #[prost(uint64, tag = "8")]
    clock_bound_us: u64,
    #[prost(bool, tag = "9")]
    siblings: bool,
    #[prost(message, optional, tag = "10")]
    causal: Option<CausalFrame>,
    #[prost(message, optional, tag = "11")]
    quorum: Option<QuorumFrame>,
    #[prost(message, optional, tag = "12")]
    consensus: Option<ConsensusFrame>,
    #[prost(message, optional, tag = "13")]
    regional: Option<RegionalFrame>,
    #[prost(uint64, optional, tag = "14")]
    until_us: Option<u64>,
    #[prost(fixed64, optional, tag = "15")]
    base_at: Option<u64>,
    #[prost(uint32, tag = "16")]
    base_site: u32,
    #[prost(bool, tag = "17")]
    decided_at_site: bool,
}

/// What the replica of a regional keyspace had that answered.
#[derive(Clone, PartialEq, Message)]
struct RegionalFrame {
    #[prost(message, repeated, tag = "1")]
    applied: Vec<CutFrame>,
    #[prost(uint64, tag = "2")]
    at: u64,
    #[prost(uint64, tag = "3")]
    index: u64,
    #[prost(uint32, tag = "4")]
    redirects: u32,
}

impl From<&RegionalProof> for RegionalFrame {
    fn from(proof: &RegionalProof) -> RegionalFrame {
        RegionalFrame {
            applied: cut_to_frames(&proof.applied.entries().collect::<Vec<_>>()),
            at: proof.at.0,
            index: proof.index,
            redirects: proof.redirects,
        }
    }
}

/// A time for each of some replicas, which the partition must have.
fn vector(frames: &[CutFrame], topology: &Topology) -> Result<Vector, BadFrame> {
    let cut = cut_from_frames(frames)?;
    topology.check_replicas(cut.iter().map(|&(replica, _)| replica).collect())?;
    Ok(cut.into_iter().collect())
}

impl RegionalFrame {
    fn decode(&self, topology: &Topology) -> Result<RegionalProof, BadFrame> {
        Ok(RegionalProof {
            applied: vector(&self.applied, topology)?,
            at: Micros(self.at),
            index: self.index,
            redirects: self.redirects,
        })
    }
}

/// The place of an answer of a consensus keyspace, and how it was known to be fresh.
#[derive(Clone, PartialEq, Message)]
struct ConsensusFrame {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
    /// Its place in [`Basis::ALL`].
    #[prost(uint32, tag = "3")]
    basis: u32,
    #[prost(uint32, tag = "4")]
    redirects: u32,
    #[prost(uint32, repeated, tag = "5")]
    held_by: Vec<u32>,
}

impl From<&ConsensusProof> for ConsensusFrame {
    fn from(proof: &ConsensusProof) -> ConsensusFrame {
        ConsensusFrame {
            term: proof.term,
            index: proof.index,
            basis: proof.basis as u32,
            redirects: proof.redirects,
            held_by: numbers(proof.held_by),
        }
    }
}

fn numbers(replicas: ReplicaSet) -> Vec<u32> {
    replicas.iter().map(|replica| replica.0.into()).collect()
}

fn replicas(numbers: &[u32], topology: &Topology) -> Result<ReplicaSet, BadFrame> {
    let numbers = numbers.iter().map(|&number| replica_number(number));
    let replicas: ReplicaSet = numbers.collect::<Result<Vec<_>, _>>()?.into_iter().collect();
    topology.check_replicas(replicas).map(|()| replicas)
}

impl ConsensusFrame {
    fn decode(&self, topology: &Topology) -> Result<ConsensusProof, BadFrame> {
        let basis = Basis::ALL.get(self.basis as usize);
        let bad = || {
            BadFrame::new(
                "what an answer of a consensus keyspace rests on",
                self.basis.to_string(),
            )
        };
        Ok(ConsensusProof {
            term: self.term,
            index: self.index,
            basis: basis.ok_or_else(bad)?.0,
            redirects: self.redirects,
            held_by: replicas(&self.held_by, topology)?,
        })
    }
}

/// How replicas took part in an answer of a quorum keyspace.
#[derive(Clone, PartialEq, Message)]
struct QuorumFrame {
    #[prost(uint32, repeated, tag = "1")]
    asked: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    answered: Vec<u32>,
    #[prost(uint32, tag = "3")]
    covers: u32,
    #[prost(message, optional, tag = "4")]
    freshness: Option<FreshnessFrame>,
}

/// How one replica could answer alone, or why it could not: names replicas, or a staleness, or a cut, or nothing.
#[derive(Clone, PartialEq, Message)]
struct FreshnessFrame {
    #[prost(uint32, repeated, tag = "1")]
    proven: Vec<u32>,
    #[prost(uint64, optional, tag = "2")]
    stale_us: Option<u64>,
    #[prost(fixed64, optional, tag = "3")]
    cut: Option<u64>,
}

impl From<&QuorumProof> for QuorumFrame {
    fn from(quorum: &QuorumProof) -> QuorumFrame {
        QuorumFrame {
            asked: numbers(quorum.asked),
            answered: numbers(quorum.answered),
            covers: quorum.covers.into(),
            freshness: quorum.freshness.as_deref().map(|freshness| FreshnessFrame {
                proven: match freshness {
                    Freshness::Proven(replicas) => numbers(*replicas),
                    _ => Vec::new(),
                },
                stale_us: match freshness {
                    Freshness::Stale(staleness) => Some(staleness.0),
                    _ => None,
                },
                cut: match freshness {
                    Freshness::Cut(cut) => Some(cut.0),
                    _ => None,
                },
            }),
        }
    }
}

impl QuorumFrame {
    fn decode(&self, topology: &Topology) -> Result<QuorumProof, BadFrame> {
        let replicas = |numbers: &[u32]| replicas(numbers, topology);
        let covers = u8::try_from(self.covers).ok().filter(|covers| *covers > 0);
        Ok(QuorumProof {
            asked: replicas(&self.asked)?,
            answered: replicas(&self.answered)?,
            covers: covers.ok_or_else(|| BadFrame::new("a number of replicas", self.covers.to_string()))?,
            freshness: match &self.freshness {
                None => None,
                Some(FreshnessFrame { cut: Some(cut), .. }) => {
                    Some(Box::new(Freshness::Cut(check_time(*cut)?)))
                }
                Some(FreshnessFrame {
                    stale_us: Some(staleness),
                    ..
                }) => Some(Box::new(Freshness::Stale(Micros(*staleness)))),
                Some(FreshnessFrame { proven, .. }) => Some(Box::new(match proven.is_empty() {
                    true => Freshness::Unknown,
                    false => Freshness::Proven(replicas(proven)?),
                })),
            },
        })
    }
}

/// What the receipt of a causal keyspace proves beyond other receipts.
#[derive(Clone, PartialEq, Message)]
struct CausalFrame {
    #[prost(message, repeated, tag = "1")]
    cut: Vec<CutFrame>,
    #[prost(uint32, tag = "2")]
    hidden: u32,
    #[prost(fixed64, optional, tag = "3")]
    hidden_at: Option<u64>,
    #[prost(uint32, tag = "4")]
    hidden_site: u32,
}

impl Frame {
    pub fn new(keyspace: u32, from: ServerId, to: ServerId, body: Body) -> Frame {
        Frame {
            keyspace,
            from: pack(from),
            to: pack(to),
            body: Some(body),
            stream: None,
        }
    }

    /// A frame about a stream.
    pub fn of_stream(keyspace: u32, from: ServerId, to: ServerId, body: StreamBody) -> Frame {
        Frame {
            keyspace,
            from: pack(from),
            to: pack(to),
            body: None,
            stream: Some(body),
        }
    }

    /// Whether an operation may wait for it. All but the frames of streams are about operations.
    pub fn is_awaited(&self) -> bool {
        self.body.is_some()
    }

    pub fn from(&self) -> ServerId {
        unpack(self.from)
    }

    pub fn to(&self) -> ServerId {
        unpack(self.to)
    }

    /// The size of the frame in bytes, without the length in front.
    pub fn len(&self) -> usize {
        self.encoded_len()
    }

    /// Appends the frame with its length in front, as it goes over a link.
    pub fn put(&self, out: &mut BytesMut) {
        let len = self.len();
        out.reserve(HEADER_BYTES + len);
        let len = u32::try_from(len).expect("frames are far below 4 GiB");
        out.extend_from_slice(&len.to_be_bytes());
        self.encode(out).expect("a BytesMut grows");
    }

    /// Decodes a frame, given without its length.
    pub fn parse(bytes: Bytes) -> Result<Frame, BadFrame> {
        let frame =
            Frame::decode(bytes).map_err(|error| BadFrame::new("a frame of a peer", error.to_string()))?;
        check_places(frame.stream.as_ref().map_or([0; 3], StreamBody::places))?;
        Ok(frame)
    }
}

/// A description of a frame, for tools that watch a link or take frames away from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameAbout {
    /// The server that sends the frame.
    pub from: ServerId,
    /// The server that the frame is for.
    pub to: ServerId,
    /// What the frame is, in a few words.
    pub words: String,
    /// Whether it is a protocol's message or a mark, which the seam lets be lost.
    pub may_be_lost: bool,
}

impl FrameAbout {
    /// Describes a frame, given without its length.
    ///
    /// # Errors
    /// If the bytes are not a frame.
    pub fn of(bytes: Bytes) -> Result<FrameAbout, BadFrame> {
        let frame = Frame::parse(bytes)?;
        let (words, may_be_lost) = match (&frame.body, &frame.stream) {
            (Some(Body::Request(_)), _) => ("request".to_string(), false),
            (Some(Body::Response(_)), _) => ("response".to_string(), false),
            (Some(Body::Message(_)), _) => ("message".to_string(), true),
            (Some(Body::Publication(_)), _) => ("message to a channel".to_string(), true),
            (None, Some(body)) => (body.words(entry_words), matches!(body, StreamBody::Mark(_))),
            (None, None) => return Err(BadFrame::new("a frame with a body", "none")),
        };
        Ok(FrameAbout {
            from: frame.from(),
            to: frame.to(),
            words,
            may_be_lost,
        })
    }
}

fn pack(server: ServerId) -> u64 {
    u64::from(server.site.0) << 32 | u64::from(server.partition) << 16 | u64::from(server.member)
}

fn unpack(packed: u64) -> ServerId {
    ServerId {
        site: SiteId((packed >> 32) as u16),
        partition: (packed >> 16) as u16,
        member: packed as u16,
    }
}

impl From<&Receipt> for ReceiptFrame {
    fn from(receipt: &Receipt) -> ReceiptFrame {
        ReceiptFrame {
            asked: receipt.asked.to_string(),
            given: receipt.given.to_string(),
            version_at: receipt.version.map(|id| id.at.0),
            version_site: receipt.version.map_or(0, |id| id.replica.0.into()),
            server: pack(receipt.server),
            waited_us: receipt.waited.0,
            staleness_us: receipt.staleness.map(|bound| bound.0),
            clock_bound_us: receipt.clock_bound.0,
            siblings: receipt.siblings,
            until_us: receipt.until.map(|until| until.0),
            decided_at_site: receipt.decided_at_site,
            base_at: receipt.base.map(|id| id.at.0),
            base_site: receipt.base.map_or(0, |id| id.replica.0.into()),
            quorum: match &receipt.proof {
                Proof::Quorum(quorum) => Some(quorum.into()),
                _ => None,
            },
            consensus: match &receipt.proof {
                Proof::Consensus(proof) => Some(proof.into()),
                _ => None,
            },
            regional: match &receipt.proof {
                Proof::Regional(proof) => Some(proof.into()),
                _ => None,
            },
            causal: match &receipt.proof {
                Proof::Plain | Proof::Quorum(_) | Proof::Consensus(_) | Proof::Regional(_) => None,
                Proof::Causal { cut, hidden } => Some(CausalFrame {
                    cut: cut_to_frames(&cut.entries().collect::<Vec<_>>()),
                    hidden: hidden.versions,
                    hidden_at: hidden.newest.map(|id| id.at.0),
                    hidden_site: hidden.newest.map_or(0, |id| id.replica.0.into()),
                }),
            },
        }
    }
}

impl ReceiptFrame {
    /// Decodes a receipt that came from another node of the site: its route is `Route::Forwarded`.
    pub fn into_forwarded(self, topology: &Topology) -> Result<Receipt, BadFrame> {
        let version = |at: Option<u64>, replica: u32| {
            at.map(|at| {
                let (at, replica) = (check_time(at)?, replica_number(replica)?);
                topology.check_replicas(ReplicaSet::one(replica))?;
                Ok(VersionId { at, replica })
            })
            .transpose()
        };
        let proof = match (self.causal, &self.quorum, &self.consensus, &self.regional) {
            (None, None, None, None) => Proof::Plain,
            (None, None, None, Some(regional)) => Proof::Regional(regional.decode(topology)?),
            (None, None, Some(consensus), _) => Proof::Consensus(consensus.decode(topology)?),
            (None, Some(quorum), ..) => Proof::Quorum(quorum.decode(topology)?),
            (Some(causal), ..) => Proof::Causal {
                cut: vector(&causal.cut, topology)?,
                hidden: Hidden {
                    versions: causal.hidden,
                    newest: version(causal.hidden_at, causal.hidden_site)?,
                },
            },
        };
        let server = unpack(self.server);
        if !topology.contains(server) {
            return Err(BadFrame::new("a receipt of a server", server.to_string()));
        }
        let level = |name: &str| {
            name.parse::<Level>()
                .map_err(|error| BadFrame::new("a level in a receipt", error.found))
        };
        Ok(Receipt {
            asked: level(&self.asked)?.into(),
            given: level(&self.given)?,
            version: version(self.version_at, self.version_site)?,
            base: version(self.base_at, self.base_site)?,
            server,
            route: Route::Forwarded,
            waited: Micros(self.waited_us),
            staleness: self.staleness_us.map(Micros),
            clock_bound: Micros(self.clock_bound_us),
            siblings: self.siblings,
            until: self.until_us.map(Micros),
            decided_at_site: self.decided_at_site,
            proof,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::Hlc;

    #[test]
    fn a_receipt_names_servers_and_sites_that_there_are() {
        let topology = Topology::new(["a", "b", "c"], 2, 1);
        let at = Hlc::LATEST.0;
        let causal = |of_cut: u32, hidden_site: u32| {
            Some(CausalFrame {
                cut: vec![CutFrame {
                    replica: of_cut,
                    until: at,
                }],
                hidden_at: Some(at),
                hidden_site,
                hidden: 1,
            })
        };
        let receipt = ReceiptFrame {
            asked: "eventual".into(),
            given: "eventual".into(),
            version_at: Some(at),
            version_site: 2,
            server: pack(ServerId {
                site: SiteId(2),
                partition: 1,
                member: 0,
            }),
            causal: causal(2, 2),
            ..ReceiptFrame::default()
        };
        assert!(receipt.clone().into_forwarded(&topology).is_ok());
        for replica in [3_u32, 63, 64] {
            let altered = [
                ReceiptFrame {
                    version_site: replica,
                    ..receipt.clone()
                },
                ReceiptFrame {
                    base_at: Some(at),
                    base_site: replica,
                    ..receipt.clone()
                },
                ReceiptFrame {
                    causal: causal(2, replica),
                    ..receipt.clone()
                },
                ReceiptFrame {
                    server: u64::from(replica) << 32,
                    ..receipt.clone()
                },
                ReceiptFrame {
                    causal: causal(replica, 2),
                    ..receipt.clone()
                },
            ];
            for altered in altered {
                assert!(altered.into_forwarded(&topology).is_err(), "site {replica}");
            }
        }
    }
}
