//! What judging costs, in time and memory, on traces made up here.
//!
//! ```text
//!   cargo run --release -p turnbuckle-check --example measure -- 10000000 1000     records, keys
//! ```
use std::{env, fs, time::Instant};
use turnbuckle_check::{HistoryBuilder, Report};
use turnbuckle_workload::{Op, Random, Record, Status};

const CLIENTS: u64 = 64;
/// One operation each 10 microseconds: 100,000 a second.
const BETWEEN_NS: i64 = 10_000;

/// Operations of a millisecond each, a fifth of them writes, one in a thousand stale.
struct Stream {
    random: Random,
    values: Vec<u64>,
    number: u64,
}

impl Stream {
    fn new(keys: u64) -> Stream {
        Stream {
            random: Random::new(7, 0),
            values: vec![0; keys as usize],
            number: 0,
        }
    }

    fn next(&mut self) -> Record {
        self.number += 1;
        let place = self.random.below(self.values.len() as u64);
        let is_write = self.random.below(5) == 0 || self.values[place as usize] == 0;
        let before = self.values[place as usize];
        let is_stale = self.random.below(1_000) == 0;
        if is_write && !is_stale {
            self.values[place as usize] = self.number;
        }
        let value = if is_write { self.number } else { before };
        let start = self.number as i64 * BETWEEN_NS;
        Record {
            client: format!("c{}", self.number % CLIENTS),
            site: ["a", "b", "c"][self.number as usize % 3].into(),
            op: if is_write { Op::Write } else { Op::Read },
            key: format!("user{place}").as_str().into(),
            value: (value > 0).then(|| format!("c.{value:010}").as_str().into()),
            start_ns: start,
            finish_ns: Some(start + BETWEEN_NS * (CLIENTS as i64 - 1)),
            status: Status::Ok,
            version: None,
            level: None,
            receipt: None,
            recorder: None,
            pipelined: false,
            existed: false,
            reads: None,
        }
    }
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |place: usize| -> u64 {
        let text = arguments.get(place).map_or("1000000", String::as_str);
        text.parse().expect("a number")
    };
    let (records, keys) = (number(0), number(1));
    let mut stream = Stream::new(keys);
    let before = resident();
    let begun = Instant::now();
    let mut builder = HistoryBuilder::new();
    for _ in 0..records {
        builder.add(&stream.next()).expect("a right record");
    }
    let history = builder.finish().expect("a right trace");
    let held = resident() - before;
    println!(
        "{:.1} s to make and take in; {held} bytes, {} for each operation, {} at most; {} keys",
        begun.elapsed().as_secs_f64(),
        held / records,
        (peak() - before) / records,
        history.keys.len()
    );
    let begun = Instant::now();
    let report = Report::of(&history, &[]);
    println!(
        "{:.1} s to judge; {} bytes for each operation at most; {} to remove",
        begun.elapsed().as_secs_f64(),
        (peak() - before) / records,
        report.removed_ops
    );
}

fn resident() -> u64 {
    status("VmRSS:")
}

fn peak() -> u64 {
    status("VmHWM:")
}

/// Of this process, in bytes; 0 where the system does not say.
fn status(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
