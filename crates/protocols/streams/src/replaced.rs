//! What was lost, and cannot be sent back because something newer has replaced it.
use bytes::{Buf, Bytes};
use turnbuckle_core::{Context, Hlc, Protocol, Recovered};

/// How far a replica must have heard its peers again before their marks prove its freshness.
///
/// A mark says that everything which its sender had acknowledged by some time has arrived. There is one exception. The sender may have lost a version with its
/// directory, or in a power loss. Of its peers one may have had the version, and have replaced it by a newer one. Then nobody can send the version back, and a
/// third site that never had it gets the newer one instead, from the site that stamped that.
///
/// ```text
///   site a                         site b                          site c
///      | x=1                          | x=1                           | x=1
///      |                              | <~~~~~~~~~~~~~~~~ x=2 @17 ~~~ | acknowledged
///      | <~~ mark: up to 19 ~~~~~~~~~ |                               |
///      |     (slow) <~~~ x=3 @20 ~~~~ | x=3 replaces x=2              x  directory lost
///      |                              | ~~ returned: clock 21 ~~~~~~> | (x=2 is not among it)
///      | <~~~~~~~~~~~~ mark: up to 30, replaced 21 ~~~~~~~~~~~~~~~~~~ |
///      | still x=1: this answer does not reflect x=2, which was acknowledged at 17
/// ```
///
/// So each mark tells up to which time versions were stamped that have replaced what the sender has lost. Until a replica has everything that any peer
/// stamped up to then, no mark proves more of its freshness.
///
/// A replica that decides alone ([`turnbuckle_core::Change::decides`]) must not decide as if it had never acknowledged what it has lost. So it decides no condition
/// before it has what has replaced that.
pub struct Replaced {
    /// What has replaced versions that were lost here was stamped up to this time.
    own: Hlc,
    /// The same, of this replica and of all that it has heard of.
    anywhere: Hlc,
}

/// The name under which [`Replaced::own`] is written down.
const NAME: &str = "replaced";

impl Replaced {
    /// Why a request is refused that would be decided before that.
    pub const MISSING: &str = "this node has lost writes, and does not have yet what other sites have replaced them by: until it does, it decides no condition";

    /// The state as it was left before a restart.
    pub fn open(recovered: &Recovered) -> Replaced {
        // This code wrote it. It is true also if rows are missing.
        let own = recovered.named.get(NAME).cloned();
        let own = own.and_then(|mut bytes| bytes.try_get_u64().ok());
        let own = Hlc(own.unwrap_or_default());
        Replaced { own, anywhere: own }
    }

    /// What the next mark says.
    pub fn said(&self) -> Hlc {
        self.own
    }

    /// A peer's mark says this.
    pub fn heard(&mut self, said: Hlc) {
        self.anywhere = self.anywhere.max(said);
    }

    /// A peer has sent back what this replica lost, but nothing that others had replaced there: see [`Protocol::on_returned`]. That is written down in the
    /// same record as what came back.
    pub fn returned<P: Protocol>(&mut self, cx: &mut Context<'_, P>, returned: &Recovered) {
        // The next promises here, and then those of the peers, are above it.
        cx.observe(returned.replaced);
        if returned.replaced > self.own {
            self.own = returned.replaced;
            self.heard(returned.replaced);
            cx.put_named(NAME, Bytes::copy_from_slice(&self.own.0.to_be_bytes()));
        }
    }

    /// Whether marks prove something here. `theirs` is, of each other replica, the time up to which everything that it stamped is here.
    pub fn lets_prove<P: Protocol>(
        &self,
        cx: &Context<'_, P>,
        mut theirs: impl Iterator<Item = Hlc>,
    ) -> bool {
        // While peers may still send something back, it is not known yet what has replaced the rest.
        cx.proves() && theirs.all(|until| until >= self.anywhere)
    }

    /// Whether this replica may decide by what it has: everything that has replaced what it lost is here. `theirs` is the same as in [`Replaced::lets_prove`].
    pub fn lets_decide(&self, mut theirs: impl Iterator<Item = Hlc>) -> bool {
        theirs.all(|until| until >= self.own)
    }
}
