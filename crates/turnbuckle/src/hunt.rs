//! `turnbuckle sim --hunt`: for each bug that can be planted, the first drawn world that shows it.
//!
//! To plant a bug is to take one of our fixes out again. If drawn worlds find the bug, with no script and no other bug beside it, they would have
//! found it before it did any harm. They will also find it if it comes back in another form.
use crate::{
    document,
    failure::{Failure, environment, say, tell, usage},
    protocols::protocol_named,
    sim::{First, first_broken},
};
use clap::Args;
use serde::Serialize;
use std::{collections::BTreeSet, fmt::Write, ops::RangeInclusive, path::PathBuf};
use turnbuckle_core::Bug;
use turnbuckle_protocols::KnownProtocol;

/// What to hunt.
#[derive(Debug, Args)]
#[command(next_help_heading = "Bugs that are planted")]
pub(crate) struct Hunt {
    /// Plant the known bugs, one after the other, and look for the first drawn world that shows each. With --plant: these bugs only; with --protocol:
    /// in this protocol only; without --seeds: at most 2000 worlds for each bug. The exit code is 1 if a bug was not found.
    #[arg(long, conflicts_with_all = ["scenario", "level", "seed", "all_faults", "trace", "diagram", "window", "until_broken", "exhaust"])]
    hunt: bool,
    /// Write the results into this Markdown file, into the first code block below the heading '### planted: ..'.
    #[arg(long, value_name = "FILE", requires = "hunt")]
    into: Option<PathBuf>,
    /// The text above the result in that file: the commit and its date.
    #[arg(long, value_name = "TEXT", requires = "hunt")]
    of: Option<String>,
}

/// A bug of the nodes, and the protocols in which it is looked for.
struct Planted {
    name: &'static str,
    protocols: &'static [&'static str],
    /// What the bug causes, and its fix prevents.
    prevents: &'static str,
}

/// All bugs that are hunted, each with a protocol: the bugs of the nodes, and then each protocol's own.
fn all() -> impl Iterator<Item = (Bug, &'static str)> {
    let of_nodes = PLANTED.iter().flat_map(|planted| {
        let (name, what) = (planted.name, planted.prevents);
        planted
            .protocols
            .iter()
            .map(move |&protocol| (Bug { name, what }, protocol))
    });
    let own = |protocol: &KnownProtocol| {
        let protocol = *protocol;
        protocol.bugs().iter().map(move |&bug| (bug, protocol.name()))
    };
    of_nodes.chain(KnownProtocol::ALL.iter().flat_map(own))
}

const fn planted(name: &'static str, protocols: &'static [&'static str], prevents: &'static str) -> Planted {
    Planted {
        name,
        protocols,
        prevents,
    }
}

/// Each bug, with the protocols in which it has different effects. Bugs that drawn worlds cannot show are listed in `docs/simulation.md`.
const PLANTED: &[Planted] = &[
    planted(
        "replays_to_the_empty",
        &["eventual"],
        "a node that lost its data directory is sent a log that has writes, and not the forgotten deletes of their keys",
    ),
    planted(
        "stamps_unheard",
        &["eventual"],
        "a node that lost its data directory stamps writes below timestamps that it had sent to peers",
    ),
    planted(
        "copies_cleared_late",
        &["eventual"],
        "cleaning up after a full copy deletes rows of the next full copy",
    ),
    planted(
        "rows_of_begun_checkpoint",
        &["eventual"],
        "a node that lost versions in a power loss is sent the rows of a checkpoint that began before it asked",
    ),
    planted(
        "time_before_disk",
        &["eventual"],
        "a receipt is computed with the time from before the disk was read",
    ),
    planted(
        "serves_what_damage_left",
        &["eventual", "causalspartanx"],
        "the rows that are left of a damaged table are served as if none were missing",
    ),
    planted(
        "repaired_by_any_copy",
        &["eventual"],
        "damaged rows count as restored after a full copy from a peer that has received less than this node had",
    ),
    planted(
        "purges_what_is_left_out",
        &["eventual"],
        "a keyspace that the configuration leaves out for a while loses the writes that were only in the log",
    ),
    planted(
        "follows_clock_jumps",
        &["eventual", "causalspartanx", "cops", "gentlerain"],
        "timestamps follow a clock that jumps ahead by an hour for a moment: other sites do not accept these writes for an hour",
    ),
    planted(
        "refuses_reads_when_full",
        &["eventual", "causalspartanx"],
        "reads are refused while a disk has too little room for writes",
    ),
    planted(
        "counts_silent_sites",
        &["causalspartanx", "cops", "gentlerain"],
        "a client that waits for sites counts those that have refused its question",
    ),
    planted(
        "builds_on_any_share",
        &["eventual"],
        "a difference between two shares of a hash or set is put onto whatever share is there",
    ),
    planted(
        "messages_overtake",
        &["causalspartanx", "cops", "gentlerain"],
        "a message to a channel is heard when it arrives, before what its publisher had written",
    ),
    planted(
        "forgets_what_did_not_fit",
        &["eventual"],
        "records that did not fit on a full disk count as written to the log, and their writes are acknowledged",
    ),
    planted(
        "collects_few_deletes",
        &["eventual", "causalspartanx"],
        "checkpoints forget fewer deletes than are made, so that tombstones grow without bound",
    ),
];

/// The worlds that are tried for each bug, if no seeds are given.
const SEEDS: RangeInclusive<u64> = 1..=2000;

/// The result of the hunt for one bug in one protocol.
#[derive(Debug, Serialize)]
struct Hunted {
    bug: String,
    protocol: String,
    prevents: String,
    /// How many worlds were tried until one showed the bug, or in all if none did.
    seeds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<Found>,
}

#[derive(Debug, Serialize)]
struct Found {
    seed: u64,
    words: String,
    reproduce: String,
}

impl Hunt {
    /// Whether a hunt was asked for.
    pub(crate) fn is_asked(&self) -> bool {
        self.hunt
    }

    /// Hunts the bugs of these names, or all bugs if there are no names.
    pub(crate) fn run(
        &self,
        names: &[String],
        protocol: Option<&str>,
        seeds: Option<RangeInclusive<u64>>,
        json: bool,
    ) -> Result<(), Failure> {
        // A kind of keyspace stands for its first protocol.
        let protocol = protocol.map(|name| protocol_named("--protocol", name));
        let protocol = protocol.transpose()?.map(KnownProtocol::name);
        let known: BTreeSet<&str> = all().map(|(bug, _)| bug.name).collect();
        if let Some(unknown) = names.iter().find(|name| !known.contains(name.as_str())) {
            let known: Vec<&str> = known.into_iter().collect();
            return Err(usage(&format!(
                "--plant: '{unknown}' is not hunted; expected one of {}",
                known.join(", ")
            )));
        }
        let seeds = seeds.unwrap_or(SEEDS);
        let is_asked = |bug: Bug| names.is_empty() || names.iter().any(|name| name == bug.name);
        let asked = all().filter(|&(bug, name)| is_asked(bug) && protocol.is_none_or(|asked| asked == name));
        let mut all = Vec::new();
        for (bug, name) in asked {
            let hunted = hunt(bug, name, seeds.clone())?;
            if !json {
                say(&hunted.text())?;
            }
            all.push(hunted);
        }
        if all.is_empty() {
            let protocol = protocol.unwrap_or_default();
            return Err(usage(&format!(
                "none of these bugs is hunted in {protocol}; leave out --protocol"
            )));
        }
        if json {
            say(&serde_json::to_string(&all).map_err(|error| environment(&error))?)?;
        }
        if let Some(path) = &self.into {
            let of = self.of.iter().map(|of| format!("{of}\n\n"));
            let text: String = of.chain(all.iter().map(|hunted| hunted.text() + "\n")).collect();
            document::update(path, "planted", &text)?;
        }
        let missing: Vec<String> = all
            .iter()
            .filter(|hunted| hunted.found.is_none())
            .map(Hunted::name)
            .collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Failure::Broken(format!("not found: {}", missing.join(", ")))),
        }
    }
}

/// The first world that shows a bug, which may be by a panic. If something is wrong in a world also without the bug, that world does not count.
fn hunt(bug: Bug, name: &str, seeds: RangeInclusive<u64>) -> Result<Hunted, Failure> {
    let protocol = protocol_named("--protocol", name)?;
    let bugs = [bug.name.to_string()];
    let (begin, end) = seeds.into_inner();
    let count = end - begin + 1;
    let mut next = begin;
    let found = loop {
        let found = match next <= end {
            true => first_broken(protocol, &bugs, next..=end)?,
            false => None,
        };
        let Some(First { seed, .. }) = found else {
            break None;
        };
        match first_broken(protocol, &[], seed..=seed)? {
            None => break found,
            Some(other) => tell(&format!(
                "seed {seed} of {name} is wrong without {}, too: {}",
                bug.name, other.words
            )),
        }
        next = seed + 1;
    };
    Ok(Hunted {
        bug: bug.name.into(),
        protocol: name.into(),
        prevents: bug.what.into(),
        seeds: found.as_ref().map_or(count, |first| first.seed - begin + 1),
        found: found.map(|First { seed, words }| Found {
            seed,
            words,
            reproduce: format!(
                "turnbuckle sim --protocol {name} --plant {} --seed {seed}",
                bug.name
            ),
        }),
    })
}

impl Hunted {
    fn name(&self) -> String {
        format!("{} in {}", self.bug, self.protocol)
    }

    fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.name(), self.prevents);
        match &self.found {
            Some(found) => write!(
                text,
                "  seed {}, after {} seeds: {}\n  {}",
                found.seed, self.seeds, found.words, found.reproduce
            ),
            None => write!(text, "  not found in {} seeds", self.seeds),
        }
        .expect("a String grows");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_simulated::Simulated;

    #[test]
    fn every_bug_can_be_planted_where_it_is_hunted() {
        for (bug, name) in all() {
            let protocol = protocol_named("a bug", name).expect("there is such a protocol");
            assert!(protocol.has_bug(bug.name), "{} in {name}", bug.name);
        }
    }
}
