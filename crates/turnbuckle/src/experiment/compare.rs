//! How numbers are compared for a claim: see the table in [`super::file`].
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    Value,
    Ratio,
    Difference,
    LowerBy,
    Spread,
    Growth,
    Step,
    Rise,
}

const COMPARES: [(&str, Compare); 8] = [
    ("value", Compare::Value),
    ("ratio", Compare::Ratio),
    ("difference", Compare::Difference),
    ("lower-by", Compare::LowerBy),
    ("spread", Compare::Spread),
    ("growth", Compare::Growth),
    ("step", Compare::Step),
    ("rise", Compare::Rise),
];

impl Compare {
    /// Two numbers, compared.
    pub fn two(self, of: f64, to: f64) -> f64 {
        match self {
            Compare::Ratio => of / to,
            Compare::LowerBy => 100.0 * (1.0 - of / to),
            _ => of - to,
        }
    }

    /// The numbers along x, compared. NaN if they cannot be.
    pub fn along(self, numbers: &[f64]) -> f64 {
        let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
        let min = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let max = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let steps = numbers.windows(2).map(|pair| pair[1] / pair[0]);
        if self == Compare::Step && !steps.clone().all(f64::is_finite) {
            return f64::NAN;
        }
        let rises = numbers.windows(2).map(|pair| pair[1] - pair[0]);
        match self {
            Compare::Rise => rises.fold(f64::NEG_INFINITY, f64::max),
            Compare::Spread => max / min,
            Compare::Growth => last / first,
            _ => steps.fold(f64::INFINITY, f64::min),
        }
    }

    pub fn takes_two(self) -> bool {
        matches!(self, Compare::Ratio | Compare::Difference | Compare::LowerBy)
    }

    /// Whether it is about all values of x.
    pub fn is_along_x(self) -> bool {
        matches!(
            self,
            Compare::Spread | Compare::Growth | Compare::Step | Compare::Rise
        )
    }

    pub fn name(self) -> &'static str {
        let found = COMPARES.iter().find(|(_, compare)| *compare == self);
        found.map_or("", |(name, _)| name)
    }
}

impl FromStr for Compare {
    type Err = String;

    fn from_str(name: &str) -> Result<Compare, String> {
        let found = COMPARES.iter().find(|(known, _)| *known == name);
        let expected = || format!("expected one of {}", COMPARES.map(|(name, _)| name).join(", "));
        found.map(|&(_, compare)| compare).ok_or_else(expected)
    }
}
