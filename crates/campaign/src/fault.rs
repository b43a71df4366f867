//! What can go wrong, drawn from a seed.
//!
//! Kinds are dealt from a deck, so that a round of some tens of faults has some of each kind. The order, the nodes, the spans and the
//! pauses between them are drawn. The same seed, round and kinds give the same list. When a fault really begins depends on the machine. So
//! does whether it can: if it needs a node that another fault has claimed, it is left out, and counted.
use crate::cluster::{NODES, SITES, node_name};
use serde::{Serialize, Serializer};
use std::{fmt, str::FromStr};
use turnbuckle_workload::Random;

/// Declares the kinds of faults once: the name, the number of cards of the deck, and the description.
macro_rules! kinds {
    ($($kind:ident = $name:literal, $cards:literal, $about:literal;)+) => {
        /// A kind of fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(#[doc = $about] $kind,)+
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)+];

            /// The kind's name on the command line and in reports.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)+ }
            }

            /// What the fault does.
            pub fn about(self) -> &'static str {
                match self { $(Kind::$kind => $about,)+ }
            }

            fn cards(self) -> usize {
                match self { $(Kind::$kind => $cards,)+ }
            }
        }
    };
}

kinds! {
    Kills = "kills", 4, "kill -9 of a node, which is started again soon";
    Sites = "sites", 1, "kill -9 of both nodes of a site at once";
    LongDeaths = "long-deaths", 2, "kill -9 of a node, which stays down under load until its peers have purged their logs";
    Cuts = "cuts", 4, "a cut between two sites";
    Pauses = "pauses", 3, "a paused node (SIGSTOP)";
    Clocks = "clocks", 3, "a wall clock that jumps by up to three seconds, and back";
    FarClocks = "far-clocks", 1, "a wall clock that jumps an hour ahead, and back";
    FullDisks = "full-disks", 2, "a full disk";
    LostDirectories = "lost-directories", 2, "kill -9 of a node, and its data directory is emptied";
    OldDirectories = "old-directories", 1, "kill -9 of a node, and an older copy of its data directory is restored";
    Damage = "damage", 1, "kill -9 of a node, and bytes in a file of its tables are changed";
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        let known = || Kind::ALL.iter().map(|kind| kind.name());
        let found = Kind::ALL.iter().copied().find(|kind| kind.name() == text);
        found.ok_or_else(|| {
            let known: Vec<&str> = known().collect();
            format!("there is no fault '{text}'; expected one of {}", known.join(", "))
        })
    }
}

/// A fault. Spans are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9`, and a start after `down_ms`. A long death lasts until the peers' logs no longer reach back to its beginning.
    Kill {
        /// The node.
        node: usize,
        /// How long the node is down.
        down_ms: u64,
        /// Whether clients write as fast as they can meanwhile.
        is_long: bool,
    },
    /// The same for all nodes of a site.
    KillSite {
        /// The site.
        site: usize,
        /// How long the nodes are down.
        down_ms: u64,
    },
    /// Nothing passes between two sites.
    Cut {
        /// One of the sites.
        one: usize,
        /// The other one.
        other: usize,
        /// How long it lasts.
        for_ms: u64,
    },
    /// SIGSTOP, and SIGCONT after `for_ms`.
    Pause {
        /// The node.
        node: usize,
        /// How long it lasts.
        for_ms: u64,
    },
    /// The wall clock of a node is off.
    Clock {
        /// The node.
        node: usize,
        /// By how much, in microseconds.
        offset_us: i64,
        /// How long it lasts.
        for_ms: u64,
    },
    /// The disk of a node is full.
    FullDisk {
        /// The node.
        node: usize,
        /// How long it lasts.
        for_ms: u64,
    },
    /// The node is killed. Its directory is empty when it is started.
    LostDirectory {
        /// The node.
        node: usize,
        /// How long the node is down.
        down_ms: u64,
    },
    /// The node is killed, its directory is copied, and it is started. After `age_ms` it is killed again, and is started on the copy.
    OldDirectory {
        /// The node.
        node: usize,
        /// The age of the copy.
        age_ms: u64,
        /// How long the node is down.
        down_ms: u64,
    },
    /// The node is killed. When it is started, one byte of a table's file is different.
    Damage {
        /// The node.
        node: usize,
        /// A drawn number, which decides on the file and the byte.
        draw: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Fault::Kill {
                node,
                down_ms,
                is_long,
            } => {
                let long = if is_long {
                    ", and until the other nodes have purged their logs"
                } else {
                    ""
                };
                write!(f, "kill -9 {} for {down_ms} ms{long}", node_name(node))
            }
            Fault::KillSite { site, down_ms } => write!(f, "kill -9 site {} for {down_ms} ms", SITES[site]),
            Fault::Cut { one, other, for_ms } => {
                write!(f, "cut {}-{} for {for_ms} ms", SITES[one], SITES[other])
            }
            Fault::Pause { node, for_ms } => write!(f, "pause {} for {for_ms} ms", node_name(node)),
            Fault::Clock {
                node,
                offset_us,
                for_ms,
            } => write!(
                f,
                "clock of {} off by {offset_us} us for {for_ms} ms",
                node_name(node)
            ),
            Fault::FullDisk { node, for_ms } => write!(f, "disk of {} full for {for_ms} ms", node_name(node)),
            Fault::LostDirectory { node, down_ms } => {
                write!(
                    f,
                    "directory of {} emptied, down for {down_ms} ms",
                    node_name(node)
                )
            }
            Fault::OldDirectory {
                node,
                age_ms,
                down_ms,
            } => write!(
                f,
                "directory of {} as it was {age_ms} ms before, down for {down_ms} ms",
                node_name(node)
            ),
            Fault::Damage { node, draw } => {
                write!(f, "damage in a table of {} (draw {draw})", node_name(node))
            }
        }
    }
}

/// A fault, and when it is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The time since the round began, in milliseconds.
    pub at_ms: u64,
    /// The kind of the fault.
    pub kind: Kind,
    /// The fault.
    pub fault: Fault,
}

/// The shortest and the longest pause between the beginnings of two faults, in milliseconds.
const PAUSE_MS: (u64, u64) = (300, 2_500);

/// The faults of a round that lasts `for_ms`.
pub fn draw(seed: u64, round: u32, kinds: &[Kind], for_ms: u64) -> Vec<Planned> {
    let mut random = Random::new(seed, FAULTS_STREAM + u64::from(round));
    let (mut deck, mut planned) = (Vec::new(), Vec::new());
    let mut at_ms = between(&mut random, PAUSE_MS);
    while at_ms < for_ms && !kinds.is_empty() {
        if deck.is_empty() {
            deck = shuffled(&mut random, kinds);
        }
        let kind = deck.pop().expect("a deck has a card of each kind");
        planned.push(Planned {
            at_ms,
            kind,
            fault: fault(&mut random, kind),
        });
        at_ms += between(&mut random, PAUSE_MS);
    }
    planned
}

/// The stream of randomness from which faults are drawn. It is apart from the clients' streams.
const FAULTS_STREAM: u64 = 1 << 40;

fn shuffled(random: &mut Random, kinds: &[Kind]) -> Vec<Kind> {
    let mut deck: Vec<Kind> = kinds.iter().flat_map(|&kind| vec![kind; kind.cards()]).collect();
    for place in (1..deck.len()).rev() {
        deck.swap(place, random.below(place as u64 + 1) as usize);
    }
    deck
}

fn fault(random: &mut Random, kind: Kind) -> Fault {
    let node = random.below(NODES as u64) as usize;
    match kind {
        Kind::Kills => Fault::Kill {
            node,
            down_ms: between(random, (50, 3_000)),
            is_long: false,
        },
        Kind::LongDeaths => Fault::Kill {
            node,
            down_ms: between(random, (500, 4_000)),
            is_long: true,
        },
        Kind::Sites => Fault::KillSite {
            site: random.below(SITES.len() as u64) as usize,
            down_ms: between(random, (50, 3_000)),
        },
        Kind::Cuts => {
            let from = random.below(SITES.len() as u64) as usize;
            let step = 1 + random.below(SITES.len() as u64 - 1) as usize;
            Fault::Cut {
                one: from,
                other: (from + step) % SITES.len(),
                for_ms: between(random, (300, 8_000)),
            }
        }
        Kind::Pauses => Fault::Pause {
            node,
            for_ms: between(random, (100, 6_000)),
        },
        Kind::Clocks => {
            const SIZES_US: [u64; 4] = [8_000, 50_000, 500_000, 3_000_000];
            let size = SIZES_US[random.below(SIZES_US.len() as u64) as usize];
            let size = (size / 2 + random.below(size / 2)) as i64;
            Fault::Clock {
                node,
                offset_us: if random.below(2) == 0 { size } else { -size },
                for_ms: between(random, (500, 4_000)),
            }
        }
        Kind::FarClocks => Fault::Clock {
            node,
            offset_us: 3_600_000_000,
            for_ms: between(random, (200, 1_000)),
        },
        Kind::FullDisks => Fault::FullDisk {
            node,
            for_ms: between(random, (500, 5_000)),
        },
        Kind::LostDirectories => Fault::LostDirectory {
            node,
            down_ms: between(random, (100, 3_000)),
        },
        Kind::OldDirectories => Fault::OldDirectory {
            node,
            age_ms: between(random, (2_000, 6_000)),
            down_ms: between(random, (100, 2_000)),
        },
        Kind::Damage => Fault::Damage {
            node,
            draw: random.below(1 << 32),
        },
    }
}

fn between(random: &mut Random, (min, max): (u64, u64)) -> u64 {
    min + random.below(max - min + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_same_seed_gives_the_same_faults_and_another_one_others() {
        let first = draw(7, 1, Kind::ALL, 60_000);
        assert_eq!(first, draw(7, 1, Kind::ALL, 60_000));
        assert_ne!(first, draw(8, 1, Kind::ALL, 60_000));
        assert_ne!(first, draw(7, 2, Kind::ALL, 60_000));
        assert!(first.len() > 20, "{} faults in a minute", first.len());
        assert!(first.iter().all(|planned| planned.at_ms < 60_000));
    }

    #[test]
    fn a_minute_has_faults_of_every_kind_and_of_no_other() {
        let kinds = |planned: Vec<Planned>| -> BTreeSet<Kind> { planned.iter().map(|it| it.kind).collect() };
        assert_eq!(kinds(draw(3, 1, Kind::ALL, 60_000)).len(), Kind::ALL.len());
        let few = [Kind::Kills, Kind::Cuts];
        assert_eq!(kinds(draw(3, 1, &few, 60_000)), few.into());
        assert!(draw(3, 1, &[], 60_000).is_empty());
    }

    #[test]
    fn every_kind_is_found_by_its_name() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
        }
        let error = "fires".parse::<Kind>().expect_err("there is none");
        assert!(error.contains("expected one of kills, sites"), "{error}");
    }
}
