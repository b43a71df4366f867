//! The bytes that a client has sent and its connection has not taken yet.
use super::line::SHARE_BYTES;
use bytes::{BufMut, BytesMut};
use std::collections::VecDeque;

/// The size of the first read, in bytes. A connection may hold this much without asking for memory.
pub(super) const FIRST_BYTES: usize = 16 << 10;

/// The size of one more read for a longer command, in bytes, into a piece of memory of its own.
pub(super) const MORE_BYTES: usize = 64 << 10;

/// A piece that has less room than this, in bytes, is full.
const MIN_BYTES: usize = 4 << 10;

/// How much room the buffer that all connections of a loop share is given at a time, in bytes.
const SHARED_BYTES: usize = 64 << 10;

/// What all inputs of one loop are read into.
#[derive(Default)]
pub(super) struct Buffers {
    /// Bytes are read into this, and then split off for the client that sent them.
    shared: BytesMut,
}

impl Buffers {
    /// Reads with `read`, and drops what was read.
    pub fn read_nothing<R>(&mut self, read: impl FnOnce(&mut dyn BufMut) -> R) -> R {
        self.shared.reserve(SHARED_BYTES);
        let result = read(&mut (&mut self.shared).limit(SHARED_BYTES));
        self.shared.clear();
        result
    }
}

/// The bytes of a client. Commands are taken from the front.
///
/// Bytes that are taken leave their memory allocated for as long as there are bytes behind them in it. So the remaining bytes are moved to memory of
/// their own as soon as that frees more than it copies.
///
/// **Long commands** come in pieces, which are kept as they are until the command can be complete. Only then are they joined, a share at a time. If
/// one piece grew by doubling, a single read could copy tens of megabytes while all other clients wait.
#[derive(Default)]
pub(super) struct Input {
    /// The front, in one piece. Commands are taken from here.
    bytes: BytesMut,
    /// The pieces that were received after the front.
    behind: VecDeque<BytesMut>,
    behind_bytes: usize,
    /// How many bytes of memory before the front stay allocated because of the bytes behind them.
    pinned: usize,
    /// The pieces of `behind` are being joined to the front.
    is_joining: bool,
    /// How many bytes of the first piece of `behind` are joined already. Their memory is still allocated.
    joined: usize,
}

impl Input {
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.behind.is_empty()
    }

    /// How many bytes of memory it takes.
    pub fn held_bytes(&self) -> usize {
        self.bytes.len() + self.behind_bytes + self.pinned + self.joined
    }

    /// How many bytes the next read may add.
    pub fn next_bytes(&self) -> usize {
        match FIRST_BYTES.saturating_sub(self.bytes.len()) {
            left if left > 0 && self.behind.is_empty() => left,
            _ => match self.behind.back().map_or(0, room_in) {
                0..MIN_BYTES => MORE_BYTES,
                room => room.min(MORE_BYTES),
            },
        }
    }

    /// Reads with `read`, which appends to the buffer that it is given. Returns what `read` returned. An empty input uses the loop's buffer.
    pub fn read<R>(&mut self, buffers: &mut Buffers, read: impl FnOnce(&mut dyn BufMut) -> R) -> R {
        let max = self.next_bytes();
        if self.bytes.len() >= FIRST_BYTES || !self.behind.is_empty() {
            if self.behind.back().is_none_or(|last| room_in(last) < MIN_BYTES) {
                self.behind.push_back(BytesMut::with_capacity(MORE_BYTES));
            }
            let last = self.behind.back_mut().expect("it was just added");
            let before = last.len();
            let result = read(&mut (&mut *last).limit(max));
            self.behind_bytes += last.len() - before;
            return result;
        }
        if !self.bytes.is_empty() {
            self.bytes.reserve(max);
            return read(&mut (&mut self.bytes).limit(max));
        }
        let shared = &mut buffers.shared;
        if shared.capacity() < FIRST_BYTES {
            shared.reserve(SHARED_BYTES);
        }
        let result = read(&mut (&mut *shared).limit(FIRST_BYTES));
        self.bytes = shared.split();
        self.pinned = SHARED_BYTES;
        result
    }

    /// Whether some pieces are joined, and the rest is not yet.
    pub fn is_joining(&self) -> bool {
        self.is_joining
    }

    /// Joins pieces so that commands can be taken, unless it has fewer than `wanted` bytes. Copies at most a share. Returns how many bytes it copied.
    pub fn join(&mut self, wanted: usize) -> usize {
        if self.behind.is_empty() || (!self.is_joining && self.bytes.len() + self.behind_bytes < wanted) {
            return 0;
        }
        if !self.is_joining && self.bytes.capacity() - self.bytes.len() < self.behind_bytes {
            // Twice as much, so that each byte is copied only a few times. Memory that is not written to is not used.
            let whole = BytesMut::with_capacity(2 * (self.bytes.len() + self.behind_bytes));
            let before = std::mem::replace(&mut self.bytes, whole);
            self.joined = std::mem::take(&mut self.pinned);
            self.behind_bytes += before.len();
            self.behind.push_front(before);
        }
        self.is_joining = true;
        let mut copied = 0;
        while copied < SHARE_BYTES
            && let Some(first) = self.behind.front_mut()
        {
            let piece = first.split_to(first.len().min(SHARE_BYTES - copied));
            self.bytes.extend_from_slice(&piece);
            copied += piece.len();
            self.joined += piece.len();
            if first.is_empty() {
                self.behind.pop_front();
                self.joined = 0;
            }
        }
        self.behind_bytes -= copied;
        self.is_joining = !self.behind.is_empty();
        copied
    }

    /// Lets `take` take bytes off the front, or nothing unless everything is joined. Returns how many bytes it took.
    pub fn take(&mut self, take: impl FnOnce(&mut BytesMut)) -> usize {
        // The connection may have seen these bytes before. To show it only a part of them now would be worse than to show it none.
        if !self.behind.is_empty() {
            take(&mut BytesMut::new());
            return 0;
        }
        let before = self.bytes.len();
        take(&mut self.bytes);
        let taken = before - self.bytes.len();
        self.pinned += taken;
        if self.is_empty() {
            self.clear();
        } else if self.pinned > self.bytes.len().max(FIRST_BYTES) {
            self.bytes = BytesMut::from(&self.bytes[..]);
            self.pinned = 0;
        }
        taken
    }

    pub fn clear(&mut self) {
        *self = Input::default();
    }
}

fn room_in(piece: &BytesMut) -> usize {
    piece.capacity() - piece.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf;

    fn put(input: &mut Input, shared: &mut Buffers, bytes: usize) -> usize {
        input.read(shared, |buffer| {
            let fits = bytes.min(buffer.remaining_mut());
            buffer.put_bytes(b'x', fits);
            fits
        })
    }

    #[test]
    fn a_byte_that_is_left_does_not_keep_what_was_before_it() {
        let (mut input, mut shared) = (Input::default(), Buffers::default());
        assert_eq!(put(&mut input, &mut shared, 100), 100);
        assert_eq!(input.take(|bytes| bytes.advance(99)), 99);
        assert_eq!(input.held_bytes(), 1, "the loop's buffer is let go");
        while input.held_bytes() < 1 << 20 {
            put(&mut input, &mut shared, MORE_BYTES);
            input.take(|_| {});
        }
        while !input.behind.is_empty() {
            input.join(0);
        }
        let left = input.held_bytes() - 5;
        assert_eq!(input.take(|bytes| bytes.advance(left)), left);
        assert_eq!(input.held_bytes(), 5);
        assert_eq!(input.take(BytesMut::clear), 5);
        assert_eq!(input.held_bytes(), 0);
    }

    #[test]
    fn a_long_command_is_joined_a_share_at_a_time_once_it_can_be_complete() {
        const WHOLE: usize = 20 << 20;
        let (mut input, mut shared) = (Input::default(), Buffers::default());
        let mut received = 0;
        while received < WHOLE {
            received += put(&mut input, &mut shared, MORE_BYTES);
            assert!(
                received >= WHOLE || input.join(WHOLE) == 0,
                "it cannot be complete"
            );
            assert!(input.held_bytes() <= received + SHARED_BYTES);
        }
        let mut copied = 0;
        while !input.behind.is_empty() {
            let share = input.join(WHOLE);
            assert!((1..=SHARE_BYTES).contains(&share), "{share} bytes at once");
            assert!(input.held_bytes() <= received + SHARED_BYTES);
            copied += share;
        }
        assert!(copied <= received && !input.is_joining());
        assert_eq!(input.take(|bytes| bytes.advance(WHOLE)), WHOLE);
        assert_eq!(input.held_bytes(), received - WHOLE);
    }

    #[test]
    fn a_command_of_many_short_arguments_is_copied_a_few_times_at_most() {
        let (mut input, mut shared) = (Input::default(), Buffers::default());
        let (mut received, mut copied) = (0, 0);
        while received < 20 << 20 {
            received += put(&mut input, &mut shared, MORE_BYTES);
            loop {
                copied += input.join(0);
                if !input.is_joining() {
                    break;
                }
            }
            assert_eq!((input.take(|_| {}), input.bytes.len()), (0, received));
        }
        assert!(copied < 4 * received, "{copied} of {received}");
    }

    #[test]
    fn one_read_is_bounded() {
        let (mut input, mut shared) = (Input::default(), Buffers::default());
        assert_eq!(put(&mut input, &mut shared, 1 << 20), FIRST_BYTES);
        assert_eq!(put(&mut input, &mut shared, 1 << 20), MORE_BYTES);
    }
}
