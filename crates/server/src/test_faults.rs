//! Faults that tests put into a running node and that no machine offers: a wrong clock, a full disk, a planted bug.
//!
//! A node has this only if it was started with `turnbuckle start --test-faults FILE`, an option that no help text names. The file is TOML with up to
//! four lines, and is read again every [`LOOK_EVERY`]:
//!
//! ```toml
//! clock_offset_us = -250000          # how far the wall clock is from what the machine says; the monotonic clock stays
//! clock_never_goes_back = true       # set back, it stands still until it is right, for protocols that rest on that
//! disk_is_full = true                # the disk says that it has no room
//! planted = "copies_cleared_late"    # a bug of `turnbuckle_node::Planted`; at the start only
//! ```
//!
//! The file must be replaced in one step (`rename`). If a later version of it cannot be understood, nothing changes, and this is logged once.
//!
//! Such a node also ends as soon as its standard input does. So it does not outlive the test program, however that ends.
use serde::Deserialize;
use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};
use thiserror::Error;
use turnbuckle_core::Micros;
use turnbuckle_document::{Document, Word, WrongFile};
use turnbuckle_node::Planted;

/// How often the file is read.
pub const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Why the file of `--test-faults` cannot be used.
#[derive(Debug, Error)]
pub enum BadTestFaults {
    /// The file could not be read, or the threads that follow it could not be started.
    #[error("{path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The content of the file is wrong.
    #[error(transparent)]
    Wrong(#[from] WrongFile),
}

/// The faults that a test puts into a node. By default there are none.
#[derive(Debug, Default)]
pub struct TestFaults {
    clock_offset_us: AtomicI64,
    clock_never_goes_back: AtomicBool,
    /// The latest time that the clock has shown, in microseconds since 1970.
    shown_us: AtomicU64,
    disk_is_full: AtomicBool,
    planted: Planted,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    clock_offset_us: i64,
    clock_never_goes_back: bool,
    disk_is_full: bool,
    planted: Option<Word<Bug>>,
}

/// A bug of a node by its name, or none.
struct Bug(Planted);

impl FromStr for Bug {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Bug, &'static str> {
        Planted::only(name)
            .map(Bug)
            .ok_or("expected the name of a bug, or \"nothing\"")
    }
}

impl TestFaults {
    /// Reads the file, and reads it again for as long as the process runs.
    ///
    /// # Errors
    /// If the file cannot be read or understood.
    pub fn follow(path: &Path) -> Result<Arc<TestFaults>, BadTestFaults> {
        let unreadable = |error| BadTestFaults::Unreadable {
            path: path.to_path_buf(),
            error,
        };
        let file = read(path)?;
        let faults = Arc::new(TestFaults {
            planted: file.planted.as_ref().map_or_else(Planted::default, |bug| bug.0),
            ..TestFaults::default()
        });
        faults.take(&file);
        tracing::warn!(
            "this node takes faults from {}: it is for tests, and not for data",
            path.display()
        );
        let (follower, followed) = (Arc::clone(&faults), path.to_path_buf());
        let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
        spawn("test-faults")
            .spawn(move || follower.reread(&followed))
            .and_then(|_| spawn("test-input").spawn(end_with_standard_input))
            .map_err(unreadable)?;
        Ok(faults)
    }

    /// What the wall clock shows with its fault, when it should show `wall`.
    pub(crate) fn wall(&self, wall: Micros) -> Micros {
        let offset_us = self.clock_offset_us.load(Ordering::Relaxed);
        let shown = wall.0.saturating_add_signed(offset_us);
        if !self.clock_never_goes_back.load(Ordering::Relaxed) {
            return Micros(shown);
        }
        Micros(self.shown_us.fetch_max(shown, Ordering::Relaxed).max(shown))
    }

    /// Whether the disk is to look full.
    pub(crate) fn disk_is_full(&self) -> bool {
        self.disk_is_full.load(Ordering::Relaxed)
    }

    /// The bug that is planted.
    pub(crate) fn planted(&self) -> Planted {
        self.planted
    }

    fn take(&self, file: &File) {
        self.clock_offset_us
            .store(file.clock_offset_us, Ordering::Relaxed);
        self.clock_never_goes_back
            .store(file.clock_never_goes_back, Ordering::Relaxed);
        self.disk_is_full.store(file.disk_is_full, Ordering::Relaxed);
    }

    fn reread(&self, path: &Path) {
        let mut said = false;
        loop {
            match read(path) {
                Ok(file) => self.take(&file),
                Err(why) if !said => {
                    said = true;
                    tracing::warn!("{why}; the faults that the file set before stay");
                }
                Err(_) => {}
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }
}

fn read(path: &Path) -> Result<File, BadTestFaults> {
    let text = std::fs::read_to_string(path).map_err(|error| BadTestFaults::Unreadable {
        path: path.to_path_buf(),
        error,
    })?;
    Ok(Document::parse(path, &text)?.decode()?)
}

/// Ends the process when its standard input ends. Nothing is written there: the input ends when the process at its other end has ended.
fn end_with_standard_input() {
    let mut bytes = [0; 64];
    while matches!(std::io::stdin().read(&mut bytes), Ok(1..)) {}
    std::process::exit(3);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_is_wrong_with_the_node() {
        let file: File = toml::from_str("clock_offset_us = -5\ndisk_is_full = true\n").expect("it is right");
        let faults = TestFaults::default();
        faults.take(&file);
        assert_eq!(
            (faults.wall(Micros(100)), faults.disk_is_full()),
            (Micros(95), true)
        );
        faults.take(&File::default());
        assert_eq!(
            (faults.wall(Micros(90)), faults.disk_is_full()),
            (Micros(90), false)
        );
    }

    #[test]
    fn a_clock_that_never_goes_back_stands_still_until_it_is_right() {
        let faults = TestFaults::default();
        let set = |clock_offset_us| {
            faults.take(&File {
                clock_offset_us,
                clock_never_goes_back: true,
                ..File::default()
            });
        };
        set(50);
        assert_eq!(faults.wall(Micros(100)), Micros(150));
        set(0);
        assert_eq!(faults.wall(Micros(120)), Micros(150));
        assert_eq!(faults.wall(Micros(160)), Micros(160));
    }

    #[test]
    fn what_cannot_be_understood_is_refused_with_its_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("faults.toml");
        for (text, expected) in [
            (
                "planted = \"a tree\"",
                "faults.toml:1: planted: found \"a tree\"; expected the name of a bug",
            ),
            (
                "clock = 5",
                "faults.toml:1: clock: found unknown field `clock`; expected one of",
            ),
        ] {
            std::fs::write(&path, text).expect("it can be written");
            let error = TestFaults::follow(&path).expect_err("it is wrong").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
