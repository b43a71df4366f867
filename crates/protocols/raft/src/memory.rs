//! A replica that has lost what it had promised.
//!
//! A replica makes two kinds of promises: it votes for at most one candidate in a term, and it has the entries that it has acknowledged. The group counts on
//! both. If its data directory is lost or damaged, the replica has forgotten them. If it then took part at once, it could vote a second time, or elect a
//! leader without an entry that it helped to commit.
//!
//! So it first asks *all* other voters what they have, and takes no part until all have answered. Each says who votes, as far as it knows; the newest word counts ([`mod@crate::members`]).
//!
//! - **Its term** becomes the highest of their terms, and it votes for nobody in that term. Whoever it has voted for, and whoever it has followed, had
//!   noted the term before, and is one of the others.
//! - **It votes only for candidates whose logs are as far as the furthest log that it was told of**, and wants to be elected only when its own is. An entry that it has
//!   acknowledged was sent by a leader, which had it, and is one of the others. A later leader may have replaced the entry there, but only if it was not
//!   committed; and then the leader's log is further, because its last term is higher.
//! - It takes entries like any other replica, and acknowledges those that are on its disk.
//!
//! ```text
//!   c, empty     |-- what do you have? --> a, b
//!                |<- term 7, log up to (6, 120) -- a
//!                |<- term 7, log up to (7, 124) -- b      c: term 7, no vote
//!                |<- entries 1 to 130 ----------- b (leads)     as soon as c has (7, 124), it may be elected
//! ```
//!
//! A majority of answers would not do: the leader that has sent the entry may be the one that is missing. A leader that is asked counts none of the entries any
//! more that the replica had before.
//!
//! **If others have lost theirs, too,** they say so, and their word counts for nothing. What only they had is lost. If all have, the group is new: nobody has ever
//! promised anything, or nobody knows. Replicas may also lose theirs one after the other, so that no log is as far any more as one that was told of. While it hears no leader, such a replica
//! asks again, and waits for no more than the furthest log that there is.
//!
//! **If several voters have lost theirs**, and a replica that does not vote knows more entries to be committed than the voters that are left, the group goes on with what that one has. It cannot be elected, so the voters take full copies of it, and
//! its members are theirs. What it had not applied is lost. If they began a new log instead, it would keep its own, and count as having entries that it does not have.
//!
//! **Whoever finds that entries may be lost says so** with each message, and so does whoever hears it ([`Group::lost_behind`]). An entry that was acknowledged and is lost was on a majority. Each majority that commits something later has one of those
//! replicas in it. So a new leader has heard of the loss when it knows what its predecessors have committed.
//!
//! **Its rows are lost, too.** It serves as a replica whose rows are incomplete until it knows what it had promised, and has applied everything that was in its log then.
use crate::group::{Group, Role, id_of, replica_of};
use crate::members::Electorate;
use crate::message::{Answer, RaftMessage};
use std::collections::BTreeMap;
use turnbuckle_core::{Completeness, Micros, ReplicaId, ReplicaSet};

/// What a replica knows of its own promises.
#[derive(Debug)]
pub(crate) enum Memory {
    /// All of them.
    Whole,
    /// None: it asks the others.
    Lost {
        /// The number of its question.
        number: u64,
        /// What the others have answered, by their names.
        heard: BTreeMap<u64, Answer>,
    },
    /// It knows its term, and how far its log may have been.
    Behind {
        place: Place,
        /// The number of the question that it asks while it hears no leader.
        number: u64,
        /// What the others have answered.
        heard: BTreeMap<u64, Answer>,
    },
}

/// The end of a log: the term and the index of its last entry. Of two logs, the one whose end is higher is further (section 3.6.1 of the dissertation).
pub(crate) type Place = (u64, u64);

impl Group {
    /// Whether it may not take part: it has lost what it promised, and some replica has not answered.
    pub(crate) fn has_lost(&self) -> bool {
        matches!(self.memory, Memory::Lost { .. })
    }

    /// Whether it knows all that it has promised: nothing keeps it from voting.
    pub fn knows_its_promises(&self) -> bool {
        matches!(self.memory, Memory::Whole)
    }

    /// Whether another replica had lost its promises as well when this one asked for its own.
    pub fn has_lost_for_good(&self) -> bool {
        self.lost_for_good
    }

    /// If several replicas have lost their directories together: the index of the last entry that was left. Entries that were behind it may have been acknowledged. All that are behind it now were proposed later.
    pub fn lost_behind(&self) -> Option<u64> {
        self.lost_behind
    }

    /// Entries behind this one may be lost. No sound replica says that of an entry that this one has not.
    pub fn lose_behind(&mut self, index: u64) {
        if index <= self.last() || self.has_lost() {
            self.lost_behind = self.lost_behind.max(Some(index));
        }
    }

    // ---- its rows ---------------------------------------------------------------------------------------------

    /// Whether its directory was lost, and it still lacks what it had.
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// Its directory was lost, and it may have everything again: if it knows what it had promised, has applied as much as there was at that time, and the protocol says that it has what no entry brings.
    pub fn look_whether_complete(&mut self, has_the_rest: bool) {
        if !self.is_incomplete || !self.knows_its_promises() {
            return;
        }
        let last = self.last();
        let complete_at = *self.complete_at.get_or_insert(last);
        self.is_incomplete = self.applied.index < complete_at.min(last) || !has_the_rest;
    }

    /// How much it has of what it had.
    pub fn completeness(&self) -> Completeness {
        match self.is_incomplete {
            true => Completeness::Incomplete,
            false if self.has_lost_for_good() => Completeness::Partial,
            false => Completeness::Whole,
        }
    }

    /// Whether a full copy of it has the effects of everything that it has applied, though its directory was lost. Its log begins at the first entry, or behind a full copy. Others take copies of
    /// leaders, and if voters have lost their logs, also of a replica that does not vote.
    pub fn is_sound_source(&self) -> bool {
        self.role() == Role::Leader || self.knows_its_promises() && self.applied.index > 0
    }

    // ---- its promises -----------------------------------------------------------------------------------------

    /// Asks those that have not answered. Called at each tick.
    pub(crate) fn ask_others(&mut self) {
        let has_leader = self.leader().is_some();
        let (number, heard) = match &self.memory {
            Memory::Lost { number, heard } => (*number, heard),
            Memory::Behind { number, heard, .. } if !has_leader => (*number, heard),
            Memory::Behind { .. } | Memory::Whole => return,
        };
        let me = self.node.raft.id;
        let silent = self.others().filter(|other| !heard.contains_key(other));
        let questions: Vec<RaftMessage> = silent
            .map(|other| RaftMessage::question(me, other, number))
            .collect();
        self.to_send.extend(questions);
    }

    /// Another replica has lost what it promised, and asks.
    pub(crate) fn on_question(&mut self, from: u64, number: u64) {
        self.lose_progress(from);
        let has_lost = Answer {
            has_lost: true,
            electorate: self.electorate(),
            ..Answer::default()
        };
        let answer = match &self.memory {
            _ if self.broken().is_some() => has_lost,
            Memory::Lost { .. } => has_lost,
            Memory::Whole => self.answer(Place::default()),
            Memory::Behind { place, .. } => self.answer(*place),
        };
        let answer = RaftMessage::answer(self.node.raft.id, from, number, answer);
        self.to_send.push(answer);
    }

    fn answer(&self, place: Place) -> Answer {
        Answer {
            term: self.node.raft.term,
            last: self.last_place(),
            committed: self.committed_place(),
            place,
            has_lost: false,
            can_lead: self.is_voter(),
            electorate: self.electorate(),
        }
    }

    /// The answers that count, once there are enough. Whose votes may be needed is known by the newest word of all.
    ///
    /// All of these must have answered. If one of them has lost what it had as well, the newest word may be missing: then all replicas must have answered. If this replica votes alone by the newest
    /// word, nobody else has what it had. A replica that does not vote any more has made no promise that counts: it needs a majority, so that it hears if it votes again.
    fn enough(&self, heard: &BTreeMap<u64, Answer>) -> Option<Vec<Answer>> {
        let me = self.me();
        let told = || {
            heard
                .values()
                .map(|answer| answer.electorate)
                .chain([self.electorate()])
        };
        let index = told().map(|told| told.index).max().unwrap_or_default();
        let newest = || told().filter(|told| told.index == index);
        let union = |of: fn(Electorate) -> ReplicaSet| {
            newest().map(of).fold(ReplicaSet::default(), ReplicaSet::union)
        };
        let (voters, outgoing) = (union(|told| told.voters), union(|told| told.outgoing));
        let all = voters.union(outgoing);
        let answers = |of: ReplicaSet| -> Vec<Answer> {
            let others = of.without(me);
            others
                .iter()
                .filter_map(|other| heard.get(&id_of(other)).copied())
                .collect()
        };
        let have_all_answered = |of: ReplicaSet| answers(of).len() == of.without(me).len();
        let has_everything = |answer: &Answer| !answer.has_lost && answer.place == Place::default();
        let sets = || [voters, outgoing].into_iter().filter(|set| !set.is_empty());
        let counted = answers(all);
        if !all.contains(me) {
            let has_majority = sets().all(|set| {
                let whole = answers(set)
                    .iter()
                    .filter(|answer| has_everything(answer))
                    .count();
                2 * whole > set.len()
            });
            return (has_majority || have_all_answered(self.known.replicas)).then_some(counted);
        }
        let is_alone = sets().any(|set| set.without(me).is_empty());
        // Of one that votes alone nobody else is known to have the newest word.
        let is_sure = !is_alone && have_all_answered(all) && counted.iter().all(has_everything);
        let may_be_alone = !is_alone || self.begins_anew;
        (may_be_alone && (is_sure || have_all_answered(self.known.replicas))).then_some(counted)
    }

    /// Another replica has answered.
    pub(crate) fn on_answer(&mut self, now: Micros, from: u64, to: u64, answer: Answer) {
        match &mut self.memory {
            Memory::Lost { number, heard } | Memory::Behind { number, heard, .. } if *number == to => {
                heard.insert(from, answer);
            }
            _ => return,
        }
        self.look_at_answers(now);
    }

    /// There may be enough answers. If it is the only member that there has ever been, there are none to wait for.
    pub(crate) fn look_at_answers(&mut self, now: Micros) {
        let (asked, heard) = match &self.memory {
            Memory::Lost { number, heard } | Memory::Behind { number, heard, .. } => (*number, heard.clone()),
            Memory::Whole => return,
        };
        let Some(answers) = self.enough(&heard) else {
            return;
        };
        let ends = answers
            .iter()
            .map(|answer| answer.last)
            .chain([self.last_place()]);
        let mut furthest = ends.max().unwrap_or_default();
        // A learner's log may be further than those of all voters. It cannot be elected, and what only it has is not committed, unless voters have lost theirs.
        let spared = heard.iter().filter(|(_, answer)| !answer.has_lost);
        let spared = spared.map(|(&id, answer)| (answer.committed, id)).max();
        if let Some((committed, id)) = spared
            && self.begins_with_copy(&answers, furthest, committed)
        {
            furthest = committed;
            (self.wanted_copy, self.copying) = (replica_of(id), replica_of(id));
        }
        let next = asked.wrapping_add(1) & (u64::MAX >> 2);
        match &self.memory {
            Memory::Whole => {}
            Memory::Lost { .. } => {
                let places = answers.iter().map(|answer| answer.place);
                let place = places.max().unwrap_or_default().max(furthest);
                self.lost_for_good = answers.is_empty() || answers.iter().any(|answer| answer.has_lost);
                let was_told = self.lost_behind.map(|index| index.min(furthest.1));
                let is_lost = self.has_lost_majority(&heard, &answers);
                self.lost_behind = was_told.max(is_lost.then_some(furthest.1));
                self.begin_behind_place(now, &heard, place, next);
            }
            Memory::Behind { place, .. } => {
                // No replica has what it waits for: they have lost it one after the other.
                let place = *place;
                if furthest < place {
                    self.lost_for_good = true;
                    self.lost_behind = Some(furthest.1);
                }
                self.memory = Memory::Behind {
                    place: place.min(furthest),
                    number: next,
                    heard: BTreeMap::new(),
                };
            }
        }
        self.remember();
    }

    /// Voters have lost what they had, and a replica that does not vote knows more to be committed than is in the furthest log of those that can be elected. Then the group goes on with a full copy of that one.
    fn begins_with_copy(&self, answers: &[Answer], furthest: Place, committed: Place) -> bool {
        let others_have_lost = answers.is_empty() || answers.iter().any(|answer| answer.has_lost);
        // A replica that does not know yet that it votes cannot be elected.
        let ends = answers
            .iter()
            .filter(|answer| answer.can_lead)
            .map(|answer| answer.last);
        let nobody_has_any = ends.max().unwrap_or_default().max(self.last_place()) == Place::default();
        let is_further = committed > furthest || nobody_has_any && committed > Place::default();
        match self.memory {
            Memory::Whole => false,
            Memory::Lost { .. } => others_have_lost && is_further,
            Memory::Behind { place, .. } => (furthest < place || nobody_has_any) && is_further,
        }
    }

    /// Whether a majority of the voters has lost what it had, or lacks something of it. Then entries may be lost that were acknowledged.
    fn has_lost_majority(&self, heard: &BTreeMap<u64, Answer>, answers: &[Answer]) -> bool {
        let lacks = |answer: &Answer| answer.has_lost || answer.place > answer.last;
        let is_lacking =
            |&replica: &ReplicaId| replica == self.me() || heard.get(&id_of(replica)).is_some_and(lacks);
        let told = answers
            .iter()
            .map(|answer| answer.electorate)
            .chain([self.electorate()]);
        let newest = told.max_by_key(|told| told.index).unwrap_or_default();
        let mut sets = [newest.voters, newest.outgoing].into_iter();
        sets.any(|set| 2 * set.iter().filter(is_lacking).count() > set.len())
    }

    fn begin_behind_place(&mut self, now: Micros, heard: &BTreeMap<u64, Answer>, place: Place, number: u64) {
        let term = heard.values().map(|answer| answer.term).max().unwrap_or(0);
        if term > 0 {
            self.node.raft.become_follower(term, raft::INVALID_ID);
            // It may have voted in this term. A vote for itself is one for nobody else.
            self.node.raft.vote = self.node.raft.id;
        }
        // It may have heard a leader just before.
        self.votes_from = self.votes_from.max(now + self.timing.timeout());
        self.memory = Memory::Behind {
            place,
            number,
            heard: BTreeMap::new(),
        };
    }

    /// Its log may be far enough by now.
    pub(crate) fn remember(&mut self) {
        if let Memory::Behind { place, .. } = self.memory
            && self.last_place() >= place
        {
            self.memory = Memory::Whole;
        }
    }

    /// Whether it must not vote for a candidate whose log ends there.
    pub(crate) fn must_not_vote(&self, candidate: Place) -> bool {
        match self.memory {
            Memory::Whole => false,
            Memory::Lost { .. } => true,
            Memory::Behind { place, .. } => candidate < place,
        }
    }

    fn last_place(&self) -> Place {
        let log = &self.node.raft.raft_log;
        (log.last_term(), log.last_index())
    }

    fn committed_place(&self) -> Place {
        let log = &self.node.raft.raft_log;
        (log.term(log.committed).unwrap_or(0), log.committed)
    }

    fn others(&self) -> impl Iterator<Item = u64> + use<> {
        let me = self.node.raft.id;
        let all: Vec<u64> = self.known.replicas.iter().map(id_of).collect();
        all.into_iter().filter(move |&other| other != me)
    }

    /// A leader forgets which entries a replica had.
    fn lose_progress(&mut self, id: u64) {
        if let Some(progress) = self.node.raft.mut_prs().get_mut(id) {
            (
                progress.matched,
                progress.committed_index,
                progress.pending_snapshot,
            ) = (0, 0, 0);
            progress.become_probe();
        }
    }
}
