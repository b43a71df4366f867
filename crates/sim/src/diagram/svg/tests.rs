use super::*;
use crate::{Diagram, Message, MessageLog, Note};
use turnbuckle_core::Micros;
use turnbuckle_node::NodeId;

fn at(us: u64) -> Micros {
    crate::BEGINNING + Micros(us)
}

/// Three nodes that talk all the time, with long words, and pause in between.
fn busy() -> MessageLog {
    let mut log = MessageLog::default();
    for round in 0..40_u64 {
        let begin = round * 1_000 + if round > 20 { 500_000 } else { 0 };
        for node in 0..3_u16 {
            let words = format!("client {node}: put key{round} value{}", ".".repeat(40));
            log.notes.push(Note {
                node: NodeId(node),
                at: at(begin + u64::from(node)),
                words,
            });
            for to in (0..3).filter(|&to| to != node) {
                log.messages.push(Message {
                    from: NodeId(node),
                    to: NodeId(to),
                    sent: at(begin + 10),
                    arrived: Some(at(begin + 900)),
                    words: format!("entries {round}: {}", "a rather long word ".repeat(9)),
                });
            }
        }
    }
    log
}

fn names() -> Vec<String> {
    ["a", "b", "c"].map(str::to_owned).to_vec()
}

/// Of each text of a class: left edge, baseline, and how many letters it has.
fn texts(svg: &str, class: &str) -> Vec<(f64, f64, usize)> {
    let number = |line: &str, name: &str| -> f64 {
        let (_, rest) = line.split_once(&format!(" {name}=\"")).expect("it has one");
        rest.split('"')
            .next()
            .and_then(|number| number.parse().ok())
            .expect("a number")
    };
    let lines = svg
        .lines()
        .filter(|line| line.contains(&format!("class=\"{class}\"")));
    let text = |line: &str| {
        let says = line.trim_end_matches("</text>");
        let says = says.rsplit('>').next().unwrap_or_default();
        (number(line, "x"), number(line, "y"), says.chars().count())
    };
    lines.map(text).collect()
}

#[test]
fn no_picture_is_higher_than_a_few_screens_and_says_what_is_left_out() {
    let (log, names) = (busy(), names());
    let svg = Diagram::new(&log, &names).svg();
    let (_, height) = svg.split_once(" height=\"").expect("it has a height");
    let height: u64 = height
        .split('"')
        .next()
        .and_then(|it| it.parse().ok())
        .expect("a number");
    assert!(height <= MAX_HEIGHT + 60, "{height}");
    let rows = texts(&svg, "label").len() + texts(&svg, "taken").len();
    // Three notes, six messages and their arrivals in each round, of which 400 rows would be drawn.
    let left_out = 40 * 15 - rows;
    assert!(
        rows > 100 && svg.contains(&format!(">{left_out} more rows are left out: a shorter window")),
        "{rows}"
    );
}

#[test]
fn no_two_labels_are_at_one_place() {
    let (log, names) = (busy(), names());
    let svg = Diagram::new(&log, &names).svg();
    // A letter is at most this wide, on average.
    const LETTER: f64 = 6.6;
    let mut boxes: Vec<(f64, f64, f64)> = Vec::new();
    for (x, y, letters) in texts(&svg, "label") {
        boxes.push((x, x + LETTER * letters as f64, y));
    }
    for (x, y, letters) in texts(&svg, "taken") {
        boxes.push((x - LETTER * letters as f64, x, y));
    }
    let times = texts(&svg, "time")
        .into_iter()
        .filter(|(_, y, _)| *y > TOP as f64);
    boxes.extend(times.map(|(x, y, letters)| (x - LETTER * letters as f64, x, y)));
    for (place, one) in boxes.iter().enumerate() {
        for other in &boxes[..place] {
            let overlap = one.0 < other.1 && other.0 < one.1 && (one.2 - other.2).abs() < 11.0;
            assert!(!overlap, "{one:?} {other:?}");
        }
    }
}

#[test]
fn what_signs_mean_is_said_and_a_pause_is_marked() {
    let (log, names) = (busy(), names());
    let svg = Diagram::new(&log, &names).svg();
    assert_eq!(texts(&svg, "key").len(), 6, "{svg}");
    let later = Diagram::new(&log, &names).window(at(19_900), at(530_000)).svg();
    // One in the legend, one for half a second without anything.
    assert!(later.matches(">≈<").count() >= 2, "{later}");
}

#[test]
fn words_are_cut_and_their_tooltip_is_whole() {
    assert_eq!(shortened("put k1 w1..............", 20), "put k1 w1…");
    assert_eq!(shortened("1.5 of 2..3", 20), "1.5 of 2..3");
    assert_eq!(shortened("k1=w1.......…", 20), "k1=w1…");
    let long = "word ".repeat(30);
    assert_eq!(shortened(&long, 20).chars().count(), 20);
    let (log, names) = (busy(), names());
    let svg = Diagram::new(&log, &names).svg();
    assert!(svg.contains(&"a rather long word ".repeat(9)), "{svg}");
}
