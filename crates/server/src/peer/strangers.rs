//! Connections to the port for peers that have not proven yet that they come from a peer.
//!
//! There are places for [`MAX`] of them, of which one source address may take [`MAX_PER_ADDRESS`]. Every new connection gets a place. If its source
//! has as many as it may have, the oldest stranger of this source loses its place. If all places are taken, the source that has the most loses its
//! oldest one. So connections that say nothing cannot keep a peer out, and a flood from one address uses up only that address's places.
//!
//! They are logged at most every [`SAY_EVERY`], with the number of those that were left out. All of them are counted.
use super::handshake::HandshakeError;
use crate::{run::Host, seldom::Seldom, status::StrangersStatus};
use std::{
    cell::RefCell,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::sync::Notify;

/// How many connections may be in their handshake at once.
const MAX: usize = 256;

/// How many of them may come from one address.
const MAX_PER_ADDRESS: usize = 64;

/// How often strangers are logged, at most.
pub(super) const SAY_EVERY: Duration = Duration::from_secs(10);

/// The places that are taken, oldest first.
#[derive(Default)]
pub(super) struct Strangers {
    taken: Vec<Taken>,
    last: u64,
}

struct Taken {
    number: u64,
    source: IpAddr,
    evict: Rc<Notify>,
}

/// A stranger's place. It becomes free when this is dropped.
pub(super) struct Place {
    strangers: Rc<RefCell<Strangers>>,
    number: u64,
    evict: Rc<Notify>,
}

impl Strangers {
    /// Gives a connection a place. Also returns whether another connection lost its place for it.
    pub fn admit(strangers: &Rc<RefCell<Strangers>>, source: IpAddr) -> (Place, bool) {
        let mut this = strangers.borrow_mut();
        // Addresses of one IPv6 network (`/64`) belong to one host.
        let source = network(source);
        let of_source = this.of(source);
        let from = match of_source.len() {
            MAX_PER_ADDRESS.. => Some(source),
            _ if this.taken.len() >= MAX => this.most_frequent(),
            _ => None,
        };
        let oldest = from.and_then(|from| this.taken.iter().position(|taken| taken.source == from));
        if let Some(oldest) = oldest {
            this.taken.remove(oldest).evict.notify_one();
        }
        this.last += 1;
        let (number, evict) = (this.last, Rc::new(Notify::new()));
        this.taken.push(Taken {
            number,
            source,
            evict: Rc::clone(&evict),
        });
        let place = Place {
            strangers: Rc::clone(strangers),
            number,
            evict,
        };
        (place, oldest.is_some())
    }

    fn of(&self, source: IpAddr) -> Vec<u64> {
        let taken = self.taken.iter().filter(|taken| taken.source == source);
        taken.map(|taken| taken.number).collect()
    }

    /// The source with the most places. Of several such sources, it is the one that came first.
    fn most_frequent(&self) -> Option<IpAddr> {
        let sources = self.taken.iter().rev().map(|taken| taken.source);
        sources.max_by_key(|&source| self.of(source).len())
    }
}

fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        v4 => v4,
    }
}

impl Place {
    /// Returns when another connection needs the place.
    pub async fn evicted(&self) {
        self.evict.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut strangers = self.strangers.borrow_mut();
        strangers.taken.retain(|taken| taken.number != self.number);
    }
}

/// How many strangers there were, and are.
#[derive(Default)]
pub(crate) struct StrangerCounts {
    unknown: AtomicU64,
    refused: AtomicU64,
    evicted: AtomicU64,
}

impl StrangerCounts {
    pub fn admitted(&self, evicted_another: bool) {
        self.unknown.fetch_add(1, Ordering::Relaxed);
        self.evicted
            .fetch_add(u64::from(evicted_another), Ordering::Relaxed);
    }

    pub fn left(&self) {
        self.unknown.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub fn status(&self) -> StrangersStatus {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        StrangersStatus {
            unknown: value(&self.unknown),
            refused_total: value(&self.refused),
            evicted_total: value(&self.evicted),
        }
    }
}

/// Logs strangers, at most one every [`SAY_EVERY`].
pub(super) struct Complaints(Seldom);

impl Default for Complaints {
    fn default() -> Complaints {
        Complaints(Seldom::new(SAY_EVERY))
    }
}

impl Complaints {
    /// Logs that a stranger was refused, if a line may be logged.
    pub fn say(&mut self, host: &Host, address: SocketAddr, error: &HandshakeError) {
        if let Some(left_out) = self.0.may_say(host.clock.monotonic()) {
            tracing::warn!(
                node = host.name,
                "the connection from {address} is not from a peer: {error}{left_out}"
            );
        }
    }

    /// Logs how many lines were left out, if there are any and it is time.
    pub fn sum_up(&mut self, host: &Host) {
        if let Some(more) = self.0.sum_up(host.clock.monotonic()) {
            tracing::warn!(node = host.name, "{more} more connections were not from peers");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn is_evicted(place: &Place) -> bool {
        let strangers = place.strangers.borrow();
        strangers.taken.iter().all(|taken| taken.number != place.number)
    }

    #[test]
    fn the_oldest_of_whoever_has_the_most_makes_room() {
        let strangers = Rc::default();
        let mut places: Vec<Place> = Vec::new();
        for number in 0..MAX {
            let (place, evicted) = Strangers::admit(&strangers, address((number % 8) as u8));
            assert!(!evicted);
            places.push(place);
        }
        let (peer, evicted) = Strangers::admit(&strangers, address(99));
        assert!(evicted && is_evicted(&places[0]) && !is_evicted(&peer));
        // A source that goes on like this uses up its own places.
        for _ in 0..10_000 {
            places.push(Strangers::admit(&strangers, address(1)).0);
        }
        assert!(!is_evicted(&peer));
        assert!(strangers.borrow().taken.len() <= MAX);
        let of_one = strangers.borrow().of(address(1)).len();
        assert!((30..=MAX_PER_ADDRESS).contains(&of_one), "{of_one}");
        drop((places, peer));
        assert!(strangers.borrow().taken.is_empty());
    }

    #[test]
    fn a_source_alone_has_its_share_and_no_more() {
        let strangers = Rc::default();
        let places: Vec<Place> = (0..1_000)
            .map(|_| Strangers::admit(&strangers, address(1)).0)
            .collect();
        assert_eq!(strangers.borrow().taken.len(), MAX_PER_ADDRESS);
        assert!(is_evicted(&places[0]) && !is_evicted(&places[999]));
        let networks =
            ["2001:db8::1", "2001:db8::2:1"].map(|text| network(text.parse().expect("an address")));
        assert_eq!(networks[0], networks[1]);
    }
}
