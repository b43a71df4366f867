use crate::{Disk, DiskFile};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A directory in memory that can be crashed, filled and damaged, the same way each time. Clones are the same directory.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Contents>,
    /// Which life of the machine this is: files opened in an earlier one are gone.
    life: u64,
    /// So many bytes may still be written.
    room_bytes: Option<u64>,
    sync_fails: bool,
}

#[derive(Debug, Default, Clone)]
struct Contents {
    bytes: Vec<u8>,
    /// What the disk has, as of the last sync.
    synced: Vec<u8>,
    /// The directory entry is on the disk.
    linked: bool,
}

/// A file of a [`SimulatedDisk`].
struct SimulatedFile {
    disk: SimulatedDisk,
    name: String,
    life: u64,
}

impl SimulatedDisk {
    /// An empty directory.
    pub fn new() -> SimulatedDisk {
        SimulatedDisk::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process ends (`kill -9`): files it had open fail from now on, and everything written is there.
    pub fn crash_process(&self) {
        self.state().life += 1;
    }

    /// The power fails: each file keeps what was synced and, of what was written since, a part drawn from the seed: none,
    /// some of the first bytes, or with a hole in it.
    pub fn crash_power(&self, seed: u64) {
        let mut state = self.state();
        state.life += 1;
        let mut draw = Draw(seed | 1);
        state.files.retain(|_, file| file.linked || draw.next(2) == 0);
        for file in state.files.values_mut() {
            let (synced, len) = (file.synced.len(), file.bytes.len());
            let mut kept = file.synced.clone();
            if len > synced {
                let end = synced + draw.next((len - synced) as u64 + 1) as usize;
                kept.extend_from_slice(&file.bytes[synced..end]);
                if end > synced && draw.next(4) == 0 {
                    let hole = synced + draw.next((end - synced) as u64) as usize;
                    let hole_end = (hole + 64).min(end);
                    kept[hole..hole_end].fill(0);
                }
            }
            file.bytes.clone_from(&kept);
            file.synced = kept;
            file.linked = true;
        }
    }

    /// From now on only so many bytes can be written; `None`: any number.
    pub fn set_room_bytes(&self, room_bytes: Option<u64>) {
        self.state().room_bytes = room_bytes;
    }

    /// Whether syncs fail from now on.
    pub fn set_sync_fails(&self, fails: bool) {
        self.state().sync_fails = fails;
    }

    /// Turns over one bit of a file.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip_bit(&self, name: &str, offset: usize, bit: u32) {
        let mut state = self.state();
        let file = state.files.get_mut(name).expect("the file to damage is there");
        file.bytes[offset] ^= 1 << (bit % 8);
        if let Some(byte) = file.synced.get_mut(offset) {
            *byte = file.bytes[offset];
        }
    }

    /// Cuts a file off.
    pub fn cut(&self, name: &str, len: usize) {
        let mut state = self.state();
        let file = state.files.get_mut(name).expect("the file to damage is there");
        file.bytes.truncate(len);
        file.synced.truncate(len);
    }

    /// Files and their lengths.
    pub fn lengths(&self) -> Vec<(String, usize)> {
        self.state()
            .files
            .iter()
            .map(|(name, file)| (name.clone(), file.bytes.len()))
            .collect()
    }
}

/// xorshift64*: enough to draw where a crash hits.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % below.max(1)
    }
}

impl Disk for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state().files.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        if state.files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if state.room_bytes == Some(0) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.files.insert(name.to_string(), Contents::default());
        let life = state.life;
        Ok(Box::new(SimulatedFile {
            disk: self.clone(),
            name: name.to_string(),
            life,
        }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let state = self.state();
        if !state.files.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Box::new(SimulatedFile {
            disk: self.clone(),
            name: name.to_string(),
            life: state.life,
        }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.state()
            .files
            .remove(name)
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.sync_fails {
            return Err(io::Error::other("the simulated disk failed to sync"));
        }
        state.files.values_mut().for_each(|file| file.linked = true);
        Ok(())
    }
}

impl SimulatedFile {
    fn with<R>(
        &self,
        work: impl FnOnce(&mut Contents, &mut Option<u64>, bool) -> io::Result<R>,
    ) -> io::Result<R> {
        let mut state = self.disk.state();
        if state.life != self.life {
            return Err(io::Error::other("the process that opened this file is gone"));
        }
        let State {
            files,
            room_bytes,
            sync_fails,
            ..
        } = &mut *state;
        work(
            files.get_mut(&self.name).ok_or(io::ErrorKind::NotFound)?,
            room_bytes,
            *sync_fails,
        )
    }
}

impl DiskFile for SimulatedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|file, room_bytes, _| {
            let offset = usize::try_from(offset).map_err(io::Error::other)?;
            let fits = room_bytes.map_or(bytes.len(), |room| bytes.len().min(room as usize));
            if file.bytes.len() < offset + fits {
                file.bytes.resize(offset + fits, 0);
            }
            file.bytes[offset..offset + fits].copy_from_slice(&bytes[..fits]);
            if let Some(room) = room_bytes {
                *room -= fits as u64;
            }
            if fits < bytes.len() {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                Ok(())
            }
        })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.with(|file, _, _| {
            let from = usize::try_from(offset)
                .map_err(io::Error::other)?
                .min(file.bytes.len());
            let read = buffer.len().min(file.bytes.len() - from);
            buffer[..read].copy_from_slice(&file.bytes[from..from + read]);
            Ok(read)
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|file, _, _| Ok(file.bytes.len() as u64))
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.with(|file, _, _| {
            file.bytes.truncate(len as usize);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|file, _, sync_fails| {
            if sync_fails {
                return Err(io::Error::other("the simulated disk failed to sync"));
            }
            file.synced.clone_from(&file.bytes);
            Ok(())
        })
    }
}
