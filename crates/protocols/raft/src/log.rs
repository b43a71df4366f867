//! The log as raft-rs reads it: what the journal has, decoded.
use crate::message::LogEntry;
use bytes::Bytes;
use prost::Message;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};
use std::collections::VecDeque;
use turnbuckle_core::Journal;

/// About what an entry takes in a message besides its data.
const ENTRY_BYTES: u64 = 32;

/// The entries of the journal, with the term of the one before them.
pub(crate) struct Log {
    /// The index and term of the entry before the first.
    before: (u64, u64),
    entries: VecDeque<Entry>,
    state: RaftState,
}

impl Log {
    /// The log that a journal has. `before` is the term of the entry before its first one.
    ///
    /// # Errors
    /// If an entry does not decode.
    pub fn of(
        journal: &Journal,
        before: u64,
        state: HardState,
        members: ConfState,
    ) -> std::result::Result<Log, prost::DecodeError> {
        let entries = journal.from(journal.first()).map(|(index, bytes)| {
            let entry = LogEntry::decode(bytes.clone())?;
            Ok(entry.into_raft(index))
        });
        Ok(Log {
            before: (journal.first() - 1, before),
            entries: entries.collect::<std::result::Result<_, prost::DecodeError>>()?,
            state: RaftState::new(state, members),
        })
    }

    /// An entry as the journal keeps it.
    pub fn encode(entry: &Entry) -> Bytes {
        LogEntry::new(entry).encode_to_vec().into()
    }

    pub fn first(&self) -> u64 {
        self.before.0 + 1
    }

    pub fn last(&self) -> u64 {
        self.before.0 + self.entries.len() as u64
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
        let kept = first.saturating_sub(self.first()) as usize;
        self.entries.truncate(kept);
        self.entries.extend(entries);
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
        let (before, term) = self.before;
        match self.get(index) {
            Some(entry) => Ok(entry.term),
            None if index == before => Ok(term),
            None if index < before => Err(Error::Store(StorageError::Compacted)),
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
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}
