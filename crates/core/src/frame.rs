use crate::{Hlc, ReplicaSet, Vector};
use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// A value that travels between servers or lies in the log.
///
/// Implementations must be total on input from outside: any bytes either decode or give a [`BadFrame`];
/// they never panic and never allocate more than the frame's own length suggests.
pub trait Wire: Sized {
    /// Appends the encoding of `self` to `out`.
    fn encode(&self, out: &mut BytesMut);

    /// Decodes one value that fills all of `frame`.
    fn decode(frame: Bytes) -> Result<Self, BadFrame>;

    /// The newest timestamp that it speaks of, or [`Hlc::ZERO`]. What speaks of a time too far ahead of a node's clock is
    /// kept away from its replicas: it would drag their clocks along, and through them those of all.
    fn newest(&self) -> Hlc;

    /// The sites that it names. What names one that is no site of the cluster is kept away from replicas, too: they have a place for
    /// each site that there is, and no other.
    fn replicas(&self) -> ReplicaSet {
        ReplicaSet::default()
    }

    /// What it takes on the heap besides its own size, in bytes, as far as that is known.
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// Bytes that a peer, a file or a client sent and that do not mean anything here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected {expected}, found {found}")]
pub struct BadFrame {
    /// What would have been understood.
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
}

/// A message that `prost` derives: on the wire it is that, and fields may be added later. All that is left to say is what it speaks of.
pub trait Record: prost::Message + Default {
    /// What is expected where one comes, for errors.
    const WHAT: &'static str;

    /// What the types do not say of what comes from outside. The error is what was found.
    ///
    /// # Errors
    /// If it means nothing here.
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

/// Nothing to say: for protocols without metadata, messages or answers of a kind.
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

/// Timestamps of sites: what a version depends on.
impl Wire for Vector {
    fn encode(&self, out: &mut BytesMut) {
        self.put(out);
    }

    fn decode(mut frame: Bytes) -> Result<Vector, BadFrame> {
        let vector = Vector::take(&mut frame)?;
        match frame.is_empty() {
            true => Ok(vector),
            false => Err(BadFrame::new("a vector of timestamps", "bytes behind it")),
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
