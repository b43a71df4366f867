//! One memory budget for all clients of a node: commands that have not arrived completely, commands that wait or are under way, and replies that were
//! not read yet, of all connections on all event loops. Stored data has a limit of its own.
//!
//! **Fair.** A connection may grow only if it then holds no more than what is left for all other connections. So no connection gets more than half,
//! several large ones get equal shares, and there is always room for a connection that holds little. What a connection may hold without asking
//! ([`FREE_BYTES`], once for commands and once for replies) is not counted here.
//!
//! **A connection that gets no room waits**: the node does not read from it. If that lasts for [`PATIENCE`], the connections that hold the most are
//! disconnected, the largest first, until half of what is shared out is free again, or more if the waiting connection needs more. At first only
//! connections without progress are disconnected. These are connections whose socket neither sent nor received a byte for [`PATIENCE`], to which the
//! node does not owe an answer, and that hold at least half of the average. If there are none, and a connection has waited for [`LONG_PATIENCE`] and
//! got nothing meanwhile, the connection that holds the most is disconnected.
//!
//! **Two thirds of the budget are shared out.** Memory that is freed stays with the process for some milliseconds, until the allocator has returned
//! it to the system. Meanwhile other connections take room. The connections that are disconnected free half of what is shared out: the last third of
//! the budget is for that.
//!
//! **A loop that does not run is no client's fault.** While a machine does not run an event loop, none of its sockets sends or receives a byte. So
//! each loop has a clock for its clients ([`ServedTime`]), which counts only the time in which sockets had their turn.
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use turnbuckle_core::Micros;
use turnbuckle_resp::Connection;

/// What a connection may hold of commands, and of replies, before it counts, in bytes.
pub(super) const FREE_BYTES: usize = Connection::FREE_BYTES;

/// How long a connection waits for room before connections without progress are disconnected.
const PATIENCE: Micros = Micros::from_millis(1_000);

/// How long a connection waits for room before even a connection with progress is disconnected.
const LONG_PATIENCE: Micros = Micros::from_millis(10_000);

/// How long an event loop has served its clients.
///
/// The loop tells it the time once in a while. Of the time between two such moments, at most [`ServedTime::MAX`] counts. In a shorter interval every
/// socket of the loop has had its turn. In a longer one, the loop was held up.
#[derive(Default)]
pub(super) struct ServedTime {
    served: AtomicU64,
    told: AtomicU64,
}

impl ServedTime {
    /// Twice the usual interval.
    const MAX: Micros = Micros::from_millis(200);

    /// The loop runs, and it is `now` in monotonic time. Call it from one thread.
    pub fn pass(&self, now: Micros) {
        let told = self.told.swap(now.0, Ordering::Relaxed);
        let passed = now.since(Micros(told)).min(Self::MAX);
        self.served.fetch_add(passed.0, Ordering::Relaxed);
    }

    fn read(&self) -> Micros {
        Micros(self.served.load(Ordering::Relaxed))
    }
}

/// The part of a budget of `limit` bytes that clients are given.
pub(super) fn shared_of(limit: u64) -> u64 {
    limit / 3 * 2
}

/// The memory of all clients of a node.
pub(crate) struct ClientMemory {
    limit: u64,
    /// The part of the limit that clients are given, in bytes.
    shared: u64,
    used: AtomicU64,
    refused: AtomicU64,
    /// The value of `refused` at the last look, and whether a connection waited then. If no connection asks for room, a look is cheap.
    seen_refused: AtomicU64,
    somebody_waits: AtomicBool,
    shed: AtomicU64,
    accounts: Mutex<BTreeMap<u64, Arc<Account>>>,
}

/// What one connection holds of the budget.
#[derive(Default)]
pub(crate) struct Account {
    charged: AtomicU64,
    /// The clock of its loop. All times here are readings of this clock.
    time: Arc<ServedTime>,
    /// When its socket last sent or received a byte.
    moved_at: AtomicU64,
    /// It was refused room since the last look.
    was_refused: AtomicBool,
    /// It was given room since the last look.
    was_given: AtomicBool,
    /// Since when it has waited for room and got none; [`NEVER`] if it does not wait.
    waits_since: AtomicU64,
    /// The most bytes that all connections may hold together for it to get what it was last refused.
    needs: AtomicU64,
    /// It waits for an answer of the node, and the node does not wait for it.
    is_owed: AtomicBool,
    /// It is to be disconnected.
    condemned: AtomicBool,
}

/// The value of a time if the client does not wait.
const NEVER: u64 = u64::MAX;

/// A connection's access to its account. When this is dropped, the account ends.
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

    /// How many bytes all clients hold.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// By how many bytes the process may grow because of its clients. Clients are given less: [`shared_of`].
    pub fn limit_bytes(&self) -> u64 {
        self.limit
    }

    /// How often a connection asked for room and there was none.
    pub fn refusals(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many connections were disconnected so that other connections have room.
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

    /// Checks whether a connection has waited for room for too long. If so, condemns others. Call it regularly, from one thread.
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
        // A connection that holds less than half of the average is not what keeps others waiting.
        let large = stalled
            .into_iter()
            .take_while(|&(charged, _)| charged >= fair / 2);
        if self.condemn(enough, large) == 0 && waited >= LONG_PATIENCE {
            self.condemn(enough, self.holders(|_| true).into_iter().take(1));
            // All waiting connections try again before another one is condemned.
            self.lock().values().for_each(|account| account.wait_anew());
        }
    }

    /// The longest time that a connection has waited, and how many bytes all may hold at most for it to get room. `None` if none waits.
    fn longest_wait(&self) -> Option<(Micros, u64)> {
        let accounts = self.lock();
        let waits = accounts.values().filter_map(|account| {
            let needs = account.needs.load(Ordering::Relaxed);
            account.look().map(|waited| (waited, needs))
        });
        waits.max_by_key(|&(waited, _)| waited)
    }

    /// Condemns the first of these, until no more than `enough` bytes are held. Returns how many it condemned.
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

    /// The wanted connections that hold something and are not condemned yet, the largest first.
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

    /// How many bytes all connections may hold at most so that one that holds `charged` can grow to `bytes`. Never more than half of what is shared
    /// out.
    fn enough_for(&self, charged: u64, bytes: u64) -> u64 {
        let half = self.shared / 2;
        match bytes {
            // The connection cannot grow to that, whichever others are disconnected.
            _ if bytes > half => half,
            _ => half.min(self.shared + charged - 2 * bytes),
        }
    }

    /// Takes room for a connection that grows from `charged` to `bytes`, if this is no more than what would then be left.
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

    /// How long it has waited, if it waits. This uses up the notes of what it was refused and given since the last look.
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
    /// Asks for room: the connection is about to hold this many bytes. Returns false if there is no room.
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

    /// Notes that the connection holds this many bytes.
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

    /// Notes that the connection's socket sent or received something.
    pub fn moved(&self) {
        let now = self.account.time.read();
        self.account.moved_at.store(now.0, Ordering::Relaxed);
    }

    /// Notes whether the connection waits for the node, and not the node for it.
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

    /// The clients of one node, on two event loops.
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

        /// Time passes, both loops run, and the memory is checked.
        fn pass(&mut self, span: Micros) {
            self.at = self.at + span;
            self.loops.iter().for_each(|time| time.pass(self.at));
            self.memory.look();
        }

        /// The same, but the second loop does not run.
        fn pass_on_the_first(&mut self, span: Micros) {
            self.at = self.at + span;
            self.loops[0].pass(self.at);
            self.memory.look();
        }
    }

    /// Grows until it is refused. Returns how many KiB it got.
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
            // Other clients come, hold memory, and are disconnected. What they free is not enough.
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
            // Now and then it gets what it wants, releases it, and wants it again.
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
