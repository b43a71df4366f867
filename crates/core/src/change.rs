use crate::{
    Answer, Content, Expiry, Hlc, Meta, Micros, PlainResponse, PutOptions, Retimes, Unmet, Version, VersionId,
};
use bytes::Bytes;

/// What a put asks for, in protocols that take no conditions: a value, a delete, or a change of when the existing value expires.
///
/// ```text
///   Change --of(before, now)--> NewContent --stamped(at)--> Content        Changed -> the client
///     asked for      or nothing: there is no value to change      or nothing: it has expired by then
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// The new value. `None` to delete, or to keep the value and change its expiry.
    pub value: Option<Bytes>,
    /// When the value expires.
    pub expiry: Option<Expiry>,
    /// Whether only the expiry changes: see [`PutOptions::retimes`].
    pub retimes: Option<Retimes>,
    /// Whether a change of the expiry returns the value.
    pub returns_value: bool,
}

/// What is written, before it is stamped.
#[derive(Debug, Clone)]
pub struct NewContent {
    value: Option<Bytes>,
    expiry: Option<Expiry>,
    /// Whether the key has a value before, and when that expires.
    existed: bool,
    previous: Option<Micros>,
    /// If only the expiry changes: which changes are made, and the version that wrote the value.
    retimes: Option<(Retimes, VersionId)>,
    returns_value: bool,
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
        }
    }

    /// The options of a put that asks for it. `None`: it asks for its value alone.
    pub fn options(&self) -> Option<Box<PutOptions>> {
        let options = PutOptions {
            expiry: self.expiry,
            retimes: self.retimes,
            returns_previous: self.returns_value,
            ..PutOptions::default()
        };
        (options != PutOptions::default()).then(|| Box::new(options))
    }

    /// Whether it is a delete.
    pub fn is_delete(&self) -> bool {
        self.value.is_none() && self.retimes.is_none()
    }

    /// Whether its outcome tells the client of the version before it. The answer to a delete tells whether there was a value, a value that keeps an expiry
    /// tells when the one before it would have expired, and a change of an expiry tells both.
    pub fn reads(&self) -> bool {
        self.value.is_none() || self.expiry == Some(Expiry::Kept)
    }

    /// Whether the write depends on the version before it: its outcome tells the client of that version, as if the client had read it ([`Change::reads`]). At
    /// level `eventual` only a change of an expiry does. It has the value of the version before it, and must not be shown without what that depends on.
    pub fn depends_on_before(&self, eventual: bool) -> bool {
        self.retimes.is_some() || self.reads() && !eventual
    }

    /// What is to be written by a replica at time `now`, where `before` is the key's newest version that is shown.
    ///
    /// # Errors
    /// If nothing is to be written, because a delete or a change of an expiry finds no value: the answer.
    pub fn of<M: Meta>(&self, before: Option<&Version<M>>, now: Hlc) -> Result<NewContent, Changed> {
        let existing = before.and_then(|before| Some((before, before.content.at(now)?)));
        if self.value.is_none() && existing.is_none() {
            return Err(match self.retimes {
                None => Changed::Made { existed: false },
                Some(_) => Changed::Unmet(Box::new(Unmet {
                    has_value: false,
                    value: None,
                })),
            });
        }
        let retimes = self.retimes.zip(existing);
        Ok(NewContent {
            value: match &retimes {
                Some((_, (_, value))) => Some((*value).clone()),
                None => self.value.clone(),
            },
            expiry: self.expiry,
            existed: existing.is_some(),
            previous: existing.and_then(|(before, _)| before.content.until()),
            retimes: retimes.map(|(retimes, (before, _))| (retimes, before.rank().base)),
            returns_value: self.returns_value,
        })
    }
}

impl NewContent {
    /// The content of the version with this stamp, and the answer. A span is counted from the stamp and not from the wall clock: a hybrid clock that is ahead
    /// of its wall clock would see the value expire too early.
    ///
    /// # Errors
    /// If nothing is written, because the value whose expiry was to be changed has expired at this stamp, or the change is none of those that were asked for:
    /// the answer.
    pub fn stamped(self, at: Hlc) -> Result<(Content, Changed), Changed> {
        let existed = self.existed;
        let Some(value) = self.value else {
            return Ok((Content::DELETE, Changed::Made { existed }));
        };
        let deadline = |expiry: Expiry| expiry.deadline(at.wall(), self.previous);
        let until = self
            .expiry
            .and_then(deadline)
            .map(|until| until.min(Content::LATEST));
        let Some((retimes, base)) = self.retimes else {
            return Ok((Content::new(value, until), Changed::Made { existed }));
        };
        let has_value = self.previous.is_none_or(|previous| Hlc::from_wall(previous) > at);
        // Only a raw clock that was set back stamps below what is there.
        let is_above = at > base.at;
        let returned = Some(value.clone()).filter(|_| has_value && self.returns_value);
        match has_value && is_above && retimes.holds(self.previous, until) {
            true => Ok((
                Content::with_base(value, until, Some(base)),
                returned.map_or(Changed::Made { existed }, Changed::Retimed),
            )),
            false => Err(Changed::Unmet(Box::new(Unmet {
                has_value,
                value: returned,
            }))),
        }
    }
}

impl From<Changed> for Answer {
    fn from(changed: Changed) -> Answer {
        match changed {
            Changed::Made { existed } => Answer::Written { existed },
            Changed::Retimed(value) => Answer::Replaced(Some(value)),
            Changed::Unmet(unmet) => Answer::Unmet(unmet),
        }
    }
}

impl From<Changed> for PlainResponse {
    fn from(changed: Changed) -> PlainResponse {
        match changed {
            Changed::Made { existed } => PlainResponse::Written { existed },
            Changed::Retimed(value) => PlainResponse::Replaced(Some(value)),
            Changed::Unmet(unmet) => PlainResponse::Unmet(unmet),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rank, ReplicaId};

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
        let before = version(until);
        let new = change.of(Some(&before), Hlc::from_wall(Micros(900))).ok()?;
        new.stamped(STAMP).ok().map(|(content, _)| content)
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
        let again = retime(Retimes::Any, None)
            .of(Some(&first), STAMP)
            .expect("it has a value");
        let (second, _) = again.stamped(Hlc::from_wall(Micros(1_001))).expect("it expires");
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
            change.of::<()>(None, STAMP).err(),
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
