//! Traces that other programs wrote.
use std::path::Path;
use turnbuckle_workload::{Op, Record, Status, TraceReader};

/// The client, the operation with its key and value, the start, the finish and the status.
fn short(record: &Record) -> String {
    let text = |octets: &turnbuckle_workload::Octets| String::from_utf8_lossy(&octets.0).into_owned();
    format!(
        "{} {}({}) {} [{}, {}] {}",
        record.client,
        match record.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Delete => "delete",
            Op::Snapshot => "snapshot",
        },
        text(&record.key),
        record.value.as_ref().map_or("-".into(), text),
        record.start_ns,
        record.finish_ns.map_or("-".into(), |finish| finish.to_string()),
        match record.status {
            Status::Ok => "ok",
            Status::Fail => "fail",
            Status::Unknown => "unknown",
        }
    )
}

fn trace(name: &str) -> Vec<String> {
    let reader = TraceReader::open(&Path::new("tests/traces").join(name)).expect("a trace");
    reader.map(|record| short(&record.expect("a record"))).collect()
}

/// The error for a text in a file with this name.
fn complaint(name: &str, text: impl AsRef<[u8]>) -> String {
    let text = std::io::Cursor::new(text.as_ref().to_vec());
    let records =
        TraceReader::new(Path::new(name), text).and_then(|reader| reader.collect::<Result<Vec<_>, _>>());
    records.expect_err("a bad trace").to_string()
}

#[test]
fn a_jepsen_history_of_independent_registers_is_read() {
    assert_eq!(
        trace("independent.edn"),
        [
            "0 write(7) 3 [1000, 2000] ok",
            "1 read(7) - [1200, 2100] ok",
            "0 write(x) three [2200, -] unknown",
            "5 read(x) three [7300, 7500] ok",
            "1 write(7) 4 [7400, 7600] fail",
            "5 read(7) - [7700, -] unknown",
            "1 write(7) 5 [7800, -] unknown",
        ]
    );
}

#[test]
fn a_history_in_one_vector_without_times_counts_its_events() {
    assert_eq!(
        trace("register.edn"),
        ["0 write(register) 1 [0, 1] ok", "1 read(register) 1 [2, 4] ok"]
    );
}

#[test]
fn a_log_of_an_older_release_is_read() {
    assert_eq!(
        trace("log.edn"),
        [
            "0 read(register) - [0, 3] ok",
            "2 write(register) 4 [2, -] unknown",
            "1 read(register) 4 [5, 6] ok",
        ]
    );
}

#[test]
fn a_table_is_read_whatever_the_order_of_its_columns() {
    assert_eq!(
        trace("table.csv"),
        [
            "c1 write(k,1) a \"b\" [-5, 9] ok",
            "c1 write(k2) v [10, -] unknown",
            "c2 read(k,1) - [20, 30] ok",
        ]
    );
    let mut reader = TraceReader::open(Path::new("tests/traces/table.csv")).expect("a table");
    let first = reader.next().expect("a row").expect("a record");
    assert_eq!(
        (first.level.as_deref(), reader.line()),
        (Some("eventual"), Some(2))
    );
    let level = reader.nth(1).expect("a row").expect("a record").level;
    assert_eq!((level, reader.line()), (None, Some(4)));
}

#[test]
fn packed_and_empty_files_are_read_whatever_they_hold() {
    for name in ["independent.edn", "table.csv"] {
        let text = std::fs::read(Path::new("tests/traces").join(name)).expect("a trace");
        let packed = zstd::encode_all(&text[..], 3).expect("memory takes it");
        let reader = TraceReader::new(Path::new(&format!("{name}.zst")), std::io::Cursor::new(packed));
        let records = reader
            .expect("a packed trace")
            .map(|record| short(&record.expect("a record")));
        assert_eq!(records.collect::<Vec<_>>(), trace(name));
    }
    for name in ["t.edn", "t.csv", "t.jsonl", "t"] {
        for text in ["", "\n\n"] {
            let reader = TraceReader::new(Path::new(name), text.as_bytes());
            let records = reader.and_then(|reader| reader.collect::<Result<Vec<_>, _>>());
            assert!(
                matches!(records, Ok(records) if records.is_empty()),
                "{name} {text:?}"
            );
        }
    }
}

#[test]
fn what_is_wrong_with_a_history_is_named_with_its_line() {
    let began = "{:process 0, :type :invoke, :f :write, :value 1, :time 5}\n";
    for (text, expected) in [
        (
            format!("{began}{{:process 1, :type :invoke, :f :cas, :value [1 2], :time 6}}"),
            "t.edn:2: expected :f :read or :write (compare-and-set cannot be judged), found :cas",
        ),
        (
            began.replace(":write", ":txn"),
            "t.edn:1: expected :f :read or :write, found :txn",
        ),
        (
            began.replace(":value 1", ":value [1 2 3]"),
            "t.edn:1: expected a register's value, or a key and a value, found a collection of 3",
        ),
        (
            format!("{began}\n{began}"),
            "t.edn:3: expected a process's operations one after the other (0), found one that begins while that of line 1 is under way",
        ),
        (
            began.replace(":invoke", ":ok"),
            "t.edn:1: expected :invoke before the process's completion (0), found none",
        ),
        (
            format!("{began}{}", began.replace(":invoke", ":ok").replace('5', "4")),
            "t.edn:2: expected an operation that is over after it began, found one from 5 to 4",
        ),
        (
            format!(
                "{began}{}",
                began.replace(":invoke", ":ok").replace(":time 5", "")
            ),
            "t.edn:2: expected a :time, as before, found none",
        ),
        (
            format!(
                "{began}{}",
                began.replace(":invoke :f", ":ok :f").replace(":write", ":read")
            ),
            "t.edn:2: expected a process's operations",
        ),
        (
            began.replace('5', "99999999999999999999"),
            "t.edn:1: expected :time as an integer of 64 bits, found 99999999999999999999",
        ),
        (
            began.replace(":type", ":tipe"),
            "t.edn:1: expected an event with :type, found a map of 5",
        ),
        (
            began.replace(":value 1", ":value nil"),
            "t.edn:1: expected the value that is written, found nil",
        ),
        (
            format!("{began}{{:process 0, :type"),
            "t.edn:2: expected '}' for what began on line 2, found the end of the file",
        ),
        (
            format!("[{began}"),
            "t.edn:2: expected ']' behind the last event, found the end of the file",
        ),
        ("[5]".into(), "t.edn:1: expected an event"),
        ("noise".into(), "t.edn:1: expected an event: a map, or a process"),
        ("]".into(), "t.edn:1: expected an event"),
        ("[".repeat(1 << 20), "t.edn:1: expected an event"),
    ] {
        let found = complaint("t.edn", &text);
        assert!(found.starts_with(expected), "{found}");
    }
    let found = complaint("t.edn", b"{:process \xff}");
    assert!(
        found.starts_with("t.edn:1: expected UTF-8, found invalid"),
        "{found}"
    );
    let packed = zstd::encode_all(began.repeat(999).as_bytes(), 3).expect("memory takes it");
    let found = complaint("t.edn.zst", &packed[..10]);
    assert!(found.contains("found one that is cut off"), "{found}");
}

#[test]
fn what_is_wrong_with_a_table_is_named_with_its_line() {
    let header = "client,site,op,key,value,start_ns,finish_ns,status";
    for (text, expected) in [
        (
            "c1,a,write,k,v,5,9,ok\n".to_owned(),
            "t.csv:1: expected the columns client, site, op, key, value, start_ns, finish_ns, status, and optionally \
             version, level, recorder, each once, found \"c1\"",
        ),
        (
            format!("{header},receipt"),
            "t.csv:1: expected the columns client,",
        ),
        (format!("{header},op"), "t.csv:1: expected the columns client,"),
        (header.replace("op,", ""), "t.csv:1: expected the columns client,"),
        (
            format!("{header}\nc1,a,write,k,v,5,9"),
            "t.csv:2: expected 8 cells, found 7",
        ),
        (
            format!("{header}\nc1,a,write,\"k\n\",v,5,9,ok\nc1,a,write,k,v,five,9,ok"),
            "t.csv:4: expected a row as the header says, found in cell 6: invalid digit",
        ),
        (
            format!("{header}\nc1,a,write,k,v,99999999999999999999,9,ok"),
            "t.csv:2: expected a row as the header says, found in cell 6: number too large",
        ),
        (
            format!("{header}\nc1,a,cas,k,v,5,9,ok"),
            "t.csv:2: expected a row as the header says, found unknown variant `cas`, expected one of `read`, `write`",
        ),
        (
            format!("{header}\nc1,a,write,k,,5,9,ok"),
            "t.csv:2: expected the value that was written, found an empty one",
        ),
        (
            format!("{header}\nc1,a,snapshot,k,v,5,9,ok"),
            "t.csv:2: expected read, write or delete, found snapshot",
        ),
        (
            format!("{header}\nc1,a,read,k,v,5,4,ok"),
            "t.csv:2: expected an operation that is over after it began",
        ),
        (format!("{header}\nc1,\"a"), "t.csv:2: expected 8 cells, found 2"),
    ] {
        let found = complaint("t.csv", &text);
        assert!(found.starts_with(expected), "{found}");
    }
    let found = complaint(
        "t.csv",
        [header.as_bytes(), b"\nc1,\xff,read,k,v,5,9,ok"].concat(),
    );
    assert!(found.starts_with("t.csv:2: expected UTF-8"), "{found}");
}

#[test]
fn a_byte_order_mark_before_a_header_is_passed_over() {
    let text = "\u{feff}client,site,op,key,value,start_ns,finish_ns,status\nc1,a,read,k,v,5,9,ok";
    let reader = TraceReader::new(Path::new("t.csv"), text.as_bytes()).expect("a header");
    assert_eq!(reader.count(), 1);
}
