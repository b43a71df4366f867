//! Commands that are sent without waiting are taken in order: a reader that sees one sees all before it.
//!
//! One client writes 1, 2, 3, .. to four keys in turn and never waits. No other client writes. So every snapshot, at any site, must be the state
//! after some number of its writes: if `n` is the greatest number in it, the other keys have the three before.
use bytes::Bytes;
use turnbuckle_causal::{CausalSpartanXConfig, CausalSpartanXSession, GentleRainConfig, GentleRainSession};
use turnbuckle_core::{Answer, Key, Micros, Operation, Protocol, Session, SiteId};
use turnbuckle_node::Durability;
use turnbuckle_sim::{Loss, OperationId, Random, Record, World, WorldOptions};

const KEYS: u64 = 4;

fn key(number: u64) -> Key {
    Key::from(["x", "y", "z", "w"][(number % KEYS) as usize])
}

/// The numbers that a snapshot shows, in the order of the keys. `None` if the read failed.
fn numbers(record: &Record) -> Option<Vec<u64>> {
    let Some(Answer::Values(values)) = record.answer() else {
        return None;
    };
    let number = |value: &Option<Bytes>| {
        let text = value.as_deref().and_then(|value| std::str::from_utf8(value).ok());
        text.map_or(0, |text| text.parse().expect("a number"))
    };
    Some(values.iter().map(number).collect())
}

/// Whether this is the state after `n` writes, for some `n`.
fn is_prefix(shown: &[u64]) -> bool {
    let newest = *shown.iter().max().expect("there are keys");
    (0..KEYS).all(|back| newest < back + 1 || shown[((newest - back) % KEYS) as usize] == newest - back)
}

struct Run {
    snapshots: usize,
    /// The number of snapshots that do not show all writes of the client: those are between two states of its pipeline.
    within: usize,
    answered: u64,
}

fn run<S: Session>(seed: u64, nodes_per_site: usize, config: <S::Protocol as Protocol>::Config) -> Run {
    let mut random = Random::new(seed);
    let mut below = move |limit: u64| random.below(limit);
    let sites = ["a", "b", "c"].map(String::from).to_vec();
    let mut options = WorldOptions::plain(sites, Micros::from_millis(20));
    options.seed = seed;
    (options.partitions, options.nodes_per_site) = (4, nodes_per_site);
    options.durability = match below(2) {
        0 => Durability::Fsync,
        _ => "interval(10ms)".parse().expect("a durability"),
    };
    let mut world = World::<S>::new(options, config);
    let nodes: Vec<_> = world.nodes().collect();
    let writer = world.add_client(nodes[0]);
    let readers: Vec<usize> = nodes.iter().map(|&node| world.add_client(node)).collect();
    let (mut written, mut reads): (u64, Vec<OperationId>) = (0, Vec::new());
    let mut writes = Vec::new();
    let level = None;
    // First the nodes of a site find each other: a write that is refused would be a hole.
    world.advance(Micros::from_millis(500));
    for _ in 0..200 {
        match below(12) {
            0 => world.set_sites_cut(SiteId(0), SiteId(below(2) as u16 + 1), true),
            1 | 2 => (1..3).for_each(|site| world.set_sites_cut(SiteId(0), SiteId(site), false)),
            // A node of another site than the writer's: what was not answered would be lost with the writer's node.
            3 => {
                let node = nodes[nodes_per_site + below(2 * nodes_per_site as u64) as usize];
                world.crash(node, Loss::Process);
                world.restart(node);
            }
            4 => world.checkpoint(nodes[0]),
            _ => {
                for _ in 0..below(20) {
                    written += 1;
                    let put = Operation::put(key(written), Bytes::from(written.to_string()));
                    writes.push(world.invoke(writer, put.at(level)));
                    if below(5) == 0 {
                        // In between it reads what it has just written.
                        let keys = (0..KEYS).map(self::key).collect();
                        reads.push(world.invoke(writer, Operation::ReadMany { keys, level }));
                    }
                }
            }
        }
        for &reader in &readers {
            let keys = (0..KEYS).map(key).collect();
            reads.push(world.invoke(reader, Operation::ReadMany { keys, level }));
        }
        world.advance(Micros(below(15_000)));
    }
    (1..3).for_each(|site| world.set_sites_cut(SiteId(0), SiteId(site), false));
    assert!(
        world.settle(Micros::from_millis(60_000)),
        "seed {seed}: it does not come to rest"
    );
    world.compare_sites();
    assert!(
        world.judge().violations().is_empty(),
        "seed {seed}: {:?}",
        world.judge().violations()
    );
    let (mut snapshots, mut within) = (0, 0);
    for read in reads {
        let Some(shown) = numbers(world.record(read)) else {
            continue;
        };
        assert!(
            is_prefix(&shown),
            "seed {seed}: {shown:?} is no state that there was"
        );
        snapshots += 1;
        within += usize::from(shown.iter().max() < Some(&written));
    }
    let answered = writes
        .iter()
        .filter(|&&write| matches!(world.record(write).answer(), Some(Answer::Written { .. })));
    let answered = answered.count() as u64;
    assert_eq!(answered, written, "seed {seed}: writes were refused");
    Run {
        snapshots,
        within,
        answered,
    }
}

fn every_snapshot_is_a_state<S: Session>(config: &<S::Protocol as Protocol>::Config)
where
    <S::Protocol as Protocol>::Config: Clone,
{
    for seed in 0..12 {
        let run = run::<S>(seed, 1 + seed as usize % 2, config.clone());
        assert!(
            run.snapshots > 300 && run.within > 100 && run.answered > 500,
            "seed {seed}: {} snapshots, {} within, {} writes",
            run.snapshots,
            run.within,
            run.answered
        );
    }
}

#[test]
fn in_causalspartanx_every_snapshot_is_a_state() {
    every_snapshot_is_a_state::<CausalSpartanXSession>(&CausalSpartanXConfig::default());
}

#[test]
fn in_gentlerain_every_snapshot_is_a_state() {
    every_snapshot_is_a_state::<GentleRainSession>(&GentleRainConfig::default());
}

#[test]
fn a_snapshot_that_is_no_state_is_told_apart() {
    assert!(is_prefix(&[0, 0, 0, 0]) && is_prefix(&[0, 1, 0, 0]) && is_prefix(&[4, 5, 2, 3]));
    assert!(!is_prefix(&[0, 0, 2, 0]) && !is_prefix(&[4, 5, 2, 0]) && !is_prefix(&[4, 1, 6, 3]));
}
