use super::*;
use crate::status::{KeyspaceStatus, LinkStatus, MetricStatus, MetricValue, MetricValues, StreamStatus};
use proptest::prelude::*;
use std::collections::BTreeMap;
use turnbuckle_core::{Failure, NotComputed, Protocol, Session, Settings};
use turnbuckle_protocols::{ForProtocol, KnownProtocol};

/// A reader of the text format: name, labels, value. It is written from the format's description, independently of the writer.
fn read(text: &str) -> BTreeMap<(String, Vec<(String, String)>), f64> {
    let mut samples = BTreeMap::new();
    let mut helped = String::new();
    let mut typed = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            helped = rest.split(' ').next().unwrap().to_owned();
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            typed = rest.split(' ').next().unwrap().to_owned();
            assert_eq!(typed, helped, "HELP and TYPE stand together");
            continue;
        }
        let (name, labels, value) = read_line(line);
        assert!(name.starts_with(&typed), "{name} stands in the family {typed}");
        let twice = samples.insert((name, labels), value.replace("+Inf", "inf").parse().unwrap());
        assert_eq!(twice, None, "a series stands twice: {line}");
    }
    samples
}

fn read_line(line: &str) -> (String, Vec<(String, String)>, String) {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    while let Some(inner) = rest.strip_prefix(['{', ',']) {
        let (label, after) = inner.split_once("=\"").unwrap();
        let mut value = String::new();
        let mut chars = after.char_indices();
        let close = loop {
            match chars.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => match chars.next().unwrap().1 {
                    'n' => value.push('\n'),
                    c @ ('\\' | '"') => value.push(c),
                    c => panic!("\\{c} means nothing"),
                },
                (_, c) => value.push(c),
            }
        };
        labels.push((label.to_owned(), value));
        rest = &after[close + 1..];
    }
    let rest = rest.strip_prefix('}').unwrap_or(rest);
    (
        name.to_owned(),
        labels,
        rest.strip_prefix(' ').unwrap().to_owned(),
    )
}

fn sample(text: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let labels = labels
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    read(text)[&(name.to_owned(), labels)]
}

#[test]
fn the_text_is_exactly_this() {
    let mut text = Exposition::new();
    text.family("a_seconds", Kind::Gauge, "A \\ \"help\"\nof two lines.")
        .sample(&[], 0.0405)
        .sample(&[("x", "1"), ("y", "\\\"\n")], f64::INFINITY);
    text.family("b_total", Kind::Counter, "B.")
        .sample(&[], 12_345_678_901.0);
    assert_eq!(
        text.finish(),
        "# HELP a_seconds A \\\\ \"help\"\\nof two lines.\n# TYPE a_seconds gauge\na_seconds 0.0405\n\
         a_seconds{x=\"1\",y=\"\\\\\\\"\\n\"} +Inf\n# HELP b_total B.\n# TYPE b_total counter\nb_total 12345678901\n"
    );
}

#[test]
#[should_panic(expected = "written twice")]
fn a_family_stands_once() {
    let mut text = Exposition::new();
    text.family("a", Kind::Gauge, "");
    text.family("a", Kind::Gauge, "");
}

#[test]
fn the_counts_of_all_loops_are_summed_and_those_of_ended_ones_stay() {
    let metrics = Metrics::new(["carts", "li\"kes"]);
    let mut one = metrics.recorder();
    let mut other = metrics.recorder();
    let (get, causal) = (OperationKind::Get, LevelLabel::Causal);
    one.operation(1, get, causal, Outcome::Ok, Micros(7));
    other.operation(1, get, causal, Outcome::Ok, Micros(3_000_000));
    other.operation(1, get, causal, Outcome::Timeout, Micros(30_000_000));
    other.operation(0, get, causal, Outcome::Ok, Micros(1));
    drop(other);
    let text = metrics.render(&Status::default());
    let likes = [("keyspace", "li\"kes"), ("operation", "get"), ("level", "causal")];
    let with = |name, value| [likes[0], likes[1], likes[2], (name, value)];
    assert_eq!(
        sample(&text, "turnbuckle_operations_total", &with("outcome", "ok")),
        2.0
    );
    assert_eq!(
        sample(&text, "turnbuckle_operations_total", &with("outcome", "timeout")),
        1.0
    );
    assert_eq!(metrics.operations_total(), 4);
    let duration = "turnbuckle_operation_duration_seconds";
    for (bound, count) in [
        ("0.000005", 0.0),
        ("0.00001", 1.0),
        ("2.5", 1.0),
        ("5", 2.0),
        ("+Inf", 3.0),
    ] {
        assert_eq!(
            sample(&text, &format!("{duration}_bucket"), &with("le", bound)),
            count,
            "{bound}"
        );
    }
    assert_eq!(sample(&text, &format!("{duration}_sum"), &likes), 33.000007);
    assert_eq!(sample(&text, &format!("{duration}_count"), &likes), 3.0);
}

#[test]
fn clients_come_and_go() {
    let metrics = Metrics::new(["carts"]);
    let mut recorder = metrics.recorder();
    recorder.client_connected();
    recorder.client_connected();
    recorder.client_left();
    recorder.client_refused();
    recorder.commands(5);
    recorder.received_bytes(10);
    recorder.sent_bytes(20);
    recorder.messages(3);
    recorder.lost_messages(1);
    let text = metrics.render(&Status::default());
    for (name, value) in [
        ("turnbuckle_connected_clients", 1.0),
        ("turnbuckle_clients_total", 2.0),
        ("turnbuckle_clients_refused_total", 1.0),
        ("turnbuckle_commands_total", 5.0),
        ("turnbuckle_client_received_bytes_total", 10.0),
        ("turnbuckle_client_sent_bytes_total", 20.0),
        ("turnbuckle_messages_total", 3.0),
        ("turnbuckle_messages_lost_total", 1.0),
    ] {
        assert_eq!(sample(&text, name, &[]), value, "{name}");
    }
    let expected = ClientTotals {
        accepted: 2,
        refused: 1,
        commands: 5,
        received_bytes: 10,
        sent_bytes: 20,
        ..ClientTotals::default()
    };
    assert_eq!(metrics.client_totals(), expected);
}

#[test]
fn commands_are_counted_with_what_their_operations_did() {
    let metrics = Metrics::new(["carts"]);
    let mut recorder = metrics.recorder();
    let get = turnbuckle_resp::command_names().position(|name| name == "get");
    let get = get.expect("there is GET");
    let value = |text: Option<&'static str>| text.map(bytes::Bytes::from);
    for (answer, took) in [
        (Answer::Value(value(Some("v"))), 5),
        (Answer::Value(None), 7),
        (Answer::Values(vec![value(Some("v")), None, None]), 11),
        (Answer::Failed(Failure::Timeout("late".into())), 13),
        (Answer::NotComputed(NotComputed::Overflow), 0),
        (
            Answer::Transacted(Some(vec![Answer::Replaced(value(Some("v")))])),
            0,
        ),
    ] {
        recorder.command(get);
        recorder.command_operation(get, &answer, Micros(took));
    }
    recorder.command(get);
    recorder.command_refused(get);
    let expected = CommandTotals {
        calls: 7,
        refused: 1,
        failed: 2,
        micros: 36,
    };
    let totals = metrics.command_totals();
    assert_eq!(totals[get], expected);
    assert_eq!(totals.iter().filter(|totals| totals.calls > 0).count(), 1);
    let clients = metrics.client_totals();
    assert_eq!((clients.values_found, clients.values_missing), (3, 3));
}

#[test]
fn a_sites_lag_is_its_worst_partitions_age_and_all_partitions_entries() {
    let stream = |partition, to: &str, lag_entries, lag_seconds| StreamStatus {
        keyspace: "carts".into(),
        partition,
        from: "a".into(),
        to: to.into(),
        lag_entries,
        lag_seconds,
        state: String::new(),
    };
    let link = |peer: &str, up| LinkStatus {
        peer: peer.into(),
        up,
        ..LinkStatus::default()
    };
    let status = Status {
        streams: vec![
            stream(0, "b", 3, 0.5),
            stream(1, "b", 4, 0.25),
            stream(0, "c", 0, 0.0),
        ],
        links: vec![link("b1", true), link("c1", false)],
        ..Status::default()
    };
    let text = Metrics::new(["carts"]).render(&status);
    let to = |site| [("keyspace", "carts"), ("from", "a"), ("to", site)];
    assert_eq!(sample(&text, "turnbuckle_replication_lag_seconds", &to("b")), 0.5);
    assert_eq!(sample(&text, "turnbuckle_replication_lag_entries", &to("b")), 7.0);
    assert_eq!(sample(&text, "turnbuckle_replication_lag_seconds", &to("c")), 0.0);
    assert_eq!(sample(&text, "turnbuckle_link_up", &[("peer", "b1")]), 1.0);
    assert_eq!(sample(&text, "turnbuckle_link_up", &[("peer", "c1")]), 0.0);
}

#[test]
fn each_keyspace_says_what_was_written_into_it_and_what_its_protocol_added() {
    let keyspace = |name: &str, versions_written_total, metadata_bytes_total| KeyspaceStatus {
        name: name.into(),
        versions_written_total,
        metadata_bytes_total,
        keys: 2 * versions_written_total,
        expiring_keys: versions_written_total,
        ..KeyspaceStatus::default()
    };
    let status = Status {
        keyspaces: vec![keyspace("carts", 3, 0), keyspace("likes", 10, 310)],
        ..Status::default()
    };
    let text = Metrics::new(["carts", "likes"]).render(&status);
    for (name, versions, bytes) in [("carts", 3.0, 0.0), ("likes", 10.0, 310.0)] {
        let of = [("keyspace", name)];
        assert_eq!(sample(&text, "turnbuckle_versions_written_total", &of), versions);
        assert_eq!(sample(&text, "turnbuckle_keys", &of), 2.0 * versions);
        assert_eq!(sample(&text, "turnbuckle_expiring_keys", &of), versions);
        assert_eq!(
            sample(&text, "turnbuckle_version_metadata_bytes_total", &of),
            bytes
        );
    }
}

#[test]
fn what_protocols_count_is_shown_by_keyspace_and_by_site_under_the_names_that_they_gave() {
    let one = |value| MetricValues::One(value);
    let of_b = |value| MetricValues::BySite(BTreeMap::from([("b".to_string(), value)]));
    let durations = MetricValue::Durations {
        count: 3,
        sum: 0.75,
        buckets: vec![(0.1, 1), (0.5, 3)],
    };
    let keyspace = |name: &str, metrics: Vec<(&str, MetricValues)>| KeyspaceStatus {
        name: name.into(),
        metrics: metrics
            .into_iter()
            .map(|(name, values)| {
                let help = format!("The {name}.");
                (name.to_string(), MetricStatus { help, values })
            })
            .collect(),
        ..KeyspaceStatus::default()
    };
    let status = Status {
        site: "a".into(),
        keyspaces: vec![
            keyspace("carts", vec![("term", one(MetricValue::Count(4)))]),
            keyspace(
                "likes",
                vec![
                    ("elections_total", one(MetricValue::Count(2))),
                    ("lag_seconds", of_b(MetricValue::Seconds(0.5))),
                    ("term", one(MetricValue::Count(9))),
                    ("took_seconds", of_b(durations)),
                ],
            ),
        ],
        ..Status::default()
    };
    let text = Metrics::new(["carts", "likes"]).render(&status);
    let likes = [("keyspace", "likes")];
    let from_b = [("keyspace", "likes"), ("from", "b"), ("to", "a")];
    assert_eq!(sample(&text, "turnbuckle_term", &[("keyspace", "carts")]), 4.0);
    assert_eq!(sample(&text, "turnbuckle_term", &likes), 9.0);
    assert_eq!(sample(&text, "turnbuckle_elections_total", &likes), 2.0);
    assert_eq!(sample(&text, "turnbuckle_lag_seconds", &from_b), 0.5);
    let bucket = [from_b[0], from_b[1], from_b[2], ("le", "0.1")];
    assert_eq!(sample(&text, "turnbuckle_took_seconds_bucket", &bucket), 1.0);
    assert_eq!(sample(&text, "turnbuckle_took_seconds_sum", &from_b), 0.75);
    assert_eq!(sample(&text, "turnbuckle_took_seconds_count", &from_b), 3.0);
    for head in [
        "# HELP turnbuckle_term The term.\n# TYPE turnbuckle_term gauge\n",
        "# TYPE turnbuckle_elections_total counter\n",
        "# TYPE turnbuckle_took_seconds histogram\n",
    ] {
        assert!(text.contains(head), "{head} is missing in {text}");
    }
    let json = serde_json::to_value(&status).expect("it is plain");
    assert_eq!(json["keyspaces"][1]["elections_total"], 2);
    assert_eq!(json["keyspaces"][1]["lag_seconds"]["b"], 0.5);
    assert_eq!(json["keyspaces"][1]["took_seconds"]["b"]["count"], 3);
    let back: Status = serde_json::from_value(json).expect("it is read as it was written");
    assert_eq!(back.keyspaces[1].count("elections_total"), 2);
}

/// A family is written once, even if several protocols count it. Two protocols that count under one name must count the same.
#[test]
fn no_protocol_counts_under_a_name_that_means_something_else() {
    struct Ask;
    impl ForProtocol for Ask {
        type Output = Vec<(&'static str, &'static str)>;
        fn with<S: Session>(self, _: <S::Protocol as Protocol>::Config) -> Self::Output {
            let metrics = S::Protocol::METRICS.iter();
            metrics.map(|metric| (metric.name, metric.help)).collect()
        }
    }
    let mut helps = BTreeMap::new();
    let keyspaces = KnownProtocol::ALL.iter().map(|protocol| {
        let metrics = protocol.apply(&Settings::default(), Ask).into_iter();
        let metrics = metrics.map(|(name, help)| {
            assert_eq!(*helps.entry(name).or_insert(help), help, "{protocol}: {name}");
            let values = MetricValues::One(MetricValue::Count(1));
            let help = help.to_string();
            (name.to_string(), MetricStatus { help, values })
        });
        KeyspaceStatus {
            name: protocol.to_string(),
            metrics: metrics.collect(),
            ..KeyspaceStatus::default()
        }
    });
    let status = Status {
        keyspaces: keyspaces.collect(),
        ..Status::default()
    };
    let text = Metrics::new(KnownProtocol::ALL.iter().map(|protocol| protocol.name())).render(&status);
    assert_eq!(
        sample(&text, "turnbuckle_operations_under_way", &[("keyspace", "abd")]),
        1.0
    );
    assert_eq!(
        sample(&text, "turnbuckle_hidden_versions", &[("keyspace", "cops")]),
        1.0
    );
    let json = serde_json::to_string(&status).expect("it is plain");
    for keyspace in &status.keyspaces {
        for name in keyspace.metrics.keys() {
            let expected = status
                .keyspaces
                .iter()
                .filter(|keyspace| keyspace.metrics.contains_key(name));
            let found = json.matches(&format!("\"{name}\":")).count();
            assert_eq!(found, expected.count(), "{name} is a field of /status already");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_knows_its_memory_and_its_start() {
    let text = Metrics::new(["carts"]).render(&Status::default());
    assert!(sample(&text, "process_resident_memory_bytes", &[]) > 100_000.0);
    assert!(sample(&text, "process_start_time_seconds", &[]) > 1.7e9);
    assert!(sample(&text, "process_open_fds", &[]) >= 1.0);
}

proptest! {
    #[test]
    fn any_label_value_is_read_as_it_was_written(value in any::<String>(), number in any::<f64>()) {
        prop_assume!(!value.contains('\r') && number.is_finite());
        let mut text = Exposition::new();
        text.family("x", Kind::Gauge, &value).sample(&[("label", &value)], number);
        let text = text.finish();
        prop_assert_eq!(sample(&text, "x", &[("label", &value)]), number);
    }

    /// Compares with a count over the plain list of durations.
    #[test]
    fn a_bucket_counts_what_is_not_above_its_bound(durations in prop::collection::vec(0..20_000_000u64, 0..50)) {
        let histogram = Histogram::default();
        durations.iter().for_each(|&us| histogram.record(Micros(us)));
        let mut snapshot = Snapshot::default();
        histogram.add_to(&mut snapshot);
        for (place, &bound) in BOUNDS_US.iter().enumerate() {
            let cumulative: u64 = snapshot.buckets[..=place].iter().sum();
            let expected = durations.iter().filter(|&&us| us <= bound).count() as u64;
            prop_assert_eq!(cumulative, expected);
        }
        prop_assert_eq!(snapshot.buckets.iter().sum::<u64>(), durations.len() as u64);
        prop_assert_eq!(snapshot.sum_us, durations.iter().sum::<u64>());
    }
}
