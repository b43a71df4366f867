//! Writes that wait for acknowledgements, and acknowledgements that this replica owes.
use crate::{
    Conflicts,
    message::{Body, Copies},
    replica::{Cx, Quorum, Timer, say, sync_all},
};
use std::collections::BTreeMap;
use turnbuckle_core::{
    Hlc, Level, Micros, PlainRequest, PlainResponse, QuorumProof, Receipt, ReplicaId, ReplicaSet, RequestId,
    ServerId, Version, VersionId, Wire,
};

/// The writes that this replica coordinates and that wait for other replicas.
#[derive(Default)]
pub(crate) struct Writes {
    /// By timestamp: in the order of the stream.
    open: BTreeMap<Hlc, Write>,
    /// Up to which timestamp each peer has stored this replica's stream.
    stored: BTreeMap<ReplicaId, Hlc>,
}

struct Write {
    id: RequestId,
    level: Level,
    /// The number of replicas that must have it.
    needed: usize,
    stored_by: ReplicaSet,
    /// Whether there was a value, and how old that knowledge was at most.
    existed: bool,
    staleness: Option<Micros>,
    since: Micros,
}

/// The streams that this replica receives: up to where it has acknowledged them, and up to where it should.
#[derive(Default)]
pub(crate) struct Acknowledgements {
    /// The newest timestamp that each peer's stream has brought.
    received: BTreeMap<ReplicaId, Hlc>,
    /// The peers that are told so next.
    due: ReplicaSet,
}

impl Acknowledgements {
    /// The newest timestamp that a peer's stream has brought since this replica was opened.
    pub fn received_of(&self, peer: ReplicaId) -> Hlc {
        self.received.get(&peer).copied().unwrap_or_default()
    }
}

impl Writes {
    pub fn len(&self) -> usize {
        self.open.len()
    }
}

impl<C: Conflicts> Quorum<C> {
    /// Stamps a write, and sends it to all replicas. The client is answered when enough of them have it.
    pub(crate) fn begin_write(
        &mut self,
        cx: &mut Cx<'_, C>,
        id: RequestId,
        request: PlainRequest,
        since: Micros,
    ) {
        let level = request.level();
        let needed = self.needed_by(level);
        let refusal = match needed > self.links.len() + 1 {
            true => Some(self.too_few(cx, level, needed)),
            // It may have been full since the request came, if others were asked first.
            false => (!cx.has_room()).then(|| "the disk of this node has no room for the write".to_string()),
        };
        if let Some(why) = refusal {
            let receipt = cx.receipt(level, None);
            return cx.reply(id, PlainResponse::Refused(why), receipt);
        }
        let here = cx.chain(request.key());
        let newest = here.map(|chain| chain.newest());
        // A delete that finds nothing does not come here.
        let is_delete = matches!(request, PlainRequest::Put(_, None, ..));
        let existed = is_delete || newest.is_some_and(|newest| !newest.content.is_delete());
        let newest = newest.map(|newest| newest.id.at).unwrap_or_default();
        let meta = match C::meta(&self.config, here, &request, needed as u8) {
            Ok(meta) => meta,
            Err(why) => {
                let receipt = cx.receipt(level, None);
                return cx.reply(id, PlainResponse::Refused(why), receipt);
            }
        };
        let PlainRequest::Put(key, value, ..) = request else {
            unreachable!("only puts are written")
        };
        // The stamp is above the version that is here, even if a restart forgot that the clock had seen it, and above all that the write replaces.
        cx.observe(newest.max(meta.newest()));
        let version = VersionId {
            at: cx.stamp(),
            replica: cx.me.replica(),
        };
        self.marks.stamped(version.at);
        let stored = Version {
            id: version,
            content: value.into(),
            meta,
        };
        self.keep_replaced(cx, &key, &stored);
        let kept = cx.replicate(cx.others(), key, stored);
        assert!(kept, "a new stamp is above every version of its key");
        let write = Write {
            id,
            level,
            needed: needed - usize::from(self.config.bugs.counts_one_too_many && needed > 1),
            stored_by: ReplicaSet::one(cx.me.replica()),
            existed,
            staleness: self.marks.staleness(cx),
            since,
        };
        if needed > 1 {
            cx.sync();
        }
        match write.needed > 1 {
            true => drop(self.writes.open.insert(version.at, write)),
            false => self.written(cx, version, write),
        }
    }

    /// Enough replicas have the version.
    fn written(&self, cx: &mut Cx<'_, C>, version: VersionId, write: Write) {
        let proof = QuorumProof {
            asked: self.all,
            answered: write.stored_by,
            covers: 1,
            ..QuorumProof::default()
        };
        let receipt = Receipt {
            staleness: write.staleness,
            ..self.receipt(cx, write.level, Some(version), proof, write.since)
        };
        let existed = write.existed;
        cx.reply(write.id, PlainResponse::Written { existed }, receipt);
    }

    /// A peer has stored this replica's stream up to a timestamp.
    pub(crate) fn on_stored_until(&mut self, cx: &mut Cx<'_, C>, from: ServerId, until: Hlc) {
        let peer = from.replica();
        let known = self.writes.stored.entry(peer).or_default();
        if until <= *known {
            return;
        }
        *known = until;
        let mut done = Vec::new();
        for (&at, write) in self.writes.open.range_mut(..=until) {
            write.stored_by = write.stored_by.union(ReplicaSet::one(peer));
            if write.stored_by.len() >= write.needed {
                done.push(at);
            }
        }
        for at in done {
            let write = self.writes.open.remove(&at).expect("it was just there");
            let replica = cx.me.replica();
            self.written(cx, VersionId { at, replica }, write);
        }
    }

    /// Ends writes that have waited too long, and asks peers about those that they have not acknowledged.
    pub(crate) fn retry_writes(&mut self, cx: &mut Cx<'_, C>) {
        let (now, patience) = (cx.now.monotonic, self.config.patience);
        let late = self
            .writes
            .open
            .extract_if(.., |_, write| now >= write.since + patience);
        for (at, write) in late.collect::<Vec<_>>() {
            self.given_up += 1;
            let names = |set: ReplicaSet| {
                set.iter()
                    .map(|replica| cx.topology.replica_name(replica))
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            let why = format!(
                "{} needs {} of {} replicas to store a write, and within {patience} these did: {}",
                write.level,
                write.needed,
                self.replicas,
                names(write.stored_by)
            );
            let replica = cx.me.replica();
            let receipt = cx.receipt(write.level, Some(VersionId { at, replica }));
            cx.reply(write.id, PlainResponse::Unknown(why), receipt);
        }
        let retry = self.config.retry;
        for peer in self.links.iter() {
            let unstored = |write: &Write| now >= write.since + retry && !write.stored_by.contains(peer);
            let newest = self.writes.open.iter().rev().find(|(_, write)| unstored(write));
            if let Some((at, _)) = newest {
                say(cx, peer, 0, Body::Confirm(at.0));
            }
        }
    }

    /// The next version of a peer's stream is here.
    pub(crate) fn received(
        &mut self,
        cx: &mut Cx<'_, C>,
        from: ServerId,
        version: VersionId,
        copies: Copies,
        is_new: bool,
    ) {
        let received = self.acknowledgements.received.entry(from.replica()).or_default();
        *received = (*received).max(version.at);
        if self.statuses.are_awaited() {
            self.wake_stream(cx, from.replica());
        }
        if !copies.is_awaited() {
            return;
        }
        // What is here instead may not be synced.
        match is_new {
            true => cx.sync(),
            false => sync_all(cx),
        }
        self.owe(cx, from.replica());
    }

    fn owe(&mut self, cx: &mut Cx<'_, C>, peer: ReplicaId) {
        if self.acknowledgements.due.is_empty() {
            // Behind all other inputs that are there now, so that one message acknowledges many writes.
            cx.set_timer(Timer::Acknowledge, Micros(0));
        }
        self.acknowledgements.due = self.acknowledgements.due.union(ReplicaSet::one(peer));
    }

    /// Tells peers how far their streams are stored here.
    pub(crate) fn acknowledge(&mut self, cx: &mut Cx<'_, C>) {
        for peer in std::mem::take(&mut self.acknowledgements.due).iter() {
            if self.refusal().is_none()
                && let Some(until) = self.acknowledgements.received.get(&peer)
            {
                say(cx, peer, 0, Body::StoredUntil(until.0));
            }
        }
    }

    /// A peer asks whether its stream is stored here up to a timestamp. If not yet, that is acknowledged when it is.
    pub(crate) fn on_confirm(&mut self, cx: &mut Cx<'_, C>, from: ServerId, until: Hlc) {
        let peer = from.replica();
        let promised = self.marks.promise_of(peer);
        let received = self.acknowledgements.received.entry(peer).or_default();
        *received = (*received).max(promised);
        if *received >= until {
            sync_all(cx);
            self.owe(cx, peer);
        }
    }
}
