use crate::{Population, Random, Zipfian};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use thiserror::Error;

/// Which records are popular.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// All records are equally popular.
    Uniform,
    /// Few records are very popular. They are scattered over all records.
    Zipfian,
    /// The newest records are popular.
    Latest,
}

impl Distribution {
    /// All distributions, in the order in which messages name them.
    pub const ALL: [Distribution; 3] = [Distribution::Uniform, Distribution::Zipfian, Distribution::Latest];
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Distribution::Uniform => "uniform",
            Distribution::Zipfian => "zipfian",
            Distribution::Latest => "latest",
        })
    }
}

/// A distribution that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{0}' is no distribution; expected uniform, zipfian or latest")]
pub struct BadDistribution(String);

impl FromStr for Distribution {
    type Err = BadDistribution;

    fn from_str(text: &str) -> Result<Distribution, BadDistribution> {
        Distribution::ALL
            .into_iter()
            .find(|known| known.to_string() == text)
            .ok_or_else(|| BadDistribution(text.chars().take(64).collect()))
    }
}

/// Chooses the records that a client reads and updates.
///
/// `zipfian` is YCSB's *scrambled* zipfian: ranks of ten billion imagined items are hashed onto the records. So the popular
/// records are anywhere, and their popularity hardly depends on the number of records. The most popular one gets about 4 %
/// of the choices. `latest` counts zipfian ranks back from the newest record.
///
/// ```text
///   zipfian   rank 0 1 2 3 ...          latest    record 0 1 2 ... n-2 n-1
///                  \ \ \ \                                       \   |
///                   hash, onto records                    rank  ...  1   0
/// ```
///
/// YCSB must be told beforehand how many inserts will come. Here the number of records may grow: hashes are mapped by
/// *linear hashing*, so that each new record takes a part of the choices of one old record, and the popularity of all others
/// does not change.
#[derive(Debug, Clone)]
pub struct Chooser(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Uniform,
    Zipfian(Zipfian),
    Latest(Zipfian),
}

/// YCSB's number of imagined items, and the sum of their terms, which would take minutes to add up.
const ITEMS: u64 = 10_000_000_000;
const ZETA_OF_ITEMS: f64 = 26.469_028_201_783_02;

impl Chooser {
    /// A chooser among `loaded` records. `latest` adds up that number of terms, so make one and clone it for each client.
    pub fn new(distribution: Distribution, loaded: u64) -> Chooser {
        Chooser(match distribution {
            Distribution::Uniform => Kind::Uniform,
            Distribution::Zipfian => Kind::Zipfian(Zipfian::with_zeta(ITEMS, Zipfian::THETA, ZETA_OF_ITEMS)),
            Distribution::Latest => Kind::Latest(Zipfian::new(loaded, Zipfian::THETA)),
        })
    }

    /// The number of a record, less than the population's length.
    pub fn choose(&mut self, random: &mut Random, population: &Population) -> u64 {
        let records = population.len();
        match &mut self.0 {
            Kind::Uniform => random.below(records),
            Kind::Zipfian(zipfian) => land(hash(zipfian.draw(random)), population.loaded(), records),
            Kind::Latest(zipfian) => {
                zipfian.grow(records);
                records - 1 - zipfian.draw(random)
            }
        }
    }
}

/// Linear hashing onto `records` records, of which there were `loaded` at first. Each added record takes its share from one
/// earlier record.
fn land(hash: u64, loaded: u64, records: u64) -> u64 {
    let mut half = loaded;
    while half * 2 <= records {
        half *= 2;
    }
    let place = hash % (half * 2);
    if place < records { place } else { place % half }
}

/// YCSB's hash of a number: 64-bit FNV-1a over its bytes, lowest first, without the sign bit.
fn hash(number: u64) -> u64 {
    let hash = number
        .to_le_bytes()
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211)
        });
    (hash as i64).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 300_000;

    fn count(distribution: Distribution, records: u64) -> Vec<u64> {
        let mut chooser = Chooser::new(distribution, records);
        let (mut random, population) = (Random::new(5, 0), Population::new(records));
        let mut counts = vec![0; records as usize];
        for _ in 0..DRAWS {
            counts[chooser.choose(&mut random, &population) as usize] += 1;
        }
        counts
    }

    /// The first keys that YCSB itself loads are user6284781860667377211 and user8517097267634966620.
    #[test]
    fn the_hash_is_that_of_ycsb() {
        assert_eq!(hash(0), 6_284_781_860_667_377_211);
        assert_eq!(hash(1), 8_517_097_267_634_966_620);
    }

    #[test]
    fn uniform_chooses_every_record_equally_often() {
        let counts = count(Distribution::Uniform, 100);
        let expected = DRAWS as f64 / 100.0;
        let sum: f64 = counts
            .iter()
            .map(|&count| (count as f64 - expected).powi(2) / expected)
            .sum();
        assert!(sum / 99.0 < 1.4, "{sum}");
    }

    /// The oracle: the chances of the first two million ranks one by one, and the rest of the ten billion spread evenly. The
    /// chances are those of the method (its curve, inverted), which are not quite those of the distribution.
    #[test]
    fn zipfian_chooses_each_record_as_often_as_the_ranks_that_hash_to_it() {
        let (items, flat) = (ITEMS as f64, 1.0 - Zipfian::THETA);
        let first_two = 1.0 + 0.5f64.powf(Zipfian::THETA);
        let eta = (1.0 - (2.0 / items).powf(flat)) / (1.0 - first_two / ZETA_OF_ITEMS);
        let below = |rank: u64| match rank {
            0 => 0.0,
            1 => 1.0 / ZETA_OF_ITEMS,
            rank => ((rank as f64 / items).powf(flat) - 1.0 + eta) / eta,
        };
        let mut chances = [0.0; 100];
        for rank in 0..2_000_000 {
            chances[(hash(rank) % 100) as usize] += below(rank + 1) - below(rank);
        }
        let rest = 1.0 - below(2_000_000);
        let counts = count(Distribution::Zipfian, 100);
        let sum: f64 = counts
            .iter()
            .zip(chances)
            .map(|(&count, chance)| {
                let expected = (chance + rest / 100.0) * DRAWS as f64;
                (count as f64 - expected).powi(2) / expected
            })
            .sum();
        assert!(sum / 99.0 < 1.4, "{sum}");
        assert!(counts[(hash(0) % 100) as usize] > DRAWS / 25, "{counts:?}");
    }

    #[test]
    fn latest_is_zipfian_from_the_newest_record_backwards() {
        let counts = count(Distribution::Latest, 1000);
        let mut zipfian = Zipfian::new(1000, Zipfian::THETA);
        let mut random = Random::new(5, 0);
        let mut expected = vec![0; 1000];
        for _ in 0..DRAWS {
            expected[999 - zipfian.draw(&mut random) as usize] += 1;
        }
        assert_eq!(counts, expected);
        assert!(counts[999] > counts[998] && counts[998] > counts[0]);
    }

    #[test]
    fn latest_follows_the_inserts() {
        let mut population = Population::new(10);
        let mut chooser = Chooser::new(Distribution::Latest, 10);
        let mut random = Random::new(1, 0);
        for _ in 0..90 {
            let record = population.take();
            population.finish(record);
        }
        let newest = (0..1000)
            .filter(|_| chooser.choose(&mut random, &population) == 99)
            .count();
        // One in zeta(100) = 5.3 choices.
        assert!((150..230).contains(&newest), "{newest}");
    }

    #[test]
    fn a_new_record_takes_its_choices_from_one_old_record_only() {
        for records in 10..200 {
            let moved: Vec<(u64, u64)> = (0..20_000)
                .map(|rank| (land(hash(rank), 10, records), land(hash(rank), 10, records + 1)))
                .filter(|(before, after)| before != after)
                .collect();
            assert!(!moved.is_empty());
            for place in &moved {
                assert_eq!(*place, (moved[0].0, records));
            }
        }
    }
}
