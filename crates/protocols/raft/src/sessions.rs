//! The newest write of each session in a leader's log.
//!
//! A session asks again if an answer does not come. The request that it had sent before may still be under way, or wait somewhere, and come to a leader long after the second one was carried out. So a
//! leader looks each write up, whether the request says that it is repeated or not. The writes of a session do not overlap: it asks for the next one when it knows the outcome of the one before, or
//! has given it up. So the newest write of each session is enough.
//!
//! The log has every entry that is or may be committed, back to its first one. A request names an index behind which its entry must be. If the log begins behind that, the entry may have been dropped: then the
//! leader does not carry the write out.
use std::collections::BTreeMap;
use turnbuckle_core::SessionId;

/// An operation, by its session and the session's number for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct OperationName {
    /// The session.
    pub session: u64,
    /// Its number for the operation.
    pub tag: u64,
}

impl OperationName {
    /// An operation of a session.
    pub fn new(session: SessionId, tag: u64) -> OperationName {
        let session = session.0;
        OperationName { session, tag }
    }
}

/// The newest write of each session in the log.
#[derive(Debug, Default)]
pub struct Sessions {
    newest: BTreeMap<u64, Entry>,
    /// The number of sessions from which those are dropped whose entries are.
    shrink_at: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    tag: u64,
    index: u64,
}

/// What the log has of a write that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Nothing: it is to be carried out.
    Nothing,
    /// The write itself, at this index.
    Same(u64),
    /// It may have been among entries that are dropped. If no other request for it is under way, it may be asked for again, with a later index.
    Late,
    /// It is not known what became of it, for this reason.
    Unknown(&'static str),
}

/// From this number of sessions on, some are dropped.
const MIN_SHRINK: usize = 1_024;

impl Sessions {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.newest.clear();
    }

    /// A write is in the log, at this index. The log begins at `first`.
    pub fn note(&mut self, by: OperationName, index: u64, first: u64) {
        let OperationName { session, tag } = by;
        self.newest.insert(session, Entry { tag, index });
        if self.newest.len() > self.shrink_at.max(MIN_SHRINK) {
            self.newest.retain(|_, entry| entry.index >= first);
            self.shrink_at = 2 * self.newest.len();
        }
    }

    /// What the log, which begins at `first`, has of a write that has no entry up to `since`. `is_repeated`: it may have been carried out already.
    pub fn find(&self, by: OperationName, since: u64, is_repeated: bool, first: u64) -> Found {
        match self.newest.get(&by.session) {
            // So no client waits for this one any more.
            Some(newest) if newest.tag > by.tag => Found::Unknown("its session has asked for a later write"),
            Some(newest) if newest.tag == by.tag && newest.index >= first => Found::Same(newest.index),
            _ if since + 1 >= first => Found::Nothing,
            _ if is_repeated => {
                Found::Unknown("the entries among which the write would be are not kept any more")
            }
            _ => Found::Late,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_found_as_long_as_its_entry_is_there_and_later_ones_always() {
        let by = |session, tag| OperationName { session, tag };
        let mut sessions = Sessions::default();
        sessions.note(by(7, 3), 20, 1);
        assert_eq!(sessions.find(by(7, 3), 10, true, 20), Found::Same(20));
        assert!(matches!(
            sessions.find(by(7, 2), 20, false, 21),
            Found::Unknown(_)
        ));
        // Its entry is dropped, or was never there.
        assert_eq!(sessions.find(by(7, 3), 20, true, 21), Found::Nothing);
        assert_eq!(sessions.find(by(7, 3), 19, false, 21), Found::Late);
        assert!(matches!(sessions.find(by(7, 3), 19, true, 21), Found::Unknown(_)));
        assert_eq!(sessions.find(by(8, 3), 0, false, 1), Found::Nothing);
    }

    #[test]
    fn sessions_without_entries_are_dropped_some_time() {
        let mut sessions = Sessions::default();
        for index in 1..=10_000_u64 {
            let by = OperationName {
                session: index,
                tag: 0,
            };
            sessions.note(by, index, index.saturating_sub(10));
        }
        assert!(
            sessions.newest.len() <= MIN_SHRINK + 11,
            "{}",
            sessions.newest.len()
        );
        let last = OperationName {
            session: 10_000,
            tag: 0,
        };
        assert_eq!(sessions.find(last, 0, true, 9_990), Found::Same(10_000));
    }
}
