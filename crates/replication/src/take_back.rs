//! What a replica may have stamped in earlier lives and lost, and which peers may give it back.
//!
//! A replica that begins a life cannot know what it has lost: a power loss takes the end of a log, and a directory may be an empty one or an old copy. Its
//! peers know: each says how far it has this replica's stream, and gives back what the replica has lost of it. Until all of them have, the
//! replica promises nothing: what comes back has an old stamp.
//!
//! ```text
//!   begin        unsettled: b c      b resumes: nothing was lost         unsettled: c
//!                                    c resumes: it holds more            c gives back .. that is on disk     unsettled: nobody
//! ```
//!
//! A protocol without streams has none of this: what it must not lose it syncs, and what it has lost its driver copies.
use crate::{Outgoing, StreamPosition};
use turnbuckle_core::{Forgotten, Hlc, Micros, ReplicaId, ReplicaSet};

/// How long others wait at most for what is given to them: a site that was away itself is heard only when it has sent a full copy.
const GIVES_AFTER: Micros = Micros::from_millis(10_000);

/// What a replica knows of its earlier lives, and what it still waits to hear of them.
pub struct EarlierLives {
    me: ReplicaId,
    /// Everything this replica stamped in its earlier lives up to here is in the last checkpoint. The log behind it may hold more, but
    /// with gaps: what peers give back comes in no order, and a crash may end that in the middle.
    recovered: Hlc,
    /// Peers that may hold something this replica stamped later in an earlier life, and lost. Nothing that no power loss could have taken is among
    /// that, so it does not wait for ever for a site that is away.
    unsettled: ReplicaSet,
    patient_until: Micros,
    /// Every peer has given back what it held of this lane when its directory was empty: that is in the log or the last checkpoint.
    is_given_back: bool,
    /// A peer has spoken of an earlier life, of which nothing is on this disk.
    is_forgotten: bool,
    /// A peer has shown that the directory was lost, or is an old copy: stamps may have been given of which nobody here knows.
    has_lost_directory: bool,
    /// Peers that have not said in this life where they are.
    unheard_of: ReplicaSet,
    /// From then on others are given rows although some site was not heard.
    gives_from: Micros,
}

impl EarlierLives {
    /// As the last checkpoint left it.
    pub fn restore(me: ReplicaId, recovered: Hlc, is_given_back: bool) -> EarlierLives {
        EarlierLives {
            me,
            recovered,
            unsettled: ReplicaSet::default(),
            patient_until: Micros(0),
            is_given_back,
            is_forgotten: false,
            has_lost_directory: false,
            unheard_of: ReplicaSet::default(),
            gives_from: Micros(0),
        }
    }

    /// A record of the log says whether all was given back.
    pub fn replay(&mut self, is_given_back: bool) {
        self.is_given_back |= is_given_back;
    }

    /// A new life begins: any of `peers` may hold what was lost. `is_first`: nobody can hold anything.
    pub fn begin(&mut self, now: Micros, peers: ReplicaSet, patience: Micros, is_first: bool) {
        (self.unsettled, self.unheard_of) = (peers, peers);
        self.patient_until = now + patience;
        self.gives_from = match is_first {
            true => Micros(0),
            false => now + GIVES_AFTER,
        };
    }

    // ---- what is decided by it ------------------------------------------------------------------------------

    /// Up to where the last checkpoint has everything of earlier lives.
    pub fn recovered(&self) -> Hlc {
        self.recovered
    }

    /// Whether all was given back that peers held when the directory was empty.
    pub fn is_given_back(&self) -> bool {
        self.is_given_back
    }

    /// Whether a peer has spoken of an earlier life, of which nothing is on this disk.
    pub fn is_forgotten(&self) -> bool {
        self.is_forgotten
    }

    /// The peers that may still hold what was lost.
    pub fn unsettled(&self) -> ReplicaSet {
        self.unsettled
    }

    /// Whether nobody holds anything that was lost here: what is promised is kept.
    pub fn is_settled(&self) -> bool {
        self.unsettled.is_empty()
    }

    /// What this replica knows to have of what it stamped itself, if its protocol says `until`.
    pub fn known(&self, until: Hlc) -> Hlc {
        match self.is_settled() {
            true => until,
            false => until.min(self.recovered),
        }
    }

    /// Whether peers may hold what this replica has lost, and are waited for: for as long as it takes, if its directory was lost or is an old copy.
    pub fn takes_back(&self, now: Micros) -> bool {
        !self.is_settled() && (now < self.patient_until || self.has_lost_directory)
    }

    /// Whether others may be given what they lost, or a full copy. Before all have been heard this directory may be an old one, and what was deleted
    /// since would come back there.
    pub fn may_give(&self, now: Micros) -> bool {
        self.unheard_of.is_empty() || now >= self.gives_from
    }

    /// The peers that have not said in this life where they are.
    pub fn unheard_of(&self) -> ReplicaSet {
        self.unheard_of
    }

    // ---- what is heard --------------------------------------------------------------------------------------

    /// A peer may know this replica by a life of which nothing is on its disk, or not all: by its stream, by what copies of third
    /// sites have brought from there (`at`), or by the birth of its directory, which is `birth` as far as it is known here. With `syncs_all` every
    /// write is synced before it is acknowledged or sent, and no power loss takes any.
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

    /// A peer has said where it is. Returns whether this replica's clock is to be put ahead for it: it may have given stamps of which nobody
    /// here knows, beyond the newest that the peer has heard.
    pub fn hear(&mut self, peer: ReplicaId) -> bool {
        let is_first_word = self.unheard_of.contains(peer);
        self.unheard_of = self.unheard_of.without(peer);
        is_first_word && self.has_lost_directory
    }

    /// A peer holds nothing that was lost here. Returns whether that was the last one since the directory was empty: it is to be written down.
    pub fn settle(&mut self, peer: ReplicaId) -> bool {
        self.unsettled = self.unsettled.without(peer);
        self.is_settled() && !self.is_given_back
    }

    /// That all was given back is written down.
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

    fn begun(is_given_back: bool) -> EarlierLives {
        let mut lives = EarlierLives::restore(A, Hlc(50), is_given_back);
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
