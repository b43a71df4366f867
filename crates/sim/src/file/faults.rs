//! The faults of a scenario's file.
use super::{Misplaced, Word};
use crate::{Fault, FaultKind, WorldOptions};
use serde::Deserialize;
use std::ops::Range;
use toml::Spanned;
use turnbuckle_core::Micros;
use turnbuckle_node::NodeId;

/// One `[[fault]]` table. Its nodes are names.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultTable {
    at: Option<Word<Micros>>,
    #[serde(rename = "for")]
    span: Option<Word<Micros>>,
    every: Option<Word<Micros>>,
    kind: Spanned<FaultKind<Word<String>>>,
}

/// The most times that a fault of a file comes again.
const MAX_TIMES: u64 = 10_000;

impl FaultTable {
    /// The fault, once or again and again.
    pub(super) fn check(self, world: &WorldOptions, duration: Micros) -> Result<Vec<Fault>, Misplaced> {
        let place = self.kind.span();
        let kind = self.kind.into_inner().in_world(world, &place)?;
        let span = match (self.span, kind.is_over_at_once()) {
            (Some(span), _) => span.get(),
            (None, true) => Micros(0),
            (None, false) => {
                return Err(Misplaced::missing(
                    place,
                    "for",
                    "how long it lasts, such as \"2s\"",
                ));
            }
        };
        let at = match self.at {
            Some(at) if *at >= duration => {
                return Err(at.wrong(format!("less than the duration, {duration}")));
            }
            at => at.map_or(Micros(0), Word::get),
        };
        let step = match self.every {
            None => duration,
            Some(every) if *every <= span => {
                return Err(every.wrong(format!("more than the {span} that the fault lasts")));
            }
            Some(every) if every.0 < duration.0 / MAX_TIMES => {
                let expected = format!("a time with which the fault comes at most {MAX_TIMES} times");
                return Err(every.wrong(expected));
            }
            Some(every) => every.get(),
        };
        let times = std::iter::successors(Some(at), |&at| Some(at + step)).take_while(|&at| at < duration);
        let once = |at| Fault {
            at,
            span,
            kind: kind.clone(),
        };
        Ok(times.map(once).collect())
    }
}

impl FaultKind<Word<String>> {
    /// The same fault with the numbers of a world's nodes and partitions. `place` is the place of its table in the file.
    fn in_world(self, world: &WorldOptions, place: &Range<usize>) -> Result<FaultKind, Misplaced> {
        let named = |node: Word<String>| node_named(world, &node);
        let two =
            |from: Word<String>, to: Word<String>| match (node_named(world, &from)?, node_named(world, &to)?)
            {
                (from, same) if from == same => Err(to.wrong("another node than the first")),
                two => Ok(two),
            };
        let beyond = |field, found: usize, expected| {
            Misplaced::of_field(place.clone(), &[field], found.to_string(), expected)
        };
        Ok(match self {
            FaultKind::Crash { node, loss } => FaultKind::Crash {
                node: named(node)?,
                loss,
            },
            FaultKind::CrashWithinWrite { node, changes } => FaultKind::CrashWithinWrite {
                node: named(node)?,
                changes,
            },
            FaultKind::CrashAll { loss } => FaultKind::CrashAll { loss },
            FaultKind::Cut { a, b } => {
                let (a, b) = two(a, b)?;
                FaultKind::Cut { a, b }
            }
            FaultKind::OneWayCut { from, to } => {
                let (from, to) = two(from, to)?;
                FaultKind::OneWayCut { from, to }
            }
            FaultKind::SlowLink { from, to, percent } => {
                let (from, to) = two(from, to)?;
                FaultKind::SlowLink { from, to, percent }
            }
            FaultKind::Loss { from, to, ppm } => {
                let (from, to) = two(from, to)?;
                FaultKind::Loss { from, to, ppm }
            }
            FaultKind::Isolate { node } => FaultKind::Isolate { node: named(node)? },
            FaultKind::Pause { node } => FaultKind::Pause { node: named(node)? },
            FaultKind::ClockStep { node, by_us } => FaultKind::ClockStep {
                node: named(node)?,
                by_us,
            },
            FaultKind::ClockJump { node, by_us } => FaultKind::ClockJump {
                node: named(node)?,
                by_us,
            },
            FaultKind::ClockDrift { node, ppm } => FaultKind::ClockDrift {
                node: named(node)?,
                ppm,
            },
            FaultKind::SlowDisk { node, percent } => FaultKind::SlowDisk {
                node: named(node)?,
                percent,
            },
            FaultKind::SyncFails { node } => FaultKind::SyncFails { node: named(node)? },
            FaultKind::DiskFull { node, free_bytes } => FaultKind::DiskFull {
                node: named(node)?,
                free_bytes,
            },
            FaultKind::SlowPartition { partition, .. } if partition >= world.partitions => {
                let expected = format!("a partition below {}", world.partitions);
                return Err(beyond("partition", partition.into(), expected));
            }
            FaultKind::SlowPartition { partition, percent } => {
                FaultKind::SlowPartition { partition, percent }
            }
            FaultKind::Late { node, by } => FaultKind::Late {
                node: named(node)?,
                by,
            },
            FaultKind::LeftOut { keyspace, .. } if !(1..=world.keyspaces).contains(&keyspace) => {
                let expected = format!("a keyspace from 1 to {}", world.keyspaces);
                return Err(beyond("keyspace", keyspace, expected));
            }
            FaultKind::LeftOut { node, keyspace } => FaultKind::LeftOut {
                node: named(node)?,
                keyspace: keyspace - 1,
            },
            FaultKind::Damage { node, rows } => FaultKind::Damage {
                node: named(node)?,
                rows,
            },
            FaultKind::Checkpoint { node } => FaultKind::Checkpoint { node: named(node)? },
            FaultKind::Backup { node } => FaultKind::Backup { node: named(node)? },
            FaultKind::Lead { node } => FaultKind::Lead { node: named(node)? },
            FaultKind::HandOver { node } => FaultKind::HandOver { node: named(node)? },
            FaultKind::Member { node, wanted } => FaultKind::Member {
                node: named(node)?,
                wanted,
            },
        })
    }
}

pub(super) fn node_named(world: &WorldOptions, given: &Word<String>) -> Result<NodeId, Misplaced> {
    let mut names = Vec::new();
    for site in &world.sites {
        match world.nodes_per_site {
            1 => names.push(site.clone()),
            count => names.extend((1..=count).map(|number| format!("{site}{number}"))),
        }
    }
    let place = names.iter().position(|known| known == given.text());
    place
        .map(|place| NodeId(place as u16))
        .ok_or_else(|| given.wrong(format!("one of the nodes {}", names.join(", "))))
}
