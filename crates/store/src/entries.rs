//! The map from keys to what memory knows of them.
//!
//! A hash table that is full makes room for twice as many keys, and hashes all of them again. The lane is locked meanwhile, and every operation on it waits: `cargo bench -p turnbuckle-store`
//! prints the longest put of a million. So the map consists of many small maps ([`Part`]), which grow one by one. A key's hash says in which one it is.
//!
//! If all parts had about as many keys, all of them would be full at about the same time. So their shares of the keys differ ([`part_of`]): while the number of keys doubles,
//! one part after the other grows.
//!
//! Each entry has an index, by which the lists of dirty keys name it. It stays the same until the entry is removed, or until another entry of the same
//! part is removed ([`Entries::swap_remove`]).
use crate::entry::Entry;
use crate::part::Part;
use foldhash::fast::FixedState;
use smallvec::SmallVec;
use std::hash::BuildHasher;
use std::ops;

/// A key as the map keeps it: most keys are short. They are stored beside their entry, which saves a cache miss.
pub(crate) type StoredKey = SmallVec<[u8; INLINE_KEY_BYTES]>;
pub(crate) const INLINE_KEY_BYTES: usize = 24;

/// The number of small maps, a power of two. With ten million keys, each has 50,000 to 100,000.
const PARTS: usize = 128;
const _: () = assert!(PARTS == u128::BITS as usize, "there is a bit for each part");

/// Where the bits of a hash begin that choose the part. The small maps use the lowest bits and the seven highest ones.
const PART_BITS_AT: u32 = 40;

/// A part frees memory that it does not use if it has room for more than this number of entries.
const MIN_KEYS: usize = (1 << 14) / PARTS;

pub(crate) struct Entries<M> {
    parts: Box<[Part<M>]>,
    hasher: FixedState,
    len: usize,
    /// The part that is shrunk next.
    shrinks: usize,
    /// The parts that have entries, by their bits.
    occupied: u128,
}

/// The bits of a hash that choose a pair of parts, and those that choose one of these two.
const PAIR_BITS: u32 = (PARTS / 2).trailing_zeros();
const DRAW_BITS: u32 = 11;

/// The part in which a key is, by its hash. Part p has a share of PARTS + p: the last one has about twice as many keys as the first one. Of two parts p and
/// PARTS - 1 - p the shares have the same sum, whatever p is. So pairs are equal, and have some bits of the hash. Some more draw one of the two.
fn part_of(hash: u64) -> usize {
    let bits = (hash >> PART_BITS_AT) as usize;
    let pair = bits % (1 << PAIR_BITS);
    let draw = (bits >> PAIR_BITS) % (1 << DRAW_BITS);
    match draw * (3 * PARTS - 1) < (PARTS + pair) << DRAW_BITS {
        true => pair,
        false => PARTS - 1 - pair,
    }
}

impl<M> Entries<M> {
    pub(crate) fn new(hash_seed: u64) -> Entries<M> {
        Entries {
            parts: (0..PARTS).map(|_| Part::new()).collect(),
            hasher: FixedState::with_seed(hash_seed),
            len: 0,
            shrinks: 0,
            occupied: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The hash of a key, and the part in which it is.
    fn place(&self, key: &[u8]) -> (u64, usize) {
        let hash = self.hasher.hash_one(key);
        (hash, part_of(hash))
    }

    pub(crate) fn get_index_of(&self, key: &[u8]) -> Option<usize> {
        let (hash, part) = self.place(key);
        let within = self.parts[part].find(hash, key)?;
        Some(within * PARTS + part)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Entry<M>> {
        let (hash, part) = self.place(key);
        let part = &self.parts[part];
        let (_, entry) = part.get(part.find(hash, key)?)?;
        Some(entry)
    }

    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry<M>> {
        let index = self.get_index_of(key)?;
        Some(&mut self[index])
    }

    pub(crate) fn contains_key(&self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    /// The key and the entry at an index, if there is one.
    pub(crate) fn get_index(&self, index: usize) -> Option<(&StoredKey, &Entry<M>)> {
        self.parts[index % PARTS].get(index / PARTS)
    }

    /// The same, to be changed.
    pub(crate) fn get_index_mut(&mut self, index: usize) -> Option<(&StoredKey, &mut Entry<M>)> {
        self.parts[index % PARTS].get_mut(index / PARTS)
    }

    /// Adds an entry, and returns its index. `None`: the key has an entry, and nothing was changed.
    ///
    /// # Panics
    /// If the part has no index left. There are some four billion indexes, and more than three billion keys have one.
    pub(crate) fn insert(&mut self, key: &[u8], entry: Entry<M>) -> Option<usize> {
        let (hash, part) = self.place(key);
        if self.parts[part].find(hash, key).is_some() {
            return None;
        }
        let index = self.parts[part].len() * PARTS + part;
        assert!(
            u32::try_from(index).is_ok(),
            "more than three billion keys in one replica"
        );
        let hasher = &self.hasher;
        self.parts[part].push(hash, StoredKey::from_slice(key), entry, |key| {
            hasher.hash_one(key)
        });
        self.len += 1;
        self.occupied |= 1 << part;
        Some(index)
    }

    /// Removes the entry at an index. The last entry of its part takes its place. Returns the index that this one had until now, if there is one.
    ///
    /// # Panics
    /// If there is no such entry.
    pub(crate) fn swap_remove(&mut self, index: usize) -> Option<usize> {
        let (within, part) = (index / PARTS, index % PARTS);
        assert!(within < self.parts[part].len(), "no entry at this index");
        let hasher = &self.hasher;
        self.parts[part].swap_remove(within, |key| hasher.hash_one(key));
        let last = self.parts[part].len();
        self.len -= 1;
        if last == 0 {
            self.occupied &= !(1 << part);
        }
        (last != within).then_some(last * PARTS + part)
    }

    /// The first index at or behind `index` that has an entry, in an order that reaches all of them. Behind the last one it goes on at the first one.
    pub(crate) fn around(&self, index: usize) -> Option<usize> {
        let (within, part) = (index / PARTS, index % PARTS);
        if within < self.parts[part].len() {
            return Some(index);
        }
        // The parts behind this one are the lowest bits then, and this one is the highest.
        let others = self.occupied.rotate_right(part as u32 + 1);
        (others != 0).then(|| (part + 1 + others.trailing_zeros() as usize) % PARTS)
    }

    /// The index behind this one in the order of [`Entries::around`].
    pub(crate) fn behind(index: usize) -> usize {
        index + PARTS
    }

    /// Frees memory that was allocated for many more keys than there are. It hashes the keys that are left in one part of the map, each time of the next one: call it seldom.
    pub(crate) fn shrink(&mut self) {
        let part = &mut self.parts[self.shrinks % PARTS];
        self.shrinks = self.shrinks.wrapping_add(1);
        if part.room() > MIN_KEYS && part.len() < part.room() / 4 {
            let hasher = &self.hasher;
            part.rebuild_table(part.len() * 2, &|key: &[u8]| hasher.hash_one(key));
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&StoredKey, &Entry<M>)> {
        self.parts.iter().flat_map(Part::iter)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Entry<M>> {
        self.iter().map(|(_, entry)| entry)
    }

    /// Each entry with its index.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = (usize, &Entry<M>)> {
        let parts = self.parts.iter().enumerate();
        parts.flat_map(|(part, entries)| {
            let entries = entries.iter().enumerate();
            entries.map(move |(within, (_, entry))| (within * PARTS + part, entry))
        })
    }
}

impl<M> ops::Index<usize> for Entries<M> {
    type Output = Entry<M>;

    /// The entry at an index.
    ///
    /// # Panics
    /// If there is none.
    fn index(&self, index: usize) -> &Entry<M> {
        let found = self.get_index(index);
        found.expect("an index names an entry").1
    }
}

impl<M> ops::IndexMut<usize> for Entries<M> {
    fn index_mut(&mut self, index: usize) -> &mut Entry<M> {
        let found = self.get_index_mut(index);
        found.expect("an index names an entry").1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};
    use std::collections::{BTreeMap, BTreeSet};

    /// The generation stands for the entry's identity.
    fn entry(number: u32) -> Entry<()> {
        let mut entry = Entry::clean(0, None);
        entry.set_generation(number);
        entry
    }

    #[test]
    fn memory_that_was_allocated_for_many_more_keys_is_freed() {
        let mut entries: Entries<()> = Entries::new(1);
        for number in 0..100_000_u32 {
            entries.insert(&number.to_be_bytes(), entry(number));
        }
        let room = |entries: &Entries<()>| entries.parts.iter().map(Part::room).sum::<usize>();
        (0..PARTS).for_each(|_| entries.shrink());
        assert!(room(&entries) >= 100_000);
        for number in 1_000..100_000_u32 {
            let index = entries.get_index_of(&number.to_be_bytes());
            entries.swap_remove(index.expect("it was inserted"));
        }
        (0..PARTS).for_each(|_| entries.shrink());
        assert!(room(&entries) < 10_000, "room for {} of 1000", room(&entries));
        assert!((0..1_000_u32).all(|number| entries.contains_key(&number.to_be_bytes())));
    }

    #[test]
    fn the_parts_grow_one_after_the_other() {
        const HASHES: u64 = 1 << (PAIR_BITS + DRAW_BITS);
        let mut shares = [0_u64; PARTS];
        (0..HASHES).for_each(|hash| shares[part_of(hash << PART_BITS_AT)] += 1);
        assert_eq!(shares.iter().sum::<u64>(), HASHES);
        for (part, &share) in shares.iter().enumerate() {
            let exact = HASHES * (PARTS + part) as u64 / (PARTS * (3 * PARTS - 1) / 2) as u64;
            assert!(
                share.abs_diff(exact) <= 1,
                "part {part}: {share}, and not {exact}"
            );
        }
        // At which share of a doubling each part is full, in hundredths: the part with the largest share first.
        let mut full = [0; 101];
        shares
            .iter()
            .for_each(|share| full[(100 * shares[0] / share) as usize] += 1);
        assert!(full.iter().all(|parts| *parts <= 6), "{full:?}");
        // And so it is with keys, whose numbers scatter.
        let mut entries: Entries<()> = Entries::new(1);
        let mut grown = Vec::new();
        for number in 0..400_000_u32 {
            let part = entries.place(&number.to_be_bytes()).1;
            let room = entries.parts[part].room();
            entries.insert(&number.to_be_bytes(), entry(number));
            if number >= 200_000 && entries.parts[part].room() > room {
                grown.push(number / 2_000);
            }
        }
        let most = (100..200).map(|step| grown.iter().filter(|grown| **grown == step).count());
        assert!(grown.len() >= PARTS - 8 && most.max() <= Some(6), "{grown:?}");
    }

    #[test]
    fn an_index_names_its_entry_until_another_one_takes_its_place() {
        for seed in 0..20 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut draw = |below: u32| random.next_u32() % below;
            let mut entries: Entries<()> = Entries::new(seed);
            let mut model: BTreeMap<usize, (String, u32)> = BTreeMap::new();
            let most = 1 + draw(1000);
            for number in 0..3 * most {
                let key = format!("key of some length {}", draw(most));
                match entries.get_index_of(key.as_bytes()) {
                    None => {
                        let index = entries.insert(key.as_bytes(), entry(number)).expect("it is new");
                        assert_eq!(model.insert(index, (key, number)), None);
                    }
                    Some(index) if draw(2) == 0 => {
                        assert_eq!(entries.insert(key.as_bytes(), entry(number)), None);
                        assert_eq!(model[&index].0, key);
                    }
                    Some(index) => {
                        let moved = entries.swap_remove(index);
                        model.remove(&index).expect("it was there");
                        if let Some(moved) = moved.and_then(|old| model.remove(&old)) {
                            model.insert(index, moved);
                        }
                    }
                }
                entries.shrink();
            }
            assert_eq!(entries.len(), model.len());
            let indexed: BTreeMap<usize, u32> = entries
                .indexed()
                .map(|(index, entry)| (index, entry.generation()))
                .collect();
            let expected: BTreeMap<usize, u32> = model
                .iter()
                .map(|(&index, (_, number))| (index, *number))
                .collect();
            assert_eq!(indexed, expected, "seed {seed}");
            let mut at = 0;
            let passed: BTreeSet<usize> = (0..entries.len())
                .filter_map(|_| {
                    let index = entries.around(at)?;
                    at = Entries::<()>::behind(index);
                    Some(index)
                })
                .collect();
            assert_eq!(
                passed.len(),
                entries.len(),
                "seed {seed}: a round reaches each entry once"
            );
        }
    }
}
