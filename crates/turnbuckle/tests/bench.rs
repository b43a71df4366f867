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
use turnbuckle_workload::{Op, Record, Status, label};

/// What the server does about the n-th GET or SET.
#[derive(Clone, Copy)]
enum Behaviour {
    /// What it should.
    Good,
    /// Answers with this error instead.
    Error(&'static str),
    /// Closes the connection instead.
    HangUp,
    /// Reads what an earlier run wrote.
    Stale,
}

type Behaviours = fn(u64) -> Behaviour;

/// A small store, which one server has or several share.
struct Store {
    behaviours: Behaviours,
    /// How many GETs and SETs there were.
    count: AtomicU64,
    data: Arc<Mutex<HashMap<Bytes, Bytes>>>,
    /// What becomes of the n-th attempt to go on with a session. Without it there are no sessions.
    resuming: Option<Behaviours>,
    resumed: AtomicU64,
    begun: AtomicU64,
    /// The session in which each value was written.
    written_in: Mutex<HashMap<Bytes, u64>>,
}

impl Store {
    fn new(behaviours: Behaviours, resuming: Option<Behaviours>) -> Arc<Store> {
        Arc::new(Store {
            behaviours,
            resuming,
            count: AtomicU64::default(),
            data: Arc::default(),
            resumed: AtomicU64::default(),
            begun: AtomicU64::default(),
            written_in: Mutex::default(),
        })
    }

    /// Another one with the same data, which has behaviours of its own.
    fn site(&self, behaviours: Behaviours) -> Arc<Store> {
        let mut site = Store::new(behaviours, self.resuming);
        let shared = Arc::get_mut(&mut site).expect("nobody else has it yet");
        shared.data = self.data.clone();
        site
    }

    /// One more server of it.
    fn serve(self: &Arc<Store>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let store = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let store = store.clone();
                thread::spawn(move || store.answer(stream));
            }
        });
        address
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut decoder = Decoder::new(Limits::default());
        let (mut input, mut arguments) = (BytesMut::new(), Arguments::default());
        let mut session = self.begun.fetch_add(1, Ordering::Relaxed);
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            input.extend_from_slice(&buffer[..read]);
            let mut output = turnbuckle_resp::Output::default();
            while let Ok(Decoded::Command) = decoder.decode(&mut input, &mut arguments) {
                let mut writer = Writer::new(&mut output, Resp::Two);
                if !self.carry_out(&arguments, &mut session, &mut writer) {
                    return;
                }
            }
            if stream.write_all(&output.split()).is_err() {
                return;
            }
        }
    }

    /// False if it hangs up instead.
    fn carry_out(&self, arguments: &Arguments, session: &mut u64, writer: &mut Writer<'_>) -> bool {
        let is_session = arguments.is(0, "SESSION");
        let behaviour = match self.resuming {
            Some(resuming) if is_session && arguments.is(1, "RESUME") => {
                resuming(self.resumed.fetch_add(1, Ordering::Relaxed))
            }
            Some(_) if is_session => Behaviour::Good,
            _ if arguments.is(0, "GET") || arguments.is(0, "SET") => {
                (self.behaviours)(self.count.fetch_add(1, Ordering::Relaxed))
            }
            _ => Behaviour::Error("ERR unknown command"),
        };
        match behaviour {
            Behaviour::Error(why) => writer.error(why),
            Behaviour::HangUp => return false,
            Behaviour::Stale if arguments.is(0, "GET") => writer.bulk(b"of an earlier run"),
            Behaviour::Good if is_session && arguments.is(1, "TOKEN") => {
                writer.bulk(session.to_string().as_bytes());
            }
            Behaviour::Good if is_session => {
                let token = String::from_utf8(arguments.bytes(2).to_vec()).expect("a token of this server");
                *session = token.parse().expect("a token of this server");
                writer.simple("OK");
            }
            Behaviour::Good if arguments.is(0, "GET") => {
                let data = self.data.lock().expect("nobody panics");
                writer.bulk_or_null(data.get(&arguments.bytes(1)).map(|value| &value[..]));
            }
            Behaviour::Good | Behaviour::Stale => {
                let (key, value) = (arguments.bytes(1), arguments.bytes(2));
                let mut written_in = self.written_in.lock().expect("nobody panics");
                written_in.insert(Bytes::copy_from_slice(name(&value)), *session);
                self.data.lock().expect("nobody panics").insert(key, value);
                writer.simple("OK");
            }
        }
        true
    }
}

/// What a trace calls a value.
fn name(value: &[u8]) -> &[u8] {
    label(value).map_or(value, str::as_bytes)
}

/// A small Redis: GET and SET, and an error for everything else.
fn serve(behaviours: Behaviours) -> String {
    Store::new(behaviours, None).serve()
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
    let workload = match more.contains(&"--workload") {
        true => &[][..],
        false => &["--workload", &paths[0]],
    };
    let fixed = [
        "--target", address, "--trace", &paths[1], "--json", "--load", "--seed", "5",
    ];
    let output = bench(&[&fixed[..], workload, more].concat());
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
        let (report, records) = run(&serve(|_| Behaviour::Good), &["--pipeline", pipeline]);
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
    let help = bench(&["--help"]);
    let help = String::from_utf8_lossy(&help.stdout);
    assert!(
        help.contains("UNSENT       open loop: the operation was due before the end"),
        "{help}"
    );
    let (report, records) = run(
        &serve(|n| match n % 20 {
            7 => Behaviour::Error("TIMEOUT it may have happened"),
            13 => Behaviour::Error("UNAVAILABLE it has not happened"),
            _ => Behaviour::Good,
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
        &serve(|n| {
            if n % 500 == 499 {
                Behaviour::HangUp
            } else {
                Behaviour::Good
            }
        }),
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
fn what_fails_in_a_way_that_passes_is_tried_again_until_it_succeeds() {
    for pipeline in ["1", "8"] {
        let (report, records) = run(
            &serve(|n| match n % 100 {
                7 => Behaviour::Error("TIMEOUT it may have happened"),
                13..=15 => Behaviour::Error("UNAVAILABLE it has not happened"),
                79 => Behaviour::HangUp,
                _ => Behaviour::Good,
            }),
            &["--retry", "1m", "--pipeline", pipeline],
        );
        assert_eq!(report["errors"], serde_json::json!({}));
        // As without any failure: each read-modify-write is two.
        let operations = report["operations"].as_u64().expect("a number");
        assert!((2_500..2_700).contains(&operations), "{operations}");
        let retries = |word: &str| report["retries"][word].as_u64().expect("a number");
        let unknown = count(&records, |record| record.status == Status::Unknown);
        let refused = count(&records, |record| record.status == Status::Fail);
        // The trace has the tries of the load phase, too; the report has not.
        let (timeouts, lost) = (retries("TIMEOUT"), retries("CONNECTION"));
        assert!(timeouts >= 20 && lost >= 20, "{report}");
        assert!(
            (timeouts + lost..timeouts + lost + 20).contains(&unknown),
            "{unknown}: {report}"
        );
        assert!(
            (retries("UNAVAILABLE")..retries("UNAVAILABLE") + 4).contains(&refused),
            "{refused}: {report}"
        );
    }
}

#[test]
fn a_client_that_retries_goes_to_the_next_target_when_its_connection_is_lost() {
    let store = Store::new(|_| Behaviour::Good, None);
    // It breaks after the load phase, which has 20 writes at both targets, and a read of each key at each target.
    let breaks = store.site(|n| {
        if n < 60 {
            Behaviour::Good
        } else {
            Behaviour::HangUp
        }
    });
    let (report, _) = run(&[store.serve(), breaks.serve()].join(","), &["--retry", "1m"]);
    assert_eq!(report["errors"], serde_json::json!({}));
    // Two of the four clients are connected to it. They leave it for good.
    assert_eq!(report["retries"]["CONNECTION"], 2);
    assert_eq!(breaks.count.load(Ordering::Relaxed), 60 + 2);
}

#[test]
fn nothing_is_tried_again_for_ever_or_that_can_never_succeed() {
    let refuses: Behaviours = |n| match n {
        0..100 => Behaviour::Good,
        _ => Behaviour::Error("UNAVAILABLE it has not happened"),
    };
    let is_wrong: Behaviours = |n| match n % 2 {
        _ if n < 100 => Behaviour::Good,
        0 => Behaviour::Error("ERR wrong"),
        _ => Behaviour::Good,
    };
    let more = ["--for", "100ms", "--retry", "50ms"];
    let (report, _) = run(&serve(refuses), &more);
    assert!(report["errors"]["UNAVAILABLE"].as_u64() > Some(0), "{report}");
    assert!(report["retries"]["UNAVAILABLE"].as_u64() > Some(0), "{report}");
    let (report, _) = run(&serve(is_wrong), &more);
    assert!(report["errors"]["ERR"].as_u64() > Some(0), "{report}");
    assert_eq!(report["retries"], serde_json::json!({}));
}

/// Whoever roams finds every third server busy with something else. Whether it hangs up or refuses the session: what stands
/// in the trace as one client was one session of the server's, and only who was refused began another one.
#[test]
fn a_session_of_the_trace_is_one_of_the_server_whatever_becomes_of_the_way_to_the_next() {
    const HANGS_UP: Behaviours = |n| {
        if n % 3 == 1 {
            Behaviour::HangUp
        } else {
            Behaviour::Good
        }
    };
    const REFUSES: Behaviours = |n| match n % 3 {
        1 => Behaviour::Error("ERR no such session"),
        _ => Behaviour::Good,
    };
    for (resuming, begins_anew) in [(HANGS_UP, false), (REFUSES, true)] {
        let store = Store::new(|_| Behaviour::Good, Some(resuming));
        let targets = [store.serve(), store.serve()].join(",");
        let (_, records) = run(&targets, &["--session", "roam"]);
        let written_in = store.written_in.lock().expect("nobody panics");
        let mut sessions: BTreeMap<&str, HashSet<u64>> = BTreeMap::new();
        for record in records.iter().filter(|record| record.op == Op::Write) {
            let value = record.value.as_ref().expect("a write has a value");
            let session = written_in[&value.0];
            sessions.entry(&record.client).or_default().insert(session);
        }
        for (client, sessions) in &sessions {
            assert_eq!(sessions.len(), 1, "{client} was the sessions {sessions:?}");
        }
        assert!(store.resumed.load(Ordering::Relaxed) > 6, "they roam");
        assert_eq!(sessions.len() > 4, begins_anew, "{:?}", sessions.keys());
    }
}

/// What a site has is what an earlier run wrote, until what this run loads has come there. To a checker that knows only this run's
/// trace, that would be what nobody wrote.
#[test]
fn a_traced_run_begins_when_every_target_shows_what_was_loaded() {
    let near = Store::new(|_| Behaviour::Good, None);
    let far = near.site(|n| {
        if n < 300 {
            Behaviour::Stale
        } else {
            Behaviour::Good
        }
    });
    let targets = [near.serve(), far.serve()].join(",");
    // It checks that what is read was written.
    let updates = ["--workload", "a", "--keys", "20", "--for", "200ms"];
    let (report, _) = run(&targets, &updates);
    assert_eq!(report["errors"], serde_json::json!({}));

    let far = near.site(|_| Behaviour::Stale).serve();
    let targets = [near.serve(), far.clone()].join(",");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("trace.jsonl");
    let trace = trace.to_str().expect("an ordinary path");
    let loading = ["--target", &targets, "--load", "--keys", "20", "--for", "1ms"];
    let output = bench(&[&loading[..], &["--trace", trace, "--timeout", "200ms"]].concat());
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{message}");
    let expected = format!(
        "loading: {far} ({far}) does not show what was loaded: for user0, it has a value that this run"
    );
    assert!(message.contains(&expected), "{message}");
    let output = bench(&loading);
    assert_eq!(output.status.code(), Some(0), "without a trace nobody waits");
}

#[test]
fn a_traced_run_does_not_insert_what_is_there_already() {
    let address = serve(|_| Behaviour::Good);
    run(&address, &[]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("trace.jsonl");
    let trace = trace.to_str().expect("an ordinary path");
    let again = [
        "--target",
        &address,
        "--workload",
        "d",
        "--load",
        "--trace",
        trace,
    ];
    let output = bench(&[&again[..], &["--keys", "20"]].concat());
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(
        message.contains("has user20, which this workload inserts"),
        "{message}"
    );
}

/// What an earlier run wrote is still there. The report says so, and the checker calls no answer false for it.
#[test]
fn a_trace_of_a_keyspace_with_data_says_so_and_the_checker_does_not_call_it_false() {
    let address = serve(|_| Behaviour::Good);
    run(&address, &[]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("trace.jsonl");
    let path = trace.to_str().expect("an ordinary path");
    let again = [
        "--target",
        &address,
        "--keys",
        "20",
        "--clients",
        "4",
        "--for",
        "100ms",
        "--trace",
        path,
    ];
    let output = bench(&again);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("The keyspace had data before the trace began: "),
        "{text}"
    );
    let found = json(&bench(&[&again[..], &["--json"]].concat()));
    let reads = found["reads_from_before"].as_u64().expect("a number");
    let written: HashSet<_> = read_trace(&trace)
        .into_iter()
        .filter(|record| record.op == Op::Write)
        .map(|record| record.value)
        .collect();
    let of_nobody = |record: &Record| record.op == Op::Read && !written.contains(&record.value);
    assert_eq!(reads, count(&read_trace(&trace), of_nobody));
    assert!(reads > 0, "{found}");
    let check = Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
        .arg("check")
        .arg(&trace)
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&check.stdout);
    assert_eq!(check.status.code(), Some(0), "{said}");
    assert!(
        said.contains(&format!("before the trace    {reads} reads returned ")),
        "{said}"
    );
    let loaded = bench(&[&again[..], &["--load"]].concat());
    let text = String::from_utf8_lossy(&loaded.stdout);
    assert!(!text.contains("before the trace"), "{text}");
}

#[test]
fn a_seed_means_the_same_operations() {
    let operations = || {
        let (_, records) = run(&serve(|_| Behaviour::Good), &["--clients", "1"]);
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
    let address = serve(|_| Behaviour::Good);
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
