use crate::{Disk, DiskFile};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use turnbuckle_core::Room;

/// A directory in memory that can be crashed, filled and damaged, in the same way each time. Clones are the same directory.
///
/// It loses as much as a disk may. Until a file is synced, a power loss may take any of its new sectors. Until the directory is
/// synced, new files may vanish and removed files may come back, each independently.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The number of the file that each name stands for.
    names: BTreeMap<String, u64>,
    /// The same, as of the last sync of the directory.
    synced_names: BTreeMap<String, u64>,
    /// Names that may have changed since that sync.
    changed_names: BTreeSet<String>,
    files: BTreeMap<u64, Contents>,
    next_file: u64,
    /// The number of the machine's life: handles of files that were opened in an earlier life fail.
    life: u64,
    /// The space of the disk on which the directory is.
    room: Room,
    /// The number of bytes that the files with a name take of it.
    used: u64,
    sync_fails: bool,
    /// If set, the process ends in the middle of a change: the number of changes before it, and the draw of where in it.
    stop: Option<(u64, Draw)>,
}

#[derive(Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    /// The bytes that the disk has, as of the last sync.
    synced: Vec<u8>,
    /// The number of bytes at the beginning in which both are the same.
    same: usize,
    /// The number of open handles.
    handles: u64,
    /// The number of the file's names, now and as of the last sync of the directory.
    names: u64,
    /// Whether the file has a name now. A file that was removed takes no space, even if a handle still reads it.
    is_named: bool,
}

/// The unit that is lost or kept as a whole. Smaller than the sectors of real disks, so that short tests see holes.
const SECTOR_BYTES: usize = 64;

impl SimulatedDisk {
    /// An empty directory.
    pub fn new() -> SimulatedDisk {
        SimulatedDisk::default()
    }

    /// The directory as a process that is alive now sees it: after a crash, every operation through it fails.
    pub fn mount(&self) -> Arc<dyn Disk> {
        Arc::new(self.mounted())
    }

    fn mounted(&self) -> Mounted {
        let life = self.state().life;
        Mounted {
            disk: self.clone(),
            life,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- what can happen to it ------------------------------------------------------------------------------

    /// The process ends (`kill -9`): files that it had open fail from now on. Everything written is there.
    pub fn crash_process(&self) {
        self.state().end_life();
    }

    /// The power fails. What was synced is there. Of what was done since, a part drawn from the seed is there.
    pub fn crash_power(&self, seed: u64) {
        let mut state = self.state();
        state.end_life();
        state.lose_power(&mut Draw::new(seed));
    }

    /// Whether everything that was done is synced.
    pub fn is_synced(&self) -> bool {
        let state = self.state();
        state.names == state.synced_names && state.files.values().all(|file| file.bytes == file.synced)
    }

    /// The power fails. What was synced is there, and nothing of what was done since.
    pub fn crash_unsynced(&self) {
        let mut state = self.state();
        state.end_life();
        state.names = state.synced_names.clone();
        state.changed_names.clear();
        state.files.values_mut().for_each(Contents::lose_unsynced);
        state.forget_files();
        state.count_used();
    }

    /// Another directory on another disk with the same files, as they are now, all of them synced: like a snapshot of the file
    /// system.
    #[must_use]
    pub fn copied(&self) -> SimulatedDisk {
        let state = self.state();
        let copied = state.names.iter().map(|(name, &number)| {
            let bytes = state
                .files
                .get(&number)
                .map_or_else(Vec::new, |file| file.bytes.clone());
            (name.clone(), number, bytes)
        });
        let mut names = BTreeMap::new();
        let mut files = BTreeMap::new();
        for (name, number, bytes) in copied {
            names.insert(name, number);
            let contents = Contents {
                same: bytes.len(),
                synced: bytes.clone(),
                bytes,
                handles: 0,
                names: 2,
                is_named: true,
            };
            files.insert(number, contents);
        }
        let room = Room::default();
        room.add(state.used);
        SimulatedDisk(Arc::new(Mutex::new(State {
            synced_names: names.clone(),
            changed_names: BTreeSet::new(),
            names,
            files,
            next_file: state.next_file,
            life: state.life,
            room,
            used: state.used,
            sync_fails: state.sync_fails,
            stop: None,
        })))
    }

    /// The process ends after `changes` more changes to the disk, in the middle of the next one. The seed decides where in it.
    pub fn stop_after(&self, changes: u64, seed: u64) {
        self.state().stop = Some((changes, Draw::new(seed)));
    }

    /// Puts the directory on this disk, where it takes space.
    pub fn set_room(&self, room: &Room) {
        let mut state = self.state();
        state.room.give(state.used);
        room.add(state.used);
        state.room = room.clone();
    }

    /// From now on its files may grow by this number of bytes; `None`: by any number. Bytes that are cut off or removed are free
    /// again.
    pub fn set_room_bytes(&self, room_bytes: Option<u64>) {
        self.state().room.set_free(room_bytes);
    }

    /// Sets whether syncs fail from now on.
    pub fn set_sync_fails(&self, fails: bool) {
        self.state().sync_fails = fails;
    }

    /// Whether syncs fail.
    pub fn sync_fails(&self) -> bool {
        self.state().sync_fails
    }

    /// Flips one bit of a file.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip_bit(&self, name: &str, offset: usize, bit: u32) {
        let mut state = self.state();
        let file = state.file_named(name);
        file.bytes[offset] ^= 1 << (bit % 8);
        if let Some(byte) = file.synced.get_mut(offset) {
            *byte = file.bytes[offset];
        }
    }

    /// Cuts a file off after `len` bytes.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn cut(&self, name: &str, len: usize) {
        let mut state = self.state();
        let file = state.file_named(name);
        file.bytes.truncate(len);
        file.synced.truncate(len);
        file.same = file.same.min(len);
        state.count_used();
    }

    /// All files with their lengths in bytes.
    pub fn lengths(&self) -> Vec<(String, usize)> {
        let state = self.state();
        let len = |number| state.files.get(number).map_or(0, |file| file.bytes.len());
        state
            .names
            .iter()
            .map(|(name, number)| (name.clone(), len(number)))
            .collect()
    }
}

impl State {
    fn end_life(&mut self) {
        self.life += 1;
        self.stop = None;
        self.files.values_mut().for_each(|file| file.handles = 0);
        self.forget_files();
    }

    /// Drops all files that have neither a name nor a handle.
    fn forget_files(&mut self) {
        self.files.values_mut().for_each(|file| file.names = 0);
        for number in self.names.values().chain(self.synced_names.values()) {
            if let Some(file) = self.files.get_mut(number) {
                file.names += 1;
            }
        }
        self.files.retain(|_, file| file.is_reachable());
    }

    /// Counts again how many bytes the files take.
    fn count_used(&mut self) {
        self.files.values_mut().for_each(|file| file.is_named = false);
        self.room.give(std::mem::take(&mut self.used));
        for number in self.names.values() {
            if let Some(file) = self.files.get_mut(number) {
                file.is_named = true;
                self.used += file.bytes.len() as u64;
            }
        }
        self.room.add(self.used);
    }

    /// Frees space: files with a name have `bytes` bytes less.
    fn give_back(&mut self, bytes: usize) {
        self.used -= bytes as u64;
        self.room.give(bytes as u64);
    }

    /// Writes as many bytes as there is room for. Returns their number.
    fn write(&mut self, number: u64, offset: usize, bytes: &[u8]) -> usize {
        let Some(file) = self.files.get_mut(&number) else {
            return 0;
        };
        let (len, mut end) = (file.bytes.len(), offset + bytes.len());
        if file.is_named && end > len {
            let taken = self.room.take_some((end - len) as u64);
            self.used += taken;
            end = len + taken as usize;
        }
        let fits = end.saturating_sub(offset);
        file.write(offset.min(end), &bytes[..fits]);
        fits
    }

    /// Drops this file if it has neither a name nor a handle. A world has thousands of files, and looking at all of them each
    /// time is slow.
    fn forget_file(&mut self, number: u64) {
        if self.files.get(&number).is_some_and(|file| !file.is_reachable()) {
            self.files.remove(&number);
        }
    }

    fn sync_names(&mut self) {
        for name in std::mem::take(&mut self.changed_names) {
            let before = match self.names.get(&name) {
                Some(&number) => {
                    self.files.entry(number).or_default().names += 1;
                    self.synced_names.insert(name, number)
                }
                None => self.synced_names.remove(&name),
            };
            if let Some(number) = before {
                self.unname(number);
            }
        }
    }

    /// A file has one name less.
    fn unname(&mut self, number: u64) {
        if let Some(file) = self.files.get_mut(&number) {
            file.names -= 1;
        }
        self.forget_file(number);
    }

    fn lose_power(&mut self, draw: &mut Draw) {
        let mut names: Vec<String> = self
            .names
            .keys()
            .chain(self.synced_names.keys())
            .cloned()
            .collect();
        names.sort();
        names.dedup();
        for name in names {
            let (now, synced) = (self.names.get(&name), self.synced_names.get(&name));
            let kept = if draw.next(2) == 0 { now } else { synced };
            match kept.copied() {
                Some(number) => self.names.insert(name, number),
                None => self.names.remove(&name),
            };
        }
        self.synced_names = self.names.clone();
        self.changed_names.clear();
        self.files.values_mut().for_each(|file| file.lose_power(draw));
        self.forget_files();
        self.count_used();
    }

    fn file_named(&mut self, name: &str) -> &mut Contents {
        let number = self.names.get(name).expect("the file to damage is there");
        self.files.get_mut(number).expect("a name stands for a file")
    }

    /// Called before each change. `Some`: the process ends in this change.
    fn count_change(&mut self) -> Option<Draw> {
        let (left, draw) = self.stop.as_mut()?;
        if *left > 0 {
            *left -= 1;
            return None;
        }
        let draw = Draw(draw.0);
        self.end_life();
        Some(draw)
    }
}

impl Contents {
    fn is_reachable(&self) -> bool {
        self.handles > 0 || self.names > 0
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.same = self.same.min(offset).min(self.bytes.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
        self.same = self.same.min(len);
    }

    fn sync(&mut self) {
        self.synced.truncate(self.same);
        self.synced.extend_from_slice(&self.bytes[self.same..]);
        self.same = self.bytes.len();
    }

    /// Nothing of what was not synced survives.
    fn lose_unsynced(&mut self) {
        self.bytes.clone_from(&self.synced);
        self.same = self.bytes.len();
    }

    /// What was not synced survives wholly, not at all, up to some point, or with sectors missing.
    fn lose_power(&mut self, draw: &mut Draw) {
        let mut kept = self.synced.clone();
        let fate = draw.next(4);
        if fate > 0 {
            let end = match fate {
                1 => self.bytes.len(),
                _ => self.same + draw.next((self.bytes.len() - self.same) as u64 + 1) as usize,
            };
            // Where nothing was ever written, there are zeros.
            kept.resize(end.max(kept.len()), 0);
            let mut at = self.same;
            while at < end {
                let sector_end = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
                if fate < 3 || draw.next(3) > 0 {
                    kept[at..sector_end].copy_from_slice(&self.bytes[at..sector_end]);
                }
                at = sector_end;
            }
        }
        self.same = kept.len();
        self.bytes.clone_from(&kept);
        self.synced = kept;
    }
}

/// xorshift64*: good enough to draw where a crash hits.
#[derive(Debug)]
struct Draw(u64);

impl Draw {
    fn new(seed: u64) -> Draw {
        Draw(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % below.max(1)
    }
}

/// Each call is made by the process that is alive.
impl Disk for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.mounted().list()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.mounted().create(name)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.mounted().open(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.mounted().remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.mounted().sync_directory()
    }
}

/// A [`SimulatedDisk`] as one process sees it.
struct Mounted {
    disk: SimulatedDisk,
    life: u64,
}

impl Mounted {
    fn alive(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        if state.life == self.life {
            Ok(state)
        } else {
            Err(gone())
        }
    }

    /// Called for operations that change the disk.
    fn change(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.alive()?;
        match state.count_change() {
            None => Ok(state),
            Some(_) => Err(gone()),
        }
    }

    fn handle(&self, state: &mut State, number: u64) -> Box<dyn DiskFile> {
        state.files.entry(number).or_default().handles += 1;
        Box::new(SimulatedFile {
            mounted: Mounted {
                disk: self.disk.clone(),
                life: self.life,
            },
            number,
        })
    }
}

fn gone() -> io::Error {
    io::Error::other("the process that opened this is gone")
}

impl Disk for Mounted {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.alive()?.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.change()?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if state.room.free() == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let number = state.next_file;
        state.next_file += 1;
        state.names.insert(name.to_string(), number);
        state.changed_names.insert(name.to_string());
        let handle = self.handle(&mut state, number);
        let file = state.files.entry(number).or_default();
        (file.names, file.is_named) = (file.names + 1, true);
        Ok(handle)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.alive()?;
        let number = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.handle(&mut state, number))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.change()?;
        let number = state.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        state.changed_names.insert(name.to_string());
        let removed = state.files.get_mut(&number).map(|file| {
            file.is_named = false;
            file.bytes.len()
        });
        state.give_back(removed.unwrap_or(0));
        state.unname(number);
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.change()?;
        if state.sync_fails {
            return Err(io::Error::other("the simulated disk failed to sync"));
        }
        state.sync_names();
        Ok(())
    }
}

/// A file of a [`SimulatedDisk`].
struct SimulatedFile {
    mounted: Mounted,
    number: u64,
}

impl SimulatedFile {
    fn contents<'a>(&self, state: &'a mut State) -> &'a mut Contents {
        state.files.get_mut(&self.number).expect("an open file is kept")
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        if let Ok(mut state) = self.mounted.alive() {
            self.contents(&mut state).handles -= 1;
            state.forget_file(self.number);
        }
    }
}

impl DiskFile for SimulatedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let mut state = self.mounted.alive()?;
        if let Some(mut draw) = state.count_change() {
            let part = draw.next(bytes.len() as u64 + 1) as usize;
            // The file may have been dropped with its last handle.
            state.write(self.number, offset, &bytes[..part]);
            return Err(gone());
        }
        if state.write(self.number, offset, bytes) < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.mounted.alive()?;
        let bytes = &self.contents(&mut state).bytes;
        let from = usize::try_from(offset)
            .map_err(io::Error::other)?
            .min(bytes.len());
        let read = buffer.len().min(bytes.len() - from);
        buffer[..read].copy_from_slice(&bytes[from..from + read]);
        Ok(read)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        let mut state = self.mounted.alive()?;
        Ok(self.contents(&mut state).bytes.len() as u64)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let mut state = self.mounted.change()?;
        let file = self.contents(&mut state);
        let (is_named, before) = (file.is_named, file.bytes.len());
        file.truncate(len);
        if is_named {
            state.give_back(before.saturating_sub(len));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.mounted.change()?;
        if state.sync_fails {
            return Err(io::Error::other("the simulated disk failed to sync"));
        }
        self.contents(&mut state).sync();
        Ok(())
    }
}
