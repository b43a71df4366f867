//! A replica that begins with an empty directory, and what it must hear before it stamps anything.
//!
//! The directory may have been lost. Then peers hold versions that this site stamped in a life of which it knows nothing, and some of them
//! may lie ahead of its wall clock: each restart leads a clock by up to three seconds. Whatever it stamped below those would be passed
//! over everywhere: peers believe that they have everything of that time, and the older version of a key would win.
//!
//! ```text
//!   site b: directory lost                        site a
//!      | wall clock 100                              | has x of b, stamped 103, and b's promise of 103
//!      | PUT x waits                                 |
//!      | <------- resume, clock 104 ---------------- |
//!      | stamps x with 105                           |
//! ```
//!
//! So its writes wait until every other site has said where it is, and how far its clock is: it is above all that this site ever told it.
//! They wait two seconds at most: a site may be away, and in a new cluster one may be late. What is stamped after that can be below what
//! only that site has heard.
use super::{Lane, Question};
use crate::keyspace::Keyspace;
use std::collections::VecDeque;
use turnbuckle_core::{Hlc, Micros, Now, Protocol, SiteId, SiteSet};

/// How long writes wait at most.
const PATIENCE: Micros = Micros::from_millis(2_000);

/// What a replica waits for that began with nothing.
pub(crate) struct Unheard<P: Protocol> {
    sites: SiteSet,
    until: Micros,
    waiting: VecDeque<Question<P>>,
}

impl<P: Protocol> Unheard<P> {
    /// These sites have not been heard of.
    pub fn new(sites: SiteSet, now: Now) -> Unheard<P> {
        Unheard {
            sites,
            until: now.monotonic + PATIENCE,
            waiting: VecDeque::new(),
        }
    }

    /// Whether this request must wait: a write, and whatever is asked after one. A client may send a write and a read of the same key
    /// in one go, and the read must see the write.
    pub fn holds(&self, request: &P::Request) -> bool {
        P::is_write(request) || !self.waiting.is_empty()
    }

    pub fn push(&mut self, question: Question<P>) {
        self.waiting.push_back(question);
    }
}

impl<P: Protocol> Lane<P> {
    /// A site has said where it is: its clock is above everything that it has heard of this one. A clock too far ahead is not taken, and
    /// the site counts as heard all the same: its link is held until the clocks agree, and that may take hours.
    pub(crate) fn hear_clock(&mut self, ks: &Keyspace<P>, now: Now, site: SiteId, clock: Hlc) {
        if clock <= self.horizon(ks, now) {
            self.replica.observe(clock);
        }
        if let Some(unheard) = &mut self.unheard {
            unheard.sites = unheard.sites.without(site);
        }
        self.end_unheard(ks, now);
    }

    /// Nobody is waited for any more, or not any longer: what has waited goes on.
    pub(crate) fn end_unheard(&mut self, ks: &Keyspace<P>, now: Now) {
        let is_over = |unheard: &Unheard<P>| unheard.sites.0 == 0 || now.monotonic >= unheard.until;
        let Some(unheard) = self.unheard.take_if(|unheard| is_over(unheard)) else {
            return;
        };
        for question in unheard.waiting {
            self.run_or_park(ks, now, question);
        }
        self.settle(ks, now);
    }
}
