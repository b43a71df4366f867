use crate::replica::{Arrived, Emitted, Parts};
use crate::{
    Applied, BadFrame, Base, Bug, Chain, Descriptor, Hlc, Journal, Key, Level, Meta, Metric, Micros, Misfit,
    Now, Parameter, Placed, Proof, Rank, Receipt, ReplicaId, ReplicaSet, Route, ServerId, SiteId, Topology,
    Version, VersionId, Versions, Vitals, Wire,
};
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The server side of a replication protocol: one replica of one partition, as a state machine.
///
/// Handlers take an input and emit outputs through the [`Context`]; nothing else happens inside. Time comes in with the input, randomness comes from
/// the seed, and what is written is durable before anything emitted after it leaves. So the same code runs in the server and in the simulator, and a
/// run is determined by its inputs.
pub trait Protocol: Sized + Send + 'static {
    /// Its configuration. The default has the defaults of all parameters.
    type Config: Clone + Default + Send + Sync + 'static;
    /// What this protocol's sessions ask of a replica.
    type Request: Wire + Send + 'static;
    /// What a replica answers.
    type Response: Wire + Clone + Send + 'static;
    /// What replicas tell each other besides versions: by [`Context::send`] and [`Context::mark`].
    type Message: Wire + Clone + Send + 'static;
    /// When to wake up: an enum, one doc line each, beginning "When to".
    type Timer: Copy + Ord + Send + 'static;
    /// The metadata that is kept with each version.
    type Meta: Meta;
    /// The name of a line, on which parked requests wait: a number that only rises, such as an entry of a vector.
    type Line: Copy + Ord + Send + 'static;

    /// The protocol's properties.
    const DESCRIPTOR: Descriptor;
    /// The parameters that a keyspace's configuration may set.
    const PARAMETERS: &'static [Parameter<Self::Config>];
    /// The bugs that worlds drawn from seeds must find when they are planted. [`Protocol::plant`] may know others, for scripts.
    const BUGS: &'static [Bug] = &[];
    /// The numbers that it counts, for monitoring.
    const METRICS: &'static [Metric<Self>] = &[];

    /// Plants the bug of this name into a configuration, to test whether tests find it. Returns false if the protocol has no bug of this name.
    fn plant(_config: &mut Self::Config, _bug: &str) -> bool {
        false
    }

    /// What an operator should know of operations at this level with this configuration, if that is a surprise: that they often cost more than the
    /// level's name says.
    fn doubt(_config: &Self::Config, _level: Level) -> Option<String> {
        None
    }

    /// Checks whether the parameters fit each other. Each of them has a value that it can have.
    ///
    /// # Errors
    /// If one of them does not fit the others.
    fn check(_config: &Self::Config) -> Result<(), Misfit> {
        Ok(())
    }

    /// Divides by `by` the intervals of what the protocol does seldom, and the limits of what it remembers. So a simulated world of two seconds sees
    /// what a server sees in an hour.
    fn shrink(_config: &mut Self::Config, _by: u32) {}

    /// A replica over a new store, or over the store that was left before a restart, with what was kept beside it. `seed` is the only source of
    /// randomness.
    fn open(
        config: &Self::Config,
        me: ServerId,
        topology: Topology,
        recovered: &Recovered,
        seed: u64,
    ) -> Self;

    // ---- what an input needs ------------------------------------------------------------------------------------

    /// The keys that `request` may read or write, as far as this replica knows now. The driver makes them resident and asks again, until all keys are
    /// resident. Then the request is handled.
    fn keys(&self, request: &Self::Request, each: &mut dyn FnMut(&Key));

    /// The keys that a peer's `message` makes this replica read or write: those that the message names, and those of operations under way here that
    /// it completes. The driver makes them resident as well. If one cannot be read, the message is dropped.
    fn message_keys(&self, _from: ServerId, _message: &Self::Message, _each: &mut dyn FnMut(&Key)) {}

    /// The keys for which `request` makes this replica ask other servers of its site. If one of those servers cannot be asked until its node is
    /// restarted, the driver refuses the request.
    fn keys_elsewhere(_request: &Self::Request, _each: &mut dyn FnMut(&Key)) {}

    /// Whether `request` may write. While a node's disk has no room, requests that may write are refused and all others are served.
    fn is_write(request: &Self::Request) -> bool;

    // ---- inputs ---------------------------------------------------------------------------------------------------

    /// Called once, before any other input.
    fn on_start(&mut self, cx: &mut Context<'_, Self>);

    /// A session asks. Answer with [`Context::reply`], now or later, or park the request with [`Context::wait`]. Every request gets exactly one
    /// reply.
    fn on_request(&mut self, cx: &mut Context<'_, Self>, id: RequestId, request: Self::Request);

    /// A message arrives that a peer sent with [`Context::send`]. Messages may be lost.
    fn on_message(&mut self, cx: &mut Context<'_, Self>, from: ServerId, message: Self::Message);

    /// A timer is due.
    fn on_timer(&mut self, cx: &mut Context<'_, Self>, timer: Self::Timer);

    /// A parked request's deadline passed. The protocol must still reply to it.
    fn on_deadline(&mut self, _: &mut Context<'_, Self>, _id: RequestId, _request: Self::Request) {
        unreachable!("a protocol that parks requests must implement on_deadline")
    }

    /// The link to the node of a peer came up or went down.
    fn on_link(&mut self, _: &mut Context<'_, Self>, _peer: ServerId, _up: bool) {}

    // ---- streams: never called for a protocol without streams -------------------------------------------------------

    /// The next entry of a peer's durable stream: exactly once, in order, across crashes of either end. The
    /// stream's position commits with what this handler stages.
    ///
    /// For writes of its own that a power loss took and that a peer sends again, `from` is this replica itself. They must be put and replicated
    /// again.
    fn on_replicated(
        &mut self,
        _: &mut Context<'_, Self>,
        _from: ServerId,
        _key: Key,
        _version: Version<Self::Meta>,
    ) {
    }

    /// A peer's [`Context::mark`] arrives, behind every stream entry that the peer had replicated before it.
    fn on_mark(&mut self, _: &mut Context<'_, Self>, _from: ServerId, _message: Self::Message) {}

    /// The link to a peer at another site is up, and the peer says which deletes may be forgotten there. This comes before any other input from that
    /// peer.
    fn on_resumed(&mut self, _: &mut Context<'_, Self>, _from: ServerId, _forgotten: &Forgotten) {}

    /// A peer at another site has sent again the versions that this replica lost, as far as the peer still has them. Others are gone there, because
    /// newer versions have replaced them, and those newer ones may not be here yet. `returned` tells how new they may be: they were stamped up to its
    /// `replaced`, and its cut has the newest such delete of each site. If this replica lost everything, `named` has what the peer keeps beside its versions.
    fn on_returned(&mut self, _: &mut Context<'_, Self>, _from: ServerId, _returned: &Recovered) {}

    /// The cut that this replica covers: for each site, everything that the site stamped up to this time is in the store (or was, until something
    /// newer made it collectable). A full copy that is made now claims this cut. After a restart, what arrives again from up to this cut is skipped.
    /// So the entry of another site must not be later than what no power loss can take at that site any more: versions that are sent back after a
    /// power loss have their old times. A full copy of a replica that claims nothing is merged into what is here.
    fn cut(&self) -> Vec<(ReplicaId, Hlc)> {
        Vec::new()
    }

    /// How far the versions here have the effects of the journal's entries. A full copy that is made now says so to its receiver
    /// ([`Recovered::applied`]), which has no other way to learn it: what is kept by name is newer than the rows of the copy.
    fn applied(&self) -> Applied {
        Applied::default()
    }

    /// Which deletes may be forgotten, as far as this replica knows. Peers are told when a link comes up ([`Protocol::on_resumed`]).
    fn forgotten(&self) -> Forgotten {
        Forgotten::default()
    }

    // ---- full copies ------------------------------------------------------------------------------------------------

    /// A full copy of `from` is about to replace, row by row, what it covers. `copied` is what `from` had beside its versions.
    fn on_copying(&mut self, _: &mut Context<'_, Self>, _from: ServerId, _copied: &Recovered) {}

    /// The full copy is in place: for each site of its cut, everything that was stamped up to that time is here.
    fn on_copied(&mut self, _: &mut Context<'_, Self>, _from: ServerId, _copied: &Recovered) {}

    /// The time at which a read looks at values that expire. `hybrid` is that of the hybrid clock: see [`Context::read_time`]. A protocol that stamps by
    /// another clock goes by that clock.
    fn read_time(&self, hybrid: Hlc, _: Now) -> Hlc {
        hybrid
    }

    // ---- what may be collected and forgotten ------------------------------------------------------------------------

    /// Whether no request to this replica may read a version of the key that is older than this one. Then the older ones are collected. Where siblings are
    /// kept: whether everything that was stamped up to then is shown everywhere, and not taken back. Never true for other protocols without history.
    fn covered(&self, _version: &Version<Self::Meta>) -> bool {
        false
    }

    /// Deletes that were stamped up to this time and are their keys' newest versions are forgotten. The protocol must know that no read asks for less
    /// than everything that was stamped up to this time, and that every site shows all of that, whatever is lost there. And no version
    /// may come any more that is older than such a delete in the order of versions ([`crate::Rank`]), also if it was stamped later. A protocol that cannot know
    /// that keeps all deletes.
    fn settled(&self) -> Hlc {
        Hlc::ZERO
    }

    /// Everything up to this time is *closed* here: what has not arrived yet was stamped by a site that showed everything which was stamped up to then. See `floor.rs`.
    fn closed(&self) -> Hlc {
        Hlc::ZERO
    }

    /// Everything up to this time is closed at every site. Keys with shares whose end is not later are forgotten. Protocols without shares need not say it.
    fn closed_everywhere(&self) -> Hlc {
        Hlc::LATEST
    }

    /// Everything that was stamped up to this time is shown here, and other replicas may know that: they may have forgotten deletes up to this time.
    fn shown(&self) -> Hlc {
        Hlc::ZERO
    }

    // ---- what is missing --------------------------------------------------------------------------------------------

    /// Whether a full copy of this replica is a whole one although rows are missing here: it has the effects of all entries that it has applied, and what else is missing comes to the receiver in other ways.
    fn is_sound_source(&self) -> bool {
        false
    }

    /// Only for [`Replication::Consensus`](crate::Replication), of a replica that was opened with [`Recovered::lacks_rows`]: whether it has again what its
    /// directory had. The driver refuses all requests until it has. Once it has, that remains so.
    fn completeness(&self) -> Completeness {
        Completeness::Whole
    }

    // ---- leaders ----------------------------------------------------------------------------------------------------

    /// An operator, or the end of this replica's node, wants something of it.
    fn on_wish(&mut self, _: &mut Context<'_, Self>, _wish: Wish) {}

    /// If the replicas of a partition elect a leader: what this one knows of that.
    fn group(&self) -> Option<GroupStatus> {
        None
    }

    /// If each site has a group of its own, and this replica leads one: how far the groups of the other sites are with what they are sent.
    fn forwards(&self, _: Now) -> Vec<Forwarding> {
        Vec::new()
    }

    // ---- monitoring and tests ---------------------------------------------------------------------------------------

    /// Whether this replica knows that its data directory is an old copy. It then serves nothing, and sends peers neither full copies nor what they
    /// lost.
    fn is_outdated(&self) -> bool {
        false
    }

    /// The numbers that every protocol reports.
    fn vitals(&self, _: Now) -> Vitals {
        Vitals::default()
    }

    /// Checks the protocol's invariants, and panics with words. Called in tests and in the simulator, after each of the first thousand inputs and one
    /// in sixteen of the others.
    fn validate(&self) {}
}

/// Whether a replica has again what it lost with its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completeness {
    /// Not yet.
    Incomplete,
    /// As much as there is. Other replicas have lost their directories as well, and what only they had is lost.
    Partial,
    /// It has everything.
    Whole,
}

/// What an operator, or the end of its node, wants of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// That it leads its partition.
    Lead,
    /// That another replica leads, if this one does.
    HandOver,
    /// That replicas are what they are said to be, if this one leads. A change may take several steps: the wish is repeated until it is fulfilled.
    Members(Vec<MemberChange>),
}

/// What a replica is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberChange {
    /// The replica.
    pub replica: ReplicaId,
    /// What it is to be.
    pub wanted: Membership,
}

/// Why a leader does not make replicas what they are to be, or not yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberRefusal {
    /// The partition has no such replica.
    Unknown(ReplicaId),
    /// No voter would be left.
    NoVoters,
    /// Another change of members or leaders is under way.
    Busy,
    /// A learner is to vote, and its leader does not hear it.
    Silent(ReplicaId),
    /// A learner is to vote, and takes a full copy.
    TakesCopy(ReplicaId),
    /// A learner is to vote, and lacks this number of entries.
    Lags(ReplicaId, u64),
    /// Of the voters that there would be, the leader hears no majority.
    NoMajority {
        /// The number of voters.
        voters: usize,
        /// The number of those that it hears.
        heard: usize,
    },
}

impl MemberRefusal {
    /// Whether to ask again would be in vain.
    pub fn is_final(self) -> bool {
        matches!(self, MemberRefusal::Unknown(_) | MemberRefusal::NoVoters)
    }
}

/// What a replica is in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Membership {
    /// It takes all writes, and votes.
    Voter,
    /// It takes all writes, and does not vote: no write waits for it.
    Learner,
    /// It takes no part.
    None,
}

/// The names are those of scripts, scenario files and the status.
impl std::str::FromStr for Membership {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Membership, &'static str> {
        let known = [Membership::Voter, Membership::Learner, Membership::None];
        let mut known = known.into_iter();
        known
            .find(|known| known.name() == name)
            .ok_or("expected voter, learner or none")
    }
}

impl Membership {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Membership::Voter => "voter",
            Membership::Learner => "learner",
            Membership::None => "none",
        }
    }
}

/// What a replica knows of the leader and the members of its partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupStatus {
    /// The replicas that may be its members: those of the partition, or of the partition at one site.
    pub replicas: ReplicaSet,
    /// The leader that it follows, or itself.
    pub leader: Option<ReplicaId>,
    /// The term.
    pub term: u64,
    /// The index up to which entries are committed, as far as it knows.
    pub committed: u64,
    /// The index up to which they are applied here.
    pub applied: u64,
    /// Whether it takes part, as far as it knows.
    pub is_member: bool,
    /// Whether it leads, as far as it knows.
    pub leads: bool,
    /// Whether it leads and another replica is about to.
    pub is_handing_over: bool,
    /// The replicas that vote.
    pub voters: ReplicaSet,
    /// While the voters change: those before.
    pub outgoing: ReplicaSet,
    /// The replicas that take all writes and do not vote.
    pub learners: ReplicaSet,
    /// Why the last [`Wish::Members`] is not fulfilled yet, if it leads.
    pub refusal: Option<MemberRefusal>,
    /// If it leads, and takes no writes yet: the site from which it first has to learn something.
    pub awaits: Option<SiteId>,
}

/// How far a group is with what another one is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarding {
    /// The site of the other group.
    pub to: SiteId,
    /// What is being done.
    pub state: &'static str,
    /// How many entries it has not applied, as far as it has said so.
    pub entries: u64,
    /// How old the oldest of them is.
    pub lag: Micros,
}

/// What is kept of a replica beside its versions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// What [`Protocol::cut`] returned when the last checkpoint was taken; in a full copy, that of the copied replica.
    pub cut: Vec<(ReplicaId, Hlc)>,
    /// What was last staged under each name ([`Context::put_named`]).
    pub named: BTreeMap<String, Bytes>,
    /// The protocol's own log. Empty in a full copy, whose versions have the effects of the entries.
    pub journal: Journal,
    /// In a full copy: the versions have the effects of all entries up to this one, and perhaps of later ones. `None` if rows are missing at the copy's
    /// source, and if nothing was copied.
    pub applied: Option<Applied>,
    /// If a peer has sent back what was lost here: a time that is not before anything that had been stamped and had come to the peer by then. What has
    /// replaced versions there was stamped up to this time.
    pub replaced: Hlc,
    /// Whether rows are missing here, and it is not known which: the cut is empty. What `named` speaks of was here once, and clients may have seen
    /// it.
    pub lacks_rows: bool,
}

impl Recovered {
    /// What was last staged under a name, if no rows are missing: everything that it speaks of is here.
    pub fn kept(&self, name: &str) -> Option<&Bytes> {
        self.named.get(name).filter(|_| !self.lacks_rows)
    }
}

/// What a replica says of the deletes that are forgotten, when a link to another site comes up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forgotten {
    /// Deletes up to this time may be forgotten, as far as the replica knows. `None` if it knows nothing: its directory was empty, and peers are
    /// still filling it.
    pub until: Option<Hlc>,
    /// The births of data directories, which are the times when they began. They are the birth of the replica's own directory, once the replica has
    /// promised anything, and those of the directories at other sites whose replicas' word allowed deletes to be forgotten.
    pub directories: BTreeMap<ReplicaId, u64>,
    /// The newest births that the replica knows of other sites' directories: a directory with an earlier birth is an old copy.
    pub met: BTreeMap<ReplicaId, u64>,
}

impl Forgotten {
    /// Births are microseconds since 1970, or count on from there. None gets here in a hundred thousand years.
    const LAST_BIRTH: u64 = 1 << 62;

    /// Checks a birth that comes from outside.
    ///
    /// # Errors
    /// If no clock gives such a time.
    pub fn check_birth(birth: u64) -> Result<u64, BadFrame> {
        match birth >= Forgotten::LAST_BIRTH {
            true => Err(BadFrame::new("the birth of a directory", birth.to_string())),
            false => Ok(birth),
        }
    }
}

/// A request in flight: the driver's number for it, from which the driver knows where the reply goes.
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

    /// Request `number` among those that other nodes forwarded.
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

/// A staged write. It goes into the commit log with its batch, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write<M> {
    /// A version. If `to` is not empty, it is also the next entry of the durable stream to those replicas.
    Put {
        /// Its key.
        key: Key,
        /// The version.
        version: Version<M>,
        /// The replicas that it is streamed to.
        to: ReplicaSet,
        /// Key and version as they arrived from a peer, if they did, so that the driver need not encode them again.
        encoded: Option<Bytes>,
        /// The floor that the version has got here, if it has arrived without it. Zero: none.
        floor: Hlc,
        /// Whether the key had no version before: if a row of it is still on the disk, that row was forgotten.
        is_first: bool,
        /// If it is a share that this replica has stamped: the share in whose place it comes. The driver may write down what has changed since.
        base: Option<Base>,
    },
    /// The next entry of the durable stream to these replicas, which is not stored here.
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
        /// The version's place among those of the key.
        rank: Rank,
    },
    /// A piece of the protocol's own state, by name. Of several pieces with one name, the last one counts.
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

/// What a handler sees, and how it acts. Outputs keep the order in which they are emitted.
pub struct Context<'a, P: Protocol> {
    /// The time of this input.
    pub now: Now,
    /// This replica.
    pub me: ServerId,
    /// Where the keyspace's replicas are.
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

    /// The number of keys whose newest version can be forgotten, now or later: deletes, and values that expire.
    pub fn forgettable_keys(&self) -> u64 {
        self.store.forgettable_keys()
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

    /// A timestamp above all that were given or seen here, also before restarts.
    pub fn stamp(&mut self) -> Hlc {
        let stamp = self.parts.clock.stamp(self.now);
        self.parts.keep_bound(stamp);
        stamp
    }

    /// Promises a time and returns it: every later stamp of this replica is above it.
    pub fn promise(&mut self) -> Hlc {
        let promise = self.parts.clock.tick(self.now);
        self.parts.keep_bound(promise);
        self.parts.promised = promise;
        promise
    }

    /// Takes note of what a protocol with a clock of its own has stamped or promised: every later stamp of it is above this.
    pub fn promised(&mut self, promise: Hlc) {
        self.parts.promised = promise;
        self.parts.has_own_clock = true;
        // So that `Replica::clock` tells how far this replica is.
        self.parts.clock.observe(promise);
    }

    /// The last promise whose mark was sent after everything stamped up to it was on disk here. No power loss takes any of that.
    pub fn settled_promise(&self) -> Hlc {
        self.parts.settled
    }

    /// The number of marks since this replica was opened ([`Context::mark`]).
    pub fn marks(&self) -> u64 {
        self.parts.marks
    }

    /// The number of marks, counted from the first, that are settled: whatever was staged before the last of them is on disk here, and no power loss
    /// takes it. A promise does not say that: a clock that is ahead of its wall clock gives the same promise again.
    pub fn settled_marks(&self) -> u64 {
        self.parts.settled_marks
    }

    /// The time at which a read here looks at values that expire: the clock's last timestamp or, if that is later, the wall clock's. See [`crate::Content::at`].
    pub fn read_time(&self) -> Hlc {
        self.parts.clock.read_time(self.now)
    }

    /// Takes note of a timestamp from elsewhere: later stamps are above it.
    pub fn observe(&mut self, seen: Hlc) {
        self.parts.clock.observe(seen);
    }

    /// Stages a version of a key that this input names. Returns false and stages nothing if the store does not want it: the store already has it or
    /// (without history) has something newer.
    pub fn put(&mut self, key: Key, version: Version<P::Meta>) -> bool {
        self.stage_version(key, version, ReplicaSet::default())
    }

    /// Stages a version here and, in the same record, as the next entry of the durable stream to this partition's replicas at `to`. Each of them
    /// receives it exactly once and in order, however long it is unreachable.
    ///
    /// A version that the store does not want is not streamed either: the newer version was streamed already, or came from another replica, which
    /// streams it.
    pub fn replicate(&mut self, to: ReplicaSet, key: Key, version: Version<P::Meta>) -> bool {
        self.stage_version(key, version, to)
    }

    /// Stages a version as the next entry of the durable stream to this partition's replicas at `to`, without a write to the store. It is for a
    /// version that is here already, and for replicas that did not answer when they were sent it. As with [`Context::replicate`], each of them
    /// receives it exactly once, however long it is unreachable ([`Protocol::on_replicated`]). The literature calls that a hint (Dynamo, 4.6).
    ///
    /// A replica's stream has the versions that the replica stamped. They need not be in the order of their stamps, but each must be newer than the
    /// promises before it: a replica that has heard a promise skips what is older. So a protocol that gives hints must not promise
    /// ([`Context::promise`]) more than the oldest write that it may still have to hint.
    ///
    /// # Panics
    /// If another replica stamped the version, or if this replica has promised since then that it stamps nothing older.
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
        let adds = version.content.shared().is_some_and(|(_, brief)| brief.adds);
        let base = match adds && version.id.replica == self.me.replica() {
            true => Base::of(self.store.chain(key.as_ref()), version.id),
            false => None,
        };
        let placed = self.store.put(&key, &version);
        if placed.is_wanted() {
            let is_same = |arrived: &mut Arrived| arrived.id == version.id;
            let arrived = self.parts.arrived.take_if(is_same);
            let has_got = |arrived: &Arrived| arrived.floor < version.content.floor();
            let floor = match arrived.as_ref().is_some_and(has_got) {
                true => version.content.floor(),
                false => Hlc::ZERO,
            };
            self.parts.staged.push(Write::Put {
                key,
                version,
                to,
                encoded: arrived.map(|arrived| arrived.encoded),
                floor,
                is_first: placed == Placed::First,
                base,
            });
        }
        placed.is_wanted()
    }

    /// Call it before a version is put, if the protocol keeps older ones: it drops the versions of the key that are older than its newest `covered` version, so that chains
    /// stay short without a checkpoint. In a chain that cannot be shortened it looks again only when the chain has doubled. A version that is put again may be one of those that go: then it comes as a
    /// new one, which no read asks for.
    pub fn make_room(&mut self, key: &Key, covered: impl Fn(&Version<P::Meta>) -> bool) {
        self.store.make_room(key.as_ref(), &covered);
    }

    /// Makes sure that the open batch is synced before anything that is emitted after it leaves, whatever the keyspace's durability. No power loss
    /// takes anything of it. If nothing is staged, this does nothing.
    pub fn sync(&mut self) {
        self.parts.must_sync |= !self.parts.staged.is_empty();
    }

    /// Stages a piece of the protocol's own state, under a name. There may be many pieces, and each may be long: a checkpoint writes those that have
    /// changed.
    pub fn put_named(&mut self, name: impl Into<Cow<'static, str>>, bytes: Bytes) {
        let (name, bytes) = (name.into(), Some(bytes));
        self.parts.staged.push(Write::Named { name, bytes });
    }

    /// Stages that the piece of state of this name is dropped.
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

    /// Drops the journal's entries from `from` on, because other entries were agreed on.
    pub fn truncate(&mut self, from: u64) {
        if self.parts.journal.truncate(from) {
            self.parts.staged.push(Write::Truncate(from));
        }
    }

    /// Drops the journal's entries before `until`: their effects are in the store, and no replica needs them any more. If `until` is behind the last
    /// entry, as after a full copy, no entry is left, and `until` is the index of the next one.
    pub fn purge(&mut self, until: u64) {
        if self.parts.journal.purge(until) {
            self.parts.staged.push(Write::Purge(until));
        }
    }

    /// Sends a message to a server. Messages to one server arrive in the order in which they were sent. A message is lost if the connection breaks.
    pub fn send(&mut self, to: ServerId, message: P::Message) {
        self.parts.emit(Emitted::Send { to, message });
    }

    /// Sends a message to this partition's replicas at `to`, behind every stream entry so far. It is never stored: while a peer is unreachable or
    /// slow, only the next mark and the newest are kept for it. Promises of a time are marks.
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

    /// A receipt for an answer that this replica gives at a level, about a version. It proves nothing yet.
    pub fn receipt(&self, given: Level, version: Option<VersionId>) -> Receipt {
        Receipt {
            asked: given.into(),
            given,
            version,
            base: None,
            server: self.me,
            route: Route::Local,
            waited: self.waited,
            staleness: None,
            clock_bound: self.now.wall.bound(),
            siblings: false,
            until: None,
            decided_at_site: false,
            proof: Proof::Plain,
        }
    }

    /// Whether this replica has everything that it ever acknowledged, as far as it knows. If not, its reads prove nothing.
    pub fn proves(&self) -> bool {
        !self.parts.takes_back
    }

    /// Whether the node's disk has room. If not, requests that write are refused before they reach the protocol, and stream entries wait. The
    /// protocol itself must refuse messages that would make a replica store something.
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
            receipt: Box::new(receipt),
        });
    }

    /// Sets or resets a timer.
    pub fn set_timer(&mut self, timer: P::Timer, after: Micros) {
        self.parts.timers.set(timer, self.now.monotonic + after);
    }

    /// Fires `timer` as soon as these keys are in memory, so that [`Context::chain`] knows all of them. It is for keys that an input does not name by
    /// itself, such as those of journal entries that a message commits. Of two such calls the second may fire first, unless they share a key. If a
    /// key cannot be read, it is tried again when the next timer of the replica is due. A restart forgets these calls.
    pub fn when_resident(&mut self, keys: Vec<Key>, timer: P::Timer) {
        self.parts.wanted.push_back((keys, timer));
    }

    /// Asks another replica of this partition for a full copy that is taken after now. As a copy that the driver asks for by itself, it replaces what
    /// it covers here, and [`Protocol::on_copying`] and [`Protocol::on_copied`] are called. Requests are served meanwhile. The peer's stream, if it
    /// has one, waits.
    ///
    /// The copy's cut is what [`Protocol::cut`] returned at the peer when its checkpoint began. Rows and what is kept by name may be newer: the copy
    /// has everything up to the cut, and some of what came after it.
    ///
    /// If the link breaks, the copy is asked for again. A restart forgets the call. Two calls before the copy begins count as one.
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

    /// Runs a request again, like one that has been parked: its keys may have been evicted meanwhile, and the driver makes them resident first.
    pub fn run_again(&mut self, id: RequestId, request: P::Request) {
        let since = self.now.monotonic.since(self.waited);
        self.parts.waiting.again(since, id, request);
    }

    /// `line` has reached `point`: wakes exactly the requests that wait for this point or a lower one. A line never goes back: a smaller point
    /// changes nothing.
    pub fn advance(&mut self, line: P::Line, point: u64) {
        self.parts.waiting.advance(line, point);
    }
}
