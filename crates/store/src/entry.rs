use crate::census::Kind;
use crate::entries::{INLINE_KEY_BYTES, StoredKey};
use crate::tombstone::LineId;
use std::mem::size_of;
use std::sync::atomic::{AtomicU8, Ordering};
use turnbuckle_core::{Chain, Hlc, Meta, Rank, Shown, Version};

/// The key was read or written since the clock's hand last passed it.
const WARM: u8 = 1;
/// A chunk of the running checkpoint has taken the key, and it has not changed since.
const TAKEN: u8 = 2;
/// Where the kind of the engine's row begins, as of the last chunk that took it: three bits.
const ROW: u32 = 2;
/// Where the kind begins that the row had before that chunk. The two are the same once that chunk is written.
const ROW_BEFORE: u32 = 5;

/// What memory knows about one key. There are millions, so it has 64 bytes for a protocol without metadata: the enum's
/// tag, the marks, the slot and the generation share one word.
#[derive(Debug)]
pub(crate) enum Entry<M> {
    /// The key is known to have no version.
    Absent {
        marks: Marks,
        slot: u16,
        generation: u32,
        /// The line in the index of the delete, or of the expired value, that was its newest version: it is removed together with the row.
        was: Option<LineId>,
    },
    /// The key has versions.
    Held {
        marks: Marks,
        slot: u16,
        /// The store's generation when the entry last became dirty.
        generation: u32,
        chain: Chain<M>,
    },
}

/// Eight bits. Atomic, because a read sets one of them, and several readers may do so at the same time.
#[derive(Debug, Default)]
pub(crate) struct Marks(AtomicU8);

impl Marks {
    fn has(&self, mark: u8) -> bool {
        self.0.load(Ordering::Relaxed) & mark != 0
    }

    fn set(&mut self, mark: u8, on: bool) {
        let marks = self.0.get_mut();
        *marks = if on { *marks | mark } else { *marks & !mark };
    }

    /// Sets the mark. It stores only if that changes something: so a hot key's cache line stays shared.
    pub(crate) fn warm(&self) {
        let marks = self.0.load(Ordering::Relaxed);
        if marks & WARM == 0 {
            self.0.store(marks | WARM, Ordering::Relaxed);
        }
    }

    /// Clears the mark. Returns whether it was set.
    pub(crate) fn cool(&mut self) -> bool {
        let was = self.has(WARM);
        self.set(WARM, false);
        was
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.has(TAKEN)
    }

    pub(crate) fn set_taken(&mut self, on: bool) {
        self.set(TAKEN, on);
    }

    /// What the engine's row is.
    pub(crate) fn row(&self) -> Kind {
        self.kind_at(ROW)
    }

    fn kind_at(&self, place: u32) -> Kind {
        Kind::numbered(self.0.load(Ordering::Relaxed) >> place & 7)
    }

    fn set_kind_at(&mut self, place: u32, kind: Kind) {
        let marks = self.0.get_mut();
        *marks = *marks & !(7 << place) | kind.number() << place;
    }

    pub(crate) fn set_row(&mut self, row: Kind) {
        self.set_kind_at(ROW, row);
        self.set_kind_at(ROW_BEFORE, row);
    }

    /// A chunk that changes the row to `row` is on its way.
    pub(crate) fn change_row(&mut self, row: Kind) {
        self.set_kind_at(ROW, row);
    }

    /// The chunk is written.
    pub(crate) fn keep_row(&mut self) {
        self.set_row(self.row());
    }

    /// The chunk was not written.
    pub(crate) fn take_row_back(&mut self) {
        self.set_row(self.kind_at(ROW_BEFORE));
    }
}

impl<M: Meta> Entry<M> {
    /// A clean entry for the chain that was read from the engine.
    pub(crate) fn clean(slot: u16, chain: Option<Chain<M>>) -> Entry<M> {
        let mut marks = Marks::default();
        marks.warm();
        marks.set_row(Kind::of(chain.as_ref()));
        let generation = 0;
        match chain {
            Some(chain) => Entry::Held {
                marks,
                slot,
                generation,
                chain,
            },
            None => Entry::Absent {
                marks,
                slot,
                generation,
                was: None,
            },
        }
    }

    pub(crate) fn chain(&self) -> Option<&Chain<M>> {
        match self {
            Entry::Absent { .. } => None,
            Entry::Held { chain, .. } => Some(chain),
        }
    }

    pub(crate) fn chain_mut(&mut self) -> Option<&mut Chain<M>> {
        match self {
            Entry::Absent { .. } => None,
            Entry::Held { chain, .. } => Some(chain),
        }
    }

    /// Sets or removes the chain. The rest of the entry stays. `was` is stored if the chain is removed.
    pub(crate) fn set_chain(&mut self, chain: Option<Chain<M>>, was: Option<LineId>) {
        let marks = std::mem::take(self.marks_mut());
        let (slot, generation) = (self.slot(), self.generation());
        *self = match chain {
            Some(chain) => Entry::Held {
                marks,
                slot,
                generation,
                chain,
            },
            None => Entry::Absent {
                marks,
                slot,
                generation,
                was,
            },
        };
    }

    /// Adds a version in the place of those that it replaces ([`Chain::insert_latest`]). Returns false, and changes nothing, if there is a newer one.
    pub(crate) fn insert_latest(&mut self, version: Version<M>) -> bool {
        match self.chain_mut() {
            Some(chain) => chain.insert_latest(version),
            None => {
                self.set_chain(Some(Chain::new(version)), None);
                true
            }
        }
    }

    /// Whether the key has a value for a reader at this time.
    pub(crate) fn is_live(&self, now: Hlc) -> bool {
        Shown::all(self.chain()).has_value(now)
    }

    pub(crate) fn kind(&self) -> Kind {
        Kind::of(self.chain())
    }

    pub(crate) fn slot(&self) -> u16 {
        match self {
            Entry::Absent { slot, .. } | Entry::Held { slot, .. } => *slot,
        }
    }

    pub(crate) fn generation(&self) -> u32 {
        match self {
            Entry::Absent { generation, .. } | Entry::Held { generation, .. } => *generation,
        }
    }

    pub(crate) fn set_generation(&mut self, now: u32) {
        match self {
            Entry::Absent { generation, .. } | Entry::Held { generation, .. } => *generation = now,
        }
    }

    pub(crate) fn marks(&self) -> &Marks {
        match self {
            Entry::Absent { marks, .. } | Entry::Held { marks, .. } => marks,
        }
    }

    pub(crate) fn marks_mut(&mut self) -> &mut Marks {
        match self {
            Entry::Absent { marks, .. } | Entry::Held { marks, .. } => marks,
        }
    }
}

impl<M: Meta> Entry<M> {
    /// The memory that the entry takes together with its key, in bytes, as exactly as is possible without the
    /// allocator: the entry in its chunk, its slot in the table, and each allocation rounded as glibc rounds it.
    pub(crate) fn cost_bytes(&self, key: &[u8]) -> u64 {
        let bucket = size_of::<StoredKey>() + size_of::<Entry<M>>();
        // Four bytes and a control byte per slot of a table that is between 7/16 and 7/8 full.
        let index = 8;
        let on_heap = if key.len() > INLINE_KEY_BYTES {
            allocation(key.len())
        } else {
            0
        };
        let fixed = (bucket + index + on_heap) as u64;
        fixed + self.chain().map_or(0, chain_cost_bytes)
    }
}

fn chain_cost_bytes<M: Meta>(chain: &Chain<M>) -> u64 {
    let versions: u64 = chain.iter().map(version_cost_bytes).sum();
    versions + older_cost_bytes::<M>(chain.len() - 1)
}

/// What the memory of a list begins with: its length, and its room.
const LIST_BYTES: usize = 2 * size_of::<usize>();

/// The memory of the list of older versions, in bytes, without what those versions have on the heap.
fn older_cost_bytes<M>(older: usize) -> u64 {
    if older == 0 {
        return 0;
    }
    allocation(LIST_BYTES + older * size_of::<Version<M>>()) as u64
}

/// Inserts a version, and returns by how many bytes the chain's cost grows. Only the difference: the chain is not walked. `None`: it was there already.
pub(crate) fn insert_and_count<M: Meta>(chain: &mut Chain<M>, version: Version<M>) -> Option<u64> {
    let (older, cost) = (chain.len() - 1, version_cost_bytes(&version));
    let list = older_cost_bytes::<M>(older + 1) - older_cost_bytes::<M>(older);
    if !version.content.is_share() && !chain.has_shares() {
        return chain.insert(version).then_some(cost + list);
    }
    let (newest, newest_cost) = (chain.newest().rank(), version_cost_bytes(chain.newest()));
    if !chain.insert(version) {
        return None;
    }
    // The newest version may have been wrapped, because there are shares.
    let before = match chain.newest().rank() == newest {
        true => newest_cost,
        false => cost,
    };
    Some(cost + list + version_cost_bytes(chain.newest()) - before)
}

/// Drops older versions ([`Chain::make_room`]), and returns what those behind the newest one cost before and afterwards. The newest one stays as it is.
pub(crate) fn make_room_and_count<M: Meta>(
    chain: &mut Chain<M>,
    covered: &dyn Fn(&Version<M>) -> bool,
) -> (u64, u64) {
    let cost = |chain: &Chain<M>| {
        let older: u64 = chain.iter().skip(1).map(version_cost_bytes).sum();
        older + older_cost_bytes::<M>(chain.len() - 1)
    };
    let before_bytes = cost(chain);
    chain.make_room(covered);
    (before_bytes, cost(chain))
}

/// Removes a version, and returns by how many bytes the chain's cost shrinks and grows. `None`, and nothing changes, if it is not there or is the only one.
pub(crate) fn remove_and_count<M: Meta>(chain: &mut Chain<M>, rank: Rank) -> Option<(u64, u64)> {
    let second = chain.iter().nth(1).map_or(0, version_cost_bytes);
    let is_newest = chain.newest().rank() == rank;
    let removed = chain.remove(rank)?;
    // The one behind the newest version may have been wrapped, because there are shares.
    let wraps = match is_newest {
        true => version_cost_bytes(chain.newest()) - second,
        false => 0,
    };
    let older = chain.len() - 1;
    let shrinks =
        version_cost_bytes(&removed) + older_cost_bytes::<M>(older + 1) - older_cost_bytes::<M>(older);
    Some((shrinks, wraps))
}

fn version_cost_bytes<M: Meta>(version: &Version<M>) -> u64 {
    let value = allocation(version.content.value_bytes());
    let content: usize = version.content.heap_bytes().into_iter().map(allocation).sum();
    (value + content + allocation(version.meta.heap_bytes())) as u64
}

/// The memory that an allocation of `bytes` takes: a word in front, multiples of 16, at least 32.
fn allocation(bytes: usize) -> usize {
    if bytes == 0 {
        0
    } else {
        (bytes + 8).next_multiple_of(16).max(32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_without_metadata_takes_64_bytes() {
        assert_eq!(size_of::<Entry<()>>(), 64);
    }
}
