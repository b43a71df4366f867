use crate::{Hlc, Meta, ReplicaSet, Vector};
use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// A value that is sent between servers or written to the log.
///
/// Decoding must be total on input from outside: any bytes either decode or give a [`BadFrame`]. It never panics, and never allocates more than the
/// frame's own length suggests.
pub trait Wire: Sized {
    /// Appends the encoding of `self` to `out`.
    fn encode(&self, out: &mut BytesMut);

    /// Decodes one value that fills all of `frame`.
    fn decode(frame: Bytes) -> Result<Self, BadFrame>;

    /// The newest timestamp in the value, or [`Hlc::ZERO`]. If it is too far ahead of a node's clock, the node does not hand the value to its
    /// replicas: their clocks would follow the timestamp, and then the clocks of all other replicas.
    fn newest(&self) -> Hlc;

    /// The replicas that the value names. If the cluster has no such site, a node does not hand the value to its replicas: they have room for the
    /// sites that exist, and for no others.
    fn replicas(&self) -> ReplicaSet {
        ReplicaSet::default()
    }

    /// The heap memory that the value takes besides its own size, in bytes, as far as that is known.
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// Bytes from a peer, a file or a client that do not decode.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected {expected}, found {found}")]
pub struct BadFrame {
    /// What would have been accepted.
    pub expected: &'static str,
    /// What was there instead, short enough for a log line.
    pub found: String,
}

impl BadFrame {
    /// An error that says what was expected and what was found instead.
    pub fn new(expected: &'static str, found: impl Into<String>) -> BadFrame {
        BadFrame {
            expected,
            found: found.into(),
        }
    }

    /// The number of a replica that no partition can have.
    pub fn replica(number: u32) -> BadFrame {
        let found = format!("{number}; the highest is {}", ReplicaSet::MAX - 1);
        BadFrame::new("the number of a replica", found)
    }
}

/// A message whose encoding `prost` derives, so that fields may be added later. What is left to implement is what the derived code cannot know: its
/// name in errors, further checks, and which timestamps and replicas it contains.
pub trait Record: prost::Message + Default {
    /// What the message is, for errors: see [`BadFrame::expected`].
    const WHAT: &'static str;

    /// Checks a message from outside for what the types of its fields do not rule out. The error is what was found.
    ///
    /// # Errors
    /// If the message is not valid.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// See [`Wire::newest`].
    fn newest(&self) -> Hlc {
        Hlc::ZERO
    }

    /// See [`Wire::replicas`].
    fn replicas(&self) -> ReplicaSet {
        ReplicaSet::default()
    }
}

impl<R: Record> Wire for R {
    fn encode(&self, out: &mut BytesMut) {
        put_record(self, out);
    }

    fn decode(frame: Bytes) -> Result<R, BadFrame> {
        let record: R = take_record(frame, R::WHAT)?;
        record.check().map_err(|found| BadFrame::new(R::WHAT, found))?;
        Ok(record)
    }

    fn newest(&self) -> Hlc {
        Record::newest(self)
    }

    fn replicas(&self) -> ReplicaSet {
        Record::replicas(self)
    }
}

pub(crate) fn put_record(record: &impl prost::Message, out: &mut BytesMut) {
    record.encode(out).expect("a BytesMut grows");
}

pub(crate) fn take_record<M: prost::Message + Default>(
    frame: Bytes,
    what: &'static str,
) -> Result<M, BadFrame> {
    M::decode(frame).map_err(|error| BadFrame::new(what, error.to_string()))
}

/// No bytes: for protocols without metadata, or without messages or answers of a kind.
impl Wire for () {
    fn encode(&self, _: &mut BytesMut) {}

    fn decode(frame: Bytes) -> Result<(), BadFrame> {
        if frame.is_empty() {
            Ok(())
        } else {
            Err(BadFrame::new("no bytes", format!("{} bytes", frame.len())))
        }
    }

    fn newest(&self) -> Hlc {
        Hlc::ZERO
    }
}

/// What a version depends on.
impl Meta for Vector {}

/// A timestamp for each replica.
impl Wire for Vector {
    fn encode(&self, out: &mut BytesMut) {
        self.put(out);
    }

    fn decode(mut frame: Bytes) -> Result<Vector, BadFrame> {
        let vector = Vector::take(&mut frame)?;
        match frame.is_empty() {
            true => Ok(vector),
            false => Err(BadFrame::new("a vector of timestamps", "bytes after it")),
        }
    }

    fn newest(&self) -> Hlc {
        Vector::newest(self)
    }

    fn replicas(&self) -> ReplicaSet {
        Vector::replicas(self)
    }

    fn heap_bytes(&self) -> usize {
        Vector::heap_bytes(self)
    }
}
