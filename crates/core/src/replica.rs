use crate::timers::Timers;
use crate::waiting::{Ready, Waiting};
use crate::{
    Context, Forgotten, Hlc, HybridClock, Journal, Key, Micros, Now, Protocol, Rank, Receipt, Recovered,
    ReplicaSet, RequestId, ServerId, Topology, Version, VersionId, Versions, Wish, Write,
};
use bytes::Bytes;
use std::collections::VecDeque;

/// One replica as its driver sees it: a protocol, its timers, its parked requests, and **the barrier**.
///
/// # The barrier
///
/// A handler writes and answers at once, as the paper's pseudocode does. The replica makes that safe. What is written is staged into the open
/// *batch*, and every output that follows a staged write is held until that batch is durable. An output with nothing staged before it waits for the
/// earlier batches only. The order is total: a read after a write that is not yet durable waits too, so nothing is ever shown that a crash could take
/// back.
///
/// ```text
///   inputs:    put x    get y     |            put z    get y
///   outputs:   [x]  done(x) y=..  |  commit 1  [z]  done(z) y=..  | commit 2
///                    └──────┴── held for 1 ──┘       └──────┴── held for 2
/// ```
///
/// # Driving it
///
/// 1. [`Replica::open`], then [`Replica::handle_input`] with [`Input::Start`].
/// 2. `handle_input` with each input: requests, messages, stream entries, marks. [`Input::Tick`] when [`Replica::next_deadline`] has passed.
/// 3. [`Replica::take_ready`] returns requests that waited and may run again, and [`Replica::take_wanted`] timers. Make their keys resident, then
///    hand them in again. [`Replica::take_wanted_copy`] returns a peer: ask it for a full copy.
/// 4. [`Replica::take_batch`]: append it to the log. Many inputs may go into one batch.
/// 5. When the log has it: [`Replica::handle_durable`] with its number. Batches become durable in order.
/// 6. [`Replica::poll_output`] until `None`: it returns only outputs that need not wait any more, in emission order.
///
/// The store is lent with each input, because the driver shares it with checkpoints and scans.
pub struct Replica<P: Protocol> {
    protocol: P,
    me: ServerId,
    topology: Topology,
    parts: Parts<P>,
    durable: u64,
    /// Whether the protocol's invariants are checked after inputs.
    validates: bool,
    /// The number of inputs so far.
    inputs: u64,
}

/// The number of inputs, from the first, after each of which the protocol's invariants are checked. After them it is one in sixteen: a replica in
/// which many requests wait takes long to check.
const ALL_VALIDATED: u64 = 1_000;
const ONE_VALIDATED_IN: u64 = 16;

/// An input to a replica.
pub enum Input<P: Protocol> {
    /// The first input.
    Start,
    /// A session asks.
    Request {
        /// The driver's number for the request.
        id: RequestId,
        /// The request.
        request: P::Request,
        /// When it was first parked, in monotonic time, for a request that [`Replica::take_ready`] returned.
        since: Option<Micros>,
    },
    /// A peer's message.
    Message {
        /// The server that sent it.
        from: ServerId,
        /// The message.
        message: P::Message,
    },
    /// The next entry of a peer's stream.
    Replicated {
        /// The server whose stream it is.
        from: ServerId,
        /// The key.
        key: Key,
        /// The version.
        version: Version<P::Meta>,
        /// Key and version as they arrived, for the log. Empty if they have to be encoded again.
        encoded: Bytes,
    },
    /// A peer's mark, when all entries before it have been handled.
    Mark {
        /// The server that sent it.
        from: ServerId,
        /// The message.
        message: P::Message,
    },
    /// A version of a full copy. It goes into the store; the protocol is told of the copy when it is complete.
    CopiedRow {
        /// The key.
        key: Key,
        /// The version.
        version: Version<P::Meta>,
    },
    /// A peer at another site says how far it is, and which deletes it has forgotten.
    Resumed {
        /// The peer.
        from: ServerId,
        /// Which deletes may be forgotten there.
        forgotten: Forgotten,
    },
    /// A peer has sent again every version that it holds of those that this replica lost. Newer versions have replaced the others there.
    Returned {
        /// The peer.
        from: ServerId,
        /// What may have replaced the others: deletes up to the times of its cut, and what `from` keeps beside its versions.
        returned: Recovered,
    },
    /// A full copy is about to be put in place.
    Copying {
        /// The server whose data it is.
        from: ServerId,
        /// What that server keeps beside its versions.
        copied: Recovered,
    },
    /// A full copy is in place.
    Copied {
        /// The server whose data it is.
        from: ServerId,
        /// What that server keeps beside its versions.
        copied: Recovered,
    },
    /// A version was dropped from the store because a full copy covers it and does not have it.
    Dropped {
        /// The key.
        key: Key,
        /// The version's place among those of the key. Not its name: a transaction may give one name to a share and a version of the register.
        rank: Rank,
    },
    /// The link to a peer's node came up or went down.
    Link {
        /// The peer.
        peer: ServerId,
        /// Whether it is up.
        up: bool,
    },
    /// The keys that a timer waited for are in memory.
    Resident {
        /// The timer.
        timer: P::Timer,
    },
    /// An operator, or the end of the node, wants something of the replica.
    Wish(Wish),
    /// Time passed: timers or deadlines may be due.
    Tick,
}

/// What a replica wants done.
pub enum Output<P: Protocol> {
    /// Send a message to a server. It may be lost.
    Send {
        /// The server.
        to: ServerId,
        /// The message.
        message: P::Message,
    },
    /// Send a message to these replicas of the partition, behind all their stream entries so far.
    Mark {
        /// The replicas.
        to: ReplicaSet,
        /// The message.
        message: P::Message,
        /// The last promise before it.
        promise: Hlc,
        /// The number of marks before it since the replica was opened.
        number: u64,
    },
    /// Answer a request.
    Reply {
        /// The request.
        id: RequestId,
        /// The answer.
        response: P::Response,
        /// What the answer proves.
        receipt: Box<Receipt>,
    },
    /// The answer to a request is durable. It was heard ahead ([`Replica::hear_ahead`]).
    Durable {
        /// The request.
        id: RequestId,
    },
}

pub(crate) use Output as Emitted;

/// Writes that become durable together.
#[derive(Debug)]
pub struct Batch<M> {
    /// Its number: one more than the batch before.
    pub number: u64,
    /// What to log, in order.
    pub writes: Vec<Write<M>>,
    /// Whether the batch must be synced, not just written, before it counts as durable, whatever the keyspace's durability. That is so if it shows a
    /// timestamp that is not below the bound on disk, or if the protocol asked for it ([`Context::sync`]).
    pub must_sync: bool,
}

/// The number of held outputs, newest first, that [`Replica::hear_ahead`] looks through.
const LAST_HELD: usize = 1024;

/// A version as it has arrived. If it gets a floor here, that is logged beside it.
pub(crate) struct Arrived {
    pub id: VersionId,
    pub floor: Hlc,
    pub encoded: Bytes,
}

/// Everything of a replica but its protocol: what a [`Context`] works on.
pub(crate) struct Parts<P: Protocol> {
    pub clock: HybridClock,
    granted_bound: Hlc,
    /// Whether the protocol stamps by a clock of its own. No bound of it is on disk.
    pub has_own_clock: bool,
    /// The last promise given; and in `settled` the last whose mark was sent after everything stamped up to it was on disk.
    pub promised: Hlc,
    pub settled: Hlc,
    /// The number of marks so far; and in `settled_marks` how many of them were sent, up to the last one before which everything staged was on disk.
    pub marks: u64,
    pub settled_marks: u64,
    /// Whether peers may still send back what this replica had acknowledged and lost. Until they have, its answers prove nothing.
    pub takes_back: bool,
    /// Whether the node's disk has room for writes that may be refused.
    pub has_room: bool,
    /// The version that is being handled, if it has arrived from a peer.
    pub arrived: Option<Arrived>,
    pub staged: Vec<Write<P::Meta>>,
    pub journal: Journal,
    /// Timers that fire when these keys are in memory.
    pub wanted: VecDeque<(Vec<Key>, P::Timer)>,
    /// Peers whose full copies are asked for.
    pub wanted_copies: VecDeque<ServerId>,
    pub must_sync: bool,
    open_batch: u64,
    held: VecDeque<(u64, Output<P>)>,
    pub timers: Timers<P::Timer>,
    pub waiting: Waiting<P::Line, P::Request>,
}

impl<P: Protocol> Parts<P> {
    /// Holds an output for the open batch if something is staged in it, else for the one before.
    pub fn emit(&mut self, output: Output<P>) {
        let after = if self.staged.is_empty() {
            self.open_batch - 1
        } else {
            self.open_batch
        };
        self.held.push_back((after, output));
    }

    /// Stages a higher bound before it is needed. If `shown` is not below the bound that is on disk, outputs are held until the open batch is synced.
    pub fn keep_bound(&mut self, shown: Hlc) {
        if let Some(bound) = self.clock.wanted_bound() {
            self.staged.push(Write::Bound(bound));
        }
        if shown >= self.granted_bound {
            // The bound that covers it is not on disk yet: stage it again in this batch, and wait for that.
            if self.staged.is_empty() {
                self.staged.push(Write::Bound(self.clock.bound()));
            }
            self.must_sync = true;
        }
    }
}

impl<P: Protocol> Replica<P> {
    /// A replica over what was recovered. Its clock continues above `bound`, the highest bound that was ever written.
    pub fn open(
        config: &P::Config,
        me: ServerId,
        topology: Topology,
        bound: Hlc,
        recovered: &Recovered,
        seed: u64,
    ) -> Replica<P> {
        Replica {
            protocol: P::open(config, me, topology.clone(), recovered, seed),
            me,
            topology,
            parts: Parts {
                clock: HybridClock::open(bound),
                granted_bound: bound,
                has_own_clock: false,
                promised: Hlc::ZERO,
                settled: Hlc::ZERO,
                marks: 0,
                settled_marks: 0,
                takes_back: false,
                has_room: true,
                arrived: None,
                staged: Vec::new(),
                journal: recovered.journal.clone(),
                wanted: VecDeque::new(),
                wanted_copies: VecDeque::new(),
                must_sync: false,
                open_batch: 1,
                held: VecDeque::new(),
                timers: Timers::default(),
                waiting: Waiting::new(),
            },
            durable: 0,
            validates: cfg!(debug_assertions),
            inputs: 0,
        }
    }

    /// From now on the protocol's invariants are checked after inputs, as they always are in a debug build.
    pub fn validate_always(&mut self) {
        self.validates = true;
    }

    /// The protocol, to look at.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// The clock's last timestamp, given or seen.
    pub fn clock(&self) -> Hlc {
        self.parts.clock.last()
    }

    /// The time at which a read here looks at values that expire: see [`Protocol::read_time`].
    pub fn read_time(&self, now: Now) -> Hlc {
        self.protocol.read_time(self.parts.clock.read_time(now), now)
    }

    /// Moves the clock to a timestamp that was seen elsewhere, if that is later.
    pub fn observe(&mut self, seen: Hlc) {
        self.parts.clock.observe(seen);
    }

    /// The number of outputs that are held behind the barrier.
    pub fn held(&self) -> usize {
        self.parts.held.len()
    }

    /// The number of requests that are parked.
    pub fn parked(&self) -> usize {
        self.parts.waiting.len()
    }

    /// Hands an input to the protocol. The keys it names must be resident in `store`.
    pub fn handle_input(&mut self, now: Now, input: Input<P>, store: &mut dyn Versions<P::Meta>) {
        let Replica {
            protocol,
            me,
            topology,
            parts,
            ..
        } = self;
        let waited = match &input {
            Input::Request {
                since: Some(since), ..
            } => now.monotonic.since(*since),
            _ => Micros(0),
        };
        let mut cx = Context {
            now,
            me: *me,
            topology,
            waited,
            store,
            parts,
        };
        match input {
            Input::Start => protocol.on_start(&mut cx),
            Input::Request { id, request, .. } => protocol.on_request(&mut cx, id, request),
            Input::Message { from, message } => protocol.on_message(&mut cx, from, message),
            Input::Replicated {
                from,
                key,
                version,
                encoded,
            } => {
                let arrived = Arrived {
                    id: version.id,
                    floor: version.content.floor(),
                    encoded,
                };
                cx.parts.arrived = Some(arrived).filter(|arrived| !arrived.encoded.is_empty());
                protocol.on_replicated(&mut cx, from, key, version);
            }
            Input::Mark { from, message } => protocol.on_mark(&mut cx, from, message),
            Input::Resumed { from, forgotten } => protocol.on_resumed(&mut cx, from, &forgotten),
            Input::CopiedRow { key, version } => {
                cx.observe(version.id.at);
                cx.put(key, version);
            }
            Input::Returned { from, returned } => protocol.on_returned(&mut cx, from, &returned),
            Input::Copying { from, copied } => protocol.on_copying(&mut cx, from, &copied),
            Input::Copied { from, copied } => protocol.on_copied(&mut cx, from, &copied),
            Input::Dropped { key, rank } => cx.parts.staged.push(Write::Drop { key, rank }),
            Input::Link { peer, up } => protocol.on_link(&mut cx, peer, up),
            Input::Resident { timer } => protocol.on_timer(&mut cx, timer),
            Input::Wish(wish) => protocol.on_wish(&mut cx, wish),
            Input::Tick => {
                while let Some(timer) = cx.parts.timers.take_due(now.monotonic) {
                    protocol.on_timer(&mut cx, timer);
                }
                while let Some((id, request, since)) = cx.parts.waiting.take_expired(now.monotonic) {
                    cx.waited = now.monotonic.since(since);
                    protocol.on_deadline(&mut cx, id, request);
                }
            }
        }
        self.inputs += 1;
        let is_due = self.inputs <= ALL_VALIDATED || self.inputs.is_multiple_of(ONE_VALIDATED_IN);
        if self.validates && is_due {
            self.protocol.validate();
        }
    }

    /// A request that waited and may run again, if there is one.
    pub fn take_ready(&mut self) -> Option<Ready<P::Request>> {
        self.parts.waiting.take_ready()
    }

    /// A timer that is to fire when these keys are in memory: hand it back as [`Input::Resident`] then.
    pub fn take_wanted(&mut self) -> Option<(Vec<Key>, P::Timer)> {
        self.parts.wanted.pop_front()
    }

    /// A peer that is to be asked for a full copy.
    pub fn take_wanted_copy(&mut self) -> Option<ServerId> {
        self.parts.wanted_copies.pop_front()
    }

    /// The protocol's journal.
    pub fn journal(&self) -> &Journal {
        &self.parts.journal
    }

    /// The protocol's journal, for a checkpoint that takes its changes.
    pub fn journal_mut(&mut self) -> &mut Journal {
        &mut self.parts.journal
    }

    /// Closes the open batch, if anything is staged in it.
    pub fn take_batch(&mut self) -> Option<Batch<P::Meta>> {
        if self.parts.staged.is_empty() {
            // A timestamp beyond the bound always comes with a staged bound.
            assert!(
                !self.parts.must_sync,
                "a timestamp beyond the bound is shown with nothing staged"
            );
            return None;
        }
        let number = self.parts.open_batch;
        self.parts.open_batch += 1;
        let must_sync = std::mem::take(&mut self.parts.must_sync);
        Some(Batch {
            number,
            writes: std::mem::take(&mut self.parts.staged),
            must_sync,
        })
    }

    /// Takes a batch's list of writes back, to be used for a later batch.
    pub fn recycle(&mut self, mut writes: Vec<Write<P::Meta>>) {
        if self.parts.staged.capacity() == 0 && writes.capacity() <= 1024 {
            writes.clear();
            self.parts.staged = writes;
        }
    }

    /// Tells whether peers may still send back what this replica had acknowledged before it was opened. Until they have, nothing is proven.
    pub fn set_taking_back(&mut self, takes_back: bool) {
        self.parts.takes_back = takes_back;
    }

    /// Tells whether the node's disk has room for writes that may be refused.
    pub fn set_room(&mut self, has_room: bool) {
        self.parts.has_room = has_room;
    }

    /// Whether a version covers all older versions of its key: no request reads them any more, and no older one will come. The same rule is used for
    /// chains that are collected as they grow and for checkpoints.
    pub fn covered(&self, version: &Version<P::Meta>) -> bool {
        self.protocol.covered(version)
    }

    /// Every batch up to `number` is durable.
    ///
    /// # Panics
    /// If that batch was never taken.
    pub fn handle_durable(&mut self, number: u64) {
        assert!(
            number < self.parts.open_batch,
            "batch {number} is durable but was never taken"
        );
        self.durable = self.durable.max(number);
    }

    /// A bound of the clock is synced: timestamps below it may be shown.
    pub fn handle_bound_synced(&mut self, bound: Hlc) {
        self.parts.granted_bound = self.parts.granted_bound.max(bound);
    }

    /// Everything stamped up to the promise of a mark, and everything staged before the mark with this number, is synced here.
    pub fn handle_mark_synced(&mut self, promise: Hlc, number: u64) {
        self.parts.settled = self.parts.settled.max(promise);
        self.parts.settled_marks = self.parts.settled_marks.max(number + 1);
    }

    /// The next output that need not wait.
    pub fn poll_output(&mut self) -> Option<Output<P>> {
        let &(after, _) = self.parts.held.front()?;
        if after > self.durable {
            return None;
        }
        self.parts.held.pop_front().map(|(_, output)| output)
    }

    /// Takes the answer to a request, if it is held because it is not durable yet, is among the last 1,024 outputs that are held, and `may` is true of it.
    /// [`Output::Durable`] comes in its place. `None` while it may contain timestamps of the hybrid clock beyond the bound that is on disk.
    pub fn hear_ahead(
        &mut self,
        asked: RequestId,
        may: impl FnOnce(&P::Response) -> bool,
    ) -> Option<(P::Response, Box<Receipt>)> {
        if !self.parts.has_own_clock && self.parts.clock.last() >= self.parts.granted_bound {
            return None;
        }
        let newest_first = self.parts.held.iter_mut().rev().take(LAST_HELD);
        let mut held = newest_first.map(|(_, output)| output);
        let held = held.find(|output| matches!(output, Output::Reply { id, .. } if *id == asked))?;
        if !matches!(held, Output::Reply { response, .. } if may(response)) {
            return None;
        }
        match std::mem::replace(held, Output::Durable { id: asked }) {
            Output::Reply {
                response, receipt, ..
            } => Some((response, receipt)),
            _ => unreachable!("it was just seen to be an answer"),
        }
    }

    /// When to send the next [`Input::Tick`], in monotonic time.
    pub fn next_deadline(&self) -> Option<Micros> {
        [self.parts.timers.next(), self.parts.waiting.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }
}
