//! Who listens to which channels at a node: shared by all event loops of the node.
//!
//! ```text
//!   connection --(SUBSCRIBE)--> Subscriptions ---subscribe---> Channels <--listeners-- event loop, for each message
//!                                     |                           ^                        |
//!                                     +--(drop: all end)----------+                        v
//!                                                                          Connection::handle_message
//! ```
//!
//! - [`Channels`] is the table of the node: the listeners of each channel and of each pattern. There is one entry for each subscription, and none for a
//!   channel to which nobody listens.
//! - [`Subscriptions`] are those of one connection. When they are dropped, all of them end in the table, whatever the way in which the connection ends.
//!
//! **Cost.** A message is compared with each pattern of the node. How much one comparison may cost is bounded ([`match_steps`]).
use crate::{glob, refusal::Refusal};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A connection that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// The event loop that serves it.
    pub event_loop: usize,
    /// Its number there.
    pub number: u64,
}

/// By what a listener hears the messages of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// By the channel's name.
    Name,
    /// By a pattern that the name matches.
    Pattern,
}

/// Who listens to which channels at a node.
#[derive(Debug, Default)]
pub struct Channels {
    /// How many subscriptions there are. It is changed while `table` is locked.
    subscriptions: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_name: Listeners,
    by_pattern: Listeners,
}

/// The listeners of each name, or of each pattern. None of the sets is empty.
type Listeners = BTreeMap<Bytes, BTreeSet<Listener>>;

/// How many steps the match of a channel with one pattern may take: a few microseconds. A pattern with one star at its end always has enough. A pattern that
/// needs more does not match.
fn match_steps(channel: &[u8]) -> u64 {
    10_000 + 2 * channel.len() as u64
}

fn matches(pattern: &[u8], channel: &[u8]) -> bool {
    glob::matches(pattern, channel, &mut match_steps(channel)) == Some(true)
}

impl Table {
    fn of(&mut self, by: By) -> &mut Listeners {
        match by {
            By::Name => &mut self.by_name,
            By::Pattern => &mut self.by_pattern,
        }
    }

    /// The patterns that a channel matches, and their listeners.
    fn matching<'a>(
        &'a self,
        channel: &'a [u8],
    ) -> impl Iterator<Item = (&'a Bytes, &'a BTreeSet<Listener>)> {
        self.by_pattern
            .iter()
            .filter(|(pattern, _)| matches(pattern, channel))
    }
}

/// The listeners of one event loop among these.
fn of_loop(listeners: &BTreeSet<Listener>, event_loop: usize) -> impl Iterator<Item = u64> {
    let of = |number| Listener { event_loop, number };
    listeners
        .range(of(0)..=of(u64::MAX))
        .map(|listener| listener.number)
}

impl Channels {
    /// From now on the listener hears the channel of this name, or all channels that match this pattern. Returns false if it did before.
    pub fn subscribe(&self, listener: Listener, by: By, name: &Bytes) -> bool {
        let mut table = self.lock();
        let is_new = table.of(by).entry(name.clone()).or_default().insert(listener);
        self.subscriptions.fetch_add(u64::from(is_new), Ordering::Release);
        is_new
    }

    /// The listener does not hear the channel by this name, or by this pattern, any more. Returns false if it did not.
    pub fn unsubscribe(&self, listener: Listener, by: By, name: &[u8]) -> bool {
        let mut table = self.lock();
        let listeners = table.of(by);
        let Some(of_name) = listeners.get_mut(name) else {
            return false;
        };
        let was = of_name.remove(&listener);
        if of_name.is_empty() {
            listeners.remove(name);
        }
        self.subscriptions.fetch_sub(u64::from(was), Ordering::Release);
        was
    }

    /// The listeners of an event loop that are to hear a message of this channel, in the order of their numbers, each with how it hears it: `None` is by
    /// the channel's name, and `Some` by that pattern. A listener hears the message once for each: by the name first, then by patterns in their order.
    pub fn listeners(&self, event_loop: usize, channel: &[u8]) -> Vec<(u64, Vec<Option<Bytes>>)> {
        if self.is_unused() {
            return Vec::new();
        }
        let mut found: BTreeMap<u64, Vec<Option<Bytes>>> = BTreeMap::new();
        let table = self.lock();
        if let Some(listeners) = table.by_name.get(channel) {
            for number in of_loop(listeners, event_loop) {
                found.entry(number).or_default().push(None);
            }
        }
        let with_pattern = table.by_pattern.iter().filter(|(pattern, listeners)| {
            of_loop(listeners, event_loop).next().is_some() && matches(pattern, channel)
        });
        for (pattern, listeners) in with_pattern {
            for number in of_loop(listeners, event_loop) {
                found.entry(number).or_default().push(Some(pattern.clone()));
            }
        }
        found.into_iter().collect()
    }

    /// Whether a listener of an event loop is to hear a message of this channel. It costs next to nothing while nobody listens to anything.
    pub fn is_heard(&self, event_loop: usize, channel: &[u8]) -> bool {
        if self.is_unused() {
            return false;
        }
        let table = self.lock();
        let has_listener = |listeners: &BTreeSet<Listener>| of_loop(listeners, event_loop).next().is_some();
        table.by_name.get(channel).is_some_and(has_listener)
            || table
                .by_pattern
                .iter()
                .any(|(pattern, listeners)| has_listener(listeners) && matches(pattern, channel))
    }

    /// How often a message of this channel would be heard at this node, by the clients of all event loops.
    pub fn count(&self, channel: &[u8]) -> u64 {
        if self.is_unused() {
            return 0;
        }
        let table = self.lock();
        let by_name = table.by_name.get(channel).map_or(0, BTreeSet::len);
        let by_pattern: usize = table
            .matching(channel)
            .map(|(_, listeners)| listeners.len())
            .sum();
        (by_name + by_pattern) as u64
    }

    /// The channels that somebody hears by their names, in order.
    pub fn names(&self) -> Vec<Bytes> {
        self.lock().by_name.keys().cloned().collect()
    }

    /// How many listeners hear a channel by its name.
    pub fn count_by_name(&self, channel: &[u8]) -> u64 {
        self.lock().by_name.get(channel).map_or(0, BTreeSet::len) as u64
    }

    /// How many different patterns there are.
    pub fn count_patterns(&self) -> u64 {
        self.lock().by_pattern.len() as u64
    }

    fn is_unused(&self) -> bool {
        self.subscriptions.load(Ordering::Acquire) == 0
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing between its changes can panic, so the table is whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one connection listens to. When it is dropped, the connection listens to nothing.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    names: BTreeSet<Bytes>,
    patterns: BTreeSet<Bytes>,
    /// The bytes of all names and patterns.
    bytes: usize,
    /// Where the connection is entered as a listener, if it ever was.
    entered: Option<(Arc<Channels>, Listener)>,
}

impl Subscriptions {
    /// The most channels and patterns of a connection.
    pub(crate) const MAX: usize = 10_000;

    /// The most bytes that their names may have together.
    pub(crate) const MAX_BYTES: usize = 1 << 20;

    /// About how many bytes a subscription takes beside its name, in the connection and in [`Channels`].
    const ENTRY_BYTES: usize = 400;

    /// How many channels and patterns there are.
    pub(crate) fn len(&self) -> usize {
        self.names.len() + self.patterns.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The channels, or the patterns.
    pub(crate) fn of(&self, by: By) -> &BTreeSet<Bytes> {
        match by {
            By::Name => &self.names,
            By::Pattern => &self.patterns,
        }
    }

    fn of_mut(&mut self, by: By) -> &mut BTreeSet<Bytes> {
        match by {
            By::Name => &mut self.names,
            By::Pattern => &mut self.patterns,
        }
    }

    /// About how many bytes they take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes + self.len() * Self::ENTRY_BYTES
    }

    /// Checks that these names may be added. Returns about how many bytes they will take.
    ///
    /// # Errors
    /// If there would be too many of them, or if they would be too long.
    pub(crate) fn check<'a>(&self, by: By, names: impl Iterator<Item = &'a [u8]>) -> Result<usize, Refusal> {
        let new: BTreeSet<&[u8]> = names.filter(|name| !self.of(by).contains(*name)).collect();
        let new_bytes: usize = new.iter().map(|name| name.len()).sum();
        let (count, bytes) = (self.len() + new.len(), self.bytes + new_bytes);
        if count > Self::MAX {
            return Err(Refusal(format!(
                "TOOBIG the connection would listen to {count} channels and patterns; at most {} are possible",
                Self::MAX
            )));
        }
        if bytes > Self::MAX_BYTES {
            let what = "the names of all channels and patterns of the connection";
            return Err(Refusal(format!(
                "TOOBIG {what} would have {bytes} bytes; at most {} are possible",
                Self::MAX_BYTES
            )));
        }
        Ok(new_bytes + new.len() * Self::ENTRY_BYTES)
    }

    /// Adds a channel or a pattern.
    pub(crate) fn add(&mut self, by: By, name: &[u8], channels: &Arc<Channels>, listener: Listener) {
        if self.of(by).contains(name) {
            return;
        }
        let (channels, listener) = self
            .entered
            .get_or_insert_with(|| (Arc::clone(channels), listener));
        // Copied, because the argument keeps the whole command in memory.
        let name = Bytes::copy_from_slice(name);
        channels.subscribe(*listener, by, &name);
        self.bytes += name.len();
        self.of_mut(by).insert(name);
    }

    /// Removes a channel or a pattern.
    pub(crate) fn remove(&mut self, by: By, name: &[u8]) {
        if let Some(name) = self.of_mut(by).take(name) {
            self.bytes -= name.len();
            if let Some((channels, listener)) = &self.entered {
                channels.unsubscribe(*listener, by, &name);
            }
        }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        let Some((channels, listener)) = &self.entered else {
            return;
        };
        for by in [By::Name, By::Pattern] {
            for name in self.of(by) {
                channels.unsubscribe(*listener, by, name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listener(event_loop: usize, number: u64) -> Listener {
        Listener { event_loop, number }
    }

    fn name(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    #[test]
    fn a_message_is_heard_by_name_first_and_then_once_for_each_pattern() {
        let channels = Channels::default();
        for (of, by, text) in [
            (listener(1, 7), By::Pattern, "news.*"),
            (listener(1, 7), By::Name, "news.a"),
            (listener(1, 7), By::Pattern, "*"),
            (listener(1, 3), By::Pattern, "*"),
            (listener(2, 3), By::Name, "news.a"),
        ] {
            assert!(channels.subscribe(of, by, &name(text)));
            assert!(!channels.subscribe(of, by, &name(text)), "it is there already");
        }
        assert_eq!(
            channels.listeners(1, b"news.a"),
            [
                (3, vec![Some(name("*"))]),
                (7, vec![None, Some(name("*")), Some(name("news.*"))]),
            ]
        );
        assert_eq!(channels.listeners(2, b"news.a"), [(3, vec![None])]);
        assert_eq!(channels.listeners(0, b"news.a"), []);
        assert_eq!(channels.count(b"news.a"), 5);
        assert_eq!(
            (channels.count(b"news.b"), channels.count(b"other")),
            (3, 2),
            "by patterns only"
        );
        assert_eq!(
            (channels.count_by_name(b"news.a"), channels.count_patterns()),
            (2, 2)
        );
        assert_eq!(channels.names(), [name("news.a")]);
    }

    #[test]
    fn nothing_is_left_of_subscriptions_that_were_dropped() {
        let channels = Arc::new(Channels::default());
        let mut subscriptions = Subscriptions::default();
        for text in ["a", "b", "a"] {
            subscriptions.add(By::Name, text.as_bytes(), &channels, listener(0, 1));
            subscriptions.add(By::Pattern, text.as_bytes(), &channels, listener(0, 1));
        }
        assert_eq!((subscriptions.len(), subscriptions.bytes), (4, 4));
        subscriptions.remove(By::Name, b"a");
        subscriptions.remove(By::Name, b"never");
        assert_eq!((subscriptions.len(), subscriptions.bytes), (3, 3));
        assert_eq!((channels.count(b"a"), channels.count(b"b")), (1, 2));
        drop(subscriptions);
        assert!(channels.is_unused() && channels.names().is_empty() && channels.count_patterns() == 0);
    }

    #[test]
    fn a_connection_has_no_more_than_so_many_names_of_so_many_bytes() {
        let channels = Arc::new(Channels::default());
        let mut subscriptions = Subscriptions::default();
        let texts: Vec<String> = (0..=Subscriptions::MAX)
            .map(|number| number.to_string())
            .collect();
        let names = |range: std::ops::Range<usize>| texts[range].iter().map(|text| text.as_bytes());
        assert!(subscriptions.check(By::Name, names(0..10_001)).is_err());
        assert!(subscriptions.check(By::Name, names(0..10_000)).is_ok());
        names(0..9_999).for_each(|name| subscriptions.add(By::Name, name, &channels, listener(0, 1)));
        // What is there already does not count again, and neither does a name that is given twice.
        let again = names(0..10_000).chain(names(9_999..10_000));
        let bytes = Subscriptions::ENTRY_BYTES + "9999".len();
        assert_eq!(subscriptions.check(By::Name, again), Ok(bytes));
        assert!(subscriptions.check(By::Pattern, names(0..2)).is_err());
        let long = vec![b'x'; Subscriptions::MAX_BYTES];
        assert!(subscriptions.check(By::Pattern, [&long[..]].into_iter()).is_err());
        let long = &long[subscriptions.bytes..];
        assert!(subscriptions.check(By::Pattern, [long].into_iter()).is_ok());
    }

    #[test]
    fn a_pattern_that_takes_too_long_does_not_match_and_a_simple_one_always_does() {
        let channels = Channels::default();
        let channel = vec![b'a'; 64 << 10];
        let slow = [b"*".as_slice(), &[b'a'; 1 << 10], b"b"].concat();
        let class = [b"*[".as_slice(), &[b'b'; 32 << 10], b"]"].concat();
        for pattern in [slow, class, b"*".to_vec(), b"a*".to_vec()] {
            channels.subscribe(listener(0, 1), By::Pattern, &pattern.into());
        }
        assert_eq!(
            channels.listeners(0, &channel),
            [(1, vec![Some(name("*")), Some(name("a*"))])]
        );
    }

    proptest! {
        /// The oracle is a list of all subscriptions.
        #[test]
        fn who_hears_what_is_what_was_subscribed(
            changes in prop::collection::vec((any::<bool>(), 0..2_usize, 0..3_u64, any::<bool>(), "[ab*]{0,2}"), 0..40),
            channel in "[ab]{0,2}",
        ) {
            let channels = Channels::default();
            let mut all = BTreeSet::new();
            for (adds, event_loop, number, by_name, text) in changes {
                let of = listener(event_loop, number);
                let by = if by_name { By::Name } else { By::Pattern };
                let entry = (of, !by_name, text.clone());
                let changed = match adds {
                    true => (channels.subscribe(of, by, &name(&text)), all.insert(entry)),
                    false => (channels.unsubscribe(of, by, text.as_bytes()), all.remove(&entry)),
                };
                prop_assert_eq!(changed.0, changed.1);
            }
            let hears = |by_pattern: bool, text: &str| match by_pattern {
                true => matches(text.as_bytes(), channel.as_bytes()),
                false => text == channel,
            };
            let mut heard = 0;
            for event_loop in 0..2 {
                let mut expected: BTreeMap<u64, Vec<Option<Bytes>>> = BTreeMap::new();
                for (of, by_pattern, text) in &all {
                    if of.event_loop == event_loop && hears(*by_pattern, text) {
                        heard += 1;
                        let how = by_pattern.then(|| name(text));
                        expected.entry(of.number).or_default().push(how);
                    }
                }
                prop_assert_eq!(channels.is_heard(event_loop, channel.as_bytes()), !expected.is_empty());
                let expected: Vec<_> = expected.into_iter().collect();
                prop_assert_eq!(channels.listeners(event_loop, channel.as_bytes()), expected);
            }
            prop_assert_eq!(channels.count(channel.as_bytes()), heard);
            prop_assert_eq!(channels.is_unused(), all.is_empty());
        }
    }
}
