//! Disk space that a node reserves for its next start.
//!
//! A start writes a little: each stream's new life goes to the commit log before anything else happens, and the engine tidies up. On a disk without a
//! free byte that would fail, and a node that does not start serves no reads. So a node keeps a file of [`BYTES`] in its data directory while there
//! is room. A start that finds no room removes this file first. The file comes back once twice its size is free beyond `min_free_disk_mb`.
use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// How many bytes a start may need. This is generous.
const BYTES: u64 = 4 << 20;

/// The file, in a data directory.
pub(crate) struct Ballast {
    path: PathBuf,
}

impl Ballast {
    pub fn of(data: &Path) -> Ballast {
        Ballast {
            path: data.join("ballast"),
        }
    }

    /// At a start: removes the file, if fewer than [`BYTES`] are free on the disk.
    pub fn give_up_if_short(&self, node: &str, free: u64) {
        if free >= BYTES || !self.path.exists() {
            return;
        }
        match fs::remove_file(&self.path) {
            Ok(()) => tracing::warn!(
                node,
                "{free} bytes are free: {} is removed, so that the node can start",
                self.path.display()
            ),
            Err(error) => tracing::warn!(node, "{}: it cannot be removed: {error}", self.path.display()),
        }
    }

    /// Writes the file if it is not there, and if `spare` is enough for it. `spare` is the free space in bytes, beyond what the node may need for
    /// writes. Returns whether the file is there.
    pub fn keep(&self, spare: u64) -> bool {
        let is_whole = || fs::metadata(&self.path).is_ok_and(|found| found.len() == BYTES);
        if is_whole() {
            return true;
        }
        if spare < 2 * BYTES {
            return false;
        }
        if write(&self.path).is_err() {
            // A part of the file is of no use. It is written later, when there is room.
            let _ = fs::remove_file(&self.path);
        }
        is_whole()
    }
}

/// Writes zeros, so that the blocks are taken: a file with a hole would reserve nothing.
fn write(path: &Path) -> io::Result<()> {
    const CHUNK_BYTES: usize = 64 << 10;
    let mut file = File::create(path)?;
    for _ in 0..BYTES as usize / CHUNK_BYTES {
        file.write_all(&[0; CHUNK_BYTES])?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_kept_while_there_is_room_and_given_up_when_there_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let ballast = Ballast::of(directory.path());
        let len = || fs::metadata(directory.path().join("ballast")).map(|found| found.len());
        assert!(!ballast.keep(0) && len().is_err(), "there is no room for it");
        assert!(ballast.keep(1 << 30));
        assert_eq!(len().unwrap(), BYTES);
        ballast.give_up_if_short("a1", 1 << 30);
        assert!(ballast.keep(0), "it is there already");
        ballast.give_up_if_short("a1", 100);
        assert!(len().is_err());
        // A file that a crash left incomplete is completed.
        fs::write(directory.path().join("ballast"), b"half").unwrap();
        assert!(!ballast.keep(0));
        assert!(ballast.keep(1 << 30));
        assert_eq!(len().unwrap(), BYTES);
    }
}
