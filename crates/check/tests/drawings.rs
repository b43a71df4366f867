//! Whatever is drawn stays within its width, and nothing makes the drawing fail.
use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use turnbuckle_check::{
    Because, Edge, Explanation, History, HistoryBuilder, Report, Witness, draw, explain, figures,
};
use turnbuckle_workload::{Octets, Op, Record, Status};

/// Names and values that are hard on a terminal.
fn octets() -> impl Strategy<Value = Octets> {
    let bytes = prop_oneof![
        Just(b"x".to_vec()),
        Just(b"y".to_vec()),
        Just(b"nothing".to_vec()),
        Just("客\u{202e}\u{301}".as_bytes().to_vec()),
        vec(any::<u8>(), 0..80),
    ];
    bytes.prop_map(|bytes| Octets(Bytes::from(bytes)))
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => -20_i64..20,
        1 => any::<i64>(),
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0), Just(1_000_000_000)],
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let client = prop_oneof![4 => "[a-c]", 1 => "\\PC{0,30}"];
    let version = prop_oneof![2 => Just(None), 1 => (0..9_u8).prop_map(Some)];
    let parts = (
        client,
        any::<bool>(),
        0..8_u8,
        octets(),
        octets(),
        time(),
        time(),
        version,
    );
    parts.prop_map(|(client, is_read, odd, key, value, one, other, version)| Record {
        client,
        site: if odd == 1 {
            String::new()
        } else {
            format!("site\n{odd}")
        },
        op: match (is_read, odd) {
            (true, _) => Op::Read,
            (false, 4) => Op::Delete,
            (false, _) => Op::Write,
        },
        key,
        value: match (is_read, odd) {
            (true, 2) | (false, 4) => None,
            _ => Some(value),
        },
        start_ns: one.min(other),
        finish_ns: (odd != 3).then_some(one.max(other)),
        status: if odd == 3 { Status::Unknown } else { Status::Ok },
        version: version.map(|version| format!("{version}.0@a")),
        level: ["session", "linearizable", "causal", "bounded(1us)", "odd\n"]
            .get(usize::from(odd))
            .map(|&level| level.into()),
        receipt: (odd == 5).then(|| {
            let text = r#"{"asked": "session", "given": "sequential", "staleness_us": 0}"#;
            serde_json::from_str(text).expect("a receipt")
        }),
        recorder: None,
        pipelined: false,
        existed: false,
        reads: None,
    })
}

/// Those records that fit together. `had_data`: what nobody wrote may be from before the trace.
fn history(records: &[Record], had_data: bool) -> History {
    let mut kept: Vec<Record> = Vec::new();
    let build = |records: &[Record]| {
        let mut builder = match had_data {
            true => HistoryBuilder::new().on_existing_data(),
            false => HistoryBuilder::new(),
        };
        for record in records {
            builder.add(record).ok()?;
        }
        builder.finish().ok()
    };
    for record in records {
        kept.push(record.clone());
        if build(&kept).is_none() {
            kept.pop();
        }
    }
    build(&kept).expect("what is kept fits together")
}

fn check(text: &str, width: usize) -> Result<(), TestCaseError> {
    for line in text.lines() {
        let columns = line.chars().count();
        prop_assert!(columns <= width, "{columns} columns, not {width}: {line}");
        prop_assert!(!line.chars().any(char::is_control), "{line:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_witness_is_drawn_within_its_width(
        records in vec(record(), 0..24),
        places in vec((any::<usize>(), any::<usize>(), 0..6_u8), 0..30),
        width in 60..140_usize,
        had_data in any::<bool>(),
    ) {
        let history = history(&records, had_data);
        let all = history.operations.len().max(1);
        let mut witness = Witness::default();
        for (one, other, because) in places.into_iter().filter(|_| !history.operations.is_empty()) {
            let (from, to) = (one % all, other % all);
            if !witness.operations.contains(&from) {
                witness.operations.push(from);
            }
            let because = [
                Because::Session,
                Because::ReadsFrom,
                Because::RealTime,
                Because::Version,
                Because::Conflict,
                Because::Overwritten,
            ][usize::from(because)];
            witness.edges.push(Edge { from, to, because });
        }
        check(&draw(&history, &witness, width), width)?;
        let words = vec!["a word and a word and a word and a word and a word and a word and a word".into()];
        let explanation = Explanation::new("a title", words, witness);
        check(&explanation.text(&history, width), width.max(62))?;
    }

    #[test]
    fn any_trace_is_explained_within_the_width(
        records in vec(record(), 0..24),
        had_data in any::<bool>(),
    ) {
        let history = history(&records, had_data);
        for explanation in explain(&history) {
            check(&explanation.text(&history, 100), 100)?;
            for &place in &explanation.witness.operations {
                prop_assert!(place < history.operations.len());
            }
        }
        for (_, plot) in figures(&history, &Report::of(&history, &[])) {
            let svg = plot.svg();
            prop_assert!(svg.len() < 100_000 && !svg.contains("NaN"), "{svg}");
        }
    }
}
