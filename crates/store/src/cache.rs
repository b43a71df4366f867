use crate::Store;
use crate::entries::Entries;
use crate::store::place_at;
use turnbuckle_core::Meta;

impl<M: Meta> Store<M> {
    /// Looks at `max` keys at most, and evicts those that are clean and were not used since the last look (CLOCK),
    /// until memory is below the limit. Returns the number of evicted keys. Keys that a checkpoint has not written yet
    /// stay.
    ///
    /// Call it often, with a small number, which bounds the work. A key that was used stays for one more round.
    pub fn evict(&mut self, max: usize) -> usize {
        self.evict_others(max, |_| false)
    }

    /// The same as [`Store::evict`], but the keys that `keeps` names stay.
    pub fn evict_others(&mut self, max: usize, keeps: impl Fn(&[u8]) -> bool) -> usize {
        let mut evicted = 0;
        for _ in 0..max {
            if !self.wants_room() {
                break;
            }
            let Some(hand) = self.entries.around(self.hand) else {
                break;
            };
            self.hand = hand;
            if self.evict_at_hand(&keeps) {
                evicted += 1;
            } else {
                self.hand = Entries::<M>::behind(hand);
            }
        }
        evicted
    }

    /// How much memory a key takes; 0 if it is not resident.
    pub fn cost_of(&self, key: &[u8]) -> u64 {
        let entry = self.entries.get(key);
        entry.map_or(0, |entry| entry.cost_bytes(key))
    }

    /// Whether memory is above the limit, or too many of its keys are known not to exist. One key in eight may be of
    /// that kind, so that sweeping for them costs a constant per key.
    pub fn wants_room(&self) -> bool {
        self.memory_bytes > self.options.memory_limit_bytes || self.absent > 16 + self.entries.len() / 8
    }

    /// Frees memory that was allocated for many more keys than there are, each time in another part of the map. Call it a few times in a second.
    pub fn shrink(&mut self) {
        self.entries.shrink();
    }

    fn evict_at_hand(&mut self, keeps: impl Fn(&[u8]) -> bool) -> bool {
        let over = self.memory_bytes > self.options.memory_limit_bytes;
        let clean_below = self.clean_below;
        let (key, entry) = self
            .entries
            .get_index_mut(self.hand)
            .expect("the hand was put inside");
        let wanted = over || entry.chain().is_none();
        if !wanted || entry.generation() >= clean_below || entry.marks_mut().cool() || keeps(key) {
            return false;
        }
        self.memory_bytes = self
            .memory_bytes
            .checked_sub(entry.cost_bytes(key))
            .expect("an entry costs no more than all entries");
        match entry.chain() {
            Some(_) => self.complete = false,
            None => self.absent -= 1,
        }
        if let Some(moved) = self.entries.swap_remove(self.hand) {
            self.rename(moved, self.hand);
        }
        true
    }

    /// The entry at `new` was at `old`: the lists of dirty keys are updated.
    fn rename(&mut self, old: usize, new: usize) {
        let entry = &self.entries[new];
        if !self.is_dirty(entry) {
            return;
        }
        let slot = entry.slot();
        let place = || place_at(&self.entries, new as u32);
        if entry.generation() == self.generation {
            self.dirty.rename(slot, old as u32, new as u32, place);
        }
        // The key was taken by a checkpoint and is dirty again since: then it is in both lists.
        self.taking.rename(slot, old as u32, new as u32, place);
    }
}
