//! What a replica may have stamped in earlier incarnations and lost, and which peers may send it back.
//!
//! A replica that begins an incarnation cannot know what it has lost: a power loss takes the end of a log, and a directory may be an empty one or an
//! old copy. Its peers know. Each peer reports how far it has this replica's stream, and sends back what the replica has lost of it. Until all peers
//! have done so, the replica promises nothing: what is sent back has an old stamp.
//!
//! ```text
//!   begin        unsettled: b c      b resumes: nothing was lost         unsettled: c
//!                                    c resumes: it holds more            c gives back .. that is on disk     unsettled: nobody
//! ```
//!
//! A protocol without streams needs none of this. It syncs what it must not lose, and its driver restores what was lost by full copies.
use crate::{Outgoing, StreamPosition};
use turnbuckle_core::{Forgotten, Hlc, Micros, ReplicaId, ReplicaSet};

/// The longest time that peers wait for lost versions and full copies because some site was not heard. A site that was unreachable itself is heard
/// only when it has sent a full copy.
const GIVES_AFTER: Micros = Micros::from_millis(10_000);

/// What a replica knows of its earlier incarnations, and which peers it still has to hear about them.
pub struct EarlierIncarnations {
    me: ReplicaId,
    /// Everything that this replica stamped in earlier incarnations up to this time is in the last checkpoint. The log behind it may hold more, but
    /// with gaps: what peers send back comes in no order, and a crash may interrupt that.
    recovered: Hlc,
    /// Peers that may hold something that this replica stamped later in an earlier incarnation, and lost. Only what a power loss could have taken can
    /// be among that, so the replica does not wait forever for a site that is unreachable.
    unsettled: ReplicaSet,
    patient_until: Micros,
    /// Whether every peer has sent back what it held of this lane when the lane's directory was empty. That is in the log or the last checkpoint.
    is_given_back: bool,
    /// Whether a peer has named an earlier incarnation of which nothing is on this disk.
    is_forgotten: bool,
    /// Whether a peer has shown that the directory was lost, or is an old copy: this replica may have given stamps that it does not know of.
    has_lost_directory: bool,
    /// Peers that have not reported their position in this incarnation.
    not_heard_from: ReplicaSet,
    /// From this time on, in monotonic time, peers are sent rows even if some site was not heard.
    gives_from: Micros,
}

impl EarlierIncarnations {
    /// The state as the last checkpoint left it.
    pub fn restore(me: ReplicaId, recovered: Hlc, is_given_back: bool) -> EarlierIncarnations {
        EarlierIncarnations {
            me,
            recovered,
            unsettled: ReplicaSet::default(),
            patient_until: Micros(0),
            is_given_back,
            is_forgotten: false,
            has_lost_directory: false,
            not_heard_from: ReplicaSet::default(),
            gives_from: Micros(0),
        }
    }

    /// Replays a record of the log that says whether everything was sent back.
    pub fn replay(&mut self, is_given_back: bool) {
        self.is_given_back |= is_given_back;
    }

    /// A new incarnation begins: any of `peers` may hold what was lost. `is_first`: the keyspace is new, so no peer can hold anything.
    pub fn begin(&mut self, now: Micros, peers: ReplicaSet, patience: Micros, is_first: bool) {
        (self.unsettled, self.not_heard_from) = (peers, peers);
        self.patient_until = now + patience;
        self.gives_from = match is_first {
            true => Micros(0),
            false => now + GIVES_AFTER,
        };
    }

    // ---- what it decides ------------------------------------------------------------------------------------

    /// The time up to which the last checkpoint has everything of earlier incarnations.
    pub fn recovered(&self) -> Hlc {
        self.recovered
    }

    /// Whether peers have sent back everything that they held when the directory was empty.
    pub fn is_given_back(&self) -> bool {
        self.is_given_back
    }

    /// Whether a peer has named an earlier incarnation of which nothing is on this disk.
    pub fn is_forgotten(&self) -> bool {
        self.is_forgotten
    }

    /// The peers that may still hold what was lost.
    pub fn unsettled(&self) -> ReplicaSet {
        self.unsettled
    }

    /// Whether no peer holds anything that was lost here: then a promise will be kept.
    pub fn is_settled(&self) -> bool {
        self.unsettled.is_empty()
    }

    /// The time up to which this replica knows to have what it stamped itself, if its protocol says `until`.
    pub fn known(&self, until: Hlc) -> Hlc {
        match self.is_settled() {
            true => until,
            false => until.min(self.recovered),
        }
    }

    /// Whether the replica waits for peers that may hold what it has lost. If its directory was lost or is an old copy, it waits for as long as it
    /// takes.
    pub fn takes_back(&self, now: Micros) -> bool {
        !self.is_settled() && (now < self.patient_until || self.has_lost_directory)
    }

    /// Whether peers may be sent what they have lost, or a full copy. Before all peers have been heard, this directory may be an old copy, and what
    /// was deleted since would come back at the peer.
    pub fn may_give(&self, now: Micros) -> bool {
        self.not_heard_from.is_empty() || now >= self.gives_from
    }

    /// The peers that have not reported their position in this incarnation.
    pub fn not_heard_from(&self) -> ReplicaSet {
        self.not_heard_from
    }

    // ---- what is heard --------------------------------------------------------------------------------------

    /// A peer reports what it knows of this replica. It may know an incarnation of which nothing is on this disk, or not all: by the stream, by what
    /// full copies from third sites have brought there (both positions are in `at`), or by the birth of this replica's directory, which is `birth` as
    /// far as it is known here. With `syncs_all`, every write is synced before it is acknowledged or sent, and no power loss takes any.
    pub fn hear_of(
        &mut self,
        at: [StreamPosition; 2],
        word: &Forgotten,
        birth: Option<u64>,
        stream: &Outgoing,
        syncs_all: bool,
    ) {
        let is_another = |at: StreamPosition| stream.is_of_another_life(at);
        let known = word.met.get(&self.me);
        let is_met = known.is_some_and(|&known| birth != Some(known));
        let is_heard_of = at.into_iter().any(is_another) || is_met || word.directories.contains_key(&self.me);
        self.is_forgotten |= is_heard_of && !self.is_given_back;
        let is_lost = |at: StreamPosition| is_another(at) || syncs_all && stream.has_lost(at);
        self.has_lost_directory |= self.is_forgotten || at.into_iter().any(is_lost);
    }

    /// A peer has reported its position. Returns whether this replica's clock must be moved ahead because of that: the replica may have given stamps
    /// that it does not know of, beyond the newest stamp that the peer has heard.
    pub fn hear(&mut self, peer: ReplicaId) -> bool {
        let is_first_word = self.not_heard_from.contains(peer);
        self.not_heard_from = self.not_heard_from.without(peer);
        is_first_word && self.has_lost_directory
    }

    /// A peer holds nothing that was lost here. Returns whether it is the last peer since the directory was empty: the caller must write that down.
    pub fn settle(&mut self, peer: ReplicaId) -> bool {
        self.unsettled = self.unsettled.without(peer);
        self.is_settled() && !self.is_given_back
    }

    /// Notes that it is written down that everything was sent back.
    pub fn note_given_back(&mut self) {
        self.is_given_back = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StreamLimits;
    use std::collections::BTreeMap;

    const A: ReplicaId = ReplicaId(0);
    const B: ReplicaId = ReplicaId(1);
    const C: ReplicaId = ReplicaId(2);
    const PATIENCE: Micros = Micros::from_millis(5_000);

    fn at_ms(ms: u64) -> Micros {
        Micros::from_millis(ms)
    }

    fn begun(is_given_back: bool) -> EarlierIncarnations {
        let mut lives = EarlierIncarnations::restore(A, Hlc(50), is_given_back);
        let peers = ReplicaSet::one(B).union(ReplicaSet::one(C));
        lives.begin(at_ms(0), peers, PATIENCE, false);
        lives
    }

    fn stream(incarnation: u64) -> Outgoing {
        let mut stream = Outgoing::new(StreamLimits::default(), [B, C].into_iter());
        stream.begin(incarnation, Hlc(5));
        stream
    }

    #[test]
    fn it_knows_what_the_checkpoint_has_until_all_have_given_back() {
        let mut lives = begun(true);
        assert_eq!(lives.known(Hlc(80)), Hlc(50));
        assert!(!lives.settle(B));
        assert_eq!((lives.known(Hlc(80)), lives.known(Hlc(30))), (Hlc(50), Hlc(30)));
        lives.settle(C);
        assert_eq!(lives.known(Hlc(80)), Hlc(80));
    }

    #[test]
    fn it_is_patient_for_a_while_and_for_ever_once_a_directory_was_lost() {
        let mut lives = begun(true);
        assert!(lives.takes_back(at_ms(4_999)) && !lives.takes_back(at_ms(5_000)));
        let of_another_life = StreamPosition {
            incarnation: 3,
            number: 9,
        };
        let word = Forgotten::default();
        lives.hear_of([of_another_life; 2], &word, None, &stream(7), false);
        assert!(lives.takes_back(at_ms(999_999)) && !lives.is_forgotten());
        assert!(lives.hear(B), "its clock goes ahead once for each peer");
        assert!(!lives.hear(B));
        for peer in [B, C] {
            lives.settle(peer);
        }
        assert!(!lives.takes_back(at_ms(0)));
    }

    #[test]
    fn a_birth_that_is_not_known_here_tells_of_a_life_that_is_forgotten() {
        let word = Forgotten {
            met: BTreeMap::from([(A, 7)]),
            ..Forgotten::default()
        };
        let hear = |birth, is_given_back| {
            let mut lives = begun(is_given_back);
            lives.hear_of([StreamPosition::default(); 2], &word, birth, &stream(7), true);
            lives.is_forgotten()
        };
        assert!(!hear(Some(7), false), "it is this directory's");
        assert!(hear(Some(8), false) && hear(None, false));
        assert!(!hear(None, true), "what it had was given back");
    }

    #[test]
    fn it_gives_when_all_were_heard_or_after_a_while() {
        let mut lives = begun(true);
        assert!(!lives.may_give(at_ms(0)) && lives.may_give(GIVES_AFTER));
        for peer in [B, C] {
            lives.hear(peer);
        }
        assert!(lives.may_give(at_ms(0)));
    }

    #[test]
    fn that_all_was_given_back_is_written_down_once() {
        let mut lives = begun(false);
        assert!(!lives.settle(B), "c may hold more");
        assert!(lives.settle(C));
        lives.note_given_back();
        assert!(!lives.settle(C));
    }
}
