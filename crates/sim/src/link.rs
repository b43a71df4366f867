//! A connection between two nodes.
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use turnbuckle_core::Micros;
use turnbuckle_node::MAX_FRAME_BYTES;

/// The two ends of a connection, and what travels on it. End 0 is the node with the smaller number.
#[derive(Default)]
pub(crate) struct Link {
    /// The number of this connection: everything that was on an earlier one is gone.
    pub life: u64,
    /// Whether the connection is broken, or was never made: then nothing new gets on it.
    pub broken: bool,
    /// Whether each end still believes that the connection is up.
    pub up: [bool; 2],
    /// What travels from each end to the other.
    pub ways: [Way; 2],
    /// The roads under the connection, from each end to the other. They outlive the connection.
    pub roads: [Road; 2],
    /// Whether a new connection is being tried.
    pub trying: bool,
}

/// One direction of a connection.
#[derive(Default)]
pub(crate) struct Way {
    pub chunks: VecDeque<Chunk>,
    pub bytes: usize,
    /// The number of last chunks that do not travel: the road was cut before them.
    pub stuck: usize,
    /// No chunk arrives before this time: a connection keeps its order.
    pub last_arrival: Micros,
    /// By this time everything has arrived that was sent while the road was slower than usual.
    pub slow_until: Micros,
    /// The wire is busy with what was sent until this time.
    pub busy_until: Micros,
    /// Whether the node had more than the connection took.
    pub more: bool,
    /// Whether the node is about to be asked for frames.
    pub due: bool,
    /// The first half of what the node was asked for.
    pub begun: Option<BytesMut>,
    /// Whether the node has had something new since then.
    pub woken: bool,
}

/// Frames that travel together.
pub(crate) struct Chunk {
    pub bytes: Bytes,
    /// The indexes of its frames in the log of messages, if there is one.
    pub logged: Vec<usize>,
}

/// The state of one direction that faults may change, whichever connection uses it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Road {
    /// Nothing gets through.
    pub cut: bool,
    /// The delay, in percent of the usual.
    pub slow_percent: u64,
    /// The additional number of frames, of a million that may be lost, that are lost.
    pub loss_ppm: u64,
}

impl Default for Road {
    fn default() -> Road {
        Road {
            cut: false,
            slow_percent: 100,
            loss_ppm: 0,
        }
    }
}

/// The number of bytes that a connection holds in each direction.
pub(crate) const WAY_BYTES: usize = 256 << 10;

impl Link {
    pub fn new() -> Link {
        Link {
            broken: true,
            ..Link::default()
        }
    }

    /// Whether no connection can be made: it needs both directions.
    pub fn is_cut(&self) -> bool {
        self.roads.iter().any(|road| road.cut)
    }
}

/// The frames of a chunk, without their lengths.
pub(crate) fn frames(mut chunk: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let header = chunk.first_chunk::<4>()?;
        let len = u32::from_be_bytes(*header) as usize;
        chunk.advance(4);
        assert!(chunk.len() >= len, "a node fills whole frames into a chunk");
        assert!(len <= MAX_FRAME_BYTES, "a peer refuses a frame of {len} bytes");
        Some(chunk.split_to(len))
    })
}

/// Appends a frame to `out`, with its length in front.
pub(crate) fn put_frame(frame: &[u8], out: &mut BytesMut) {
    let len = u32::try_from(frame.len()).expect("frames are far below 4 GiB");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(frame);
}
