use super::LinkDelay;
use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use thiserror::Error;
use turnbuckle_core::Micros;

/// The bytes that a frame occupies beyond its own, so that a flood of empty frames is bounded, too.
const OVERHEAD_BYTES: usize = size_of::<(Micros, Bytes)>();

/// The frames that are on their way over one direction of a link, in the order they were sent.
///
/// It does no I/O: time comes in with [`push`](DelayLine::push) and [`pop_due`](DelayLine::pop_due), and chance from a seed. Each frame is released
/// at `max(release of the frame before, now + delay + jitter)`, so the line never reorders. The bytes held are bounded: a full line refuses a frame.
/// Then the sender must wait until [`next_release`](DelayLine::next_release) has passed and frames were taken. Or it puts the entry back: the log has
/// it.
#[derive(Debug)]
pub struct DelayLine {
    /// Invariant: release times never fall from front to back.
    frames: VecDeque<(Micros, Bytes)>,
    /// Invariant: the sum of [`cost`] over `frames`.
    held_bytes: usize,
    max_bytes: usize,
    /// When the frame that was pushed last is or was released.
    last_release: Micros,
    random: ChaCha8Rng,
}

/// The line holds as many bytes as it may. This returns the frame.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("the link already holds as many bytes as it may")]
pub struct Full(pub Bytes);

impl DelayLine {
    /// An empty line. It holds up to `max_bytes`, including an overhead of some 40 bytes for each frame, and draws its jitter from `seed`.
    pub fn new(max_bytes: usize, seed: u64) -> DelayLine {
        DelayLine {
            frames: VecDeque::new(),
            held_bytes: 0,
            max_bytes,
            last_release: Micros(0),
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Puts a frame on its way at `now`, with the current delay of the link.
    ///
    /// An empty line takes a frame of any size. Otherwise a frame larger than the bound would never pass. So the line holds at most the bound or one
    /// frame, whichever is larger.
    ///
    /// # Errors
    /// [`Full`] returns the frame if it would exceed the bound.
    pub fn push(&mut self, now: Micros, link: LinkDelay, frame: Bytes) -> Result<(), Full> {
        let cost = cost(&frame);
        if !self.frames.is_empty() && self.held_bytes.saturating_add(cost) > self.max_bytes {
            return Err(Full(frame));
        }
        let jitter = match link.jitter {
            Micros(0) => Micros(0),
            Micros(max) => Micros(self.random.random_range(0..=max)),
        };
        self.last_release = self.last_release.max(now + link.delay + jitter);
        self.held_bytes += cost;
        self.frames.push_back((self.last_release, frame));
        Ok(())
    }

    /// The next frame that is due, if there is one. Call it until it returns `None`.
    pub fn pop_due(&mut self, now: Micros) -> Option<Bytes> {
        self.next_release().filter(|&release| release <= now)?;
        let (_, frame) = self.frames.pop_front()?;
        self.held_bytes -= cost(&frame);
        Some(frame)
    }

    /// When the next frame is due; `None` if nothing is on its way.
    pub fn next_release(&self) -> Option<Micros> {
        self.frames.front().map(|(release, _)| *release)
    }

    /// Drops everything on its way, as a broken connection does.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.held_bytes = 0;
        self.last_release = Micros(0);
    }

    /// How many bytes it holds, overhead included.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// How many frames are on their way.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

fn cost(frame: &Bytes) -> usize {
    frame.len() + OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Micros {
        Micros::from_millis(ms)
    }

    fn frame(number: u32) -> Bytes {
        Bytes::copy_from_slice(&number.to_be_bytes())
    }

    #[test]
    fn a_frame_arrives_after_the_delay_and_not_before() {
        let mut line = DelayLine::new(1_000, 1);
        line.push(ms(100), LinkDelay::from_millis(40, 0), frame(1))
            .unwrap();
        assert_eq!(line.next_release(), Some(ms(140)));
        assert_eq!(line.pop_due(Micros(139_999)), None);
        assert_eq!(line.pop_due(ms(140)), Some(frame(1)));
        assert_eq!((line.next_release(), line.held_bytes()), (None, 0));
    }

    #[test]
    fn a_frame_sent_after_the_delay_was_lowered_does_not_overtake() {
        let mut line = DelayLine::new(1_000, 1);
        line.push(ms(0), LinkDelay::from_millis(40, 0), frame(1)).unwrap();
        line.push(ms(1), LinkDelay::NONE, frame(2)).unwrap();
        assert_eq!(line.pop_due(ms(39)), None);
        assert_eq!(line.pop_due(ms(40)), Some(frame(1)));
        assert_eq!(line.pop_due(ms(40)), Some(frame(2)));
    }

    #[test]
    fn a_full_line_gives_the_frame_back_until_one_was_taken() {
        let mut line = DelayLine::new(2 * (OVERHEAD_BYTES + 4), 1);
        let link = LinkDelay::from_millis(1, 0);
        line.push(ms(0), link, frame(1)).unwrap();
        line.push(ms(0), link, frame(2)).unwrap();
        assert_eq!(line.push(ms(0), link, frame(3)), Err(Full(frame(3))));
        assert_eq!(line.pop_due(ms(1)), Some(frame(1)));
        line.push(ms(1), link, frame(3)).unwrap();
        assert_eq!(line.len(), 2);
    }

    #[test]
    fn a_frame_larger_than_the_bound_passes_alone() {
        let mut line = DelayLine::new(10, 1);
        let large = Bytes::from(vec![7; 1_000]);
        line.push(ms(0), LinkDelay::NONE, large.clone()).unwrap();
        assert!(line.push(ms(0), LinkDelay::NONE, frame(1)).is_err());
        assert_eq!(line.pop_due(ms(0)), Some(large));
    }

    #[test]
    fn a_flood_of_empty_frames_is_bounded() {
        let mut line = DelayLine::new(1_000, 1);
        while line
            .push(ms(0), LinkDelay::from_millis(1, 0), Bytes::new())
            .is_ok()
        {
            assert!(line.len() <= 1_000);
        }
    }

    #[test]
    fn one_seed_draws_the_same_jitter_and_another_seed_another() {
        let releases = |seed| {
            let mut line = DelayLine::new(100_000, seed);
            (0..20)
                .map(|i| {
                    line.push(ms(i * 100), LinkDelay::from_millis(40, 10), frame(1))
                        .unwrap();
                    let release = line.next_release();
                    line.clear();
                    release
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(releases(7), releases(7));
        assert_ne!(releases(7), releases(8));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push { delay_us: u64, jitter_us: u64 },
        Pass { us: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..50_000u64, 0..10_000u64).prop_map(|(delay_us, jitter_us)| Step::Push { delay_us, jitter_us }),
            (0..30_000u64).prop_map(|us| Step::Pass { us }),
        ]
    }

    proptest! {
        /// Whatever the delays are, frames come out in order. Each comes within its time window, which is widened by the frames before it.
        #[test]
        fn frames_stay_in_order_and_within_their_window(
            steps in prop::collection::vec(step(), 1..200),
            seed: u64,
        ) {
            let mut line = DelayLine::new(usize::MAX, seed);
            let mut now = Micros(0);
            let mut windows: VecDeque<(u32, Micros, Micros)> = VecDeque::new();
            let (mut sent, mut earliest, mut latest) = (0, Micros(0), Micros(0));
            for step in steps {
                match step {
                    Step::Push { delay_us, jitter_us } => {
                        let link = LinkDelay { delay: Micros(delay_us), jitter: Micros(jitter_us) };
                        line.push(now, link, frame(sent)).unwrap();
                        earliest = earliest.max(now + link.delay);
                        latest = latest.max(now + link.delay + link.jitter);
                        windows.push_back((sent, earliest, latest));
                        sent += 1;
                    }
                    Step::Pass { us } => {
                        now = now + Micros(us);
                        while let Some(popped) = line.pop_due(now) {
                            let (number, earliest, _) = windows.pop_front().unwrap();
                            prop_assert_eq!(popped, frame(number));
                            prop_assert!(earliest <= now, "too early");
                        }
                        if let Some((_, _, latest)) = windows.front() {
                            prop_assert!(now < *latest, "too late");
                        }
                    }
                }
            }
        }
    }
}
