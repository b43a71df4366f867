use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The room on a simulated disk. What keeps files there takes bytes of it and frees them. Clones are the same disk.
///
/// It is in this crate because a commit log and a storage engine share one disk, and do not know each other.
#[derive(Debug, Clone)]
pub struct Room(Arc<Mutex<Bytes>>);

#[derive(Debug)]
struct Bytes {
    capacity: u64,
    used: u64,
}

/// The capacity of a disk without a limit: more than any run fills, and far from what a `u64` counts.
const ANY: u64 = u64::MAX / 4;

impl Default for Room {
    /// A disk that never fills up.
    fn default() -> Room {
        Room(Arc::new(Mutex::new(Bytes {
            capacity: ANY,
            used: 0,
        })))
    }
}

impl Room {
    fn bytes(&self) -> MutexGuard<'_, Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of bytes that are free.
    pub fn free(&self) -> u64 {
        self.bytes().free()
    }

    /// Sets how many bytes are free. With `None` the disk never fills up.
    pub fn set_free(&self, free: Option<u64>) {
        let mut bytes = self.bytes();
        bytes.capacity = free.map_or(ANY, |free| bytes.used.saturating_add(free).min(ANY));
    }

    /// Takes bytes if all of them are free, and none otherwise. Returns whether it took them.
    pub fn take(&self, wanted: u64) -> bool {
        let mut bytes = self.bytes();
        let fits = wanted <= bytes.free();
        if fits {
            bytes.used += wanted;
        }
        fits
    }

    /// Takes `wanted` bytes, or as many as are free. Returns the number that it took.
    pub fn take_some(&self, wanted: u64) -> u64 {
        let mut bytes = self.bytes();
        let taken = wanted.min(bytes.free());
        bytes.used += taken;
        taken
    }

    /// Counts bytes as used even if there is no room for them: for files that were put there or restored.
    pub fn add(&self, more: u64) {
        let mut bytes = self.bytes();
        bytes.used = bytes.used.saturating_add(more);
    }

    /// Frees bytes.
    pub fn give(&self, back: u64) {
        let mut bytes = self.bytes();
        bytes.used = bytes.used.saturating_sub(back);
    }
}

impl Bytes {
    fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_free_again_and_no_more_is_taken_than_there_is() {
        let room = Room::default();
        room.add(1_000);
        room.set_free(Some(100));
        assert!(!room.take(101) && room.take(60));
        assert_eq!((room.take_some(60), room.free()), (40, 0));
        room.give(500);
        assert_eq!(room.free(), 500);
        room.add(700);
        assert_eq!(room.free(), 0, "files that came back");
        room.give(300);
        assert_eq!(room.free(), 100);
        room.set_free(None);
        assert!(room.take(1 << 40));
    }
}
