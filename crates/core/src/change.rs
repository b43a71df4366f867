use crate::count::Sum;
use crate::next_share::NotEdited;
use crate::share::Resets;
use crate::shown::Tally;
use crate::{
    Answer, Compute, Computed, Condition, Content, Edit, Expiry, Hlc, Meta, Micros, NotComputed,
    PlainResponse, PutOptions, ReplicaId, Retimes, Shown, Unmet, VersionId,
};
use bytes::Bytes;

/// What a put asks for: a value, a delete, a change of when the existing value expires, an addition to a number, a change of elements, or a value that is computed from the one
/// before it. The replica that carries it out decides what is written by what it shows of the key.
///
/// ```text
///   Change --of(before, now)--> NewContent --stamped(id)--> Content        Changed -> the client
///     asked for      or nothing: there is no value to change      or nothing: it has expired by then
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// `None` to delete, to keep the value and change its expiry, to add to it, or to compute it.
    value: Option<Bytes>,
    /// Boxed, because almost no put has options, and without the box every request would be larger.
    options: Option<Box<PutOptions>>,
    /// Whether a number is a value like any other: nothing is added up apart for each replica.
    is_whole: bool,
}

/// What is written, before it is stamped.
#[derive(Debug, Clone)]
pub struct NewContent {
    /// For a change of the expiry, the value of the register.
    value: Option<Bytes>,
    /// Whether the key has a value before. For an addition that decides nothing, it is not asked for.
    existed: bool,
    /// `None`: a value that never expires, or a delete, over no shares, and whatever the value before. Boxed, because almost every write is one.
    beside: Option<Box<Beside>>,
}

/// What is written beside a value.
#[derive(Debug, Clone)]
struct Beside {
    expiry: Option<Expiry>,
    /// When the value before expires.
    previous: Option<Micros>,
    /// If only the expiry changes: which changes are made, and the version that wrote the value, if there is one.
    retimes: Option<(Retimes, Option<VersionId>)>,
    /// The value, if the put asks for it.
    returned: Option<Bytes>,
    adds: Option<Compute>,
    /// What was seen of shares. `None`: there were none, and the new version is no share.
    tally: Option<Tally>,
    /// What depends on the value before. It is decided once more at the stamp: by then that value may have expired.
    decides: Option<Decides>,
}

/// What a write decides by the value before it.
#[derive(Debug, Clone)]
pub(crate) struct Decides {
    condition: Option<Condition>,
    returns_value: bool,
    rewrites: Option<Compute>,
    is_delete: bool,
    /// The newest version that is shown, and whether it is a delete.
    newest: Option<(VersionId, bool)>,
    /// When it was decided first.
    now: Hlc,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// It was made.
    Made {
        /// Whether the key had a value before.
        existed: bool,
    },
    /// The expiry of this value was changed, and the put asked for the value.
    Retimed(Bytes),
    /// It was made, and asked for the value before it: that value. A delete that finds none has written nothing.
    Replaced(Option<Bytes>),
    /// Nothing was written: the condition does not hold, or the expiry was not changed, because there is no value, or because the change was none of those that were asked for.
    Unmet(Box<Unmet>),
    /// It was added to the number, and this is the sum; or the value was computed.
    Computed(Computed),
    /// Nothing was added or computed, for this reason.
    NotComputed(NotComputed),
}

/// A value that never expires, or a delete.
impl From<Option<Bytes>> for Change {
    fn from(value: Option<Bytes>) -> Change {
        Change::new(value, None)
    }
}

impl Change {
    /// What a put asks for. Options that a protocol does not take were refused before.
    pub fn new(value: Option<Bytes>, options: Option<Box<PutOptions>>) -> Change {
        Change {
            value,
            options: options.filter(|options| **options != PutOptions::default()),
            is_whole: false,
        }
    }

    /// What a put asks for, where a number is a value like any other.
    pub fn whole(value: Option<Bytes>, options: Option<Box<PutOptions>>) -> Change {
        Change {
            is_whole: true,
            ..Change::new(value, options)
        }
    }

    /// The new value. `None` to delete, to keep the value and change its expiry, to add to it, or to compute it.
    pub fn value(&self) -> Option<&Bytes> {
        self.value.as_ref()
    }

    /// What the put asks for beside its value. `None`: nothing.
    pub fn options(&self) -> Option<&PutOptions> {
        self.options.as_deref()
    }

    /// The put: its value, and what it asks for beside that.
    pub fn into_put(self) -> (Option<Bytes>, Option<Box<PutOptions>>) {
        (self.value, self.options)
    }

    /// When the value expires.
    pub fn expiry(&self) -> Option<Expiry> {
        self.options()?.expiry
    }

    /// Whether only the expiry changes: see [`PutOptions::retimes`].
    pub fn retimes(&self) -> Option<Retimes> {
        self.options()?.retimes
    }

    /// Whether the answer contains the value before. That of a change of the expiry is the value itself.
    pub fn returns_value(&self) -> bool {
        self.options().is_some_and(|options| options.returns_previous)
    }

    /// What must be true of the key. If it is not, nothing is written.
    pub fn condition(&self) -> Option<Condition> {
        self.options()?.condition
    }

    fn computes(&self) -> Option<&Compute> {
        self.options()?.computes.as_ref()
    }

    /// What is added to the number that is the value, or changed in the elements: see [`Compute::added`] and [`Compute::edit`].
    pub fn adds(&self) -> Option<&Compute> {
        self.computes()
            .filter(|compute| !self.is_whole && compute.is_shared())
    }

    /// How the new value is computed from the whole value before it. It is a value as that of a put, and expires when the one before it would have.
    pub fn rewrites(&self) -> Option<&Compute> {
        self.computes()
            .filter(|compute| self.is_whole || !compute.is_shared())
    }

    /// Whether it is a delete.
    pub fn is_delete(&self) -> bool {
        self.value.is_none() && self.retimes().is_none() && self.computes().is_none()
    }

    /// Whether the replica that carries it out decides by the value before it: by a condition, because the answer contains that value, or because it computes
    /// with it. Additions to numbers do not: they are added up, whatever replicas they are made at.
    pub fn decides(&self) -> bool {
        self.condition().is_some()
            || self.returns_value() && self.retimes().is_none()
            || self.rewrites().is_some()
            || self.edit().is_some_and(Edit::decides)
    }

    /// What it changes in a hash or a set.
    pub fn edit(&self) -> Option<&Edit> {
        self.adds().and_then(Compute::edit)
    }

    /// Whether its outcome tells the client of the version before it. The answer to a delete tells whether there was a value, a value that keeps an expiry
    /// tells when the one before it would have expired, a change of an expiry tells both, a sum tells the number before it, and so do a condition, and a value that is returned or computed.
    pub fn reads(&self) -> bool {
        self.value.is_none() || self.expiry() == Some(Expiry::Kept) || self.decides()
    }

    /// Whether the write depends on the version before it: its outcome tells the client of that version, as if the client had read it ([`Change::reads`]). At
    /// level `eventual` only a change of an expiry, an addition and a value that is computed do. They contain the value of the version before them, or what this replica had added before, and must not be shown without what that depends on.
    pub fn depends_on_before(&self, eventual: bool) -> bool {
        let contains_it = self.retimes().is_some() || self.computes().is_some();
        contains_it || self.reads() && !eventual
    }

    /// What is to be written by a replica at time `now`, where `before` is what is shown of the key.
    ///
    /// # Errors
    /// If nothing is to be written, because a delete or a change of an expiry finds no value, the condition does not hold, or no value is computed: the answer.
    pub fn of<M: Meta>(self, before: &Shown<'_, M>, now: Hlc) -> Result<NewContent, Changed> {
        let decides = self.decides().then(|| self.deciding(before, now));
        let (adds, retimes) = (self.adds(), self.retimes());
        // An addition alone finds out at its stamp what was there.
        let existed = (adds.is_none() || decides.is_some()) && before.has_value(now);
        if let Some(decides) = &decides {
            decides.decide(existed, before.value(now))?;
        }
        let returned = match retimes.is_some() && self.returns_value() {
            true => before.value(now),
            false => None,
        };
        if retimes.is_some() && self.returns_value() && existed && returned.is_none() {
            return Err(Changed::NotComputed(NotComputed::WrongType));
        }
        if self.value.is_none() && self.computes().is_none() && !existed {
            return Err(match retimes {
                None => Changed::Made { existed: false },
                Some(_) => Changed::Unmet(Box::new(Unmet {
                    has_value: false,
                    value: None,
                })),
            });
        }
        let register = before.register();
        let tally = match adds.is_some() || decides.is_some() {
            true => Some(before.to_tally()),
            false => before.tally(),
        };
        let beside = (self.options.is_some() || tally.is_some()).then(|| {
            let base = register.map(|register| register.rank().base);
            Box::new(Beside {
                expiry: self.expiry(),
                previous: before.until(now),
                retimes: retimes.map(|retimes| (retimes, base)),
                returned,
                adds: adds.cloned(),
                tally,
                decides,
            })
        });
        let value = match retimes {
            Some(_) => register.and_then(|register| register.content.at(now).cloned()),
            None => self.value,
        };
        Ok(NewContent {
            value,
            existed,
            beside,
        })
    }

    fn deciding<M: Meta>(&self, before: &Shown<'_, M>, now: Hlc) -> Decides {
        let is_delete = |register: &crate::Version<M>| register.content.is_delete();
        let newest = before.label().map(|label| {
            let register = before.register().filter(|register| register.id == label.id);
            (label.id, register.is_some_and(is_delete))
        });
        self.deciding_at(newest, now)
    }

    /// What is decided at this time, where this is the newest version that is shown, and whether it is a delete.
    pub(crate) fn deciding_at(&self, newest: Option<(VersionId, bool)>, now: Hlc) -> Decides {
        Decides {
            condition: self.condition(),
            returns_value: self.returns_value(),
            rewrites: self.rewrites().cloned(),
            is_delete: self.is_delete(),
            newest,
            now,
        }
    }
}

impl Decides {
    /// What is to be written if this is the value before, or none: the computed value, and what its client is told. `has_value`: whether there is a value, or elements.
    ///
    /// # Errors
    /// If nothing is to be written: the answer.
    pub fn decide(
        &self,
        has_value: bool,
        before: Option<Bytes>,
    ) -> Result<Option<(Bytes, Computed)>, Changed> {
        // If a value has expired, its version is none of which a condition may be: a client that names it has seen the value.
        let newest = self.newest.filter(|(_, is_delete)| has_value || *is_delete);
        let is_met = |condition: Condition| condition.holds(has_value, newest.map(|(id, _)| id));
        if !self.condition.is_none_or(is_met) {
            let value = before.filter(|_| self.returns_value);
            return Err(Changed::Unmet(Box::new(Unmet { has_value, value })));
        }
        if self.is_delete && !has_value {
            return Err(match self.returns_value {
                true => Changed::Replaced(None),
                false => Changed::Made { existed: false },
            });
        }
        if has_value && before.is_none() && (self.returns_value || self.rewrites.is_some()) {
            return Err(Changed::NotComputed(NotComputed::WrongType));
        }
        let Some(compute) = &self.rewrites else {
            return Ok(None);
        };
        let (value, computed) = compute.apply(before.as_ref()).map_err(Changed::NotComputed)?;
        match compute.puts() {
            true => Ok(Some((value, computed))),
            false => Err(Changed::Computed(computed)),
        }
    }
}

impl NewContent {
    /// The new version must be stamped above this. A hybrid clock always is, a raw one only if it was not set back: a replica's newest count is the one that counts, and a write has seen no count that is stamped later.
    pub fn above(&self, replica: ReplicaId) -> Hlc {
        let tally = self.beside.as_ref().and_then(|beside| beside.tally.as_ref());
        tally.map_or(Hlc::ZERO, |tally| tally.shared_at(replica))
    }

    /// The content of the version of this name, and the answer. A span is counted from the stamp and not from the wall clock: a hybrid clock that is ahead
    /// of its wall clock would see the value expire too early.
    ///
    /// # Errors
    /// If nothing is written, because the value whose expiry was to be changed has expired at this stamp, or the change is none of those that were asked for, or the
    /// value is no number: the answer.
    pub fn stamped(self, id: VersionId) -> Result<(Content, Changed), Changed> {
        let NewContent {
            value,
            existed,
            beside,
        } = self;
        match beside {
            Some(beside) => beside.stamped((value, existed), id),
            None => Ok((Content::from(value), Changed::Made { existed })),
        }
    }

    /// What a removal of elements writes if it removes all that these replicas have added up to its own time, whether its writer has seen it or not. Only for a planted bug.
    #[doc(hidden)]
    pub fn removing_unseen(
        &self,
        id: VersionId,
        replicas: impl Iterator<Item = ReplicaId>,
    ) -> Option<Content> {
        let beside = self.beside.as_ref()?;
        let edit = beside.adds.as_ref().and_then(Compute::edit)?;
        let share = beside.tally.as_ref()?.removing_unseen(id, edit, replicas)?;
        Some(Content::sharing(share))
    }
}

impl Beside {
    fn stamped(
        self,
        (mut value, mut existed): (Option<Bytes>, bool),
        id: VersionId,
    ) -> Result<(Content, Changed), Changed> {
        if let Some(adds) = &self.adds {
            return self.added(adds, id);
        }
        let at = id.at;
        let (mut expiry, mut previous) = (self.expiry, self.previous);
        let mut told = None;
        if let (Some(decides), Some(tally)) = (&self.decides, &self.tally) {
            let seen = at.max(decides.now);
            let before = tally.value(seen);
            existed = tally.has_value(seen);
            let computed = decides.decide(existed, before.clone())?;
            previous = previous.filter(|&until| Hlc::from_wall(until) > seen);
            if let Some((computed, of_it)) = computed {
                (value, expiry) = (Some(computed), Some(Expiry::Kept));
                told = Some(Changed::Computed(of_it));
            } else if decides.returns_value && self.retimes.is_none() {
                told = Some(Changed::Replaced(before));
            }
        }
        let deadline = |expiry: Expiry| expiry.deadline(at.wall(), previous);
        let until = expiry.and_then(deadline).map(|until| until.min(Content::LATEST));
        let Some((retimes, base)) = self.retimes else {
            let told = told.unwrap_or(Changed::Made { existed });
            // A delete of elements is no write of the register, of which only the newest one would reset anything. If they expire, it must be one.
            if value.is_none()
                && previous.is_none()
                && let Some(share) = self.tally.as_ref().and_then(|tally| tally.cleared(id))
            {
                return Ok((Content::sharing(share), told));
            }
            let resets = self
                .tally
                .map_or_else(Resets::default, |tally| tally.resets_all(at));
            // A delete has no expiry.
            let until = until.filter(|_| value.is_some());
            let content = Content::register(value, until, None, resets);
            return Ok((content, told));
        };
        let has_expired = self
            .previous
            .is_some_and(|previous| Hlc::from_wall(previous) <= at);
        let (has_value, returned) = match &self.tally {
            Some(tally) if has_expired => (tally.has_value(at), tally.value(at)),
            _ => (!has_expired, self.returned),
        };
        // Only a raw clock that was set back stamps below what is there.
        let is_above = base.is_none_or(|base| at > base.at);
        let returned = returned.filter(|_| has_value);
        match has_value && is_above && retimes.holds(self.previous.filter(|_| !has_expired), until) {
            true => {
                let value = value.filter(|_| !has_expired);
                // An expiry of counts alone is a write of its own: the version before it may be forgotten elsewhere.
                let base = base.filter(|_| value.is_some());
                let resets = self
                    .tally
                    .map_or_else(Resets::default, |tally| tally.resets_at_expiry(until, at));
                Ok((
                    Content::register(value, until, base, resets),
                    returned.map_or(Changed::Made { existed }, Changed::Retimed),
                ))
            }
            false => Err(Changed::Unmet(Box::new(Unmet {
                has_value,
                value: returned,
            }))),
        }
    }

    /// The next share of the replica.
    fn added(&self, adds: &Compute, id: VersionId) -> Result<(Content, Changed), Changed> {
        // A gateway asks for nothing else. A peer could.
        let Some(tally) = &self.tally else {
            return Err(Changed::NotComputed(NotComputed::NotANumber));
        };
        let (share, computed) = tally.added(adds, id)?;
        // With its last element the key loses its expiry, too. That is what a delete writes.
        let is_gone = matches!(adds.edit(), Some(Edit::Remove(..)))
            && tally.until(id.at).is_some()
            && !tally.with_share(id, share.clone()).has_value(id.at);
        let content = match is_gone {
            true => Content::register(None, None, None, tally.resets_all(id.at)),
            false => Content::sharing(share),
        };
        Ok((content, Changed::Computed(computed)))
    }
}

impl Tally {
    /// The next share of the replica that adds this, or makes this edit, and what its client is told.
    ///
    /// # Errors
    /// If nothing is written: the answer.
    pub(crate) fn added(&self, adds: &Compute, id: VersionId) -> Result<(crate::Share, Computed), Changed> {
        if let Some(edit) = adds.edit() {
            return self.edited(id, edit).map_err(|why| match why {
                NotEdited::Nothing => Changed::Computed(Computed::Elements(0)),
                NotEdited::NotComputed(why) => Changed::NotComputed(why),
            });
        }
        let more = adds
            .added()
            .ok_or(Changed::NotComputed(NotComputed::NotANumber))?;
        if self.kind(id.at).is_some() {
            return Err(Changed::NotComputed(NotComputed::WrongType));
        }
        let computed = Sum::with(self.sum(id.at), adds).map_err(Changed::NotComputed)?;
        let share = self.counted(id, more);
        let share = share.ok_or(Changed::NotComputed(NotComputed::TooManyDigits))?;
        Ok((share, computed))
    }
}

impl From<Changed> for Answer {
    fn from(changed: Changed) -> Answer {
        match changed {
            Changed::Made { existed } => Answer::Written { existed },
            Changed::Retimed(value) => Answer::Replaced(Some(value)),
            Changed::Replaced(value) => Answer::Replaced(value),
            Changed::Unmet(unmet) => Answer::Unmet(unmet),
            Changed::Computed(computed) => Answer::Computed(computed),
            Changed::NotComputed(why) => Answer::NotComputed(why),
        }
    }
}

impl From<Changed> for PlainResponse {
    fn from(changed: Changed) -> PlainResponse {
        match changed {
            Changed::Made { existed } => PlainResponse::Written { existed },
            Changed::Retimed(value) => PlainResponse::Replaced(Some(value)),
            Changed::Replaced(value) => PlainResponse::Replaced(value),
            Changed::Unmet(unmet) => PlainResponse::Unmet(unmet),
            Changed::Computed(computed) => PlainResponse::Computed(computed),
            Changed::NotComputed(why) => PlainResponse::NotComputed(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Chain, Rank, Version};

    const STAMP: Hlc = Hlc::from_wall(Micros(1_000));

    fn id(at: u64) -> VersionId {
        VersionId {
            at: Hlc::from_wall(Micros(at)),
            replica: ReplicaId(0),
        }
    }

    fn version(until: Option<u64>) -> Version<()> {
        Version {
            id: id(500),
            content: Content::new(Bytes::from_static(b"v"), until.map(Micros)),
            meta: (),
        }
    }

    fn retime(retimes: Retimes, expiry: Option<Expiry>) -> Change {
        let options = PutOptions {
            expiry,
            retimes: Some(retimes),
            ..PutOptions::default()
        };
        Change::new(None, Some(Box::new(options)))
    }

    /// What a change writes at [`STAMP`], over a value that expires at this time.
    fn written(change: &Change, until: Option<u64>) -> Option<Content> {
        let before = Chain::new(version(until));
        let new = change
            .clone()
            .of(&Shown::all(Some(&before)), Hlc::from_wall(Micros(900)))
            .ok()?;
        new.stamped(id(1_000)).ok().map(|(content, _)| content)
    }

    #[test]
    fn a_change_of_an_expiry_keeps_the_value_and_names_the_version_that_wrote_it() {
        let change = retime(Retimes::Any, Some(Expiry::After(Micros(50))));
        let content = written(&change, None).expect("there is a value");
        assert_eq!(
            (content.stored(), content.until()),
            (Some(&Bytes::from_static(b"v")), Some(Micros(1_050)))
        );
        assert_eq!(content.base(), Some(id(500)));
        let first = Version {
            id: id(1_000),
            content,
            meta: (),
        };
        let chain = Chain::new(first.clone());
        let again = retime(Retimes::Any, None)
            .of(&Shown::all(Some(&chain)), STAMP)
            .expect("it has a value");
        let (second, _) = again.stamped(id(1_001)).expect("it expires");
        assert_eq!(
            (second.base(), second.until()),
            (Some(id(500)), None),
            "the base is that of the first"
        );
        let set = Rank::of(id(700));
        assert!(
            first.rank() > version(None).rank() && first.rank() < set,
            "a newer value wins"
        );
    }

    #[test]
    fn nothing_is_written_over_no_value_or_one_that_has_expired_by_the_stamp() {
        let change = retime(Retimes::Any, Some(Expiry::After(Micros(50))));
        assert!(written(&change, Some(900)).is_none(), "it had expired");
        assert!(written(&change, Some(1_000)).is_none(), "it expires at the stamp");
        assert!(written(&change, Some(1_001)).is_some());
        let unmet = Unmet {
            has_value: false,
            value: None,
        };
        assert_eq!(
            change.of::<()>(&Shown::all(None), STAMP).err(),
            Some(Changed::Unmet(Box::new(unmet)))
        );
    }

    #[test]
    fn a_change_is_made_only_if_it_is_one_of_those_that_were_asked_for() {
        use Retimes::*;
        let (never, soon, late) = (
            None,
            Some(Expiry::At(Micros(2_000))),
            Some(Expiry::At(Micros(4_000))),
        );
        for (before, to, made) in [
            (None, never, vec![]),
            (None, soon, vec![Any, NeverExpires, Earlier]),
            (Some(3_000), never, vec![Any, Expires, Later]),
            (Some(3_000), soon, vec![Any, Expires, Earlier, ExpiresAndEarlier]),
            (Some(3_000), late, vec![Any, Expires, Later]),
            (Some(2_000), soon, vec![Any, Expires]),
        ] {
            let of = |kind: &Retimes| written(&retime(*kind, to), before).is_some();
            let really: Vec<Retimes> = Retimes::ALL.into_iter().filter(of).collect();
            assert_eq!(really, made, "{before:?} to {to:?}");
        }
    }
    fn put(value: Option<&'static str>, options: PutOptions) -> Change {
        let value = value.map(|value| Bytes::from_static(value.as_bytes()));
        Change::new(value, Some(Box::new(options)))
    }

    fn text(value: &str) -> Bytes {
        Bytes::copy_from_slice(value.as_bytes())
    }

    /// What a change writes at [`STAMP`], and its answer, over a value that expires at this time.
    fn carried_out(change: &Change, before: Option<&Version<()>>) -> (Option<Content>, Changed) {
        let before = before.cloned().map(Chain::new);
        let new = change
            .clone()
            .of(&Shown::all(before.as_ref()), Hlc::from_wall(Micros(900)));
        match new.and_then(|new| new.stamped(id(1_000))) {
            Ok((content, changed)) => (Some(content), changed),
            Err(changed) => (None, changed),
        }
    }

    fn unmet(value: Option<&str>) -> Changed {
        Changed::Unmet(Box::new(Unmet {
            has_value: value.is_some(),
            value: None,
        }))
    }

    #[test]
    fn a_condition_is_decided_by_what_is_shown() {
        let only_if = |condition| {
            let options = PutOptions {
                condition: Some(condition),
                ..PutOptions::default()
            };
            put(Some("new"), options)
        };
        let (nothing, there) = (None, Some(version(None)));
        let delete = Some(Version {
            content: Content::DELETE,
            ..version(None)
        });
        let (absent, present) = (only_if(Condition::Absent), only_if(Condition::Present));
        let newest = only_if(Condition::Version(id(500)));
        for (change, before, expected) in [
            (&absent, &nothing, Ok(false)),
            (&absent, &delete, Ok(false)),
            (&absent, &there, Err(Some("v"))),
            (&present, &nothing, Err(None)),
            (&present, &delete, Err(None)),
            (&present, &there, Ok(true)),
            (&newest, &nothing, Err(None)),
            (&newest, &delete, Ok(false)),
            (&newest, &there, Ok(true)),
        ] {
            assert!(change.decides() && change.reads() && !change.depends_on_before(true));
            let (content, changed) = carried_out(change, before.as_ref());
            match expected {
                Ok(existed) => {
                    assert_eq!(changed, Changed::Made { existed });
                    let content = content.expect("it holds");
                    assert_eq!(content.stored(), Some(&text("new")));
                }
                Err(value) => assert_eq!((content, changed), (None, unmet(value))),
            }
        }
    }

    /// At 900 the value is there, and at the stamp, 1000, it is not.
    #[test]
    fn what_expires_before_the_stamp_is_not_there() {
        let between = Some(version(Some(950)));
        let options = PutOptions {
            condition: Some(Condition::Present),
            ..PutOptions::default()
        };
        let present = put(Some("new"), options.clone());
        assert_eq!(carried_out(&present, between.as_ref()), (None, unmet(None)));
        let kept = put(
            Some("new"),
            PutOptions {
                expiry: Some(Expiry::Kept),
                ..options
            },
        );
        let later = carried_out(&kept, Some(&version(Some(2_000))))
            .0
            .expect("it is there");
        assert_eq!(later.until(), Some(Micros(2_000)));
        let gets = PutOptions {
            returns_previous: true,
            ..PutOptions::default()
        };
        let set = put(Some("new"), gets.clone());
        let (content, changed) = carried_out(&set, between.as_ref());
        assert_eq!((content.is_some(), changed), (true, Changed::Replaced(None)));
        // There is nothing left to delete.
        let take = put(None, gets);
        assert_eq!(
            carried_out(&take, between.as_ref()),
            (None, Changed::Replaced(None))
        );
        let (content, changed) = carried_out(&take, Some(&version(Some(2_000))));
        assert!(content.is_some_and(|content| content.is_delete()));
        assert_eq!(changed, Changed::Replaced(Some(text("v"))));
    }

    #[test]
    fn a_computed_value_is_whole_and_keeps_the_expiry_of_the_value_before() {
        let computes = |compute| {
            put(
                None,
                PutOptions {
                    computes: Some(compute),
                    ..PutOptions::default()
                },
            )
        };
        let append = computes(Compute::Append(text("w")));
        assert!(!append.is_delete() && append.depends_on_before(true));
        for (before, value, until) in [
            (None, "w", None),
            (Some(version(None)), "vw", None),
            (Some(version(Some(2_000))), "vw", Some(Micros(2_000))),
            (Some(version(Some(950))), "w", None),
            (Some(version(Some(800))), "w", None),
        ] {
            let (content, changed) = carried_out(&append, before.as_ref());
            let content = content.expect("it is written");
            assert_eq!(
                (content.stored(), content.until(), content.base()),
                (Some(&text(value)), until, None)
            );
            assert_eq!(changed, Changed::Computed(Computed::Length(value.len() as u64)));
        }
        let nothing = computes(Compute::Overwrite(7, Bytes::new()));
        assert_eq!(
            carried_out(&nothing, Some(&version(None))),
            (None, Changed::Computed(Computed::Length(1)))
        );
        let too_far = computes(Compute::Overwrite(u32::MAX, text("x")));
        assert_eq!(
            carried_out(&too_far, None),
            (None, Changed::NotComputed(NotComputed::TooLong))
        );
    }

    #[test]
    fn a_number_that_is_added_up_is_a_value_and_is_reset_by_the_write() {
        let mut chain: Option<Chain<()>> = None;
        let mut write = |change: &Change, at: u64| {
            let new = change
                .clone()
                .of(&Shown::all(chain.as_ref()), Hlc::from_wall(Micros(at - 1)));
            let (content, changed) = match new.and_then(|new| new.stamped(id(at))) {
                Ok((content, changed)) => (content, changed),
                Err(changed) => return changed,
            };
            let (id, meta) = (id(at), ());
            let version = Version { id, content, meta };
            match &mut chain {
                Some(chain) => {
                    chain.insert(version);
                }
                None => chain = Some(Chain::new(version)),
            }
            changed
        };
        let adds = put(
            None,
            PutOptions {
                computes: Some(Compute::Add(7)),
                ..PutOptions::default()
            },
        );
        write(&adds, 10);
        let absent = put(
            Some("1"),
            PutOptions {
                condition: Some(Condition::Absent),
                ..PutOptions::default()
            },
        );
        assert_eq!(write(&absent, 20), unmet(Some("7")));
        let append = put(
            None,
            PutOptions {
                computes: Some(Compute::Append(text("0"))),
                ..PutOptions::default()
            },
        );
        assert_eq!(write(&append, 30), Changed::Computed(Computed::Length(2)));
        assert_eq!(write(&adds, 40), Changed::Computed(Computed::Number(text("77"))));
        let take = put(
            None,
            PutOptions {
                returns_previous: true,
                ..PutOptions::default()
            },
        );
        assert_eq!(write(&take, 50), Changed::Replaced(Some(text("77"))));
        assert_eq!(write(&take, 60), Changed::Replaced(None));
        assert_eq!(write(&absent, 70), Changed::Made { existed: false });
    }
}
