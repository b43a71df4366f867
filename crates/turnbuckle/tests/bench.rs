//! `turnbuckle bench` against a server that the tests control: every reply, and every way to go away.

use bytes::{Bytes, BytesMut};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Output},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
use turnbuckle_resp::{Arguments, Decoded, Decoder, Limits, Resp, Writer};
use turnbuckle_workload::{Op, Record, Status};

/// What the server does about the n-th GET or SET.
#[derive(Clone, Copy)]
enum Mood {
    /// What it should.
    Good,
    /// Answers with this error instead.
    Error(&'static str),
    /// Closes the connection instead.
    HangUp,
}

type Moods = fn(u64) -> Mood;

/// A small Redis: GET and SET, and an error for everything else.
fn serve(moods: Moods) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let data = Arc::new(Mutex::new(HashMap::new()));
    let count = Arc::new(AtomicU64::new(0));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (data, count) = (data.clone(), count.clone());
            thread::spawn(move || answer(stream, &data, &count, moods));
        }
    });
    address
}

fn answer(mut stream: TcpStream, data: &Mutex<HashMap<Bytes, Bytes>>, count: &AtomicU64, moods: Moods) {
    let mut decoder = Decoder::new(Limits::default());
    let (mut input, mut arguments) = (BytesMut::new(), Arguments::default());
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        input.extend_from_slice(&buffer[..read]);
        let mut output = BytesMut::new();
        while let Ok(Decoded::Command) = decoder.decode(&mut input, &mut arguments) {
            let mut writer = Writer::new(&mut output, Resp::Two);
            if !arguments.is(0, "GET") && !arguments.is(0, "SET") {
                writer.error("ERR unknown command");
                continue;
            }
            match moods(count.fetch_add(1, Ordering::Relaxed)) {
                Mood::Error(why) => writer.error(why),
                Mood::HangUp => return,
                Mood::Good if arguments.is(0, "GET") => {
                    let data = data.lock().expect("nobody panics");
                    writer.bulk_or_null(data.get(&arguments.bytes(1)).map(|value| &value[..]));
                }
                Mood::Good => {
                    let mut data = data.lock().expect("nobody panics");
                    data.insert(arguments.bytes(1), arguments.bytes(2));
                    writer.simple("OK");
                }
            }
        }
        if stream.write_all(&output).is_err() {
            return;
        }
    }
}

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
        .arg("bench")
        .args(arguments)
        .output()
        .expect("the binary runs")
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn read_trace(path: &Path) -> Vec<Record> {
    std::fs::read_to_string(path)
        .expect("a trace")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record"))
        .collect()
}

/// 2,000 steps, a third of them read-modify-writes and a few of them inserts, by four clients on 20 keys.
const WORKLOAD: &str = "
record_count = 20
field_length = 40
read_proportion = 0.3
update_proportion = 0.3
insert_proportion = 0.1
read_modify_write_proportion = 0.3
thread_count = 4
operation_count = 2000
";

/// Runs the workload, with a trace, and looks at what every trace must keep.
fn run(address: &str, more: &[&str]) -> (serde_json::Value, Vec<Record>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let workload = directory.path().join("workload.toml");
    std::fs::write(&workload, WORKLOAD).expect("a small file");
    let trace = directory.path().join("trace.jsonl");
    let paths = [&workload, &trace].map(|path| path.to_str().expect("an ordinary path").to_owned());
    let fixed = [
        "--target",
        address,
        "--workload",
        &paths[0],
        "--trace",
        &paths[1],
        "--json",
        "--load",
        "--seed",
        "5",
    ];
    let output = bench(&[&fixed[..], more].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let records = read_trace(&trace);
    check_values(&records);
    check_sessions(&records);
    (json(&output), records)
}

/// No value is written twice, and none is read that was not written.
fn check_values(records: &[Record]) {
    let mut written = HashSet::new();
    for record in records.iter().filter(|record| record.op == Op::Write) {
        assert!(
            written.insert((&record.key, &record.value)),
            "written twice: {record:?}"
        );
    }
    for record in records
        .iter()
        .filter(|record| record.op == Op::Read && record.value.is_some())
    {
        assert!(
            written.contains(&(&record.key, &record.value)),
            "never written: {record:?}"
        );
    }
}

/// A session's acknowledged operations come one after the other, and nothing of it comes after one without answer.
fn check_sessions(records: &[Record]) {
    let mut sessions: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in records {
        sessions.entry(&record.client).or_default().push(record);
    }
    for records in sessions.values_mut() {
        records.sort_by_key(|record| record.start_ns);
        for pair in records.windows(2) {
            if let Some(finish_ns) = pair[0].finish_ns {
                assert!(finish_ns < pair[1].start_ns, "overlap: {pair:?}");
            }
        }
    }
}

fn count(records: &[Record], wanted: impl Fn(&Record) -> bool) -> u64 {
    records.iter().filter(|record| wanted(record)).count() as u64
}

#[test]
fn every_operation_is_in_the_trace_and_no_session_overlaps_itself() {
    for pipeline in ["1", "8"] {
        let (report, records) = run(&serve(|_| Mood::Good), &["--pipeline", pipeline]);
        let operations = report["operations"].as_u64().expect("a number");
        // Each read-modify-write is two.
        assert!((2_500..2_700).contains(&operations), "{operations}");
        assert_eq!(records.len() as u64, 20 + operations);
        assert_eq!(
            count(&records, |record| record.status == Status::Ok),
            records.len() as u64
        );
        assert_eq!(report["errors"], serde_json::json!({}));
        let sessions: HashSet<&str> = records.iter().map(|record| record.client.as_str()).collect();
        assert_eq!(sessions.len(), 4 * pipeline.parse::<usize>().expect("a number"));
    }
}

#[test]
fn errors_are_counted_by_their_first_word_and_only_a_timeout_is_unknown() {
    let (report, records) = run(
        &serve(|n| match n % 20 {
            7 => Mood::Error("TIMEOUT it may have happened"),
            13 => Mood::Error("UNAVAILABLE it has not happened"),
            _ => Mood::Good,
        }),
        &[],
    );
    let timeouts = report["errors"]["TIMEOUT"].as_u64().expect("a number");
    let refusals = report["errors"]["UNAVAILABLE"].as_u64().expect("a number");
    assert!(timeouts > 50 && refusals > 50, "{report}");
    // The trace has the errors of the load phase too, which is tried again until all keys are there.
    let unknown = count(&records, |record| record.status == Status::Unknown);
    let failed = count(&records, |record| record.status == Status::Fail);
    assert!(
        (timeouts..timeouts + 5).contains(&unknown),
        "{unknown} of {timeouts}"
    );
    assert!(
        (refusals..refusals + 5).contains(&failed),
        "{failed} of {refusals}"
    );
    assert_eq!(
        count(&records, |record| record.status == Status::Unknown
            && record.finish_ns.is_some()),
        0
    );
}

#[test]
fn a_lost_connection_leaves_its_operations_unknown_and_begins_a_new_session() {
    let (report, records) = run(
        &serve(|n| if n % 500 == 499 { Mood::HangUp } else { Mood::Good }),
        &["--pipeline", "4"],
    );
    let lost = report["errors"]["CONNECTION"].as_u64().expect("a number");
    assert!(lost >= 4, "{report}");
    assert_eq!(count(&records, |record| record.status == Status::Unknown), lost);
    for record in records.iter().filter(|record| record.status == Status::Unknown) {
        let later = count(&records, |other| {
            other.client == record.client && other.start_ns > record.start_ns && other.status == Status::Ok
        });
        assert_eq!(later, 0, "the session went on after {record:?}");
    }
}

#[test]
fn a_seed_means_the_same_operations() {
    let operations = || {
        let (_, records) = run(&serve(|_| Mood::Good), &["--clients", "1"]);
        let described: Vec<_> = records
            .into_iter()
            .map(|record| (record.client, record.op, record.key, record.value, record.status))
            .collect();
        described
    };
    assert_eq!(operations(), operations());
}

#[test]
fn what_is_wrong_outside_is_exit_code_3_and_says_so() {
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("it is bound").to_string()
    };
    let output = bench(&["--target", &closed]);
    assert_eq!(output.status.code(), Some(3));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains(&format!("cannot connect to {closed}: Connection refused")),
        "{message}"
    );

    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"220 mail.example.org ESMTP\r\n");
        }
    });
    let output = bench(&["--target", &address]);
    assert_eq!(
        output.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn what_the_server_does_not_have_is_exit_code_2() {
    let address = serve(|_| Mood::Good);
    for arguments in [
        &["--target", &address, "--keyspace", "carts"][..],
        &["--target", &address, "--read", "causal"],
        &["--target", &address, "--target", &address, "--session", "roam"],
        &["--target", &address, "--workload", "e"],
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).starts_with("error: "),
            "{arguments:?}"
        );
    }
}
