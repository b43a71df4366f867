use std::io;

/// A place for files: one flat directory, real ([`crate::DirectoryDisk`]) or simulated ([`crate::SimulatedDisk`]).
pub trait Disk: Send + Sync {
    /// The names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates an empty file.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes creations and removals survive a power loss.
    fn sync_directory(&self) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Send + Sync {
    /// Writes all of `bytes` at `offset`. After an error any part of it may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads into `buffer` from `offset`. Returns the number of bytes read, which is less than asked for only at the end of the
    /// file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// The length of the file in bytes.
    fn len_bytes(&self) -> io::Result<u64>;

    /// Cuts the file off after `len` bytes.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Makes what was written survive a power loss.
    fn sync(&self) -> io::Result<()>;
}
