//! A table of values by number. The number of a removed value finds nothing, until its slot has been used 2^24 times more.

/// The bits of a number that are its slot, and those that are the tenant: how often the slot was used before.
const SLOT_BITS: u32 = 24;
const TENANT_BITS: u32 = 24;

/// A table that hands out 48-bit numbers.
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len: usize,
}

struct Slot<T> {
    tenant: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub fn new() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
            len: 0,
        }
    }

    /// Inserts a value and returns its number. `None` if there are 16 million values (2^24) already.
    pub fn insert(&mut self, value: T) -> Option<u64> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.slots.len() >> SLOT_BITS == 0 => {
                self.slots.push(Slot {
                    tenant: 0,
                    value: None,
                });
                (self.slots.len() - 1) as u32
            }
            None => return None,
        };
        let slot = &mut self.slots[place as usize];
        slot.value = Some(value);
        self.len += 1;
        Some(u64::from(slot.tenant) << SLOT_BITS | u64::from(place))
    }

    fn slot(&mut self, number: u64) -> Option<&mut Slot<T>> {
        let place = number & ((1 << SLOT_BITS) - 1);
        self.slots
            .get_mut(place as usize)
            .filter(|slot| u64::from(slot.tenant) == number >> SLOT_BITS)
    }

    pub fn find(&mut self, number: u64) -> Option<&mut T> {
        self.slot(number)?.value.as_mut()
    }

    pub fn remove(&mut self, number: u64) -> Option<T> {
        let slot = self.slot(number)?;
        let value = slot.value.take()?;
        slot.tenant = (slot.tenant + 1) & ((1 << TENANT_BITS) - 1);
        self.free.push((number & ((1 << SLOT_BITS) - 1)) as u32);
        self.len -= 1;
        Some(value)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The numbers of the values of which `wanted` is true.
    pub fn numbers(&self, wanted: impl Fn(&T) -> bool) -> Vec<u64> {
        let slots = self.slots.iter().zip(0_u64..);
        slots
            .filter(|(slot, _)| slot.value.as_ref().is_some_and(&wanted))
            .map(|(slot, place)| u64::from(slot.tenant) << SLOT_BITS | place)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_given_up_means_nothing_afterwards() {
        let mut slab = Slab::new();
        let first = slab.insert("first").unwrap();
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second").unwrap();
        assert_ne!(first, second);
        assert_eq!((slab.remove(first), slab.find(first).is_none()), (None, true));
        assert_eq!(slab.find(second), Some(&mut "second"));
        assert_eq!((slab.len(), slab.numbers(|_| true)), (1, vec![second]));
    }
}
