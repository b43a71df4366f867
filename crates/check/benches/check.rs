//! What judging a large trace costs: `cargo bench -p turnbuckle-check`. Time without decoding, one thread, one run; resident memory
//! where /proc says it. Traces follow from a seed.
//!
//! Aims: 10 million operations on 1,000 keys in 2 s and 100 bytes each for atomicity, proportion and Gamma; causal consistency of a
//! million operations of 32 sessions in 2 s and half a GB.
use std::fs;
use std::hint::black_box;
use std::time::Instant;
use turnbuckle_check::{
    History, HistoryBuilder, Report, Zones, causal, causal_within, k_atomicity, staleness,
};
use turnbuckle_workload::{Op, Random, Record, Status, Zipfian};

const SEED: u64 = 1;
const KEYS: u64 = 1_000;
const MIB: f64 = (1 << 20) as f64;

fn main() {
    println!("{:58} {:>9} {:>12} {:>9}", "", "seconds", "peak, MiB", "bytes/op");
    // `-- causal` runs that alone.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    if is_wanted("causal") {
        causal_store(1_000_000, 32);
        causal_store(1_000_000, 128);
    }
    if is_wanted("copy") {
        one_copy(10_000_000);
    }
    if is_wanted("report") {
        everything(1_000_000);
    }
}

/// Zones and what follows from them, of a store that is nearly atomic.
fn one_copy(operations: u64) {
    let history = timed(
        &format!("one copy, {operations} operations, 0.1 % stale: intern"),
        operations,
        || linear(operations),
    );
    let before = resident_bytes("VmRSS:");
    println!(
        "{:68} {:>12.0} {:>9.1}",
        "  the history alone",
        before / MIB,
        before / operations as f64
    );
    timed("  atomic, proportion, Gamma", operations, || {
        let zones = Zones::of(&history);
        let removed: u64 = zones.iter().map(Zones::removed).sum();
        let gamma = zones.iter().map(Zones::gamma).max();
        println!(
            "    removed {removed}, Gamma {gamma:?} ns, atomic keys {}",
            zones.iter().filter(|zones| zones.is_atomic()).count()
        );
    });
    timed("  k", operations, || k_atomicity(&history));
    timed("  staleness", operations, || staleness(&history));
}

/// CC and CCv, then CM too, of a store that is causal.
fn causal_store(operations: u64, sessions: u64) {
    let history = lagging(operations, sessions);
    let what = format!("causal store, {operations} operations, {sessions} sessions: CC, CCv");
    let causal_store = timed(&what, operations, || causal_within(&history, 0));
    println!(
        "    CC {:?}, CCv {:?}",
        causal_store.cc.holds(),
        causal_store.ccv.holds()
    );
    let causal_store = timed("  CC, CCv, CM", operations, || causal(&history));
    println!("    CM {:?}", causal_store.cm.holds());
}

/// The whole report.
fn everything(operations: u64) {
    let history = lagging(operations, 32);
    timed(
        &format!("causal store, {operations} operations, 32 sessions: the whole report"),
        operations,
        || Report::of(&history, &[1_000_000]),
    );
}

/// The most memory while it worked, all that was there before included.
fn timed<T>(what: &str, operations: u64, work: impl FnOnce() -> T) -> T {
    // Resets the peak; where that is not possible it is that of the process.
    let _ = fs::write("/proc/self/clear_refs", "5");
    let start = Instant::now();
    let result = black_box(work());
    let took = start.elapsed().as_secs_f64();
    let peak = resident_bytes("VmHWM:");
    println!(
        "{what:58} {took:9.2} {:12.0} {:9.1}",
        peak / MIB,
        peak / operations as f64
    );
    result
}

fn resident_bytes(which: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(which));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) as f64 * 1024.0
}

struct Recorder {
    builder: HistoryBuilder,
    clients: Vec<String>,
    keys: Vec<String>,
}

impl Recorder {
    fn new(clients: u64) -> Recorder {
        Recorder {
            builder: HistoryBuilder::new(),
            clients: (0..clients).map(|client| format!("c{client}")).collect(),
            keys: (0..KEYS).map(|key| format!("user{key}")).collect(),
        }
    }

    /// Values are numbers, from 1; 0 is nothing.
    fn add(&mut self, client: u64, op: Op, key: u64, value: u64, times: (i64, i64)) {
        let record = Record {
            client: self.clients[client as usize].clone(),
            site: String::new(),
            op,
            key: self.keys[key as usize].as_str().into(),
            value: (value > 0).then(|| value.to_string().as_str().into()),
            start_ns: times.0,
            finish_ns: Some(times.1),
            status: Status::Ok,
            version: None,
            level: None,
            receipt: None,
            recorder: None,
            pipelined: false,
            existed: false,
            reads: None,
        };
        self.builder.add(&record).expect("a right record");
    }

    fn finish(self) -> History {
        self.builder.finish().expect("one operation after the other")
    }
}

/// One copy of the data: an operation takes effect every 100 ns, somewhere within its time. One read in a thousand returns one of
/// the last few values instead.
fn linear(operations: u64) -> History {
    const CLIENTS: u64 = 64;
    let (mut random, mut zipfian) = (Random::new(SEED, 0), Zipfian::new(KEYS, 0.99));
    let mut recorder = Recorder::new(CLIENTS);
    let mut values: Vec<Vec<u64>> = vec![vec![0]; KEYS as usize];
    for at in 0..operations {
        let key = zipfian.draw(&mut random);
        let effect = 100 * at as i64;
        let times = (
            effect - random.below(3_000) as i64,
            effect + random.below(3_000) as i64,
        );
        let written = &mut values[key as usize];
        if random.below(5) == 0 {
            written.push(at + 1);
            recorder.add(at % CLIENTS, Op::Write, key, at + 1, times);
        } else {
            let back = if random.below(1_000) == 0 {
                1 + random.below(3)
            } else {
                0
            };
            let place = written.len().saturating_sub(1 + back as usize);
            recorder.add(at % CLIENTS, Op::Read, key, written[place], times);
        }
    }
    recorder.finish()
}

/// A store in which the last writer wins and each session sees its own writes and, after a while, those of others in their order.
fn lagging(operations: u64, sessions: u64) -> History {
    let (mut random, mut zipfian) = (Random::new(SEED, 1), Zipfian::new(KEYS, 0.99));
    let mut recorder = Recorder::new(sessions);
    let mut writes: Vec<Vec<u64>> = vec![Vec::new(); KEYS as usize];
    let mut own = vec![vec![0; KEYS as usize]; sessions as usize];
    let mut seen = vec![0; sessions as usize];
    for at in 0..operations {
        let (session, key) = (random.below(sessions), zipfian.draw(&mut random));
        let times = (100 * at as i64, 100 * at as i64 + 50);
        let (seen, own) = (
            &mut seen[session as usize],
            &mut own[session as usize][key as usize],
        );
        *seen = at.saturating_sub(random.below(1_000)).max(*seen);
        let writes = &mut writes[key as usize];
        if random.below(5) == 0 {
            writes.push(at + 1);
            *own = at + 1;
            recorder.add(session, Op::Write, key, at + 1, times);
        } else {
            let others = writes[..writes.partition_point(|write| write <= seen)].last();
            recorder.add(
                session,
                Op::Read,
                key,
                others.copied().unwrap_or(0).max(*own),
                times,
            );
        }
    }
    recorder.finish()
}
