//! Values that expire: when they may be shown, and when they may not be.
//!
//! A version's time of expiry is part of the version, and receipts name it. So it is judged without knowing the protocol:
//!
//! - **It is what was asked for**: a span is counted from the version's own stamp, a time is as it was named, and a put without either expires never. A put
//!   that keeps the expiry of the value before it has one that some older version of the key had. If it found a value, and all older versions are known and
//!   expire, it does, too.
//! - **It is the same everywhere**: all receipts of a version name the same time.
//! - **No value is shown after it**: not if the read was asked for later than that by more than the clock's bound.
//! - **No value is gone before it**: a read of nothing that names an expired version, or that must have seen one, is no earlier than the newest clock of
//!   any node.
//! - **No session sees it again**: at a level that promises a session never to see less than before, a session that has seen the time at which a value expires
//!   is not shown that value. It has seen a time if it has seen a version that was stamped then or later, or a value that expired then or later. No clock
//!   excuses that.
//! - **A snapshot shows one moment**: if it shows that one value has expired, it shows no other value that expired before that one.
//!
//! An expired version is a version like any other for all other rules: what was acknowledged is not lost, and nothing older is shown. Once it may have been
//! forgotten, it is a delete that may have been forgotten.
use super::{Excuse, Judge, Rule, Seen, Witness, conditions::condition_of};
use crate::Record;
use bytes::Bytes;
use turnbuckle_core::{
    Answer, Condition, Content, Expiry, Hlc, Key, Micros, Operation, Promise, PutOptions, Rank, Receipt,
};

impl Judge {
    /// Whether some value of a key may have expired.
    pub(crate) fn may_expire(&self, key: &Key) -> bool {
        let of_key = self.keys.get(key).filter(|_| self.judges_expiry);
        self.number_may_expire(key)
            || self.text_may_expire(key)
            || crate::element::is_wild(key)
            || of_key.is_some_and(|of_key| {
                !of_key.open_deletes.is_empty() || of_key.until.values().any(Option::is_some)
            })
    }

    /// A read of a key showed nothing, and saw this version, if that is known. If the version had expired: its value. `None` if it is not known whether it had,
    /// or what its value was.
    pub(crate) fn seen_behind_nothing(&self, key: &Key, version: Option<Rank>) -> Option<Option<&Bytes>> {
        if !self.may_expire(key) {
            return Some(None);
        }
        let version = version?;
        let value = self.value_of(key, version);
        let expires = self.keys.get(key).and_then(|of_key| *of_key.until.get(&version)?);
        match expires {
            Some(_) => value.map(Some),
            None => Some(None),
        }
    }

    /// How many reads were judged by when their value expires.
    pub fn expiries(&self) -> super::Judged {
        self.expiries.clone()
    }

    /// The latest time up to which some value expires, if that is at most `within` from now.
    pub(crate) fn expire_until(&self, now: Micros, within: Micros) -> Option<Micros> {
        let all = self.keys.values().flat_map(|of_key| of_key.until.values());
        let soon = all.flatten().filter(|&&until| until <= now + within);
        let of_texts = self.texts_expire_until(now + within);
        soon.max()
            .copied()
            .max(self.numbers_expire_until(now, within))
            .max(of_texts)
            .max(
                self.elements_expire
                    .filter(|until| *until > now && *until <= now + within),
            )
    }

    /// Whether an answer shows nothing and may do so only if some clock is ahead of true time: a value of the key expires later than now.
    pub(crate) fn may_be_early(&self, record: &Record) -> bool {
        let Some((at, (answer, receipt))) = &record.returned else {
            return false;
        };
        let named = receipt.as_ref().and_then(|receipt| receipt.until);
        if named.is_some_and(|until| until > *at) {
            return true;
        }
        let is_early = |key: &Key| {
            let of_key = self.keys.get(key);
            of_key.is_some_and(|of_key| {
                let mut known = of_key.until.values().flatten();
                known.any(|until| until > at) || of_key.open_deletes.values().any(|open| open.gone_from > *at)
            })
        };
        match (&record.operation, answer) {
            (Operation::Get { key, .. }, Answer::Value(None)) => is_early(key),
            (Operation::Put { key, value: None, .. }, Answer::Written { existed: false }) => is_early(key),
            (Operation::Put { key, .. }, Answer::Unmet(unmet)) => !unmet.has_value && is_early(key),
            (Operation::Put { key, .. }, Answer::Replaced(None)) => is_early(key),
            (Operation::Put { key, .. }, Answer::Written { .. })
                if condition_of(record) == Some(Condition::Absent) =>
            {
                is_early(key)
            }
            (Operation::ReadMany { keys, .. }, Answer::Values(values)) => {
                let nothing = keys.iter().zip(values).filter(|(_, value)| value.is_none());
                nothing.into_iter().any(|(key, _)| is_early(key))
            }
            _ => false,
        }
    }

    /// The earliest time at which a reader can see nothing because of a put that is asked for now. `None` if its value does not expire.
    pub(super) fn gone_from(&self, options: Option<&PutOptions>, now: Micros) -> Option<Micros> {
        Some(match options?.expiry? {
            Expiry::At(until) => until,
            // It is counted from the put's stamp, which is not below an honest clock. That clock may be behind.
            Expiry::After(span) if !self.clocks_lie => {
                Micros((now + span).0.saturating_sub(self.clock_bound.0))
            }
            Expiry::After(_) | Expiry::Kept => now,
        })
    }

    /// The newest clock of any node, for the answer at hand: what is shown as expired expires no later. `None`: it was not looked at, because true time is
    /// enough. `Some(None)`: it is not known, because a node is away.
    pub(crate) fn look_at_newest_clock(&mut self, clock: Option<Option<Hlc>>) {
        self.newest_clock = clock.map(|clock| clock.map_or(Micros::MAX, Hlc::wall));
    }

    /// An upper bound of every time that an answer can rest on: the clocks of all nodes, and what the session had seen.
    pub(super) fn clocks_of(&self, seen: &Seen) -> Micros {
        let over = (seen.over + self.clock_bound).max(self.time_seen_by(seen).wall());
        self.newest_clock.map_or(over, |clock| clock.max(over))
    }

    /// A receipt names a version and when it expires.
    pub(super) fn note_until(&mut self, key: &Key, version: Rank, until: Option<Micros>, now: Micros) {
        if !self.judges_expiry {
            return;
        }
        let of_key = self.keys.entry(key.clone()).or_default();
        let known = *of_key.until.entry(version).or_insert(until);
        if until.is_some() {
            // Once it has expired it may be forgotten, as a delete is.
            of_key.know(version, false, None, now);
        }
        if known != until {
            let words = |until: Option<Micros>| {
                until.map_or("never".to_string(), |until| format!("at {}us", until.0))
            };
            let words = format!(
                "version {version} of {key} expires {} by one receipt, and {} by another",
                words(known),
                words(until)
            );
            self.report(Rule::Expiry, words);
        }
    }

    /// A write was acknowledged: it expires when it was asked to.
    pub(super) fn check_asked(
        &mut self,
        record: &Record,
        key: &Key,
        version: Rank,
        existed: bool,
        until: Option<Micros>,
    ) {
        let Operation::Put { options, value, .. } = &record.operation else {
            return;
        };
        if !self.judges_expiry || value.is_none() {
            return;
        }
        let expiry = options.as_ref().and_then(|options| options.expiry);
        let fits = match expiry {
            Some(Expiry::Kept) => {
                let of_key = self.keys.get(key);
                let older = of_key
                    .into_iter()
                    .flat_map(|of_key| of_key.until.range(..version));
                let mut older = older.map(|(_, known)| *known);
                // A write of unknown outcome may have had another one, or this one itself.
                let is_known =
                    of_key.is_none_or(|of_key| of_key.unknown_values <= 1 && of_key.open_retimes.is_empty());
                !is_known
                    || match until {
                        Some(_) => older.any(|known| known == until),
                        None => !existed || older.any(|known| known.is_none()),
                    }
            }
            Some(expiry) => {
                let asked = expiry.deadline(version.id.at.wall(), None);
                until == asked.map(|asked| asked.min(Content::LATEST))
            }
            None => until.is_none(),
        };
        if !fits {
            let words = format!(
                "version {version} of {key} was asked to expire as {expiry:?}, and expires at {until:?}"
            );
            self.report(Rule::Expiry, words);
        }
    }

    /// A value was read, of this version, if that is known. It has not expired.
    pub(super) fn check_not_expired(&mut self, seen: &Seen, value: &Bytes, version: Option<Rank>) {
        if !self.judges_expiry {
            return;
        }
        let of_key = self.keys.get(&seen.key);
        let until = of_key.and_then(|of_key| match version {
            Some(version) => of_key.until.get(&version).copied().flatten(),
            None => of_key.expires_by(self.version_of(&seen.key, value)?),
        });
        let Some(until) = until else {
            return;
        };
        let known = self.time_seen_by(seen);
        if Hlc::from_wall(until) <= known {
            let words = format!(
                "operation {}: replica {} shows a value of {} that expired at {}us, although its session had seen {known}",
                seen.id.0, seen.server, seen.key, until.0
            );
            self.report(Rule::Expiry, words);
        }
        let is_late = seen.invoked > until + self.clock_bound;
        self.expiries
            .count((is_late && self.clocks_lie).then_some(Excuse::Clock));
        if is_late && !self.clocks_lie {
            let words = format!(
                "operation {}: replica {} shows a value of {} that expired {} before it was asked",
                seen.id.0,
                seen.server,
                seen.key,
                seen.invoked.since(until)
            );
            self.report(Rule::Expiry, words);
        }
    }

    /// A read shows nothing, because a version has expired.
    pub(super) fn check_expired(&mut self, seen: &Seen, version: Rank, until: Micros) {
        let clocks = self.clocks_of(seen);
        let is_ahead_of_time = until > seen.over + self.clock_bound;
        let excuse = match self.newest_clock {
            _ if self.clocks_lie => Some(Excuse::Clock),
            Some(Micros::MAX) => Some(Excuse::NodeAway),
            _ => None,
        };
        self.expiries.count(excuse.filter(|_| is_ahead_of_time));
        if until > clocks && excuse.is_none() {
            let words = format!(
                "operation {}: replica {} shows version {version} of {} as expired at {}, which expires at {}, and no clock was beyond {}",
                seen.id.0, seen.server, seen.key, seen.over.0, until.0, clocks.0
            );
            self.report(Rule::Expiry, words);
        }
    }

    /// The newest time that a session had been shown before an operation was asked for. 0 if its level promises a session nothing.
    fn time_seen_by(&self, seen: &Seen) -> Hlc {
        let times = seen.remembers.and_then(|session| self.times_seen.get(&session));
        let before = times.and_then(|times| {
            let count = times.partition_point(|&(number, _)| number <= seen.before);
            count.checked_sub(1).map(|last| times[last].1)
        });
        before.unwrap_or(Hlc::ZERO)
    }

    /// An answer shows a session that this time has passed: that of the version that it names, or of a value that has expired.
    pub(super) fn note_time_seen(&mut self, record: &Record, answer: &Answer, receipt: &Receipt) {
        let is_noted = match receipt.given.promise() {
            Promise::Session { .. } => true,
            Promise::Bounded(_) => self.has_sessions,
            promise => promise.is_causal(),
        };
        if !self.judges_expiry || !is_noted {
            return;
        }
        let is_expired = match (&record.operation, answer) {
            (_, Answer::Value(None)) => true,
            (Operation::Put { value: None, .. }, Answer::Written { existed }) => !existed,
            // A delete that asks for the value before it, and finds none, puts nothing.
            (Operation::Put { value: None, .. }, Answer::Replaced(None)) => true,
            (_, Answer::Unmet(unmet)) => !unmet.has_value,
            _ => false,
        };
        let expired = receipt.until.filter(|_| is_expired).map(Hlc::from_wall);
        let Some(time) = receipt.rank().map(|version| version.id.at).max(expired) else {
            return;
        };
        self.note_time(record, time);
    }

    fn note_time(&mut self, record: &Record, time: Hlc) {
        let session = Witness::Session(record.client, record.session);
        let times = self.times_seen.entry(session).or_default();
        if times.last().is_none_or(|&(_, last)| last < time) {
            times.push((self.number, time));
        }
    }

    /// A read showed nothing, and named no version: if the key must have expired, the session has seen that.
    pub(super) fn note_nothing_seen(&mut self, record: &Record, seen: &Seen) {
        let expired = seen.remembers.and_then(|_| self.must_have_expired(seen));
        if let Some(expired) = expired.filter(|_| self.judges_expiry) {
            self.note_time(record, Hlc::from_wall(expired));
        }
    }

    /// A snapshot shows a value of each of these keys, or nothing. There is a moment at which all of that was so.
    pub(super) fn check_one_moment(&mut self, record: &Record, all: &[Seen], values: &[Option<Bytes>]) {
        let Some(id) = all.first().map(|seen| seen.id.0) else {
            return;
        };
        let is_judged = self.judges_expiry && self.has_sessions;
        let all = all
            .iter()
            .zip(values)
            .filter(|(seen, _)| is_judged && !seen.is_careless);
        let shown = all.clone().filter_map(|(seen, value)| {
            let version = self.version_of(&seen.key, value.as_ref()?)?;
            Some((self.keys.get(&seen.key)?.expires_by(version)?, &seen.key))
        });
        let nothing = all.filter(|(_, value)| value.is_none());
        let gone = nothing.filter_map(|(seen, _)| Some((self.must_have_expired(seen)?, &seen.key)));
        let (alive, Some((since, gone))) = (shown.min(), gone.max()) else {
            return;
        };
        if let Some((until, alive)) = alive.filter(|(until, _)| *until <= since) {
            let words = format!(
                "operation {}: a snapshot shows a value of {alive} that expired at {}us, and {gone} as expired, which expired at {}us or later",
                id, until.0, since.0
            );
            self.report(Rule::Expiry, words);
        }
        self.note_time(record, Hlc::from_wall(since));
    }

    /// A read shows that a key has no value. If only the expiry of a version can be the reason: the earliest time at which that can have been. It is not known
    /// of a key that may have been deleted, that its session need not be shown, or of which a version is not known.
    fn must_have_expired(&self, seen: &Seen) -> Option<Micros> {
        let of_key = self.keys.get(&seen.key)?;
        let expires = |version: &Rank| of_key.until.get(version).copied().flatten();
        let is_known =
            of_key.unknown_values == 0 && of_key.deletes.keys().all(|version| expires(version).is_some());
        let floor = self.firm_floor(of_key, seen)?;
        if !is_known || !of_key.open_deletes.is_empty() || !of_key.open_retimes.is_empty() {
            return None;
        }
        let may_be_shown = of_key.versions().filter(|&version| floor.admits(version));
        may_be_shown.filter_map(|version| expires(&version)).min()
    }
}
