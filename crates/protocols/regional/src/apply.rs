//! Entries: a new leader looks at what is in its log, and every replica applies what is committed.
//!
//! An entry is applied if it continues what the replica has of the entry's site ([`crate::sites`]). If the replica has the entry already, nothing happens. If entries before it are missing, the leader had
//! them from a full copy: then the replica notes that it lacks them, and takes a copy too ([`mod@crate::copies`]).
//!
//! Applied entries are kept until every other site has those of this one, unless they take more than 64 MiB ([`turnbuckle_raft::copies`]). So a forwarder can send them again.
use crate::entry::{Entry, Work};
use crate::forwarder::fit;
use crate::replica::{Cx, Line, Nukv, Timer};
use crate::sites::Fit;
use std::collections::BTreeMap;
use turnbuckle_core::{Hlc, Key, Version};
use turnbuckle_raft::Committed;
use turnbuckle_raft::applying::Next;

/// What a key will have when an entry is applied.
#[derive(Debug, Clone)]
pub(crate) struct Ahead {
    /// The last entry that puts the key.
    pub index: u64,
    /// The newest version that one of them puts.
    pub version: Version<()>,
}

impl Nukv {
    /// A new leader looks at what is in its log, applied or not.
    pub(crate) fn look_at_log(&mut self) {
        self.taken = self.sites.clone();
        let first = self.group.first();
        for committed in self.group.entries(first) {
            let Some(entry) = decode(&committed) else {
                continue;
            };
            let index = committed.at.index;
            if let Some(by) = entry.by() {
                self.sessions.note(by, index, first);
            }
            if index > self.applied {
                note_ahead(&mut self.ahead, index, &entry);
                // Its own site's entries fit each other: that is the log in which they are stamped.
                let is_own = entry.site() == self.site && entry.link().place > self.taken.place(self.site);
                if is_own || self.taken.fit(entry.site(), entry.link()) == Fit::Next {
                    self.taken.take(entry.site(), entry.link());
                }
            }
        }
    }

    /// Applies the next committed entries, up to the first that waits for its key.
    pub(crate) fn apply_soon(&mut self, cx: &mut Cx<'_>) {
        if self.is_placing {
            return;
        }
        let keys = |entry: &Entry| entry.key().into_iter().collect();
        while let Some(next) = self.fetching.next(&mut self.group, Entry::decode, keys) {
            match next {
                Next::Apply(entry) => self.apply(cx, entry),
                Next::Fetch(keys) => cx.when_resident(keys, Timer::Apply),
            }
        }
    }

    /// Applies the next committed entry. Its key is in memory.
    pub(crate) fn apply(&mut self, cx: &mut Cx<'_>, entry: Option<Entry>) {
        let Some(committed) = self.group.take_committed() else {
            return;
        };
        let index = committed.at.index;
        self.applied = index;
        let client = self.waiting.take(index);
        let site = entry.as_ref().map(Entry::site);
        if let Some(entry) = &entry {
            self.apply_one(cx, index, entry.clone());
        }
        // Behind the effect, so that a replica that has acknowledged a write shows it after a power loss, too.
        match (client, &entry) {
            (Some(client), Some(entry)) if client.at == committed.at => {
                self.reply_written(cx, client, entry, self.leads && index > self.decided_on_less);
            }
            (Some(client), _) => self.lost_its_place(cx, client),
            (None, _) => {}
        }
        let is_kept = self.group.note(cx, &committed);
        if !self.group.is_member() {
            self.leave_group(cx);
        }
        // To look at the log for each entry would cost more than it saves.
        let every = (self.config.log_entries as u64 / 8).clamp(1, 256);
        let is_purged = index.is_multiple_of(every) && {
            let keep = self.entries_to_keep();
            self.group.purge(cx, keep)
        };
        if is_purged || is_kept {
            self.keep(cx);
        }
        if let Some(site) = site {
            cx.advance(Line::Site(site), self.sites.place(site).at.0);
        }
    }

    fn apply_one(&mut self, cx: &mut Cx<'_>, index: u64, entry: Entry) {
        let (site, link) = (entry.site(), entry.link());
        if let Some(key) = entry.key()
            && self.ahead.get(&key).is_some_and(|ahead| ahead.index <= index)
        {
            self.ahead.remove(&key);
        }
        let before = self.sites.place(site);
        let is_own = site == self.site && link.place > before;
        match fit(&self.sites, &entry) {
            // What this site has stamped in its epoch comes by its log, and only so.
            _ if is_own => self.sites.take(site, link),
            Fit::Next => self.sites.take(site, link),
            Fit::Here if self.config.bugs.sets_back && site != self.site => self.sites.take(site, link),
            Fit::Gap if self.config.bugs.skips_gaps => self.sites.take(site, link),
            Fit::Here => return,
            // A copy that its leader has taken brought the entries before.
            Fit::Gap => self.wanted.reach(site, link.place),
        }
        self.went_back |= self.sites.place(site) < before;
        if self.sites.place(site) == link.place {
            self.walls.insert(site, entry.wall());
        }
        if let Some(Work::Begin(begin)) = &entry.work
            && site == self.site
        {
            // Copies that its leader has taken brought what it had of other sites, and of earlier epochs.
            self.wanted.join(&begin.sites());
            self.begun = index;
            self.is_new |= entry.is_first_of_all();
            if !entry.is_first_of_all() && begin.member != u32::from(cx.me.member) {
                self.copy_behind = link.place.at;
            }
        }
        self.look_for_gap();
        if let Some(Work::Mark(mark)) = &entry.work
            && site == self.site
        {
            self.held = self.held.max(Hlc(mark.held));
            self.settled = self.settled.max(Hlc(mark.settled));
        }
        if let Some(Work::Mark(mark)) = &entry.work
            && site != self.site
            && self.sites.place(site) == link.place
        {
            self.mark_of(site, Hlc(mark.settled));
        }
        if let Some((key, version)) = entry.into_version() {
            self.newest_write = self.newest_write.max(version.id.at);
            self.expiries.add(&version);
            cx.put(key, version);
        }
    }

    /// How many applied entries are to be kept: at least those that another site lacks.
    fn entries_to_keep(&self) -> u64 {
        let least = self.config.log_entries as u64;
        if self.replicas.len() == 1 {
            return least;
        }
        // Entries are looked at only if there are enough to drop some.
        let (first, kept) = (
            self.group.first(),
            self.applied + 1 - self.group.first().min(self.applied + 1),
        );
        if kept <= least + least / 8 {
            return least;
        }
        let (held, site) = (self.held, self.site);
        let is_held = |committed: &Committed| {
            decode(committed).is_none_or(|entry| entry.site() != site || entry.link().place.at <= held)
        };
        let held_entries = self.group.entries(first).take_while(is_held).count() as u64;
        least.max(kept.saturating_sub(held_entries))
    }

    pub(crate) fn advance_lines(&self, cx: &mut Cx<'_>) {
        for (site, place) in self.sites.places() {
            cx.advance(Line::Site(site), place.at.0);
        }
    }
}

/// The entry of a protocol; `None` for a new leader's own one.
pub(crate) fn decode(committed: &Committed) -> Option<Entry> {
    let is_ours = !committed.data.is_empty();
    is_ours.then(|| Entry::decode(committed.data.clone()).ok())?
}

/// A leader takes note of what an entry will put.
pub(crate) fn note_ahead(ahead: &mut BTreeMap<Key, Ahead>, index: u64, entry: &Entry) {
    if let Some((key, version)) = entry.clone().into_version() {
        let known = ahead.entry(key).or_insert_with(|| Ahead {
            index,
            version: version.clone(),
        });
        known.index = index;
        if version.rank() > known.version.rank() {
            known.version = version;
        }
    }
}
