use crate::{
    View,
    wire::{Reader, Writer},
};
use bytes::{Bytes, BytesMut};
use turnbuckle_core::{
    BadFrame, Change, Changed, Hlc, Key, Meta, Micros, ReplicaSet, Vector, VersionId, Wire,
};
use turnbuckle_streams::Said;

/// A version of a key that must be visible first.
pub type Dependency = (Key, VersionId);

/// What a version depends on: the nearest dependencies of its writer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dependencies(pub Vec<Dependency>);

/// A request of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Reads a key: `get_by_version`.
    Get {
        /// The key.
        key: Key,
        /// What is to be read.
        view: View,
        /// The newest time that the session has seen. A value that expires is looked at no earlier.
        seen: Hlc,
    },
    /// Writes a key, or deletes it: `put_after`.
    Put {
        /// The key.
        key: Key,
        /// What is written.
        change: Change,
        /// The session's context.
        nearest: Dependencies,
        /// The newest time that the session has seen: the write is stamped above it.
        seen: Hlc,
        /// Whether the write depends on nothing: level `eventual`.
        eventual: bool,
    },
    /// Asks whether a version that the session has seen is visible here, or everywhere.
    Confirm {
        /// The version.
        version: Dependency,
        /// Whether to wait until it is visible here, because the session has moved.
        waits: bool,
    },
}

/// A replica's answer. The receipt tells which version was read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// The answer to a read.
    Value {
        /// The value, if the key has one.
        value: Option<Bytes>,
        /// Whether every site shows the version: then no version needs to depend on it.
        everywhere: bool,
        /// When the version expired, if it has. 0: it has not.
        expired: Hlc,
    },
    /// The write is durable here.
    Written {
        /// What became of it.
        changed: Changed,
    },
    /// Nothing was written.
    Nothing {
        /// What is there instead.
        changed: Changed,
        /// As in [`Response::Value`].
        everywhere: bool,
        /// As in [`Response::Value`].
        expired: Hlc,
    },
    /// The answer to [`Request::Confirm`].
    Confirmed {
        /// As in [`Response::Value`].
        everywhere: bool,
    },
    /// The request was not carried out, for this reason.
    Refused(String),
}

/// A message between replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// To the peers, as a mark: how far the sender is.
    Heartbeat(Heartbeat),
    /// `dep_check`, inside a site: asks to be told when this version is visible at the receiver's partition.
    DepCheck(Key, VersionId),
    /// The answer to a `DepCheck`: this version is visible.
    Visible(VersionId),
    /// Inside a site, after a restart: asks how far the receiver's partition is. It contains what the sender has found out.
    HowFar(Found),
    /// The answer to `HowFar`.
    Reached(Reached),
}

/// A promise. It arrives behind everything that it speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Every later stamp of the sender is above this.
    pub promise: Hlc,
    /// No power loss at the sender takes anything any more that was stamped up to this time.
    pub settled: Hlc,
    /// The wall time at the sender when it promised was at least this.
    pub wall: Micros,
    /// For each site, everything that it stamped up to this time is visible at the sender.
    pub visible: Vector,
    /// What is visible at the sender after any restart, and which deletes are forgotten there.
    pub deletes: Said,
    /// What has replaced versions that the sender has lost was stamped up to this time ([`turnbuckle_streams::Replaced`]).
    pub replaced: Hlc,
}

/// What the partitions of a site have found out together ([`super::recovery`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Every partition has everything that any site stamped up to this time.
    pub arrived: Hlc,
    /// And at every partition, readers of a hidden version up to this time wait until it is shown.
    pub safe: Hlc,
}

/// How far a partition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// It has everything that any site stamped up to this time.
    pub until: Hlc,
    /// Its readers of a hidden version up to this time wait until it is shown.
    pub prepared: Hlc,
}

fn put_dependency(out: &mut Writer<'_>, (key, id): &Dependency) {
    out.bytes(key.as_ref()).id(Some(*id));
}

fn take_id(from: &mut Reader) -> Result<VersionId, BadFrame> {
    from.id()?.ok_or_else(|| from.bad("no version"))
}

fn take_dependency(from: &mut Reader) -> Result<Dependency, BadFrame> {
    Ok((from.key()?, take_id(from)?))
}

impl Dependencies {
    fn put(&self, out: &mut Writer<'_>) {
        out.count(self.0.len());
        self.0
            .iter()
            .for_each(|dependency| put_dependency(out, dependency));
    }

    fn take(from: &mut Reader) -> Result<Dependencies, BadFrame> {
        let all = (0..from.count()?).map(|_| take_dependency(from));
        Ok(Dependencies(all.collect::<Result<_, _>>()?))
    }
}

impl Meta for Dependencies {}

impl Wire for Dependencies {
    fn encode(&self, out: &mut BytesMut) {
        self.put(&mut Writer(out));
    }

    fn decode(frame: Bytes) -> Result<Dependencies, BadFrame> {
        // They are kept with the version. In memory of their own, they do not keep the whole buffer alive that they came in.
        let mut from = Reader::new(Bytes::copy_from_slice(&frame), "what a version depends on");
        let all = Dependencies::take(&mut from)?;
        from.end(all)
    }

    fn newest(&self) -> Hlc {
        self.0.iter().map(|(_, id)| id.at).max().unwrap_or(Hlc::ZERO)
    }

    fn replicas(&self) -> ReplicaSet {
        self.0.iter().map(|(_, id)| id.replica).collect()
    }

    fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Dependency>() + self.0.iter().map(|(key, _)| key.0.len()).sum::<usize>()
    }
}

impl Wire for Request {
    fn encode(&self, out: &mut BytesMut) {
        let mut out = Writer(out);
        match self {
            Request::Get { key, view, seen } => {
                out.byte(0).bytes(key.as_ref()).view(*view).number(seen.0);
            }
            Request::Put {
                key,
                change,
                nearest,
                seen,
                eventual,
            } => {
                out.byte(1).bytes(key.as_ref()).change(change);
                nearest.put(&mut out);
                out.number(seen.0).flag(*eventual);
            }
            Request::Confirm { version, waits } => {
                put_dependency(out.byte(2), version);
                out.flag(*waits);
            }
        }
    }

    fn decode(frame: Bytes) -> Result<Request, BadFrame> {
        let mut from = Reader::new(frame, "a request of a COPS keyspace");
        let request = match from.byte()? {
            0 => Request::Get {
                key: from.key()?,
                view: from.view()?,
                seen: from.hlc()?,
            },
            1 => Request::Put {
                key: from.key()?,
                change: from.change()?,
                nearest: Dependencies::take(&mut from)?,
                seen: from.hlc()?,
                eventual: from.flag()?,
            },
            2 => Request::Confirm {
                version: take_dependency(&mut from)?,
                waits: from.flag()?,
            },
            other => return Err(from.bad(format!("kind {other}"))),
        };
        from.end(request)
    }

    fn newest(&self) -> Hlc {
        match self {
            Request::Get { seen, .. } => *seen,
            Request::Put { nearest, seen, .. } => nearest.newest().max(*seen),
            Request::Confirm { version, .. } => version.1.at,
        }
    }

    fn replicas(&self) -> ReplicaSet {
        match self {
            Request::Get { .. } => ReplicaSet::default(),
            Request::Put { nearest, .. } => nearest.replicas(),
            Request::Confirm { version, .. } => ReplicaSet::one(version.1.replica),
        }
    }
}

impl Wire for Response {
    fn encode(&self, out: &mut BytesMut) {
        let mut out = Writer(out);
        match self {
            Response::Value {
                value,
                everywhere,
                expired,
            } => {
                out.byte(0).value(value.as_ref());
                out.flag(*everywhere).number(expired.0)
            }
            Response::Written { changed } => out.byte(1).changed(changed),
            Response::Nothing {
                changed,
                everywhere,
                expired,
            } => {
                out.byte(2).changed(changed);
                out.flag(*everywhere).number(expired.0)
            }
            Response::Confirmed { everywhere } => out.byte(3).flag(*everywhere),
            Response::Refused(why) => out.byte(4).bytes(why.as_bytes()),
        };
    }

    fn decode(frame: Bytes) -> Result<Response, BadFrame> {
        let mut from = Reader::new(frame, "an answer of a COPS keyspace");
        let response = match from.byte()? {
            0 => Response::Value {
                value: from.value()?,
                everywhere: from.flag()?,
                expired: from.hlc()?,
            },
            1 => Response::Written {
                changed: from.changed()?,
            },
            2 => Response::Nothing {
                changed: from.changed()?,
                everywhere: from.flag()?,
                expired: from.hlc()?,
            },
            3 => Response::Confirmed {
                everywhere: from.flag()?,
            },
            4 => Response::Refused(String::from_utf8_lossy(&from.bytes()?).into_owned()),
            other => return Err(from.bad(format!("kind {other}"))),
        };
        from.end(response)
    }

    fn newest(&self) -> Hlc {
        match self {
            Response::Value { expired, .. } | Response::Nothing { expired, .. } => *expired,
            Response::Written { .. } | Response::Confirmed { .. } | Response::Refused(_) => Hlc::ZERO,
        }
    }
}

impl Wire for Message {
    fn encode(&self, out: &mut BytesMut) {
        let mut out = Writer(out);
        match self {
            Message::Heartbeat(beat) => {
                out.byte(0).number(beat.promise.0).number(beat.settled.0);
                out.number(beat.wall.0).vector(&beat.visible);
                out.said(beat.deletes).number(beat.replaced.0)
            }
            Message::DepCheck(key, id) => out.byte(1).bytes(key.as_ref()).id(Some(*id)),
            Message::Visible(id) => out.byte(2).id(Some(*id)),
            Message::HowFar(found) => out.byte(3).number(found.arrived.0).number(found.safe.0),
            Message::Reached(reply) => out.byte(4).number(reply.until.0).number(reply.prepared.0),
        };
    }

    fn decode(frame: Bytes) -> Result<Message, BadFrame> {
        let mut from = Reader::new(frame, "a message between COPS replicas");
        let message = match from.byte()? {
            0 => Message::Heartbeat(Heartbeat {
                promise: from.hlc()?,
                settled: from.hlc()?,
                wall: from.micros()?,
                visible: from.vector()?,
                deletes: from.said()?,
                replaced: from.hlc()?,
            }),
            1 => Message::DepCheck(from.key()?, take_id(&mut from)?),
            2 => Message::Visible(take_id(&mut from)?),
            3 => Message::HowFar(Found {
                arrived: from.hlc()?,
                safe: from.hlc()?,
            }),
            4 => Message::Reached(Reached {
                until: from.hlc()?,
                prepared: from.hlc()?,
            }),
            other => return Err(from.bad(format!("kind {other}"))),
        };
        from.end(message)
    }

    fn newest(&self) -> Hlc {
        match self {
            Message::Heartbeat(beat) => {
                let clocks = beat.promise.max(beat.settled).max(Hlc::from_wall(beat.wall));
                let others = beat.visible.newest().max(beat.deletes.newest());
                clocks.max(others).max(beat.replaced)
            }
            Message::DepCheck(_, id) | Message::Visible(id) => id.at,
            Message::HowFar(found) => found.arrived.max(found.safe),
            Message::Reached(reply) => reply.until.max(reply.prepared),
        }
    }

    fn replicas(&self) -> ReplicaSet {
        match self {
            Message::Heartbeat(beat) => beat.visible.replicas(),
            Message::DepCheck(_, id) | Message::Visible(id) => ReplicaSet::one(id.replica),
            Message::HowFar(_) | Message::Reached(_) => ReplicaSet::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::{Compute, Computed, Condition, Expiry, PutOptions, ReplicaId, Retimes, Unmet};

    /// An encoded value decodes to the same value. No part of the encoding decodes, nor does a longer frame.
    fn there_and_back<T: Wire + PartialEq + std::fmt::Debug>(value: &T) {
        let mut out = BytesMut::new();
        value.encode(&mut out);
        let frame = out.freeze();
        assert_eq!(T::decode(frame.clone()).as_ref(), Ok(value));
        for len in 0..frame.len() {
            assert!(T::decode(frame.slice(..len)).is_err(), "{value:?} cut at {len}");
        }
        let longer = [&frame[..], b"\0"].concat();
        assert!(
            T::decode(Bytes::from(longer)).is_err(),
            "{value:?} and one byte more"
        );
    }

    fn id(at: u64) -> VersionId {
        let replica = ReplicaId(2);
        VersionId { at: Hlc(at), replica }
    }

    fn nearest() -> Dependencies {
        Dependencies(vec![(Key::from("x"), id(7)), (Key::default(), id(9))])
    }

    fn put(value: Option<Bytes>, options: PutOptions) -> Change {
        Change::new(value, Some(Box::new(options)))
    }

    #[test]
    fn every_request_comes_back_as_it_went() {
        let key = Key::from("y");
        for view in [View::Visible, View::Newest, View::Fresh(Micros(7))] {
            let key = key.clone();
            let get = Request::Get {
                key,
                view,
                seen: Hlc(13),
            };
            there_and_back(&get);
            assert_eq!(get.newest(), Hlc(13));
        }
        for value in [None, Some(Bytes::new()), Some(Bytes::from_static(b"\0\xff"))] {
            let put = Request::Put {
                key: key.clone(),
                change: put(
                    value,
                    PutOptions {
                        expiry: Some(Expiry::After(Micros(5))),
                        ..PutOptions::default()
                    },
                ),
                nearest: nearest(),
                seen: Hlc(11),
                eventual: false,
            };
            there_and_back(&put);
            assert_eq!(put.newest(), Hlc(11));
        }
        for retimes in Retimes::ALL {
            there_and_back(&Request::Put {
                key: key.clone(),
                change: put(
                    None,
                    PutOptions {
                        retimes: Some(retimes),
                        returns_previous: true,
                        ..PutOptions::default()
                    },
                ),
                nearest: nearest(),
                seen: Hlc(11),
                eventual: true,
            });
        }
        for condition in [Condition::Absent, Condition::Present, Condition::Version(id(2))] {
            let computed = [
                Compute::Add(-3),
                Compute::AddDecimal(3.into()),
                Compute::Append(Bytes::from_static(b"x")),
                Compute::Overwrite(u32::MAX, Bytes::new()),
            ];
            for computes in computed.map(Some).into_iter().chain([None]) {
                let options = PutOptions {
                    condition: Some(condition),
                    computes,
                    ..PutOptions::default()
                };
                let change = put(None, options);
                there_and_back(&Request::Put {
                    key: key.clone(),
                    change,
                    nearest: nearest(),
                    seen: Hlc(11),
                    eventual: false,
                });
            }
        }
        there_and_back(&Request::Confirm {
            version: (key, id(3)),
            waits: true,
        });
    }

    #[test]
    fn every_answer_comes_back_as_it_went() {
        let (everywhere, expired) = (true, Hlc(9));
        for response in [
            Response::Value {
                value: Some(Bytes::from_static(b"v")),
                everywhere,
                expired,
            },
            Response::Written {
                changed: Changed::Made { existed: true },
            },
            Response::Written {
                changed: Changed::Retimed(Bytes::from_static(b"v")),
            },
            Response::Written {
                changed: Changed::Replaced(Some(Bytes::from_static(b"v"))),
            },
            Response::Written {
                changed: Changed::Replaced(None),
            },
            Response::Written {
                changed: Changed::Computed(Computed::Length(3)),
            },
            Response::Nothing {
                changed: Changed::Made { existed: false },
                everywhere,
                expired,
            },
            Response::Nothing {
                changed: Changed::Unmet(Box::new(Unmet {
                    has_value: true,
                    value: Some(Bytes::new()),
                })),
                everywhere,
                expired,
            },
            Response::Confirmed { everywhere },
            Response::Refused("why".into()),
        ] {
            there_and_back(&response);
        }
    }

    #[test]
    fn every_message_comes_back_as_it_went() {
        let heartbeat = Message::Heartbeat(Heartbeat {
            promise: Hlc(7 << 12 | 3),
            settled: Hlc(5 << 12),
            wall: Micros(7),
            visible: Vector::of(id(8 << 12)),
            deletes: Said {
                birth: 2,
                shown: Hlc(4 << 12),
                forgotten: Hlc(3 << 12),
                closed: Hlc(1 << 12),
            },
            replaced: Hlc(2 << 12),
        });
        assert_eq!(heartbeat.newest(), Hlc(8 << 12));
        for message in [
            heartbeat,
            Message::DepCheck(Key::from("x"), id(7)),
            Message::Visible(id(7)),
            Message::HowFar(Found {
                arrived: Hlc(9),
                safe: Hlc(7),
            }),
            Message::Reached(Reached {
                until: Hlc(9),
                prepared: Hlc(8),
            }),
        ] {
            there_and_back(&message);
        }
    }

    #[test]
    fn dependencies_come_back_as_they_went_and_a_wrong_count_is_refused() {
        there_and_back(&Dependencies::default());
        there_and_back(&nearest());
        assert_eq!(nearest().newest(), Hlc(9));
        let many = Bytes::from_static(&[255, 255, 255, 255, 0]);
        assert!(Dependencies::decode(many).is_err());
    }
}
