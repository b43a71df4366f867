//! Sessions that use everything a session may: timers, servers of other sites, round trips, chance, and state that all sessions of a
//! gateway share.
//!
//! The session here reads from the nearest replica. If that takes too long, it asks another site's replica as well, and the first answer
//! counts: a *speculative retry*. The gateway remembers replicas that were too slow, and the next session asks another one first.
use bytes::{Bytes, BytesMut};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering},
};
use turnbuckle_causal::{Eventual, EventualConfig};
use turnbuckle_core::{
    Answer, BadToken, Failure, Key, Level, Levels, Micros, Operation, Outcome, PlainRequest, Protocol,
    ServerId, Session, SessionContext, SessionId, SiteId, Topology,
};
use turnbuckle_node::NodeId;
use turnbuckle_sim::{Draw, Keep, World, WorldOptions};

/// A replica whose round trip is not known yet is given this time.
const FIRST_HEDGE: Micros = Micros::from_millis(20);

/// The number of reads that were asked for once more, in all worlds of this process.
static HEDGES: AtomicU64 = AtomicU64::new(0);

struct Speculative {
    topology: Topology,
    id: SessionId,
    /// Reads that are not answered yet.
    open: BTreeMap<u64, Open>,
}

struct Open {
    request: PlainRequest,
    asked: BTreeSet<ServerId>,
    /// The number of replicas that have not answered it yet.
    waiting: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Time to ask another replica, too.
    Hedge(u64),
}

/// Replicas that were too slow when they were last asked.
#[derive(Default)]
struct Slow(BTreeSet<ServerId>);

type Cx<'a> = SessionContext<'a, Speculative>;

impl Speculative {
    /// The replicas of a key, the best to ask first: those that were not slow, by their round trip. If the round trips of two are unknown,
    /// their order is random.
    fn choices(&self, cx: &Cx<'_>, key: &Key) -> Vec<ServerId> {
        let partition = self.topology.partition_of_slot(key.slot());
        let nearest = cx.reach.nearest(partition);
        let all = self.topology.replicas_of(partition).iter();
        let mut all: Vec<ServerId> = all.map(|replica| ServerId::of(partition, replica)).collect();
        let drawn = |server: &ServerId| self.id.0.rotate_left(u32::from(server.site.0) * 7 + 1);
        all.retain(|&server| cx.reach.is_reached(server));
        all.sort_by_key(|server| {
            (
                cx.shared.0.contains(server),
                *server != nearest,
                cx.reach.round_trip(*server).unwrap_or(Micros::MAX),
                drawn(server),
            )
        });
        all
    }

    /// Asks the best replica that was not asked yet. Returns false if there is none.
    fn ask_another(&mut self, cx: &mut Cx<'_>, tag: u64, mut open: Open) -> bool {
        let choices = self.choices(cx, open.request.key());
        let next = choices.into_iter().find(|server| !open.asked.contains(server));
        if let Some(server) = next {
            cx.ask(tag, open.asked.len() as u32, server, open.request.clone());
            let patience = cx.reach.round_trip(server).map(|usual| Micros(2 * usual.0));
            cx.set_timer(Timer::Hedge(tag), patience.unwrap_or(Micros(0)).max(FIRST_HEDGE));
            open.asked.insert(server);
            open.waiting += 1;
        }
        self.open.insert(tag, open);
        next.is_some()
    }
}

impl Session for Speculative {
    type Protocol = Eventual;
    type Shared = Slow;
    type Timer = Timer;

    const LEVELS: Levels = Levels::of_both(&[Level::Eventual]);
    const OVERLAPS: bool = false;

    fn open(_: &EventualConfig, _: SiteId, topology: Topology, id: SessionId) -> Speculative {
        Speculative {
            topology,
            id,
            open: BTreeMap::new(),
        }
    }

    fn resume(&mut self, _: Bytes) -> Result<(), BadToken> {
        Ok(())
    }

    fn on_operation(&mut self, cx: &mut Cx<'_>, tag: u64, operation: Operation, level: Level) {
        let request = match operation {
            Operation::Get { key, .. } => PlainRequest::Get(key, level),
            Operation::Put {
                key, value, options, ..
            } => {
                let server = cx.nearest(&self.topology, &key);
                let put = PlainRequest::Put(key, value, level, options);
                return cx.ask(tag, 0, server, put);
            }
            _ => return cx.fail(tag, Failure::Unsupported("one key at a time".into())),
        };
        let open = Open {
            request,
            asked: BTreeSet::new(),
            waiting: 0,
        };
        if !self.ask_another(cx, tag, open) {
            self.open.remove(&tag);
            cx.fail(tag, Failure::Unavailable("no replica can be reached".into()));
        }
    }

    fn on_response(
        &mut self,
        cx: &mut Cx<'_>,
        tag: u64,
        _: u32,
        from: ServerId,
        outcome: Outcome<<Eventual as Protocol>::Response>,
    ) {
        let waits_for_more = self.open.get_mut(&tag).is_some_and(|open| {
            open.waiting -= 1;
            open.waiting > 0
        });
        match outcome {
            Outcome::Answered(response, receipt) => {
                cx.shared.0.remove(&from);
                self.open.remove(&tag);
                cx.answer(tag, Answer::from(response), Some(receipt));
            }
            _ if waits_for_more => {}
            lost => {
                self.open.remove(&tag);
                cx.fail(tag, lost.into_failure().expect("it is not an answer"));
            }
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>, Timer::Hedge(tag): Timer) {
        if let Some(open) = self.open.remove(&tag) {
            cx.shared.0.extend(open.asked.iter().copied());
            let asked = self.ask_another(cx, tag, open);
            HEDGES.fetch_add(u64::from(asked), Ordering::Relaxed);
        }
    }

    fn token(&self, _: &mut BytesMut) {}
}

/// Two nodes at each site. Site b is near, c is far. All sites have the key.
fn world(seed: u64) -> World<Speculative> {
    let mut options = WorldOptions::plain(["a", "b", "c"], Micros::from_millis(10));
    options.seed = seed;
    options.nodes_per_site = 2;
    options.partitions = 2;
    for (from, to) in [(0, 2), (2, 0)] {
        options.delays[from][to] = Micros::from_millis(30);
    }
    let mut world = World::new(options, EventualConfig::default());
    // Time for the links to come up.
    world.advance(Micros::from_millis(200));
    let client = world.add_client(A1);
    let put = Operation::put(key(&world), Bytes::from_static(b"v"));
    let written = world.ask(client, put);
    assert!(
        matches!(written, Some((Answer::Written { .. }, _))),
        "{written:?}"
    );
    assert!(world.settle(Micros::from_millis(10_000)));
    world
}

const A1: NodeId = NodeId(0);
const A2: NodeId = NodeId(1);

/// A key that the second node of each site holds.
fn key(world: &World<Speculative>) -> Key {
    let names = (0..).map(|number| Key::from(format!("k{number}").as_str()));
    let mut there = names.filter(|key| world.topology().partition_of_slot(key.slot()) == 1);
    there.next().expect("every partition has keys")
}

/// Reads the key. Returns how long it took and which site has answered.
fn read(world: &mut World<Speculative>, client: usize) -> (Micros, SiteId) {
    let key = key(world);
    let before = world.time();
    let (answer, receipt) = world
        .ask(client, Operation::Get { key, level: None })
        .expect("an answer");
    assert_eq!(answer, Answer::Value(Some(Bytes::from_static(b"v"))));
    let site = receipt.expect("a value has a receipt").server.site;
    (world.time().since(before), site)
}

#[test]
fn a_slow_replica_is_not_waited_for_and_other_sessions_of_the_gateway_learn_of_it() {
    let mut world = world(0);
    let first = world.add_client(A1);
    let (took, site) = read(&mut world, first);
    assert!(site == SiteId(0) && took < Micros::from_millis(2), "{took}");

    // The link stays up, and the replica does not answer.
    world.pause(A2, Micros::from_millis(300));
    let (took, site) = read(&mut world, first);
    let range = FIRST_HEDGE..FIRST_HEDGE + Micros::from_millis(62);
    assert!(site != SiteId(0) && range.contains(&took), "{took} at {site:?}");
    let second = world.add_client(A1);
    let (took, site) = read(&mut world, second);
    assert!(site != SiteId(0) && took < Micros::from_millis(62), "{took}");

    world.advance(Micros::from_millis(400));
    // Its late answer is heard at last, and it is asked again.
    let (took, site) = read(&mut world, first);
    assert!(site == SiteId(0) && took < Micros::from_millis(2), "{took}");
}

#[test]
fn a_session_knows_which_site_is_near() {
    let mut world = world(0);
    world.pause(A2, Micros::from_millis(600_000));
    // Both are asked: c is given less time than it takes.
    let mut sites = Vec::new();
    for _ in 0..8 {
        let client = world.add_client(A1);
        sites.push(read(&mut world, client).1);
    }
    let last = &sites[2..];
    assert!(last.iter().all(|&site| site == SiteId(1)), "{sites:?}");
}

#[test]
fn each_session_has_a_number_of_its_own_and_the_same_one_again_in_the_same_world() {
    let first_choice = |seed| {
        let mut world = world(seed);
        world.pause(A2, Micros::from_millis(600_000));
        let client = world.add_client(A1);
        // Site c takes longer than it is given, and b is asked then.
        read(&mut world, client).0 > FIRST_HEDGE + Micros::from_millis(22)
    };
    let drawn: Vec<bool> = (1..=12).map(first_choice).collect();
    assert!(drawn.contains(&true) && drawn.contains(&false), "{drawn:?}");
    let again: Vec<bool> = (1..=12).map(first_choice).collect();
    assert_eq!(again, drawn);
}

/// With all faults of the swarm: every operation is answered once, and no promise of `eventual` is broken.
#[test]
fn drawn_worlds_have_sessions_with_timers() {
    for seed in 1..=8 {
        let scenario = Draw::new(seed).scenario();
        let outcome = scenario.run::<Speculative>(EventualConfig::default(), Keep::JUDGE_AND_TRACE);
        assert!(
            outcome.violations.is_empty(),
            "seed {seed}: {:?}",
            outcome.violations
        );
    }
    let hedges = HEDGES.load(Ordering::Relaxed);
    assert!(hedges > 100, "only {hedges} reads were asked for once more");
}
