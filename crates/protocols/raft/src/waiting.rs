//! The clients that wait for entries.
//!
//! A leader proposes an entry for a client's write, and answers when the entry is applied. Until then the client waits at the entry's index. What the client is told depends on what comes to that index:
//!
//! ```text
//!                              +--> entry 7 of term 3 is applied: the write is carried out
//!   proposed: entry 7, term 3 -+--> entry 7 of term 4 is applied: the write has lost its place to another leader's entry, and never will be carried out
//!                              +--> a full copy covers entry 7:   it is not known which of the two happened
//!                              +--> nothing, in time:             it is not known which of the two will happen
//! ```
//!
//! At most one client waits at an index. [`Waiting`] knows the clients and nothing of the protocol: it returns each client once, and the protocol answers it.
use crate::group::Proposed;
use std::collections::BTreeMap;
use turnbuckle_core::{Level, Micros, RequestId};

/// Why it is not known what became of a client's write: a full copy covers its entry.
pub const MISSED: &str = "the replica has missed what became of it";
/// Why it is not known: another client waits at its index.
pub const REPLACED: &str = "the replica waits for another entry at its place";
/// Why it is not known: the replica takes no part in the group any more.
pub const NO_MEMBER: &str = "the replica is no member of its group any more";

/// A client that waits for the entry of its write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// Its request.
    pub id: RequestId,
    /// The level of the write.
    pub level: Level,
    /// Where the entry was proposed. If an entry of another term is applied there, the write was not carried out.
    pub at: Proposed,
    /// Since when the client waits.
    pub since: Micros,
}

/// The clients that wait, by the indexes of their entries.
#[derive(Debug, Default)]
pub struct Waiting(BTreeMap<u64, Client>);

impl Waiting {
    /// A client waits from now on. Returns the one that has waited at this index: its session has asked again, or its entry was replaced here, and another replica may still have it.
    #[must_use]
    pub fn add(&mut self, client: Client) -> Option<Client> {
        self.0.insert(client.at.index, client)
    }

    /// The entry at this index is applied: takes the client that waits there.
    pub fn take(&mut self, index: u64) -> Option<Client> {
        self.0.remove(&index)
    }

    /// A full copy is in place: takes the clients that wait for entries up to this index.
    pub fn take_until(&mut self, index: u64) -> impl Iterator<Item = Client> + use<> {
        let behind = self.0.split_off(&(index + 1));
        std::mem::replace(&mut self.0, behind).into_values()
    }

    /// Takes the clients that have waited for this long.
    pub fn take_late(&mut self, now: Micros, patience: Micros) -> Vec<Client> {
        let late = self.0.extract_if(.., |_, client| now >= client.since + patience);
        late.map(|(_, client)| client).collect()
    }

    /// Takes all clients.
    pub fn take_all(&mut self) -> impl Iterator<Item = Client> + use<> {
        std::mem::take(&mut self.0).into_values()
    }

    /// The number of clients.
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Checks that no client waits for an entry that is applied, and panics with words.
    pub fn validate(&self, applied: u64) {
        let waits_for_applied = self.0.keys().next().filter(|&&index| index <= applied);
        assert!(
            waits_for_applied.is_none(),
            "a client waits for entry {waits_for_applied:?}, and {applied} are applied"
        );
    }
}
