//! A connection between two nodes.
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use turnbuckle_core::Micros;

/// The two ends of a connection, and what is on it. End 0 is the node with the smaller number.
#[derive(Default)]
pub(crate) struct Link {
    /// Somebody wants it down.
    pub cut: bool,
    /// Which connection this is: what was on an earlier one is gone.
    pub life: u64,
    /// It is broken, or was never made: nothing new gets on it.
    pub broken: bool,
    /// Which ends still think that it is up.
    pub up: [bool; 2],
    /// What travels from each end to the other.
    pub ways: [Way; 2],
    /// A new connection is being tried.
    pub trying: bool,
}

/// One direction.
#[derive(Default)]
pub(crate) struct Way {
    pub chunks: VecDeque<Bytes>,
    pub bytes: usize,
    /// Nothing arrives before this: a connection keeps its order.
    pub last_arrival: Micros,
    /// The node had more than the connection took.
    pub more: bool,
    /// The node is about to be asked for frames.
    pub due: bool,
}

/// How much a connection holds in each direction, in bytes.
pub(crate) const WAY_BYTES: usize = 256 << 10;

impl Link {
    pub fn new() -> Link {
        Link {
            broken: true,
            ..Link::default()
        }
    }
}

/// The frames of a chunk, without their lengths.
pub(crate) fn frames(mut chunk: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let header = chunk.first_chunk::<4>()?;
        let len = u32::from_be_bytes(*header) as usize;
        chunk.advance(4);
        assert!(chunk.len() >= len, "a node fills whole frames into a chunk");
        Some(chunk.split_to(len))
    })
}

/// What was filled, to be sent.
pub(crate) fn chunk(filled: BytesMut) -> Option<Bytes> {
    (!filled.is_empty()).then(|| filled.freeze())
}
