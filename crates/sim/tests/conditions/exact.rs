//! Conditions are exact: many clients at three sites ask at the same time, and each put is carried out exactly if its condition holds at
//! its place in the order.
use super::ordered::{OrderedConfig, OrderedSession};
use bytes::Bytes;
use std::{collections::BTreeMap, path::Path};
use turnbuckle_check::{HistoryBuilder, Report};
use turnbuckle_core::{Answer, Condition, Key, Micros, Operation, PutOptions, Rank, VersionId};
use turnbuckle_node::NodeId;
use turnbuckle_sim::{Random, Record, World, WorldOptions};

/// One client at each node. Each site has two nodes, and each node has one of two partitions.
const CLIENTS: usize = 6;
const ROUNDS: u64 = 40;
const KEYS: u64 = 2;

#[test]
fn conditions_and_expiry_are_as_the_scripts_show() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/conditions");
    turnbuckle_sim::goldens::<OrderedSession>(&OrderedConfig::default(), &folder);
}

/// The oracle: goes through the writes of a key in their order, and checks that each answer follows from the write before it.
fn is_exact(records: &[&Record]) -> Result<(), String> {
    let written: BTreeMap<Rank, &Record> = records
        .iter()
        .filter_map(|record| Some((Rank::of(wrote(record)?), *record)))
        .collect();
    let mut before: Option<(VersionId, &Record)> = None;
    for (&Rank { id: version, .. }, record) in &written {
        let value = before.and_then(|(_, record)| value_of(record));
        let newest = before.map(|(version, _)| version);
        let found = match record.answer() {
            Some(Answer::Written { existed }) => *existed == value.is_some(),
            Some(Answer::Replaced(before)) => before.as_ref() == value,
            _ => false,
        };
        let held = condition_of(record).is_none_or(|condition| condition.holds(value.is_some(), newest));
        if !found || !held {
            return Err(format!("{record:?} was carried out over {before:?}"));
        }
        before = Some((version, record));
    }
    for (record, has_value, newest) in records.iter().filter_map(|record| unmet(record)) {
        let there = newest.and_then(|version| value_of(written.get(&Rank::of(version))?));
        let held = condition_of(record).is_none_or(|condition| condition.holds(has_value, newest));
        if held || there.is_some() != has_value {
            return Err(format!("{record:?} was not carried out"));
        }
    }
    Ok(())
}

/// The version that a put wrote.
fn wrote(record: &Record) -> Option<VersionId> {
    let Operation::Put { value, .. } = &record.operation else {
        return None;
    };
    let (_, (answer, receipt)) = record.returned.as_ref()?;
    let wrote = match answer {
        Answer::Written { existed } => value.is_some() || *existed,
        Answer::Replaced(before) => value.is_some() || before.is_some(),
        _ => false,
    };
    receipt.as_ref().filter(|_| wrote)?.version
}

fn unmet(record: &Record) -> Option<(&Record, bool, Option<VersionId>)> {
    let (_, (answer, receipt)) = record.returned.as_ref()?;
    match answer {
        Answer::Unmet(unmet) => Some((record, unmet.has_value, receipt.as_ref()?.version)),
        _ => None,
    }
}

fn value_of(record: &Record) -> Option<&Bytes> {
    match &record.operation {
        Operation::Put { value, .. } => value.as_ref(),
        _ => None,
    }
}

fn condition_of(record: &Record) -> Option<Condition> {
    match &record.operation {
        Operation::Put { options, .. } => options.as_ref()?.condition,
        _ => None,
    }
}

fn key(number: u64) -> Key {
    Key::from(format!("k{number}").as_str())
}

/// Any operation on a key. `seen` are the versions that clients have last seen.
fn draw(random: &mut Random, written: u64, seen: &BTreeMap<Key, VersionId>) -> Operation {
    let key = key(random.below(KEYS));
    let value = (random.below(4) > 0).then(|| Bytes::from(format!("v{written}")));
    let condition = match random.below(5) {
        0 => return Operation::Get { key, level: None },
        1 => None,
        2 => Some(Condition::Absent),
        3 => Some(Condition::Present),
        _ => seen.get(&key).copied().map(Condition::Version),
    };
    let returns_previous = random.below(3) == 0;
    Operation::put(key, value).with(PutOptions {
        condition,
        returns_previous,
        expiry: None,
        replaces: None,
        ..PutOptions::default()
    })
}

/// Runs a world in which all clients ask at the same time, round by round. Returns what is wrong, and how many conditions held and how many
/// did not.
fn run(seed: u64, config: OrderedConfig) -> (Result<(), String>, usize, usize) {
    let mut options = WorldOptions::plain(["a", "b", "c"], Micros::from_millis(3));
    options.seed = seed;
    (options.partitions, options.nodes_per_site) = (2, 2);
    let mut world = World::<OrderedSession>::new(options, config);
    world.advance(Micros::from_millis(100));
    let mut random = Random::new(seed);
    let clients = (0..CLIENTS as u16).map(|client| world.add_client(NodeId(client)));
    let clients: Vec<usize> = clients.collect();
    let mut seen: BTreeMap<Key, VersionId> = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut asked = Vec::new();
        for (place, &client) in clients.iter().enumerate() {
            let operation = draw(&mut random, round * CLIENTS as u64 + place as u64, &seen);
            asked.push(world.invoke(client, operation));
            world.advance(Micros(random.below(1_500)));
        }
        let until = world.time() + Micros::from_millis(1_000);
        world.run_until(until, |world| asked.iter().all(|&id| !world.is_open(id)));
        for &id in &asked {
            let record = world.record(id);
            let (_, (_, receipt)) = record.returned.as_ref().expect("nothing is lost here");
            if let (Some(key), Some(version)) = (record.key(), receipt.as_ref().and_then(|r| r.version)) {
                seen.insert(key.clone(), version);
            }
        }
    }
    let records: Vec<&Record> = world.history().map(|(_, record)| record).collect();
    let held = records.iter().filter(|record| condition_of(record).is_some());
    let held = held.filter(|record| wrote(record).is_some()).count();
    let not_held = records.iter().filter(|record| unmet(record).is_some()).count();
    (look(&world, &records), held, not_held)
}

/// What the oracle, the judge and the checker say.
fn look(world: &World<OrderedSession>, records: &[&Record]) -> Result<(), String> {
    for number in 0..KEYS {
        let key = key(number);
        let of_key = records.iter().filter(|record| record.key() == Some(&key));
        is_exact(&of_key.copied().collect::<Vec<_>>())?;
    }
    if let Some(violation) = world.judge().violations().first() {
        return Err(violation.to_string());
    }
    let mut history = HistoryBuilder::new();
    for record in world.trace() {
        history.add(&record).map_err(|bad| bad.to_string())?;
    }
    let history = history.finish().map_err(|bad| bad.to_string())?;
    match Report::of(&history, &[]).atomic {
        true => Ok(()),
        false => Err("the trace is not linearizable".into()),
    }
}

#[test]
fn each_put_is_carried_out_exactly_if_its_condition_holds_at_its_place_in_the_order() {
    let (mut held, mut not_held) = (0, 0);
    for seed in 1..=40 {
        let (outcome, met, unmet) = run(seed, OrderedConfig::default());
        assert_eq!(outcome, Ok(()), "seed {seed}");
        (held, not_held) = (held + met, not_held + unmet);
    }
    assert!(
        held > 500 && not_held > 500,
        "{held} conditions held, {not_held} did not"
    );
}

#[test]
fn a_condition_that_is_looked_at_before_its_turn_is_noticed() {
    let config = OrderedConfig { checks_early: true };
    let found = (1..=5).find_map(|seed| run(seed, config.clone()).0.err());
    println!("{}", found.expect("five seeds show it"));
}
