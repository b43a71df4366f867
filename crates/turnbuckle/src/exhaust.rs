//! `turnbuckle sim --exhaust`: all orders of events of a small world, and one of them again.
use crate::failure::{Failure, environment, say, usage};
use clap::Args;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};
use turnbuckle_protocols::KnownProtocol;
use turnbuckle_sim::{Exhaust, Explored, Program, Replayed, Step};
use turnbuckle_simulated::Simulated;

/// What to explore, and how far.
#[derive(Debug, Args)]
#[command(next_help_heading = "Every order of events of a small world")]
pub struct Exhaustive {
    /// Go through every order of the events of a small world, up to a depth, and judge each execution.
    #[arg(long, conflicts_with_all = ["scenario", "level", "seed", "seeds", "all_faults", "trace", "diagram", "window"])]
    exhaust: bool,
    /// The number of steps that are chosen; default: 6. The steps after them come in one order, without faults.
    #[arg(long, value_name = "STEPS", requires = "exhaust")]
    depth: Option<usize>,
    /// Stop after this many executions; default: no limit.
    #[arg(long, value_name = "COUNT", requires = "exhaust")]
    executions: Option<u64>,
    /// The number of sites, 1 to 4, called a, b and so on; default: 2.
    #[arg(long, value_name = "COUNT", requires = "exhaust", value_parser = clap::value_parser!(u8).range(1..=4))]
    sites: Option<u8>,
    /// The number of nodes of each site, 1 or 2; default: 1. There are two partitions.
    #[arg(long, value_name = "COUNT", requires = "exhaust", value_parser = clap::value_parser!(u8).range(1..=2))]
    nodes: Option<u8>,
    /// A client: its site and its operations, such as 'a put x, get y, del x, mget x y, move b'. May be given more than once; default: two clients,
    /// 'a put x, put y, get x' and 'b get y, get x, put x'.
    #[arg(long, value_name = "PROGRAM", requires = "exhaust")]
    client: Vec<Program>,
    /// How many times 10 ms may pass; default: 2.
    #[arg(long, value_name = "COUNT", requires = "exhaust", value_parser = clap::value_parser!(u16).range(..=1_000))]
    passes: Option<u16>,
    /// The most crashes; default: 1.
    #[arg(long, value_name = "COUNT", requires = "exhaust", value_parser = clap::value_parser!(u16).range(..=1_000))]
    crashes: Option<u16>,
    /// The most cuts between sites; default: 1.
    #[arg(long, value_name = "COUNT", requires = "exhaust", value_parser = clap::value_parser!(u16).range(..=1_000))]
    cuts: Option<u16>,
    /// Run only one execution, given by the numbers of its choices, and print what happens; without numbers, the execution in which nothing is
    /// chosen.
    #[arg(long, value_name = "N,N,..", requires = "exhaust", value_delimiter = ',', num_args = 0..=1,
          conflicts_with_all = ["depth", "executions"])]
    replay: Option<Vec<usize>>,
}

/// What was found: printed as text, or as JSON.
#[derive(Debug, Serialize)]
struct Summary {
    protocol: String,
    /// The number of steps in the longest schedule that was run.
    depth: usize,
    /// The number of executions that were run to the end and judged.
    executions: u64,
    states: u64,
    /// The number of schedules that were not continued, because their state had been seen before.
    pruned: u64,
    /// The number of different sets of answers, receipts included.
    outcomes: usize,
    /// Whether every schedule up to the depth was tried.
    complete: bool,
    /// The number of schedules that would come next, and were not tried because of a limit.
    left: u64,
    violations: BTreeMap<String, Violation>,
}

#[derive(Debug, Serialize)]
struct Violation {
    executions: u64,
    schedule: Vec<usize>,
    words: String,
    reproduce: String,
}

pub(crate) fn run(
    options: &Exhaustive,
    name: &str,
    protocol: KnownProtocol,
    bugs: &[String],
    json: bool,
) -> Result<(), Failure> {
    let small = options.small();
    small.check().map_err(|bad| usage(&bad))?;
    let reproduce = |schedule: &[usize]| options.line(name, bugs, schedule);
    if let Some(schedule) = &options.replay {
        if json {
            return Err(usage(
                &"--replay says what happens in words; expected no --json beside it",
            ));
        }
        let replayed = protocol
            .replay(&small, bugs, schedule)
            .map_err(|bad| usage(&bad))?;
        say(&told(&replayed))?;
        return match replayed.broken.is_empty() {
            true => Ok(()),
            false => Err(Failure::Broken(
                "this execution breaks a promise: see above".into(),
            )),
        };
    }
    let explored = protocol.explore(&small, bugs);
    let summary = Summary::of(name, &explored, reproduce);
    match json {
        true => say(&serde_json::to_string(&summary).map_err(|error| environment(&error))?)?,
        false => say(&summary.to_string())?,
    }
    let shortest = summary
        .violations
        .values()
        .min_by_key(|found| found.schedule.len());
    match shortest {
        None => Ok(()),
        Some(found) => {
            let replayed = protocol
                .replay(&small, bugs, &found.schedule)
                .map_err(|bad| environment(&bad))?;
            Err(Failure::Broken(format!(
                "{}\n{}REPRODUCE WITH: {}",
                found.words,
                steps(&replayed),
                found.reproduce
            )))
        }
    }
}

impl Exhaustive {
    pub(crate) fn is_asked(&self) -> bool {
        self.exhaust
    }

    fn small(&self) -> Exhaust {
        let mut small = Exhaust::new(self.sites.map_or(2, usize::from));
        small.world.nodes_per_site = self.nodes.map_or(1, usize::from);
        small.depth = self.depth.unwrap_or(small.depth);
        small.executions = self.executions.unwrap_or(small.executions);
        small.passes = self.passes.map_or(small.passes, usize::from);
        small.crashes = self.crashes.map_or(small.crashes, usize::from);
        small.cuts = self.cuts.map_or(small.cuts, usize::from);
        if !self.client.is_empty() {
            small.clients = self.client.clone();
        }
        small
    }

    /// The command that runs one schedule of this world.
    fn line(&self, name: &str, bugs: &[String], schedule: &[usize]) -> String {
        let mut line = format!("turnbuckle sim --exhaust --protocol {name}");
        let mut add = |option: &str, value: Option<String>| {
            if let Some(value) = value {
                write!(line, " --{option} {value}").expect("a String grows");
            }
        };
        for bug in bugs {
            add("plant", Some(bug.clone()));
        }
        add("sites", self.sites.map(|count| count.to_string()));
        add("nodes", self.nodes.map(|count| count.to_string()));
        for program in &self.client {
            add("client", Some(format!("'{program}'")));
        }
        add("passes", self.passes.map(|count| count.to_string()));
        add("crashes", self.crashes.map(|count| count.to_string()));
        add("cuts", self.cuts.map(|count| count.to_string()));
        let numbers: Vec<String> = schedule.iter().map(usize::to_string).collect();
        add("replay", Some(numbers.join(",")));
        line.trim_end().to_string()
    }
}

impl Summary {
    fn of(name: &str, explored: &Explored, reproduce: impl Fn(&[usize]) -> String) -> Summary {
        let violations = explored.found.iter().map(|(rule, found)| {
            let violation = Violation {
                executions: found.executions,
                schedule: found.schedule.clone(),
                words: found.words.clone(),
                reproduce: reproduce(&found.schedule),
            };
            (rule.clone(), violation)
        });
        Summary {
            protocol: name.to_string(),
            depth: explored.depth,
            executions: explored.executions,
            states: explored.states,
            pruned: explored.pruned,
            outcomes: explored.outcomes.len(),
            complete: explored.is_complete(),
            left: explored.left,
            violations: violations.collect(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "every order of a small world of {}, up to {} steps",
            self.protocol, self.depth
        )?;
        writeln!(
            f,
            "  executions  {}, each run to the end and judged",
            self.executions
        )?;
        writeln!(
            f,
            "  states      {}; {} more schedules reached one of them and were not continued",
            self.states, self.pruned
        )?;
        writeln!(
            f,
            "  outcomes    {}, by what clients were told and what receipts proved",
            self.outcomes
        )?;
        match self.complete {
            true => writeln!(f, "  complete    yes: nothing else can be chosen in this world")?,
            false => writeln!(
                f,
                "  complete    no: {} schedules that are one step longer are left",
                self.left
            )?,
        }
        if self.violations.is_empty() {
            return write!(f, "  violations  none");
        }
        let counts = self.violations.iter().map(|(rule, found)| {
            let steps = found.schedule.len();
            format!(
                "{rule} in {} executions, first after {steps} steps",
                found.executions
            )
        });
        write!(
            f,
            "  violations  {}",
            counts.collect::<Vec<_>>().join("\n              ")
        )
    }
}

fn steps(replayed: &Replayed) -> String {
    let mut lines = String::new();
    for Step { choice, of, words } in &replayed.steps {
        writeln!(lines, "  {choice:>2} of 0..{:<4}{words}", of - 1).expect("a String grows");
    }
    lines
}

/// One execution as text: its steps, what could come next, its clients, and what is wrong.
fn told(replayed: &Replayed) -> String {
    let mut text = String::from("chosen:\n");
    text.push_str(&steps(replayed));
    text.push_str("next could come:\n");
    for (number, words) in replayed.next.iter().enumerate() {
        writeln!(text, "  {number:>2}           {words}").expect("a String grows");
    }
    text.push_str("clients, and their state in the end:\n");
    for words in &replayed.told {
        writeln!(text, "  {words}").expect("a String grows");
    }
    match replayed.broken.is_empty() {
        true => text.push_str("nothing wrong"),
        false => {
            let wrong = replayed
                .broken
                .iter()
                .map(|broken| format!("  {}: {}", broken.rule, broken.words));
            text.push_str("wrong:\n");
            text.push_str(&wrong.collect::<Vec<_>>().join("\n"));
        }
    }
    text
}
