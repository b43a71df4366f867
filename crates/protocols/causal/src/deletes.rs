//! # When a delete may be forgotten
//!
//! A delete is a version without a value. It must stay while anybody could still show what it deleted:
//!
//! - a site to which the delete has not come yet shows the old value, and so would whoever moves there. Nobody could tell that this is
//!   wrong: "nothing" that was read without a version is no dependency;
//! - a site that loses its directory is given back what its peers hold. If one of them holds the old value alone, it comes back.
//!
//! So a delete is forgotten only when **every site shows it**, and has that on its disk.
//!
//! ```text
//!   site a                                   site b                         site c (cut off from b)
//!      | <~~~~~~~~~~~~~~~~~~~~~ x deleted @17 |                                  | shows b up to 10
//!      | <~~ heartbeat: shows 20 ~~~~~~~~~~~~ |                                  |
//!      | <~~ heartbeat: shows 10 ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~ |
//!      | min = 10: x's delete is remembered, and who reads x has seen version 17
//! ```
//!
//! - What a replica *shows* is written down and synced before it is said: a restart shows no less. It counts as said only on the link
//!   that there is now. While a site is away no delete is forgotten.
//! - What may be *forgotten* is written down, synced and then said, too, in heartbeats and first of all when a link comes up. A replica that
//!   is told of more than it has written down itself as shown has lost its directory since, or has been given an old copy of it. An old one
//!   refuses to serve: a delete of its own may be forgotten everywhere, and what it deleted is still there.
//! - A lost one is *filled* by its peers, and shows nothing until it has caught up. Nobody forgets a delete meanwhile. A copy of it that was made before it
//!   had caught up says nothing of what it showed later. So each directory has a *birth*, the time when it began, and whoever forgets deletes
//!   writes down the births of the directories by whose word it does, and says them when a link comes up. A replica that is being
//!   filled, and hears that its own directory was among them, is an old copy.
//!
//! ```text
//!   site b: directory 7, being filled          sites a and c
//!      |  (a copy of it is made)                   |
//!      | ~~ shows 20 ~~~~~~~~~~~~~~~~~~~~~~~~~~~~> | forgotten up to 20, by the word of b's directory 7
//!      x  the copy takes its place                 |
//!      | <~~ link: forgotten 20; b: 7 ~~~~~~~~~~~~ |
//!      | directory 7, being filled: an old copy. An empty one would be called 8
//! ```
use crate::Bugs;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use turnbuckle_core::{Context, Forgotten, Hlc, Protocol, Recovered, SiteId, Topology, Vitals};

/// The name under which it is written down.
const NAME: &str = "deletes";

/// What one replica knows of the deletes that may be forgotten.
pub(crate) struct Deletes {
    me: SiteId,
    others: Vec<SiteId>,
    /// What each other site shows, as it has said on the link that there is now.
    theirs: BTreeMap<SiteId, Hlc>,
    /// The birth of this directory; none before the first start.
    directory: Option<u64>,
    /// The births of the other sites' directories, as they were told when the links came up.
    met: BTreeMap<SiteId, u64>,
    /// The directories by whose word deletes were forgotten, here or elsewhere.
    vouched: BTreeMap<SiteId, u64>,
    /// The most that any of them has said to be forgotten.
    forgotten_elsewhere: Hlc,
    /// How much of both was written down while the directory is being filled.
    heard: (Hlc, usize),
    /// What is on disk here.
    kept: Said,
    /// What is written down and may not be on disk yet.
    written: Said,
    /// The number of the mark that goes out behind what is written down: when it is settled, that is on disk.
    pending: Option<(Option<u64>, Said)>,
    /// Peers are still filling the directory.
    is_filling: bool,
    /// This life began while the directory was being filled.
    was_empty: bool,
    is_outdated: bool,
    /// A planted bug.
    serves_old: bool,
}

/// What replicas tell each other about deletes, in their heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Said {
    /// Everything that any site stamped up to here is shown by the sender, now and after any restart.
    pub shown: Hlc,
    /// Deletes that were stamped up to here may be forgotten at the sender.
    pub forgotten: Hlc,
}

impl Deletes {
    /// What an earlier life has left.
    pub fn open(me: SiteId, topology: &Topology, recovered: &Recovered, bugs: Bugs) -> Deletes {
        // Written by this code; if it does not decode, nothing is known.
        let found = recovered.named.get(NAME).and_then(Found::recall);
        let directory = found.as_ref().map(|found| found.directory);
        let (found, vouched) = found.and_then(|found| found.said).unwrap_or_default();
        let is_filling = found.shown == Hlc::ZERO;
        // What is written down in a directory that is being filled is what others have said.
        let (kept, forgotten_elsewhere) = match is_filling {
            true => (Said::default(), found.forgotten),
            false => (found, Hlc::ZERO),
        };
        Deletes {
            me,
            others: topology.sites().filter(|&site| site != me).collect(),
            theirs: BTreeMap::new(),
            directory,
            met: BTreeMap::new(),
            forgotten_elsewhere,
            heard: (forgotten_elsewhere, vouched.len()),
            vouched,
            kept,
            written: kept,
            pending: None,
            is_filling,
            was_empty: is_filling,
            is_outdated: false,
            serves_old: bugs.serves_an_old_directory,
        }
    }

    /// Writes down that there is a directory.
    pub fn start<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        if self.directory.is_none() {
            self.directory = Some(cx.now.wall.reading.0);
            self.write(cx);
        }
    }

    /// Writes down what is shown here. Call it once a second or so.
    pub fn keep<P: Protocol>(&mut self, cx: &mut Context<'_, P>, shown: Hlc) {
        if !self.has_caught_up(shown) {
            return self.keep_heard(cx);
        }
        self.is_filling = false;
        self.written.shown = self.written.shown.max(shown);
        let vouches = |site: &SiteId| self.theirs.get(site).is_some_and(|shown| *shown > Hlc::ZERO);
        let vouching = self.met.iter().filter(|(site, _)| vouches(site));
        self.vouched.extend(vouching);
        let forgotten = self.shown_everywhere().max(self.forgotten_elsewhere.min(shown));
        self.written.forgotten = self.written.forgotten.max(forgotten);
        self.write(cx);
        self.pending.get_or_insert((None, self.written));
    }

    /// Writes down what others have said to be forgotten. They may lose their directories while this one is being filled, and be filled from
    /// here: nobody else could tell an old copy then.
    fn keep_heard<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        let heard = (self.forgotten_elsewhere, self.vouched.len());
        if std::mem::replace(&mut self.heard, heard) != heard {
            self.write(cx);
        }
    }

    fn write<P: Protocol>(&self, cx: &mut Context<'_, P>) {
        let said = match self.is_filling {
            true => Said {
                shown: Hlc::ZERO,
                forgotten: self.forgotten_elsewhere,
            },
            false => self.written,
        };
        let is_nothing = said == Said::default() && self.vouched.is_empty();
        let found = Found {
            directory: self.directory.unwrap_or_default(),
            said: (!is_nothing).then(|| (said, self.vouched.clone())),
        };
        cx.put_named(NAME, found.record());
    }

    /// Whether this is more than an empty directory that peers are still filling.
    fn has_caught_up(&self, shown: Hlc) -> bool {
        let has_heard_all = self.others.iter().all(|site| self.theirs.contains_key(site));
        !self.is_filling || (has_heard_all && shown > Hlc::ZERO && shown >= self.forgotten_elsewhere)
    }

    /// What every site shows.
    fn shown_everywhere(&self) -> Hlc {
        let theirs = |site| self.theirs.get(site).copied().unwrap_or(Hlc::ZERO);
        let theirs = self.others.iter().map(theirs).min();
        theirs.unwrap_or(Hlc::LATEST).min(self.kept.shown)
    }

    /// What the heartbeat says that is marked next.
    pub fn said<P: Protocol>(&mut self, cx: &Context<'_, P>) -> Said {
        self.said_in(cx.marks(), cx.settled_marks())
    }

    /// What the mark with number `next` says. What was staged before `settled` marks is on disk.
    fn said_in(&mut self, next: u64, settled: u64) -> Said {
        match &mut self.pending {
            Some((Some(behind), said)) if *behind < settled => {
                self.kept = *said;
                self.pending = None;
            }
            Some((behind @ None, _)) => *behind = Some(next),
            _ => {}
        }
        self.kept
    }

    /// What a site's heartbeat says. True if more was forgotten there than is shown here: this directory was lost, or is an old one.
    pub fn heard(&mut self, site: SiteId, said: Said) -> bool {
        self.theirs.insert(site, said.shown);
        self.hear_forgotten(said.forgotten)
    }

    fn hear_forgotten(&mut self, forgotten: Hlc) -> bool {
        self.forgotten_elsewhere = self.forgotten_elsewhere.max(forgotten);
        let is_behind = forgotten > self.written.shown;
        self.is_outdated |= is_behind && !self.was_empty && !self.serves_old;
        is_behind
    }

    /// What a site says when the link to it comes up, before anything else. True as with [`Deletes::heard`].
    pub fn resumed(&mut self, site: SiteId, word: &Forgotten) -> bool {
        let of = |site| word.directories.get(&site).copied();
        self.met.extend(of(site).map(|directory| (site, directory)));
        let is_old = self.is_filling && of(self.me).is_some_and(|mine| Some(mine) == self.directory);
        self.is_outdated |= is_old && !self.serves_old;
        let others = word.directories.iter().filter(|(other, _)| **other != site);
        for (&other, &directory) in others {
            self.vouched.entry(other).or_insert(directory);
        }
        self.hear_forgotten(word.until.unwrap_or_default())
    }

    /// The link to a site is down: what it shows when it is back is not known.
    pub fn left(&mut self, site: SiteId) {
        self.theirs.remove(&site);
    }

    /// What is shown here, as it may have been said: in a life that was lost with its directory anything.
    pub fn shown(&self) -> Hlc {
        match self.is_filling {
            true => Hlc::LATEST,
            false => self.written.shown,
        }
    }

    /// Deletes that were stamped up to here may be forgotten.
    pub fn forgotten(&self) -> Hlc {
        self.kept.forgotten
    }

    /// As it is told to peers when a link comes up. While a directory is being filled, that is what others have said.
    pub fn word(&self) -> Forgotten {
        let until = match self.is_filling {
            false => Some(self.kept.forgotten),
            true => Some(self.forgotten_elsewhere).filter(|until| *until > Hlc::ZERO),
        };
        let mut directories = self.vouched.clone();
        directories.extend(self.directory.map(|directory| (self.me, directory)));
        Forgotten { until, directories }
    }

    /// What is told of it.
    pub fn vitals(&self, vitals: Vitals) -> Vitals {
        Vitals {
            deletes_until: Some(self.kept.forgotten).filter(|until| *until > Hlc::ZERO),
            is_outdated: self.is_outdated,
            ..vitals
        }
    }

    /// Why nothing is served, if nothing is.
    pub fn refusal(&self) -> Option<&'static str> {
        const WHY: &str = "the data directory of this node is an old copy: keys that were deleted since would come back. Stop the node, \
                           empty its data directory and start it again: its peers give it back everything";
        self.is_outdated.then_some(WHY)
    }
}

/// What is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    /// The directory's birth.
    directory: u64,
    /// What it said, and the directories of other sites by whose word it forgot deletes. While it is being filled it shows nothing, and the
    /// rest is what others have said.
    said: Option<(Said, BTreeMap<SiteId, u64>)>,
}

impl Found {
    fn record(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u64(self.directory);
        if let Some((said, vouched)) = &self.said {
            out.put_u64(said.shown.0);
            out.put_u64(said.forgotten.0);
            for (site, directory) in vouched {
                out.put_u16(site.0);
                out.put_u64(*directory);
            }
        }
        out.freeze()
    }

    fn recall(record: &Bytes) -> Option<Found> {
        let mut from = record.clone();
        let directory = from.try_get_u64().ok()?;
        let mut said = None;
        if from.has_remaining() {
            let shown = Hlc(from.try_get_u64().ok()?);
            let forgotten = Hlc(from.try_get_u64().ok()?);
            let mut vouched = BTreeMap::new();
            while from.has_remaining() {
                let site = SiteId(from.try_get_u16().ok()?);
                vouched.insert(site, from.try_get_u64().ok()?);
            }
            said = Some((Said { shown, forgotten }, vouched));
        }
        Some(Found { directory, said })
    }
}

impl Said {
    /// The newest time in it.
    pub fn newest(self) -> Hlc {
        self.shown.max(self.forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deletes(kept: Option<Said>) -> Deletes {
        open(kept.map(|said| Found {
            directory: 7,
            said: Some((said, BTreeMap::new())),
        }))
    }

    fn open(found: Option<Found>) -> Deletes {
        let topology = Topology::new(["a", "b", "c"], 1, 1);
        let mut recovered = Recovered::default();
        if let Some(found) = found {
            recovered.named.insert(NAME.into(), found.record());
        }
        Deletes::open(SiteId(0), &topology, &recovered, Bugs::default())
    }

    fn said(shown: u64, forgotten: u64) -> Said {
        let (shown, forgotten) = (Hlc(shown), Hlc(forgotten));
        Said { shown, forgotten }
    }

    #[test]
    fn what_every_site_shows_is_the_least_that_any_shows_and_nothing_while_one_is_away() {
        let mut deletes = deletes(Some(said(30, 5)));
        deletes.heard(SiteId(1), said(20, 0));
        assert_eq!(deletes.shown_everywhere(), Hlc::ZERO, "one was never heard");
        deletes.heard(SiteId(2), said(40, 0));
        assert_eq!(deletes.shown_everywhere(), Hlc(20));
        deletes.heard(SiteId(1), said(50, 0));
        assert_eq!(deletes.shown_everywhere(), Hlc(30), "this one shows no more");
        deletes.heard(SiteId(1), said(10, 0));
        assert_eq!(deletes.shown_everywhere(), Hlc(10), "it lost its directory");
        deletes.left(SiteId(2));
        assert_eq!(deletes.shown_everywhere(), Hlc::ZERO);
        assert_eq!(deletes.forgotten(), Hlc(5), "what is forgotten is forgotten");
    }

    #[test]
    fn nothing_is_said_before_it_is_on_disk() {
        let mut deletes = deletes(None);
        deletes.written = said(9, 4);
        deletes.pending = Some((None, deletes.written));
        assert_eq!(deletes.said_in(20, 20), Said::default());
        assert_eq!(deletes.said_in(21, 20), Said::default());
        assert_eq!(deletes.said_in(22, 21), said(9, 4));
    }

    #[test]
    fn an_old_directory_serves_nothing_and_an_empty_one_catches_up() {
        let mut old = deletes(Some(said(30, 5)));
        assert!(!old.heard(SiteId(1), said(90, 30)) && old.refusal().is_none());
        assert!(old.heard(SiteId(1), said(90, 31)) && old.refusal().is_some());
        let mut empty = deletes(None);
        assert!(empty.heard(SiteId(1), said(90, 31)) && empty.refusal().is_none());
        assert!(!empty.has_caught_up(Hlc(40)), "one site was never heard");
        empty.heard(SiteId(2), said(90, 33));
        assert!(!empty.has_caught_up(Hlc(32)) && empty.has_caught_up(Hlc(33)));
    }

    #[test]
    fn what_is_written_down_is_read_again() {
        for said in [
            None,
            Some((
                Said {
                    shown: Hlc(9),
                    forgotten: Hlc(4),
                },
                BTreeMap::from([(SiteId(1), 8), (SiteId(2), 9)]),
            )),
        ] {
            let found = Found { directory: 7, said };
            assert_eq!(Found::recall(&found.record()), Some(found));
        }
        assert_eq!(Found::recall(&Bytes::from_static(b"too short")), None);
    }

    #[test]
    fn what_others_have_forgotten_is_known_also_after_a_restart_while_the_directory_is_filled() {
        let deletes = open(Some(Found {
            directory: 7,
            said: Some((said(0, 31), BTreeMap::from([(SiteId(1), 8)]))),
        }));
        assert!(deletes.is_filling && deletes.forgotten() == Hlc::ZERO);
        let word = deletes.word();
        assert_eq!((word.until, word.directories[&SiteId(1)]), (Some(Hlc(31)), 8));
    }

    #[test]
    fn a_copy_of_a_directory_that_was_being_filled_is_told_by_the_directory_s_birth() {
        let filling = || {
            open(Some(Found {
                directory: 7,
                said: None,
            }))
        };
        let word = |mine| Forgotten {
            until: Some(Hlc(90)),
            directories: BTreeMap::from([(SiteId(0), mine), (SiteId(1), 3)]),
        };
        let mut lost = filling();
        assert_eq!(lost.word().until, None);
        assert!(lost.resumed(SiteId(1), &word(6)) && lost.refusal().is_none());
        let mut copy = filling();
        assert!(copy.resumed(SiteId(1), &word(7)) && copy.refusal().is_some());
        let hearsay = lost.word();
        assert_eq!(
            (hearsay.until, hearsay.directories[&SiteId(0)]),
            (Some(Hlc(90)), 7)
        );
    }
}
