//! What a client has sent and the connection has not taken.
use bytes::{BufMut, BytesMut};

/// How much is read at first. A connection holds as much without asking for memory.
pub(super) const FIRST_BYTES: usize = 16 << 10;

/// How much is read at a time of a command that is longer.
pub(super) const MORE_BYTES: usize = 64 << 10;

/// How much room the buffer that all connections of a loop share is given at a time.
const SHARED_BYTES: usize = 64 << 10;

/// An input that outgrows [`FIRST_BYTES`] is given room for so much.
const MIDDLE_BYTES: usize = 256 << 10;

/// And then for so much, more than any command of a usual limit.
const LONG_BYTES: usize = 65 << 20;

/// Bytes that commands are taken from, at the front.
///
/// **Growth.** A long command is in one piece of memory. If that grew by doubling, a single read could mean to copy tens of megabytes, and everybody else
/// would wait. So there are few steps: no more than [`MIDDLE_BYTES`] are ever copied, for a command within [`LONG_BYTES`]. The room
/// is not memory: the operating system gives that page by page, as bytes come.
///
/// What is taken leaves the memory that it was in allocated for as long as anything behind it is there. So what is left is moved to memory of
/// its own as soon as that frees more than it copies.
#[derive(Default)]
pub(super) struct Input {
    bytes: BytesMut,
    /// The memory before the first byte that is kept allocated by those behind it.
    pinned: usize,
}

impl Input {
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What it takes of memory.
    pub fn held_bytes(&self) -> usize {
        self.bytes.len() + self.pinned
    }

    /// How much the next read may add.
    pub fn next_bytes(&self) -> usize {
        match FIRST_BYTES.saturating_sub(self.bytes.len()) {
            0 => MORE_BYTES,
            left => left,
        }
    }

    /// Reads with `read`, which appends to what it is given and says what it made of it. An empty input borrows the loop's buffer.
    pub fn read<R>(&mut self, shared: &mut BytesMut, read: impl FnOnce(&mut dyn BufMut) -> R) -> R {
        if !self.bytes.is_empty() {
            let most = self.next_bytes();
            if self.bytes.capacity() - self.bytes.len() < most {
                self.grow();
            }
            return read(&mut (&mut self.bytes).limit(most));
        }
        if shared.capacity() < FIRST_BYTES {
            shared.reserve(SHARED_BYTES);
        }
        let result = read(&mut (&mut *shared).limit(FIRST_BYTES));
        self.bytes = shared.split();
        self.pinned = SHARED_BYTES;
        result
    }

    fn grow(&mut self) {
        let room = match self.bytes.len() {
            0..FIRST_BYTES => FIRST_BYTES,
            FIRST_BYTES..MIDDLE_BYTES => MIDDLE_BYTES + MORE_BYTES,
            more => LONG_BYTES.max(2 * more),
        };
        let mut roomy = BytesMut::with_capacity(room);
        roomy.extend_from_slice(&self.bytes);
        (self.bytes, self.pinned) = (roomy, 0);
    }

    /// Reads what nobody wants to know with `read`.
    pub fn read_nothing<R>(shared: &mut BytesMut, read: impl FnOnce(&mut dyn BufMut) -> R) -> R {
        shared.reserve(SHARED_BYTES);
        let result = read(&mut (&mut *shared).limit(SHARED_BYTES));
        shared.clear();
        result
    }

    /// Lets `take` take bytes off the front. Returns how many it took.
    pub fn take(&mut self, take: impl FnOnce(&mut BytesMut)) -> usize {
        let before = self.bytes.len();
        take(&mut self.bytes);
        let taken = before - self.bytes.len();
        self.pinned += taken;
        if self.bytes.is_empty() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf;

    fn put(input: &mut Input, shared: &mut BytesMut, bytes: usize) -> usize {
        input.read(shared, |buffer| {
            let fits = bytes.min(buffer.remaining_mut());
            buffer.put_bytes(b'x', fits);
            fits
        })
    }

    #[test]
    fn a_byte_that_is_left_does_not_keep_what_was_before_it() {
        let (mut input, mut shared) = (Input::default(), BytesMut::new());
        assert_eq!(put(&mut input, &mut shared, 100), 100);
        assert_eq!(input.take(|bytes| bytes.advance(99)), 99);
        assert_eq!(input.held_bytes(), 1, "the loop's buffer is let go");
        while input.held_bytes() < 1 << 20 {
            put(&mut input, &mut shared, MORE_BYTES);
            input.take(|_| {});
        }
        let left = input.held_bytes() - 5;
        assert_eq!(input.take(|bytes| bytes.advance(left)), left);
        assert_eq!(input.held_bytes(), 5);
        assert_eq!(input.take(BytesMut::clear), 5);
        assert_eq!(input.held_bytes(), 0);
    }

    #[test]
    fn a_long_command_is_hardly_copied() {
        let (mut input, mut shared) = (Input::default(), BytesMut::new());
        let mut copied = Vec::new();
        while input.held_bytes() < 64 << 20 {
            let (before, len) = (input.bytes.as_ptr(), input.bytes.len());
            put(&mut input, &mut shared, MORE_BYTES);
            if input.bytes.as_ptr() != before {
                copied.push(len);
            }
        }
        assert!(copied.len() <= 3 && copied.iter().all(|&len| len < MIDDLE_BYTES + MORE_BYTES), "{copied:?}");
    }

    #[test]
    fn one_read_is_bounded() {
        let (mut input, mut shared) = (Input::default(), BytesMut::new());
        assert_eq!(put(&mut input, &mut shared, 1 << 20), FIRST_BYTES);
        assert_eq!(put(&mut input, &mut shared, 1 << 20), MORE_BYTES);
    }
}
