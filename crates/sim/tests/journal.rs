//! A protocol's journal, its state by name, and keys that it asks for, in worlds with crashes in the middle of everything.
//!
//! The protocol here replicates nothing. Each write changes its journal and its state in ways drawn from its stamp, and stores a checksum
//! of all that in the same batch. A replica that is opened must find journal and state as that checksum says. So no batch is there in part,
//! and nothing is there that was truncated, purged or dropped.
use bytes::Bytes;
use std::collections::BTreeMap;
use turnbuckle_core::{
    Answer, Context, Descriptor, Journal, Key, Level, Levels, Micros, Operation, Parameter, PlainProtocol,
    PlainRequest, PlainResponse, PlainSession, Protocol, Recovered, Replication, RequestId, ServerId, SiteId,
    Topology, Version, VersionId,
};
use turnbuckle_node::{Durability, NodeId, Planted};
use turnbuckle_sim::{Loss, Random, Span, World, WorldOptions};

const CHECKSUM: &str = "checksum";

/// The most names of state.
const PIECES: u64 = 40;

struct Ledger {
    /// Everything that is kept by name, except for the checksum.
    named: BTreeMap<String, Bytes>,
    /// What was wrong when it was opened, as text.
    wrong: Option<String>,
    /// The number of entries that it was opened with.
    found: u64,
    /// The number of bytes of state that came with a full copy.
    copied: usize,
    /// Reads whose key is being fetched, by their timers, and when they came.
    reads: BTreeMap<u64, (RequestId, Key, Micros)>,
    /// The number of reads that had to wait.
    waited: u64,
}

type Cx<'a> = Context<'a, Ledger>;

fn checksum(journal: &Journal, named: &BTreeMap<String, Bytes>) -> Bytes {
    let mut sum = crc32c::crc32c(format!("{}..{}", journal.first(), journal.next()).as_bytes());
    for (index, entry) in journal.from(0) {
        sum = crc32c::crc32c_append(sum, &index.to_be_bytes());
        sum = crc32c::crc32c_append(sum, entry);
    }
    for (name, bytes) in named.iter().filter(|(name, _)| *name != CHECKSUM) {
        sum = crc32c::crc32c_append(sum, name.as_bytes());
        sum = crc32c::crc32c_append(sum, bytes);
    }
    Bytes::copy_from_slice(&sum.to_be_bytes())
}

impl Ledger {
    /// What a write changes beside its key.
    fn change(&mut self, cx: &mut Cx<'_>, drawn: u64) {
        let journal = cx.journal();
        let (first, next) = (journal.first(), journal.next());
        match drawn % 16 {
            0..=9 => {
                for n in 0..1 + drawn / 16 % 4 {
                    cx.append(Bytes::from(format!("{drawn}/{n}")));
                }
            }
            // Other entries replace the last ones, as in a new term.
            10 | 11 => {
                cx.truncate(next - (drawn / 16 % 5).min(next - first));
                cx.append(Bytes::from(format!("instead {drawn}")));
            }
            12 => cx.purge(first + drawn / 16 % 6),
            // As when a full copy reaches further than the journal.
            13 if (drawn / 16).is_multiple_of(8) => cx.purge(next + 3),
            13 => {}
            14 => {
                let name = format!("piece {}", drawn / 16 % PIECES);
                let bytes = Bytes::from(vec![drawn as u8; (drawn / 1024 % 300) as usize]);
                self.named.insert(name.clone(), bytes.clone());
                cx.put_named(name, bytes);
            }
            _ => {
                let name = format!("piece {}", drawn / 16 % PIECES);
                self.named.remove(&name);
                cx.drop_named(name);
            }
        }
        let sum = checksum(cx.journal(), &self.named);
        cx.put_named(CHECKSUM, sum);
    }
}

impl Protocol for Ledger {
    type Config = ();
    type Request = PlainRequest;
    type Response = PlainResponse;
    type Message = ();
    /// The number of a read.
    type Timer = u64;
    type Meta = ();
    type Line = ();

    const DESCRIPTOR: Descriptor = Descriptor {
        tolerates_clock_steps: true,
        ..Descriptor::of(Replication::Majority)
    };
    const PARAMETERS: &'static [Parameter<()>] = &[];

    fn open((): &(), _: ServerId, _: Topology, recovered: &Recovered, _: u64) -> Ledger {
        let found = recovered.kept(CHECKSUM).cloned();
        let expected = checksum(&recovered.journal, &recovered.named);
        let is_right = match &found {
            Some(found) => *found == expected,
            None => recovered.journal == Journal::default() && recovered.named.is_empty(),
        };
        let journal = &recovered.journal;
        let wrong = format!(
            "the journal {}..{} is none that there was",
            journal.first(),
            journal.next()
        );
        let mut named = recovered.named.clone();
        named.remove(CHECKSUM);
        Ledger {
            named,
            wrong: (!is_right).then_some(wrong),
            found: journal.next() - journal.first(),
            copied: 0,
            reads: BTreeMap::new(),
            waited: 0,
        }
    }

    fn keys(&self, request: &PlainRequest, each: &mut dyn FnMut(&Key)) {
        // A read asks for its key later.
        if request.is_write() {
            each(request.key());
        }
    }

    fn is_write(request: &PlainRequest) -> bool {
        request.is_write()
    }

    fn on_start(&mut self, _: &mut Cx<'_>) {}

    fn on_request(&mut self, cx: &mut Cx<'_>, id: RequestId, request: PlainRequest) {
        let response = match request {
            PlainRequest::Get(key, _) | PlainRequest::Siblings(key, _) => {
                let timer = cx.stamp().0;
                self.reads.insert(timer, (id, key.clone(), cx.now.monotonic));
                return cx.when_resident(vec![key], timer);
            }
            PlainRequest::Put(key, value, ..) => {
                let (at, replica) = (cx.stamp(), cx.me.replica());
                let drawn = u64::from(crc32c::crc32c(&at.0.to_be_bytes()));
                let id = VersionId { at, replica };
                let (content, meta) = (value.into(), ());
                cx.put(key, Version { id, content, meta });
                self.change(cx, drawn);
                PlainResponse::Written { existed: false }
            }
        };
        let receipt = cx.receipt(Level::Eventual, None);
        cx.reply(id, response, receipt);
    }

    fn on_message(&mut self, _: &mut Cx<'_>, _: ServerId, (): ()) {}

    fn on_timer(&mut self, cx: &mut Cx<'_>, timer: u64) {
        let (id, key, since) = self.reads.remove(&timer).expect("it is being read");
        self.waited += u64::from(cx.now.monotonic > since);
        let value = cx
            .chain(&key)
            .and_then(|chain| chain.newest().content.stored().cloned());
        let receipt = cx.receipt(Level::Eventual, None);
        cx.reply(id, PlainResponse::Value(value), receipt);
    }

    fn on_copied(&mut self, _: &mut Cx<'_>, _: ServerId, copied: &Recovered) {
        assert_eq!(
            copied.journal,
            Journal::default(),
            "an entry stands for what is in the rows"
        );
        self.copied = copied.named.values().map(Bytes::len).sum();
    }
}

impl PlainProtocol for Ledger {
    const LEVELS: Levels = Levels::of_both(&[Level::Eventual]);
    const OVERLAPS: bool = true;
    const WRITES_ANYWHERE: bool = false;
}

const A: NodeId = NodeId(0);
const fn server(site: u16) -> ServerId {
    ServerId {
        site: SiteId(site),
        partition: 0,
        member: 0,
    }
}

const SERVER: ServerId = server(0);

fn options(seed: u64, sites: &[&str]) -> WorldOptions {
    let mut options = WorldOptions::plain(sites.iter().copied(), Micros::from_millis(5));
    options.seed = seed;
    options.partitions = 1;
    options.durability = match seed % 2 {
        0 => Durability::Fsync,
        _ => Durability::None,
    };
    options.batch_keys = 3;
    options.checkpoint_interval = Micros::from_millis(60);
    options.disk = Span::us(100, 6_000);
    options.sync = Span::us(100, 3_000);
    options
}

/// The value that is written now: the world's time.
fn value(world: &World<PlainSession<Ledger>>) -> Bytes {
    Bytes::from(format!("{:0200}", world.time().0))
}

fn put(world: &mut World<PlainSession<Ledger>>, client: usize, key: u64) {
    let key = Key::from(format!("k{key}").as_str());
    let value = value(world);
    world.ask(client, Operation::put(key, value));
}

/// Writes, and crashes after some of the writes. Returns what was wrong, and how many entries replicas have found in all.
fn run(seed: u64, planted: &str) -> (Option<String>, u64) {
    let mut options = options(seed, &["a"]);
    options.planted = Planted::only(planted).expect("it is a bug's name");
    let mut world = World::<PlainSession<Ledger>>::new(options, ());
    world.judge_nothing();
    let mut random = Random::new(seed);
    let mut found = 0;
    for _ in 0..8 {
        let client = world.add_client(A);
        for _ in 0..random.below(60) {
            put(&mut world, client, random.below(20));
            world.advance(Micros(random.below(9_000)));
        }
        let loss = match random.below(2) {
            0 => Loss::Process,
            _ => Loss::Power,
        };
        world.crash(A, loss);
        world.restart(A);
        world.advance(Micros::from_millis(30));
        let opened = world.inspect(SERVER, |ledger| (ledger.wrong.clone(), ledger.found));
        let Some((wrong, entries)) = opened else {
            return (Some(format!("{:?}", world.judge().violations())), found);
        };
        found += entries;
        if wrong.is_some() {
            return (wrong, found);
        }
    }
    (None, found)
}

#[test]
fn a_journal_and_named_state_come_back_as_they_were_whatever_was_cut_off() {
    let mut found = 0;
    for seed in 1..=150 {
        let (wrong, entries) = run(seed, "nothing");
        assert_eq!(wrong, None, "seed {seed}");
        found += entries;
    }
    assert!(found > 10_000, "only {found} entries came back");
}

#[test]
fn planted_bugs_are_found() {
    for bug in ["keeps_truncated_entries", "meta_before_the_rest"] {
        let found = (1..=150).find(|&seed| run(seed, bug).0.is_some());
        assert!(found.is_some(), "150 seeds do not show {bug}");
    }
}

/// Reads whose key no input names, with little memory. If a key is used while it is not in memory, the store panics.
#[test]
fn keys_that_a_replica_asks_for_are_in_memory_when_its_timer_fires() {
    let mut options = options(4, &["a"]);
    options.memory_limit_bytes = 3_000;
    let mut world = World::<PlainSession<Ledger>>::new(options, ());
    world.judge_nothing();
    let (client, mut random) = (world.add_client(A), Random::new(4));
    let (mut expected, mut right, mut wrong) = (BTreeMap::new(), 0, 0);
    for _ in 0..400 {
        let number = random.below(60);
        if random.below(2) == 0 {
            expected.insert(number, value(&world));
            put(&mut world, client, number);
        } else {
            let (key, level) = (Key::from(format!("k{number}").as_str()), None);
            let answer = world.ask(client, Operation::Get { key, level });
            let value = expected.get(&number).cloned();
            match answer.map(|answered| answered.0) == Some(Answer::Value(value)) {
                true => right += 1,
                false => wrong += 1,
            }
        }
        world.advance(Micros(random.below(9_000)));
    }
    let waited = world.inspect(SERVER, |ledger| ledger.waited).expect("it runs");
    assert!(right > 100 && wrong == 0, "{right} right, {wrong} wrong");
    assert!(waited > 50, "only {waited} reads waited for a disk");
}

/// Much state with long values: it needs many frames.
#[test]
fn a_full_copy_brings_all_state_and_no_journal() {
    let mut world = World::<PlainSession<Ledger>>::new(options(2, &["a", "b", "c"]), ());
    world.judge_nothing();
    for node in [1, 2] {
        let client = world.add_client(NodeId(node));
        for key in 0..400 {
            put(&mut world, client, key);
        }
    }
    assert!(world.settle(Micros::from_millis(60_000)));
    world.crash(A, Loss::Directory);
    world.restart(A);
    assert!(world.settle(Micros::from_millis(60_000)));
    let others = [1, 2].map(|site| {
        let server = server(site);
        let bytes = |ledger: &Ledger| ledger.named.values().map(Bytes::len).sum::<usize>() + 4;
        world.inspect(server, bytes).expect("it runs")
    });
    let copied = world.inspect(SERVER, |ledger| ledger.copied).expect("it runs");
    assert!(
        copied > 1_000 && others.contains(&copied),
        "{copied} of {others:?}"
    );
}
