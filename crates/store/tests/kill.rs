//! A process is killed in the middle of its checkpoints. What is on the disk afterwards is checked.

use bytes::Bytes;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use turnbuckle_core::{Hlc, Key, ReplicaId, Version, VersionId, Versions};
use turnbuckle_store::{Engine, FjallEngine, FjallOptions, Options, Store, Table};

const KEYS: u64 = 300;
const FOLDER: &str = "TURNBUCKLE_STORE_KILL_FOLDER";

fn open(folder: &Path) -> (FjallEngine, Arc<dyn Table>, Store<()>, u64) {
    let engine = FjallEngine::open(folder, FjallOptions::default()).expect("the database opens");
    let table = engine.open_table("t").expect("the table opens");
    let options = Options {
        memory_limit_bytes: 1 << 30,
        history: false,
        short_lived: turnbuckle_store::SHORT_LIVED,
        hash_seed: 1,
    };
    let (store, meta) = Store::open(Arc::clone(&table), options).expect("the store opens");
    let round = meta.map_or(0, |meta| {
        u64::from_be_bytes(meta[..].try_into().expect("a round is 8 bytes"))
    });
    (engine, table, store, round)
}

fn key(n: u64) -> Key {
    Key::from(format!("key {n}").as_str())
}

/// Writes every key again and again, with a checkpoint after each round, and prints the rounds on its standard output.
fn write_for_ever(folder: &Path) {
    let (engine, table, mut store, last) = open(folder);
    for round in last + 1.. {
        for n in 0..KEYS {
            let id = VersionId {
                at: Hlc(round),
                replica: ReplicaId(0),
            };
            let content = Bytes::from(vec![round as u8; 100 + n as usize]).into();
            store.put(
                &key(n),
                &Version {
                    id,
                    content,
                    meta: (),
                },
            );
        }
        store.begin_checkpoint(Bytes::copy_from_slice(&round.to_be_bytes()));
        while let Some(chunk) = store.next_chunk(20, |_| true) {
            chunk.write(&*table).expect("the disk works");
        }
        engine.persist().expect("the disk works");
        drop(store.finish_checkpoint());
        println!("finished {round}");
    }
}

#[test]
fn a_killed_process_leaves_its_last_finished_checkpoint_and_whole_rows() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return write_for_ever(Path::new(&folder));
    }
    let folder = tempfile::tempdir().expect("a temporary directory can be made");
    let mut last = 0;
    for life in 1..=8 {
        let mut child = Command::new(std::env::current_exe().expect("a test knows where it is"))
            .args([
                "--exact",
                "a_killed_process_leaves_its_last_finished_checkpoint_and_whole_rows",
                "--nocapture",
            ])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process can be started");
        let lines = BufReader::new(child.stdout.take().expect("its output is a pipe")).lines();
        // It is killed at any point of its work.
        let said = lines
            .map_while(Result::ok)
            .filter_map(|line| {
                line.strip_prefix("finished ")
                    .and_then(|round| round.parse::<u64>().ok())
            })
            .nth(2 * life)
            .expect("the process lives until it is killed");
        child.kill().expect("a child can be killed");
        child.wait().expect("a child can be waited for");
        let (_engine, _table, store, round) = open(folder.path());
        assert!(
            round >= said && said > last,
            "said {said}, found {round}, before {last}"
        );
        assert_eq!(store.live_keys(), KEYS);
        for n in 0..KEYS {
            let newest = store
                .chain(key(n).as_ref())
                .expect("every key was written")
                .newest();
            let value = newest.content.stored().expect("every key has a value");
            assert!(
                newest.id.at.0 == round || newest.id.at.0 == round + 1,
                "{} after {round}",
                newest.id
            );
            assert!(value.len() as u64 == 100 + n && value.iter().all(|&byte| byte == newest.id.at.0 as u8));
        }
        last = round;
    }
}
