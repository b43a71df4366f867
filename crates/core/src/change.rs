use crate::count::{Sum, Tally};
use crate::{
    Answer, Compute, Computed, Content, Expiry, Hlc, Meta, Micros, NotComputed, PlainResponse, PutOptions,
    ReplicaId, Retimes, Shown, Unmet, VersionId,
};
use bytes::Bytes;

/// What a put asks for, in protocols that take no conditions: a value, a delete, a change of when the existing value expires, or an addition to a number.
///
/// ```text
///   Change --of(before, now)--> NewContent --stamped(id)--> Content        Changed -> the client
///     asked for      or nothing: there is no value to change      or nothing: it has expired by then
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// The new value. `None` to delete, to keep the value and change its expiry, or to add to it.
    pub value: Option<Bytes>,
    /// When the value expires.
    pub expiry: Option<Expiry>,
    /// Whether only the expiry changes: see [`PutOptions::retimes`].
    pub retimes: Option<Retimes>,
    /// Whether a change of the expiry returns the value.
    pub returns_value: bool,
    /// What is added to the number that is the value. It is one that adds ([`Compute::added`]).
    pub adds: Option<Compute>,
}

/// What is written, before it is stamped.
#[derive(Debug, Clone)]
pub struct NewContent {
    /// For a change of the expiry, the value of the register.
    value: Option<Bytes>,
    expiry: Option<Expiry>,
    /// Whether the key has a value before, and when that expires.
    existed: bool,
    previous: Option<Micros>,
    /// If only the expiry changes: which changes are made, and the version that wrote the value, if there is one.
    retimes: Option<(Retimes, Option<VersionId>)>,
    /// The value, if the put asks for it.
    returned: Option<Bytes>,
    adds: Option<Compute>,
    /// What was seen of counts. `None`: there were none, and the new version is no count.
    tally: Option<Box<Tally>>,
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
    /// The expiry was not changed: there is no value, or the change was none of those that were asked for.
    Unmet(Box<Unmet>),
    /// It was added to the number, and this is the sum.
    Computed(Computed),
    /// Nothing was added, for this reason.
    NotComputed(NotComputed),
}

/// A value that never expires, or a delete.
impl From<Option<Bytes>> for Change {
    fn from(value: Option<Bytes>) -> Change {
        Change {
            value,
            ..Change::default()
        }
    }
}

impl Change {
    /// What a put asks for. Options that such protocols do not take were refused before.
    pub fn new(value: Option<Bytes>, options: Option<&PutOptions>) -> Change {
        Change {
            value,
            expiry: options.and_then(|options| options.expiry),
            retimes: options.and_then(|options| options.retimes),
            returns_value: options.is_some_and(|options| options.returns_previous),
            adds: options.and_then(|options| options.computes.clone()),
        }
    }

    /// The options of a put that asks for it. `None`: it asks for its value alone.
    pub fn options(&self) -> Option<Box<PutOptions>> {
        let options = PutOptions {
            expiry: self.expiry,
            retimes: self.retimes,
            returns_previous: self.returns_value,
            computes: self.adds.clone(),
            ..PutOptions::default()
        };
        (options != PutOptions::default()).then(|| Box::new(options))
    }

    /// Whether it is a delete.
    pub fn is_delete(&self) -> bool {
        self.value.is_none() && self.retimes.is_none() && self.adds.is_none()
    }

    /// Whether its outcome tells the client of the version before it. The answer to a delete tells whether there was a value, a value that keeps an expiry
    /// tells when the one before it would have expired, a change of an expiry tells both, and a sum tells the number before it.
    pub fn reads(&self) -> bool {
        self.value.is_none() || self.expiry == Some(Expiry::Kept)
    }

    /// Whether the write depends on the version before it: its outcome tells the client of that version, as if the client had read it ([`Change::reads`]). At
    /// level `eventual` only a change of an expiry and an addition do. They contain the value of the version before them, or what this replica had added before, and must not be shown without what that depends on.
    pub fn depends_on_before(&self, eventual: bool) -> bool {
        self.retimes.is_some() || self.adds.is_some() || self.reads() && !eventual
    }

    /// What is to be written by a replica at time `now`, where `before` is what is shown of the key.
    ///
    /// # Errors
    /// If nothing is to be written, because a delete or a change of an expiry finds no value: the answer.
    pub fn of<M: Meta>(&self, before: &Shown<'_, M>, now: Hlc) -> Result<NewContent, Changed> {
        let existed = before.has_value(now);
        if self.value.is_none() && self.adds.is_none() && !existed {
            return Err(match self.retimes {
                None => Changed::Made { existed: false },
                Some(_) => Changed::Unmet(Box::new(Unmet {
                    has_value: false,
                    value: None,
                })),
            });
        }
        let register = before.register();
        let base = register.map(|register| register.rank().base);
        let kept = || register.and_then(|register| register.content.at(now).cloned());
        Ok(NewContent {
            value: match self.retimes {
                Some(_) => kept(),
                None => self.value.clone(),
            },
            expiry: self.expiry,
            existed,
            previous: before.until(now),
            retimes: self.retimes.map(|retimes| (retimes, base)),
            returned: (self.retimes.is_some() && self.returns_value)
                .then(|| before.value(now))
                .flatten(),
            tally: match self.adds {
                Some(_) => Some(Box::new(before.to_tally())),
                None => before.tally(),
            },
            adds: self.adds.clone(),
        })
    }
}

impl NewContent {
    /// The new version must be stamped above this. A hybrid clock always is, a raw one only if it was not set back: a replica's newest count is the one that counts.
    pub fn above(&self, replica: ReplicaId) -> Hlc {
        let tally = self.tally.as_ref().filter(|_| self.adds.is_some());
        tally.map_or(Hlc::ZERO, |tally| tally.counted_at(replica))
    }

    /// The content of the version of this name, and the answer. A span is counted from the stamp and not from the wall clock: a hybrid clock that is ahead
    /// of its wall clock would see the value expire too early.
    ///
    /// # Errors
    /// If nothing is written, because the value whose expiry was to be changed has expired at this stamp, or the change is none of those that were asked for, or the
    /// value is no number: the answer.
    pub fn stamped(self, id: VersionId) -> Result<(Content, Changed), Changed> {
        if let Some(adds) = &self.adds {
            return self.added(adds, id).map_err(Changed::NotComputed);
        }
        let (at, existed) = (id.at, self.existed);
        let deadline = |expiry: Expiry| expiry.deadline(at.wall(), self.previous);
        let until = self
            .expiry
            .and_then(deadline)
            .map(|until| until.min(Content::LATEST));
        let Some((retimes, base)) = self.retimes else {
            let resets = self.tally.map_or_else(Vec::new, |tally| tally.resets_all());
            let content = Content::register(self.value, until, None, resets);
            return Ok((content, Changed::Made { existed }));
        };
        let has_expired = self
            .previous
            .is_some_and(|previous| Hlc::from_wall(previous) <= at);
        let (has_value, returned) = match &self.tally {
            Some(tally) if has_expired => (tally.value(at).is_some(), tally.value(at)),
            _ => (!has_expired, self.returned),
        };
        // Only a raw clock that was set back stamps below what is there.
        let is_above = base.is_none_or(|base| at > base.at);
        let returned = returned.filter(|_| has_value);
        match has_value && is_above && retimes.holds(self.previous.filter(|_| !has_expired), until) {
            true => {
                let value = self.value.filter(|_| !has_expired);
                // An expiry of counts alone is a write of its own: the version before it may be forgotten elsewhere.
                let base = base.filter(|_| value.is_some());
                let resets = self.tally.map_or_else(Vec::new, |tally| tally.resets_at_expiry(until, at));
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

    /// The next count of the replica.
    fn added(&self, adds: &Compute, id: VersionId) -> Result<(Content, Changed), NotComputed> {
        // A gateway asks for nothing else. A peer could.
        let (Some(tally), Some(more)) = (&self.tally, adds.added()) else {
            return Err(NotComputed::NotANumber);
        };
        let computed = Sum::with(tally.sum(id.at), adds)?;
        let count = tally.counted(id, more).ok_or(NotComputed::TooManyDigits)?;
        Ok((Content::counting(count), Changed::Computed(computed)))
    }
}

impl From<Changed> for Answer {
    fn from(changed: Changed) -> Answer {
        match changed {
            Changed::Made { existed } => Answer::Written { existed },
            Changed::Retimed(value) => Answer::Replaced(Some(value)),
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
        Change {
            expiry,
            retimes: Some(retimes),
            ..Change::default()
        }
    }

    /// What a change writes at [`STAMP`], over a value that expires at this time.
    fn written(change: &Change, until: Option<u64>) -> Option<Content> {
        let before = Chain::new(version(until));
        let new = change
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
}
