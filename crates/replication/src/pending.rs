//! Items that have arrived over a link and wait for their turn: in order, and bounded.
//!
//! A stream's source stops a window ahead of its acknowledgement, so more than that is refused. What a peer sends back has no window: while too many
//! bytes of it wait, the driver does not read from links.
use crate::StreamPosition;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use turnbuckle_core::{BadFrame, Recovered};

/// Something that arrived in stream order. `E` is what an entry decodes to, `M` a mark.
pub enum Item<E, M> {
    /// An entry.
    Entry {
        /// The entry.
        entry: E,
        /// Its position in the stream. The position advances with each entry, so that it is never behind what is in the store.
        at: StreamPosition,
    },
    /// All entries up to this position have been handed on.
    Reached(StreamPosition),
    /// A mark; its entries came before it.
    Mark(M),
    /// A version of this replica that was lost here and that the peer sends back.
    Returned(E),
    /// The peer has sent back everything, and the stream to it continues from here. It says what may have replaced the versions that were not sent
    /// back.
    ReturnedEnd(Recovered),
}

/// The bytes that an item counts beside its length.
const ITEM_BYTES: usize = 128;

impl<E, M> Item<E, M> {
    fn is_returned(&self) -> bool {
        matches!(self, Item::Returned(_) | Item::ReturnedEnd(_))
    }
}

/// The queue of one peer's items, each with the bytes that it counts.
pub(crate) struct Pending<E, M> {
    items: VecDeque<(Item<E, M>, usize)>,
    /// The bytes of waiting items that came by the stream.
    stream_bytes: usize,
    max_stream_bytes: usize,
    /// The bytes of waiting items that all peers have sent back to all lanes of the node.
    returned_bytes: Arc<AtomicUsize>,
}

impl<E, M> Pending<E, M> {
    /// A queue for a stream with this window.
    pub fn new(window_bytes: usize, returned_bytes: Arc<AtomicUsize>) -> Pending<E, M> {
        Pending {
            items: VecDeque::new(),
            stream_bytes: 0,
            // A source counts differently, and one entry may be larger than its window.
            max_stream_bytes: 16 * window_bytes + (1 << 30),
            returned_bytes,
        }
    }

    pub fn front(&self) -> Option<&Item<E, M>> {
        self.items.front().map(|(item, _)| item)
    }

    pub fn front_mut(&mut self) -> Option<&mut Item<E, M>> {
        self.items.front_mut().map(|(item, _)| item)
    }

    /// The entries among the next items.
    pub fn next_entries(&self, items: usize) -> impl DoubleEndedIterator<Item = &E> {
        let next = self.items.range(..items.min(self.items.len()));
        next.filter_map(|(item, _)| match item {
            Item::Entry { entry, .. } | Item::Returned(entry) => Some(entry),
            Item::Mark(_) | Item::Reached(_) | Item::ReturnedEnd(_) => None,
        })
    }

    pub fn pop(&mut self) -> Option<Item<E, M>> {
        let (item, bytes) = self.items.pop_front()?;
        match item.is_returned() {
            true => drop(self.returned_bytes.fetch_sub(bytes, Relaxed)),
            false => self.stream_bytes -= bytes,
        }
        Some(item)
    }

    /// Adds an item that came in `bytes` bytes.
    ///
    /// # Errors
    /// If the source is further ahead than any source goes.
    pub fn push(&mut self, item: Item<E, M>, bytes: usize) -> Result<(), BadFrame> {
        if self.stream_bytes > self.max_stream_bytes {
            let found = format!("{} bytes that wait", self.stream_bytes);
            return Err(BadFrame::new("a source that keeps to its window", found));
        }
        let bytes = bytes + ITEM_BYTES;
        // The newest mark says all that the marks before it say: so marks do not pile up in a stream that is held.
        if let (Item::Mark(_), Some((Item::Mark(_), _))) = (&item, self.items.back()) {
            self.stream_bytes -= self.items.pop_back().map_or(0, |(_, bytes)| bytes);
        }
        match item.is_returned() {
            true => drop(self.returned_bytes.fetch_add(bytes, Relaxed)),
            false => self.stream_bytes += bytes,
        }
        self.items.push_back((item, bytes));
        Ok(())
    }

    /// Drops the items that came by the stream, and keeps those that were sent back.
    pub fn drop_stream(&mut self) {
        self.items.retain(|(item, _)| item.is_returned());
        self.stream_bytes = 0;
    }

    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> (Pending<&'static str, u8>, Arc<AtomicUsize>) {
        let returned = Arc::new(AtomicUsize::new(0));
        (Pending::new(0, Arc::clone(&returned)), returned)
    }

    fn entry(entry: &'static str) -> Item<&'static str, u8> {
        let at = StreamPosition::default();
        Item::Entry { entry, at }
    }

    #[test]
    fn of_marks_that_follow_each_other_the_newest_is_kept() {
        let (mut pending, _) = queue();
        for item in [
            entry("a"),
            Item::Mark(1),
            Item::Mark(2),
            entry("b"),
            Item::Mark(3),
        ] {
            pending.push(item, 10).expect("there is room");
        }
        let marks = std::iter::from_fn(|| pending.pop()).filter_map(|item| match item {
            Item::Mark(mark) => Some(mark),
            _ => None,
        });
        assert_eq!(marks.collect::<Vec<_>>(), [2, 3]);
        assert_eq!(pending.stream_bytes, 0);
    }

    #[test]
    fn a_stream_that_is_dropped_leaves_what_was_given_back() {
        let (mut pending, returned) = queue();
        pending.push(entry("a"), 10).expect("there is room");
        pending.push(Item::Returned("b"), 10).expect("there is room");
        pending.drop_stream();
        assert!(pending.next_entries(9).eq([&"b"]));
        assert_eq!(returned.load(Relaxed), 10 + ITEM_BYTES);
        pending.clear();
        assert_eq!(returned.load(Relaxed), 0);
    }

    #[test]
    fn a_source_that_goes_beyond_its_window_is_refused() {
        let (mut pending, _) = queue();
        pending.push(entry("a"), 2 << 30).expect("one may be large");
        assert!(pending.push(entry("b"), 1).is_err());
        pending.drop_stream();
        assert!(pending.push(entry("b"), 1).is_ok());
    }
}
