//! One budget for what clients make a node hold: commands that have not all arrived, that wait or are under way, and replies that were not
//! read yet, of all connections on all event loops. What is stored has a limit of its own.
//!
//! **Fair.** A connection may grow only while it would then hold no more than what is left for all others. So nobody gets more than half, many
//! who want much get equal shares, and there is always room left for who holds little. What a connection holds for itself without asking
//! ([`FREE_BYTES`], once for commands and once for replies) is not counted here.
//!
//! **Who does not get room waits**: it is not read from. Where that lasts for [`PATIENCE`], those who hold the most are disconnected, the
//! largest first, until half of the budget is free again: at first only those that make no progress, that is, whose socket neither gave
//! nor took a byte for as long and to whom the node does not owe an answer, and that hold at least half of what a client holds on
//! average; if somebody still waits after [`LONG_PATIENCE`], whoever holds the most.
//!
//! **A node that stands still is no client's fault.** While a machine does not run the node, or the node does something else, nobody's
//! socket gives or takes a byte. So time is counted here in looks, each of at most [`MOST_BETWEEN_LOOKS`]: between two looks every socket
//! has had its turn.
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use turnbuckle_core::Micros;
use turnbuckle_resp::Connection;

/// What a connection may hold of commands, and of replies, before it counts.
pub(super) const FREE_BYTES: usize = Connection::FREE_BYTES;

/// How long somebody waits for room before others are disconnected for it.
const PATIENCE: Micros = Micros::from_millis(1_000);

/// How long somebody waits for room before even those are who make progress.
const LONG_PATIENCE: Micros = Micros::from_millis(10_000);

/// What counts of the time between two looks: two of the usual intervals.
const MOST_BETWEEN_LOOKS: Micros = Micros::from_millis(200);

/// The memory of all clients of a node.
pub(crate) struct ClientMemory {
    limit: u64,
    used: AtomicU64,
    /// Somebody was refused room since the last look.
    wanted: AtomicBool,
    refused: AtomicU64,
    shed: AtomicU64,
    accounts: Mutex<BTreeMap<u64, Arc<Account>>>,
    /// How long the node has served its clients, in microseconds: all times here are points on this clock.
    served: AtomicU64,
    looks: Mutex<Looks>,
}

#[derive(Default)]
struct Looks {
    /// When the last one was.
    last: Option<Micros>,
    /// Since when somebody waits for room, as time served.
    short_since: Option<Micros>,
}

/// What one connection holds of it.
#[derive(Default)]
pub(crate) struct Account {
    charged: AtomicU64,
    /// When its socket last gave or took a byte, as time served.
    moved_at: AtomicU64,
    /// It waits for the node, and not the node for it.
    is_owed: AtomicBool,
    /// It is to be disconnected.
    condemned: AtomicBool,
}

/// A connection's way to its account, which ends with it.
pub(super) struct Charge {
    memory: Arc<ClientMemory>,
    account: Arc<Account>,
    id: u64,
}

impl ClientMemory {
    pub fn new(limit: u64) -> Arc<ClientMemory> {
        Arc::new(ClientMemory {
            limit,
            used: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            accounts: Mutex::default(),
            served: AtomicU64::new(0),
            looks: Mutex::default(),
        })
    }

    /// How much is held.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How much may be.
    pub fn limit_bytes(&self) -> u64 {
        self.limit
    }

    /// How often somebody asked for room and there was none.
    pub fn refusals(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many connections were ended so that others have room.
    pub fn shed(&self) -> u64 {
        self.shed.load(Ordering::Relaxed)
    }

    /// An account for the connection with this number.
    pub(super) fn open(self: &Arc<ClientMemory>, id: u64) -> Charge {
        let account = Arc::new(Account::default());
        account.moved_at.store(self.served().0, Ordering::Relaxed);
        self.lock().insert(id, Arc::clone(&account));
        Charge {
            memory: Arc::clone(self),
            account,
            id,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Account>>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn served(&self) -> Micros {
        Micros(self.served.load(Ordering::Relaxed))
    }

    /// Looks whether somebody waits for room for too long, and if so condemns others. Call it now and then, from one thread.
    pub fn look(&self, now: Micros) {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.since(looks.last.replace(now).unwrap_or(now));
        let served = self.served() + passed.min(MOST_BETWEEN_LOOKS);
        self.served.store(served.0, Ordering::Relaxed);
        if !self.wanted.swap(false, Ordering::AcqRel) {
            looks.short_since = None;
            return;
        }
        let since = *looks.short_since.get_or_insert(served);
        if served.since(since) < PATIENCE {
            return;
        }
        let mut holders = self.holders(|account| account.is_stalled(served));
        if holders.is_empty() && served.since(since) >= LONG_PATIENCE {
            holders = self.holders(|_| true);
            holders.truncate(1);
        }
        let fair = self.used_bytes() / self.holders(|_| true).len().max(1) as u64;
        let mut used = self.used_bytes();
        for (charged, account) in holders {
            // Who holds less than most is not what keeps others waiting.
            if used <= self.limit / 2 || charged < fair / 2 {
                break;
            }
            used -= charged.min(used);
            account.condemned.store(true, Ordering::Release);
            self.shed.fetch_add(1, Ordering::Relaxed);
            // Who still waits has been helped, and waits anew.
            looks.short_since = Some(served);
        }
    }

    /// Those who hold something, the largest first.
    fn holders(&self, wanted: impl Fn(&Account) -> bool) -> Vec<(u64, Arc<Account>)> {
        let accounts = self.lock();
        let holders = accounts.values().filter_map(|account| {
            let charged = account.charged.load(Ordering::Relaxed);
            let is_new = !account.condemned.load(Ordering::Relaxed);
            (charged > 0 && is_new && wanted(account)).then(|| (charged, Arc::clone(account)))
        });
        let mut holders: Vec<_> = holders.collect();
        holders.sort_by_key(|&(charged, _)| std::cmp::Reverse(charged));
        holders
    }

    /// Takes so much more, if it is no more than would then be left.
    fn take(&self, charged: u64, bytes: u64) -> bool {
        let more = bytes - charged;
        let taken = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                let used = used + more;
                let left = self.limit.checked_sub(used)?;
                (bytes <= left).then_some(used)
            });
        taken.is_ok()
    }
}

impl Account {
    fn is_stalled(&self, served: Micros) -> bool {
        let moved_at = Micros(self.moved_at.load(Ordering::Relaxed));
        served.since(moved_at) >= PATIENCE && !self.is_owed.load(Ordering::Relaxed)
    }
}

impl Charge {
    /// The connection is about to hold so many bytes. False if there is no room.
    pub fn grow_to(&self, bytes: usize) -> bool {
        let (bytes, charged) = (bytes as u64, self.account.charged.load(Ordering::Relaxed));
        if bytes <= charged {
            return true;
        }
        if self.memory.take(charged, bytes) {
            self.account.charged.store(bytes, Ordering::Relaxed);
            return true;
        }
        self.memory.wanted.store(true, Ordering::Release);
        self.memory.refused.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// The connection holds so many bytes.
    pub fn set(&self, bytes: usize) {
        let bytes = bytes as u64;
        let charged = self.account.charged.load(Ordering::Relaxed);
        if bytes == charged {
            return;
        }
        self.account.charged.store(bytes, Ordering::Relaxed);
        let used = &self.memory.used;
        if bytes > charged {
            used.fetch_add(bytes - charged, Ordering::AcqRel);
        } else {
            used.fetch_sub(charged - bytes, Ordering::AcqRel);
        }
    }

    /// The connection's socket gave or took something.
    pub fn moved(&self) {
        let served = self.memory.served();
        self.account.moved_at.store(served.0, Ordering::Relaxed);
    }

    /// Whether the connection waits for the node, and not the node for it.
    pub fn set_owed(&self, is_owed: bool) {
        self.account.is_owed.store(is_owed, Ordering::Relaxed);
    }

    /// Whether the connection is to be disconnected.
    pub fn is_condemned(&self) -> bool {
        self.account.condemned.load(Ordering::Acquire)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
        self.memory.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    fn ms(ms: u64) -> Micros {
        Micros::from_millis(ms)
    }

    fn memory() -> Arc<ClientMemory> {
        ClientMemory::new(1_000 * KIB as u64)
    }

    /// Grows until it is refused. How far that is.
    fn grow(charge: &Charge, most: usize) -> usize {
        (1..=most)
            .take_while(|&kib| charge.grow_to(kib * KIB))
            .last()
            .unwrap_or(0)
    }

    #[test]
    fn nobody_gets_more_than_half_and_many_get_equal_shares() {
        let memory = memory();
        let one = memory.open(1);
        assert_eq!(grow(&one, 10_000), 500);
        assert_eq!(memory.used_bytes(), 500 * KIB as u64);
        drop(one);
        assert_eq!(memory.used_bytes(), 0);

        let many: Vec<Charge> = (0..60).map(|id| memory.open(id)).collect();
        let mut held = vec![0; many.len()];
        for kib in 1..1_000 {
            for (charge, held) in many.iter().zip(&mut held) {
                if charge.grow_to(kib * KIB) {
                    *held = kib;
                }
            }
        }
        assert!(held.iter().all(|&held| held >= 15), "{held:?}");
        let late = memory.open(99);
        assert!(grow(&late, 10_000) >= 5, "there is room for who holds little");
        assert!(memory.used_bytes() <= memory.limit_bytes());
    }

    #[test]
    fn the_largest_without_progress_go_first_once_somebody_has_waited() {
        let memory = memory();
        let [large, small, owed, wants] = [1, 2, 3, 4].map(|id| memory.open(id));
        owed.set_owed(true);
        assert!(large.grow_to(400 * KIB) && owed.grow_to(250 * KIB) && small.grow_to(60 * KIB));
        let condemned = || [&large, &small, &owed, &wants].map(|charge| charge.is_condemned());
        (0..=5_000).step_by(100).for_each(|at| memory.look(ms(at)));
        assert_eq!(condemned(), [false; 4], "nobody has waited");
        for at in (5_100..=6_100).step_by(100) {
            assert_eq!(condemned(), [false; 4], "not long enough, at {at} ms");
            assert!(!wants.grow_to(300 * KIB));
            memory.look(ms(at));
        }
        assert_eq!(condemned(), [true, false, false, false]);
        assert_eq!((memory.shed(), memory.refusals()), (1, 11));
        drop(large);
        assert!(wants.grow_to(300 * KIB));
    }

    #[test]
    fn who_holds_little_is_spared() {
        let memory = memory();
        let large: Vec<Charge> = (0..4).map(|id| memory.open(id)).collect();
        let [small, wants] = [8, 9].map(|id| memory.open(id));
        assert!(large.iter().all(|charge| charge.grow_to(180 * KIB)) && small.grow_to(20 * KIB));
        for at in (0..5_000).step_by(100) {
            // The large ones make progress, the small one has nothing to do.
            large.iter().for_each(|charge| charge.moved());
            assert!(!wants.grow_to(300 * KIB));
            memory.look(ms(at));
        }
        assert!(!small.is_condemned() && !large.iter().any(Charge::is_condemned));
    }

    #[test]
    fn who_makes_progress_is_spared_for_longer() {
        let memory = memory();
        let [slow, wants] = [1, 2].map(|id| memory.open(id));
        assert!(slow.grow_to(400 * KIB));
        slow.set(900 * KIB);
        let mut at = 0;
        while !slow.is_condemned() {
            at += 100;
            slow.moved();
            wants.moved();
            assert!(!wants.grow_to(300 * KIB));
            memory.look(ms(at));
            assert!(at < 20_000, "it holds what another has waited for");
        }
        assert!(at >= 10_000, "{at} ms");
        assert!(!wants.is_condemned());
    }

    #[test]
    fn a_node_that_stood_still_does_not_blame_its_clients() {
        let memory = memory();
        let [large, wants] = [1, 2].map(|id| memory.open(id));
        assert!(large.grow_to(400 * KIB) && wants.grow_to(100 * KIB));
        let mut at = 0;
        for stopped in [100, 100, 30_000, 100, 3_600_000] {
            at += stopped;
            assert!(!wants.grow_to(400 * KIB));
            memory.look(ms(at));
            assert!(
                !large.is_condemned() && !wants.is_condemned(),
                "after {stopped} ms"
            );
        }
    }

    #[test]
    fn who_makes_progress_is_not_sent_away_while_room_is_made_of_others() {
        let memory = memory();
        let [reads, wants] = [1, 2].map(|id| memory.open(id));
        reads.set(600 * KIB);
        for second in 0..40 {
            // Others come and hold, and are sent away: there is room again and again.
            let idle = memory.open(100 + second);
            idle.set(390 * KIB);
            for tenth in 0..20 {
                reads.moved();
                wants.moved();
                assert!(!wants.grow_to(300 * KIB));
                memory.look(ms(second * 2_000 + tenth * 100));
            }
            assert!(idle.is_condemned(), "second {second}");
        }
        assert!(!reads.is_condemned());
    }

    #[test]
    fn what_is_held_without_asking_counts_and_is_given_back() {
        let memory = memory();
        let (one, other) = (memory.open(1), memory.open(2));
        one.set(5_000 * KIB);
        assert!(!other.grow_to(1));
        one.set(10);
        assert!(other.grow_to(KIB));
        drop((one, other));
        assert_eq!(memory.used_bytes(), 0);
    }
}
