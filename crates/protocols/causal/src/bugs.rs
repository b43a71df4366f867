//! Bugs that can be planted into these protocols. Each leaves out one rule. Tests switch them on, one at a time, and must find each.

use turnbuckle_core::{
    Bug, Change, Changed, Computed, Content, Meta, NewContent, Shown, Topology, VersionId,
};
use turnbuckle_streams::Planted;

pub(crate) const FORGETS_DELETES_EARLY: Bug = Bug::new(
    "forgets_deletes_early",
    "a delete is forgotten before every site shows it: a session that depends on the delete reads the deleted value, or the value comes \
     back from that site",
);
pub(crate) const SERVES_AN_OLD_DIRECTORY: Bug = Bug::new(
    "serves_an_old_directory",
    "an old copy of a data directory is served, with values whose deletes other sites have forgotten since",
);
pub(crate) const ANSWERS_ABOVE_WHAT_IT_HAS: Bug = Bug::new(
    "answers_above_what_it_has",
    "a partition that has lost versions answers for times up to which it does not have every version",
);
pub(crate) const DELETES_TELL_NOTHING_STABLE: Bug = Bug::new(
    "deletes_tell_nothing_stable",
    "the answer to a delete does not say what was stable: the session then misses a version on which it depends",
);
pub(crate) const PROVES_BY_THE_LEAST_CLOCK: Bug = Bug::new(
    "proves_by_the_least_clock",
    "a receipt proves freshness although a clock is known to be beyond its bound",
);

pub(crate) const WAITS_FOR_ONE_SITE: Bug = Bug::new(
    "waits_for_one_site",
    "a read at bounded(t) waits for news of one site, and misses a write of another one",
);

pub(crate) const EXPIRES_BY_ARRIVAL: Bug = Bug::new(
    "expires_by_arrival",
    "a value is shown for its span from when it arrives at a site, and so expires at a different time at each site",
);
pub(crate) const SHOWS_EXPIRED_VALUES: Bug =
    Bug::new("shows_expired_values", "a value is shown after it has expired");

pub(crate) const EXPIRY_REVIVES: Bug = Bug::new(
    "expiry_revives",
    "a change of an expiry counts as a new value, and wins over a value that it did not know",
);
pub(crate) const FORGETS_WHAT_EXPIRED: Bug = Bug::new(
    "forgets_what_expired",
    "a session forgets what it has seen expired: at another site, whose clock is behind, it sees the value again",
);
pub(crate) const SLICES_EXPIRE_BY_OWN_CLOCKS: Bug = Bug::new(
    "slices_expire_by_own_clocks",
    "each partition goes by its own clock to tell what has expired in a snapshot, so the snapshot shows no single moment",
);
pub(crate) const CONDITIONS_IGNORE_THE_NEWEST: Bug = Bug::new(
    "conditions_ignore_the_newest",
    "a condition is evaluated as if the key had no value, whatever the replica shows",
);

pub(crate) const COUNTS_AS_SUMS: Bug = Bug::new(
    "counts_as_sums",
    "an increment writes the sum as a value: of two that do not know of each other, one is lost",
);
pub(crate) const RESETS_NOTHING: Bug = Bug::new(
    "resets_nothing",
    "a value is written without the counts that its writer has seen: what was added before is added to the new value",
);

pub(crate) const REMOVES_UNSEEN: Bug = Bug::new(
    "removes_unseen",
    "a removal of an element removes all that any site has added up to its own time, also what its writer has not seen",
);

pub(crate) const ADDS_NO_FLOORS: Bug = Bug::new(
    "adds_no_floors",
    "a version that is put over a key which other sites may have forgotten gets no floor: what was in its shares comes back",
);

pub(crate) const SPLITS_TRANSACTIONS: Bug = Bug::new(
    "splits_transactions",
    "the keys of a transaction get two timestamps: a snapshot between them shows a part of the transaction",
);

/// The bugs that are planted. None outside tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bugs {
    /// A delete is forgotten once every site has stamped beyond it, whether it is shown there or not.
    pub forgets_deletes_early: bool,
    /// A delete is forgotten when another site reports that it may be, although changes of the expiry of what it deleted may be under way.
    pub forgets_by_hearsay: bool,
    /// A partition that has lost something answers for times of which it does not have everything.
    pub answers_above_what_it_has: bool,
    /// The answer to a delete does not carry what was stable where it was made.
    pub deletes_tell_nothing_stable: bool,
    /// GentleRain proves freshness by the lowest clock alone, however far ahead another one is.
    pub proves_by_the_least_clock: bool,
    /// An old copy of a data directory is served as if it were the latest.
    pub serves_an_old_directory: bool,
    /// A site that has lost versions does not tell third sites of those that newer ones had replaced elsewhere.
    pub tells_nothing_replaced: bool,
    /// In COPS, a partition that has just started answers when it has waited as long as for an unreachable site, even while a full copy is under way.
    pub answers_before_a_copy: bool,
    /// A site writes down what it shows while peers may still send back deletes that it lost.
    pub keeps_shown_while_taking_back: bool,
    /// A read at `bounded(t)` waits until one other site was heard, and not every one.
    pub waits_for_one_site: bool,
    /// A value that arrives from another site expires after its span from then on.
    pub expires_by_arrival: bool,
    /// Reads do not look at whether a value has expired.
    pub shows_expired_values: bool,
    /// A version that changes an expiry names no base.
    pub expiry_revives: bool,
    /// Servers go by their own clock alone, whatever the client has seen expired.
    pub forgets_what_expired: bool,
    /// What a write decides is decided on nothing.
    pub conditions_ignore_the_newest: bool,
    /// Each partition goes by its own clock when it reads its part of a snapshot.
    pub slices_expire_by_own_clocks: bool,
    /// An increment writes the sum that it returns.
    pub counts_as_sums: bool,
    /// A write names no counts that it has seen.
    pub resets_nothing: bool,
    /// A removal of an element removes what its writer has not seen.
    pub removes_unseen: bool,
    /// A version gets no floor over a key with shares that is over.
    pub adds_no_floors: bool,
    /// What a transaction writes to its first key has another timestamp than the rest.
    pub splits_transactions: bool,
}

impl Bugs {
    /// Those that concern streams.
    pub(crate) fn in_streams(self) -> Planted {
        Planted {
            forgets_deletes_early: self.forgets_deletes_early,
            forgets_by_hearsay: self.forgets_by_hearsay,
            serves_an_old_directory: self.serves_an_old_directory,
            keeps_shown_while_taking_back: self.keeps_shown_while_taking_back,
            waits_for_one_site: self.waits_for_one_site,
            adds_no_floors: self.adds_no_floors,
        }
    }

    /// The content that is written instead of this one, if this is what the client is told.
    pub(crate) fn content(self, content: Content, told: &Changed) -> Content {
        match told {
            _ if self.expiry_revives => content.without_base(),
            _ if self.resets_nothing => content.without_resets(),
            Changed::Computed(Computed::Number(sum)) if self.counts_as_sums => Content::from(sum.clone()),
            _ => content,
        }
    }

    /// What is written by a version of this name, and what the client is told.
    pub(crate) fn stamped(
        self,
        new: NewContent,
        id: VersionId,
        topology: &Topology,
    ) -> Result<(Content, Changed), Changed> {
        let planted = match self.removes_unseen {
            true => new.removing_unseen(id, topology.replicas().iter()),
            false => None,
        };
        let (content, told) = match (new.stamped(id), planted) {
            (Ok((_, told)) | Err(told), Some(content)) => (content, told),
            (stamped, None) => stamped?,
        };
        Ok((self.content(content, &told), told))
    }

    /// What a change is decided on, instead of this.
    pub(crate) fn decided_on<'a, M: Meta>(self, change: &Change, before: &Shown<'a, M>) -> Shown<'a, M> {
        match self.conditions_ignore_the_newest && change.decides() {
            true => Shown::one(None),
            false => before.clone(),
        }
    }

    /// The bug of this name, to be switched on. `None` if there is none.
    pub fn named(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "forgets_deletes_early" => &mut self.forgets_deletes_early,
            "forgets_by_hearsay" => &mut self.forgets_by_hearsay,
            "answers_above_what_it_has" => &mut self.answers_above_what_it_has,
            "deletes_tell_nothing_stable" => &mut self.deletes_tell_nothing_stable,
            "proves_by_the_least_clock" => &mut self.proves_by_the_least_clock,
            "serves_an_old_directory" => &mut self.serves_an_old_directory,
            "tells_nothing_replaced" => &mut self.tells_nothing_replaced,
            "answers_before_a_copy" => &mut self.answers_before_a_copy,
            "keeps_shown_while_taking_back" => &mut self.keeps_shown_while_taking_back,
            "waits_for_one_site" => &mut self.waits_for_one_site,
            "expires_by_arrival" => &mut self.expires_by_arrival,
            "shows_expired_values" => &mut self.shows_expired_values,
            "expiry_revives" => &mut self.expiry_revives,
            "forgets_what_expired" => &mut self.forgets_what_expired,
            "conditions_ignore_the_newest" => &mut self.conditions_ignore_the_newest,
            "slices_expire_by_own_clocks" => &mut self.slices_expire_by_own_clocks,
            "counts_as_sums" => &mut self.counts_as_sums,
            "resets_nothing" => &mut self.resets_nothing,
            "removes_unseen" => &mut self.removes_unseen,
            "adds_no_floors" => &mut self.adds_no_floors,
            "splits_transactions" => &mut self.splits_transactions,
            _ => return None,
        })
    }
}
