//! Random small traces for the oracles.
use turnbuckle_check::{History, HistoryBuilder, Kind};
use turnbuckle_workload::{Op, Random, Record, Status};

/// A random trace, one of three sorts.
#[allow(dead_code, reason = "not every test that shares this file needs it")]
pub fn any_trace(seed: u64) -> Option<History> {
    match seed % 5 {
        0 | 1 => trace(seed),
        2 | 3 => Some(replicated_trace(seed)),
        _ => Some(nearly_causal_memory(seed)),
    }
}

/// A trace of a few clients on one or two keys, often wrong in some way.
#[allow(dead_code, reason = "not every test that shares this file needs it")]
pub fn trace(seed: u64) -> Option<History> {
    let mut builder = HistoryBuilder::new();
    for record in records(seed) {
        builder.add(&record).expect("a right record");
    }
    builder.finish().ok()
}

/// The records of such a trace.
pub fn records(seed: u64) -> Vec<Record> {
    let mut random = Random::new(seed, 0);
    let (clients, keys) = (2 + random.below(3), 1 + random.below(2));
    let mut records = Vec::new();
    let mut free = vec![0_i64; clients as usize];
    let mut written = 0;
    for _ in 0..4 + random.below(7) {
        let client = random.below(clients);
        let start = free[client as usize] + random.below(6) as i64;
        let finish = start + random.below(8) as i64;
        let is_write = random.below(5) < 2;
        let status = match random.below(12) {
            0 if is_write => Status::Unknown,
            1 if is_write => Status::Fail,
            _ => Status::Ok,
        };
        let value = match is_write {
            true => {
                written += 1;
                Some(written)
            }
            // Of the past, of the future, of nobody, or nothing.
            false => Some(random.below(written + 2)).filter(|&value| value > 0),
        };
        free[client as usize] = finish + 1;
        records.push(record(
            client,
            is_write,
            random.below(keys),
            value,
            (start, finish),
            status,
        ));
    }
    records
}

/// Some acknowledged writes took another write of their key away, that had begun before they were over: they are deletes.
#[allow(dead_code, reason = "not every test that shares this file needs it")]
pub fn with_taken_away(mut history: History, seed: u64) -> History {
    let mut random = Random::new(seed, 4);
    for (delete, by) in history.operations.iter().enumerate() {
        let can_be = |&put: &usize| {
            let it = &history.operations[put];
            let is_later = it.client == by.client && it.start > by.start;
            put != delete && it.kind != Kind::Read && it.key == by.key && it.start <= by.finish && !is_later
        };
        let puts: Vec<usize> = (0..history.operations.len()).filter(can_be).collect();
        if by.kind == Kind::Write && !puts.is_empty() && random.below(2) == 0 {
            let put = puts[random.below(puts.len() as u64) as usize];
            history.taken_away.push((delete, put));
        }
    }
    history
}

fn record(
    client: u64,
    is_write: bool,
    key: u64,
    value: Option<u64>,
    (start, finish): (i64, i64),
    status: Status,
) -> Record {
    Record {
        client: format!("c{client}"),
        site: "a".into(),
        op: if is_write { Op::Write } else { Op::Read },
        key: format!("k{key}").as_str().into(),
        value: value.map(|value| format!("v{value}").as_str().into()),
        start_ns: start,
        finish_ns: (status != Status::Unknown).then_some(finish),
        status,
        version: None,
        level: None,
        receipt: None,
        recorder: None,
        pipelined: false,
        existed: false,
        reads: None,
    }
}

/// What a replica has: its writes in the order in which they came, as key, value and rank.
type Replica = Vec<(u64, u64, u64)>;

/// A trace of a store that is causal, more or less. Each client has a replica of its own, which now and then gets all that another
/// one has. Where the last writer wins that is causal convergence; where the last to come wins, causal memory.
/// Sometimes a replica gets less than it should.
fn replicated_trace(seed: u64) -> History {
    let mut random = Random::new(seed, 2);
    let (clients, keys, is_last_writer) = (
        2 + random.below(2) * random.below(2),
        1 + random.below(3),
        random.below(2) == 0,
    );
    let mut replicas: Vec<Replica> = vec![Vec::new(); clients as usize];
    let mut builder = HistoryBuilder::new();
    let mut client = 0;
    for at in 0..7 + random.below(6) {
        // Mostly the same again: what others do not see at once is what makes a difference.
        if random.below(3) == 0 {
            client = random.below(clients);
        }
        if random.below(5) == 0 {
            let other = replicas[random.below(replicas.len() as u64) as usize].clone();
            let skipped = random.below(12 * (1 + other.len() as u64));
            let mine = &mut replicas[client as usize];
            for (place, write) in other.into_iter().enumerate() {
                if place as u64 != skipped && !mine.contains(&write) {
                    mine.push(write);
                }
            }
        }
        let (key, is_write) = (random.below(keys), random.below(2) == 0);
        let mine = &mut replicas[client as usize];
        let rank = |write: &(u64, u64, u64)| {
            if is_last_writer {
                (write.2, write.1)
            } else {
                (0, 0)
            }
        };
        // Of equals the last.
        let seen = mine
            .iter()
            .filter(|write| write.0 == key)
            .max_by_key(|write| rank(write));
        let value = if is_write {
            Some(at + 1)
        } else {
            seen.map(|write| write.1)
        };
        let is_unknown = is_write && random.below(8) == 0;
        if is_write {
            let rank = 1 + random.below(9) + mine.iter().map(|write| write.2).max().unwrap_or(0);
            let mut with = mine.clone();
            with.push((key, at + 1, rank));
            if is_unknown {
                replicas.push(with);
            } else {
                *mine = with;
            }
        }
        let status = if is_unknown { Status::Unknown } else { Status::Ok };
        let times = (10 * at as i64, 10 * at as i64 + 5);
        builder
            .add(&record(client, is_write, key, value, times, status))
            .expect("a right record");
    }
    builder.finish().expect("one operation after the other")
}

/// A trace in which all replicas agree in the end, and yet one client has read what no order of its own explains (the shape of
/// Bouajjani and others, 2017), with a few changes. Chance alone hardly ever finds it.
fn nearly_causal_memory(seed: u64) -> History {
    let mut random = Random::new(seed, 3);
    // Client, writes, key, value.
    let mut operations = vec![
        (0, true, 2, 1),
        (0, true, 0, 2),
        (0, true, 1, 3),
        (1, true, 0, 4),
        (1, false, 2, 0),
        (1, false, 1, 3),
        (1, false, 0, 4),
    ];
    for _ in 0..random.below(4) {
        let place = random.below(operations.len() as u64) as usize;
        match random.below(3) {
            0 => operations.insert(place, (random.below(3), false, random.below(3), random.below(5))),
            1 => drop(operations.remove(place)),
            _ => operations[place].0 = random.below(3),
        }
    }
    let mut builder = HistoryBuilder::new();
    for (at, &(client, is_write, key, value)) in operations.iter().enumerate() {
        let status = if is_write && random.below(8) == 0 {
            Status::Unknown
        } else {
            Status::Ok
        };
        let times = (10 * at as i64, 10 * at as i64 + 5);
        let value = Some(value).filter(|&value| value > 0);
        builder
            .add(&record(client, is_write, key, value, times, status))
            .expect("a right record");
    }
    builder.finish().expect("one operation after the other")
}
