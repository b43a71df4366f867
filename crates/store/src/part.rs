//! One of the small maps that the map of keys consists of ([`Entries`](crate::entries::Entries)).
//!
//! Each entry has a place. A table finds the place of a key by the key's hash, and the entries are in chunks, by their places:
//!
//! ```text
//!   table    hash -> place           four bytes for each key, and more for empty ones; doubles when it is full
//!   chunks   [0..256) [256..512) ..   the keys and their entries; a full chunk is never moved
//! ```
//!
//! In one vector, all entries of a part would be moved whenever the vector grows.
use crate::entries::StoredKey;
use crate::entry::Entry;
use hashbrown::HashTable;

/// How many entries a chunk has. A lookup reads where its chunk is: of a million keys, these places take some 100 KiB, and stay in the processor's cache. In tests chunks are small, so that parts have several.
const CHUNK: usize = if cfg!(test) { 16 } else { 256 };

/// For how many entries a chunk has room at first. It doubles its room until it has that of a whole chunk, so that the last chunk of each part has not much that is empty.
const FIRST_ROOM: usize = CHUNK / 8;

pub(crate) struct Part<M> {
    table: HashTable<u32>,
    /// All but the last one are full.
    chunks: Vec<Vec<Slot<M>>>,
    len: usize,
}

struct Slot<M> {
    key: StoredKey,
    entry: Entry<M>,
}

impl<M> Part<M> {
    pub(crate) fn new() -> Part<M> {
        Part {
            table: HashTable::new(),
            chunks: Vec::new(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// For how many keys the table has room.
    pub(crate) fn room(&self) -> usize {
        self.table.capacity()
    }

    /// The place of a key, if it has an entry.
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let is_it = |&place: &u32| slot(&self.chunks, place as usize).key.as_slice() == key;
        self.table.find(hash, is_it).map(|&place| place as usize)
    }

    pub(crate) fn get(&self, place: usize) -> Option<(&StoredKey, &Entry<M>)> {
        let slot = self.chunks.get(place / CHUNK)?.get(place % CHUNK)?;
        Some((&slot.key, &slot.entry))
    }

    pub(crate) fn get_mut(&mut self, place: usize) -> Option<(&StoredKey, &mut Entry<M>)> {
        let slot = self.chunks.get_mut(place / CHUNK)?.get_mut(place % CHUNK)?;
        Some((&slot.key, &mut slot.entry))
    }

    /// Adds an entry behind the others. The key has this hash, and must have no entry. `hash_of` returns the hash of a key.
    pub(crate) fn push(
        &mut self,
        hash: u64,
        key: StoredKey,
        entry: Entry<M>,
        hash_of: impl Fn(&[u8]) -> u64,
    ) {
        if self.table.len() == self.table.capacity() {
            // Removed keys leave marks that use up room. If there are many of them, the new table is no larger.
            self.rebuild_table(self.len + self.len / 8, &hash_of);
        }
        self.table
            .insert_unique(hash, self.len as u32, |_| unreachable!("there is room"));
        if self.len.is_multiple_of(CHUNK) {
            let room = if self.len == 0 { 0 } else { FIRST_ROOM };
            self.chunks.push(Vec::with_capacity(room));
        }
        self.chunks[self.len / CHUNK].push(Slot { key, entry });
        self.len += 1;
    }

    /// Removes the entry at a place. The last entry takes its place.
    ///
    /// # Panics
    /// If there is no such entry.
    pub(crate) fn swap_remove(&mut self, place: usize, hash_of: impl Fn(&[u8]) -> u64) {
        let hash = hash_of(&slot(&self.chunks, place).key);
        let found = self.table.find_entry(hash, |&other| other as usize == place);
        found.expect("each key is in the table").remove();
        self.len -= 1;
        let last = self.chunks[self.len / CHUNK].pop();
        let last = last.expect("the last chunk has an entry");
        if place != self.len {
            let found = self
                .table
                .find_mut(hash_of(&last.key), |&other| other as usize == self.len);
            *found.expect("each key is in the table") = place as u32;
            self.chunks[place / CHUNK][place % CHUNK] = last;
        }
        if self.len.is_multiple_of(CHUNK) {
            self.chunks.pop();
        }
    }

    /// Gives the table room for more than this number of keys. The keys are read in the order in which they are in memory, and not in that of the table.
    pub(crate) fn rebuild_table(&mut self, room: usize, hash_of: &impl Fn(&[u8]) -> u64) {
        let mut table = HashTable::with_capacity(room + 1);
        for (place, (key, _)) in self.iter().enumerate() {
            table.insert_unique(hash_of(key), place as u32, |_| unreachable!("there is room"));
        }
        self.table = table;
    }

    /// All entries, by their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&StoredKey, &Entry<M>)> {
        self.chunks.iter().flatten().map(|slot| (&slot.key, &slot.entry))
    }
}

fn slot<M>(chunks: &[Vec<Slot<M>>], place: usize) -> &Slot<M> {
    &chunks[place / CHUNK][place % CHUNK]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    /// Few hashes: many keys have the same one.
    fn hash_of(key: &[u8]) -> u64 {
        u64::from(key[0]) << 57 | u64::from(key[1] % 8)
    }

    /// Compares a part with a list of keys. It grows over several chunks, and shrinks to none, three times.
    #[test]
    fn each_key_is_found_at_its_place() {
        for seed in 0..10 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let (mut part, mut list): (Part<()>, Vec<[u8; 2]>) = (Part::new(), Vec::new());
            for phase in 0..6 {
                while if phase % 2 == 0 {
                    list.len() < 16 * CHUNK
                } else {
                    !list.is_empty()
                } {
                    let draw = random.next_u32() as usize;
                    let grows = (draw >> 20) % 4 < if phase % 2 == 0 { 3 } else { 1 };
                    let key = [draw as u8, (draw >> 8) as u8];
                    if !grows && !list.is_empty() {
                        let place = draw % list.len();
                        part.swap_remove(place, hash_of);
                        list.swap_remove(place);
                    } else if !list.contains(&key) {
                        let mut entry = Entry::clean(0, None);
                        entry.set_generation(draw as u32);
                        part.push(hash_of(&key), StoredKey::from_slice(&key), entry, hash_of);
                        list.push(key);
                    }
                    assert_eq!(part.len(), list.len());
                    assert_eq!(
                        part.find(hash_of(&key), &key),
                        list.iter().position(|of| *of == key)
                    );
                }
                let all: Vec<&[u8]> = part.iter().map(|(key, _)| key.as_slice()).collect();
                assert_eq!(all, list, "seed {seed}");
                for (place, key) in list.iter().enumerate() {
                    assert_eq!(part.find(hash_of(key), key), Some(place));
                    let (kept, entry) = part.get(place).expect("there is an entry");
                    let draw = entry.generation();
                    assert_eq!(
                        (kept.as_slice(), [draw as u8, (draw >> 8) as u8]),
                        (&key[..], *key)
                    );
                }
                assert!(part.get(list.len()).is_none() && part.get_mut(list.len()).is_none());
                part.rebuild_table(part.len(), &hash_of);
            }
            assert!(part.chunks.is_empty() && part.room() < 8);
        }
    }
}
