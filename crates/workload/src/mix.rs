use crate::Random;
use serde::Deserialize;
use thiserror::Error;

/// What a client does to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Reads the record.
    Read,
    /// Writes a value to a record that exists.
    Update,
    /// Writes a record that did not exist.
    Insert,
    /// Reads the record and then writes it.
    ReadModifyWrite,
}

/// How often each action is done: four proportions that add up to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    /// The ends of the actions' shares, one after the other. The last share ends at 1.
    read: f64,
    update: f64,
    insert: f64,
}

/// How often one action is done, from 0 to 1.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Proportion(pub f64);

impl TryFrom<f64> for Proportion {
    type Error = BadMix;

    fn try_from(share: f64) -> Result<Proportion, BadMix> {
        let is_share = (0.0..=1.0).contains(&share);
        is_share
            .then_some(Proportion(share))
            .ok_or(BadMix::Proportion(share))
    }
}

/// Proportions that are not valid.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum BadMix {
    /// One is not between 0 and 1.
    #[error("a proportion of {0}; expected 0 to 1")]
    Proportion(f64),
    /// They do not add up to 1.
    #[error("proportions that add up to {0}; expected 1")]
    Sum(f64),
}

impl Mix {
    /// The proportions of reads, updates, inserts and read-modify-writes.
    pub fn new(read: f64, update: f64, insert: f64, read_modify_write: f64) -> Result<Mix, BadMix> {
        let proportions = [read, update, insert, read_modify_write];
        for share in proportions {
            Proportion::try_from(share)?;
        }
        let sum: f64 = proportions.iter().sum();
        if (sum - 1.0).abs() > 1e-6 {
            return Err(BadMix::Sum(sum));
        }
        // The remainder of rounding goes to the last action whose proportion is not 0, never to one whose proportion is 0.
        let end = |end: f64, behind: f64| if behind == 0.0 { 1.0 } else { end };
        Ok(Mix {
            read: end(read, update + insert + read_modify_write),
            update: end(read + update, insert + read_modify_write),
            insert: end(read + update + insert, read_modify_write),
        })
    }

    /// Whether the mix has inserts.
    pub fn inserts(&self) -> bool {
        self.update < self.insert
    }

    /// The next action.
    pub fn choose(&self, random: &mut Random) -> Action {
        let unit = random.unit();
        if unit < self.read {
            Action::Read
        } else if unit < self.update {
            Action::Update
        } else if unit < self.insert {
            Action::Insert
        } else {
            Action::ReadModifyWrite
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn count(mix: Mix) -> BTreeMap<Action, u32> {
        let mut random = Random::new(3, 0);
        let mut counts = BTreeMap::new();
        for _ in 0..100_000 {
            *counts.entry(mix.choose(&mut random)).or_default() += 1;
        }
        counts
    }

    #[test]
    fn actions_are_chosen_in_their_proportions() {
        let counts = count(Mix::new(0.5, 0.3, 0.05, 0.15).expect("a mix"));
        for (action, expected) in [
            (Action::Read, 50_000u32),
            (Action::Update, 30_000),
            (Action::Insert, 5_000),
            (Action::ReadModifyWrite, 15_000),
        ] {
            // Four standard deviations.
            let chance = f64::from(expected) / 1e5;
            let tolerance = (4.0 * (1e5 * chance * (1.0 - chance)).sqrt()) as u32;
            assert!(counts[&action].abs_diff(expected) < tolerance, "{counts:?}");
        }
    }

    #[test]
    fn what_has_no_share_is_never_done() {
        for (mix, action) in [
            (Mix::new(1.0, 0.0, 0.0, 0.0), Action::Read),
            (Mix::new(0.0, 1.0, 0.0, 0.0), Action::Update),
            (Mix::new(0.0, 0.999_999_9, 0.0, 0.0), Action::Update),
            (Mix::new(0.0, 0.0, 1.0, 0.0), Action::Insert),
            (Mix::new(0.0, 0.0, 0.0, 1.0), Action::ReadModifyWrite),
        ] {
            let mix = mix.expect("a mix");
            assert_eq!(count(mix), BTreeMap::from([(action, 100_000)]));
            assert_eq!(mix.inserts(), action == Action::Insert);
        }
    }

    #[test]
    fn proportions_that_are_none_are_refused() {
        assert_eq!(Mix::new(0.5, 0.4, 0.0, 0.0), Err(BadMix::Sum(0.9)));
        assert_eq!(Mix::new(1.5, -0.5, 0.0, 0.0), Err(BadMix::Proportion(1.5)));
        assert_eq!(Mix::new(1.0, -0.5, 0.5, 0.0), Err(BadMix::Proportion(-0.5)));
        assert!(Mix::new(f64::NAN, 0.0, 0.0, 1.0).is_err());
    }
}
