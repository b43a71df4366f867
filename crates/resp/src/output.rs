//! Replies on their way to a client.
//!
//! A long value is not copied into its reply: the reply refers to the memory of the stored value. So a reply of sixty megabytes is written in
//! microseconds. A copy would take a hundred milliseconds, in which no other client of the loop is served. Everything else, headers and short values,
//! is in one buffer. For each long value the place in that buffer is known.
use bytes::{Buf, Bytes, BytesMut};
use std::{collections::VecDeque, io::IoSlice};

/// A value of at least this length, in bytes, is shared. For a shorter one a copy costs less than the bookkeeping.
pub(crate) const SHARED_BYTES: usize = 16 << 10;

/// The bytes of replies that a client has not taken yet, in order.
#[derive(Debug, Default)]
pub struct Output {
    /// All bytes except those of shared values.
    bytes: BytesMut,
    shared: VecDeque<Shared>,
    /// How many of `bytes` are before the last shared value. Invariant: the sum of `before` of all shared values.
    placed: usize,
    /// How many bytes of the shared values are left.
    shared_bytes: usize,
    /// How many bytes of the first shared value the client has taken. They stay in memory as long as the value.
    taken: usize,
    /// The most that `bytes` has held since its memory was last released.
    high: usize,
}

#[derive(Debug)]
struct Shared {
    /// How many of `bytes` are before this value and after the shared value before it.
    before: usize,
    value: Bytes,
}

impl Output {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.shared_bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all of them.
    pub fn clear(&mut self) {
        self.advance(self.len());
    }

    /// Takes all of them, as one piece.
    pub fn split(&mut self) -> BytesMut {
        if self.shared.is_empty() {
            return self.bytes.split();
        }
        let mut all = BytesMut::with_capacity(self.len());
        while self.has_remaining() {
            let piece = self.chunk();
            let bytes = piece.len();
            all.extend_from_slice(piece);
            self.advance(bytes);
        }
        all
    }

    /// Points `slices` at the first bytes, at most `max` of them. Returns how many slices it used.
    pub fn slices<'a>(&'a self, max: usize, slices: &mut [IoSlice<'a>]) -> usize {
        let (mut rest, mut left, mut count) = (&self.bytes[..], max, 0);
        let values = self
            .shared
            .iter()
            .map(|shared| (shared.before, &shared.value[..]));
        let last = (self.bytes.len() - self.placed, &[][..]);
        for (before, value) in values.chain([last]) {
            let (front, behind) = rest.split_at(before);
            rest = behind;
            for piece in [front, value] {
                let piece = &piece[..piece.len().min(left)];
                if count == slices.len() || left == 0 {
                    return count;
                }
                if !piece.is_empty() {
                    slices[count] = IoSlice::new(piece);
                    left -= piece.len();
                    count += 1;
                }
            }
        }
        count
    }

    /// The buffer. Write at its end.
    #[inline]
    pub(crate) fn end(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// Adds a value without copying it.
    pub(crate) fn share(&mut self, value: Bytes) {
        if value.is_empty() {
            return;
        }
        let before = self.bytes.len() - self.placed;
        self.placed += before;
        self.shared_bytes += value.len();
        self.shared.push_back(Shared { before, value });
    }

    /// Adds the content of another output.
    pub(crate) fn append(&mut self, other: Output) {
        if self.is_empty() {
            let high = self.high;
            *self = other;
            self.high = self.high.max(high);
            return;
        }
        let behind = self.bytes.len() - self.placed;
        if !other.shared.is_empty() {
            self.placed += behind + other.placed;
            self.shared_bytes += other.shared_bytes;
        }
        let mut behind = Some(behind);
        self.shared.extend(other.shared.into_iter().map(|shared| Shared {
            before: shared.before + behind.take().unwrap_or(0),
            value: shared.value,
        }));
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// Drops everything after the first `len` bytes. A shared value that ends after them is dropped completely.
    pub(crate) fn truncate(&mut self, len: usize) {
        while self.len() > len {
            let behind = self.bytes.len() - self.placed;
            let less = behind.min(self.len() - len);
            self.bytes.truncate(self.bytes.len() - less);
            if self.len() > len
                && let Some(last) = self.shared.pop_back()
            {
                self.placed -= last.before;
                self.shared_bytes -= last.value.len();
            }
        }
    }

    /// Notes how much it holds. Call it after something was added.
    #[inline]
    pub(crate) fn measure(&mut self) {
        self.high = self.high.max(self.bytes.len());
    }

    /// How many bytes of memory it keeps allocated, approximately.
    pub(crate) fn held_bytes(&self) -> usize {
        self.high + self.shared_bytes + self.taken + self.shared.len() * size_of::<Shared>()
    }

    /// Releases memory that is not needed, if it is more than `free` bytes.
    pub(crate) fn release_memory(&mut self, free: usize) {
        // Half of it has been written, so each byte that was written pays for at most one copied byte.
        if self.high > free && self.bytes.len() <= self.high / 2 {
            self.bytes = BytesMut::from(&self.bytes[..]);
            self.high = self.bytes.len();
        }
        if self.bytes.is_empty() {
            self.high = 0;
        }
        if self.shared.is_empty() {
            self.shared = VecDeque::new();
        }
    }
}

impl Buf for Output {
    fn remaining(&self) -> usize {
        self.len()
    }

    fn chunk(&self) -> &[u8] {
        match self.shared.front() {
            Some(Shared { before: 0, value }) => value,
            Some(first) => &self.bytes[..first.before],
            None => &self.bytes,
        }
    }

    fn advance(&mut self, mut count: usize) {
        assert!(
            count <= self.len(),
            "{count} bytes are taken of {}, expected no more than there are",
            self.len()
        );
        while let Some(first) = self.shared.front_mut()
            && count > 0
        {
            let front = first.before.min(count);
            self.bytes.advance(front);
            first.before -= front;
            self.placed -= front;
            count -= front;
            let of_value = first.value.len().min(count);
            first.value.advance(of_value);
            self.shared_bytes -= of_value;
            self.taken += of_value;
            count -= of_value;
            if first.before == 0 && first.value.is_empty() {
                self.shared.pop_front();
                self.taken = 0;
            }
        }
        self.bytes.advance(count);
    }
}

impl From<BytesMut> for Output {
    fn from(bytes: BytesMut) -> Output {
        Output {
            bytes,
            ..Output::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pieces: &[(&str, &str)], end: &str) -> Output {
        let mut output = Output::default();
        for (front, value) in pieces {
            output.end().extend_from_slice(front.as_bytes());
            output.share(Bytes::copy_from_slice(value.as_bytes()));
        }
        output.end().extend_from_slice(end.as_bytes());
        output.measure();
        output
    }

    fn all(output: &mut Output) -> String {
        String::from_utf8(output.split().to_vec()).unwrap()
    }

    #[test]
    fn what_comes_out_is_in_order_however_it_is_taken() {
        let text = "abCDefGHIjk";
        for step in 1..=text.len() {
            let mut output = of(&[("ab", "CD"), ("", "")], "");
            output.append(of(&[("ef", "GHI")], "jk"));
            let mut read = Vec::new();
            while !output.is_empty() {
                let mut slices = [IoSlice::new(&[]); 3];
                let count = output.slices(step, &mut slices);
                let before = read.len();
                slices[..count]
                    .iter()
                    .for_each(|slice| read.extend_from_slice(slice));
                let bytes = read.len() - before;
                assert!((1..=step).contains(&bytes), "{bytes} of {step}");
                assert_eq!(output.len(), text.len() - before);
                output.advance(bytes);
            }
            assert_eq!(read, text.as_bytes());
        }
    }

    #[test]
    fn a_long_value_is_not_copied_and_a_short_one_is() {
        for (len, is_shared) in [(SHARED_BYTES, true), (SHARED_BYTES - 1, false)] {
            let value = Bytes::from(vec![b'v'; len]);
            let mut output = Output::default();
            crate::Writer::new(&mut output, crate::Resp::Two).value(Some(&value));
            output.advance(format!("${len}\r\n").len());
            assert_eq!(output.chunk().as_ptr() == value.as_ptr(), is_shared);
            assert_eq!(all(&mut output), "v".repeat(len) + "\r\n");
        }
    }

    #[test]
    fn the_end_is_taken_back() {
        let mut output = of(&[("ab", "CD")], "ef");
        output.end().extend_from_slice(b"gh");
        output.share("IJ".into());
        output.truncate(6);
        assert_eq!(all(&mut output), "abCDef");
        let mut output = of(&[("ab", "CD")], "ef");
        output.truncate(2);
        output.end().extend_from_slice(b"x");
        assert_eq!(all(&mut output), "abx");
    }

    #[test]
    fn a_value_counts_until_the_last_byte_of_it_was_taken() {
        let value = "v".repeat(1_000);
        let mut output = of(&[("", &value)], "");
        assert!(output.held_bytes() >= 1_000);
        output.advance(999);
        assert!(output.held_bytes() >= 1_000 && output.len() == 1);
        output.advance(1);
        output.release_memory(0);
        assert_eq!(output.held_bytes(), 0);
    }
}
