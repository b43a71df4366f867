//! A contribution is written by its entries, in their order.
use super::{
    Added, BESIDE_BYTES, COUNT, Contribution, END_BYTES, HEAD_BYTES, HOW_MANY_ADDED, HOW_MANY_REMOVED,
    MEMBER, Name, Removed, TOTAL, VALUE,
};
use crate::{Hlc, Kind};
use std::ops::Range;

/// A contribution that is being written, in the memory that it will have. What was added comes first.
#[derive(Default)]
pub(crate) struct Builder {
    whole_bits: u8,
    added: u32,
    /// How many entries there are.
    entries: usize,
    /// For how many of them there is room where the ends are written.
    room: usize,
    /// The head, room for the ends, and the entries. Empty until the first entry comes.
    written: Vec<u8>,
    /// Those of the names and values that were added.
    bytes: usize,
}

impl Builder {
    /// Room for this many entries, of this many bytes together. If there will be as many, nothing is moved.
    pub fn with_room(entries: usize, bytes: usize) -> Builder {
        let mut builder = Builder {
            room: entries,
            ..Builder::default()
        };
        builder.written.reserve_exact(builder.first() + bytes);
        builder
    }

    /// Where the first entry begins.
    fn first(&self) -> usize {
        HEAD_BYTES + self.room * END_BYTES
    }

    /// Makes room for the ends of more entries.
    fn expect(&mut self, more: usize) {
        let before = self.first();
        if self.entries + more > self.room {
            self.room = (self.entries + more).max(2 * self.room);
        }
        if self.written.is_empty() {
            self.written.resize(self.first(), 0);
        } else if self.first() > before {
            let (len, moved) = (self.written.len(), self.first() - before);
            self.written.resize(len + moved, 0);
            self.written.copy_within(before..len, before + moved);
        }
    }

    /// An entry ends here, counted from the first one.
    fn end_at(&mut self, end: usize) {
        let end = u32::try_from(end).expect("the elements of a key are shorter than 4 GiB");
        let place = HEAD_BYTES + self.entries * END_BYTES;
        self.written[place..place + END_BYTES].copy_from_slice(&end.to_be_bytes());
        self.entries += 1;
    }

    fn begin(&mut self, name: Name<'_>, bits: u8) {
        let kind = match name.kind {
            Kind::Hash => 0,
            Kind::Set => MEMBER,
        };
        let length = u32::try_from(name.name.len()).expect("a name is shorter than a frame");
        self.expect(1);
        self.written.push(kind | bits);
        self.written.extend_from_slice(&length.to_be_bytes());
    }

    fn time(&mut self, at: Hlc) {
        self.written.extend_from_slice(&at.0.to_be_bytes());
    }

    fn end(&mut self) {
        self.end_at(self.written.len() - self.first());
    }

    /// The next one by kind and name.
    pub fn add(&mut self, added: &Added<'_>) {
        let value = if added.value.is_some() { VALUE } else { 0 };
        let count = if added.count.is_some() { COUNT } else { 0 };
        self.begin(added.name, value | count);
        if let Some((at, _)) = added.value {
            self.time(at);
        }
        if let Some(count) = &added.count {
            self.time(count.since);
            self.time(count.at);
            self.written.extend_from_slice(&count.total.serialize());
        }
        self.written.extend_from_slice(added.name.name);
        if let Some((_, value)) = added.value {
            self.written.extend_from_slice(value);
        }
        self.end();
        self.whole_bits |= added.whole_bits();
        self.added += 1;
        self.bytes += added.bytes();
    }

    /// Adds entries of a contribution that has added values of one kind alone. They are the next ones by name.
    pub fn copy(&mut self, of: &Contribution, entries: Range<usize>) {
        debug_assert!(of.values_of().is_some(), "it has values of one kind alone");
        self.copy_entries(of, entries.clone());
        self.bytes += of.bytes_of(&entries) - BESIDE_BYTES * entries.len();
    }

    /// Adds entries of a contribution as they are. They are the next ones. The bytes of names and values are not counted.
    pub fn copy_entries(&mut self, of: &Contribution, entries: Range<usize>) {
        if entries.is_empty() {
            return;
        }
        self.expect(entries.len());
        let (begin, behind) = (of.begin(entries.start), self.written.len() - self.first());
        for entry in entries.clone() {
            self.end_at(of.end(entry) as usize - begin + behind);
        }
        let first = HEAD_BYTES + of.entries() * END_BYTES + begin;
        self.written
            .extend_from_slice(&of.0[first..first + of.bytes_of(&entries)]);
        let added = entries.start..entries.end.min(of.added_len());
        self.added += added.len() as u32;
        self.whole_bits |= match of.values_of() {
            _ if added.is_empty() => 0,
            Some(_) => of.0[0],
            None => added.fold(0, |bits, entry| bits | of.added_at(entry).whole_bits()),
        };
    }

    /// How many entries were added.
    pub fn added_len(&self) -> usize {
        self.added as usize
    }

    /// The bytes of all names and values that were added.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The next one by kind, name and replica, after everything that was added.
    pub fn remove(&mut self, removed: &Removed<'_>) {
        let total = removed.seen.total;
        self.begin(removed.name, if total.is_zero() { 0 } else { TOTAL });
        self.written
            .extend_from_slice(&removed.seen.replica.0.to_be_bytes());
        self.time(removed.seen.at);
        if !total.is_zero() {
            self.written.extend_from_slice(&total.serialize());
        }
        self.written.extend_from_slice(removed.name.name);
        self.end();
    }

    pub fn done(mut self) -> Contribution {
        if self.entries == 0 {
            return Contribution::default();
        }
        let unused = (self.room - self.entries) * END_BYTES;
        if unused > 0 {
            let first = self.first();
            self.written.copy_within(first.., first - unused);
            self.written.truncate(self.written.len() - unused);
        }
        let removed = self.entries as u32 - self.added;
        self.written[0] = self.whole_bits;
        self.written[HOW_MANY_ADDED..HOW_MANY_REMOVED].copy_from_slice(&self.added.to_be_bytes());
        self.written[HOW_MANY_REMOVED..HEAD_BYTES].copy_from_slice(&removed.to_be_bytes());
        Contribution(self.written.into_boxed_slice().into())
    }
}
