use crate::{
    View,
    wire::{Reader, Writer},
};
use bytes::{Bytes, BytesMut};
use turnbuckle_core::{
    BadFrame, Change, Changed, Hidden, Hlc, Key, KeyValue, Micros, ReplicaSet, Step, Stepped, Vector, Wire,
};
use turnbuckle_streams::Said;

/// A message between replicas: about what is stable, or the protocol's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<X> {
    /// To the peers, as a mark: how far the sender is.
    Heartbeat(Heartbeat),
    /// To the parent in the site's tree: what the sender's subtree has.
    Up(Report, Numbers),
    /// To the children: what the whole site has.
    Down(Report, Numbers),
    /// The protocol's own.
    Own(X),
}

/// A promise, which arrives behind everything that it speaks of: `<HEARTBEAT HLC>` of Algorithm 5.3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Every later stamp of the sender is above this.
    pub promise: Hlc,
    /// No power loss at the sender takes anything any more that was stamped up to this time.
    pub settled: Hlc,
    /// Everything that any partition of the sender's site stamped before this wall time has a stamp no higher than the promise.
    pub wall: Micros,
    /// What is shown at the sender, and which deletes are forgotten there.
    pub deletes: Said,
    /// The newest stamp of a version that the sender knows to have been written at its site. While less than that is stable at another site, that site is
    /// in a hurry.
    pub written: Hlc,
    /// The sender has lost versions that no peer could send back, because newer ones had replaced them there. Those newer ones are stamped up to
    /// this. A client that relies on the promise and is shown less than this may be shown something older than what was lost.
    pub replaced: Vector,
}

/// What a subtree of a site's partitions has, entry-wise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The minimum of their VV.
    pub stable: Vector,
    /// The minimum of the wall clocks at the other sites' last heartbeats.
    pub walls: Vector,
    /// The minimum of their DSV and of the snapshots under way: what is older may be collected.
    pub collectable: Vector,
    /// The maximum of their clocks. If one number is used for all sites: of all stamps that they have heard of.
    pub clock: Hlc,
    /// The minimum of their wall clocks when their clocks showed no more than that.
    pub clock_wall: Micros,
    /// The maximum, for each site, of the stamps of versions that they know to have been written there. While less than that is stable, it is news if more
    /// becomes stable.
    pub written: Vector,
}

/// By these numbers a partition and its parent know how many reports are under way between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Numbers {
    /// The number of this report, among those that the sender has sent to the receiver.
    pub number: u64,
    /// The number of the last report that the sender has received from the receiver.
    pub heard: u64,
}

impl Report {
    pub(super) fn meet(&mut self, other: &Report) {
        self.stable.meet(&other.stable);
        self.walls.meet(&other.walls);
        self.collectable.meet(&other.collectable);
        self.clock = self.clock.max(other.clock);
        self.clock_wall = self.clock_wall.min(other.clock_wall);
        self.written.merge(&other.written);
    }

    fn newest(&self) -> Hlc {
        let newest = self.vectors().into_iter().map(Vector::newest).max();
        newest.unwrap_or(Hlc::ZERO).max(self.clock)
    }

    fn replicas(&self) -> ReplicaSet {
        sites_of(self.vectors())
    }

    fn vectors(&self) -> [&Vector; 4] {
        [&self.stable, &self.walls, &self.collectable, &self.written]
    }
}

fn sites_of<'a>(vectors: impl IntoIterator<Item = &'a Vector>) -> ReplicaSet {
    vectors
        .into_iter()
        .flat_map(Vector::entries)
        .map(|(replica, _)| replica)
        .collect()
}

impl<X: Wire> Wire for Message<X> {
    fn encode(&self, out: &mut BytesMut) {
        let mut out = Writer(out);
        match self {
            Message::Heartbeat(heartbeat) => {
                out.byte(0)
                    .number(heartbeat.promise.0)
                    .number(heartbeat.settled.0)
                    .number(heartbeat.wall.0)
                    .said(heartbeat.deletes)
                    .number(heartbeat.written.0)
                    .vector(&heartbeat.replaced);
            }
            Message::Up(report, numbers) | Message::Down(report, numbers) => {
                out.byte(if matches!(self, Message::Up(..)) { 1 } else { 2 });
                report.vectors().into_iter().fold(&mut out, Writer::vector);
                out.number(report.clock.0)
                    .number(report.clock_wall.0)
                    .number(numbers.number)
                    .number(numbers.heard);
            }
            Message::Own(own) => own.encode(out.byte(3).0),
        }
    }

    fn decode(frame: Bytes) -> Result<Message<X>, BadFrame> {
        let mut from = Reader::new(frame, "a message between causal replicas");
        let message = match from.byte()? {
            0 => Message::Heartbeat(Heartbeat {
                promise: from.hlc()?,
                settled: from.hlc()?,
                wall: from.micros()?,
                deletes: from.said()?,
                written: from.hlc()?,
                replaced: from.vector()?,
            }),
            tag @ (1 | 2) => {
                let report = Report {
                    stable: from.vector()?,
                    walls: from.vector()?,
                    collectable: from.vector()?,
                    written: from.vector()?,
                    clock: from.hlc()?,
                    clock_wall: from.micros()?,
                };
                let numbers = Numbers {
                    number: from.number()?,
                    heard: from.number()?,
                };
                match tag {
                    1 => Message::Up(report, numbers),
                    _ => Message::Down(report, numbers),
                }
            }
            3 => Message::Own(X::decode(from.rest())?),
            other => return Err(from.bad(format!("kind {other}"))),
        };
        from.end(message)
    }

    fn newest(&self) -> Hlc {
        match self {
            Message::Heartbeat(heartbeat) => heartbeat
                .promise
                .max(heartbeat.settled)
                .max(heartbeat.deletes.newest())
                .max(heartbeat.written)
                .max(heartbeat.replaced.newest())
                .max(Hlc::from_wall(heartbeat.wall)),
            Message::Up(report, _) | Message::Down(report, _) => report.newest(),
            Message::Own(own) => own.newest(),
        }
    }

    fn replicas(&self) -> ReplicaSet {
        match self {
            Message::Heartbeat(heartbeat) => sites_of([&heartbeat.replaced]),
            Message::Up(report, _) | Message::Down(report, _) => report.replicas(),
            Message::Own(own) => own.replicas(),
        }
    }
}

/// A request of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Reads one key.
    Get(Get),
    /// Writes one key, or deletes it.
    Put(Put),
    /// A snapshot of several keys.
    Rotx(Rotx),
}

/// `<GETREQ k, DSV_c>`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Get {
    /// The key.
    pub key: Key,
    /// DSV_c, GST_c: the newest times that the session knows to be stable at its site.
    pub stable: Vector,
    /// DS_c, DT_c (what the session has seen), if that was at another site and no server here has covered it yet. The request waits for it.
    pub need: Vector,
    /// The newest time that the client has seen: see [`super::TimedSession`]. A value that expires is looked at no earlier.
    pub seen: Hlc,
    /// What is to be read.
    pub view: View,
}

/// What a PUT does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// It changes one key.
    One(Key, Change),
    /// It carries out the steps of a transaction, whose keys are of one partition. It has no conditions.
    Many(Vec<Step>),
}

/// `<PUTREQ k, v, DS_c>`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// What is done.
    pub work: Work,
    /// DS_c, DT_c.
    pub past: Vector,
    /// GST_c, which DT_c does not contain. Empty for a session with vectors.
    pub stable: Vector,
    /// The newest time that the client has seen: the write is stamped above it.
    pub seen: Hlc,
    /// Whether the session comes from another site, and no server here has covered its past yet. The request waits for that.
    pub moved: bool,
    /// Whether the write depends on nothing: level `eventual`.
    pub eventual: bool,
}

impl Put {
    /// Whether the write depends on what is there before: see [`Change::depends_on_before`].
    pub fn reads(&self) -> bool {
        match &self.work {
            Work::One(_, change) => change.depends_on_before(self.eventual),
            Work::Many(steps) => steps.iter().any(|step| step_reads(step, self.eventual)),
        }
    }

    /// Whether this replica decides by what is there before: see [`Change::decides`].
    pub fn decides(&self) -> bool {
        match &self.work {
            Work::One(_, change) => change.decides(),
            Work::Many(steps) => steps.iter().any(step_decides),
        }
    }

    /// The keys. A key may come several times.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let (one, many) = match &self.work {
            Work::One(key, _) => (Some(key), &[][..]),
            Work::Many(steps) => (None, &steps[..]),
        };
        one.into_iter().chain(many.iter().map(Step::key))
    }
}

/// Whether a step is decided by the value before: see [`Change::decides`].
pub fn step_decides(step: &Step) -> bool {
    match step {
        Step::Get(_) | Step::Lifetime(_) => false,
        Step::Put(_, value, options) => Change::new(value.clone(), options.clone()).decides(),
    }
}

/// Whether the outcome of a step tells what is there before.
pub fn step_reads(step: &Step, eventual: bool) -> bool {
    match step {
        Step::Get(_) | Step::Lifetime(_) => !eventual,
        Step::Put(_, value, options) => {
            Change::new(value.clone(), options.clone()).depends_on_before(eventual)
        }
    }
}

/// `<ROTX kset, DSV_c, DS_c>`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotx {
    /// The keys, in the order of the answer. A key may occur twice.
    pub keys: Vec<Key>,
    /// DSV_c, GST_c.
    pub stable: Vector,
    /// DS_c, DT_c.
    pub past: Vector,
    /// What the request waits for: the past, if no server here has covered it yet, or if one number is used for all sites; and what a server had
    /// collected that was asked for an older snapshot.
    pub need: Vector,
    /// The newest time that the client has seen: see [`super::TimedSession`]. A value that expires is looked at no earlier.
    pub seen: Hlc,
    /// What is to be read. The newest versions, visible or not, are no snapshot.
    pub view: View,
}

/// A replica's answer. `past` is what the session has now seen in addition, and `expired` the latest time of a value that it has seen expired: 0 for
/// none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// `<GETREPLY v, ds, dsv>`.
    Value {
        /// What the key has, if it has anything.
        value: Option<KeyValue>,
        /// The version's dependencies and itself.
        past: Vector,
        /// The server's DSV.
        stable: Vector,
        /// When the version expired, if it has.
        expired: Hlc,
    },
    /// `<PUTREPLY ut, sr>`: the write is durable here.
    Written {
        /// What became of it.
        changed: Changed,
        /// The version itself, if there is one; and what it depends on, if the answer tells of that.
        past: Vector,
        /// The server's DSV, if the answer tells of a version that is not of this site alone: the client has then seen it.
        stable: Vector,
        /// When the version before it expired, if it has.
        expired: Hlc,
    },
    /// What a transaction has done is durable here. The other fields are as in [`Response::Written`].
    Transacted {
        /// What became of its steps.
        steps: Vec<Stepped>,
        /// As above.
        past: Vector,
        /// As above.
        stable: Vector,
        /// As above.
        expired: Hlc,
    },
    /// `<ROTXREPLY vset, dsv, ds>`.
    Values {
        /// The values, in the order of the keys.
        values: Vec<Option<Bytes>>,
        /// The dependencies of all versions, and the versions themselves.
        past: Vector,
        /// The server's DSV.
        stable: Vector,
        /// The latest time at which one of the versions expired.
        expired: Hlc,
    },
    /// The request was not carried out, for this reason.
    Refused(String),
}

/// A message between the partitions of a site, for a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slice {
    /// `<SLICEREQ k, sv>`.
    Request {
        /// The coordinator's number for the snapshot.
        snapshot: u64,
        /// The index of the key among those of the snapshot.
        place: u32,
        /// The key.
        key: Key,
        /// The snapshot's vector: the snapshot shows what it covers.
        sv: Vector,
        /// The time at which all partitions look at values that expire.
        now: Hlc,
        /// Whether to read the newest version, and no snapshot.
        eventual: bool,
    },
    /// `<SLICEREPLY v, ds>`.
    Reply {
        /// The coordinator's number for the snapshot.
        snapshot: u64,
        /// The index of the key among those of the snapshot.
        place: u32,
        /// The value, if the key has one.
        value: Option<Bytes>,
        /// The version's dependencies and itself.
        past: Vector,
        /// When the version expired, if it has. 0: it has not.
        expired: Hlc,
        /// Versions that were newer and not shown.
        hidden: Hidden,
        /// Whether nothing is missing that this partition had acknowledged.
        proves: bool,
    },
    /// Versions that the snapshot must show may have been collected here. Another snapshot is needed that shows at least `need`.
    TooOld {
        /// The coordinator's number for the snapshot.
        snapshot: u64,
        /// The vector up to which versions may have been collected.
        need: Vector,
    },
}

impl Request {
    /// Whether several keys are read as of one moment.
    pub fn is_snapshot(&self) -> bool {
        matches!(self, Request::Rotx(_))
    }

    /// How fresh the answer must provably be.
    pub fn bound(&self) -> Option<Micros> {
        match self {
            Request::Get(get) => get.view.bound(),
            Request::Rotx(rotx) => rotx.view.bound(),
            Request::Put(_) => None,
        }
    }
}

impl Wire for Request {
    fn encode(&self, out: &mut BytesMut) {
        let mut out = Writer(out);
        match self {
            Request::Get(get) => {
                out.byte(0).bytes(get.key.as_ref());
                out.vector(&get.stable).vector(&get.need);
                out.number(get.seen.0).view(get.view);
            }
            Request::Put(put) => {
                match &put.work {
                    Work::One(key, change) => out.byte(1).bytes(key.as_ref()).change(change),
                    Work::Many(steps) => out.byte(3).steps(steps),
                };
                out.vector(&put.past).vector(&put.stable);
                out.number(put.seen.0);
                out.flag(put.moved).flag(put.eventual);
            }
            Request::Rotx(rotx) => {
                out.byte(2).count(rotx.keys.len());
                for key in &rotx.keys {
                    out.bytes(key.as_ref());
                }
                out.vector(&rotx.stable).vector(&rotx.past);
                out.vector(&rotx.need).number(rotx.seen.0).view(rotx.view);
            }
        }
    }

    fn decode(frame: Bytes) -> Result<Request, BadFrame> {
        let mut from = Reader::new(frame, "a request of a causal keyspace");
        let request = match from.byte()? {
            0 => Request::Get(Get {
                key: from.key()?,
                stable: from.vector()?,
                need: from.vector()?,
                seen: from.hlc()?,
                view: from.view()?,
            }),
            kind @ (1 | 3) => Request::Put(Put {
                work: match kind {
                    1 => Work::One(from.key()?, from.change()?),
                    _ => Work::Many(from.steps()?),
                },
                past: from.vector()?,
                stable: from.vector()?,
                seen: from.hlc()?,
                moved: from.flag()?,
                eventual: from.flag()?,
            }),
            2 => Request::Rotx(Rotx {
                keys: (0..from.count()?).map(|_| from.key()).collect::<Result<_, _>>()?,
                stable: from.vector()?,
                past: from.vector()?,
                need: from.vector()?,
                seen: from.hlc()?,
                view: from.view()?,
            }),
            other => return Err(from.bad(format!("kind {other}"))),
        };
        from.end(request)
    }

    fn newest(&self) -> Hlc {
        match self {
            Request::Get(get) => get.stable.newest().max(get.need.newest()).max(get.seen),
            Request::Put(put) => put.past.newest().max(put.stable.newest()).max(put.seen),
            Request::Rotx(rotx) => {
                let newest = rotx.stable.newest().max(rotx.past.newest());
                newest.max(rotx.need.newest()).max(rotx.seen)
            }
        }
    }

    fn replicas(&self) -> ReplicaSet {
        match self {
            Request::Get(get) => sites_of([&get.stable, &get.need]),
            Request::Put(put) => sites_of([&put.past, &put.stable]),
            Request::Rotx(rotx) => sites_of([&rotx.stable, &rotx.past]),
        }
    }
}

impl Wire for Response {
    fn encode(&self, out: &mut BytesMut) {
        let mut out = Writer(out);
        match self {
            Response::Value {
                value,
                past,
                stable,
                expired,
            } => {
                out.byte(0).whole(value.as_ref());
                out.vector(past).vector(stable).number(expired.0);
            }
            Response::Written {
                changed,
                past,
                stable,
                expired,
            } => {
                out.byte(1).changed(changed);
                out.vector(past).vector(stable).number(expired.0);
            }
            Response::Transacted {
                steps,
                past,
                stable,
                expired,
            } => {
                out.byte(4).count(steps.len());
                for step in steps {
                    out.stepped(step);
                }
                out.vector(past).vector(stable).number(expired.0);
            }
            Response::Values {
                values,
                past,
                stable,
                expired,
            } => {
                out.byte(2).count(values.len());
                for value in values {
                    out.value(value.as_ref());
                }
                out.vector(past).vector(stable).number(expired.0);
            }
            Response::Refused(why) => {
                out.byte(3).bytes(why.as_bytes());
            }
        }
    }

    fn decode(frame: Bytes) -> Result<Response, BadFrame> {
        let mut from = Reader::new(frame, "an answer of a causal keyspace");
        let response = match from.byte()? {
            0 => Response::Value {
                value: from.whole()?,
                past: from.vector()?,
                stable: from.vector()?,
                expired: from.hlc()?,
            },
            1 => Response::Written {
                changed: from.changed()?,
                past: from.vector()?,
                stable: from.vector()?,
                expired: from.hlc()?,
            },
            2 => Response::Values {
                values: (0..from.count()?)
                    .map(|_| from.value())
                    .collect::<Result<_, _>>()?,
                past: from.vector()?,
                stable: from.vector()?,
                expired: from.hlc()?,
            },
            3 => Response::Refused(String::from_utf8_lossy(&from.bytes()?).into_owned()),
            4 => Response::Transacted {
                steps: (0..from.count()?)
                    .map(|_| from.stepped())
                    .collect::<Result<_, _>>()?,
                past: from.vector()?,
                stable: from.vector()?,
                expired: from.hlc()?,
            },
            other => return Err(from.bad(format!("kind {other}"))),
        };
        from.end(response)
    }

    fn newest(&self) -> Hlc {
        match self {
            Response::Value {
                past,
                stable,
                expired,
                ..
            }
            | Response::Values {
                past,
                stable,
                expired,
                ..
            }
            | Response::Transacted {
                past,
                stable,
                expired,
                ..
            }
            | Response::Written {
                past,
                stable,
                expired,
                ..
            } => past.newest().max(stable.newest()).max(*expired),
            Response::Refused(_) => Hlc::ZERO,
        }
    }

    fn replicas(&self) -> ReplicaSet {
        match self {
            Response::Value { past, stable, .. }
            | Response::Values { past, stable, .. }
            | Response::Transacted { past, stable, .. }
            | Response::Written { past, stable, .. } => sites_of([past, stable]),
            Response::Refused(_) => ReplicaSet::default(),
        }
    }
}

impl Wire for Slice {
    fn encode(&self, out: &mut BytesMut) {
        let mut out = Writer(out);
        match self {
            Slice::Request {
                snapshot,
                place,
                key,
                sv,
                now,
                eventual,
            } => {
                out.byte(0)
                    .number(*snapshot)
                    .number((*place).into())
                    .bytes(key.as_ref());
                out.vector(sv).number(now.0).flag(*eventual);
            }
            Slice::Reply {
                snapshot,
                place,
                value,
                past,
                expired,
                hidden,
                proves,
            } => {
                out.byte(1)
                    .number(*snapshot)
                    .number((*place).into())
                    .value(value.as_ref());
                out.vector(past)
                    .number(expired.0)
                    .number(hidden.versions.into())
                    .id(hidden.newest)
                    .flag(*proves);
            }
            Slice::TooOld { snapshot, need } => {
                out.byte(2).number(*snapshot).vector(need);
            }
        }
    }

    fn decode(frame: Bytes) -> Result<Slice, BadFrame> {
        let mut from = Reader::new(frame, "a slice of a snapshot");
        let slice = match from.byte()? {
            0 => Slice::Request {
                snapshot: from.number()?,
                place: from.number()? as u32,
                key: from.key()?,
                sv: from.vector()?,
                now: from.hlc()?,
                eventual: from.flag()?,
            },
            1 => Slice::Reply {
                snapshot: from.number()?,
                place: from.number()? as u32,
                value: from.value()?,
                past: from.vector()?,
                expired: from.hlc()?,
                hidden: Hidden {
                    versions: from.number()? as u32,
                    newest: from.id()?,
                },
                proves: from.flag()?,
            },
            2 => Slice::TooOld {
                snapshot: from.number()?,
                need: from.vector()?,
            },
            other => return Err(from.bad(format!("kind {other}"))),
        };
        from.end(slice)
    }

    fn newest(&self) -> Hlc {
        match self {
            Slice::Request { sv, now, .. } => sv.newest().max(*now),
            Slice::Reply { past, expired, .. } => past.newest().max(*expired),
            Slice::TooOld { need, .. } => need.newest(),
        }
    }

    fn replicas(&self) -> ReplicaSet {
        match self {
            Slice::Request { sv, .. } => sv.replicas(),
            Slice::Reply { past, hidden, .. } => {
                let newest = hidden.newest.map(|version| version.replica);
                past.replicas().union(newest.into_iter().collect())
            }
            Slice::TooOld { need, .. } => need.replicas(),
        }
    }
}
