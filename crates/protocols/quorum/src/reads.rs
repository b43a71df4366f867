//! Reads of several replicas, which a coordinator has under way.
//!
//! A read asks as few other replicas as its level needs. It asks another one when a link breaks, when a replica declines, and when an answer takes longer
//! than that replica's answers usually do. Writes that depend on what is there begin with such a read: deletes, and writes at level `atomic`.
use crate::{
    Conflicts,
    message::{Body, Repair},
    replica::{Cx, Quorum, Shown, Timer, deleted_here, say, sync_all},
};
use turnbuckle_core::{
    Freshness, Key, Level, Micros, PlainRequest, PlainResponse, QuorumProof, Receipt, ReplicaId, ReplicaSet,
    RequestId, ServerId, Version,
};

/// What the versions of one repair may have together, in bytes. A larger one is left to the streams.
const MAX_REPAIR_BYTES: usize = 96 << 20;

/// A read under way, or the read with which a write begins.
pub(crate) struct Read<C: Conflicts> {
    id: RequestId,
    pub request: PlainRequest,
    /// The number of replicas that must answer.
    needed: usize,
    /// Why it is not answered by this replica alone, if its level allows that.
    fallback: Option<Freshness>,
    asked: ReplicaSet,
    /// Those of the asked that were asked only to measure how long they take. If they answer, it counts.
    measured: ReplicaSet,
    answered: ReplicaSet,
    /// Those of the asked that will not answer: they declined, or their links are down.
    lost: ReplicaSet,
    /// What the coordinator knew of the key when the read began. Answers contain only versions that it lacked then.
    known: C::Known,
    /// The versions that answers brought.
    brought: Vec<Version<C::Meta>>,
    /// What each replica that has answered knows.
    found: Vec<(ReplicaId, C::Known)>,
    since: Micros,
    /// When another replica is asked although none of the asked is lost. `None` if one was.
    hedge_at: Option<Micros>,
    /// Whether the answers are complete and a majority is to store the newest version: the second phase of level `atomic`. Then these have it.
    storing: Option<(ReplicaSet, Version<C::Meta>)>,
    /// Why replicas declined.
    declined: Option<String>,
}

impl<C: Conflicts> Read<C> {
    fn is_atomic(&self) -> bool {
        self.request.level() == Level::Atomic
    }

    fn question(&self) -> Body {
        Body::Read(C::question(self.request.key().0.clone(), &self.known))
    }

    /// Those whose answers the read waits for.
    fn outstanding(&self) -> ReplicaSet {
        self.asked
            .minus(self.answered.union(self.lost).union(self.measured))
    }
}

impl<C: Conflicts> Quorum<C> {
    /// Begins to read the request's key at this many replicas, this one included.
    pub(crate) fn begin_read(
        &mut self,
        cx: &mut Cx<'_, C>,
        id: RequestId,
        request: PlainRequest,
        needed: usize,
        fallback: Option<Freshness>,
    ) {
        let me = ReplicaSet::one(cx.me.replica());
        let known = C::known(cx.chain(request.key()));
        let operation = self.next_operation();
        let read = Read {
            id,
            request,
            needed,
            fallback,
            asked: me,
            measured: ReplicaSet::default(),
            answered: me,
            lost: ReplicaSet::default(),
            known,
            brought: Vec::new(),
            found: Vec::new(),
            since: cx.now.monotonic.since(cx.waited),
            hedge_at: None,
            storing: None,
            declined: None,
        };
        self.reads.insert(operation, read);
        self.go_on_reading(cx, operation);
    }

    /// Asks as many replicas as are missing, or finishes the read.
    fn go_on_reading(&mut self, cx: &mut Cx<'_, C>, operation: u64) {
        let Some(read) = self.reads.get_mut(&operation) else {
            return;
        };
        if read.answered.len() >= read.needed {
            return self.has_answers(cx, operation);
        }
        let outstanding = read.outstanding();
        let missing = read
            .needed
            .saturating_sub(read.answered.len() + outstanding.len());
        if missing == 0 {
            return;
        }
        let more = self.latencies.nearest_first(self.links.minus(read.asked));
        if more.len() < missing {
            if read.measured.is_empty() {
                return self.cannot_read(cx, operation);
            }
            // From now on their answers are needed.
            read.measured = ReplicaSet::default();
            return self.go_on_reading(cx, operation);
        }
        let rest = more[missing..].iter().copied().collect();
        self.ask(cx, operation, &more[..missing]);
        if let Some(peer) = self.latencies.outdated(rest, cx.now.monotonic) {
            self.ask(cx, operation, &[peer]);
            if let Some(read) = self.reads.get_mut(&operation) {
                read.measured = read.measured.union(ReplicaSet::one(peer));
            }
        }
    }

    fn ask(&mut self, cx: &mut Cx<'_, C>, operation: u64, peers: &[ReplicaId]) {
        let now = cx.now.monotonic;
        let Some(read) = self.reads.get_mut(&operation) else {
            return;
        };
        for &peer in peers {
            read.asked = read.asked.union(ReplicaSet::one(peer));
            self.latencies.asked(operation, peer, now);
            say(cx, peer, operation, read.question());
        }
        if read.hedge_at.is_none() && !peers.is_empty() {
            let hedge = now + self.latencies.hedge(read.outstanding());
            read.hedge_at = Some(hedge);
            if self.hedges_at.is_none_or(|at| hedge < at) {
                self.hedges_at = Some(hedge);
                cx.set_timer(Timer::Hedge, hedge.since(now));
            }
        }
    }

    /// Asks one more replica in each read that has waited for longer than answers usually take.
    pub(crate) fn hedge(&mut self, cx: &mut Cx<'_, C>) {
        let now = cx.now.monotonic;
        let late = |read: &Read<C>| read.storing.is_none() && read.hedge_at.is_some_and(|at| at <= now);
        let late: Vec<u64> = self
            .reads
            .iter()
            .filter(|(_, read)| late(read))
            .map(|(&number, _)| number)
            .collect();
        for operation in late {
            let Some(read) = self.reads.get_mut(&operation) else {
                continue;
            };
            // Once is enough: whoever is late twice is away.
            read.hedge_at = Some(Micros::MAX);
            let more = self.latencies.nearest_first(self.links.minus(read.asked));
            self.hedged += u64::from(!more.is_empty());
            self.ask(cx, operation, &more[..more.len().min(1)]);
        }
        let waiting = self.reads.values().filter(|read| read.storing.is_none());
        self.hedges_at = waiting
            .filter_map(|read| read.hedge_at)
            .filter(|&at| at > now && at < Micros::MAX)
            .min();
        if let Some(at) = self.hedges_at {
            cx.set_timer(Timer::Hedge, at.since(now));
        }
    }

    /// Another replica asks which version is here.
    pub(crate) fn on_question(
        &mut self,
        cx: &mut Cx<'_, C>,
        from: ServerId,
        operation: u64,
        question: &crate::message::Read,
    ) {
        let body = match self.refusal() {
            Some(why) => Body::Declined(why),
            None => C::answer(&self.config, cx.chain(&question.key.clone().into()), question),
        };
        say(cx, from.replica(), operation, body);
    }

    /// A replica answers. `found` is what it knows, and `lacked` what this replica lacked.
    pub(crate) fn on_answer(
        &mut self,
        cx: &mut Cx<'_, C>,
        from: ServerId,
        operation: u64,
        found: C::Known,
        lacked: Vec<Version<C::Meta>>,
    ) {
        let peer = from.replica();
        self.latencies.answered(operation, peer, cx.now.monotonic);
        let Some(read) = self.reads.get_mut(&operation) else {
            return;
        };
        if !read.asked.contains(peer) || read.answered.contains(peer) || read.storing.is_some() {
            return;
        }
        read.answered = read.answered.union(ReplicaSet::one(peer));
        read.found.push((peer, found));
        C::gather(&mut read.brought, lacked);
        self.go_on_reading(cx, operation);
    }

    pub(crate) fn on_declined(&mut self, cx: &mut Cx<'_, C>, from: ServerId, operation: u64, why: String) {
        self.latencies.declined(operation, from.replica());
        if let Some(read) = self.reads.get_mut(&operation)
            && read.asked.contains(from.replica())
            && read.storing.is_none()
        {
            read.lost = read.lost.union(ReplicaSet::one(from.replica()));
            let name = cx.topology.replica_name(from.replica());
            read.declined = Some(format!("{name}: {why}"));
            self.go_on_reading(cx, operation);
        }
    }

    /// The link to a replica is down: it will not answer what it was asked.
    pub(crate) fn lose_answers_of(&mut self, cx: &mut Cx<'_, C>, peer: ReplicaId) {
        self.latencies.lose(peer);
        let waiting: Vec<u64> = self.reads.keys().copied().collect();
        for operation in waiting {
            if let Some(read) = self.reads.get_mut(&operation)
                && read.storing.is_none()
                && read.asked.minus(read.answered).contains(peer)
            {
                read.lost = read.lost.union(ReplicaSet::one(peer));
                self.go_on_reading(cx, operation);
            }
        }
    }

    /// Enough replicas have answered. This replica stores what it is about to show.
    fn has_answers(&mut self, cx: &mut Cx<'_, C>, operation: u64) {
        let Some(read) = self.reads.get_mut(&operation) else {
            return;
        };
        let key = read.request.key().clone();
        let mut brought = std::mem::take(&mut read.brought);
        brought.retain(|version| self.may_be_lacking(version));
        let is_behind = !brought.is_empty();
        let is_needed = |version: &Version<C::Meta>| !C::covers(&C::known(cx.chain(&key)), version.id);
        if !cx.has_room() && brought.iter().any(is_needed) {
            let why = "the disk of this node has no room for the version that was read".to_string();
            return self.refuse_read(cx, operation, why);
        }
        // The oldest first: of each replica, earlier versions must be here before later ones.
        brought.sort_by_key(Version::rank);
        for version in brought {
            self.store(cx, key.clone(), version);
        }
        let Some(read) = self.reads.get(&operation) else {
            return;
        };
        if read.request.is_write() && !self.deletes_nothing(cx, &read.request) {
            let read = self.reads.remove(&operation).expect("it was just there");
            return self.begin_write(cx, read.id, read.request, read.since);
        }
        let here = cx.chain(&key);
        let lacks = |found: &C::Known| C::lacking(here, found).any(|version| self.may_be_lacking(version));
        let behind = read.found.iter().filter(|(_, found)| lacks(found));
        let behind: Vec<(ReplicaId, C::Known)> = behind.cloned().collect();
        self.differing += u64::from(is_behind || !behind.is_empty());
        if read.is_atomic()
            && !self.config.bugs.skips_write_back
            && let Some(newest) = here.map(|chain| chain.newest())
        {
            let is_synced = C::copies(&newest.meta).is_awaited();
            let known = C::known(here);
            let have = read
                .found
                .iter()
                .filter(|(_, found)| *found == known && is_synced)
                .map(|&(peer, _)| peer);
            let have: ReplicaSet = have.chain([cx.me.replica()]).collect();
            let newest = newest.clone();
            if let Some(read) = self.reads.get_mut(&operation) {
                read.storing = Some((have, newest));
            }
            if !is_synced {
                sync_all(cx);
            }
            return self.go_on_storing(cx, operation, true);
        }
        for (peer, known) in behind {
            self.repair(cx, peer, &key, &known);
        }
        self.finish_read(cx, operation);
    }

    /// Whether a replica may lack a version that it does not have. Every replica has had what was stamped up to some time, or something newer, which may be a
    /// delete that is forgotten by now.
    fn may_be_lacking(&self, version: &Version<C::Meta>) -> bool {
        version.id.at > self.marks.deletes.shown_by_all()
    }

    /// Sends a replica what it lacks of a key, if that will not come soon from a stream.
    fn repair(&mut self, cx: &mut Cx<'_, C>, peer: ReplicaId, key: &Key, known: &C::Known) {
        let lacking = C::lacking(cx.chain(key), known);
        let lacking: Vec<_> = lacking.filter(|version| self.may_be_lacking(version)).collect();
        let is_late = lacking.iter().any(|version| self.is_overdue(cx, version));
        let values = lacking.iter().filter_map(|version| version.content.stored());
        let bytes: usize = values.map(|value| value.len()).sum();
        if is_late && (bytes <= MAX_REPAIR_BYTES || lacking.len() == 1) {
            let versions = lacking.into_iter().map(C::stored).collect();
            self.repairs += 1;
            let key = key.0.clone();
            say(cx, peer, 0, Body::Store(Repair { key, versions }));
        }
    }

    /// Whether a version is so old that a replica which lacks it will not get it from a stream soon.
    fn is_overdue(&self, cx: &Cx<'_, C>, version: &Version<C::Meta>) -> bool {
        version.id.at.wall() + self.config.repair_after < cx.now.wall.reading
    }

    /// Has a majority store the newest version, or answers if a majority has it.
    fn go_on_storing(&mut self, cx: &mut Cx<'_, C>, operation: u64, is_new: bool) {
        let majority = self.majority();
        let Some(read) = self.reads.get_mut(&operation) else {
            return;
        };
        let Some((have, version)) = &read.storing else {
            return;
        };
        if have.len() >= majority {
            return self.finish_read(cx, operation);
        }
        if !is_new {
            return;
        }
        for peer in self.links.minus(*have).iter() {
            let (key, versions) = (read.request.key().0.clone(), vec![C::stored(version)]);
            say(cx, peer, operation, Body::Store(Repair { key, versions }));
        }
    }

    /// Stores a version that came by a message, unless something newer is here.
    fn store(&mut self, cx: &mut Cx<'_, C>, key: Key, version: Version<C::Meta>) {
        // A message may have been under way for long.
        if self.may_be_lacking(&version) {
            cx.observe(version.id.at);
            let is_awaited = C::copies(&version.meta).is_awaited();
            self.keep_replaced(cx, &key, &version);
            let is_new = match version.id.replica == cx.me.replica() {
                // A power loss took it from here, and from this replica's stream. When a peer gives it back, it will be here already.
                true => cx.replicate(cx.others(), key, version),
                false => cx.put(key, version),
            };
            if is_new && is_awaited {
                // Whoever holds such a version has it on disk.
                cx.sync();
            }
        }
    }

    /// A coordinator sends versions that this replica may lack.
    pub(crate) fn on_store(&mut self, cx: &mut Cx<'_, C>, from: ServerId, operation: u64, repair: Repair) {
        if self.refusal().is_some() || !cx.has_room() {
            return;
        }
        let key = Key::from(repair.key);
        for version in repair.versions.into_iter().filter_map(C::version) {
            self.store(cx, key.clone(), version);
        }
        if operation > 0 {
            sync_all(cx);
            say(cx, from.replica(), operation, Body::Stored(()));
        }
    }

    /// A replica has stored what an atomic read is about to show.
    pub(crate) fn on_stored(&mut self, cx: &mut Cx<'_, C>, from: ServerId, operation: u64) {
        if let Some(read) = self.reads.get_mut(&operation)
            && let Some((have, _)) = &mut read.storing
        {
            *have = have.union(ReplicaSet::one(from.replica()));
            self.go_on_storing(cx, operation, false);
        }
    }

    fn finish_read(&mut self, cx: &mut Cx<'_, C>, operation: u64) {
        let level = self.reads[&operation].request.level();
        if matches!(level, Level::Bounded(_) | Level::PerKeySequential) && !cx.proves() {
            let why = format!(
                "{level} cannot be given: this replica does not have everything again that it had lost"
            );
            return self.refuse_read(cx, operation, why);
        }
        let read = self.reads.remove(&operation).expect("a read under way");
        // What a majority has stored by now, and not what has arrived here meanwhile.
        let shown = match (read.request.is_write(), read.storing) {
            // It has found nothing to delete.
            (true, stored) => {
                let stored = stored.map(|(_, version)| version.id);
                Shown {
                    version: stored.or_else(|| deleted_here(cx, read.request.key())),
                    has_siblings: false,
                    response: PlainResponse::Written { existed: false },
                }
            }
            (false, Some((_, stored))) => Shown {
                version: Some(stored.id),
                has_siblings: false,
                response: PlainResponse::Value(stored.content.stored().cloned()),
            },
            (false, None) => self.shown_here(cx, &read.request),
        };
        let proof = QuorumProof {
            asked: read.asked,
            answered: read.answered,
            covers: (self.replicas - read.answered.len() + 1) as u8,
            freshness: read.fallback.map(Box::new),
        };
        let receipt = Receipt {
            staleness: Some(Micros(0)),
            // The claim rests on no clock.
            clock_bound: Micros(0),
            siblings: shown.has_siblings,
            ..self.receipt(cx, read.request.level(), shown.version, proof, read.since)
        };
        cx.reply(read.id, shown.response, receipt);
    }

    /// Too few replicas can be asked.
    fn cannot_read(&mut self, cx: &mut Cx<'_, C>, operation: u64) {
        let Some(read) = self.reads.get(&operation) else {
            return;
        };
        let level = read.request.level();
        let mut why = self.too_few(cx, level, read.needed);
        if let Some(declined) = &read.declined {
            why = format!("{why}; {declined}");
        }
        self.refuse_read(cx, operation, why);
    }

    fn refuse_read(&mut self, cx: &mut Cx<'_, C>, operation: u64, why: String) {
        let Some(read) = self.reads.remove(&operation) else {
            return;
        };
        let receipt = cx.receipt(read.request.level(), None);
        cx.reply(read.id, PlainResponse::Refused(why), receipt);
    }

    /// Ends reads that have waited too long, and asks again for what replicas have not stored.
    pub(crate) fn retry_reads(&mut self, cx: &mut Cx<'_, C>) {
        let now = cx.now.monotonic;
        let patience = self.config.patience;
        let open: Vec<u64> = self.reads.keys().copied().collect();
        for operation in open {
            let read = &self.reads[&operation];
            if now >= read.since + patience {
                self.given_up += 1;
                let silent: Vec<String> = read
                    .outstanding()
                    .iter()
                    .map(|peer| cx.topology.replica_name(peer))
                    .collect();
                let why = match read.storing.is_some() {
                    true => format!("no majority stored the version that was read within {patience}"),
                    false => format!("no answer within {patience} from {}", silent.join(", ")),
                };
                self.refuse_read(cx, operation, why);
            } else if read.storing.is_some() {
                self.go_on_storing(cx, operation, true);
            } else if now >= read.since + self.config.retry {
                // A replica that has too much to do drops questions, and one that is slow may be slow for long. Any of the others will do.
                for peer in self.links.minus(read.answered).iter() {
                    say(cx, peer, operation, read.question());
                }
                let read = self.reads.get_mut(&operation).expect("it is under way");
                read.asked = read.asked.union(self.links);
            }
        }
    }
}
