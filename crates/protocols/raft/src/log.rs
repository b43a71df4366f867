//! The log as raft-rs reads it: what the journal has, decoded.
use crate::copies::empty_snapshot;
use crate::group::stamp_of;
use crate::message::LogEntry;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};
use std::collections::VecDeque;
use turnbuckle_core::{Applied, Hlc, Journal};

/// About what an entry takes in a message besides its data.
const ENTRY_BYTES: u64 = 32;

/// An entry, and the newest timestamp of all entries up to it. Before the first entry, all are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Noted {
    pub index: u64,
    pub term: u64,
    pub newest: Hlc,
}

impl Noted {
    pub fn encode(self) -> Bytes {
        let mut out = BytesMut::with_capacity(24);
        out.put_u64(self.index);
        out.put_u64(self.term);
        out.put_u64(self.newest.0);
        out.freeze()
    }

    pub fn decode(mut bytes: &[u8]) -> Option<Noted> {
        Some(Noted {
            index: bytes.try_get_u64().ok()?,
            term: bytes.try_get_u64().ok()?,
            newest: Hlc(bytes.try_get_u64().ok()?),
        })
    }
}

/// The entries of the journal, with what raft-rs must know of those before them.
pub(crate) struct Log {
    /// The entry before the first.
    before: Noted,
    entries: VecDeque<Entry>,
    /// An entry up to which everything is applied.
    applied: Noted,
    state: RaftState,
}

impl Log {
    /// The log that a journal has. `before` is the entry before its first one.
    ///
    /// # Errors
    /// If an entry does not decode, or if entries are missing that are not applied. The error is what was found.
    pub fn of(
        journal: &Journal,
        before: Noted,
        applied: Noted,
        state: HardState,
        members: ConfState,
    ) -> std::result::Result<Log, String> {
        let (first, last) = (journal.first(), journal.next() - 1);
        if first != before.index + 1 || before.index > applied.index || applied.index > last {
            return Err(format!(
                "its log has the entries from {first} to {last}, those up to {} are dropped, and those up to {} are applied",
                before.index, applied.index
            ));
        }
        let entries = journal.from(first).map(|(index, bytes)| {
            let entry = LogEntry::decode(bytes.clone());
            let entry =
                entry.map_err(|error| format!("entry {index} of its log does not decode: {error}"))?;
            Ok(entry.into_raft(index))
        });
        Ok(Log {
            before,
            entries: entries.collect::<std::result::Result<_, String>>()?,
            applied,
            state: RaftState::new(state, members),
        })
    }

    /// An entry as the journal keeps it.
    pub fn encode(entry: &Entry) -> Bytes {
        LogEntry::new(entry).encode_to_vec().into()
    }

    pub fn first(&self) -> u64 {
        self.before.index + 1
    }

    pub fn last(&self) -> u64 {
        self.before.index + self.entries.len() as u64
    }

    pub fn get(&self, index: u64) -> Option<&Entry> {
        let place = index.checked_sub(self.first())?;
        self.entries.get(usize::try_from(place).ok()?)
    }

    /// The entries from an index on, or from the first one if that is later.
    pub fn from(&self, index: u64) -> impl DoubleEndedIterator<Item = &Entry> {
        let from = index.clamp(self.first(), self.last() + 1);
        self.entries.range((from - self.first()) as usize..)
    }

    /// Replaces everything from the first of these entries on.
    pub fn append(&mut self, entries: Vec<Entry>) {
        let Some(first) = entries.first().map(|entry| entry.index) else {
            return;
        };
        self.truncate(first);
        self.entries.extend(entries);
    }

    /// Drops the entries from `from` on.
    pub fn truncate(&mut self, from: u64) {
        let kept = from.saturating_sub(self.first()) as usize;
        self.entries.truncate(kept);
    }

    /// Drops the entries before `until`, and returns the last of them.
    pub fn purge(&mut self, until: u64) -> Noted {
        while self.first() < until
            && let Some(entry) = self.entries.pop_front()
        {
            self.before = Noted {
                index: entry.index,
                term: entry.term,
                newest: stamp_of(&entry).max(self.before.newest),
            };
        }
        self.before
    }

    /// Everything up to here is applied, and the log begins behind it.
    pub fn restore(&mut self, applied: Noted) {
        self.entries.clear();
        (self.before, self.applied) = (applied, applied);
    }

    /// Everything up to here is applied.
    pub fn applied(&mut self, applied: Noted) {
        self.applied = applied;
    }

    /// The last entry of which it was kept that everything up to it is applied.
    pub fn kept(&self) -> Noted {
        self.applied
    }

    /// The entry before the first one.
    pub fn before(&self) -> Noted {
        self.before
    }

    /// The group's members have changed.
    pub fn set_members(&mut self, members: ConfState) {
        self.state.conf_state = members;
    }

    /// The group's members.
    pub fn members(&self) -> ConfState {
        self.state.conf_state.clone()
    }
}

impl Storage for Log {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(self.state.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low < self.first() {
            return Err(Error::Store(StorageError::Compacted));
        }
        // What is too much for one message is not copied.
        let mut room = max_size.into().unwrap_or(u64::MAX);
        let mut entries = Vec::new();
        for entry in self.from(low).take(high.saturating_sub(low) as usize) {
            let bytes = entry.data.len() as u64 + ENTRY_BYTES;
            if !entries.is_empty() && bytes > room {
                break;
            }
            room = room.saturating_sub(bytes);
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> Result<u64> {
        let before = self.before;
        match self.get(index) {
            Some(entry) => Ok(entry.term),
            None if index == before.index => Ok(before.term),
            None if index < before.index => Err(Error::Store(StorageError::Compacted)),
            None => Err(Error::Store(StorageError::Unavailable)),
        }
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, _: u64, _: u64) -> Result<Snapshot> {
        // Only its place is sent: a follower that needs it takes a full copy.
        let Noted { index, term, .. } = self.applied;
        match index {
            0 => Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable)),
            _ => Ok(empty_snapshot(Applied { index, term }, self.members())),
        }
    }
}
