use crate::Place;
use std::collections::BTreeSet;
use turnbuckle_core::HASH_SLOTS;

/// The keys that have changed since some checkpoint, as indexes into the store's map, in lists per hash slot.
///
/// A put appends to a list: nothing is cheaper, and every write does it. A scan needs the keys in the order of rows,
/// and sorts the one list that it needs. If all keys are in one slot (clients do that with `{tags}`), one list would
/// have all keys. So a list that grows long becomes a tree.
#[derive(Debug, Default)]
pub(crate) struct DirtySet {
    slots: Slots,
}

/// An array of all slots in two levels. A slot is found without a search, and a replica that has only some slots needs
/// little memory.
#[derive(Debug, Default)]
struct Slots {
    pages: Vec<Option<Box<[Slot; PAGE_SLOTS]>>>,
}

const PAGE_SLOTS: usize = 64;

#[derive(Debug)]
enum Slot {
    Few(Vec<u32>),
    Many(BTreeSet<(Place, u32)>),
}

/// The most indexes in a list before it becomes a tree.
const MAX_LISTED: usize = 256;

/// How far a walk over the set has come.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Walk {
    slot: u16,
    /// The number of indexes taken, if the slot has a list.
    taken: usize,
    /// Where to go on, if the slot has a tree.
    from: Place,
}

impl Slots {
    fn slot(&self, slot: u16) -> Option<&Slot> {
        let page = self.pages.get(usize::from(slot) / PAGE_SLOTS)?;
        page.as_ref().map(|page| &page[usize::from(slot) % PAGE_SLOTS])
    }

    fn slot_mut(&mut self, slot: u16) -> &mut Slot {
        if self.pages.is_empty() {
            self.pages
                .resize_with(usize::from(HASH_SLOTS).div_ceil(PAGE_SLOTS), || None);
        }
        let page = self.pages[usize::from(slot) / PAGE_SLOTS]
            .get_or_insert_with(|| Box::new(std::array::from_fn(|_| Slot::default())));
        &mut page[usize::from(slot) % PAGE_SLOTS]
    }

    /// The slots from `first` on that are not empty.
    fn from(&self, first: u16) -> impl Iterator<Item = (u16, &Slot)> {
        let first_page = usize::from(first) / PAGE_SLOTS;
        let pages = self.pages.iter().enumerate().skip(first_page);
        pages
            .filter_map(|(at, page)| page.as_ref().map(|page| (at * PAGE_SLOTS, page)))
            .flat_map(|(at, page)| {
                page.iter()
                    .enumerate()
                    .map(move |(offset, slot)| ((at + offset) as u16, slot))
            })
            .filter(move |(slot, indexes)| *slot >= first && !indexes.is_empty())
    }
}

impl DirtySet {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.pages.is_empty()
    }

    /// Adds an index. `place` returns the place of any index.
    pub(crate) fn insert(&mut self, slot: u16, index: u32, place: impl Fn(u32) -> Place) {
        match self.slots.slot_mut(slot) {
            Slot::Few(list) if list.len() < MAX_LISTED => list.push(index),
            few @ Slot::Few(_) => {
                let mut tree = few.placed(&place);
                tree.insert((place(index), index));
                *few = Slot::Many(tree);
            }
            Slot::Many(tree) => {
                tree.insert((place(index), index));
            }
        }
    }

    /// The key at index `old` is now at `new`. Nothing happens if it is not in the set. `place` is the key's place.
    pub(crate) fn rename(&mut self, slot: u16, old: u32, new: u32, place: impl FnOnce() -> Place) {
        if self.slots.slot(slot).is_none_or(Slot::is_empty) {
            return;
        }
        match self.slots.slot_mut(slot) {
            Slot::Few(list) => {
                list.iter_mut()
                    .filter(|index| **index == old)
                    .for_each(|index| *index = new);
            }
            Slot::Many(tree) => {
                let place = place();
                if tree.remove(&(place, old)) {
                    tree.insert((place, new));
                }
            }
        }
    }

    /// Moves everything of `other` into this set.
    pub(crate) fn append(&mut self, other: DirtySet, place: impl Fn(u32) -> Place) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for (slot, indexes) in other.slots.from(0) {
            for index in indexes.all() {
                self.insert(slot, index, &place);
            }
        }
    }

    /// Everything, for tests.
    pub(crate) fn all(&self) -> Vec<u32> {
        self.walk(&mut Walk::default(), usize::MAX)
    }

    /// Everything that a walk has passed, and the rest of its last slot.
    pub(crate) fn until(&self, walk: Walk) -> Vec<u32> {
        let passed = self.slots.from(0).take_while(|(slot, _)| *slot <= walk.slot);
        passed.flat_map(|(_, indexes)| indexes.all()).collect()
    }

    /// The next indexes of a walk, about `max`, or none at its end. No index may be inserted during a walk.
    pub(crate) fn walk(&self, walk: &mut Walk, max: usize) -> Vec<u32> {
        let mut found = Vec::new();
        while found.len() < max
            && let Some((slot, indexes)) = self.slots.from(walk.slot).next()
        {
            if slot != walk.slot {
                *walk = Walk {
                    slot,
                    ..Walk::default()
                };
            }
            let wanted = max - found.len();
            let finished = match indexes {
                Slot::Few(list) => {
                    let rest = &list[walk.taken..];
                    found.extend(&rest[..wanted.min(rest.len())]);
                    walk.taken += wanted.min(rest.len());
                    walk.taken == list.len()
                }
                Slot::Many(tree) => {
                    let (page, more) = page_of(tree, walk.from, wanted);
                    found.extend(page.iter().map(|&(_, index)| index));
                    walk.from = more.unwrap_or_default();
                    more.is_none()
                }
            };
            if finished {
                *walk = Walk {
                    slot: slot + 1,
                    ..Walk::default()
                };
            }
        }
        found
    }

    /// The first slot at or behind `slot` that is not empty.
    pub(crate) fn next_slot(&self, slot: u16) -> Option<u16> {
        self.slots.from(slot).next().map(|(slot, _)| slot)
    }

    /// The indexes of one slot at or behind a place, in order: all of them, or about `max` and the place where there
    /// are more. Indexes with the same place stay together.
    pub(crate) fn page(
        &self,
        slot: u16,
        from: Place,
        max: usize,
        place: impl Fn(u32) -> Place,
    ) -> (Vec<(Place, u32)>, Option<Place>) {
        match self.slots.slot(slot) {
            None => (Vec::new(), None),
            Some(few @ Slot::Few(_)) => page_of(&few.placed(&place), from, max),
            Some(Slot::Many(tree)) => page_of(tree, from, max),
        }
    }
}

impl Default for Slot {
    fn default() -> Slot {
        Slot::Few(Vec::new())
    }
}

impl Slot {
    /// A tree is never empty: no index is ever removed.
    fn is_empty(&self) -> bool {
        matches!(self, Slot::Few(list) if list.is_empty())
    }

    fn all(&self) -> Vec<u32> {
        match self {
            Slot::Few(list) => list.clone(),
            Slot::Many(tree) => tree.iter().map(|&(_, index)| index).collect(),
        }
    }

    fn placed(&self, place: impl Fn(u32) -> Place) -> BTreeSet<(Place, u32)> {
        match self {
            Slot::Few(list) => list.iter().map(|&index| (place(index), index)).collect(),
            Slot::Many(tree) => tree.clone(),
        }
    }
}

fn page_of(tree: &BTreeSet<(Place, u32)>, from: Place, max: usize) -> (Vec<(Place, u32)>, Option<Place>) {
    let mut page: Vec<(Place, u32)> = Vec::new();
    for &(place, index) in tree.range((from, 0)..) {
        if page.len() >= max.max(1) && page.last().is_some_and(|last| last.0 != place) {
            return (page, Some(place));
        }
        page.push((place, index));
    }
    (page, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    /// Several indexes share a place, as several keys may.
    fn place(index: u32) -> Place {
        Place(u64::from(index / 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16)
    }

    #[test]
    fn lists_and_trees_agree_with_a_sorted_vector() {
        for seed in 0..20 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut draw = |below: u32| random.next_u32() % below;
            let slots = 1 + draw(4) as u16;
            let mut set = DirtySet::default();
            let mut model: Vec<(u16, Place, u32)> = Vec::new();
            let count = draw(2000);
            for index in 0..count {
                let slot = draw(u32::from(slots)) as u16;
                set.insert(slot, index, place);
                model.push((slot, place(index), index));
            }
            for _ in 0..draw(count + 1) {
                // The place stays with the key. Below, the place of the new index is found from the old one, which is
                // `new % (3 * count)`.
                let at = draw(count) as usize;
                let (slot, place, old) = model[at];
                let new = old + 3 * count;
                set.rename(slot, old, new, || place);
                model[at].2 = new;
            }
            let place = |index: u32| {
                let old = index % (3 * count.max(1));
                place(old)
            };
            model.sort_unstable();
            let mut walked = Vec::new();
            let mut walk = Walk::default();
            loop {
                let step = set.walk(&mut walk, 1 + draw(50) as usize);
                if step.is_empty() {
                    break;
                }
                walked.extend(step);
            }
            walked.sort_unstable();
            let mut all: Vec<u32> = model.iter().map(|line| line.2).collect();
            all.sort_unstable();
            assert_eq!(walked, all, "seed {seed}: a walk");
            let mut paged = Vec::new();
            for slot in 0..slots {
                let mut from = Some(Place(0));
                while let Some(begin) = from {
                    let (page, next) = set.page(slot, begin, 1 + draw(50) as usize, place);
                    assert!(
                        page.iter()
                            .all(|line| line.0 >= begin && next.is_none_or(|next| line.0 < next))
                    );
                    paged.extend(page.into_iter().map(|(place, index)| (slot, place, index)));
                    from = next;
                }
            }
            assert_eq!(paged, model, "seed {seed}: pages");
        }
    }
}
