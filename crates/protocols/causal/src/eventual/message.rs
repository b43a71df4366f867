use crate::deletes::Said;
use bytes::{Bytes, BytesMut};
use prost::Message;
use turnbuckle_core::{BadFrame, Forgotten, Hlc, Key, Micros, Wire};

/// What a session asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// One key's value.
    Get(Key),
    /// A new value, or `None` to delete.
    Put(Key, Option<Bytes>),
}

/// What a replica answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// The value, if the key has one.
    Value(Option<Bytes>),
    /// The write is durable here.
    Written {
        /// Whether the key had a value before.
        existed: bool,
    },
    /// It was not done, for this reason.
    Refused(String),
}

/// A promise, behind everything it speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Every later stamp of the sender is above this.
    pub promise: Hlc,
    /// Of what was stamped up to here, no power loss at the sender takes anything any more.
    pub settled: Hlc,
    /// What the sender has of every site, and which deletes are forgotten there.
    pub deletes: Said,
    /// The wall time at the sender when it promised was at least this.
    pub wall: Micros,
}

#[derive(Clone, PartialEq, Message)]
struct RequestWire {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bool, tag = "2")]
    write: bool,
    #[prost(bytes = "bytes", optional, tag = "3")]
    value: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct ResponseWire {
    #[prost(bool, tag = "1")]
    written: bool,
    #[prost(bool, tag = "2")]
    existed: bool,
    #[prost(bytes = "bytes", optional, tag = "3")]
    value: Option<Bytes>,
    #[prost(string, optional, tag = "4")]
    refused: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct MarkWire {
    #[prost(fixed64, tag = "1")]
    promise: u64,
    #[prost(uint64, tag = "2")]
    wall_us: u64,
    #[prost(fixed64, tag = "3")]
    settled: u64,
    #[prost(fixed64, tag = "4")]
    shown: u64,
    #[prost(fixed64, tag = "5")]
    forgotten: u64,
    #[prost(fixed64, tag = "6")]
    birth: u64,
}

fn encode(message: &impl Message, out: &mut BytesMut) {
    message.encode(out).expect("a BytesMut grows");
}

fn decode<M: Message + Default>(frame: Bytes, expected: &'static str) -> Result<M, BadFrame> {
    M::decode(frame).map_err(|error| BadFrame::new(expected, error.to_string()))
}

impl Wire for Request {
    fn encode(&self, out: &mut BytesMut) {
        let wire = match self.clone() {
            Request::Get(key) => RequestWire {
                key: key.0,
                write: false,
                value: None,
            },
            Request::Put(key, value) => RequestWire {
                key: key.0,
                write: true,
                value,
            },
        };
        encode(&wire, out);
    }

    fn decode(frame: Bytes) -> Result<Request, BadFrame> {
        let wire: RequestWire = decode(frame, "a request of an eventual keyspace")?;
        let key = Key(wire.key);
        Ok(if wire.write {
            Request::Put(key, wire.value)
        } else {
            Request::Get(key)
        })
    }

    fn newest(&self) -> Hlc {
        Hlc::ZERO
    }
}

impl Wire for Response {
    fn encode(&self, out: &mut BytesMut) {
        let wire = match self.clone() {
            Response::Value(value) => ResponseWire {
                value,
                ..ResponseWire::default()
            },
            Response::Written { existed } => ResponseWire {
                written: true,
                existed,
                ..ResponseWire::default()
            },
            Response::Refused(why) => ResponseWire {
                refused: Some(why),
                ..ResponseWire::default()
            },
        };
        encode(&wire, out);
    }

    fn decode(frame: Bytes) -> Result<Response, BadFrame> {
        let wire: ResponseWire = decode(frame, "an answer of an eventual keyspace")?;
        Ok(match (wire.refused, wire.written) {
            (Some(why), _) => Response::Refused(why),
            (None, true) => Response::Written {
                existed: wire.existed,
            },
            (None, false) => Response::Value(wire.value),
        })
    }

    fn newest(&self) -> Hlc {
        Hlc::ZERO
    }
}

impl Wire for Mark {
    fn encode(&self, out: &mut BytesMut) {
        encode(
            &MarkWire {
                promise: self.promise.0,
                settled: self.settled.0,
                shown: self.deletes.shown.0,
                forgotten: self.deletes.forgotten.0,
                birth: self.deletes.birth,
                wall_us: self.wall.0,
            },
            out,
        );
    }

    fn decode(frame: Bytes) -> Result<Mark, BadFrame> {
        const WHAT: &str = "a mark of an eventual keyspace";
        let wire: MarkWire = decode(frame, WHAT)?;
        // A hybrid clock is never behind the wall clock that it was read with.
        if Hlc::from_wall(Micros(wire.wall_us)) > Hlc(wire.promise) {
            return Err(BadFrame::new(WHAT, "a promise that is behind its own wall clock"));
        }
        Ok(Mark {
            promise: Hlc(wire.promise),
            settled: Hlc(wire.settled),
            deletes: Said {
                birth: Forgotten::check_birth(wire.birth)?,
                shown: Hlc(wire.shown),
                forgotten: Hlc(wire.forgotten),
            },
            wall: Micros(wire.wall_us),
        })
    }

    fn newest(&self) -> Hlc {
        let promised = self.promise.max(self.settled).max(self.deletes.newest());
        promised.max(Hlc::from_wall(self.wall))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<T: Wire>(value: &T) -> T {
        let mut out = BytesMut::new();
        value.encode(&mut out);
        T::decode(out.freeze()).expect("what was encoded decodes")
    }

    #[test]
    fn every_message_comes_back_as_it_went() {
        let key = Key::from("x");
        for request in [
            Request::Get(key.clone()),
            Request::Put(key.clone(), None),
            Request::Put(key.clone(), Some(Bytes::new())),
            Request::Put(Key::default(), Some(Bytes::from_static(b"\0\xff"))),
        ] {
            assert_eq!(there_and_back(&request), request);
        }
        for response in [
            Response::Value(None),
            Response::Value(Some(Bytes::new())),
            Response::Written { existed: true },
            Response::Written { existed: false },
            Response::Refused("why".into()),
        ] {
            assert_eq!(there_and_back(&response), response);
        }
        let mark = Mark {
            promise: Hlc(7 << 12 | 3),
            settled: Hlc(5 << 12),
            deletes: Said {
                birth: 2,
                shown: Hlc(4 << 12),
                forgotten: Hlc(3 << 12),
            },
            wall: Micros(7),
        };
        assert_eq!(there_and_back(&mark), mark);
        let mut bytes = BytesMut::new();
        let wall = Micros(8);
        Mark { wall, ..mark }.encode(&mut bytes);
        let error = Mark::decode(bytes.freeze()).expect_err("no clock makes such a promise");
        assert!(error.to_string().contains("behind its own wall clock"), "{error}");
    }
}
