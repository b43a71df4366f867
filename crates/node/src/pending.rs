//! What has arrived over a link and waits for its turn: in order, and bounded.
//!
//! A stream's source stops a window ahead of its acknowledgement, so more than that is refused. What a peer gives back has no
//! window: while much of it waits, the driver does not read from links ([`crate::Node::wants_frames`]).
use bytes::Bytes;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use turnbuckle_core::{BadFrame, Key, Protocol, Recovered, Version};
use turnbuckle_replication::StreamPosition;

/// Something that arrived in stream order.
pub(crate) enum Item<P: Protocol> {
    /// An entry.
    Entry {
        key: Key,
        version: Version<P::Meta>,
        encoded: Bytes,
        /// Where it stands in the stream: the position advances with each entry, so that it is never behind what is in the store.
        at: StreamPosition,
    },
    /// All entries up to here have been handed on.
    Reached(StreamPosition),
    /// A mark; its entries came before it.
    Mark(P::Message),
    /// A version of our own that we lost and get back.
    Returned { key: Key, version: Version<P::Meta> },
    /// That was all, and the stream to that peer goes on from here. What may have replaced the versions that were not given back.
    ReturnedEnd(Recovered),
}

/// What an item costs beside its bytes.
const ITEM_BYTES: usize = 128;

impl<P: Protocol> Item<P> {
    fn is_returned(&self) -> bool {
        matches!(self, Item::Returned { .. } | Item::ReturnedEnd(_))
    }

    fn bytes(&self) -> usize {
        let carried = match self {
            Item::Entry { encoded, .. } => encoded.len(),
            Item::Returned { key, version } => key.0.len() + version.value.as_ref().map_or(0, Bytes::len),
            Item::Reached(_) | Item::Mark(_) | Item::ReturnedEnd(_) => 0,
        };
        ITEM_BYTES + carried
    }
}

/// The queue of one peer's items.
pub(crate) struct Pending<P: Protocol> {
    items: VecDeque<Item<P>>,
    /// Of the stream alone.
    stream_bytes: usize,
    most_stream_bytes: usize,
    /// Given back by all peers to all lanes of the node.
    returned_bytes: Arc<AtomicUsize>,
}

impl<P: Protocol> Pending<P> {
    /// A queue for a stream with this window.
    pub fn new(window_bytes: usize, returned_bytes: Arc<AtomicUsize>) -> Pending<P> {
        Pending {
            items: VecDeque::new(),
            stream_bytes: 0,
            // A source counts otherwise, and one entry may be larger than its window.
            most_stream_bytes: 16 * window_bytes + (1 << 30),
            returned_bytes,
        }
    }

    pub fn front(&self) -> Option<&Item<P>> {
        self.items.front()
    }

    /// The keys of the next items.
    pub fn next_keys(&self, items: usize) -> impl DoubleEndedIterator<Item = &Key> {
        let next = self.items.range(..items.min(self.items.len()));
        next.filter_map(|item| match item {
            Item::Entry { key, .. } | Item::Returned { key, .. } => Some(key),
            Item::Mark(_) | Item::Reached(_) | Item::ReturnedEnd(_) => None,
        })
    }

    pub fn pop(&mut self) -> Option<Item<P>> {
        let item = self.items.pop_front()?;
        self.forget(&item);
        Some(item)
    }

    /// # Errors
    /// If the source is further ahead than any source goes.
    pub fn push(&mut self, item: Item<P>) -> Result<(), BadFrame> {
        if self.stream_bytes > self.most_stream_bytes {
            let found = format!("{} bytes that wait", self.stream_bytes);
            return Err(BadFrame::new("a source that keeps to its window", found));
        }
        // The newest mark says all that those before it say: a stream that is held does not pile them up.
        if let (Item::Mark(_), Some(Item::Mark(_))) = (&item, self.items.back()) {
            self.items.pop_back();
        } else if item.is_returned() {
            self.returned_bytes.fetch_add(item.bytes(), Relaxed);
        } else {
            self.stream_bytes += item.bytes();
        }
        self.items.push_back(item);
        Ok(())
    }

    /// Drops what came by the stream, and keeps what was given back.
    pub fn drop_stream(&mut self) {
        self.items.retain(Item::is_returned);
        self.stream_bytes = 0;
    }

    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    fn forget(&mut self, item: &Item<P>) {
        if item.is_returned() {
            self.returned_bytes.fetch_sub(item.bytes(), Relaxed);
        } else {
            self.stream_bytes -= item.bytes();
        }
    }
}
