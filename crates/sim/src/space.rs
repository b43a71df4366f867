//! The space on a machine's disk, which other files may fill.
//!
//! A disk has unlimited space, until another file takes all of it except for a few bytes. Then bytes are counted: those of the commit log's
//! files and of the engine's rows. A write that does not fit fails as it would on a real disk: the log cuts it off and keeps it in memory,
//! and the engine takes no more writes until it is opened again.
//!
//! What the server does beside the node is done here, too. It looks at the disk ten times a second, and whenever a 64th of the space that
//! is to be kept free was logged. And it keeps a ballast file. A start without space removes it first, because a start writes a little.
use turnbuckle_core::Room;

/// A generous size for what a start may write, in bytes.
const BALLAST_BYTES: u64 = 16 << 10;

/// The fraction of the space that is to be kept free that may be logged between two looks: 1 MiB of 64 in the server.
const LOOKS: u64 = 64;

/// The space of a machine's disk.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub room: Room,
    /// Whether another file has the rest of it.
    pub is_taken: bool,
    /// Whether the ballast file for starts is there.
    pub has_ballast: bool,
    /// Whether a process could not be started because of missing space.
    pub has_kept_closed: bool,
    /// The number of bytes that had been logged at the last look.
    looked_at: u64,
}

impl Space {
    pub fn new() -> Space {
        Space {
            has_ballast: true,
            ..Space::default()
        }
    }

    /// Another file takes all except for this number of bytes.
    pub fn take_all_but(&mut self, free_bytes: u64) {
        self.is_taken = true;
        self.room.set_free(Some(free_bytes));
    }

    /// The other file is gone: its space is free again.
    pub fn make_room(&mut self) {
        self.room.set_free(None);
        (self.is_taken, self.has_ballast) = (false, true);
    }

    /// A process is about to start. If space is short, the ballast file is removed.
    pub fn give_up_ballast_if_short(&mut self) {
        let free = self.room.free();
        if self.has_ballast && free < BALLAST_BYTES {
            self.has_ballast = false;
            self.room.set_free(Some(free + BALLAST_BYTES));
        }
    }

    /// Creates the ballast file if there is enough free space beyond what is to be kept free.
    pub fn keep_ballast(&mut self, min_free_bytes: u64) {
        let free = self.room.free();
        if !self.has_ballast && free.saturating_sub(min_free_bytes) >= 2 * BALLAST_BYTES {
            self.has_ballast = true;
            self.room.set_free(Some(free - BALLAST_BYTES));
        }
    }

    /// Whether enough was logged since the last look for another one.
    pub fn wants_look(&self, logged: u64, min_free_bytes: u64) -> bool {
        logged.saturating_sub(self.looked_at) > min_free_bytes / LOOKS
    }

    /// Looks at the disk, when `logged` bytes were logged in this life. Returns the free bytes.
    pub fn look(&mut self, logged: u64) -> u64 {
        self.looked_at = logged;
        self.room.free()
    }
}
