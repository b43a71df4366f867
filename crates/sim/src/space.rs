//! The room on a machine's disk, when others fill it.
//!
//! A disk has room for everything, until somebody else's file takes all of it but a few bytes. Then bytes count: those of the commit log's
//! files and of the engine's rows. A write that does not fit fails as it would on any disk: the log cuts it off and keeps it in memory,
//! and the engine takes no more writes until it is opened again.
//!
//! What the server does beside the node is done here, too. It looks at the disk ten times a second, and whenever a 64th of what is to be
//! kept free was logged. And it keeps a file that a start without room removes first, since a start writes a little.
use turnbuckle_core::Room;

/// What a start may need, generously.
const BALLAST_BYTES: u64 = 16 << 10;

/// Of what is to be kept free, so much may be logged between two looks: a MiB of 64 in the server.
const LOOKS: u64 = 64;

/// A machine's disk, as far as its room goes.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub room: Room,
    /// Others have the rest of it.
    pub is_taken: bool,
    /// The file for starts is there.
    pub has_ballast: bool,
    /// A process could not be started for want of room.
    pub has_kept_closed: bool,
    /// How much was logged at the last look.
    looked_at: u64,
}

impl Space {
    pub fn new() -> Space {
        Space {
            has_ballast: true,
            ..Space::default()
        }
    }

    /// Others take all but so many bytes.
    pub fn take_all_but(&mut self, free_bytes: u64) {
        self.is_taken = true;
        self.room.set_free(Some(free_bytes));
    }

    /// What they have taken is free again.
    pub fn make_room(&mut self) {
        self.room.set_free(None);
        (self.is_taken, self.has_ballast) = (false, true);
    }

    /// A process is about to start.
    pub fn give_up_ballast_if_short(&mut self) {
        let free = self.room.free();
        if self.has_ballast && free < BALLAST_BYTES {
            self.has_ballast = false;
            self.room.set_free(Some(free + BALLAST_BYTES));
        }
    }

    /// Sees to it that the file is there, if so much is free beside what is to be kept free.
    pub fn keep_ballast(&mut self, min_free_bytes: u64) {
        let free = self.room.free();
        if !self.has_ballast && free.saturating_sub(min_free_bytes) >= 2 * BALLAST_BYTES {
            self.has_ballast = true;
            self.room.set_free(Some(free - BALLAST_BYTES));
        }
    }

    /// Whether so much was logged since the last look that it is time for another.
    pub fn wants_look(&self, logged: u64, min_free_bytes: u64) -> bool {
        logged.saturating_sub(self.looked_at) > min_free_bytes / LOOKS
    }

    /// A look, when so much was logged in this life. Returns what is free.
    pub fn look(&mut self, logged: u64) -> u64 {
        self.looked_at = logged;
        self.room.free()
    }
}
