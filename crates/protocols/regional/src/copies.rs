//! Full copies: when a replica wants one, of which replica, and what it has when the copy is in place.
//!
//! A copy of a replica of the same site brings the group's log forward ([`turnbuckle_raft::copies`]). A copy of another site brings only rows, and what that site has of each site ([`Sites`]).
//!
//! A replica wants a copy for three reasons:
//!
//! - The leader of its group has dropped entries that it needs. It takes a copy of the leader.
//! - It leads, and another site has dropped entries that this one needs, or its site has lost writes ([`mod@crate::epochs`]). It takes copies of the other sites.
//! - It has a *gap*: its leader has what copies have brought, and it has not. It takes a copy of the leader.
use crate::replica::{Cx, Nukv};
use crate::sites::Sites;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use turnbuckle_core::{Hlc, Micros, Recovered, ServerId, SiteId};
use turnbuckle_raft::waiting;

/// The name under which it keeps what it has of each site, beside the journal.
pub(crate) const SITES: &str = "nukv.sites";

/// What a replica keeps of its state by name. The fields are those of [`Nukv`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Kept {
    pub sites: Sites,
    pub wanted: Sites,
    pub copy_behind: Hlc,
    pub settled: Hlc,
    pub held: Hlc,
    pub walls: BTreeMap<SiteId, Micros>,
}

impl Kept {
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.sites.put(&mut out);
        self.wanted.put(&mut out);
        out.put_u64(self.copy_behind.0);
        out.put_u64(self.settled.0);
        out.put_u64(self.held.0);
        out.put_u16(self.walls.len() as u16);
        for (site, wall) in &self.walls {
            out.put_u16(site.0);
            out.put_u64(wall.0);
        }
        out.freeze()
    }

    pub fn decode(mut bytes: Bytes) -> Option<Kept> {
        let mut kept = Kept {
            sites: Sites::decode_from(&mut bytes).ok()?,
            wanted: Sites::decode_from(&mut bytes).ok()?,
            copy_behind: Hlc(bytes.try_get_u64().ok()?),
            settled: Hlc(bytes.try_get_u64().ok()?),
            held: Hlc(bytes.try_get_u64().ok()?),
            walls: BTreeMap::new(),
        };
        for _ in 0..bytes.try_get_u16().ok()? {
            let site = SiteId(bytes.try_get_u16().ok()?);
            kept.walls.insert(site, Micros(bytes.try_get_u64().ok()?));
        }
        Some(kept)
    }
}

impl Nukv {
    /// A copy of another replica of the site may be behind in the group's log, and of another site it always is: then it brings what it covers, and the log goes on as it was.
    pub(crate) fn copy_is_in_place(&mut self, cx: &mut Cx<'_>, from: ServerId, copied: &Recovered) {
        // What was proposed in this turn is in the log then.
        self.handle_ready(cx);
        (self.copying, self.copied) = (None, cx.now.monotonic);
        let kept = copied.named.get(SITES).cloned();
        let Some(theirs) = kept.and_then(Kept::decode) else {
            return;
        };
        if from.site == self.site && self.group.restore(cx, copied) {
            self.applied = self.group.committed();
            for client in self.waiting.take_until(self.applied) {
                self.leave_open(cx, client, waiting::MISSED);
            }
        }
        self.sites.merge(&copied.cut, &theirs.sites);
        for &(replica, until) in &copied.cut {
            let site = replica.site();
            // What the source has kept by name may be of a later moment than what the copy covers.
            if let Some(&wall) = theirs
                .walls
                .get(&site)
                .filter(|_| theirs.sites.place(site).at <= until)
            {
                self.note_wall(site, wall);
            }
        }
        self.newest_write = self.newest_write.max(self.sites.newest());
        self.settled = self.settled.max(theirs.settled);
        if let Some(refill) = &mut self.refill {
            refill.merge(&copied.cut, &theirs.sites);
        }
        let until = copied.cut.iter().find(|(replica, _)| replica.site() == self.site);
        if from.site == self.site && until.is_some_and(|&(_, until)| until >= self.copy_behind) {
            self.copy_behind = Hlc::ZERO;
        }
        self.look_for_gap();
        self.keep(cx);
        self.advance_lines(cx);
        if self.leads {
            self.look_at_log();
        }
        self.handle_ready(cx);
    }

    /// Keeps what this replica has of each site. It fits how far entries are applied, as the group has kept it in the same batch.
    pub(crate) fn keep(&self, cx: &mut Cx<'_>) {
        let kept = Kept {
            sites: self.sites.clone(),
            wanted: self.wanted.clone(),
            copy_behind: self.copy_behind,
            settled: self.settled,
            held: self.held,
            walls: self.walls.clone(),
        };
        cx.put_named(SITES, kept.encode());
    }

    /// Everything is here that a site has acknowledged by this time, as the clocks of its leaders go.
    pub(crate) fn note_wall(&mut self, site: SiteId, wall: Micros) {
        let known = self.walls.entry(site).or_default();
        *known = wall.max(*known);
    }

    pub(crate) fn want_copy(&mut self, cx: &mut Cx<'_>, from: ServerId) {
        if self.copying != Some(from) {
            self.copying = Some(from);
            cx.want_copy(from);
        }
    }

    pub(crate) fn look_for_gap(&mut self) {
        self.has_gap = !self.sites.covers(&self.wanted) || self.copy_behind > Hlc::ZERO;
    }

    /// Whether it is too early for another full copy: the last one has not brought everything, and nothing may have changed since.
    fn has_just_copied(&self, now: Micros) -> bool {
        self.copied > Micros(0) && now < self.copied + self.config.timing.timeout()
    }

    /// A copy of the leader brings what is missing. If this replica leads, copies of the other sites do.
    pub(crate) fn fill_gap(&mut self, cx: &mut Cx<'_>) {
        if !self.has_gap || self.has_just_copied(cx.now.monotonic) {
            return;
        }
        match self.group.leader() {
            // Another one than the replica that it has asked may lead by now.
            Some(leader) if leader != cx.me.replica() => self.want_copy(cx, cx.me.peer(leader)),
            Some(_) => {
                self.copy_other_sites(cx);
            }
            None => {}
        }
    }

    /// Takes full copies of the other sites, one after the other, until it has what they have. Returns whether that is so.
    pub(crate) fn copy_other_sites(&mut self, cx: &mut Cx<'_>) -> bool {
        let others: Vec<SiteId> = self.others().collect();
        let mut has_all = true;
        for site in others {
            let Some((theirs, at)) = self
                .ways
                .get(&site)
                .and_then(|way| way.sites.as_ref().zip(way.at))
            else {
                has_all = false;
                continue;
            };
            if !self.refill.as_ref().unwrap_or(&self.sites).covers(theirs) {
                has_all = false;
                let may_ask = self.copying.is_none_or(|copying| copying.site == site);
                if may_ask && !self.has_just_copied(cx.now.monotonic) {
                    self.want_copy(cx, at);
                }
            }
        }
        has_all
    }
}
