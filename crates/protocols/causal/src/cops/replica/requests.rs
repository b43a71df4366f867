use super::{Cops, Cx, Line};
use crate::{
    View,
    cops::{
        message::{Dependencies, Dependency, Request, Response},
        waiting::{At, at_of},
    },
};
use turnbuckle_core::{
    Bounded, Chain, Change, Hidden, Hlc, Key, Label, Level, Micros, Proof, Receipt, RequestId, Shown, Vector,
    Version, VersionId, Wire,
};

/// The requests of clients.
impl Cops {
    /// The version that a request must wait for, if there is one.
    pub(super) fn lacks(&mut self, cx: &mut Cx<'_>, request: &Request) -> Option<At> {
        match request {
            Request::Confirm { waits: false, .. }
            | Request::Get {
                view: View::Newest, ..
            } => None,
            Request::Confirm {
                version: (key, id), ..
            } => {
                if !self.is_visible(*id) {
                    self.touch(cx, key, *id);
                }
                (!self.is_visible(*id)).then(|| at_of(*id))
            }
            Request::Get { key, .. } => self.unsettled(cx, key),
            Request::Put { key, .. } if reads(request) => self.unsettled(cx, key),
            Request::Put { .. } => None,
        }
    }

    /// The newest hidden version of a key that a client may have seen all the same, or may have seen something that depends on it. That may have been
    /// before a restart; at the source of a full copy, where older versions are gone; or at a partition that knows already that everything of that
    /// time may be shown.
    pub(super) fn unsettled(&mut self, cx: &mut Cx<'_>, key: &Key) -> Option<At> {
        if self.is_visible(cx.chain(key)?.newest().id) {
            return None;
        }
        let newer = cx.chain(key).into_iter().flat_map(Chain::iter);
        let hidden = newer.take_while(|version| !self.is_visible(version.id));
        let hidden: Vec<_> = hidden.map(|version| (version.id, version.meta.clone())).collect();
        // One by one, from the newest on: there may be more of them than are remembered as visible.
        for (id, nearest) in hidden {
            if !self.pending.contains_key(&at_of(id)) {
                self.look_after(cx, id, &nearest, true);
            }
            if self.is_visible(id) {
                return None;
            }
            let pending = self.pending.get(&at_of(id));
            let is_lazy = self.is_placing || pending.is_none_or(|pending| pending.lazy);
            if is_lazy || self.recovery.holds(id.at) {
                return Some(at_of(id));
            }
        }
        None
    }

    pub(super) fn serve(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        match request {
            Request::Get { key, view, seen } => self.on_get(cx, id, key, view, seen),
            Request::Put {
                key,
                change,
                nearest,
                seen,
                eventual,
            } => {
                let now = self.read_time(cx, seen);
                cx.observe(seen);
                self.on_put(cx, id, key, change, nearest, now, eventual);
            }
            Request::Confirm { version, .. } => {
                let everywhere = self.everywhere.covers_id(version.1);
                let receipt = Receipt {
                    version: Some(version.1),
                    ..self.receipt(cx, Level::Causal, None, Hidden::default())
                };
                cx.reply(id, Response::Confirmed { everywhere }, receipt);
            }
        }
    }

    /// The time at which a request looks at values that expire: that of the clock or, if that is later, the newest one that its session has seen.
    fn read_time(&self, cx: &Cx<'_>, seen: Hlc) -> Hlc {
        match self.config.bugs.forgets_what_expired {
            true => cx.read_time(),
            false => cx.read_time().max(seen),
        }
    }

    pub(super) fn on_get(&mut self, cx: &mut Cx<'_>, id: RequestId, key: Key, view: View, seen: Hlc) {
        if let Some(bound) = view.bound() {
            match cx.bounded(bound, self.config.patience, self.walls()) {
                Bounded::Proven => {}
                Bounded::Once { wall, deadline } => {
                    let request = Request::Get { key, view, seen };
                    return cx.wait(Line::OldestWall, wall.0, deadline, id, request);
                }
                Bounded::Never(why) => {
                    let why = cx.unproven(bound, self.walls(), why);
                    return self.refuse(cx, id, why);
                }
            }
        }
        let (found, hidden) = Shown::of(cx.chain(&key), |version| {
            view.is_newest() || self.is_visible(version.id)
        });
        let label = found.label();
        let now = self.read_time(cx, seen);
        let response = Response::Value {
            value: found.value(now),
            everywhere: label.is_some_and(|version| self.everywhere.covers_id(version.id)),
            expired: found.expired_at(now).unwrap_or(Hlc::ZERO),
        };
        let receipt = self.receipt(cx, view.level(), label, hidden);
        cx.reply(id, response, receipt);
    }

    pub(super) fn refuse(&self, cx: &mut Cx<'_>, id: RequestId, why: String) {
        let receipt = self.receipt(cx, Level::Causal, None, Hidden::default());
        cx.reply(id, Response::Refused(why), receipt);
    }

    #[allow(clippy::too_many_arguments, reason = "what the request asks for, and when")]
    fn on_put(
        &mut self,
        cx: &mut Cx<'_>,
        id: RequestId,
        key: Key,
        change: Change,
        mut nearest: Dependencies,
        now: Hlc,
        eventual: bool,
    ) {
        let chain = cx.chain(&key);
        let newest = chain.map_or(Hlc::ZERO, |chain| chain.newest().id.at);
        let (before, hidden) = Shown::of(chain, |version| self.is_visible(version.id));
        let decided_on = self.config.bugs.decided_on(&change, &before);
        let (depends_on_before, decided_at_site) = (change.depends_on_before(eventual), change.decides());
        let new = change.of(&decided_on, now);
        let expired = before.expired_at(now).unwrap_or(Hlc::ZERO);
        let before = before.label();
        let written = new.and_then(|new| {
            let seen = before.filter(|_| depends_on_before);
            nearest.0.extend(seen.map(|before| (key.clone(), before.id)));
            nearest.0.retain(|needed| !self.is_everywhere(cx, needed));
            // The stamp is above the versions that are here, even if a restart forgot that the clock had seen them.
            cx.observe(newest.max(nearest.newest()));
            let id = VersionId {
                at: cx.stamp(),
                replica: self.me.replica(),
            };
            self.vv.raise(id.replica, id.at);
            let (content, changed) = new.stamped(id)?;
            let version = Version {
                id,
                content: self.config.bugs.content(content, &changed),
                meta: nearest,
            };
            let written = version.label();
            self.make_room(cx, &key);
            let kept = cx.replicate(cx.others(), key, version);
            assert!(kept, "a new stamp names no version that is there");
            Ok((written, changed))
        });
        let given = level(eventual);
        let decided = |receipt| Receipt {
            decided_at_site,
            ..receipt
        };
        match written {
            Ok((written, changed)) => {
                let receipt = self.receipt(cx, given, Some(written), Hidden::default());
                cx.reply(id, Response::Written { changed }, decided(receipt));
            }
            Err(changed) => {
                let response = Response::Nothing {
                    changed,
                    everywhere: before.is_some_and(|before| self.everywhere.covers_id(before.id)),
                    expired,
                };
                let receipt = self.receipt(cx, given, before, hidden);
                cx.reply(id, response, decided(receipt));
            }
        }
    }

    /// Whether a dependency is visible at every site, as far as this server knows: it knows that of its own partition only.
    pub(super) fn is_everywhere(&self, cx: &Cx<'_>, (key, id): &Dependency) -> bool {
        let partition = cx.topology.partition_of_slot(key.slot());
        partition == self.me.partition && self.everywhere.covers_id(*id)
    }

    /// Of each other site, the wall time by which everything that its partition had acknowledged is visible. 0 if it is not known.
    pub(super) fn walls(&self) -> impl Iterator<Item = Micros> + Clone {
        self.peers.values().map(|peer| peer.wall)
    }

    /// What a peer had acknowledged by the wall time of its mark was stamped before that mark. When the watermark has passed the mark, all of that is
    /// visible in this partition. Other partitions do not matter for that.
    pub(super) fn receipt(
        &self,
        cx: &Cx<'_>,
        given: Level,
        version: Option<Label>,
        hidden: Hidden,
    ) -> Receipt {
        let receipt = Receipt {
            staleness: cx.staleness(self.walls()),
            proof: Proof::Causal {
                cut: Vector::ZERO,
                hidden,
            },
            ..cx.receipt(given, None)
        };
        receipt.of(version)
    }
}

/// Whether the answer tells the session what is visible, or is decided by it.
pub(super) fn reads(request: &Request) -> bool {
    match request {
        Request::Get { view, .. } => !view.is_newest(),
        Request::Put { change, eventual, .. } => change.depends_on_before(*eventual) || change.decides(),
        Request::Confirm { .. } => false,
    }
}

pub(super) fn key_of(request: &Request) -> &Key {
    match request {
        Request::Get { key, .. } | Request::Put { key, .. } => key,
        Request::Confirm { version, .. } => &version.0,
    }
}

fn level(eventual: bool) -> Level {
    match eventual {
        true => Level::Eventual,
        false => Level::Causal,
    }
}
