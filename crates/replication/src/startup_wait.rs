//! What a replica must hear from its peers after a start, before it answers requests.
//!
//! **An empty directory may mean that the old one was lost.** Then peers hold versions that this site stamped in an incarnation of which it knows nothing. A
//! client that has read them must not be told that there is nothing. And some of them may be ahead of this site's wall clock, since each restart
//! moves a clock ahead by up to three seconds. What the site stamps below those would be ignored at all sites, because the older version of the key
//! would win. So requests wait until every other site has sent back what it holds. By then each site has reported its clock, which is above
//! everything that this site ever sent to it.
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
//! The replica waits for at least one other site: alone it cannot tell a new cluster from a lost directory. If no site that it has heard after two
//! seconds names an earlier incarnation, it serves: the cluster is new, and one site may be late. But once a peer names an earlier incarnation of
//! this node, the directory was lost, and the replica waits for all sites. What it answered and stamped in that incarnation may be known to an
//! unreachable site, and to no other. Meanwhile its requests are refused with the names of those sites, and it promises nothing.
//!
//! The last stamps of that incarnation may have reached clients and no peer. While the site's clock was ahead of its wall clock, it counted on from
//! the newest stamp that it had heard. Its peers know that stamp too, and counting on from there the replica would give the same stamps to other
//! values. So its clock is moved ahead, once for each peer that is heard, by the distance at which a restart sets the first bound: no clock counts
//! that far while a message is under way. The same holds for an old copy of a directory, if its peers know more of its stream than it does.
//!
//! When all sites have sent back what they hold, that is written down. A node that is restarted before that asks all of them again.
//!
//! **A directory that is not empty may be an old copy.** A peer reports which deletes it has forgotten when the link to it comes up. If the copy
//! lacks some of these deletes, the replica refuses to serve. So requests wait for the word of any other site. And the replica sends peers nothing,
//! neither rows that they lost nor a full copy, before all other sites were heard, ten seconds at most: what was deleted since would come back there.
//! A replica that knows that its directory is an old copy sends nothing back, and tells the peers that wait for it that there is nothing. An old copy
//! that serves has lost what was written after it was made, and other replicas may not have that either. Where writes are synced, a peer that holds
//! more than the copy shows that it is one, and the replica promises nothing until all peers have sent back what they hold. Under `interval` and
//! `none`, an old copy looks like a log that lost its end in a power loss.
//!
//! Requests wait for that word two seconds at most. Then they are served.
use std::collections::VecDeque;
use turnbuckle_core::{Micros, ReplicaId, ReplicaSet};

/// The longest time that requests wait.
const PATIENCE: Micros = Micros::from_millis(2_000);

/// What a replica waits for after a start, and the inputs that wait for it.
pub struct StartupWait<T> {
    missing: Missing,
    until: Micros,
    waiting: VecDeque<T>,
}

enum Missing {
    /// What these peers send back.
    Returns(ReplicaSet),
    /// The word of any peer: what it has forgotten.
    Word,
}

impl<T> StartupWait<T> {
    /// The directory was empty: inputs wait for what these peers send back.
    pub fn returns(now: Micros, peers: ReplicaSet) -> StartupWait<T> {
        StartupWait::new(now, Missing::Returns(peers))
    }

    /// The directory may be an old copy: inputs wait for the word of any peer.
    pub fn word(now: Micros) -> StartupWait<T> {
        StartupWait::new(now, Missing::Word)
    }

    fn new(now: Micros, missing: Missing) -> StartupWait<T> {
        StartupWait {
            missing,
            until: now + PATIENCE,
            waiting: VecDeque::new(),
        }
    }

    /// Lets an input wait, until two seconds after the start at most.
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

    /// The time until which inputs wait, in monotonic time; `None` if none waits.
    pub fn until(&self) -> Option<Micros> {
        (!self.waiting.is_empty()).then_some(self.until)
    }

    /// The number of inputs that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no input waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes out all inputs that wait.
    pub fn take_waiting(&mut self) -> VecDeque<T> {
        std::mem::take(&mut self.waiting)
    }

    /// Whether the time that inputs may wait has passed.
    pub fn is_late(&self, now: Micros) -> bool {
        now >= self.until
    }

    /// Whether what peers send back is still missing, and late.
    pub fn returns_are_late(&self, now: Micros) -> bool {
        matches!(self.missing, Missing::Returns(_)) && self.is_late(now)
    }

    /// A peer has reported what it has forgotten.
    pub fn hear_word(&mut self) {
        if matches!(self.missing, Missing::Word) {
            self.missing = Missing::Returns(ReplicaSet::default());
        }
    }

    /// A peer has nothing more of this replica to send back.
    pub fn hear_return(&mut self, peer: ReplicaId) {
        if let Missing::Returns(peers) = &mut self.missing {
            *peers = peers.without(peer);
        }
    }

    /// Whether nothing is missing any more, or the replica does not wait for it any longer. `is_new`: some peer was heard, no peer names an earlier
    /// incarnation, and none is sending back.
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
        let mut startup_wait: StartupWait<u8> = StartupWait::word(Micros(0));
        assert!(!startup_wait.is_over(Micros(0), false) && startup_wait.is_over(PATIENCE, false));
        startup_wait.hear_return(B);
        assert!(
            !startup_wait.is_over(Micros(0), true),
            "there was nothing to send again"
        );
        startup_wait.hear_word();
        assert!(startup_wait.is_over(Micros(0), false));
    }

    #[test]
    fn what_is_given_back_is_waited_for_unless_nobody_speaks_of_an_earlier_life() {
        let mut startup_wait: StartupWait<u8> = StartupWait::returns(Micros(0), ReplicaSet::one(B));
        startup_wait.hear_word();
        assert!(!startup_wait.is_over(Micros(0), true));
        assert!(startup_wait.is_over(PATIENCE, true) && !startup_wait.is_over(PATIENCE, false));
        startup_wait.hear_return(B);
        assert!(startup_wait.is_over(Micros(0), false));
    }

    #[test]
    fn inputs_wait_two_seconds() {
        let mut startup_wait = StartupWait::word(Micros(0));
        assert_eq!(startup_wait.hold(Micros(1), 'a'), Ok(()));
        assert_eq!(startup_wait.hold(PATIENCE, 'b'), Err('b'));
        assert_eq!(startup_wait.take_waiting(), ['a']);
    }
}
