//! How a site finds out that everything up to some time is visible, without looking at each version.
//!
//! After a restart, no replica remembers which of the versions above the watermarks were visible, and they cannot all be looked for. But when every
//! partition of the site has everything that any site stamped up to some time (what GentleRain calls GST), everything that those versions depend on
//! is here, too. So all of them may be shown.
//!
//! All partitions must show them at once: a client that has seen a version at one partition must not be shown less at another. So there are two
//! steps. First every partition *prepares*: readers of a hidden version up to that time wait until it is shown. When all partitions have prepared,
//! each shows the versions as soon as it hears of that.
//!
//! ```text
//!   partition 0 (restarted)         partition 1
//!      | -- HowFar -------------------> |
//!      | <-- Reached until 20 --------- |
//!      | -- HowFar arrived 20 --------> | prepares
//!      | <-- Reached prepared 20 ------ |
//!      | shows                          |
//!      | -- HowFar safe 20 -----------> | shows
//! ```
//!
//! A partition that needs it asks: one that was restarted, and one at which readers wait. `safe <= prepared, arrived`.
use super::message::{Found, Reached};
use std::collections::BTreeMap;
use turnbuckle_core::Hlc;

/// What a partition knows of this.
pub struct Recovery {
    /// The number of other partitions.
    others: usize,
    /// The answers of the other partitions.
    replies: BTreeMap<u16, Reached>,
    found: Found,
}

impl Recovery {
    /// Nothing is known yet of a keyspace with this number of partitions.
    pub fn new(partitions: u16) -> Recovery {
        Recovery {
            others: usize::from(partitions) - 1,
            replies: BTreeMap::new(),
            found: Found {
                arrived: Hlc::ZERO,
                safe: Hlc::ZERO,
            },
        }
    }

    /// Everything up to this time may be shown.
    pub fn safe(&self) -> Hlc {
        self.found.safe
    }

    /// Whether readers of a hidden version of this time must wait until it is shown.
    pub fn holds(&self, at: Hlc) -> bool {
        at <= self.found.arrived && at > self.found.safe
    }

    /// What the other partitions are asked with.
    pub fn question(&self) -> Found {
        self.found
    }

    /// The answer to a partition that asks. This one has everything up to `until`.
    pub fn reply(&self, until: Hlc) -> Reached {
        Reached {
            until,
            prepared: self.found.arrived,
        }
    }

    /// Takes in what another partition has found out.
    pub fn heard(&mut self, found: Found) {
        self.found.arrived = self.found.arrived.max(found.arrived).max(found.safe);
        self.found.safe = self.found.safe.max(found.safe);
    }

    /// Another partition has answered. This one has everything up to `until`.
    pub fn answered(&mut self, partition: u16, reply: Reached, until: Hlc) {
        self.replies.insert(partition, reply);
        self.reached(until);
    }

    /// This partition has everything up to `until`.
    pub fn reached(&mut self, until: Hlc) {
        if self.replies.len() < self.others {
            return;
        }
        let arrived = self.replies.values().map(|reply| reply.until).min();
        self.found.arrived = self.found.arrived.max(arrived.unwrap_or(until).min(until));
        let prepared = self.replies.values().map(|reply| reply.prepared).min();
        let prepared = prepared.unwrap_or(Hlc::LATEST).min(self.found.arrived);
        self.found.safe = self.found.safe.max(prepared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_shown_before_every_partition_lets_its_readers_wait_for_it() {
        let (mut one, mut two) = (Recovery::new(2), Recovery::new(2));
        let at = Hlc(15);
        two.heard(one.question());
        one.answered(1, two.reply(Hlc(20)), Hlc(18));
        assert!(
            one.holds(at) && one.safe() == Hlc::ZERO,
            "the other has not prepared"
        );
        two.heard(one.question());
        assert!(two.holds(at));
        one.answered(1, two.reply(Hlc(20)), Hlc(18));
        assert_eq!(one.safe(), Hlc(18));
        assert!(two.holds(at), "it has not heard yet that all have prepared");
        two.heard(one.question());
        assert!(!two.holds(at) && two.safe() == Hlc(18));
        assert!(!two.holds(Hlc(19)), "of that not everything has arrived");
    }

    #[test]
    fn a_site_with_one_partition_needs_nobody() {
        let mut alone = Recovery::new(1);
        alone.reached(Hlc(7));
        assert_eq!(alone.safe(), Hlc(7));
    }
}
