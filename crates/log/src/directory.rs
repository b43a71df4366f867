use crate::{Disk, DiskFile};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

/// A directory of the file system. It is locked until this is dropped: two processes cannot share one.
#[derive(Debug)]
pub struct DirectoryDisk {
    path: PathBuf,
    lock: File,
}

/// The file that is locked.
const LOCK: &str = "LOCK";

impl DirectoryDisk {
    /// Opens a directory, and creates it if it is not there.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another process has it open; otherwise the error of the file system.
    pub fn open(path: impl AsRef<Path>) -> io::Result<DirectoryDisk> {
        let path = path.as_ref().to_path_buf();
        create_synced(&path)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => io::Error::new(
                io::ErrorKind::WouldBlock,
                format!("the directory {} is in use by another process", path.display()),
            ),
            fs::TryLockError::Error(error) => error,
        })?;
        Ok(DirectoryDisk { path, lock })
    }

    /// Whether the directory was removed, or another one put in its place, since it was opened. If so, what is written to its
    /// files is lost when the process ends. False if the file system cannot say.
    pub fn is_gone(&self) -> bool {
        let path = self.path.join(LOCK);
        match (self.lock.metadata(), fs::metadata(path)) {
            (Ok(locked), Ok(found)) => (locked.dev(), locked.ino()) != (found.dev(), found.ino()),
            (_, Err(error)) => matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ),
            (Err(_), Ok(_)) => false,
        }
    }
}

/// Creates a directory and its parents, so that it is still there after a power loss.
fn create_synced(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create_synced(parent)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(parent)?.sync_all()
}

impl Disk for DirectoryDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
                && name != LOCK
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new()
            .create_new(true)
            .read(true)
            .write(true)
            .open(self.path.join(name))?;
        Ok(Box::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path.join(name))?;
        Ok(Box::new(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

impl DiskFile for File {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < buffer.len() {
            match FileExt::read_at(self, &mut buffer[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(bytes) => read += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
