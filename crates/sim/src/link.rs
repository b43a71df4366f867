//! A connection between two nodes.
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use turnbuckle_core::Micros;
use turnbuckle_node::MAX_FRAME_BYTES;

/// The two ends of a connection, and what is on it. End 0 is the node with the smaller number.
#[derive(Default)]
pub(crate) struct Link {
    /// Which connection this is: what was on an earlier one is gone.
    pub life: u64,
    /// It is broken, or was never made: nothing new gets on it.
    pub broken: bool,
    /// Which ends still think that it is up.
    pub up: [bool; 2],
    /// What travels from each end to the other.
    pub ways: [Way; 2],
    /// The roads under the connection, from each end to the other. They outlive it.
    pub roads: [Road; 2],
    /// A new connection is being tried.
    pub trying: bool,
}

/// One direction of a connection.
#[derive(Default)]
pub(crate) struct Way {
    pub chunks: VecDeque<Chunk>,
    pub bytes: usize,
    /// So many of the last chunks do not travel: the road was cut before them.
    pub stuck: usize,
    /// Nothing arrives before this: a connection keeps its order.
    pub last_arrival: Micros,
    /// What was sent over a road slower than usual has arrived by then.
    pub slow_until: Micros,
    /// What was sent is on the wire until then.
    pub busy_until: Micros,
    /// The node had more than the connection took.
    pub more: bool,
    /// The node is about to be asked for frames.
    pub due: bool,
    /// The first half of what it was asked for.
    pub begun: Option<BytesMut>,
    /// It has had something new since then.
    pub woken: bool,
}

/// Frames that travel together.
pub(crate) struct Chunk {
    pub bytes: Bytes,
    /// The places of its frames in the log of messages, if there is one.
    pub logged: Vec<usize>,
}

/// What a fault may do to one direction, whatever connection uses it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Road {
    /// Nothing gets through.
    pub cut: bool,
    /// So many times the usual delay, in percent.
    pub slow_percent: u64,
    /// Of a million frames that may be lost, so many more are.
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

/// How much a connection holds in each direction, in bytes.
pub(crate) const WAY_BYTES: usize = 256 << 10;

impl Link {
    pub fn new() -> Link {
        Link {
            broken: true,
            ..Link::default()
        }
    }

    /// Whether a connection can be made: both directions are needed for it.
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

/// Puts a frame behind others, with its length in front.
pub(crate) fn put_frame(frame: &[u8], out: &mut BytesMut) {
    let len = u32::try_from(frame.len()).expect("frames are far below 4 GiB");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(frame);
}
