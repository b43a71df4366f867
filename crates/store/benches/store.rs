//! What the store costs: `cargo bench -p turnbuckle-store`. Keys of 16 bytes, values of 128, one thread. Each number is
//! from one run, not a median: it only shows the order of size. The numbers that count are those of the whole server.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it measures or drives from outside"
)]

use bytes::Bytes;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use turnbuckle_core::{HASH_SLOTS, Hlc, Key, ReplicaId, Version, VersionId, Versions};
use turnbuckle_store::{Engine, FjallEngine, FjallOptions, MemoryEngine, Options, Store, Table, scan_rows};

const KEYS: u64 = 1_000_000;

fn main() {
    let folder = tempfile::tempdir().expect("a temporary directory can be made");
    let options = Options {
        memory_limit_bytes: 4 << 30,
        history: false,
        short_lived: turnbuckle_store::SHORT_LIVED,
        hash_seed: 7,
    };
    memory_and_operations(options);
    fill(folder.path(), options);
    opening(folder.path(), options);
    beyond_memory(folder.path(), options);
}

fn key(n: u64) -> Key {
    Key(Bytes::from(format!("key:{n:012}")))
}

fn version(at: u64) -> Version<()> {
    Version {
        id: VersionId {
            at: Hlc(at),
            replica: ReplicaId(1),
        },
        content: Bytes::from(vec![at as u8; 128]).into(),
        meta: (),
    }
}

/// A permutation of the keys without any pattern. With a constant stride, keys that were put one after the other would be asked for one after the other, too,
/// and would be in the processor's caches.
fn shuffled(n: u64) -> u64 {
    const BITS: u32 = u64::BITS - KEYS.leading_zeros();
    const MASK: u64 = (1 << BITS) - 1;
    let mut mixed = n;
    // Each step is a permutation of the numbers of this many bits. What is not below the number of keys is mixed again.
    loop {
        for factor in [0x9E37_79B1, 0x85EB_CA6B, 0xC2B2_AE35] {
            mixed = mixed.wrapping_mul(factor) & MASK;
            mixed ^= mixed >> (BITS / 2);
        }
        if mixed < KEYS {
            return mixed;
        }
    }
}

fn report(what: &str, count: u64, took: Duration) {
    let each_ns = took.as_nanos() as f64 / count as f64;
    println!("{what:48} {each_ns:9.0} ns each {:9.3} s", took.as_secs_f64());
}

fn timed(what: &str, count: u64, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    report(what, count, start.elapsed());
}

/// Resident memory of this process in bytes, from /proc where there is one.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

fn memory_and_operations(options: Options) {
    let table = MemoryEngine::new().open_table("t").expect("memory works");
    let (mut store, _) = Store::<()>::open(table, options).expect("an empty table opens");
    let keys: Vec<Key> = (0..KEYS).map(key).collect();
    let before_bytes = resident_bytes();
    let mut longest = Duration::ZERO;
    timed("put, new keys (with making the value)", KEYS, || {
        for (n, key) in keys.iter().enumerate() {
            let start = Instant::now();
            store.put(key, &version(n as u64));
            longest = longest.max(start.elapsed());
        }
    });
    println!("the longest of them: {:.1} ms", longest.as_secs_f64() * 1e3);
    let grown_bytes = resident_bytes() - before_bytes;
    println!(
        "memory per key: {} bytes resident, {} counted, of which dirty lists {}",
        grown_bytes / KEYS,
        store.memory_bytes() / KEYS,
        (grown_bytes.saturating_sub(store.memory_bytes())) / KEYS,
    );
    timed("get, hits in random order", KEYS, || {
        for n in 0..KEYS {
            let chain = store.chain(keys[shuffled(n) as usize].as_ref());
            black_box(
                chain
                    .expect("it was put")
                    .newest()
                    .content
                    .stored()
                    .map(Bytes::len),
            );
        }
    });
    let version_of = |n| version(KEYS + n);
    timed("  of that and of the next: making a version", KEYS, || {
        (0..KEYS).for_each(|n| {
            black_box(version_of(n));
        });
    });
    timed("put, dirty keys in random order", KEYS, || {
        for n in 0..KEYS {
            store.put(&keys[shuffled(n) as usize], &version_of(n));
        }
    });
    take_all(&mut store, None);
    timed("put, clean keys in random order", KEYS, || {
        for n in 0..KEYS {
            store.put(&keys[shuffled(n) as usize], &version(2 * KEYS + n));
        }
    });
}

/// Takes a checkpoint. Returns the longest time that the lock would have been held.
fn take_all(store: &mut Store<()>, table: Option<&dyn Table>) -> Duration {
    let mut longest = Duration::ZERO;
    store.begin_checkpoint(Bytes::from_static(b"meta"));
    loop {
        let start = Instant::now();
        let chunk = store.next_chunk(1000, |_| true);
        longest = longest.max(start.elapsed());
        let Some(chunk) = chunk else { break };
        if let Some(table) = table {
            chunk.write(table).expect("the disk works");
        }
    }
    let start = Instant::now();
    let spent = store.finish_checkpoint();
    longest = longest.max(start.elapsed());
    drop(spent);
    longest
}

fn open_engine(folder: &std::path::Path) -> (FjallEngine, Arc<dyn Table>) {
    let engine = FjallEngine::open(folder, FjallOptions::default()).expect("the disk works");
    let table = engine.open_table("t").expect("the disk works");
    (engine, table)
}

fn fill(folder: &std::path::Path, options: Options) {
    let (engine, table) = open_engine(folder);
    let (mut store, _) = Store::<()>::open(Arc::clone(&table), options).expect("the disk works");
    (0..KEYS).for_each(|n| {
        store.put(&key(n), &version(n));
    });
    let mut longest = Duration::ZERO;
    timed("checkpoint of all keys into fjall", KEYS, || {
        longest = take_all(&mut store, Some(&*table));
        engine.persist().expect("the disk works");
    });
    println!("  longest hold of the lock: {longest:?}");
}

fn opening(folder: &std::path::Path, options: Options) {
    let start = Instant::now();
    let (_engine, table) = open_engine(folder);
    report("open fjall", 1, start.elapsed());
    let start = Instant::now();
    let (store, _) = Store::<()>::open(Arc::clone(&table), options).expect("the disk works");
    report("open the store: load all keys", KEYS, start.elapsed());
    assert_eq!(store.live_keys(), KEYS, "keys were lost");
    timed("scan of all keys, 100 at a time", KEYS, || {
        let mut cursor = 0;
        let mut found = 0;
        loop {
            let rows = scan_rows::<()>(&*table, 0..HASH_SLOTS, cursor, 100, store.epoch(), Hlc::LATEST);
            let (next, keys) = store
                .finish_scan(rows.expect("the disk works"))
                .expect("nothing was written");
            found += keys.len() as u64;
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(found, KEYS, "a scan found too few keys");
    });
}

/// The memory limit is a fifth of the data.
fn beyond_memory(folder: &std::path::Path, options: Options) {
    let options = Options {
        memory_limit_bytes: KEYS * 290 / 5,
        ..options
    };
    let (_engine, table) = open_engine(folder);
    let start = Instant::now();
    let (mut store, _) = Store::<()>::open(Arc::clone(&table), options).expect("the disk works");
    report(
        "open the store: load until the limit",
        store.resident_keys() as u64,
        start.elapsed(),
    );
    let mut missed = 0;
    let reads = KEYS / 5;
    timed("get in random order, memory for a fifth", reads, || {
        for n in 0..reads {
            let key = key(shuffled(n));
            if !store.is_resident(key.as_ref()) {
                missed += 1;
                let fetched = Store::fetch(&*table, &key, store.epoch()).expect("the disk works");
                store.admit(fetched).expect("no checkpoint finished");
            }
            black_box(store.chain(key.as_ref()).is_some());
            store.evict(8);
        }
    });
    println!("  {}% of them read from fjall", missed * 100 / reads);
}
