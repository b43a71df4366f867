use super::Diagram;
use crate::{BEGINNING, Message, MessageLog, Note};
use turnbuckle_core::Micros;
use turnbuckle_node::NodeId;

fn at(ms: u64) -> Micros {
    BEGINNING + Micros::from_millis(ms)
}

fn message(from: u16, to: u16, sent: u64, arrived: Option<u64>, words: &str) -> Message {
    Message {
        from: NodeId(from),
        to: NodeId(to),
        sent: at(sent),
        arrived: arrived.map(at),
        words: words.to_string(),
    }
}

fn note(node: u16, ms: u64, words: &str) -> Note {
    Note {
        node: NodeId(node),
        at: at(ms),
        words: words.to_string(),
    }
}

fn log(messages: Vec<Message>, notes: Vec<Note>) -> MessageLog {
    MessageLog {
        messages,
        notes,
        left_out: 0,
    }
}

fn names() -> Vec<String> {
    vec!["a".to_string(), "b".to_string()]
}

/// The lines without the spaces between the columns.
fn squeeze(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn a_message_has_a_row_where_it_is_sent_and_one_where_it_is_taken_in() {
    let log = log(
        vec![message(0, 1, 1, Some(11), "entries 1: x=1")],
        vec![note(0, 0, "client 0: put x 1")],
    );
    let text = Diagram::new(&log, &names()).text();
    let expected = [
        "ms a b",
        "0.000 │ client 0: put x 1 │",
        "1.000 ●─(1)─▶ b: entries 1: x=1 │",
        "11.000 │ ●◀─(1)─ a",
    ];
    assert_eq!(squeeze(&text), expected);
}

#[test]
fn a_message_that_a_later_one_overtook_is_lost_and_the_last_one_may_be_under_way() {
    let log = log(
        vec![
            message(0, 1, 1, None, "first"),
            message(0, 1, 2, Some(12), "second"),
            message(0, 1, 3, None, "third"),
        ],
        Vec::new(),
    );
    let text = Diagram::new(&log, &names()).text();
    assert!(text.contains("●─(1)─✕ b: (lost) first"), "{text}");
    assert!(text.contains("●─(2)─▶ b: second"), "{text}");
    assert!(text.contains("●─(3)─… b: (not there yet) third"), "{text}");
}

#[test]
fn a_window_shows_what_leaves_it_and_what_comes_into_it() {
    let log = log(
        vec![
            message(0, 1, 1, Some(11), "before"),
            message(1, 0, 15, Some(25), "behind"),
        ],
        Vec::new(),
    );
    let text = Diagram::new(&log, &names()).window(at(10), at(20)).text();
    let expected = [
        "ms a b",
        "11.000 │ ●◀─(1)─ a before",
        "15.000 │ ●─(2)─▶ a: (at 25.000) behind",
    ];
    assert_eq!(squeeze(&text), expected);
}

#[test]
fn at_one_time_messages_are_taken_in_before_others_are_sent() {
    let log = log(
        vec![
            message(1, 0, 10, Some(20), "answer"),
            message(0, 1, 0, Some(10), "question"),
        ],
        vec![note(1, 10, "thinks")],
    );
    let text = Diagram::new(&log, &names()).text();
    let order: Vec<Option<usize>> = ["question", "●◀─(1)─ a", "thinks", "answer"]
        .map(|words| text.find(words))
        .to_vec();
    assert!(order.is_sorted() && order[0].is_some(), "{text}");
}

#[test]
fn rows_that_are_too_many_are_counted() {
    let notes = (0..10).map(|ms| note(0, ms, "beat")).collect();
    let mut log = log(Vec::new(), notes);
    log.left_out = 7;
    let names = names();
    let diagram = Diagram::new(&log, &names);
    let text = diagram.rows(4).text();
    assert_eq!(text.matches("beat").count(), 4);
    assert!(text.contains("6 more rows are left out"), "{text}");
    assert!(
        text.contains("7 more messages and notes were not recorded"),
        "{text}"
    );
    assert!(diagram.rows(4).svg().contains("6 more rows are left out"));
    assert!(!diagram.text().contains("left out"));
}

#[test]
fn no_line_is_longer_than_a_terminal_is_wide() {
    let long = "a word ".repeat(40) + &"x".repeat(200);
    let log = log(vec![message(0, 1, 1, Some(11), &long)], vec![note(1, 0, &long)]);
    let text = Diagram::new(&log, &names()).text();
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    assert_eq!(text.matches('x').count(), 400);
}

#[test]
fn a_picture_escapes_what_xml_gives_another_meaning() {
    let log = log(
        vec![message(0, 1, 1, None, "x=<\"&'>")],
        vec![note(0, 0, "bell \u{7} and </svg>")],
    );
    let svg = Diagram::new(&log, &["<a>".to_string(), "b".to_string()]).svg();
    assert!(svg.contains("x=&lt;&quot;&amp;&apos;&gt;"), "{svg}");
    assert!(svg.contains("&lt;a&gt;"), "{svg}");
    assert!(!svg.contains('\u{7}'), "{svg}");
    assert_eq!(svg.matches("</svg>").count(), 1);
}

#[test]
fn a_lost_message_ends_in_a_cross_and_others_in_a_head() {
    let log = log(
        vec![
            message(0, 1, 1, None, "lost"),
            message(0, 1, 2, Some(12), "found"),
        ],
        Vec::new(),
    );
    let svg = Diagram::new(&log, &names()).svg();
    // One of each is in the picture; the legend has one cross, and heads for two kinds of messages.
    assert_eq!(svg.matches("class=\"lost\"").count(), 2);
    assert_eq!(svg.matches("url(#head").count(), 3);
}

#[test]
fn nodes_without_names_and_the_ends_of_time_do_no_harm() {
    let mut first = message(0, 1, 0, None, "early");
    (first.sent, first.arrived) = (Micros(0), Some(Micros::MAX));
    let log = log(
        vec![first, message(0, 900, 1, Some(2), "nowhere")],
        vec![note(900, 1, "nobody")],
    );
    for names in [names(), Vec::new()] {
        let diagram = Diagram::new(&log, &names);
        let drawn = diagram.text() + &diagram.svg();
        assert!(!drawn.contains("nowhere") && !drawn.contains("nobody"), "{drawn}");
        let backwards = diagram.window(Micros::MAX, Micros(0));
        assert_eq!(backwards.text().lines().count(), 1);
    }
    assert!(!Diagram::new(&MessageLog::default(), &names()).svg().is_empty());
}
