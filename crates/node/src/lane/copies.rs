//! Full copies of peers that are being put in place here.
use super::{Lane, hold};
use crate::{
    incoming::{CopyIn, CopyState},
    record::Record,
};
use prost::Message;
use turnbuckle_core::{Hlc, Protocol, ReplicaId};
use turnbuckle_replication::ReceivedRecord;

impl<P: Protocol> Lane<P> {
    /// The store holds what `cut` covers, whatever the streams bring.
    pub fn cover(&mut self, cut: &[(ReplicaId, Hlc)]) {
        for (replica, until) in cut {
            if let Some(incoming) = self.incoming.get_mut(replica) {
                incoming.covered = incoming.covered.max(*until);
            }
        }
    }

    /// A peer may send its stream from an earlier place, when it has taken back what it had lost. What was here stays as it is: a delete of it may be
    /// forgotten. The cut does not have all of that after a restart, and what every site shows was here, too.
    pub fn cover_what_was_here(&mut self) {
        if self.is_blank() {
            return;
        }
        let (mut cut, settled) = (self.cut(), self.settled());
        for (_, until) in &mut cut {
            *until = settled.max(*until);
        }
        self.cover(&cut);
    }

    /// A full copy that has arrived whole, and whose.
    pub fn whole_copy(&self) -> Option<(ReplicaId, CopyIn<P::Meta>)> {
        let mut copies = self
            .incoming
            .iter()
            .filter_map(|(&replica, incoming)| Some((replica, incoming.copy.as_ref()?)));
        let (replica, copy) = copies.find(|(_, copy)| copy.state >= CopyState::Whole)?;
        Some((replica, copy.clone()))
    }

    /// How far a full copy is.
    pub fn set_copy_state(&mut self, replica: ReplicaId, state: CopyState) {
        let incoming = self.incoming.get_mut(&replica);
        if let Some(copy) = incoming.and_then(|incoming| incoming.copy.as_mut()) {
            copy.state = state;
        }
    }

    /// Up to where the entries of a site wait: a full copy that covers them is being put in place.
    pub fn covered_by_placing(&self, replica: ReplicaId) -> Hlc {
        let copies = self
            .incoming
            .values()
            .filter_map(|incoming| incoming.copy.as_ref());
        let mut placing = copies.filter(|copy| copy.state == CopyState::Placing);
        let cut = placing.next().map_or(&[][..], |copy| &copy.copied.cut);
        cut.iter()
            .find(|(origin, _)| *origin == replica)
            .map_or(Hlc::ZERO, |&(_, until)| until)
    }

    /// The rows of a full copy are about to come in, and may never come in whole. That some may be here, of its source and of others, is written
    /// down in front of them.
    pub fn hold_copied(&mut self, from: ReplicaId, copy: &CopyIn<P::Meta>) {
        let of_others = || copy.held.iter().map(|(&replica, &place)| (replica, place));
        let held = || of_others().chain([(from, copy.resume)]);
        hold(&mut self.incoming, held());
        let mut record = Record::new(self.env.tag(), self.me);
        record.held = held()
            .map(|(replica, place)| ReceivedRecord::new(replica, place))
            .collect();
        self.env.shared().log().append(&[&record.encode_to_vec()]);
        self.moved = true;
    }

    /// A full copy is in place, and nothing of it is staged any more: the stream goes on behind `resume`, and its source is told.
    pub fn copied(&mut self, replica: ReplicaId, copy: &CopyIn<P::Meta>) {
        let Some(incoming) = self.incoming.get_mut(&replica) else {
            return;
        };
        incoming.received = copy.resume;
        incoming.copy = None;
        self.moved = true;
        self.repair_with(replica, copy);
        if self.env.is_up(self.me.peer(replica)) {
            self.resume(replica);
        }
        self.resume_declined();
        self.ask_for_copy();
    }

    /// No copy is under way any more. Whose copy came at the wrong time is told again where its stream goes on.
    pub fn resume_declined(&mut self) {
        let declined = self.incoming.iter().filter(|(_, incoming)| incoming.declined);
        for replica in declined.map(|(&replica, _)| replica).collect::<Vec<_>>() {
            self.resume(replica);
        }
    }
}
