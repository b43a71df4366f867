//! # When a delete may be forgotten
//!
//! A delete is a version without a value. It must be kept while any site could still show what it deleted:
//!
//! - a site that the delete has not reached yet shows the old value, also to a client that moves there. The site cannot tell that this is wrong: a
//!   read that found nothing, without a version, is no dependency;
//! - a site that loses its directory is sent what its peers hold. If one of them holds the old value and not the delete, the value comes back.
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
//! - What a replica *shows* is written down and synced before it is reported: after a restart it shows no less. A report counts only on the link over
//!   which it came, while that link is up. While a site is unreachable, no delete is forgotten.
//! - While peers may still send back what a replica has lost, the replica writes down nothing more as shown: one of its own deletes may be among
//!   that. After a restart that delete would count as shown, and the other replicas would forget it before it is sent back.
//! - What may be *forgotten* is written down, synced and then reported, too, in heartbeats and first of all when a link comes up. If a replica hears
//!   that more was forgotten than it has written down itself as shown, it has lost its directory since, or runs on an old copy of it. An old copy
//!   refuses to serve: a delete of its own may be forgotten everywhere, and what it deleted is still there.
//! - A lost directory is *filled* by its peers, and shows nothing until it has caught up. No replica forgets a delete meanwhile. A copy of the
//!   directory that was made before it had caught up does not tell what it showed later. So each directory has a *birth*, the time when it began. A
//!   replica that forgets deletes writes down the births of the directories whose reports allowed that, and reports them when a link comes up. If a
//!   replica that is being filled hears that its own directory was among them, its directory is an old copy.
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
//! # Changes of an expiry that come late
//!
//! A site that has not heard of a delete may still take an `EXPIRE` of the deleted value. That writes a version with this value. It is stamped later than the
//! delete, and is older in the order of versions ([`turnbuckle_core::Rank`]). If it arrived after the delete was forgotten, the value would come back.
//!
//! When a site shows the delete, it takes no such `EXPIRE` any more. Its report of that comes behind everything that it had stamped before. So a replica has all
//! such versions if it has *itself heard* from every site that the delete is shown there.
//!
//! ```text
//!   site a                                   site b                              site c
//!      | <~~~~~~~~~~~~~~~~~~~~~ x deleted @12 ~~ | ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~> |
//!      | <~~ EXPIRE x @15 of @5 ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~ before the delete came
//!      | <~~ shows 12 ~~~~~~~~~~~~~~~~~~~~~~~~~~ | <~~ shows 12 ~~~~~~~~~~~~~~~~~~~~~~ |
//!      | deletes up to 12 are forgotten           |
//! ```
//!
//! What an old copy of a directory has stamped before it knew that it is one is not taken ([`Deletes::is_of_the_forgotten`]): it may have the deleted value.
//!
//! If a reports this to b, b must not forget anything by that alone. If a value has expired by a change that c has not heard of, c may have changed its expiry,
//! too, and this change may be on its way to b. b would not take it, and the sites would differ. The report only tells b what the other sites do not need any
//! more.
//!
//! # Keys with shares
//!
//! Such a key is forgotten later than a delete: when every site has reported that its end is *closed* there, i.e. that the site has itself heard from every other one what this replica waits for
//! ([`Said::closed`]). See `floor.rs` in `turnbuckle_core` for the reason, and for what a site does when a version of such a key arrives that it has not forgotten yet ([`Deletes::floor`]).
//!
//! # When a directory is older than one that has served since
//!
//! Suppose that a directory is copied and then lost. An empty one takes its place, and serves. Then the copy is put back. Versions that only the copy
//! has would be shown there, and at no other site: peers have heard promises of the directory between. These promises cover what the site stamped
//! before, so the peers skip such versions when they arrive. So a directory is also an old copy if any site has met a *later* directory of the same
//! site. Births are reported in heartbeats, too. A site writes down the newest birth that it knows of each other site, before anything that the
//! directory of this birth reports next, and reports all of them when a link comes up. So a site that has lost its own directory learns them again.
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
//! - A directory is refused if a "later" birth is known, not if "another" one is: a site that was unreachable when directory 8 began knows only 7,
//!   and must not have 8 refused.
//! - Births come from wall clocks, and a clock can be set back between two of them. A directory that began in this run of its process is no copy. So
//!   if it hears of a birth that is as late as its own, it takes a later one. So does a directory that was restarted before it had heard from any
//!   site: no site can have told it of its earlier runs. That it has heard from a site is written down.
//! - A birth is reported only when it is on disk: if a power loss took it, the directory would itself be refused. And only a replica that promises
//!   reports it: an empty directory that was put in place by mistake, and has served nothing, must not have the one before it refused.
mod found;
#[cfg(test)]
mod tests;

use crate::Planted;
use found::Found;
use std::collections::BTreeMap;
use turnbuckle_core::{
    Chain, Context, Forgotten, Hlc, Meta, Protocol, Recovered, ReplicaId, ServerId, Topology, Version, Vitals,
};

/// The name under which this is written down.
const NAME: &str = "deletes";

/// What one replica knows of the deletes that may be forgotten.
pub struct Deletes {
    me: ReplicaId,
    others: Vec<ReplicaId>,
    /// What each other site has last reported, on the link that is up now.
    theirs: BTreeMap<ReplicaId, Said>,
    /// The birth of this directory; none before the first start.
    directory: Option<u64>,
    /// The newest births of the other sites' directories that are known.
    met: BTreeMap<ReplicaId, u64>,
    /// Whether no other site was heard since this directory began, or it began in this run: then no site can tell which came first, this directory or
    /// another.
    is_young: bool,
    /// Whether a site was heard since this directory began.
    was_told: bool,
    /// Whether this directory's birth was reported to other sites: it has everything that they could send back, and it promises.
    was_said: bool,
    /// Whether a birth is known that is not written down.
    is_unwritten: bool,
    /// The births of the directories whose reports allowed deletes to be forgotten, here or at other sites.
    vouched: BTreeMap<ReplicaId, u64>,
    /// The latest time up to which any other site has reported deletes as forgotten.
    forgotten_elsewhere: Hlc,
    /// How much of both was written down while the directory is being filled: that time, and the number of births.
    heard: (Hlc, usize),
    /// What is on disk here, and may be reported.
    kept: Said,
    /// What is written down and may not be on disk yet.
    written: Said,
    /// The number of the mark that is sent behind what is written down, and what that is. When the mark is settled, it is on disk.
    pending: Option<(u64, Said)>,
    /// Whether peers are still filling the directory.
    is_filling: bool,
    /// Whether this run began while the directory was being filled.
    was_empty: bool,
    /// What this replica has itself heard of every site in this run: deletes up to this time are shown everywhere.
    heard_everywhere: Hlc,
    outdated: Option<Outdated>,
    /// Planted bugs.
    serves_old: bool,
    forgets_by_hearsay: bool,
    keeps_shown_while_taking_back: bool,
    adds_no_floors: bool,
}

/// What replicas report about deletes, in their heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Said {
    /// The birth of the sender's directory. 0 while that is not on its disk, and while peers may still send something back.
    pub birth: u64,
    /// Everything that any site stamped up to this time is shown by the sender, now and after any restart.
    pub shown: Hlc,
    /// Deletes that were stamped up to this time are shown everywhere, and may be forgotten at some site.
    pub forgotten: Hlc,
    /// Everything up to this time is closed at the sender, now and after any restart: the sender has *itself heard* from every site that it is shown there.
    pub closed: Hlc,
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
    /// The state as it was left before a restart.
    pub fn open(me: ServerId, topology: &Topology, recovered: &Recovered, planted: Planted) -> Deletes {
        // This code wrote it. If it does not decode, nothing is known.
        let found = recovered.kept(NAME).and_then(Found::recall);
        let directory = found.as_ref().map(|found| found.said.birth);
        let found = found.unwrap_or_default();
        let is_filling = found.said.shown == Hlc::ZERO;
        // In a directory that is being filled, what is written down as forgotten is what other sites have reported.
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
            heard_everywhere: Hlc::ZERO,
            outdated: None,
            serves_old: planted.serves_an_old_directory,
            forgets_by_hearsay: planted.forgets_by_hearsay,
            keeps_shown_while_taking_back: planted.keeps_shown_while_taking_back,
            adds_no_floors: planted.adds_no_floors,
        }
    }

    /// Writes down that the directory has begun, if it is new.
    pub fn start<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        if self.directory.is_none() {
            self.begin(cx.now.wall.reading.0);
            self.write_news(cx);
        }
    }

    /// This is the directory's birth from now on.
    fn begin(&mut self, birth: u64) {
        self.directory = Some(birth);
        self.written.birth = birth;
        self.is_unwritten = true;
    }

    /// Writes down what is shown here. Call it about once a second.
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
        self.may_forget(shown);
        self.write(cx);
    }

    /// What may be forgotten by now, here and elsewhere.
    fn may_forget(&mut self, shown: Hlc) {
        self.heard_everywhere = self.heard_everywhere.max(self.shown_everywhere());
        let forgotten = self.heard_everywhere.max(self.forgotten_elsewhere.min(shown));
        self.written.forgotten = self.written.forgotten.max(forgotten);
        // What arrived before that was heard is staged for the log before this is.
        self.written.closed = self.written.closed.max(self.heard_everywhere);
    }

    /// Writes down what other sites have reported as forgotten. They may lose their directories while this one is being filled, and be filled from
    /// here. In that case no other site could tell that a copy is old.
    fn keep_heard<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        let heard = (self.forgotten_elsewhere, self.vouched.len());
        if std::mem::replace(&mut self.heard, heard) != heard {
            self.write(cx);
        }
    }

    /// Writes down births at once: what their directories report next is then behind that in the log.
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

    /// The time up to which every site shows everything.
    fn shown_everywhere(&self) -> Hlc {
        let theirs = |replica| self.theirs.get(replica).map_or(Hlc::ZERO, |said| said.shown);
        let theirs = self.others.iter().map(theirs).min();
        theirs.unwrap_or(Hlc::LATEST).min(self.kept.shown)
    }

    /// What the heartbeat reports that is marked next.
    pub fn said<P: Protocol>(&mut self, cx: &Context<'_, P>) -> Said {
        self.said_in(cx.marks(), cx.settled_marks())
    }

    /// What the mark with number `next` reports. What was staged before `settled` marks is on disk, and all of `written` is staged. No mark is
    /// settled before peers have sent back everything.
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

    /// Takes in what a site's heartbeat reports. Returns true if more was forgotten there than is shown here: this directory was lost, or is an old
    /// one.
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

    /// Takes in what a site reports when the link to it comes up, before anything else. Returns the same as [`Deletes::heard`].
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

    /// Takes in the newest birth of this site's directories that another site knows. While this directory's own birth is not on disk, no site was
    /// told of it: an equal birth is that of another directory.
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

    /// Takes in a birth of another site's directory.
    fn meet(&mut self, replica: ReplicaId, birth: u64) {
        let known = self.met.get(&replica).copied().unwrap_or_default();
        if replica != self.me && birth > known {
            self.met.insert(replica, birth);
            self.is_unwritten = true;
        }
    }

    /// The link to a site is down: it is not known what the site will show when it is back.
    pub fn left(&mut self, replica: ReplicaId) {
        self.theirs.remove(&replica);
    }

    /// The time up to which this site may have reported that it shows everything. While the directory is being filled that can be any time, because
    /// the directory before it was lost.
    pub fn shown(&self) -> Hlc {
        match self.is_filling {
            true => Hlc::LATEST,
            false => self.written.shown,
        }
    }

    /// Whether peers are still filling an empty directory.
    pub fn is_filling(&self) -> bool {
        self.is_filling
    }

    /// Deletes that were stamped up to this time may be forgotten here.
    pub fn forgotten(&self) -> Hlc {
        match self.forgets_by_hearsay {
            true => self.kept.forgotten,
            false => self.kept.forgotten.min(self.heard_everywhere),
        }
    }

    /// Everything up to this time is closed here: see [`Protocol::closed`].
    pub fn closed(&self) -> Hlc {
        self.kept.closed
    }

    /// Everything up to this time is closed at every site, as each has reported on the link that is up now.
    pub fn closed_everywhere(&self) -> Hlc {
        let theirs = |replica| self.theirs.get(replica).map_or(Hlc::ZERO, |said| said.closed);
        let theirs = self.others.iter().map(theirs).min();
        theirs.unwrap_or(Hlc::LATEST).min(self.kept.closed)
    }

    /// The floor of a version that is about to be put where this is here of its key. [`Hlc::ZERO`]: none.
    pub fn floor<M: Meta>(&self, chain: Option<&Chain<M>>) -> Hlc {
        let chain = chain.filter(|_| !self.adds_no_floors);
        chain.map_or(Hlc::ZERO, |chain| chain.floor(self.closed()))
    }

    /// Whether a version that has arrived must not be taken: it changes the expiry of a value that was deleted here, and the delete is forgotten. Only an old
    /// copy of a directory can send it, which was served before it could hear that it is one. `chain`: what is here of the key.
    pub fn is_of_the_forgotten<M: Meta>(&self, chain: Option<&Chain<M>>, version: &Version<M>) -> bool {
        // A count, and an expiry of counts alone, bring no value back. The value before may be forgotten here, and kept where there were counts already.
        let Some(base) = version
            .content
            .base()
            .filter(|_| version.content.stored().is_some())
        else {
            return false;
        };
        let is_here = |held: &Version<M>| held.rank().base == base;
        base.at <= self.forgotten() && !chain.is_some_and(|chain| chain.iter().any(is_here))
    }

    /// Deletes that were stamped up to this time are shown everywhere, as this replica or another one has heard.
    pub fn shown_by_all(&self) -> Hlc {
        self.kept.forgotten
    }

    /// What peers are told when a link comes up. While the directory is being filled, that is what other sites have reported.
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

    /// The vitals, with what is stable, where a protocol waits for that.
    pub fn vitals(&self, stable_until: Option<Hlc>) -> Vitals {
        Vitals {
            stable_until,
            deletes_until: Some(self.forgotten()).filter(|until| *until > Hlc::ZERO),
            is_outdated: self.outdated.is_some(),
            is_filling: self.is_filling,
            under_way: 0,
        }
    }

    /// Why this replica serves nothing. `None` if it serves.
    pub fn refusal(&self) -> Option<&'static str> {
        self.outdated.map(|why| match why {
            Outdated::Deletes => {
                "the data directory of this node is an old copy: other sites may have forgotten deletes that are not in it, and the \
                 deleted keys would come back. Stop the node, empty its data directory and start it again: its peers send it everything"
            }
            Outdated::Birth => {
                "the data directory of this node is an old copy: the node has served from a later directory since, and what it wrote there \
                 is not in this one. Stop the node, and put the later directory in place, or an empty one: its peers send back everything \
                 that they had received"
            }
        })
    }
}

impl Said {
    /// The newest time in it.
    pub fn newest(self) -> Hlc {
        self.shown.max(self.forgotten).max(self.closed)
    }
}
