//! The receiver's side of one peer's stream.
use crate::{
    frame::decode_entry,
    pending::{Item, Pending},
    stream::StreamPosition,
};
use bytes::Bytes;
use turnbuckle_core::{BadFrame, Hlc, Protocol, Recovered};

/// Where a lane is in the stream of another site, and what has arrived and waits for its turn.
pub(crate) struct Incoming<P: Protocol> {
    /// Handed to the protocol up to here.
    pub received: StreamPosition,
    /// What the log was last told.
    pub logged: StreamPosition,
    /// What has arrived up to here.
    arrived: u64,
    /// Everything that the source stamped up to here was in the store already, through a copy of another site's data.
    pub covered: Hlc,
    /// Since the link is up, the source has been told where we are: what comes continues from there.
    resumed: bool,
    pub pending: Pending<P>,
    /// A full copy on its way.
    pub copy: Option<CopyIn>,
    /// A full copy was offered while that of another site was under way: it is asked for again afterwards.
    pub declined: bool,
}

/// A full copy that is being received.
#[derive(Debug, Clone)]
pub(crate) struct CopyIn {
    /// Where the stream goes on afterwards.
    pub resume: StreamPosition,
    /// What the copy covers, and what its source keeps beside its versions.
    pub copied: Recovered,
    /// All rows are staged: it can be put in place.
    pub complete: bool,
}

impl<P: Protocol> Incoming<P> {
    pub fn new(received: StreamPosition, pending: Pending<P>) -> Incoming<P> {
        Incoming {
            received,
            logged: received,
            arrived: received.number,
            covered: Hlc::ZERO,
            resumed: false,
            pending,
            copy: None,
            declined: false,
        }
    }

    /// The log says that everything up to here was handed on.
    pub fn replay(&mut self, position: StreamPosition) {
        (self.received, self.logged, self.arrived) = (position, position, position.number);
    }

    /// The link is up, or a copy is in place: from here on the stream continues from the position returned, which the source is told.
    pub fn resume(&mut self) -> StreamPosition {
        self.drop_stream();
        self.arrived = self.received.number;
        self.resumed = true;
        (self.copy, self.declined) = (None, false);
        self.received
    }

    /// Forgets what has arrived of the stream and waits; what was given back belongs to the other direction and stays.
    pub fn drop_stream(&mut self) {
        self.pending.drop_stream();
    }

    /// The link is down.
    pub fn silence(&mut self) {
        self.resumed = false;
        // A copy that has arrived whole is put in place all the same.
        self.copy = self.copy.take().filter(|copy| copy.complete);
        self.pending.clear();
    }

    /// Whether entries and marks are expected now. Others are left over from before a resume and are passed over.
    pub fn is_streaming(&self) -> bool {
        self.resumed && self.copy.is_none() && !self.declined
    }

    /// Entries that continue behind `previous`, up to `last`.
    pub fn arrive(
        &mut self,
        previous: u64,
        last: StreamPosition,
        entries: Vec<Bytes>,
        numbers: &[u64],
    ) -> Result<(), BadFrame> {
        if previous != self.arrived || last.number < previous || last.incarnation < self.received.incarnation
        {
            let found = format!(
                "{previous} to {} of incarnation {}",
                last.number, last.incarnation
            );
            return Err(BadFrame::new("entries that continue the stream", found));
        }
        let all = entries.len() as u64 == last.number - previous && numbers.is_empty();
        let rising = numbers.is_sorted_by(|a, b| a < b)
            && numbers
                .iter()
                .all(|number| (previous + 1..=last.number).contains(number));
        if !all && (numbers.len() != entries.len() || !rising) {
            let found = format!("{} numbers for {}", numbers.len(), entries.len());
            return Err(BadFrame::new("a number for each stream entry", found));
        }
        for (place, entry) in entries.into_iter().enumerate() {
            let (key, version) = decode_entry(entry.clone())?;
            let number = numbers.get(place).copied().unwrap_or(previous + 1 + place as u64);
            self.pending.push(Item::Entry {
                key,
                version,
                encoded: entry,
                at: StreamPosition {
                    incarnation: last.incarnation,
                    number,
                },
            })?;
        }
        self.pending.push(Item::Reached(last))?;
        self.arrived = last.number;
        Ok(())
    }

    /// A mark behind entry `after`.
    pub fn arrive_mark(&mut self, after: u64, message: P::Message) -> Result<(), BadFrame> {
        if after > self.arrived {
            let found = format!("one behind {after} when {} has arrived", self.arrived);
            return Err(BadFrame::new("a mark behind its entries", found));
        }
        self.pending.push(Item::Mark(message))
    }
}

/// What a take-back asks for: versions of `site` stamped after `since`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TakeBack {
    pub since: Hlc,
}

/// Something on its way to a peer, row by row, from a snapshot of the store.
pub(crate) struct RowsOut {
    pub snapshot: Box<dyn turnbuckle_store::Snapshot>,
    /// Where the next rows begin.
    pub cursor: Option<turnbuckle_store::RowCursor>,
    /// What a full copy says in front of its rows.
    pub begin: Option<crate::frame::CopyBeginFrame>,
    pub purpose: Purpose,
}

/// What rows are sent for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    /// A full copy.
    Copy,
    /// Giving back what the peer lost.
    Return(TakeBack),
}
