//! What a replica must hear after a start, before it answers anybody.
//!
//! **An empty directory may have been lost.** Then peers hold versions that this site stamped in a life of which it knows nothing. Whoever
//! has read them must not be told that there is nothing. And some may lie ahead of its wall clock, since each restart leads a clock by up to
//! three seconds: what it stamped below those would be passed over everywhere, because the older version of the key would win. So requests wait until every
//! other site has given back what it holds. By then each has said how far its clock is, which is above all that this site ever told it.
//!
//! ```text
//!   site b: directory lost                        site a
//!      | wall clock 100                              | has x of b, stamped 103, and b's promise of 103
//!      | PUT x, GET x wait                           |
//!      | <------- resume, clock 104 ---------------- |
//!      | <------- x@103 is given back -------------- |
//!      | stamps x with 105                           |
//! ```
//!
//! It waits for at least one other site: alone it cannot tell a new cluster from a lost directory. If none that it has heard after two seconds speaks of an
//! earlier life, it serves: the cluster is new, and one site may be late. But once a peer speaks of an earlier life of this node, its directory was
//! lost, and it waits for all sites: what it answered and stamped in that life may be known to a site that is away, and to no other. Its requests are
//! refused meanwhile, by the names of those sites, and it promises nothing.
//!
//! What it stamped last may have reached nobody but its clients. Where its clock was ahead of the wall clock it counted on from the newest stamp that it had
//! heard. Its peers know that one, and from there it would give the same stamps to other values. So its clock is put ahead by as much as a
//! restart puts the first bound, once for each peer that is heard: nobody counts that far while a message is under way. The same holds for an old copy of a
//! directory, whose peers know more of its stream than it does.
//!
//! Once all have given back, that is written down. A node that is restarted before asks all of them again.
//!
//! **A directory with something in it may be an old copy.** A peer says what it has forgotten when the link to it comes up. If deletes are among that which
//! the copy does not have, the replica refuses to serve. So requests wait for the word of any other site. And nothing is given to others, rows that they
//! lost or a full copy, before all other sites were heard, ten seconds at most: what was deleted since would come back there. One that knows that
//! it is old gives nothing, and whoever waits for what it gives back is told that there is nothing. One that serves has lost what it wrote after it was made,
//! and others may not have that either: where writes are synced, a peer that holds more than the copy shows that it is one, and it promises nothing until
//! all have given back what they hold. Under `interval` and `none` an old copy looks like the end of a log that a power loss took.
//!
//! For that word requests wait two seconds at most, then they are served.
use std::collections::VecDeque;
use turnbuckle_core::{Micros, ReplicaId, ReplicaSet};

/// How long requests wait at most.
const PATIENCE: Micros = Micros::from_millis(2_000);

/// What a replica waits for after a start, and the inputs that wait for it.
pub struct Unheard<T> {
    missing: Missing,
    until: Micros,
    waiting: VecDeque<T>,
}

enum Missing {
    /// What these peers give back.
    Returns(ReplicaSet),
    /// What any peer has forgotten.
    Word,
}

impl<T> Unheard<T> {
    /// The directory was empty: what these peers give back is waited for.
    pub fn returns(now: Micros, peers: ReplicaSet) -> Unheard<T> {
        Unheard::new(now, Missing::Returns(peers))
    }

    /// The directory may be an old copy: the word of any peer is waited for.
    pub fn word(now: Micros) -> Unheard<T> {
        Unheard::new(now, Missing::Word)
    }

    fn new(now: Micros, missing: Missing) -> Unheard<T> {
        Unheard {
            missing,
            until: now + PATIENCE,
            waiting: VecDeque::new(),
        }
    }

    /// An input waits, for at most two seconds since the start.
    ///
    /// # Errors
    /// If those have passed: the input.
    pub fn hold(&mut self, now: Micros, input: T) -> Result<(), T> {
        if self.is_late(now) {
            return Err(input);
        }
        self.waiting.push_back(input);
        Ok(())
    }

    /// Until when inputs wait, if any does.
    pub fn until(&self) -> Option<Micros> {
        (!self.waiting.is_empty()).then_some(self.until)
    }

    /// How many inputs wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes out all that waits.
    pub fn take_waiting(&mut self) -> VecDeque<T> {
        std::mem::take(&mut self.waiting)
    }

    /// Whether it has taken longer than inputs wait.
    pub fn is_late(&self, now: Micros) -> bool {
        now >= self.until
    }

    /// Whether what peers give back is still missing, and late.
    pub fn returns_are_late(&self, now: Micros) -> bool {
        matches!(self.missing, Missing::Returns(_)) && self.is_late(now)
    }

    /// A peer has said what it has forgotten.
    pub fn hear_word(&mut self) {
        if matches!(self.missing, Missing::Word) {
            self.missing = Missing::Returns(ReplicaSet::default());
        }
    }

    /// A peer holds nothing more of this replica.
    pub fn hear_return(&mut self, peer: ReplicaId) {
        if let Missing::Returns(peers) = &mut self.missing {
            *peers = peers.without(peer);
        }
    }

    /// Whether nothing is missing any more, or it is not waited for any longer. `is_new`: some peer was heard, none speaks of an earlier life, and
    /// none is giving back.
    pub fn is_over(&self, now: Micros, is_new: bool) -> bool {
        match self.missing {
            Missing::Returns(peers) => peers.is_empty() || self.is_late(now) && is_new,
            Missing::Word => self.is_late(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: ReplicaId = ReplicaId(1);

    #[test]
    fn a_word_is_enough_or_two_seconds() {
        let mut unheard: Unheard<u8> = Unheard::word(Micros(0));
        assert!(!unheard.is_over(Micros(0), false) && unheard.is_over(PATIENCE, false));
        unheard.hear_return(B);
        assert!(!unheard.is_over(Micros(0), true), "nothing was to be given back");
        unheard.hear_word();
        assert!(unheard.is_over(Micros(0), false));
    }

    #[test]
    fn what_is_given_back_is_waited_for_unless_nobody_speaks_of_an_earlier_life() {
        let mut unheard: Unheard<u8> = Unheard::returns(Micros(0), ReplicaSet::one(B));
        unheard.hear_word();
        assert!(!unheard.is_over(Micros(0), true));
        assert!(unheard.is_over(PATIENCE, true) && !unheard.is_over(PATIENCE, false));
        unheard.hear_return(B);
        assert!(unheard.is_over(Micros(0), false));
    }

    #[test]
    fn inputs_wait_two_seconds() {
        let mut unheard = Unheard::word(Micros(0));
        assert_eq!(unheard.hold(Micros(1), 'a'), Ok(()));
        assert_eq!(unheard.hold(PATIENCE, 'b'), Err('b'));
        assert_eq!(unheard.take_waiting(), ['a']);
    }
}
