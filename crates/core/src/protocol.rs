use crate::replica::{Emitted, Parts};
use crate::{
    BadFrame, Bug, Chain, Descriptor, Hlc, Journal, Key, Level, Metric, Micros, Now, Parameter, Proof,
    Receipt, ReplicaId, ReplicaSet, Route, ServerId, Topology, Version, VersionId, Versions, Vitals, Wire,
};
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The server side of a replication protocol: one replica of one partition, as a state machine.
///
/// Handlers take an input and emit outputs through the [`Context`]; nothing else happens inside. Time comes in with the
/// input, chance comes from the seed, and what is written is durable before anything emitted after it leaves. So
/// the same code runs in the server and in the simulator, and a run is determined by its inputs.
pub trait Protocol: Sized + Send + 'static {
    /// How it is set up; its default has the defaults of all parameters.
    type Config: Clone + Default + Send + Sync + 'static;
    /// What this protocol's sessions ask of a replica.
    type Request: Wire + Send + 'static;
    /// What a replica answers.
    type Response: Wire + Clone + Send + 'static;
    /// What replicas tell each other besides versions: by [`Context::send`] and [`Context::mark`].
    type Message: Wire + Clone + Send + 'static;
    /// When to wake up: an enum, one doc line each, beginning "When to".
    type Timer: Copy + Ord + Send + 'static;
    /// What is kept with each version.
    type Meta: Wire + Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static;
    /// What parked requests wait on: a monotone number, such as an entry of a vector.
    type Line: Copy + Ord + Send + 'static;

    /// What it is like.
    const DESCRIPTOR: Descriptor;
    /// What a keyspace's configuration may set.
    const PARAMETERS: &'static [Parameter<Self::Config>];
    /// The bugs that drawn worlds must find when they are planted. There may be others, for scripts.
    const BUGS: &'static [Bug] = &[];
    /// What it counts, for those who watch.
    const METRICS: &'static [Metric<Self>] = &[];

    /// Puts the bug of a name into a configuration, to see whether tests notice it. False if this protocol has none of that name.
    fn plant(_config: &mut Self::Config, _bug: &str) -> bool {
        false
    }

    /// Divides intervals of what it does seldom, and limits of what it remembers, by this: a simulated world of two seconds sees what a
    /// server sees in an hour.
    fn shrink(_config: &mut Self::Config, _by: u32) {}

    /// A replica over the store that an earlier life left, or a new one, with what was kept beside it. `seed` is all the
    /// randomness there is.
    fn open(
        config: &Self::Config,
        me: ServerId,
        topology: Topology,
        recovered: &Recovered,
        seed: u64,
    ) -> Self;

    // ---- what an input needs ------------------------------------------------------------------------------------

    /// The keys that `request` may read or write, as far as this replica knows now. The driver makes them resident and asks again, until all are; then
    /// the request is handled.
    fn keys(&self, request: &Self::Request, each: &mut dyn FnMut(&Key));

    /// The keys that a peer's `message` makes this replica read or write: those that it names, and those of what the replica has under way that it brings to
    /// an end. Made resident likewise; if one cannot be read the message is lost.
    fn message_keys(&self, _from: ServerId, _message: &Self::Message, _each: &mut dyn FnMut(&Key)) {}

    /// The keys that `request` makes this replica ask other servers of its site for. If one of these cannot be asked, and will not be before
    /// its node is restarted, the driver refuses the request.
    fn keys_elsewhere(_request: &Self::Request, _each: &mut dyn FnMut(&Key)) {}

    /// Whether `request` may write. While a node's disk has no room, those that do are refused and the others served.
    fn is_write(request: &Self::Request) -> bool;

    // ---- inputs ---------------------------------------------------------------------------------------------------

    /// Once, before any other input.
    fn on_start(&mut self, cx: &mut Context<'_, Self>);

    /// A session asks. Answer with [`Context::reply`], now or later, or park it with [`Context::wait`]; every request gets one reply.
    fn on_request(&mut self, cx: &mut Context<'_, Self>, id: RequestId, request: Self::Request);

    /// A peer's [`Context::send`] arrives. Some never do.
    fn on_message(&mut self, cx: &mut Context<'_, Self>, from: ServerId, message: Self::Message);

    /// A timer is due.
    fn on_timer(&mut self, cx: &mut Context<'_, Self>, timer: Self::Timer);

    /// A parked request's deadline passed. It still gets its reply.
    fn on_deadline(&mut self, _: &mut Context<'_, Self>, _id: RequestId, _request: Self::Request) {
        unreachable!("a protocol that parks requests says what becomes of them")
    }

    /// The link to the node of a peer came up or went down.
    fn on_link(&mut self, _: &mut Context<'_, Self>, _peer: ServerId, _up: bool) {}

    // ---- streams: never called where the descriptor says that there are none ----------------------------------------

    /// The next entry of a peer's durable stream: exactly once, in order, across crashes of either end. The
    /// stream's position commits with what this handler stages.
    ///
    /// `from` is this replica itself for writes of its own that a power loss took and a peer gave back: they
    /// must be put and replicated again.
    fn on_replicated(
        &mut self,
        _: &mut Context<'_, Self>,
        _from: ServerId,
        _key: Key,
        _version: Version<Self::Meta>,
    ) {
    }

    /// A peer's [`Context::mark`], behind every stream entry that the peer had replicated before it.
    fn on_mark(&mut self, _: &mut Context<'_, Self>, _from: ServerId, _message: Self::Message) {}

    /// The link to a peer at another site is up, and it says what may be forgotten there. This comes before anything else of that peer.
    fn on_resumed(&mut self, _: &mut Context<'_, Self>, _from: ServerId, _forgotten: &Forgotten) {}

    /// A peer at another site has given back the versions that this replica lost, as far as the peer still has them. Some it has not: newer ones have
    /// replaced them there, and those may not be here yet. `returned` tells how new they may be: its cut has the newest such delete of each site,
    /// and if this replica lost everything, `named` has what the peer keeps beside its versions.
    fn on_returned(&mut self, _: &mut Context<'_, Self>, _from: ServerId, _returned: &Recovered) {}

    /// The cut this replica covers: for each site, everything that site stamped up to this time is in the store (or was,
    /// until something newer made it collectable). A full copy made now claims this much, and what comes again after a restart is passed
    /// over up to here. So of another site it is no more than what no power loss can take there any more: what is given back after one
    /// comes with its old time. A copy of a replica that claims nothing is merged into what is there.
    fn cut(&self) -> Vec<(ReplicaId, Hlc)> {
        Vec::new()
    }

    /// Which deletes may be forgotten, as far as it is known here. Peers are told when a link comes up ([`Protocol::on_resumed`]).
    fn forgotten(&self) -> Forgotten {
        Forgotten::default()
    }

    // ---- full copies ------------------------------------------------------------------------------------------------

    /// A full copy of `from` is about to replace, row by row, what it covers. `copied` is what `from` had beside its versions.
    fn on_copying(&mut self, _: &mut Context<'_, Self>, _from: ServerId, _copied: &Recovered) {}

    /// It has: for each site of its cut, everything stamped up to the time is here.
    fn on_copied(&mut self, _: &mut Context<'_, Self>, _from: ServerId, _copied: &Recovered) {}

    // ---- what may be collected and forgotten ------------------------------------------------------------------------

    /// Whether nobody may ask this replica any more for what is older than this version: then that is collected. Never asked of
    /// a protocol without history.
    fn covered(&self, _version: &Version<Self::Meta>) -> bool {
        false
    }

    /// Nobody asks for less than what was stamped up to here, and every site shows everything that was stamped up to here, whatever
    /// is lost there: a delete up to here that is its key's newest version is forgotten. A protocol that cannot know that keeps all deletes.
    fn settled(&self) -> Hlc {
        Hlc::ZERO
    }

    /// Everything that was stamped up to here is shown here, and others may know that: they may have forgotten deletes up to here.
    fn shown(&self) -> Hlc {
        Hlc::ZERO
    }

    // ---- for those who watch ----------------------------------------------------------------------------------------

    /// Whether this replica knows that its data directory is an old copy: it serves nothing then, and gives others nothing.
    fn is_outdated(&self) -> bool {
        false
    }

    /// What it says of itself as every protocol does.
    fn vitals(&self, _: Now) -> Vitals {
        Vitals::default()
    }

    /// The invariants, with words. Called in tests and in the simulator, after each of the first thousand inputs and one in sixteen of the others.
    fn validate(&self) {}
}

/// What is kept of a replica beside its versions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// What [`Protocol::cut`] said when the last checkpoint was taken, or the copied replica's.
    pub cut: Vec<(ReplicaId, Hlc)>,
    /// What was last staged under each name ([`Context::put_named`]).
    pub named: BTreeMap<String, Bytes>,
    /// The protocol's own log; empty in a full copy, which stands for what its entries did.
    pub journal: Journal,
    /// Rows are missing here, and nobody knows which: the cut is empty. What `named` tells of was here once, and clients may know it.
    pub lacks_rows: bool,
}

impl Recovered {
    /// What was last staged under a name, if everything that it speaks of is here.
    pub fn kept(&self, name: &str) -> Option<&Bytes> {
        self.named.get(name).filter(|_| !self.lacks_rows)
    }
}

/// What a replica says, when a link to another site comes up, of the deletes that are forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forgotten {
    /// Deletes up to here may be forgotten, as far as the replica knows; `None` if it knows nothing, because a directory that was empty is still
    /// being filled by peers.
    pub until: Option<Hlc>,
    /// The birth of the replica's own data directory, the time when it began, once the replica has promised anything, and those of the directories at other sites by whose word deletes were forgotten.
    pub directories: BTreeMap<ReplicaId, u64>,
    /// The newest births that the replica knows of other sites' directories: one with an earlier birth is an old copy.
    pub met: BTreeMap<ReplicaId, u64>,
}

impl Forgotten {
    /// Births are microseconds since 1970, or count on from there: none gets here in a hundred thousand years.
    const LAST_BIRTH: u64 = 1 << 62;

    /// Checks a birth that comes from outside.
    ///
    /// # Errors
    /// If no clock gives it.
    pub fn check_birth(birth: u64) -> Result<u64, BadFrame> {
        match birth >= Forgotten::LAST_BIRTH {
            true => Err(BadFrame::new("the birth of a directory", birth.to_string())),
            false => Ok(birth),
        }
    }
}

/// A request in flight: the driver's name for where the reply goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl RequestId {
    const LOOP_BITS: u32 = 15;
    const NUMBER_BITS: u32 = 48;
    const FROM_PEER: u64 = 1 << 63;

    /// The driver's request `number` of event loop `index`.
    ///
    /// # Panics
    /// If the index has more than 15 bits, or the number more than 48.
    pub fn of_loop(index: usize, number: u64) -> RequestId {
        assert!(index >> Self::LOOP_BITS == 0, "loop {index} of at most 32768");
        assert!(
            number >> Self::NUMBER_BITS == 0,
            "a request number of more than 48 bits"
        );
        RequestId((index as u64) << Self::NUMBER_BITS | number)
    }

    /// Request `number` among those that other nodes passed on.
    pub fn of_peer(number: u64) -> RequestId {
        RequestId(Self::FROM_PEER | number)
    }

    /// The loop that the answer goes to, or `None` if another node asked.
    pub fn loop_index(self) -> Option<usize> {
        (self.0 & Self::FROM_PEER == 0).then_some((self.0 >> Self::NUMBER_BITS) as usize)
    }

    /// The number within its loop, or among those of other nodes.
    pub fn number(self) -> u64 {
        if self.0 & Self::FROM_PEER == 0 {
            self.0 & ((1 << Self::NUMBER_BITS) - 1)
        } else {
            self.0 & !Self::FROM_PEER
        }
    }
}

/// Something staged: it goes into the commit log with the batch it belongs to, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write<M> {
    /// A version; if `to` names sites, also the next entry of the durable stream to the replicas there.
    Put {
        /// Its key.
        key: Key,
        /// The version.
        version: Version<M>,
        /// The sites it is streamed to.
        to: ReplicaSet,
        /// Key and version as they arrived from a peer, if they did: the driver need not encode them again.
        encoded: Option<Bytes>,
    },
    /// The next entry of the durable stream to the replicas at these sites, which is not stored here.
    Hint {
        /// Its key.
        key: Key,
        /// The version.
        version: Version<M>,
        /// The replicas it is streamed to.
        to: ReplicaSet,
    },
    /// A version that is no longer needed here.
    Drop {
        /// Its key.
        key: Key,
        /// Which version.
        id: crate::VersionId,
    },
    /// A piece of the protocol's own state, by name; the last one counts.
    Named {
        /// The name.
        name: Cow<'static, str>,
        /// The state, or `None` if it is dropped.
        bytes: Option<Bytes>,
    },
    /// The next entry of the protocol's journal.
    Append {
        /// Its index.
        index: u64,
        /// The entry.
        entry: Bytes,
    },
    /// The journal's entries from this index on are dropped.
    Truncate(u64),
    /// The journal's entries before this index are dropped.
    Purge(u64),
    /// The hybrid logical clock's bound: no timestamp at or above it is ever shown before this is synced.
    Bound(Hlc),
}

/// What a handler sees and does. Emits in order; the order is kept.
pub struct Context<'a, P: Protocol> {
    /// The time of this input.
    pub now: Now,
    /// Who this replica is.
    pub me: ServerId,
    /// Where the others are.
    pub topology: &'a Topology,
    /// How long the request at hand was parked before this run of it.
    pub waited: Micros,
    pub(crate) store: &'a mut dyn Versions<P::Meta>,
    pub(crate) parts: &'a mut Parts<P>,
}

impl<P: Protocol> Context<'_, P> {
    /// The chain of a key that this input names.
    pub fn chain(&self, key: &Key) -> Option<&Chain<P::Meta>> {
        self.store.chain(key.as_ref())
    }

    /// The other replicas of this partition.
    pub fn peers(&self) -> impl Iterator<Item = ServerId> + use<P> {
        let me = self.me;
        self.others().iter().map(move |replica| me.peer(replica))
    }

    /// The other replicas of this partition, as a set.
    pub fn others(&self) -> ReplicaSet {
        self.topology.others_of(self.me)
    }

    /// A timestamp above all given and seen here, in this and every earlier life.
    pub fn stamp(&mut self) -> Hlc {
        let stamp = self.parts.clock.stamp(self.now);
        self.parts.keep_bound(stamp);
        stamp
    }

    /// The time up to which this replica has stamped everything it ever will: every later stamp is above it.
    pub fn promise(&mut self) -> Hlc {
        let promise = self.parts.clock.tick(self.now);
        self.parts.keep_bound(promise);
        self.parts.promised = promise;
        promise
    }

    /// What a protocol has stamped or promised that goes by a clock of its own: every later stamp of it is above this.
    pub fn promised(&mut self, promise: Hlc) {
        self.parts.promised = promise;
        // For those who ask how far this replica is.
        self.parts.clock.observe(promise);
    }

    /// The last promise whose mark was sent when everything that it speaks of was on disk here: no power loss takes any of that.
    pub fn settled_promise(&self) -> Hlc {
        self.parts.settled
    }

    /// How many marks there were in this life ([`Context::mark`]).
    pub fn marks(&self) -> u64 {
        self.parts.marks
    }

    /// How many of the first marks are settled: whatever was staged before the last of them is on disk here, and no power loss takes it. A promise
    /// does not say that: a clock that is ahead of its wall clock gives the same promise again.
    pub fn settled_marks(&self) -> u64 {
        self.parts.settled_marks
    }

    /// Takes note of a timestamp from elsewhere: later stamps are above it.
    pub fn observe(&mut self, seen: Hlc) {
        self.parts.clock.observe(seen);
    }

    /// Stages a version of a key that this input names. False, and nothing staged, if the store does not want it: it has it,
    /// or (without history) something newer.
    pub fn put(&mut self, key: Key, version: Version<P::Meta>) -> bool {
        self.stage_version(key, version, ReplicaSet::default())
    }

    /// Stages a version here and, in the same record, as the next entry of the durable stream to this
    /// partition's replicas at `to`: each takes it in exactly once, in order, however long it is away.
    ///
    /// A version that the store does not want is not streamed either: what is newer was, or came from elsewhere and
    /// its writer streams it.
    pub fn replicate(&mut self, to: ReplicaSet, key: Key, version: Version<P::Meta>) -> bool {
        self.stage_version(key, version, to)
    }

    /// Stages a version as the next entry of the durable stream to this partition's replicas at `to`, and leaves the store as it is: for replicas that
    /// did not answer when they were told of a version which is here already. As with [`Context::replicate`] each takes it in exactly once, however
    /// long it is away ([`Protocol::on_replicated`]). Literature calls that a hint (Dynamo, 4.6).
    ///
    /// A replica's stream has what the replica stamped, in no order of stamps but behind its promises: whoever has heard a promise passes over what is older than that. So
    /// a protocol that gives hints promises nothing ([`Context::promise`]) beyond the oldest write that it may still have to hint.
    ///
    /// # Panics
    /// If another replica stamped the version, or this one has promised since that it stamps nothing older.
    pub fn hint(&mut self, to: ReplicaSet, key: Key, version: Version<P::Meta>) {
        assert!(
            version.id.replica == self.me.replica(),
            "a hint of a version that another replica stamped"
        );
        assert!(
            version.id.at > self.parts.promised,
            "a hint of a version from before the last promise"
        );
        let to = to.without(self.me.replica());
        if !to.is_empty() {
            self.parts.staged.push(Write::Hint { key, version, to });
        }
    }

    fn stage_version(&mut self, key: Key, version: Version<P::Meta>, to: ReplicaSet) -> bool {
        let wanted = self.store.put(&key, version.clone());
        if wanted {
            let arrived = self.parts.arrived.take_if(|(id, _)| *id == version.id);
            let encoded = arrived.map(|(_, bytes)| bytes);
            self.parts.staged.push(Write::Put {
                key,
                version,
                to,
                encoded,
            });
        }
        wanted
    }

    /// Drops of a key's chain what is older than its newest `covered` version, if the chain has grown long: hot keys need not
    /// wait for a checkpoint.
    pub fn collect(&mut self, key: &Key, covered: impl Fn(&Version<P::Meta>) -> bool) {
        self.store.collect(key.as_ref(), &covered);
    }

    /// What is staged in this batch is synced before anything emitted after it leaves, whatever the keyspace's durability: a power loss takes nothing
    /// of it. Nothing happens if nothing is staged.
    pub fn sync(&mut self) {
        self.parts.must_sync |= !self.parts.staged.is_empty();
    }

    /// Stages a piece of the protocol's own state. There may be many, and each may be long: a checkpoint writes those that have changed.
    pub fn put_named(&mut self, name: impl Into<Cow<'static, str>>, bytes: Bytes) {
        let (name, bytes) = (name.into(), Some(bytes));
        self.parts.staged.push(Write::Named { name, bytes });
    }

    /// Stages that a piece of state is dropped.
    pub fn drop_named(&mut self, name: impl Into<Cow<'static, str>>) {
        let (name, bytes) = (name.into(), None);
        self.parts.staged.push(Write::Named { name, bytes });
    }

    /// The protocol's own log, with everything that was staged so far.
    pub fn journal(&self) -> &Journal {
        &self.parts.journal
    }

    /// Appends an entry to the journal, and returns its index.
    pub fn append(&mut self, entry: Bytes) -> u64 {
        let index = self.parts.journal.append(entry.clone());
        self.parts.staged.push(Write::Append { index, entry });
        index
    }

    /// Drops the journal's entries from `from` on: others were agreed on.
    pub fn truncate(&mut self, from: u64) {
        if self.parts.journal.truncate(from) {
            self.parts.staged.push(Write::Truncate(from));
        }
    }

    /// Drops the journal's entries before `until`: what they did is in the store, and nobody needs them any more. If `until` is behind the last
    /// entry, as after a full copy, none is left, and `until` is the index of the next one.
    pub fn purge(&mut self, until: u64) {
        if self.parts.journal.purge(until) {
            self.parts.staged.push(Write::Purge(until));
        }
    }

    /// Tells a server something that it may miss: in order with other sends to it, gone if the connection is.
    pub fn send(&mut self, to: ServerId, message: P::Message) {
        self.parts.emit(Emitted::Send { to, message });
    }

    /// Tells this partition's replicas at `to` something that travels behind every stream entry so far. Never stored; only
    /// the newest is kept while a peer is away or slow. Time promises are marks.
    pub fn mark(&mut self, to: ReplicaSet, message: P::Message) {
        let promise = self.parts.promised;
        let number = self.parts.marks;
        self.parts.marks += 1;
        self.parts.emit(Emitted::Mark {
            to,
            message,
            promise,
            number,
        });
    }

    /// The receipt of an answer that is given here at a level, about a version. It proves nothing yet.
    pub fn receipt(&self, given: Level, version: Option<VersionId>) -> Receipt {
        Receipt {
            asked: given,
            given,
            version,
            server: self.me,
            route: Route::Local,
            waited: self.waited,
            staleness: None,
            clock_bound: self.now.wall.bound(),
            siblings: false,
            proof: Proof::Plain,
        }
    }

    /// Whether this replica has everything that it ever acknowledged, as far as it knows. If not, nothing that it reads is a proof of
    /// anything.
    pub fn proves(&self) -> bool {
        !self.parts.takes_back
    }

    /// Whether the node's disk has room. Without it, requests that write are refused before the protocol hears of them, and entries of streams wait. A message
    /// that makes a replica store something is the protocol's own to refuse.
    pub fn has_room(&self) -> bool {
        self.parts.has_room
    }

    /// Answers a request.
    pub fn reply(&mut self, id: RequestId, response: P::Response, mut receipt: Receipt) {
        if !self.proves() {
            receipt.staleness = None;
        }
        self.parts.emit(Emitted::Reply {
            id,
            response,
            receipt,
        });
    }

    /// Sets or resets a timer.
    pub fn set_timer(&mut self, timer: P::Timer, after: Micros) {
        self.parts.timers.set(timer, self.now.monotonic + after);
    }

    /// Lets `timer` fire as soon as these keys are in memory: [`Context::chain`] knows all of them then. For keys that an input does not name by itself, such as those of
    /// journal entries that a message commits. Of two such calls the second may fire first, unless they share a key. If a key cannot be read, it is
    /// tried again when the next timer of the replica is due. None of it outlives the process.
    pub fn when_resident(&mut self, keys: Vec<Key>, timer: P::Timer) {
        self.parts.wanted.push_back((keys, timer));
    }

    /// Asks another replica of this partition for a full copy that is taken after now. It replaces what it covers here, as one that the driver asks for by itself
    /// does: [`Protocol::on_copying`] and [`Protocol::on_copied`] hear of it. Requests are served meanwhile. The peer's stream, if it has one, waits.
    ///
    /// The copy's cut is what [`Protocol::cut`] said at the peer when its checkpoint began. Rows and what is kept by name may be newer: the copy has
    /// everything up to the cut, and some of what came after it.
    ///
    /// If the link breaks, the copy is asked for again. Nothing of this outlives the process. Two calls before the copy begins are one.
    ///
    /// # Panics
    /// If `from` is not another replica of this partition.
    pub fn want_copy(&mut self, from: ServerId) {
        let is_peer = from.partition == self.me.partition && self.others().contains(from.replica());
        assert!(
            is_peer,
            "a full copy comes from another replica of the partition, not from {from}"
        );
        self.parts.wanted_copies.push_back(from);
    }

    /// Parks a request until `line` has reached `point`; then it runs again. At the deadline (a point in monotonic
    /// time) it goes to [`Protocol::on_deadline`] instead.
    pub fn wait(&mut self, line: P::Line, point: u64, deadline: Micros, id: RequestId, request: P::Request) {
        let since = self.now.monotonic.since(self.waited);
        self.parts.waiting.park(line, point, deadline, since, id, request);
    }

    /// Runs a request again, as one that has been parked: its keys may have been evicted meanwhile, and the driver makes them resident
    /// first.
    pub fn run_again(&mut self, id: RequestId, request: P::Request) {
        let since = self.now.monotonic.since(self.waited);
        self.parts.waiting.again(since, id, request);
    }

    /// `line` has reached `point`: wakes exactly the requests that waited for that much. A line never goes back;
    /// a smaller point changes nothing.
    pub fn advance(&mut self, line: P::Line, point: u64) {
        self.parts.waiting.advance(line, point);
    }
}
