//! Keyspaces are added to a node's configuration and removed from it, while its log is purged: nothing that was acknowledged is lost, and
//! the node starts each time.
use bytes::Bytes;
use std::sync::Arc;
use turnbuckle_causal::eventual::{EventualConfig, EventualSession};
use turnbuckle_core::{
    Answer, ClusterSecret, Conditional, Key, KeyspaceLevels, Micros, Now, Operation, Session, SiteId,
    Topology, WallInterval,
};
use turnbuckle_gateway::{Gateway, GatewayOptions};
use turnbuckle_log::SimulatedDisk;
use turnbuckle_node::{Durability, KeyspaceConfig, Node, NodeBuilder, NodeConfig, NodeId, Placement, Wake};
use turnbuckle_store::{Engine, MemoryEngine};

struct Quiet;

impl Wake for Quiet {
    fn wake_loop(&self, _: usize) {}
    fn wake_link(&self, _: NodeId) {}
    fn wake_worker(&self) {}
    fn wake_sync(&self) {}
}

/// A machine, and the process that last ran on it.
#[derive(Default)]
struct Machine {
    disk: SimulatedDisk,
    engine: MemoryEngine,
    process: Option<(Arc<Node>, Gateway)>,
    time_us: u64,
}

impl Machine {
    fn now(&mut self) -> Now {
        self.time_us += 1_000;
        let monotonic = Micros(self.time_us);
        let wall = WallInterval::around(Micros(1_000_000_000_000 + self.time_us), Micros(0));
        Now { monotonic, wall }
    }

    /// `kill -9`, and a start with these keyspaces.
    fn restart_with(&mut self, names: &[&str]) {
        self.process = None;
        self.disk.crash_process();
        self.engine.crash_keeping(usize::MAX);
        self.start_with(names);
    }

    /// The power fails: what was not synced or persisted is gone.
    fn lose_power_and_start_with(&mut self, names: &[&str]) {
        self.process = None;
        self.disk.crash_power(7);
        self.engine.crash_keeping(0);
        self.start_with(names);
    }

    fn start_with(&mut self, names: &[&str]) {
        let mut config = NodeConfig::new(NodeId(0), Placement::new([SiteId(0)]));
        config.segment_bytes = 1 << 10;
        config.retained_log_bytes = 0;
        let engine = Arc::new(self.engine.clone());
        let mut builder = NodeBuilder::new(config, self.disk.mount(), engine, Arc::new(Quiet));
        let options = GatewayOptions {
            loop_index: 0,
            cluster: "c".into(),
            secret: ClusterSecret::new(&b"s"[..]),
            deadline: Micros(5_000_000),
            seed: 1,
        };
        let mut gateway = Gateway::new(SiteId(0), options);
        for name in names {
            let keyspace = KeyspaceConfig {
                name: name.to_string(),
                topology: Topology::new(["a"], 2, 1),
                durability: Durability::Fsync,
            };
            let keyspace = builder.keyspace(keyspace, EventualConfig::default());
            gateway.add::<EventualSession>(
                keyspace.expect("it opens"),
                KeyspaceLevels::of(EventualSession::LEVELS),
                Conditional::Refuse,
            );
        }
        let node = builder.open(self.now()).expect("the node opens");
        self.process = Some((node, gateway));
    }

    fn ask(&mut self, keyspace: &str, operation: Operation) -> Answer {
        let now = self.now();
        let (node, gateway) = self.process.as_mut().expect("it runs");
        let door = gateway.open(keyspace).expect("there is such a keyspace");
        let mut answers = Vec::new();
        gateway.operate(now, door, 1, operation, &mut answers);
        node.commit(now).expect("the disk works");
        node.sync().run(|| now).expect("the disk works");
        gateway.collect(now, &mut answers);
        gateway.close(door);
        let (_, _, (answer, _)) = answers.pop().expect("it is answered");
        answer
    }

    fn put(&mut self, keyspace: &str, key: &str, value: &str) {
        let put = Operation::put(Key::from(key), Bytes::from(value.to_string()));
        let answer = self.ask(keyspace, put);
        assert!(matches!(answer, Answer::Written { .. }), "{answer:?}");
    }

    fn get(&mut self, keyspace: &str, key: &str) -> Option<String> {
        let key = Key::from(key);
        match self.ask(keyspace, Operation::Get { key, level: None }) {
            Answer::Value(value) => value.map(|value| String::from_utf8_lossy(&value).into_owned()),
            other => panic!("a read is answered with {other:?}"),
        }
    }

    /// Writes enough to begin several segments, and takes a checkpoint after which they are purged.
    fn write_much_and_purge(&mut self, keyspace: &str) {
        let before = self.log_start();
        for n in 0..100 {
            self.put(keyspace, &format!("filler{n}"), &"v".repeat(100));
        }
        let now = self.now();
        let (node, _) = self.process.as_ref().expect("it runs");
        node.checkpoint_now().run(|| now).expect("the disks work");
        assert!(self.log_start() > before, "nothing was purged");
    }

    fn log_start(&self) -> u64 {
        let (node, _) = self.process.as_ref().expect("it runs");
        node.appended_bytes() - node.log_bytes()
    }
}

#[test]
fn a_keyspace_is_added_when_the_log_has_been_purged() {
    let mut machine = Machine::default();
    machine.start_with(&["one"]);
    machine.put("one", "x", "1");
    machine.write_much_and_purge("one");
    machine.restart_with(&["one", "two"]);
    machine.put("two", "y", "2");
    machine.restart_with(&["one", "two"]);
    assert_eq!(machine.get("one", "x").as_deref(), Some("1"));
    assert_eq!(machine.get("two", "y").as_deref(), Some("2"));
    // Also after a purge, and when the power fails right after it.
    machine.write_much_and_purge("one");
    machine.lose_power_and_start_with(&["two", "one"]);
    assert_eq!(machine.get("two", "y").as_deref(), Some("2"));
    assert_eq!(machine.get("one", "x").as_deref(), Some("1"));
}

#[test]
fn a_keyspace_that_is_left_out_for_a_while_has_all_that_was_acknowledged_when_it_is_back() {
    let mut machine = Machine::default();
    machine.start_with(&["one", "two"]);
    for n in 0..20 {
        machine.put("two", &format!("y{n}"), "old");
    }
    machine.write_much_and_purge("one");
    // These are in no checkpoint.
    for n in 10..20 {
        machine.put("two", &format!("y{n}"), "new");
    }
    machine.restart_with(&["one"]);
    machine.write_much_and_purge("one");
    // Again without it, and with a power failure in between.
    machine.lose_power_and_start_with(&["one"]);
    machine.write_much_and_purge("one");
    machine.restart_with(&["one", "two"]);
    let all_are_there = |machine: &mut Machine| {
        for n in 0..20 {
            let expected = if n < 10 { "old" } else { "new" };
            assert_eq!(
                machine.get("two", &format!("y{n}")).as_deref(),
                Some(expected),
                "y{n}"
            );
        }
    };
    all_are_there(&mut machine);
    assert!(
        machine
            .engine
            .table_names()
            .expect("they can be listed")
            .iter()
            .all(|name| !name.ends_with(".log")),
        "what was set aside is in a checkpoint"
    );
    machine.lose_power_and_start_with(&["two", "one"]);
    all_are_there(&mut machine);
}

/// A table is removed, and the power fails before that is on disk: the records that were set aside are there again, and are old.
#[test]
fn what_was_set_aside_is_taken_in_once_also_if_the_power_brings_it_back() {
    let mut machine = Machine::default();
    machine.start_with(&["one", "two"]);
    machine.put("two", "y", "old");
    machine.restart_with(&["one"]);
    machine.restart_with(&["one", "two"]);
    machine.put("two", "y", "new");
    machine.lose_power_and_start_with(&["one", "two"]);
    assert_eq!(machine.get("two", "y").as_deref(), Some("new"));
    // And if it is left out right then.
    machine.restart_with(&["one"]);
    machine.restart_with(&["one", "two"]);
    machine.put("two", "y", "newer");
    machine.lose_power_and_start_with(&["one"]);
    machine.write_much_and_purge("one");
    machine.restart_with(&["one", "two"]);
    assert_eq!(machine.get("two", "y").as_deref(), Some("newer"));
}

#[test]
fn all_keyspaces_but_a_new_one_are_left_out() {
    let mut machine = Machine::default();
    machine.start_with(&["one", "two"]);
    machine.put("one", "x", "1");
    machine.put("two", "y", "2");
    machine.write_much_and_purge("one");
    machine.put("one", "x", "3");
    machine.restart_with(&["three"]);
    machine.write_much_and_purge("three");
    machine.restart_with(&["four"]);
    machine.write_much_and_purge("four");
    machine.restart_with(&["one", "two", "three"]);
    assert_eq!(machine.get("one", "x").as_deref(), Some("3"));
    assert_eq!(machine.get("two", "y").as_deref(), Some("2"));
    assert_eq!(
        machine.get("three", "filler7").map(|value| value.len()),
        Some(100)
    );
}
