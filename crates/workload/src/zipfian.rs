use crate::Random;

/// Draws ranks of a zipfian distribution: rank 0 is the most popular, rank k is drawn in proportion to
/// 1 / (k + 1)^theta.
///
/// The method of Gray et al., *Quickly Generating Billion-Record Synthetic Databases* (SIGMOD 1994), as YCSB uses it, so
/// that numbers can be compared with those of others: one power per draw. The number of ranks may grow, which costs one
/// power for each new rank.
///
/// *Limit:* only ranks 0 and 1 are drawn with exactly their probability. The others come from a continuous curve laid
/// through the distribution. At theta 0.99 rank 2 is drawn 17 to 20 % too often, rank 9 is drawn 2 to 4 % too often, and the
/// ranks further down are drawn up to 4 % too rarely.
#[derive(Debug, Clone)]
pub struct Zipfian {
    ranks: u64,
    theta: f64,
    /// The sum of 1 / k^theta for k from 1 to `ranks`.
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    /// YCSB's skew.
    pub const THETA: f64 = 0.99;

    /// Draws from `ranks` ranks. Adds up that number of terms: about 20 ms per million.
    ///
    /// # Panics
    /// If there is no rank, or `theta` is not between 0 and 1.
    pub fn new(ranks: u64, theta: f64) -> Zipfian {
        Zipfian::with_zeta(ranks, theta, add_terms(0.0, 0..ranks, theta))
    }

    /// The same, with a known sum of the terms: for a number of ranks that would take too long to add up.
    pub(crate) fn with_zeta(ranks: u64, theta: f64, zeta: f64) -> Zipfian {
        assert!(ranks > 0, "a zipfian distribution needs a rank to draw");
        assert!(
            theta > 0.0 && theta < 1.0,
            "a theta of {theta}, expected more than 0 and less than 1"
        );
        let mut zipfian = Zipfian {
            ranks,
            theta,
            zeta,
            alpha: 1.0 / (1.0 - theta),
            eta: 0.0,
        };
        zipfian.set_eta();
        zipfian
    }

    /// Draws from more ranks from now on. A smaller number is ignored: records do not go away.
    pub fn grow(&mut self, ranks: u64) {
        if ranks > self.ranks {
            self.zeta = add_terms(self.zeta, self.ranks..ranks, self.theta);
            self.ranks = ranks;
            self.set_eta();
        }
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u64 {
        self.ranks
    }

    /// The next rank, less than [`Zipfian::ranks`].
    pub fn draw(&mut self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let place = (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        // Rounding may move the curve's end beyond the last rank.
        ((self.ranks as f64 * place) as u64).min(self.ranks - 1)
    }

    /// `eta` scales the curve so that it begins where ranks 0 and 1 end. With one or two ranks it is never used.
    fn set_eta(&mut self) {
        let zeta_of_two = 1.0 + 0.5f64.powf(self.theta);
        self.eta = (1.0 - (2.0 / self.ranks as f64).powf(1.0 - self.theta)) / (1.0 - zeta_of_two / self.zeta);
    }
}

fn add_terms(sum: f64, ranks: std::ops::Range<u64>, theta: f64) -> f64 {
    ranks.fold(sum, |sum, rank| sum + 1.0 / ((rank + 1) as f64).powf(theta))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 400_000;

    fn count(zipfian: &mut Zipfian, seed: u64) -> Vec<u64> {
        let mut random = Random::new(seed, 0);
        let mut counts = vec![0; zipfian.ranks() as usize];
        for _ in 0..DRAWS {
            counts[zipfian.draw(&mut random) as usize] += 1;
        }
        counts
    }

    /// The distribution itself, added up in the simplest way.
    fn exact(ranks: usize, theta: f64) -> Vec<f64> {
        let weights: Vec<f64> = (1..=ranks).map(|rank| (rank as f64).powf(-theta)).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect()
    }

    /// The chance of each rank if the method is implemented correctly: its curve, inverted.
    fn by_the_curve(ranks: usize, theta: f64) -> Vec<f64> {
        let exact = exact(ranks, theta);
        let eta = (1.0 - (2.0 / ranks as f64).powf(1.0 - theta)) / (1.0 - exact[0] - exact[1]);
        let below = |rank: usize| ((rank as f64 / ranks as f64).powf(1.0 - theta) - 1.0 + eta) / eta;
        let mut chances = vec![exact[0], exact[1]];
        chances.extend((2..ranks).map(|rank| below(rank + 1) - below(rank)));
        chances
    }

    /// Pearson's statistic over its degrees of freedom: about 1 if the counts are of that distribution.
    fn misfit(counts: &[u64], chances: &[f64]) -> f64 {
        let draws: u64 = counts.iter().sum();
        let sum: f64 = counts
            .iter()
            .zip(chances)
            .map(|(&count, chance)| {
                let expected = chance * draws as f64;
                (count as f64 - expected).powi(2) / expected
            })
            .sum();
        sum / (counts.len() - 1) as f64
    }

    #[test]
    fn ranks_are_drawn_as_often_as_the_method_says() {
        for (ranks, theta) in [(1000, 0.99), (100, 0.99), (50, 0.5), (3, 0.99)] {
            let counts = count(&mut Zipfian::new(ranks, theta), 11);
            let misfit = misfit(&counts, &by_the_curve(ranks as usize, theta));
            assert!(misfit < 1.3, "{ranks} ranks, theta {theta}: {misfit}");
        }
    }

    #[test]
    fn ranks_are_drawn_nearly_as_often_as_the_distribution_says() {
        let counts = count(&mut Zipfian::new(1000, Zipfian::THETA), 12);
        let exact = exact(1000, Zipfian::THETA);
        for (ranks, tolerance) in [
            (0..1, 0.01),
            (1..2, 0.01),
            (2..3, 0.20),
            (3..10, 0.08),
            (10..100, 0.03),
            (100..1000, 0.05),
        ] {
            let drawn = counts[ranks.clone()].iter().sum::<u64>() as f64 / DRAWS as f64;
            let expected: f64 = exact[ranks.clone()].iter().sum();
            let error = (drawn - expected).abs() / expected;
            assert!(error < tolerance, "ranks {ranks:?}: {drawn}, expected {expected}");
        }
    }

    #[test]
    fn growing_is_the_same_as_having_been_larger_all_along() {
        let mut grown = Zipfian::new(1, Zipfian::THETA);
        for ranks in [2, 3, 10, 500, 1000, 7] {
            grown.grow(ranks);
        }
        assert_eq!(grown.ranks(), 1000);
        assert_eq!(
            count(&mut grown, 13),
            count(&mut Zipfian::new(1000, Zipfian::THETA), 13)
        );
    }

    #[test]
    fn one_rank_and_two_ranks_work() {
        assert_eq!(count(&mut Zipfian::new(1, 0.99), 1), [DRAWS]);
        let two = count(&mut Zipfian::new(2, 0.99), 1);
        assert!(misfit(&two, &exact(2, 0.99)) < 6.0, "{two:?}");
    }
}
