//! The faults of a scenario's file.
use super::{Placed, at_most, given, parsed, signed, span, time};
use crate::{Fault, FaultKind, Loss, WorldOptions};
use serde::Deserialize;
use toml::Spanned;
use turnbuckle_core::Micros;
use turnbuckle_node::NodeId;
use turnbuckle_workload::Misplaced;

/// One `[[fault]]`. Which fields it takes depends on its kind; a field that was meant for another kind is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultTable {
    kind: Spanned<String>,
    at: Placed<String>,
    #[serde(rename = "for")]
    span: Placed<String>,
    node: Placed<String>,
    a: Placed<String>,
    b: Placed<String>,
    from: Placed<String>,
    to: Placed<String>,
    loss: Placed<String>,
    changes: Placed<u64>,
    percent: Placed<u64>,
    ppm: Placed<i64>,
    by: Placed<String>,
    partition: Placed<u16>,
    keyspace: Placed<usize>,
    rows: Placed<u64>,
    free: Placed<u64>,
}

impl FaultTable {
    pub(super) fn check(&self, world: &WorldOptions, duration: Micros) -> Result<Fault, Misplaced> {
        let node = |given: &Placed<String>, name: &str| match given {
            Some(given) => node_named(world, given, name),
            None => Err(self.missing(name)),
        };
        let (mut takes, kind): (Vec<&str>, FaultKind) = match self.kind.get_ref().as_str() {
            "crash" => {
                let loss = self.loss()?;
                (
                    vec!["node", "loss"],
                    FaultKind::Crash {
                        node: node(&self.node, "node")?,
                        loss,
                    },
                )
            }
            "crash-within-write" => (
                vec!["node", "changes"],
                FaultKind::CrashWithinWrite {
                    node: node(&self.node, "node")?,
                    changes: given(&self.changes).unwrap_or(0),
                },
            ),
            "crash-all" => {
                let loss = self.loss()?;
                (vec!["loss"], FaultKind::CrashAll { loss })
            }
            "cut" => (
                vec!["a", "b"],
                FaultKind::Cut {
                    a: node(&self.a, "a")?,
                    b: self.other(node(&self.b, "b")?, node(&self.a, "a")?)?,
                },
            ),
            "isolate" => (
                vec!["node"],
                FaultKind::Isolate {
                    node: node(&self.node, "node")?,
                },
            ),
            "one-way-cut" | "slow-link" | "loss" => {
                let from = node(&self.from, "from")?;
                let to = self.other(node(&self.to, "to")?, from)?;
                match self.kind.get_ref().as_str() {
                    "one-way-cut" => (vec!["from", "to"], FaultKind::OneWayCut { from, to }),
                    "slow-link" => {
                        let percent = self.percent()?;
                        (
                            vec!["from", "to", "percent"],
                            FaultKind::SlowLink { from, to, percent },
                        )
                    }
                    _ => {
                        let ppm = given(&self.ppm).ok_or_else(|| self.missing("ppm"))?;
                        let ppm = ppm.clamp(0, 1_000_000) as u64;
                        (vec!["from", "to", "ppm"], FaultKind::Loss { from, to, ppm })
                    }
                }
            }
            "pause" => (
                vec!["node"],
                FaultKind::Pause {
                    node: node(&self.node, "node")?,
                },
            ),
            "clock-step" | "clock-jump" => {
                let by = self.by.as_ref().ok_or_else(|| self.missing("by"))?;
                let (node, by_us) = (node(&self.node, "node")?, signed(by, "by")?);
                let kind = match self.kind.get_ref().as_str() {
                    "clock-step" => FaultKind::ClockStep { node, by_us },
                    _ => FaultKind::ClockJump { node, by_us },
                };
                (vec!["node", "by"], kind)
            }
            "clock-drift" => {
                let ppm = given(&self.ppm).ok_or_else(|| self.missing("ppm"))?;
                (
                    vec!["node", "ppm"],
                    FaultKind::ClockDrift {
                        node: node(&self.node, "node")?,
                        ppm,
                    },
                )
            }
            "slow-disk" => {
                let percent = self.percent()?;
                (
                    vec!["node", "percent"],
                    FaultKind::SlowDisk {
                        node: node(&self.node, "node")?,
                        percent,
                    },
                )
            }
            "sync-fails" => (
                vec!["node"],
                FaultKind::SyncFails {
                    node: node(&self.node, "node")?,
                },
            ),
            "disk-full" => (
                vec!["node", "free"],
                FaultKind::DiskFull {
                    node: node(&self.node, "node")?,
                    free_bytes: given(&self.free).unwrap_or(0),
                },
            ),
            "backup" => (
                vec!["node"],
                FaultKind::Backup {
                    node: node(&self.node, "node")?,
                },
            ),
            "damage" => (
                vec!["node", "rows"],
                FaultKind::Damage {
                    node: node(&self.node, "node")?,
                    rows: at_most(&self.rows, "rows", 1..1_000_001)?.unwrap_or(1),
                },
            ),
            "checkpoint" => (
                vec!["node"],
                FaultKind::Checkpoint {
                    node: node(&self.node, "node")?,
                },
            ),
            "slow-partition" => {
                let place = self.partition.as_ref().ok_or_else(|| self.missing("partition"))?;
                let partition = *place.get_ref();
                if partition >= world.partitions {
                    let message = format!("partition: {partition}; expected one below {}", world.partitions);
                    return Err((place.span(), message));
                }
                let percent = self.percent()?;
                (
                    vec!["partition", "percent"],
                    FaultKind::SlowPartition { partition, percent },
                )
            }
            "left-out" => {
                let number = at_most(&self.keyspace, "keyspace", 1..world.keyspaces + 1)?;
                let number = number.ok_or_else(|| self.missing("keyspace"))?;
                (
                    vec!["node", "keyspace"],
                    FaultKind::LeftOut {
                        node: node(&self.node, "node")?,
                        keyspace: number - 1,
                    },
                )
            }
            "late" => {
                let by = self.by.as_ref().ok_or_else(|| self.missing("by"))?;
                (
                    vec!["node", "by"],
                    FaultKind::Late {
                        node: node(&self.node, "node")?,
                        by: parsed(by, "by")?,
                    },
                )
            }
            other => {
                let message = format!(
                    "kind: '{other}'; expected crash, crash-within-write, crash-all, cut, one-way-cut, isolate, slow-link, \
                     loss, pause, clock-step, clock-jump, clock-drift, slow-disk, sync-fails, disk-full, slow-partition, late, \
                      left-out, damage, backup or checkpoint"
                );
                return Err((self.kind.span(), message));
            }
        };
        takes.extend(["at", "for"]);
        self.refuse_others(&takes)?;
        Ok(Fault {
            at: self.begin(duration)?,
            span: match (time(&self.span, "for")?, &kind) {
                (Some(span), _) => span,
                (
                    None,
                    FaultKind::Checkpoint { .. } | FaultKind::Backup { .. } | FaultKind::Damage { .. },
                ) => Micros(0),
                (None, _) => return Err(self.missing("for")),
            },
            kind,
        })
    }

    fn loss(&self) -> Result<Loss, Misplaced> {
        let Some(given) = &self.loss else {
            return Ok(Loss::Process);
        };
        Loss::named(given.get_ref()).ok_or_else(|| {
            let message = format!(
                "loss: '{}'; expected process, power, lost or old",
                given.get_ref()
            );
            (given.span(), message)
        })
    }

    fn begin(&self, duration: Micros) -> Result<Micros, Misplaced> {
        let at = time(&self.at, "at")?.unwrap_or(Micros(0));
        match (at < duration, &self.at) {
            (false, Some(given)) => Err((
                given.span(),
                format!("at: {at}; expected less than the duration, {duration}"),
            )),
            _ => Ok(at),
        }
    }

    fn percent(&self) -> Result<u64, Misplaced> {
        at_most(&self.percent, "percent", 1..1_000_001)?.ok_or_else(|| self.missing("percent"))
    }

    fn missing(&self, name: &str) -> Misplaced {
        let message = format!("kind: {} needs '{name}'", self.kind.get_ref());
        (self.kind.span(), message)
    }

    fn other(&self, node: NodeId, than: NodeId) -> Result<NodeId, Misplaced> {
        match node == than {
            false => Ok(node),
            true => Err((
                self.kind.span(),
                format!("kind: {} is between two nodes; found one", self.kind.get_ref()),
            )),
        }
    }

    /// What this kind of fault does not take was meant for another.
    fn refuse_others(&self, takes: &[&str]) -> Result<(), Misplaced> {
        let all = [
            ("node", span(&self.node)),
            ("a", span(&self.a)),
            ("b", span(&self.b)),
            ("from", span(&self.from)),
            ("to", span(&self.to)),
            ("loss", span(&self.loss)),
            ("changes", span(&self.changes)),
            ("percent", span(&self.percent)),
            ("ppm", span(&self.ppm)),
            ("by", span(&self.by)),
            ("partition", span(&self.partition)),
            ("keyspace", span(&self.keyspace)),
            ("rows", span(&self.rows)),
            ("free", span(&self.free)),
        ];
        for (name, place) in all {
            if let Some(place) = place
                && !takes.contains(&name)
            {
                let message = format!(
                    "{name}: {} does not take it; expected {}",
                    self.kind.get_ref(),
                    takes.join(", ")
                );
                return Err((place, message));
            }
        }
        Ok(())
    }
}

pub(super) fn node_named(
    world: &WorldOptions,
    given: &Spanned<String>,
    name: &str,
) -> Result<NodeId, Misplaced> {
    let mut names = Vec::new();
    for site in &world.sites {
        match world.nodes_per_site {
            1 => names.push(site.clone()),
            count => names.extend((1..=count).map(|number| format!("{site}{number}"))),
        }
    }
    let place = names.iter().position(|known| known == given.get_ref());
    place.map(|place| NodeId(place as u16)).ok_or_else(|| {
        let message = format!(
            "{name}: there is no node '{}'; expected one of {}",
            given.get_ref(),
            names.join(", ")
        );
        (given.span(), message)
    })
}
