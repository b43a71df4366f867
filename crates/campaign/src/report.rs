//! What a campaign found, as text and as JSON.
use crate::{fault::Kind, notes::Event, trace::Shows};
use serde::Serialize;
use std::{collections::BTreeMap, fmt::Write, path::PathBuf};

/// The most broken promises of each round that are printed. All are in the JSON.
const MAX_PRINTED: usize = 20;

/// The report: see the module.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// The seed of the faults.
    pub seed: u64,
    /// The keyspaces, by name.
    pub keyspaces: Vec<String>,
    /// How long the campaign took, in seconds.
    pub seconds: f64,
    /// The numbers of faults that were carried out and left out, by kind.
    pub faults: BTreeMap<Kind, Faults>,
    /// The rounds, in order.
    pub rounds: Vec<RoundReport>,
    /// The number of full copies that were put in place, as far as they were seen.
    pub full_copies: u64,
    /// How many times a node's engine met damage and took no more writes. Each time the node ended, and was started again.
    pub damage_met: u64,
    /// The most memory that each node had resident, in bytes.
    pub max_resident_bytes: BTreeMap<String, u64>,
    /// The memory that a node may have resident, in bytes.
    pub memory_budget_bytes: u64,
    /// What is broken, apart from the rounds.
    pub broken: Vec<String>,
    /// The directory with everything, if it is kept because something is broken.
    pub directory: Option<PathBuf>,
}

/// How often a kind of fault happened.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Faults {
    /// The number that were carried out.
    pub done: u64,
    /// The number that could not be carried out.
    pub left_out: u64,
}

/// The result of one round.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RoundReport {
    /// The round's number, from 1.
    pub round: u32,
    /// When its verdict was known, in seconds since the campaign began.
    pub at_seconds: f64,
    /// How long the cluster took to come to rest, in seconds.
    pub rest_seconds: f64,
    /// The number of operations that succeeded.
    pub operations: u64,
    /// The number of writes and deletes that were acknowledged.
    pub acknowledged: u64,
    /// The number of errors that clients met, by their first word.
    pub errors: BTreeMap<String, u64>,
    /// The number of times that a session moved to another site.
    pub moves: u64,
    /// The number of pairs that were read: a value that tells of another key, and then that key.
    pub pairs: u64,
    /// The number of broken pairs that a lost directory excuses.
    pub pairs_excused: u64,
    /// The number of keys that were judged at the end, of this round and those before.
    pub keys: u64,
    /// How many times a keyspace was read again because a node met damage meanwhile.
    pub reread: u64,
    /// Acknowledged writes that are excused, by key: they are gone with the directory of a node that had not handed them on.
    pub excused: Vec<String>,
    /// The result of each keyspace's trace.
    pub traces: BTreeMap<String, Shows>,
    /// Faults, in the order of their ends.
    pub events: Vec<Event>,
    /// What is broken, as text.
    pub broken: Vec<String>,
}

impl Report {
    /// Whether a promise was broken.
    pub fn is_broken(&self) -> bool {
        !self.broken.is_empty() || self.rounds.iter().any(|round| !round.broken.is_empty())
    }

    /// Everything that is broken, in order.
    pub fn all_broken(&self) -> impl Iterator<Item = &String> {
        let of_rounds = self.rounds.iter().flat_map(|round| &round.broken);
        of_rounds.chain(&self.broken)
    }

    /// Adds the faults of a round.
    pub fn count(&mut self, events: &[Event]) {
        for event in events {
            let faults = self.faults.entry(event.kind).or_default();
            match event.left_out {
                None => faults.done += 1,
                Some(_) => faults.left_out += 1,
            }
        }
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "campaign of seed {}, {} rounds in {:.0} s: {}\n",
            self.seed,
            self.rounds.len(),
            self.seconds,
            self.keyspaces.join(", ")
        );
        let mut line = |what: &str, says: String| {
            writeln!(text, "  {what:<14}{says}").expect("writing to a string does not fail");
        };
        let sum = |of: fn(&RoundReport) -> u64| self.rounds.iter().map(of).sum::<u64>();
        line(
            "operations",
            format!(
                "{} succeeded, {} of them writes and deletes; {} sessions moved",
                sum(|round| round.operations),
                sum(|round| round.acknowledged),
                sum(|round| round.moves)
            ),
        );
        line("errors", counts(&self.errors()));
        line("faults", self.faults_text());
        line("full copies", format!("{} seen", self.full_copies));
        line(
            "damage",
            format!(
                "{} nodes ended because of it, and were started again; {} times a keyspace was read again",
                self.damage_met,
                sum(|round| round.reread)
            ),
        );
        let worst = self
            .rounds
            .iter()
            .map(|round| round.rest_seconds)
            .fold(0.0, f64::max);
        line("rest", format!("after {worst:.1} s at most"));
        line(
            "keys",
            format!(
                "{} judged at three sites; {} acknowledged writes excused, because they were lost with a directory",
                sum(|round| round.keys),
                sum(|round| round.excused.len() as u64)
            ),
        );
        let shows = || self.rounds.iter().flat_map(|round| round.traces.values());
        line(
            "receipts",
            format!(
                "{} claims of freshness judged; {} excused, because a clock was wrong",
                shows().map(|shows| shows.claims).sum::<u64>(),
                shows().map(|shows| shows.claims_excused).sum::<u64>()
            ),
        );
        line(
            "traces",
            format!(
                "{} operations judged; {} keys left out, because a directory was lost; {} keys not auditable",
                shows().map(|shows| shows.operations).sum::<u64>(),
                shows().map(|shows| shows.keys_excused).sum::<u64>(),
                shows().map(|shows| shows.keys_not_auditable).sum::<u64>()
            ),
        );
        line(
            "pairs",
            format!(
                "{} read; {} excused, because a directory was lost",
                sum(|round| round.pairs),
                sum(|round| round.pairs_excused)
            ),
        );
        let max = self.max_resident_bytes.iter().max_by_key(|(_, bytes)| **bytes);
        if let Some((node, bytes)) = max {
            let (max, budget) = (bytes >> 20, self.memory_budget_bytes >> 20);
            line(
                "memory",
                format!("at most {max} MiB resident ({node}), of {budget} MiB"),
            );
        }
        text + &self.verdict()
    }

    fn verdict(&self) -> String {
        if !self.is_broken() {
            return "  broken        nothing".to_owned();
        }
        let mut text = String::from("  broken:\n");
        let all: Vec<&String> = self.all_broken().collect();
        for what in all.iter().take(MAX_PRINTED) {
            text += &format!("  - {what}\n");
        }
        if all.len() > MAX_PRINTED {
            text += &format!("  - and {} more, in report.json\n", all.len() - MAX_PRINTED);
        }
        if let Some(directory) = &self.directory {
            let directory = directory.display();
            text += &format!(
                "  LOOK AT: {directory} (report.json, logs/, cluster.toml)\n  \
                 SEE WHY WITH: turnbuckle check --began-empty --explain {directory}/traces/*.jsonl\n  \
                 DRAW THE SAME FAULTS WITH: make campaign SEED={}",
                self.seed
            );
        }
        text
    }

    fn errors(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for (word, count) in self.rounds.iter().flat_map(|round| &round.errors) {
            *all.entry(word.clone()).or_default() += count;
        }
        all
    }

    fn faults_text(&self) -> String {
        let each = self.faults.iter().map(|(kind, faults)| match faults.left_out {
            0 => format!("{kind} {}", faults.done),
            left_out => format!("{kind} {} ({left_out} left out)", faults.done),
        });
        let text = each.collect::<Vec<_>>().join(", ");
        if text.is_empty() { "none".to_owned() } else { text }
    }
}

fn counts(counts: &BTreeMap<String, u64>) -> String {
    let each = counts.iter().map(|(word, count)| format!("{word} {count}"));
    let text = each.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "none".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_is_broken_and_where_to_look() {
        let mut report = Report {
            seed: 7,
            ..Report::default()
        };
        assert!(report.text().ends_with("broken        nothing"));
        report.rounds.push(RoundReport {
            broken: (0..30).map(|number| format!("promise {number}")).collect(),
            ..RoundReport::default()
        });
        report.directory = Some("/tmp/there".into());
        let text = report.text();
        assert!(
            text.contains("- promise 0\n") && text.contains("and 10 more"),
            "{text}"
        );
        assert!(
            text.contains("--explain /tmp/there/traces") && text.contains("SEED=7"),
            "{text}"
        );
        assert!(serde_json::to_string(&report).is_ok());
    }
}
