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
//! - While peers may still give back what a replica has lost, it writes down nothing more as shown: one of its own deletes may be among that.
//!   After a restart it would count as shown, and the others would forget that delete before it is back.
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
//!
//! # When a directory is older than one that has served since
//!
//! A directory is copied and then lost. An empty one takes its place, and serves. Then the copy is put back. What it alone has would be
//! shown there, and nowhere else: peers have heard promises of the life between. They cover by these what its site stamped before, and pass it over when
//! it comes. So a directory is also an old copy if anybody has met a *later* one of its site. Births are said in heartbeats, too. A site writes
//! down the newest birth that it knows of each other, before anything that this directory says behind it, and says all of them
//! when a link comes up. So a site that has lost its own directory learns them again.
//!
//! ```text
//!   site b                                   site a                            site c (cut off from b)
//!      | directory 7; a copy of it is made      |                                  |
//!      x  lost; an empty one: directory 8       |                                  |
//!      | ~~ b is 8 ~~~~~~~~~~~~~~~~~~~~~~~~~~~> | writes down: b is 8              |
//!      |                                        | ~~ link: b is 8 ~~~~~~~~~~~~~~~> |
//!      x  the copy takes its place              |                                  |
//!      | <~~ link: b is 8 ~~~~~~~~~~~~~~~~~~~~~ |                                  |
//!      | directory 7: an old copy
//! ```
//!
//! - "Later" is said of births, not "another": who was away when directory 8 began knows only 7, and must not have 8 refused.
//! - Births come from wall clocks, and a clock can be set back between two of them. A directory that began in this life of its process is no copy. So if it
//!   hears of a birth that is as late as its own, it takes a later one. So does one that was restarted before it had heard from anybody: of its earlier lives
//!   nobody can have told it. That it was told is written down.
//! - A birth is said only when it is on disk: one that a power loss takes would have its own directory refused. And only by who promises: an empty
//!   directory that was put in place by mistake, and has served nothing, must not have the one before it refused.
mod found;
#[cfg(test)]
mod tests;

use crate::Bugs;
use found::Found;
use std::collections::BTreeMap;
use turnbuckle_core::{Context, Forgotten, Hlc, Protocol, Recovered, ReplicaId, ServerId, Topology, Vitals};

/// The name under which it is written down.
const NAME: &str = "deletes";

/// What one replica knows of the deletes that may be forgotten.
pub(crate) struct Deletes {
    me: ReplicaId,
    others: Vec<ReplicaId>,
    /// What each other site has said last on the link that there is now.
    theirs: BTreeMap<ReplicaId, Said>,
    /// The birth of this directory; none before the first start.
    directory: Option<u64>,
    /// The newest births of the other sites' directories that are known.
    met: BTreeMap<ReplicaId, u64>,
    /// No other site was heard since this directory began, or it began in this life: nobody can say which came first, this one or another.
    is_young: bool,
    /// A site was heard since this directory began.
    was_told: bool,
    /// This directory's birth was said to others: it has everything that others could give back, and promises.
    was_said: bool,
    /// A birth is known that is not written down.
    is_unwritten: bool,
    /// The directories by whose word deletes were forgotten, here or elsewhere.
    vouched: BTreeMap<ReplicaId, u64>,
    /// The most that any of them has said to be forgotten.
    forgotten_elsewhere: Hlc,
    /// How much of both was written down while the directory is being filled.
    heard: (Hlc, usize),
    /// What is on disk here.
    kept: Said,
    /// What is written down and may not be on disk yet.
    written: Said,
    /// The number of the mark that goes out behind what is written down: when it is settled, that is on disk.
    pending: Option<(u64, Said)>,
    /// Peers are still filling the directory.
    is_filling: bool,
    /// This life began while the directory was being filled.
    was_empty: bool,
    outdated: Option<Outdated>,
    /// Planted bugs.
    serves_old: bool,
    keeps_shown_while_taking_back: bool,
}

/// What replicas tell each other about deletes, in their heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Said {
    /// The birth of the sender's directory; 0 while that is not on its disk. Nothing is said while peers may still give back something.
    pub birth: u64,
    /// Everything that any site stamped up to here is shown by the sender, now and after any restart.
    pub shown: Hlc,
    /// Deletes that were stamped up to here may be forgotten at the sender.
    pub forgotten: Hlc,
}

/// Why a directory is an old copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outdated {
    /// Deletes were forgotten since.
    Deletes,
    /// A later directory has served since.
    Birth,
}

impl Deletes {
    /// What an earlier life has left.
    pub fn open(me: ServerId, topology: &Topology, recovered: &Recovered, bugs: Bugs) -> Deletes {
        // Written by this code; if it does not decode, nothing is known.
        let found = recovered.kept(NAME).and_then(Found::recall);
        let directory = found.as_ref().map(|found| found.said.birth);
        let found = found.unwrap_or_default();
        let is_filling = found.said.shown == Hlc::ZERO;
        // What is written down in a directory that is being filled is what others have said.
        let forgotten_elsewhere = match is_filling {
            true => found.said.forgotten,
            false => Hlc::ZERO,
        };
        let kept = Said {
            forgotten: found.said.forgotten.min(found.said.shown),
            ..found.said
        };
        Deletes {
            me: me.replica(),
            others: topology.others_of(me).iter().collect(),
            theirs: BTreeMap::new(),
            directory,
            met: found.met,
            is_young: !found.was_told,
            was_told: found.was_told,
            was_said: found.was_said,
            is_unwritten: false,
            forgotten_elsewhere,
            heard: (forgotten_elsewhere, found.vouched.len()),
            vouched: found.vouched,
            kept,
            written: kept,
            pending: None,
            is_filling,
            was_empty: is_filling,
            outdated: None,
            serves_old: bugs.serves_an_old_directory,
            keeps_shown_while_taking_back: bugs.keeps_shown_while_taking_back,
        }
    }

    /// Writes down that there is a directory.
    pub fn start<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        if self.directory.is_none() {
            self.begin(cx.now.wall.reading.0);
            self.write_news(cx);
        }
    }

    /// The directory is called by this birth from now on.
    fn begin(&mut self, birth: u64) {
        self.directory = Some(birth);
        self.written.birth = birth;
        self.is_unwritten = true;
    }

    /// Writes down what is shown here. Call it once a second or so.
    pub fn keep<P: Protocol>(&mut self, cx: &mut Context<'_, P>, shown: Hlc) {
        let is_given_back = cx.settled_marks() > 0 || self.keeps_shown_while_taking_back;
        if !is_given_back || !self.has_caught_up(shown) {
            return self.keep_heard(cx);
        }
        self.is_filling = false;
        self.written.shown = self.written.shown.max(shown);
        let vouching = self
            .theirs
            .iter()
            .filter(|(_, said)| said.birth > 0 && said.shown > Hlc::ZERO);
        self.vouched
            .extend(vouching.map(|(&replica, said)| (replica, said.birth)));
        let forgotten = self.shown_everywhere().max(self.forgotten_elsewhere.min(shown));
        self.written.forgotten = self.written.forgotten.max(forgotten);
        self.write(cx);
    }

    /// Writes down what others have said to be forgotten. They may lose their directories while this one is being filled, and be filled from
    /// here: nobody else could tell an old copy then.
    fn keep_heard<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        let heard = (self.forgotten_elsewhere, self.vouched.len());
        if std::mem::replace(&mut self.heard, heard) != heard {
            self.write(cx);
        }
    }

    /// Writes down births at once: what their directories say next is then behind that in the log.
    fn write_news<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        if std::mem::take(&mut self.is_unwritten) {
            self.write(cx);
        }
    }

    fn write<P: Protocol>(&self, cx: &mut Context<'_, P>) {
        let forgotten = match self.is_filling {
            true => self.forgotten_elsewhere,
            false => self.written.forgotten,
        };
        let found = Found {
            said: Said {
                forgotten,
                ..self.written
            },
            was_told: self.was_told,
            was_said: self.was_said,
            vouched: self.vouched.clone(),
            met: self.met.clone(),
        };
        cx.put_named(NAME, found.record());
    }

    /// Whether this is more than an empty directory that peers are still filling.
    fn has_caught_up(&self, shown: Hlc) -> bool {
        let has_heard_all = self
            .others
            .iter()
            .all(|replica| self.theirs.contains_key(replica));
        !self.is_filling || (has_heard_all && shown > Hlc::ZERO && shown >= self.forgotten_elsewhere)
    }

    /// What every site shows.
    fn shown_everywhere(&self) -> Hlc {
        let theirs = |replica| self.theirs.get(replica).map_or(Hlc::ZERO, |said| said.shown);
        let theirs = self.others.iter().map(theirs).min();
        theirs.unwrap_or(Hlc::LATEST).min(self.kept.shown)
    }

    /// What the heartbeat says that is marked next.
    pub fn said<P: Protocol>(&mut self, cx: &Context<'_, P>) -> Said {
        self.said_in(cx.marks(), cx.settled_marks())
    }

    /// What the mark with number `next` says. What was staged before `settled` marks is on disk, and all of `written` is staged. None is settled
    /// before peers have given back everything.
    fn said_in(&mut self, next: u64, settled: u64) -> Said {
        if let Some((_, said)) = self.pending.take_if(|(behind, _)| *behind < settled) {
            self.kept = said;
        }
        if self.pending.is_none() && self.kept != self.written {
            self.pending = Some((next, self.written));
        }
        let may_say = self.kept.birth > 0 && (self.was_said || settled > 0);
        self.is_unwritten |= may_say && !std::mem::replace(&mut self.was_said, may_say);
        Said {
            birth: if may_say { self.kept.birth } else { 0 },
            ..self.kept
        }
    }

    /// What a site's heartbeat says. True if more was forgotten there than is shown here: this directory was lost, or is an old one.
    pub fn heard<P: Protocol>(&mut self, cx: &mut Context<'_, P>, replica: ReplicaId, said: Said) -> bool {
        let is_behind = self.hear(replica, said);
        self.write_news(cx);
        is_behind
    }

    fn hear(&mut self, replica: ReplicaId, said: Said) -> bool {
        self.theirs.insert(replica, said);
        self.meet(replica, said.birth);
        self.hear_forgotten(said.forgotten)
    }

    fn hear_forgotten(&mut self, forgotten: Hlc) -> bool {
        self.forgotten_elsewhere = self.forgotten_elsewhere.max(forgotten);
        let is_behind = forgotten > self.written.shown;
        if is_behind && !self.was_empty {
            self.is_old(Outdated::Deletes);
        }
        is_behind
    }

    fn is_old(&mut self, why: Outdated) {
        if !self.serves_old {
            self.outdated.get_or_insert(why);
        }
    }

    /// What a site says when the link to it comes up, before anything else. True as with [`Deletes::heard`].
    pub fn resumed<P: Protocol>(
        &mut self,
        cx: &mut Context<'_, P>,
        replica: ReplicaId,
        word: &Forgotten,
    ) -> bool {
        let is_behind = self.hear_word(replica, word);
        self.write_news(cx);
        is_behind
    }

    fn hear_word(&mut self, replica: ReplicaId, word: &Forgotten) -> bool {
        let of = |directories: &BTreeMap<ReplicaId, u64>, replica| directories.get(&replica).copied();
        let vouched = of(&word.directories, self.me);
        self.hear_of_mine(of(&word.met, self.me).max(vouched));
        if self.is_filling && vouched.is_some() && vouched == self.directory {
            self.is_old(Outdated::Deletes);
        }
        let births = word.met.iter().chain(&word.directories);
        births.for_each(|(&replica, &birth)| self.meet(replica, birth));
        let others = word
            .directories
            .iter()
            .filter(|(other, _)| ![replica, self.me].contains(other));
        for (&other, &directory) in others {
            self.vouched.entry(other).or_insert(directory);
        }
        self.hear_forgotten(word.until.unwrap_or_default())
    }

    /// The newest birth of this site's directories that another site knows. What is being filled under a birth that is not on disk yet has
    /// told it to nobody.
    fn hear_of_mine(&mut self, known: Option<u64>) {
        let is_told = Some(self.kept.birth) == self.directory;
        let is_another = |known: &u64| match is_told {
            true => Some(*known) > self.directory,
            false => Some(*known) >= self.directory,
        };
        match known.filter(is_another) {
            Some(known) if self.is_young => self.begin(known.saturating_add(1)),
            Some(_) => self.is_old(Outdated::Birth),
            None => {}
        }
        self.is_unwritten |= !std::mem::replace(&mut self.was_told, true);
    }

    /// A birth of another site's directory.
    fn meet(&mut self, replica: ReplicaId, birth: u64) {
        let known = self.met.get(&replica).copied().unwrap_or_default();
        if replica != self.me && birth > known {
            self.met.insert(replica, birth);
            self.is_unwritten = true;
        }
    }

    /// The link to a site is down: what it shows when it is back is not known.
    pub fn left(&mut self, replica: ReplicaId) {
        self.theirs.remove(&replica);
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
        directories.extend(self.was_said.then_some((self.me, self.kept.birth)));
        Forgotten {
            until,
            directories,
            met: self.met.clone(),
        }
    }

    /// What is told of it, and of what is stable, where that is waited for.
    pub fn vitals(&self, stable_until: Option<Hlc>) -> Vitals {
        Vitals {
            stable_until,
            deletes_until: Some(self.kept.forgotten).filter(|until| *until > Hlc::ZERO),
            is_outdated: self.outdated.is_some(),
            is_filling: self.is_filling,
        }
    }

    /// Why nothing is served, if nothing is.
    pub fn refusal(&self) -> Option<&'static str> {
        self.outdated.map(|why| match why {
            Outdated::Deletes => {
                "the data directory of this node is an old copy: other sites may have forgotten deletes that are not in it, and what they \
                 deleted would come back. Stop the node, empty its data directory and start it again: its peers give it back everything"
            }
            Outdated::Birth => {
                "the data directory of this node is an old copy: the node has served from a later directory since, and what it wrote there \
                 is not in this one. Stop the node, and put the later directory in place, or an empty one: its peers give it back everything \
                 that they were sent"
            }
        })
    }
}

impl Said {
    /// The newest time in it.
    pub fn newest(self) -> Hlc {
        self.shown.max(self.forgotten)
    }
}
