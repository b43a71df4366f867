//! Any bytes as a trace, in each of the formats: records, or a complaint with a line that exists; the same when packed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::{io::Cursor, path::Path};
use turnbuckle_workload::{BadTraceFile, Record, TraceReader};

/// What was read until the end, or until something was wrong.
fn read(name: &str, bytes: &[u8]) -> (Vec<Record>, Option<BadTraceFile>) {
    let mut records = Vec::new();
    let mut reader = match TraceReader::new(Path::new(name), Cursor::new(bytes.to_vec())) {
        Ok(reader) => reader,
        Err(error) => return (records, Some(error)),
    };
    while let Some(record) = reader.next() {
        match record {
            Ok(record) => records.push(record),
            Err(error) => {
                assert!(reader.next().is_none(), "it reads on behind {error}");
                return (records, Some(error));
            }
        }
    }
    (records, None)
}

fuzz_target!(|bytes: &[u8]| {
    let lines = 1 + bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
    let packed = zstd::encode_all(bytes, 1).expect("memory takes it");
    for name in ["t.jsonl", "t.edn", "t.csv"] {
        let (records, error) = read(name, bytes);
        for record in &records {
            assert!(
                record.finish_ns.is_none_or(|finish| finish >= record.start_ns),
                "{record:?}"
            );
        }
        match &error {
            Some(BadTraceFile::BadLine {
                line,
                expected,
                found,
                ..
            }) => {
                assert!(*line >= 1 && *line <= lines, "{name}: line {line} of {lines}");
                assert!(!expected.is_empty() && !found.is_empty());
            }
            Some(BadTraceFile::Unreadable { source, .. }) => panic!("memory can be read: {source}"),
            None => {}
        }
        let (unpacked, also) = read(&format!("{name}.zst"), &packed);
        assert_eq!(unpacked, records);
        assert_eq!(also.is_some(), error.is_some());
    }
    // Noise that claims to be packed.
    read("t.jsonl.zst", bytes);
});
