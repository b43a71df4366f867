//! The next committed entry, which may have to wait for its keys.
//!
//! A replica applies committed entries one after the other. To put a version, it needs the key's row in memory. So it decodes the next entry, and asks the driver for the keys that the entry puts. When they
//! are in memory, it applies the entry. An entry that puts nothing is applied at once. Rows are fetched for one entry at a time, because there may be no room for more.
use crate::group::Group;
use bytes::Bytes;
use turnbuckle_core::Key;

/// What to do with the next committed entry.
#[derive(Debug)]
pub enum Next<E> {
    /// It can be applied now. `None`: a new leader's own entry, or a change of the members.
    Apply(Option<E>),
    /// These keys must be in memory first.
    Fetch(Vec<Key>),
}

/// The next committed entry and its index, if it waits for its keys.
#[derive(Debug)]
pub struct Fetching<E>(Option<(u64, E)>);

impl<E> Fetching<E> {
    /// No entry waits.
    pub const NONE: Fetching<E> = Fetching(None);

    /// What to do now. `None`: nothing, because no entry is to be applied, or one waits for its keys. If an entry does not decode, the replica takes no part in the group any more: without the entry's effects it
    /// would show what other replicas do not.
    pub fn next(
        &mut self,
        group: &mut Group,
        decode: impl FnOnce(Bytes) -> Result<E, String>,
        keys: impl FnOnce(&E) -> Vec<Key>,
    ) -> Option<Next<E>> {
        if self.0.is_some() || group.broken().is_some() {
            return None;
        }
        let committed = group.next_committed()?;
        let index = committed.at.index;
        if committed.data.is_empty() {
            return Some(Next::Apply(None));
        }
        match decode(committed.data.clone()) {
            Ok(entry) => Some(match keys(&entry) {
                keys if keys.is_empty() => Next::Apply(Some(entry)),
                keys => {
                    self.0 = Some((index, entry));
                    Next::Fetch(keys)
                }
            }),
            Err(why) => {
                let why = format!("entry {index} is none of this version of Turnbuckle: {why}");
                group.give_up(why);
                None
            }
        }
    }

    /// The keys are in memory: the entry that waited for them, if it is still the next one. A full copy may have come in between.
    pub fn take(&mut self, group: &Group) -> Option<E> {
        let (index, entry) = self.0.take()?;
        let next = group.next_committed()?;
        (next.at.index == index).then_some(entry)
    }
}
