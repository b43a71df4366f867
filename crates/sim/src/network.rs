//! How long a frame is under way, and which frames are lost.
use crate::Random;
use serde::Deserialize;
use turnbuckle_core::Micros;
use turnbuckle_document::{number, word};

/// How much longer than the least time a frame is under way. Drawn for each frame.
///
/// All of it is computed in integers: a seed must mean the same world with every compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Jitter {
    /// Evenly from 0 to this.
    Uniform(#[serde(deserialize_with = "word")] Micros),
    /// Exponentially, with this mean: queues at routers. Twenty times the mean at most.
    Exponential(#[serde(deserialize_with = "word")] Micros),
    /// A normal distribution with this standard deviation, folded at its mean.
    Normal(#[serde(deserialize_with = "word")] Micros),
    /// 0, but in one of a number of frames this much: as pauses and retransmissions do.
    Spikes {
        /// One frame in this number.
        #[serde(deserialize_with = "number::<_, 1, { u64::MAX }>")]
        one_in: u64,
        /// By this much.
        #[serde(deserialize_with = "word")]
        by: Micros,
    },
}

impl Jitter {
    /// No jitter.
    pub const NONE: Jitter = Jitter::Uniform(Micros(0));

    /// Whether it is always 0.
    pub(crate) fn is_none(self) -> bool {
        matches!(
            self,
            Jitter::Uniform(Micros(0))
                | Jitter::Exponential(Micros(0))
                | Jitter::Normal(Micros(0))
                | Jitter::Spikes { by: Micros(0), .. }
        )
    }

    /// Almost no jitter is longer.
    pub(crate) fn longest(self) -> Micros {
        match self {
            Jitter::Uniform(max) => max,
            Jitter::Exponential(mean) => Micros(5 * mean.0),
            Jitter::Normal(deviation) => Micros(4 * deviation.0),
            Jitter::Spikes { by, .. } => by,
        }
    }

    /// Draws the next jitter.
    pub fn draw(self, random: &mut Random) -> Micros {
        match self {
            Jitter::Uniform(max) => Micros(random.below(max.0.saturating_add(1))),
            Jitter::Exponential(mean) => {
                // -ln(u) for u in (0, 1], in 32 bits behind the point.
                let ln = minus_ln(random.bits() >> 32 | 1);
                Micros(((u128::from(ln) * u128::from(mean.0)) >> 32) as u64)
            }
            Jitter::Normal(deviation) => {
                // Twelve evenly drawn numbers less their mean: variance 1.
                let sum: u64 = (0..12).map(|_| random.bits() >> 32).sum();
                let from_mean = sum.abs_diff(6 << 32);
                Micros(((u128::from(from_mean) * u128::from(deviation.0)) >> 32) as u64)
            }
            Jitter::Spikes { one_in, by } => match random.below(one_in.max(1)) {
                0 => by,
                _ => Micros(0),
            },
        }
    }
}

/// -ln(u / 2^32) with 32 bits behind the point, for u from 1 to 2^32 - 1.
fn minus_ln(u: u64) -> u64 {
    const LN_2: u128 = 2_977_044_472; // ln(2) * 2^32
    // log2(u) bit by bit: squaring doubles it.
    let whole = u64::from(u.ilog2());
    let mut mantissa = u128::from(u) << 62 >> whole;
    let mut log2 = u128::from(whole) << 32;
    for bit in (0..32).rev() {
        mantissa = (mantissa * mantissa) >> 62;
        if mantissa >> 63 != 0 {
            mantissa >>= 1;
            log2 |= 1 << bit;
        }
    }
    ((((32_u128 << 32) - log2) * LN_2) >> 32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    /// Mean and standard deviation in microseconds.
    fn moments(jitter: Jitter) -> (f64, f64) {
        let mut random = Random::new(1);
        let drawn: Vec<f64> = (0..DRAWS).map(|_| jitter.draw(&mut random).0 as f64).collect();
        let mean = drawn.iter().sum::<f64>() / DRAWS as f64;
        let variance = drawn.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / DRAWS as f64;
        (mean, variance.sqrt())
    }

    fn is_near(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 0.02 * expected
    }

    #[test]
    fn distributions_have_their_moments() {
        const MS: Micros = Micros(10_000);
        let (mean, deviation) = moments(Jitter::Uniform(MS));
        assert!(is_near(mean, 5_000.0) && is_near(deviation, 10_000.0 / 12_f64.sqrt()));
        let (mean, deviation) = moments(Jitter::Exponential(MS));
        assert!(
            is_near(mean, 10_000.0) && is_near(deviation, 10_000.0),
            "{mean} {deviation}"
        );
        // Half normal.
        let (mean, _) = moments(Jitter::Normal(MS));
        assert!(
            is_near(mean, 10_000.0 * (2.0 / std::f64::consts::PI).sqrt()),
            "{mean}"
        );
        let (mean, _) = moments(Jitter::Spikes { one_in: 10, by: MS });
        assert!(is_near(mean, 1_000.0), "{mean}");
        assert_eq!(moments(Jitter::NONE), (0.0, 0.0));
    }

    #[test]
    fn logarithms_are_those_of_the_books() {
        for u in [1_u64, 2, 3, 1_000, 123_456_789, (1 << 32) - 1] {
            let expected = -(u as f64 / (1_u64 << 32) as f64).ln();
            let found = minus_ln(u) as f64 / (1_u64 << 32) as f64;
            assert!((found - expected).abs() < 1e-6, "{u}: {found}, {expected}");
        }
    }
}
