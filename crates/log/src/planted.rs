//! Bugs that tests plant, to see that they are found. Only in test builds, and only on the thread that plants one.
use std::cell::Cell;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    ChecksumIsNotLookedAt,
    DamageIsCutOffLikeATornEnd,
    FailedWriteIsForgotten,
    DirectoryIsNotSynced,
    RoomBeyondTheSegment,
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Whether this bug is planted.
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Runs something with a bug planted.
pub(crate) fn with<R>(bug: Bug, work: impl FnOnce() -> R) -> R {
    struct Uproot;
    impl Drop for Uproot {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }
    let _uproot = Uproot;
    PLANTED.set(Some(bug));
    work()
}
