//! Full copies: when a replica wants one, of which replica, and what it has when the copy is in place.
//!
//! A copy of a replica of the same site brings the group's log forward ([`turnbuckle_raft::copies`]). A copy of another site brings only rows, and what that site has of each site ([`Sites`]).
//!
//! A replica wants a copy for three reasons:
//!
//! - The leader of its group has dropped entries that it needs. It takes a copy of the leader.
//! - It leads, and another site has dropped entries that this one needs, or its site has lost writes ([`mod@crate::epochs`]). It takes copies of the other sites.
//! - It has a *gap*: its leader has what copies have brought, and it has not. It takes a copy of the leader.
use crate::forwarder::Way;
use crate::replica::{Cx, Nukv};
use crate::sites::{Has, Place, Sites};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use turnbuckle_core::{Hlc, Micros, Recovered, ReplicaId, ServerId, SiteId};
use turnbuckle_raft::waiting;

/// How often the pause between full copies that bring nothing is doubled: half a second becomes half a minute.
const MAX_DOUBLED: u32 = 6;

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
    pub begun: u64,
    pub newest_expiry: Hlc,
    pub marks: BTreeMap<SiteId, Hlc>,
}

impl Kept {
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.sites.put(&mut out);
        self.wanted.put(&mut out);
        out.put_u64(self.copy_behind.0);
        out.put_u64(self.settled.0);
        out.put_u64(self.held.0);
        out.put_u64(self.begun);
        out.put_u16(self.walls.len() as u16);
        for (site, wall) in &self.walls {
            out.put_u16(site.0);
            out.put_u64(wall.0);
        }
        out.put_u64(self.newest_expiry.0);
        out.put_u16(self.marks.len() as u16);
        for (site, settled) in &self.marks {
            out.put_u16(site.0);
            out.put_u64(settled.0);
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
            begun: bytes.try_get_u64().ok()?,
            walls: BTreeMap::new(),
            newest_expiry: Hlc::ZERO,
            marks: BTreeMap::new(),
        };
        for _ in 0..bytes.try_get_u16().ok()? {
            let site = SiteId(bytes.try_get_u16().ok()?);
            kept.walls.insert(site, Micros(bytes.try_get_u64().ok()?));
        }
        kept.newest_expiry = Hlc(bytes.try_get_u64().ok()?);
        for _ in 0..bytes.try_get_u16().ok()? {
            let site = SiteId(bytes.try_get_u16().ok()?);
            kept.marks.insert(site, Hlc(bytes.try_get_u64().ok()?));
        }
        Some(kept)
    }
}

impl Nukv {
    /// The rows of a copy are about to be put in place. A key may be missing here from now on because a delete of it is forgotten elsewhere: so what is said of keys without versions rests on what the source has
    /// forgotten. And no entry is applied meanwhile: it could put a version that the copy's source has deleted already.
    pub(crate) fn copy_comes(&mut self, cx: &mut Cx<'_>, copied: &Recovered) {
        self.is_placing = true;
        let kept = copied.named.get(SITES).cloned();
        if let Some(theirs) = kept.and_then(Kept::decode)
            && theirs.settled > self.settled
        {
            self.settled = theirs.settled;
            self.keep(cx);
        }
    }

    /// A copy of another replica of the site may be behind in the group's log, and of another site it always is: then it brings what it covers, and the log goes on as it was.
    pub(crate) fn copy_is_in_place(&mut self, cx: &mut Cx<'_>, from: ServerId, copied: &Recovered) {
        // What was proposed in this turn is in the log then.
        self.handle_ready(cx);
        (self.copying, self.is_placing, self.copied) = (None, false, cx.now.monotonic);
        let kept = copied.named.get(SITES).cloned();
        let Some(theirs) = kept.and_then(Kept::decode) else {
            return;
        };
        if from.site == self.site && self.group.restore(cx, copied) {
            self.applied = self.group.committed();
            self.begun = self.begun.max(theirs.begun);
            for client in self.waiting.take_until(self.applied) {
                self.leave_open(cx, client, waiting::MISSED);
            }
        }
        for &(replica, until) in &copied.cut {
            let (site, mine) = (replica.site(), self.sites.place(replica.site()));
            let place = theirs.sites.place(site);
            // What the source has kept by name may be of a later moment than what the copy covers.
            if place.at <= until && place > mine {
                if let Some(&wall) = theirs.walls.get(&site) {
                    self.walls.insert(site, wall);
                }
                if let Some(&settled) = theirs.marks.get(&site) {
                    self.mark_of(site, settled);
                }
            }
        }
        let mut has_more = self.sites.merge(&copied.cut, &theirs.sites);
        self.newest_write = self.newest_write.max(self.sites.newest());
        self.settled = self.settled.max(theirs.settled);
        self.expiries.add_all(theirs.newest_expiry, cx.read_time());
        if let Some(refill) = &mut self.refill {
            has_more |= refill.merge(&copied.cut, &theirs.sites);
        }
        self.in_vain = if has_more { 0 } else { self.in_vain + 1 };
        let until = copied.cut.iter().find(|(replica, _)| replica.site() == self.site);
        if from.site == self.site && until.is_some_and(|&(_, until)| until >= self.copy_behind) {
            self.copy_behind = Hlc::ZERO;
        }
        self.look_for_gap();
        self.keep(cx);
        self.advance_lines(cx);
        if self.leads {
            self.look_at_log();
            self.decided_on_less = self.group.last();
        }
        self.handle_ready(cx);
    }

    /// What it covers, for copies: of each site, everything that was stamped up to this time. A copy brings no version that its receiver covers and does not have, because that was deleted. But a new epoch of a site means that
    /// its old chain had two ends: then versions were stamped before what is here that never were here. So of such a site this replica covers nothing, until a copy is in place.
    pub(crate) fn covered(&self) -> Vec<(ReplicaId, Hlc)> {
        let known = self.refill.as_ref().unwrap_or(&self.sites);
        let mut cut = known.cut();
        for (replica, until) in &mut cut {
            let site = replica.site();
            let newest = self
                .wanted
                .place(site)
                .epoch
                .max(self.heard.get(&site).copied().unwrap_or_default());
            let is_behind =
                newest > self.sites.place(site).epoch || site == self.site && self.copy_behind > Hlc::ZERO;
            if is_behind && self.sites.place(site).epoch > Hlc::ZERO {
                *until = Hlc::ZERO;
            }
        }
        cut
    }

    /// Another site names an epoch of its own.
    pub(crate) fn hear_epoch(&mut self, site: SiteId, epoch: Hlc) {
        if epoch > self.sites.place(site).epoch {
            let heard = self.heard.entry(site).or_default();
            *heard = epoch.max(*heard);
        }
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
            begun: self.begun,
            newest_expiry: self.expiries.newest(),
            marks: self.marks.clone(),
        };
        cx.put_named(SITES, kept.encode());
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

    /// Whether it is too early for another full copy: the last one has not brought everything, and nothing may have changed since. If several have brought nothing, it waits for longer each time.
    fn has_just_copied(&self, now: Micros) -> bool {
        let pause = Micros(self.config.timing.timeout().0 << self.in_vain.min(MAX_DOUBLED));
        self.copied > Micros(0) && now < self.copied + pause
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
                self.copy_other_sites(cx, false);
            }
            None => {}
        }
    }

    /// Takes full copies of the other sites, one after the other, until it has what they have: of this site's own writes, or of all. Returns whether that is so. Other sites go on to write, so only of the own
    /// writes, of which there are no more meanwhile, can a leader wait until it has them all.
    pub(crate) fn copy_other_sites(&mut self, cx: &mut Cx<'_>, own_writes: bool) -> bool {
        let mut has_all = true;
        for site in self.others() {
            if self.has_what_is_at(site, own_writes) {
                continue;
            }
            has_all = false;
            let may_ask = self.copying.is_none_or(|copying| copying.site == site);
            if let Some(at) = self.ways.get(&site).and_then(|way| way.at)
                && may_ask
                && !self.has_just_copied(cx.now.monotonic)
            {
                self.want_copy(cx, at);
            }
        }
        has_all
    }

    /// Whether it has what another site has, as far as that has said so: of this site's own writes, or of all. Not if it was never heard.
    fn has_what_is_at(&self, site: SiteId, own_writes: bool) -> bool {
        let own = self.refill.as_ref().unwrap_or(&self.sites);
        let has_taken =
            |way: &Way| way.taken == Place::default() || own.has(self.site, way.taken) == Has::Yes;
        let way = self.ways.get(&site);
        let theirs = way.and_then(|way| Some((way, way.sites.as_ref()?)));
        theirs.is_some_and(|(way, theirs)| match own_writes {
            // What is in its log may be applied there later.
            true => own.covers_site(self.site, theirs) && has_taken(way),
            false => self.sites.covers(theirs),
        })
    }

    /// The site from which it has to learn something before its next epoch begins.
    pub(crate) fn awaited(&self) -> Option<SiteId> {
        self.others().find(|&site| !self.has_what_is_at(site, true))
    }
}
