//! # When a key with shares may be forgotten
//!
//! A key with shares is *over* when nothing of it is shown any more: its last element was removed, it was deleted, or it has expired. It should leave nothing behind. But a write at a site that
//! has forgotten the key names none of the shares that it had. At a site that has not forgotten it yet, this write would not reset them, and they would come back:
//!
//! ```text
//!   site a                                     site b
//!   n: counts 3, expired @40                   n: counts 3, expired @40
//!   forgotten
//!   SET n 5 @90: names nothing  ~~~~~~~~~~~~~> n would be 5 + 3
//! ```
//!
//! # What is closed
//!
//! A time is *closed* at a site when it has itself heard from every site that everything stamped up to this time is shown there. Each such report comes behind everything that
//! its site had stamped before. So everything that is not here yet was stamped by a site that showed all of that.
//!
//! Suppose that a key is over at a site, and nothing of it is later than a closed time. Then every other version that it ever gets is stamped by a site that saw nothing of it. This is a fact, and not
//! the opinion of one site.
//!
//! # Floors
//!
//! If a version is put over such a key, the site adds this fact to it: the *floor*, behind the last moment of what is over. To a reader who sees the version, everything in shares that was stamped before the floor is over. Later
//! versions of the key inherit the floor, whoever has stamped them. It is written down and sent on with the version.
//!
//! ```text
//!   site b, where everything up to 60 is closed
//!   n: counts 3, expired @40
//!   SET n 5 @90 arrives: it becomes SET n 5 @90 with floor 41: n is 5
//! ```
//!
//! # Forgetting
//!
//! Each site reports up to which time everything is closed there. A site forgets a key with shares when nothing of it is later than what *every* site has reported. Until then it has received
//! whatever the other sites have stamped before their reports. What they stamp later is without the shares, or has a floor. And wherever it arrives, it gets one, or the shares are forgotten there, too.
//!
//! A full copy, and what a peer is sent back that it has lost, may come beneath a version that has no floor at the receiver. So what is over gets the floor itself there ([`Version::under_floor`]): it is then over
//! wherever it arrives.
//!
//! A checkpoint forgets a key in memory before the row is removed from the disk. What is written in between names nothing. If the process ends then, the row is there after the restart. So the log says of a version that it was the
//! first of its key, and a replay removes what the row still has.
//!
//! Keys without shares need none of this: their newest version hides all older ones, also those that another site has forgotten.
use crate::{Chain, Hlc, Meta, Shown, Version, VersionId};

/// By which version nothing of a key is shown, and from when on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone {
    /// The version that deletes the key or expires. If shares have removed everything, the newest one.
    pub by: VersionId,
    /// From then on no reader sees anything. It is no earlier than any stamp of what is shown.
    pub at: Hlc,
}

impl<M: Meta> Version<M> {
    /// Whether a floor says that it is over: it is a share that was stamped before, or a version of the register whose value was.
    pub fn is_under(&self, floor: Hlc) -> bool {
        let at = match self.content.share() {
            Some(_) => self.id.at,
            None => self.rank().base.at,
        };
        at < floor
    }

    /// The same with this floor, unless it has a later one. If it is itself under the floor, it says so of itself.
    #[must_use]
    pub fn under_floor(self, floor: Hlc) -> Version<M> {
        match floor > self.content.floor() {
            true => Version {
                content: self.content.with_floor(floor),
                ..self
            },
            false => self,
        }
    }

    /// The same with this floor, unless it has a later one. A floor above the version's own timestamp is none: it would say that the version itself is over.
    #[must_use]
    pub fn with_floor(self, floor: Hlc) -> Version<M> {
        match floor <= self.id.at {
            true => self.under_floor(floor),
            false => self,
        }
    }
}

impl<M: Meta> Chain<M> {
    /// Whether the key has shares here, or has had them at some site.
    pub fn concerns_shares(&self) -> bool {
        self.has_shares() || !self.newest().content.resets().is_empty()
    }

    /// By what nothing of the key is shown at some time, and from when on. `None`: something is shown, whatever the time.
    pub fn gone(&self) -> Option<Gone> {
        match self.concerns_shares() {
            false => self.newest().gone(),
            true => Shown::all(Some(self)).gone(),
        }
    }

    /// The floor of a version that is put now at a site where everything up to `closed` is closed. [`Hlc::ZERO`]: none.
    pub fn floor(&self, closed: Hlc) -> Hlc {
        if !self.concerns_shares() {
            return Hlc::ZERO;
        }
        let inherited = self.iter().map(|version| version.content.floor()).max();
        // Almost always something is later, and the rest need not be looked at.
        let over = match self.latest_stamp() <= closed {
            true => Some(Shown::all(Some(self))).filter(|shown| shown.latest() <= closed),
            false => None,
        };
        let over = over.and_then(|shown| shown.gone()).map(|gone| gone.at.next());
        inherited.max(over).unwrap_or(Hlc::ZERO)
    }

    /// When the newest share, or the newest version of the register, was stamped.
    fn latest_stamp(&self) -> Hlc {
        let shown = self.shares().chain(self.registers().next());
        shown.map(|version| version.id.at).max().unwrap_or(Hlc::ZERO)
    }
}
