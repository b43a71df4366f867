//! Somebody sets a machine's clock by an hour, and right again: what is written meanwhile is seen everywhere as soon as anything else, and
//! receipts stay true.
use crate::cluster::{Client, Cluster, PATIENCE, patient, text, wait_until};
use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};
use turnbuckle_resp::Value;

const HOUR_US: i64 = 3_600_000_000;

/// For how long the clock is wrong.
const WRONG_FOR: Duration = Duration::from_millis(500);

struct Clocks {
    file: PathBuf,
}

impl Clocks {
    fn new(cluster: &Cluster) -> Clocks {
        let clocks = Clocks {
            file: cluster.file().with_file_name("faults.toml"),
        };
        clocks.set(0);
        clocks
    }

    /// The node reads it a hundred times a second.
    fn set(&self, offset_us: i64) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("clock_offset_us = {offset_us}\n")).expect("it can be written");
        std::fs::rename(&new, &self.file).expect("it can be renamed");
    }
}

/// A cluster whose first node goes by a clock that can be set.
fn start(limits: turnbuckle_server::config::Limits) -> (Cluster, Clocks) {
    let mut cluster = Cluster::new(1, "interval(10ms)", limits);
    let clocks = Clocks::new(&cluster);
    start_wrong(&mut cluster, &clocks.file);
    cluster.start_all();
    (cluster, clocks)
}

fn start_wrong(cluster: &mut Cluster, file: &Path) {
    let mut command = cluster.start_command(0);
    // It ends when its input does.
    command.arg("--test-faults").arg(file).stdin(Stdio::piped());
    cluster.start_node_as(0, command);
}

fn client(cluster: &Cluster, site: usize, keyspace: &str) -> Client {
    let mut client = cluster.client(site);
    assert_eq!(text(&client.call(&[b"SELECT", keyspace.as_bytes()])), "OK");
    client
}

fn away(cluster: &Cluster) -> (f64, u64) {
    let clock = cluster.admin(0).status().expect("the node says how it is").clock;
    (clock.away_seconds, clock.jumps_total)
}

/// A field of the last answer's receipt.
fn receipt(client: &mut Client, field: &str) -> Option<Value> {
    let fields: Vec<(Value, Value)> = match client.call(&[b"RECEIPT"]) {
        Value::Array(flat) => flat
            .chunks_exact(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect(),
        Value::Map(pairs) => pairs,
        other => panic!("a receipt: {other:?}"),
    };
    let found = fields.into_iter().find(|(name, _)| text(name) == field);
    found
        .map(|(_, value)| value)
        .filter(|value| !matches!(value, Value::Null))
}

/// Counts at one site, and looks from all of them, whether what each answer's receipt says is true.
struct Counting {
    writer: Client,
    readers: Vec<Client>,
    /// When each count was acknowledged.
    acknowledged: Vec<Instant>,
    claims: usize,
}

impl Counting {
    fn new(cluster: &Cluster, keyspace: &str) -> Counting {
        Counting {
            writer: client(cluster, 0, keyspace),
            readers: (0..3).map(|site| client(cluster, site, keyspace)).collect(),
            acknowledged: Vec::new(),
            claims: 0,
        }
    }

    /// One more key, and one more count; then every site is read.
    fn step(&mut self) {
        let number = self.acknowledged.len().to_string().into_bytes();
        let key = [b"k".as_slice(), &number].concat();
        assert_eq!(text(&self.writer.call(&[b"SET", &key, &number])), "OK");
        assert_eq!(text(&self.writer.call(&[b"SET", b"count", &number])), "OK");
        self.acknowledged.push(Instant::now());
        (0..self.readers.len()).for_each(|site| {
            self.look(site);
        });
    }

    /// The last count that a site shows. Whatever was acknowledged longer ago than the receipt says must be in it.
    fn look(&mut self, site: usize) -> Option<usize> {
        let (reader, begun) = (&mut self.readers[site], Instant::now());
        let shown = match reader.call(&[b"GET", b"count"]) {
            Value::Bulk(count) => Some(text(&Value::Bulk(count)).parse().expect("a number")),
            Value::Null => None,
            other => panic!("site {site}: {other:?}"),
        };
        if let Some(Value::Integer(staleness_us)) = receipt(reader, "staleness_us") {
            self.claims += 1;
            let staleness = Duration::from_micros(staleness_us as u64);
            let proven = |&acknowledged: &Instant| begun.saturating_duration_since(acknowledged) > staleness;
            let proven = self.acknowledged.iter().rposition(proven);
            assert!(
                shown >= proven,
                "site {site} shows {shown:?}, and its receipt of {staleness_us} us says {proven:?}"
            );
        }
        shown
    }

    /// Whether a site proves that it is at most a minute behind.
    fn proves_much(&mut self, site: usize) -> bool {
        self.look(site);
        let staleness = receipt(&mut self.readers[site], "staleness_us");
        matches!(staleness, Some(Value::Integer(staleness_us)) if staleness_us < 60_000_000)
    }
}

fn an_hour_for_half_a_second(keyspace: &str, offset_us: i64) {
    let (cluster, clocks) = start(patient());
    let mut counting = Counting::new(&cluster, keyspace);
    wait_until("every site proves something", || {
        counting.step();
        (0..3).all(|site| receipt(&mut counting.readers[site], "staleness_us").is_some())
    });
    assert_eq!(away(&cluster).1, 0);
    let (before, claims) = (counting.acknowledged.len(), counting.claims);
    clocks.set(offset_us);
    wait_until("the node has noticed", || {
        counting.step();
        away(&cluster).0 > 3_500.0
    });
    let begun = Instant::now();
    let has_written =
        |counting: &Counting| counting.acknowledged.len() > before + 1 && counting.claims > claims;
    while begun.elapsed() < WRONG_FOR || !has_written(&counting) {
        assert!(
            begun.elapsed() < PATIENCE,
            "nothing is written while the clock is wrong"
        );
        counting.step();
    }
    // It does not know which of its clocks is right. If the one that is an hour ahead is, then all that it has heard is an hour old.
    assert!(offset_us < 0 || !counting.proves_much(0));
    let during = counting.acknowledged.len();
    clocks.set(0);
    wait_until("the node has noticed that its clock is right", || {
        counting.step();
        away(&cluster).0 < 0.01
    });
    (0..20).for_each(|_| counting.step());
    let all = counting.acknowledged.len();
    println!(
        "{keyspace}: {before} writes before, {} while the clock was wrong, {} after",
        during - before,
        all - during
    );
    // An hour later would be too late: this waits for minutes.
    wait_until("every site shows everything", || {
        (0..3).all(|site| counting.look(site) == Some(all - 1))
    });
    for site in 0..3 {
        let mut reader = client(&cluster, site, keyspace);
        let gets: Vec<_> = (0..all)
            .map(|number| vec![b"GET".to_vec(), format!("k{number}").into_bytes()])
            .collect();
        for (number, answer) in reader.pipeline(&gets).iter().enumerate() {
            assert_eq!(text(answer), number.to_string(), "site {site}");
        }
    }
    // What others write wins again at once: no stamp is an hour ahead.
    let mut other = client(&cluster, 1, keyspace);
    assert_eq!(text(&other.call(&[b"SET", b"count", b"0"])), "OK");
    wait_until("a write of another site wins", || {
        let mut readers = (0..3).map(|site| client(&cluster, site, keyspace));
        readers.all(|mut reader| text(&reader.call(&[b"GET", b"count"])) == "0")
    });
    let metrics = cluster.admin(0).metrics().expect("it answers");
    assert!(metrics.contains("turnbuckle_clock_jumps_total 1\n"), "{metrics}");
}

#[test]
fn a_clock_that_is_an_hour_ahead_for_half_a_second_holds_nothing_back_in_an_eventual_keyspace() {
    an_hour_for_half_a_second("eventual", HOUR_US);
}

#[test]
fn a_clock_that_is_an_hour_ahead_for_half_a_second_holds_nothing_back_in_a_causal_keyspace() {
    an_hour_for_half_a_second("causal", HOUR_US);
}

#[test]
fn a_clock_that_is_an_hour_back_for_half_a_second_holds_nothing_back() {
    an_hour_for_half_a_second("causal", -HOUR_US);
}
