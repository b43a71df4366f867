//! If the options ask for it, data directories are lost one at a time: a fault that takes one is left out while a node at another site has
//! not got back everything that it lost with its own.
use turnbuckle_causal::eventual::{Eventual, EventualSession};
use turnbuckle_core::{Micros, Settings};
use turnbuckle_node::NodeId;
use turnbuckle_sim::{Draw, Fault, FaultKind, Keep, Kind, Loss, Mixed, Scenario, Span, WorldOptions};

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const C: NodeId = NodeId(2);

fn fault(at_ms: u64, span_ms: u64, kind: FaultKind) -> Fault {
    Fault {
        at: Micros::from_millis(at_ms),
        span: Micros::from_millis(span_ms),
        kind,
    }
}

fn crash(at_ms: u64, span_ms: u64, node: NodeId, loss: Loss) -> Fault {
    fault(at_ms, span_ms, FaultKind::Crash { node, loss })
}

/// Three sites, few keys, many deletes.
fn scenario(faults: &[Fault]) -> Scenario {
    let mut draw = Draw::new(1);
    draw.fault_every = None;
    draw.world.keyspaces = 1;
    draw.clock_jumps = false;
    draw.safety = Micros::from_millis(9_000);
    draw.load.clients_per_node = 2;
    draw.load.think = Span::us(1_000, 40_000);
    draw.load.amplification = 1;
    draw.load.roam_every = None;
    draw.load.kind = Kind::Mixed(Mixed {
        keys: 40,
        writes: 40,
        deletes: 40,
        value_bytes: 10,
        ..Mixed::default()
    });
    let mut scenario = draw.scenario();
    scenario.parameters = Settings::from([
        ("heartbeat", Micros::from_millis(20)),
        ("theta", Micros::from_millis(5)),
    ]);
    scenario.world = WorldOptions::plain(["a", "b", "c"], Micros::from_millis(10));
    scenario.world.seed = 1;
    scenario.world.shrink = 10;
    scenario.world.one_loss_at_a_time = true;
    scenario.faults = faults.to_vec();
    scenario
}

fn left_out_of(scenario: &Scenario) -> u64 {
    let config = scenario.parameters.config::<Eventual>();
    let outcome = scenario.run::<EventualSession>(config, Keep::JUDGE_AND_TRACE);
    assert!(outcome.converged);
    outcome.losses_left_out
}

fn left_out(faults: &[Fault]) -> u64 {
    left_out_of(&scenario(faults))
}

#[test]
fn a_second_directory_is_not_lost_while_the_first_node_is_down() {
    let both = [
        crash(1_000, 500, A, Loss::Directory),
        crash(1_200, 100, B, Loss::Directory),
    ];
    assert_eq!(left_out(&both), 1);
    let mut asked_for = scenario(&both);
    asked_for.world.one_loss_at_a_time = false;
    assert_eq!(left_out_of(&asked_for), 0, "who does not ask for it gets both");
}

#[test]
fn it_is_lost_once_the_first_node_has_everything_again() {
    for loss in [Loss::Directory, Loss::Old] {
        let faults = [crash(1_000, 100, A, Loss::Directory), crash(5_000, 100, B, loss)];
        assert_eq!(left_out(&faults), 0, "{loss:?}");
    }
}

#[test]
fn a_node_that_has_not_heard_all_sites_does_not_have_everything() {
    let cut = fault(500, 4_000, FaultKind::Cut { a: A, b: C });
    let lost = crash(1_000, 100, A, Loss::Directory);
    let early = crash(4_000, 100, B, Loss::Directory);
    let late = crash(8_000, 100, B, Loss::Directory);
    assert_eq!(left_out(&[cut.clone(), lost.clone(), early.clone()]), 1);
    assert_eq!(left_out(&[cut, lost.clone(), late]), 0);
    assert_eq!(left_out(&[lost, early]), 0, "it was the cut");
}

#[test]
fn an_old_copy_has_everything_when_it_was_heard_and_is_not_outdated() {
    let backup = |at_ms| fault(at_ms, 0, FaultKind::Backup { node: A });
    let old = crash(4_000, 100, A, Loss::Old);
    let other = crash(8_000, 100, B, Loss::Directory);
    let outdated = [backup(500), old.clone(), other.clone()];
    assert_eq!(left_out(&outdated), 1, "deletes were forgotten since");
    assert_eq!(left_out(&[backup(3_999), old, other]), 0);
}

#[test]
fn a_process_that_ends_and_another_node_of_the_site_do_not_count() {
    let lost = crash(1_000, 500, A, Loss::Directory);
    assert_eq!(left_out(&[lost.clone(), crash(1_200, 100, B, Loss::Process)]), 0);
    assert_eq!(left_out(&[crash(900, 500, B, Loss::Process), lost.clone()]), 0);
    let mut two_nodes = scenario(&[lost, crash(1_200, 100, B, Loss::Directory)]);
    (two_nodes.world.nodes_per_site, two_nodes.world.partitions) = (2, 2);
    assert_eq!(left_out_of(&two_nodes), 0);
}
