//! The WAN on one machine: one-way delays between sites, with jitter and cuts. They can be changed while frames are under way.
//!
//! Demos and tests run all sites on one computer, where a frame takes microseconds. So the transport holds every frame back on the **sending** side.
//! It asks the [`WanMatrix`] how long the way from its site to the receiver's is, and puts the frame on the link's [`DelayLine`]. The line releases
//! it when its time has come. This needs no root and no `tc`.
//!
//! ```text
//!   site a                                                         site b
//!   frame --> DelayLine(a->b) --------- release time --> socket --> handler
//!               | asks
//!             WanMatrix   a->b 40ms~4ms   b->a 40ms~4ms   a->c 75ms~7ms, cut   ...
//!               | set, cut, heal
//!             admin HTTP, `turnbuckle wan`
//! ```
//!
//! **Caveats.** A delay is drawn from `[delay, delay + jitter]`. It is never shorter than it says, so that "not before the WAN delay" can be tested.
//! Frames of one link are never reordered, as on a TCP connection, so a frame with little jitter waits for the one before it. Lowering a delay does
//! not speed up the frames that are already on their way. Bandwidth is not modelled. A cut always affects both directions: nodes are linked by TCP
//! connections, which need both.
//!
//! **One matrix per cluster.** Each process has a matrix and applies it to what its nodes send. A change at one process is told to all others over
//! admin HTTP ([`crate::admin`]). A node that starts asks the other nodes. Each direction remembers when it was changed, and the later change wins.
use std::{
    collections::BTreeSet,
    fmt,
    str::FromStr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};
use thiserror::Error;
use tokio::sync::watch;
use turnbuckle_core::{Micros, SiteId};
use turnbuckle_node::NodeId;

mod delay_line;
pub use delay_line::{DelayLine, Full};

/// How long one direction of a link between two sites takes. Printed and parsed as `40ms~4ms`, or `40ms` without
/// jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkDelay {
    /// The shortest time that a frame is on its way. At most [`LinkDelay::LONGEST`].
    pub delay: Micros,
    /// How much longer it may take. At most [`LinkDelay::LONGEST`].
    pub jitter: Micros,
}

impl LinkDelay {
    /// No delay at all: the machine's own.
    pub const NONE: LinkDelay = LinkDelay {
        delay: Micros(0),
        jitter: Micros(0),
    };

    /// The longest delay, and the longest jitter: one minute. For a site that is away for longer, use a cut.
    pub const LONGEST: Micros = Micros::from_millis(60_000);

    /// What a delay looks like, for messages.
    pub const EXPECTED: &str =
        "a one-way delay such as \"40ms\", or \"40ms~4ms\" with jitter, each from 0ms to 60s";

    /// A delay of whole milliseconds.
    ///
    /// # Panics
    /// If either is longer than [`LinkDelay::LONGEST`].
    pub const fn from_millis(delay_ms: u64, jitter_ms: u64) -> LinkDelay {
        let (delay, jitter) = (Micros::from_millis(delay_ms), Micros::from_millis(jitter_ms));
        assert!(
            delay.0 <= Self::LONGEST.0 && jitter.0 <= Self::LONGEST.0,
            "delay and jitter are at most a minute"
        );
        LinkDelay { delay, jitter }
    }
}

impl fmt::Display for LinkDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `Micros` prints zero as 0s; next to other delays 0ms reads better.
        match self.delay {
            Micros(0) => f.write_str("0ms")?,
            delay => write!(f, "{delay}")?,
        }
        match self.jitter {
            Micros(0) => Ok(()),
            jitter => write!(f, "~{jitter}"),
        }
    }
}

/// A delay that does not parse, or is too long.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("found {found:?}; expected {}", LinkDelay::EXPECTED)]
pub struct BadDelay {
    /// What was given, cut to 64 characters.
    pub found: String,
}

impl FromStr for LinkDelay {
    type Err = BadDelay;

    fn from_str(text: &str) -> Result<LinkDelay, BadDelay> {
        let (delay, jitter) = text.split_once('~').unwrap_or((text, "0ms"));
        let part = |text: &str| {
            text.trim()
                .parse()
                .ok()
                .filter(|&span| span <= LinkDelay::LONGEST)
        };
        match (part(delay), part(jitter)) {
            (Some(delay), Some(jitter)) => Ok(LinkDelay { delay, jitter }),
            _ => Err(BadDelay {
                found: text.chars().take(64).collect(),
            }),
        }
    }
}

/// The delays between all sites of a cluster, as configured: a plain value. Threads share a [`WanMatrix`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WanDelays {
    sites: Arc<[String]>,
    /// By sender, then receiver. Invariant: `sites.len()` squared of them, [`LinkDelay::NONE`] from a site to itself.
    links: Vec<LinkDelay>,
}

impl WanDelays {
    /// No delay between any two of `sites`.
    pub fn none(sites: impl IntoIterator<Item = impl Into<String>>) -> WanDelays {
        let sites: Arc<[String]> = sites.into_iter().map(Into::into).collect();
        let links = vec![LinkDelay::NONE; sites.len() * sites.len()];
        WanDelays { sites, links }
    }

    /// The delays of the demo: three sites that are about an ocean and a continent apart, and other sites that are further away.
    ///
    /// The delays are one way, and the same in both directions. The jitter is a tenth.
    ///
    /// | | first | second | third |
    /// |---|---|---|---|
    /// | second | 40ms~4ms | | |
    /// | third | 75ms~7ms | 60ms~6ms | |
    /// | any other | 90ms~9ms | 90ms~9ms | 90ms~9ms |
    pub fn demo(sites: impl IntoIterator<Item = impl Into<String>>) -> WanDelays {
        let mut delays = WanDelays::none(sites);
        for from in 0..delays.sites.len() {
            for to in from + 1..delays.sites.len() {
                let delay = match (from, to) {
                    (0, 1) => LinkDelay::from_millis(40, 4),
                    (1, 2) => LinkDelay::from_millis(60, 6),
                    (0, 2) => LinkDelay::from_millis(75, 7),
                    _ => LinkDelay::from_millis(90, 9),
                };
                delays.set_both(SiteId(from as u16), SiteId(to as u16), delay);
            }
        }
        delays
    }

    /// The names of the sites, in their order.
    pub fn sites(&self) -> &[String] {
        &self.sites
    }

    /// The delay of one direction.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn link(&self, from: SiteId, to: SiteId) -> LinkDelay {
        self.links[self.place(from, to)]
    }

    /// Sets the delay of one direction. A site has no delay to itself: setting it does nothing.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn set(&mut self, from: SiteId, to: SiteId, delay: LinkDelay) {
        let place = self.place(from, to);
        if from != to {
            self.links[place] = delay;
        }
    }

    /// Sets the delay of both directions.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn set_both(&mut self, one: SiteId, other: SiteId, delay: LinkDelay) {
        self.set(one, other, delay);
        self.set(other, one, delay);
    }

    /// Every ordered pair of different sites, by sender, then receiver.
    pub fn pairs(&self) -> impl Iterator<Item = (SiteId, SiteId)> + use<> {
        let count = self.sites.len() as u16;
        (0..count)
            .flat_map(move |from| (0..count).map(move |to| (SiteId(from), SiteId(to))))
            .filter(|(from, to)| from != to)
    }

    fn place(&self, from: SiteId, to: SiteId) -> usize {
        place(self.sites.len(), from, to)
    }
}

fn place(sites: usize, from: SiteId, to: SiteId) -> usize {
    let (from, to) = (usize::from(from.0), usize::from(to.0));
    assert!(from < sites && to < sites, "site {from} or {to} of {sites}");
    from * sites + to
}

/// One direction of a link, now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkState {
    /// How long a frame takes.
    pub delay: LinkDelay,
    /// Whether nothing passes in this direction.
    pub cut: bool,
}

/// The delays and cuts between all sites. Threads share them, and they can be changed at any time. Cheap to clone: clones are the same matrix.
///
/// A read is one relaxed load and no lock, since a link's whole state fits in one word: it is read for every frame. A reader that must act on a
/// change (cut a connection, connect again) also watches [`WanMatrix::watch`].
#[derive(Clone)]
pub struct WanMatrix(Arc<Shared>);

struct Shared {
    sites: Arc<[String]>,
    links: Vec<AtomicU64>,
    changes: watch::Sender<u64>,
    ledger: Mutex<Ledger>,
}

/// What a change checks and updates. Its lock is held while a link's word is written.
struct Ledger {
    /// When each direction was last changed, in microseconds since 1970; 0 if it is as configured.
    changed_us: Vec<u64>,
    /// The nodes of this process, which apply this matrix.
    nodes: BTreeSet<NodeId>,
}

impl WanMatrix {
    /// A matrix that begins with these delays and no cut.
    pub fn new(delays: &WanDelays) -> WanMatrix {
        let links = delays
            .links
            .iter()
            .map(|&delay| AtomicU64::new(pack(LinkState { delay, cut: false })));
        WanMatrix(Arc::new(Shared {
            sites: Arc::clone(&delays.sites),
            links: links.collect(),
            changes: watch::Sender::new(0),
            ledger: Mutex::new(Ledger {
                changed_us: vec![0; delays.links.len()],
                nodes: BTreeSet::new(),
            }),
        }))
    }

    /// The names of the sites, in their order.
    pub fn sites(&self) -> &[String] {
        &self.0.sites
    }

    /// The site of that name.
    pub fn site_named(&self, name: &str) -> Option<SiteId> {
        let place = self.0.sites.iter().position(|site| site == name)?;
        Some(SiteId(place as u16))
    }

    /// Notes that a node is one of this process, which applies the matrix.
    pub fn serve(&self, node: NodeId) {
        self.ledger().nodes.insert(node);
    }

    /// Whether a node is one of this process. The nodes of other processes are told of changes.
    pub fn serves(&self, node: NodeId) -> bool {
        self.ledger().nodes.contains(&node)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of one direction now.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn link(&self, from: SiteId, to: SiteId) -> LinkState {
        unpack(self.word(from, to).load(Ordering::Relaxed))
    }

    /// When a direction was last changed, in microseconds since 1970; 0 if it is as configured.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn changed_us(&self, from: SiteId, to: SiteId) -> u64 {
        self.ledger().changed_us[place(self.0.sites.len(), from, to)]
    }

    /// Sets the delay of one direction. Whether it is cut does not change. A site has no delay to itself: setting it does nothing.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn set(&self, from: SiteId, to: SiteId, delay: LinkDelay) {
        self.update(from, to, |link| LinkState { delay, ..link });
    }

    /// Lets nothing through between two sites, in both directions, until that is healed. A site cannot be cut from itself.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn cut(&self, one: SiteId, other: SiteId) {
        self.update(one, other, |link| LinkState { cut: true, ..link });
        self.update(other, one, |link| LinkState { cut: true, ..link });
    }

    /// Ends the cut between two sites.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn heal(&self, one: SiteId, other: SiteId) {
        self.update(one, other, |link| LinkState { cut: false, ..link });
        self.update(other, one, |link| LinkState { cut: false, ..link });
    }

    /// Ends all cuts.
    pub fn heal_all(&self) {
        for (from, to, _) in self.links() {
            self.update(from, to, |link| LinkState { cut: false, ..link });
        }
    }

    /// Takes over the state of a direction at another process, if it was changed there later than here.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn adopt(&self, from: SiteId, to: SiteId, link: LinkState, changed_us: u64) {
        self.store(from, to, |_, before_us| {
            (changed_us > before_us).then_some((link, changed_us))
        });
    }

    /// Every direction between two different sites, by sender, then receiver.
    pub fn links(&self) -> impl Iterator<Item = (SiteId, SiteId, LinkState)> {
        let count = self.0.sites.len() as u16;
        (0..count)
            .flat_map(move |from| (0..count).map(move |to| (SiteId(from), SiteId(to))))
            .filter(|(from, to)| from != to)
            .map(|(from, to)| (from, to, self.link(from, to)))
    }

    /// The number of changes so far. `changed().await` on it returns after the next change.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    fn word(&self, from: SiteId, to: SiteId) -> &AtomicU64 {
        &self.0.links[place(self.0.sites.len(), from, to)]
    }

    /// Makes a change. It is later than all others of its direction, even if it changes nothing here: it may change something at another process.
    fn update(&self, from: SiteId, to: SiteId, change: impl FnOnce(LinkState) -> LinkState) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        self.store(from, to, |link, before_us| {
            Some((change(link), now_us.max(before_us.saturating_add(1))))
        });
    }

    fn store(
        &self,
        from: SiteId,
        to: SiteId,
        change: impl FnOnce(LinkState, u64) -> Option<(LinkState, u64)>,
    ) {
        let word = self.word(from, to);
        if from == to {
            return;
        }
        let mut ledger = self.ledger();
        let stamp = &mut ledger.changed_us[place(self.0.sites.len(), from, to)];
        let old = word.load(Ordering::Relaxed);
        let Some((link, changed_us)) = change(unpack(old), *stamp) else {
            return;
        };
        *stamp = changed_us;
        let new = pack(link);
        word.store(new, Ordering::Relaxed);
        drop(ledger);
        if new != old {
            // The channel's own lock orders the word before the notification.
            self.0.changes.send_modify(|count| *count += 1);
        }
    }
}

impl fmt::Debug for WanMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |site: SiteId| &self.0.sites[usize::from(site.0)];
        f.debug_map()
            .entries(
                self.links()
                    .map(|(from, to, link)| (format!("{}->{}", name(from), name(to)), link)),
            )
            .finish()
    }
}

/// `cut` in the highest bit, then 31 bits of delay and 32 of jitter, in microseconds. A minute takes 26 bits.
fn pack(link: LinkState) -> u64 {
    let LinkDelay { delay, jitter } = link.delay;
    assert!(
        delay <= LinkDelay::LONGEST && jitter <= LinkDelay::LONGEST,
        "delay and jitter are at most a minute, not {}",
        link.delay
    );
    u64::from(link.cut) << 63 | delay.0 << 32 | jitter.0
}

fn unpack(word: u64) -> LinkState {
    LinkState {
        delay: LinkDelay {
            delay: Micros(word >> 32 & 0x7fff_ffff),
            jitter: Micros(word & 0xffff_ffff),
        },
        cut: word >> 63 == 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SiteId = SiteId(0);
    const B: SiteId = SiteId(1);
    const C: SiteId = SiteId(2);

    #[test]
    fn a_delay_parses_as_it_prints() {
        for text in ["0ms", "40ms", "40ms~4ms", "1500us~1us", "0ms~5ms", "60s~60s"] {
            assert_eq!(text.parse::<LinkDelay>().expect(text).to_string(), text);
        }
        assert_eq!(
            "1.5ms ~ 0ms".parse(),
            Ok(LinkDelay {
                delay: Micros(1_500),
                jitter: Micros(0)
            })
        );
    }

    #[test]
    fn a_delay_that_makes_no_sense_is_refused_with_what_was_expected() {
        for text in [
            "",
            "~",
            "40",
            "40ms~",
            "~4ms",
            "40ms~4ms~1ms",
            "-1ms",
            "61s",
            "1ms~61s",
            "40 ms",
            "1h",
        ] {
            let error = text.parse::<LinkDelay>().expect_err(text).to_string();
            assert!(error.contains("expected a one-way delay"), "{error}");
        }
    }

    #[test]
    fn the_demo_is_as_far_apart_in_both_directions() {
        let delays = WanDelays::demo(["a", "b", "c", "d"]);
        for (from, to) in delays.pairs() {
            assert_eq!(delays.link(from, to), delays.link(to, from));
        }
        assert_eq!(delays.link(A, B), LinkDelay::from_millis(40, 4));
        assert_eq!(delays.link(B, C), LinkDelay::from_millis(60, 6));
        assert_eq!(delays.link(A, C), LinkDelay::from_millis(75, 7));
        assert_eq!(delays.link(A, A), LinkDelay::NONE);
        assert_eq!(delays.pairs().count(), 12);
    }

    #[test]
    fn a_cut_and_a_delay_do_not_disturb_each_other() {
        let matrix = WanMatrix::new(&WanDelays::demo(["a", "b", "c"]));
        matrix.cut(A, B);
        matrix.set(A, B, LinkDelay::from_millis(5, 1));
        assert_eq!(
            matrix.link(A, B),
            LinkState {
                delay: LinkDelay::from_millis(5, 1),
                cut: true
            }
        );
        assert!(matrix.link(B, A).cut, "a connection needs both directions");
        matrix.heal_all();
        assert_eq!(
            matrix.link(A, B),
            LinkState {
                delay: LinkDelay::from_millis(5, 1),
                cut: false
            }
        );
    }

    #[test]
    fn a_site_is_never_cut_from_itself() {
        let matrix = WanMatrix::new(&WanDelays::demo(["a", "b"]));
        matrix.cut(A, A);
        matrix.set(A, A, LinkDelay::from_millis(5, 0));
        assert_eq!(matrix.link(A, A), LinkState::default());
    }

    #[test]
    fn only_a_change_is_announced() {
        let matrix = WanMatrix::new(&WanDelays::demo(["a", "b"]));
        let watch = matrix.watch();
        matrix.heal(A, B);
        matrix.set(A, B, LinkDelay::from_millis(40, 4));
        assert!(!watch.has_changed().unwrap());
        matrix.cut(A, B);
        assert!(watch.has_changed().unwrap());
    }

    #[test]
    fn the_later_change_of_a_direction_wins_wherever_it_was_made() {
        let delays = WanDelays::demo(["a", "b"]);
        let (here, there) = (WanMatrix::new(&delays), WanMatrix::new(&delays));
        let tell = |from: &WanMatrix, to: &WanMatrix| {
            for (one, other, link) in from.links() {
                to.adopt(one, other, link, from.changed_us(one, other));
            }
        };
        here.cut(A, B);
        tell(&here, &there);
        assert!(there.link(A, B).cut && there.link(B, A).cut);
        // The third process was not told of the cut, and heals it all the same.
        let third = WanMatrix::new(&delays);
        third.adopt(A, B, LinkState::default(), there.changed_us(A, B) - 1);
        third.heal(A, B);
        let healed_us = third.changed_us(A, B).max(there.changed_us(A, B) + 1);
        there.adopt(A, B, third.link(A, B), healed_us);
        tell(&here, &there);
        assert!(!there.link(A, B).cut, "an older change came later");
        tell(&third, &WanMatrix::new(&delays));
    }

    proptest::proptest! {
        #[test]
        fn a_word_holds_any_state(delay in 0..=60_000_000u64, jitter in 0..=60_000_000u64, cut: bool) {
            let link = LinkState { delay: LinkDelay { delay: Micros(delay), jitter: Micros(jitter) }, cut };
            proptest::prop_assert_eq!(unpack(pack(link)), link);
        }
    }
}
