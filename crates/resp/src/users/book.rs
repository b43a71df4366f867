//! The users of a node now, and what they use of it: shared by all of its connections.
use super::Users;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use turnbuckle_core::Micros;

/// The users of a node. They can be replaced while it runs.
#[derive(Debug)]
pub struct UserBook {
    users: Mutex<Arc<Users>>,
    /// How often the users were replaced, from 1.
    generation: AtomicU64,
    /// What each user uses, by name. It stays when users are replaced.
    usages: Mutex<BTreeMap<String, Arc<Usage>>>,
}

impl UserBook {
    /// A book with these users.
    pub fn new(users: Users) -> Arc<UserBook> {
        Arc::new(UserBook {
            users: Mutex::new(Arc::new(users)),
            generation: AtomicU64::new(1),
            usages: Mutex::default(),
        })
    }

    /// Replaces the users. Each connection notices at its next command, or at the next message that it hears.
    pub fn replace(&self, users: Users) {
        *lock(&self.users) = Arc::new(users);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The users of now.
    pub(crate) fn users(&self) -> Arc<Users> {
        Arc::clone(&lock(&self.users))
    }

    /// A number that grows when the users are replaced. If it is read before the users, they are at least as new.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// One more connection of a user, if it has fewer than `most`.
    pub(crate) fn sit(&self, user: &str, most: Option<u64>) -> Option<Seat> {
        let usage = Arc::clone(lock(&self.usages).entry(user.to_owned()).or_default());
        let most = most.unwrap_or(u64::MAX);
        let more = |now| (now < most).then_some(now + 1);
        let taken = usage
            .connections
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| Seat(usage))
    }
}

/// What a user uses of a node.
#[derive(Debug, Default)]
struct Usage {
    connections: AtomicU64,
    bucket: Mutex<Bucket>,
}

/// A connection of a user. The user has one connection less when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Usage>);

impl Seat {
    /// Whether the user may begin this many operations now, if it may begin `most` in a second. If so, they are counted.
    pub(crate) fn may_begin(&self, operations: u64, most: u64, now: Micros) -> bool {
        lock(&self.0.bucket).take(operations, most, now)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Operations that may begin: those of one second at most. A command that is more operations than are left may still begin, and those after it wait until
/// its operations are made up for.
#[derive(Debug, Default)]
struct Bucket {
    /// In millionths of an operation. Negative after a command of many operations.
    left: i128,
    /// When `left` was computed. `None` before the first operation.
    at: Option<Micros>,
}

impl Bucket {
    fn take(&mut self, operations: u64, most: u64, now: Micros) -> bool {
        const ONE: i128 = 1_000_000;
        let full = i128::from(most) * ONE;
        let gained = match self.at {
            Some(at) => i128::from(now.since(at).0) * i128::from(most),
            None => full,
        };
        self.left = (self.left + gained).min(full);
        self.at = Some(self.at.map_or(now, |at| at.max(now)));
        if self.left < ONE {
            return false;
        }
        self.left -= i128::from(operations) * ONE;
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_what_a_second_allows_and_makes_up_for_large_commands() {
        let mut bucket = Bucket::default();
        let at = |ms: u64| Micros::from_millis(1_000_000 + ms);
        let taken = (0..30).filter(|_| bucket.take(1, 10, at(0))).count();
        assert_eq!(taken, 10);
        assert!(!bucket.take(1, 10, at(99)) && bucket.take(1, 10, at(100)) && !bucket.take(1, 10, at(100)));
        // 25 operations at once: 10 are there after a second, so 15 are owed.
        assert!(bucket.take(25, 10, at(1_100)));
        assert!(!bucket.take(1, 10, at(2_600)) && bucket.take(1, 10, at(2_700)));
        // However long nothing was asked for, no more than a second's operations are there.
        let taken = (0..30).filter(|_| bucket.take(1, 10, at(9_000_000))).count();
        assert_eq!(taken, 10);
        // A clock that stands still gives nothing.
        assert!(!bucket.take(1, 10, at(0)));
    }

    #[test]
    fn connections_of_a_user_are_counted_until_they_end() {
        let book = UserBook::new(Users::default());
        let seats = [book.sit("ann", Some(2)), book.sit("ann", Some(2))];
        assert!(seats.iter().all(Option::is_some) && book.sit("ann", Some(2)).is_none());
        assert!(book.sit("bob", Some(2)).is_some() && book.sit("ann", None).is_some());
        drop(seats);
        assert!(book.sit("ann", Some(1)).is_some());
    }
}
