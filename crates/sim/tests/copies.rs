//! Full copies that a protocol asks for, with links and processes that break at any time while they are under way.
//!
//! The protocol here replicates nothing. A write to the key `copy of b` makes the replica ask for b's copy. Every other write stays at its
//! replica. So everything that a replica has of another one was brought by a copy.
use bytes::Bytes;
use turnbuckle_core::{
    Answer, Context, Descriptor, Key, Level, Levels, Micros, Operation, Parameter, PlainProtocol,
    PlainRequest, PlainResponse, PlainSession, Protocol, Recovered, Replication, RequestId, ServerId, SiteId,
    Topology, Version, VersionId,
};
use turnbuckle_node::NodeId;
use turnbuckle_sim::{Loss, Random, Span, World, WorldOptions};

/// The protocol, with streams that have no entries, or without streams.
struct Asker<const STREAMS: bool> {
    /// The replicas whose copies were put in place, in order.
    copied: Vec<ServerId>,
    /// The replica whose copy is being put in place.
    copying: Option<ServerId>,
}

type Cx<'a, const STREAMS: bool> = Context<'a, Asker<STREAMS>>;

impl<const STREAMS: bool> Protocol for Asker<STREAMS> {
    type Config = ();
    type Request = PlainRequest;
    type Response = PlainResponse;
    type Message = ();
    type Timer = ();
    type Meta = ();
    type Line = ();

    const DESCRIPTOR: Descriptor = Descriptor {
        tolerates_clock_steps: true,
        ..Descriptor::of(match STREAMS {
            true => Replication::Streams,
            false => Replication::Majority,
        })
    };
    const PARAMETERS: &'static [Parameter<()>] = &[];

    fn open((): &(), _: ServerId, _: Topology, _: &Recovered, _: u64) -> Asker<STREAMS> {
        Asker {
            copied: Vec::new(),
            copying: None,
        }
    }

    fn keys(&self, request: &PlainRequest, each: &mut dyn FnMut(&Key)) {
        each(request.key());
    }

    fn is_write(request: &PlainRequest) -> bool {
        request.is_write()
    }

    fn on_start(&mut self, _: &mut Cx<'_, STREAMS>) {}

    fn on_request(&mut self, cx: &mut Cx<'_, STREAMS>, id: RequestId, request: PlainRequest) {
        let response = match request {
            PlainRequest::Get(key, _) | PlainRequest::Siblings(key, _) => {
                let newest = cx.chain(&key).map(|chain| chain.newest());
                PlainResponse::Value(newest.and_then(|version| version.content.stored().cloned()))
            }
            PlainRequest::Put(key, value, ..) => {
                let asked = cx.peers().find(|peer| key == copy_of(peer.site));
                match asked {
                    Some(peer) => cx.want_copy(peer),
                    None => {
                        let (at, replica) = (cx.stamp(), cx.me.replica());
                        let id = VersionId { at, replica };
                        let (content, meta) = (value.into(), ());
                        cx.put(key, Version { id, content, meta });
                    }
                }
                PlainResponse::Written { existed: false }
            }
        };
        let receipt = cx.receipt(Level::Eventual, None);
        cx.reply(id, response, receipt);
    }

    fn on_message(&mut self, _: &mut Cx<'_, STREAMS>, _: ServerId, (): ()) {}

    fn on_timer(&mut self, _: &mut Cx<'_, STREAMS>, (): ()) {}

    fn on_copying(&mut self, _: &mut Cx<'_, STREAMS>, from: ServerId, _: &Recovered) {
        self.copying = Some(from);
    }

    fn on_copied(&mut self, _: &mut Cx<'_, STREAMS>, from: ServerId, _: &Recovered) {
        assert_eq!(
            self.copying.take(),
            Some(from),
            "a copy is announced before it is in place"
        );
        self.copied.push(from);
    }
}

impl<const STREAMS: bool> PlainProtocol for Asker<STREAMS> {
    const LEVELS: Levels = Levels::of_both(&[Level::Eventual]);
    const OVERLAPS: bool = true;
    const WRITES_ANYWHERE: bool = false;
}

type Asking<const STREAMS: bool> = World<PlainSession<Asker<STREAMS>>>;

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const C: NodeId = NodeId(2);
const KEYS: u64 = 60;
const LONG: Micros = Micros::from_millis(60_000);

fn server(node: NodeId) -> ServerId {
    ServerId {
        site: SiteId(node.0),
        partition: 0,
        member: 0,
    }
}

fn copy_of(site: SiteId) -> Key {
    Key::from(format!("copy of {}", ["a", "b", "c"][usize::from(site.0)]).as_str())
}

fn key(node: NodeId, number: u64) -> Key {
    Key::from(format!("{}/{number}", node.0).as_str())
}

/// A world in which every node has a client with the node's number, and b and c have keys of their own.
fn world<const STREAMS: bool>(seed: u64) -> Asking<STREAMS> {
    let mut options = WorldOptions::plain(["a", "b", "c"], Micros::from_millis(5));
    options.seed = seed;
    options.partitions = 1;
    options.batch_keys = 3;
    // So a copy takes a while to arrive.
    (options.bandwidth, options.chunk_bytes) = (Some(20_000), 100);
    options.disk = Span::us(100, 2_000);
    options.sync = Span::us(100, 1_000);
    let mut world = Asking::<STREAMS>::new(options, ());
    world.judge_nothing();
    for node in [A, B, C] {
        world.add_client(node);
    }
    world.advance(Micros::from_millis(50));
    for node in [B, C] {
        write_all(&mut world, node, "first");
    }
    world
}

fn put<const STREAMS: bool>(world: &mut Asking<STREAMS>, node: NodeId, key: Key, value: &'static str) {
    let value = Bytes::from_static(value.as_bytes());
    world.ask(usize::from(node.0), Operation::put(key, value));
}

fn write_all<const STREAMS: bool>(world: &mut Asking<STREAMS>, node: NodeId, value: &'static str) {
    for number in 0..KEYS {
        put(world, node, key(node, number), value);
    }
}

/// Makes a ask for the copy of a node.
fn ask<const STREAMS: bool>(world: &mut Asking<STREAMS>, of: NodeId) {
    put(world, A, copy_of(SiteId(of.0)), "");
}

fn copied<const STREAMS: bool>(world: &Asking<STREAMS>) -> Vec<ServerId> {
    let copied = world.inspect(server(A), |asker| asker.copied.clone());
    copied.expect("a runs")
}

/// The number of keys of a node that have this value at a.
fn found<const STREAMS: bool>(world: &mut Asking<STREAMS>, of: NodeId, value: &'static str) -> usize {
    let expected = Answer::Value(Some(Bytes::from_static(value.as_bytes())));
    let mut is_found = |number| {
        let operation = Operation::Get {
            key: key(of, number),
            level: None,
        };
        let answered = world.ask(usize::from(A.0), operation);
        answered.is_some_and(|answered| answered.0 == expected)
    };
    (0..KEYS).filter(|&number| is_found(number)).count()
}

fn brings_what_its_source_has<const STREAMS: bool>() {
    let mut world = world::<STREAMS>(1);
    assert!(world.settle(LONG));
    assert_eq!(found(&mut world, B, "first"), 0, "nothing is replicated");
    ask(&mut world, B);
    assert!(world.settle(LONG));
    assert_eq!(copied(&world), [server(B)]);
    assert_eq!(found(&mut world, B, "first"), KEYS as usize);
    assert_eq!(found(&mut world, C, "first"), 0, "it is not c's");
    write_all(&mut world, B, "second");
    for of in [B, C, C] {
        ask(&mut world, of);
    }
    assert!(world.settle(LONG));
    assert_eq!(found(&mut world, B, "second"), KEYS as usize);
    assert_eq!(found(&mut world, C, "first"), KEYS as usize);
    assert!(copied(&world).contains(&server(C)) && copied(&world).len() <= 4);
}

#[test]
fn a_copy_brings_what_its_source_has_when_it_is_asked_for() {
    brings_what_its_source_has::<false>();
    brings_what_its_source_has::<true>();
}

/// Causes a fault at any time after a copy was asked for, and ends it. Returns whether the copy was just arriving.
fn is_asked_for_again<const STREAMS: bool>(seed: u64) -> bool {
    let (mut world, mut random) = (world::<STREAMS>(seed), Random::new(seed));
    ask(&mut world, B);
    world.advance(Micros(random.below(120_000)));
    let streams = world.status(A).expect("a runs").streams;
    let arrives = streams.iter().any(|stream| stream.receiving_copy);
    match random.below(3) {
        0 => world.crash(B, Loss::Process),
        _ => world.set_cut(A, B, true),
    }
    // Longer than it takes to notice a broken link.
    world.advance(Micros(random.below(10_000_000)));
    world.set_cut(A, B, false);
    if !world.is_running(B) {
        world.restart(B);
    }
    assert!(world.settle(LONG), "seed {seed}");
    assert_eq!(copied(&world), [server(B)], "seed {seed}");
    assert_eq!(found(&mut world, B, "first"), KEYS as usize, "seed {seed}");
    arrives
}

#[test]
fn a_copy_is_asked_for_again_when_the_link_or_its_source_breaks() {
    let mut arriving = 0;
    for seed in 1..=60 {
        arriving += u64::from(is_asked_for_again::<false>(seed));
        arriving += u64::from(is_asked_for_again::<true>(seed));
    }
    assert!(arriving > 20, "only {arriving} faults came while a copy arrived");
}

/// The disk of a fills up while a copy arrives, so the engine takes no more writes. Returns whether it came to that: a node that was
/// opened again knows of the second copy alone.
fn comes_when_the_disk_has_room_again<const STREAMS: bool>(seed: u64) -> bool {
    let (mut world, mut random) = (world::<STREAMS>(seed), Random::new(seed));
    ask(&mut world, B);
    world.advance(Micros(random.below(120_000)));
    world.fill_disk(A, random.below(600));
    world.advance(Micros(random.below(1_000_000)));
    world.make_room(A);
    assert!(world.settle(LONG), "seed {seed}");
    // A node that was opened again has forgotten that it had asked.
    ask(&mut world, B);
    assert!(world.settle(LONG), "seed {seed}");
    assert_eq!(found(&mut world, B, "first"), KEYS as usize, "seed {seed}");
    copied(&world).len() == 1
}

#[test]
fn a_copy_that_the_engine_could_not_store_comes_when_the_disk_has_room_again() {
    let mut opened_again = 0;
    for seed in 1..=40 {
        opened_again += u64::from(comes_when_the_disk_has_room_again::<false>(seed));
        opened_again += u64::from(comes_when_the_disk_has_room_again::<true>(seed));
    }
    assert!(
        opened_again > 10,
        "only {opened_again} engines took no more writes"
    );
}
