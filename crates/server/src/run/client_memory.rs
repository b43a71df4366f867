//! One budget for what clients make a node hold: commands that have not all arrived, that wait or are under way, and replies that were not
//! read yet, of all connections on all event loops. What is stored has a limit of its own.
//!
//! **Fair.** A connection may grow only while it would then hold no more than what is left for all others. So nobody gets more than half, many
//! who want much get equal shares, and there is always room left for who holds little. What a connection holds for itself without asking
//! ([`FREE_BYTES`], once for commands and once for replies) is not counted here.
//!
//! **Who does not get room waits**: it is not read from. Where that lasts for [`PATIENCE`], those who hold the most are disconnected, the
//! largest first, until half of what is shared out is free again, or more if who waits needs more: at first only those that make no progress, that is, whose socket neither gave
//! nor took a byte for as long and to whom the node does not owe an answer, and that hold at least half of what a client holds on
//! average; if there are none, and somebody has waited for [`LONG_PATIENCE`] and got nothing meanwhile, whoever holds the most.
//!
//! **Two thirds of the budget are shared out.** Memory that is freed is still the process's for some milliseconds, until the allocator has given
//! it back, and others take room meanwhile. Those who are disconnected free half of what is shared out: the last third is for that.
//!
//! **A loop that stands still is no client's fault.** While a machine does not run an event loop, none of its sockets gives or takes a byte. So each
//! loop has a clock of its own for its clients ([`ServedTime`]), which counts only the time in which sockets had their turn.
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

/// How long an event loop has served its clients.
///
/// It is told the time once in a while. At most [`ServedTime::MAX`] of the time between counts: between two such moments every
/// socket of the loop has had its turn, and in a longer one the loop was held up.
#[derive(Default)]
pub(super) struct ServedTime {
    served: AtomicU64,
    told: AtomicU64,
}

impl ServedTime {
    /// Two of the usual intervals.
    const MAX: Micros = Micros::from_millis(200);

    /// It is `now`, in monotonic time. Call it from one thread.
    pub fn pass(&self, now: Micros) {
        let told = self.told.swap(now.0, Ordering::Relaxed);
        let passed = now.since(Micros(told)).min(Self::MAX);
        self.served.fetch_add(passed.0, Ordering::Relaxed);
    }

    fn read(&self) -> Micros {
        Micros(self.served.load(Ordering::Relaxed))
    }
}

/// What clients are given of a budget of so many bytes.
pub(super) fn shared_of(limit: u64) -> u64 {
    limit / 3 * 2
}

/// The memory of all clients of a node.
pub(crate) struct ClientMemory {
    limit: u64,
    /// What of it clients can have.
    shared: u64,
    used: AtomicU64,
    refused: AtomicU64,
    /// What that was at the last look, and whether somebody waited then: where nobody asks for room a look is cheap.
    seen_refused: AtomicU64,
    somebody_waits: AtomicBool,
    shed: AtomicU64,
    accounts: Mutex<BTreeMap<u64, Arc<Account>>>,
}

/// What one connection holds of it.
#[derive(Default)]
pub(crate) struct Account {
    charged: AtomicU64,
    /// The clock of its loop. All times here are points on it.
    time: Arc<ServedTime>,
    /// When its socket last gave or took a byte.
    moved_at: AtomicU64,
    /// It was refused room since the last look.
    was_refused: AtomicBool,
    /// It was given room since the last look.
    was_given: AtomicBool,
    /// Since when it has waited for room and got none; [`NEVER`] if it does not wait.
    waits_since: AtomicU64,
    /// What all may hold at most for it to get what it was last refused.
    needs: AtomicU64,
    /// It waits for the node, and not the node for it.
    is_owed: AtomicBool,
    /// It is to be disconnected.
    condemned: AtomicBool,
}

/// No point in time: the client does not wait.
const NEVER: u64 = u64::MAX;

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
            shared: shared_of(limit),
            used: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            seen_refused: AtomicU64::new(0),
            somebody_waits: AtomicBool::new(false),
            shed: AtomicU64::new(0),
            accounts: Mutex::default(),
        })
    }

    /// How much is held.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How much the process may grow by for it. Clients are given less: [`shared_of`].
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

    /// An account for the connection with this number, on the loop with this clock.
    pub(super) fn open(self: &Arc<ClientMemory>, id: u64, time: &Arc<ServedTime>) -> Charge {
        let account = Arc::new(Account {
            moved_at: AtomicU64::new(time.read().0),
            time: Arc::clone(time),
            waits_since: AtomicU64::new(NEVER),
            ..Account::default()
        });
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

    /// Looks whether somebody waits for room for too long, and if so condemns others. Call it now and then, from one thread.
    pub fn look(&self) {
        let refused = self.refusals();
        let is_quiet = self.seen_refused.swap(refused, Ordering::Relaxed) == refused;
        if is_quiet && !self.somebody_waits.load(Ordering::Relaxed) {
            return;
        }
        let longest = self.longest_wait();
        self.somebody_waits.store(longest.is_some(), Ordering::Relaxed);
        let (waited, enough) = longest.unwrap_or_default();
        if waited < PATIENCE {
            return;
        }
        let stalled = self.holders(Account::is_stalled);
        let fair = self.used_bytes() / self.holders(|_| true).len().max(1) as u64;
        // Who holds less than most is not what keeps others waiting.
        let large = stalled
            .into_iter()
            .take_while(|&(charged, _)| charged >= fair / 2);
        if self.condemn(enough, large) == 0 && waited >= LONG_PATIENCE {
            self.condemn(enough, self.holders(|_| true).into_iter().take(1));
            // Everybody else tries again first.
            self.lock().values().for_each(|account| account.wait_anew());
        }
    }

    /// How long the one has waited who waits for longest, and what all may hold at most for it to get room; none if nobody waits.
    fn longest_wait(&self) -> Option<(Micros, u64)> {
        let accounts = self.lock();
        let waits = accounts.values().filter_map(|account| {
            let needs = account.needs.load(Ordering::Relaxed);
            account.look().map(|waited| (waited, needs))
        });
        waits.max_by_key(|&(waited, _)| waited)
    }

    /// Condemns the first of these, until no more than `enough` is held. How many that were.
    fn condemn(&self, enough: u64, holders: impl Iterator<Item = (u64, Arc<Account>)>) -> usize {
        let (mut used, mut condemned) = (self.used_bytes(), 0);
        for (charged, account) in holders {
            if used <= enough {
                break;
            }
            used -= charged.min(used);
            account.condemned.store(true, Ordering::Release);
            self.shed.fetch_add(1, Ordering::Relaxed);
            condemned += 1;
        }
        condemned
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

    /// What all may hold at most so that a connection that holds `charged` of it can grow to `bytes`; never more than half of what is shared out.
    fn enough_for(&self, charged: u64, bytes: u64) -> u64 {
        let half = self.shared / 2;
        match bytes {
            // It cannot have that, whoever goes.
            _ if bytes > half => half,
            _ => half.min(self.shared + charged - 2 * bytes),
        }
    }

    /// Takes room for a connection that grows to `bytes`, if that is no more than would then be left.
    fn take(&self, charged: u64, bytes: u64) -> bool {
        let more = bytes - charged;
        let taken = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                let used = used + more;
                let left = self.shared.checked_sub(used)?;
                (bytes <= left).then_some(used)
            });
        taken.is_ok()
    }
}

impl Account {
    fn is_stalled(&self) -> bool {
        let moved_at = Micros(self.moved_at.load(Ordering::Relaxed));
        self.time.read().since(moved_at) >= PATIENCE && !self.is_owed.load(Ordering::Relaxed)
    }

    /// How long it has waited, if it waits. What it was refused and given since the last look is taken into that.
    fn look(&self) -> Option<Micros> {
        let now = self.time.read();
        let (was_refused, was_given) = (
            self.was_refused.swap(false, Ordering::AcqRel),
            self.was_given.swap(false, Ordering::AcqRel),
        );
        let since = match self.waits_since.load(Ordering::Relaxed) {
            _ if !was_refused => NEVER,
            since if was_given || since == NEVER => now.0,
            since => since,
        };
        self.waits_since.store(since, Ordering::Relaxed);
        (since != NEVER).then(|| now.since(Micros(since)))
    }

    fn wait_anew(&self) {
        self.was_given.store(true, Ordering::Release);
    }
}

impl Charge {
    /// The connection is about to hold this many bytes. False if there is no room.
    pub fn grow_to(&self, bytes: usize) -> bool {
        let (bytes, charged) = (bytes as u64, self.account.charged.load(Ordering::Relaxed));
        if bytes <= charged {
            return true;
        }
        if self.memory.take(charged, bytes) {
            self.account.charged.store(bytes, Ordering::Relaxed);
            self.account.was_given.store(true, Ordering::Release);
            return true;
        }
        let needs = self.memory.enough_for(charged, bytes);
        self.account.needs.store(needs, Ordering::Relaxed);
        self.account.was_refused.store(true, Ordering::Release);
        self.memory.refused.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// The connection holds this many bytes.
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
        let now = self.account.time.read();
        self.account.moved_at.store(now.0, Ordering::Relaxed);
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

    /// Clients of one node, on loops.
    struct World {
        memory: Arc<ClientMemory>,
        loops: [Arc<ServedTime>; 2],
        at: Micros,
    }

    impl World {
        fn new() -> World {
            World {
                // A thousand KiB are shared out.
                memory: ClientMemory::new(1_500 * KIB as u64),
                loops: Default::default(),
                at: ms(0),
            }
        }

        fn open(&self, id: u64) -> Charge {
            self.memory.open(id, &self.loops[0])
        }

        /// Time passes, and both loops look.
        fn pass(&mut self, span: Micros) {
            self.at = self.at + span;
            self.loops.iter().for_each(|time| time.pass(self.at));
            self.memory.look();
        }

        /// The same, while the second loop stands still.
        fn pass_on_the_first(&mut self, span: Micros) {
            self.at = self.at + span;
            self.loops[0].pass(self.at);
            self.memory.look();
        }
    }

    /// Grows until it is refused. How far that is.
    fn grow(charge: &Charge, max: usize) -> usize {
        (1..=max)
            .take_while(|&kib| charge.grow_to(kib * KIB))
            .last()
            .unwrap_or(0)
    }

    #[test]
    fn nobody_gets_more_than_half_and_many_get_equal_shares() {
        let world = World::new();
        let one = world.open(1);
        assert_eq!(grow(&one, 10_000), 500);
        assert_eq!(world.memory.used_bytes(), 500 * KIB as u64);
        drop(one);
        assert_eq!(world.memory.used_bytes(), 0);

        let many: Vec<Charge> = (0..60).map(|id| world.open(id)).collect();
        let mut held = vec![0; many.len()];
        for kib in 1..1_000 {
            for (charge, held) in many.iter().zip(&mut held) {
                if charge.grow_to(kib * KIB) {
                    *held = kib;
                }
            }
        }
        assert!(held.iter().all(|&held| held >= 15), "{held:?}");
        let late = world.open(99);
        assert!(grow(&late, 10_000) >= 5, "there is room for who holds little");
        assert!(world.memory.used_bytes() <= world.memory.limit_bytes());
    }

    #[test]
    fn the_largest_without_progress_go_first_once_somebody_has_waited() {
        let mut world = World::new();
        let [large, small, owed, wants] = [1, 2, 3, 4].map(|id| world.open(id));
        owed.set_owed(true);
        assert!(large.grow_to(400 * KIB) && owed.grow_to(250 * KIB) && small.grow_to(60 * KIB));
        let condemned = || [&large, &small, &owed, &wants].map(|charge| charge.is_condemned());
        (0..50).for_each(|_| world.pass(ms(100)));
        assert_eq!(condemned(), [false; 4], "nobody has waited");
        for look in 0..=10 {
            assert_eq!(condemned(), [false; 4], "not long enough, at look {look}");
            assert!(!wants.grow_to(300 * KIB));
            world.pass(ms(100));
        }
        assert_eq!(condemned(), [true, false, false, false]);
        assert_eq!((world.memory.shed(), world.memory.refusals()), (1, 11));
        drop(large);
        assert!(wants.grow_to(300 * KIB));
    }

    #[test]
    fn who_holds_little_is_spared() {
        let mut world = World::new();
        let large: Vec<Charge> = (0..4).map(|id| world.open(id)).collect();
        let [small, wants] = [8, 9].map(|id| world.open(id));
        assert!(large.iter().all(|charge| charge.grow_to(180 * KIB)) && small.grow_to(20 * KIB));
        for _ in 0..50 {
            // The large ones make progress, the small one has nothing to do.
            large.iter().for_each(|charge| charge.moved());
            assert!(!wants.grow_to(300 * KIB));
            world.pass(ms(100));
        }
        assert!(!small.is_condemned() && !large.iter().any(Charge::is_condemned));
    }

    #[test]
    fn who_makes_progress_is_spared_for_longer() {
        let mut world = World::new();
        let [slow, wants] = [1, 2].map(|id| world.open(id));
        assert!(slow.grow_to(400 * KIB));
        slow.set(900 * KIB);
        let mut at = 0;
        while !slow.is_condemned() {
            at += 100;
            slow.moved();
            wants.moved();
            assert!(!wants.grow_to(300 * KIB));
            world.pass(ms(100));
            assert!(at < 20_000, "it holds what another has waited for");
        }
        assert!(at >= 10_000, "{at} ms");
        assert!(!wants.is_condemned());
    }

    #[test]
    fn a_loop_that_stood_still_does_not_blame_its_clients() {
        let mut world = World::new();
        let [large, wants] = [1, 2].map(|id| world.open(id));
        let elsewhere = world.memory.open(3, &world.loops[1]);
        assert!(large.grow_to(300 * KIB) && elsewhere.grow_to(200 * KIB) && wants.grow_to(100 * KIB));
        let condemned = || [&large, &elsewhere, &wants].map(|charge| charge.is_condemned());
        for stopped in [100, 100, 30_000, 100, 3_600_000] {
            assert!(!wants.grow_to(600 * KIB));
            world.pass(ms(stopped));
            assert_eq!(condemned(), [false; 3], "after {stopped} ms");
        }
        for _ in 0..50 {
            large.moved();
            wants.moved();
            assert!(!wants.grow_to(600 * KIB));
            world.pass_on_the_first(ms(100));
        }
        assert_eq!(condemned(), [false; 3], "the other loop stands still");
        for _ in 0..10 {
            large.moved();
            wants.moved();
            assert!(!wants.grow_to(600 * KIB));
            world.pass(ms(100));
        }
        assert_eq!(condemned(), [false, true, false], "the other loop goes on");
    }

    #[test]
    fn who_makes_progress_goes_if_somebody_gets_nothing_while_others_are_sent_away() {
        let mut world = World::new();
        let [reads, wants] = [1, 2].map(|id| world.open(id));
        reads.set(600 * KIB);
        let mut ms_passed = 0;
        for id in 100.. {
            // Others come, hold, and are sent away. What they give back is not enough.
            let idle = world.open(id);
            idle.set(390 * KIB);
            while !idle.is_condemned() && !reads.is_condemned() {
                reads.moved();
                wants.moved();
                assert!(!wants.grow_to(300 * KIB));
                world.pass(ms(100));
                ms_passed += 100;
            }
            if reads.is_condemned() {
                break;
            }
            assert!(ms_passed < 30_000);
        }
        assert!(ms_passed >= 10_000, "{ms_passed} ms");
    }

    #[test]
    fn who_makes_progress_stays_while_all_get_some_room() {
        let mut world = World::new();
        let [reads, wants] = [1, 2].map(|id| world.open(id));
        reads.set(600 * KIB);
        for round in 0..400 {
            reads.moved();
            wants.moved();
            assert!(!wants.grow_to(300 * KIB));
            // Now and then it gets what it wants, gives it back, and wants it again.
            if round % 50 == 49 {
                reads.set(300 * KIB);
                assert!(wants.grow_to(300 * KIB));
                wants.set(0);
                reads.set(600 * KIB);
            }
            world.pass(ms(100));
        }
        assert!(!reads.is_condemned() && !wants.is_condemned());
    }

    #[test]
    fn who_wants_much_gets_it_where_little_more_than_a_third_is_held() {
        let mut world = World::new();
        let [idle, wants] = [1, 2].map(|id| world.open(id));
        assert!(idle.grow_to(350 * KIB));
        for _ in 0..20 {
            assert!(!wants.grow_to(400 * KIB));
            world.pass(ms(100));
        }
        assert!(idle.is_condemned() && !wants.is_condemned());
        idle.set(0);
        assert!(wants.grow_to(400 * KIB));
    }

    #[test]
    fn a_small_client_that_does_nothing_does_not_keep_a_large_one_there() {
        let mut world = World::new();
        let [slow, small, wants] = [1, 2, 3].map(|id| world.open(id));
        assert!(small.grow_to(10 * KIB));
        slow.set(900 * KIB);
        for _ in 0..110 {
            slow.moved();
            assert!(!wants.grow_to(300 * KIB));
            world.pass(ms(100));
        }
        assert!(slow.is_condemned() && !small.is_condemned());
    }

    #[test]
    fn what_is_held_without_asking_counts_and_is_given_back() {
        let world = World::new();
        let (one, other) = (world.open(1), world.open(2));
        one.set(5_000 * KIB);
        assert!(!other.grow_to(1));
        one.set(10);
        assert!(other.grow_to(KIB));
        drop((one, other));
        assert_eq!(world.memory.used_bytes(), 0);
    }
}
