//! One thread hands bytes to the operating system. Meanwhile another thread, which appended some of them, asks for a write as
//! well. It must not be told that all is written before that is so: the write that is under way may still fail.
use std::{
    io,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};
use turnbuckle_log::{Disk, DiskFile, Log, LogError, Options, Position, SimulatedDisk};

/// A disk whose writes, once it is armed, report that they have begun and then wait to be told how they end.
struct GatedDisk {
    disk: SimulatedDisk,
    gate: Arc<Mutex<Option<Gate>>>,
}

struct Gate {
    begun: Sender<()>,
    succeed: Receiver<bool>,
}

struct GatedFile {
    file: Box<dyn DiskFile>,
    gate: Arc<Mutex<Option<Gate>>>,
}

impl GatedDisk {
    fn gated(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        let gate = self.gate.clone();
        Box::new(GatedFile { file, gate })
    }
}

impl Disk for GatedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.gated(self.disk.create(name)?))
    }
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.gated(self.disk.open(name)?))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn sync_directory(&self) -> io::Result<()> {
        self.disk.sync_directory()
    }
}

impl DiskFile for GatedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let gate = self.gate.lock().unwrap().take();
        if let Some(Gate { begun, succeed }) = gate {
            begun.send(()).unwrap();
            if !succeed.recv().unwrap() {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        self.file.write_at(offset, bytes)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buffer)
    }
    fn len_bytes(&self) -> io::Result<u64> {
        self.file.len_bytes()
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

#[test]
fn a_second_write_answers_only_when_the_first_is_done_however_it_ends() {
    for succeeds in [true, false] {
        let gate = Arc::new(Mutex::new(None));
        let disk = SimulatedDisk::new();
        let gated = GatedDisk {
            disk,
            gate: gate.clone(),
        };
        let log = Log::open(Arc::new(gated), Options::default(), Position(0), |_, _| Ok(())).unwrap();
        let ((begun, has_begun), (end_it, succeed)) = (channel(), channel());
        *gate.lock().unwrap() = Some(Gate { begun, succeed });
        let end = log.append(&[b"x"]);
        thread::scope(|scope| {
            let first = scope.spawn(|| log.write());
            has_begun.recv().unwrap();
            let (answer, answered) = channel();
            scope.spawn(|| {
                let answer = answer;
                answer.send(log.write()).unwrap();
            });
            // A correct log does not answer, however long this waits. Only a wrong one answers soon.
            let early = answered.recv_timeout(Duration::from_millis(50));
            end_it.send(succeeds).unwrap();
            assert!(
                early.is_err(),
                "it answered {early:?} while the bytes were under way"
            );
            match first.join().unwrap() {
                Ok(written) => assert!(succeeds && written == end),
                Err(error) => assert!(!succeeds && matches!(error, LogError::NotWritten(_))),
            }
            // The second write finds nothing left to do, or writes again what failed.
            assert_eq!(answered.recv().unwrap().unwrap(), end);
        });
    }
}

#[test]
fn appends_go_on_while_a_write_is_under_way() {
    let gate = Arc::new(Mutex::new(None));
    let disk = SimulatedDisk::new();
    let gated = GatedDisk {
        disk,
        gate: gate.clone(),
    };
    let log = Log::open(Arc::new(gated), Options::default(), Position(0), |_, _| Ok(())).unwrap();
    let first = log.append(&[b"first"]);
    log.write().unwrap();
    let ((begun, has_begun), (end_it, succeed)) = (channel(), channel());
    *gate.lock().unwrap() = Some(Gate { begun, succeed });
    log.append(&[b"second"]);
    thread::scope(|scope| {
        scope.spawn(|| log.write());
        has_begun.recv().unwrap();
        let third = log.append(&[b"third"]);
        assert_eq!((log.written(), log.end()), (first, third));
        assert!(log.pending_bytes() > 0, "what is under way is not written yet");
        end_it.send(true).unwrap();
    });
    log.write().unwrap();
    let records = log.read(Position(0), 1_000).unwrap().records;
    assert_eq!(
        records.iter().map(|(_, bytes)| &bytes[..]).collect::<Vec<_>>(),
        [&b"first"[..], b"second", b"third"]
    );
}
