//! What was refused because of the client's user: wrong passwords, and commands that a user may not run. All of it is counted. The log has at most
//! [`LINES_PER_SECOND`] lines a second for each reason, with the number of those that were left out, so that a client cannot fill the log.
//!
//! Names and keys come from clients. They are escaped, and cut to [`MAX_SHOWN_BYTES`].
use crate::seldom::Seldom;
use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use turnbuckle_core::Micros;
use turnbuckle_resp::{Refused, RefusedFor};

const LINES_PER_SECOND: u32 = 4;

/// How much of a name or a key is logged, in bytes of the client.
const MAX_SHOWN_BYTES: usize = 64;

/// The refusals of a node.
pub(crate) struct Audit {
    node: String,
    /// By the place of the reason.
    reasons: Vec<Reason>,
    /// How often the file of the users was read again and had a mistake.
    bad_files: AtomicU64,
}

struct Reason {
    count: AtomicU64,
    lines: Mutex<Seldom>,
}

impl Audit {
    pub fn new(node: &str) -> Audit {
        let reason = |_| Reason {
            count: AtomicU64::new(0),
            lines: Mutex::new(Seldom::new(Duration::from_secs(1) / LINES_PER_SECOND)),
        };
        Audit {
            node: node.into(),
            reasons: RefusedFor::ALL.iter().map(reason).collect(),
            bad_files: AtomicU64::new(0),
        }
    }

    /// Counts a refusal, and logs it if a line may be logged now, on a clock that is never set back.
    pub fn note(&self, refused: &Refused<'_>, now: Micros) {
        let reason = &self.reasons[refused.why as usize];
        reason.count.fetch_add(1, Ordering::Relaxed);
        let Some(left_out) = lock(&reason.lines).may_say(now) else {
            return;
        };
        tracing::warn!(
            target: "audit",
            node = self.node,
            reason = refused.why.label(),
            client = refused.client,
            user = shown(refused.user),
            command = refused.command,
            keyspace = refused.keyspace,
            key = shown(refused.key.unwrap_or_default()),
            "refused{left_out}"
        );
    }

    /// Logs how many lines were left out at the end of a flood. Called from time to time.
    pub fn sum_up(&self, now: Micros) {
        for (why, reason) in RefusedFor::ALL.iter().zip(&self.reasons) {
            if let Some(more) = lock(&reason.lines).sum_up(now) {
                tracing::warn!(target: "audit", node = self.node, reason = why.label(), "refused {more} more times");
            }
        }
    }

    /// The file of the users was read again, and had a mistake.
    pub fn note_bad_file(&self) {
        self.bad_files.fetch_add(1, Ordering::Relaxed);
    }

    pub fn bad_files(&self) -> u64 {
        self.bad_files.load(Ordering::Relaxed)
    }

    /// How often something was refused, by the word of the reason.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let counts = RefusedFor::ALL.iter().zip(&self.reasons);
        counts
            .map(|(why, reason)| (why.label().to_owned(), reason.count.load(Ordering::Relaxed)))
            .collect()
    }
}

/// Bytes of a client as text of one line.
fn shown(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(MAX_SHOWN_BYTES)];
    let more = if cut.len() < bytes.len() { ".." } else { "" };
    format!("{}{more}", cut.escape_ascii())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_bytes_of_clients_stay_in_their_line() {
        let audit = Audit::new("a1");
        for (place, why) in RefusedFor::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, place);
            for at in 0..1_000 {
                let refused = Refused {
                    why,
                    client: "10.0.0.9:5000",
                    user: b"ann",
                    command: "get",
                    keyspace: "carts",
                    key: None,
                };
                audit.note(&refused, Micros(at));
            }
        }
        assert!(
            audit.counts().len() == RefusedFor::ALL.len()
                && audit.counts().values().all(|&count| count == 1_000)
        );
        assert_eq!(
            lock(&audit.reasons[0].lines).sum_up(Micros::from_millis(250)),
            Some(999)
        );
        assert_eq!(shown(b"a\r\n\x1b[1m\xff"), "a\\r\\n\\x1b[1m\\xff");
        assert_eq!(shown(&[b'x'; 65]), format!("{}..", "x".repeat(64)));
    }
}
