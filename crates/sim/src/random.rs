use std::ops::RangeInclusive;
use turnbuckle_core::Micros;

/// The only source of chance in a simulated world: splitmix64. The same seed gives the same draws, everywhere and always.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Draws that follow from `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ bits >> 31
    }

    /// A number below `bound`; 0 if that is 0. It has the bias of a multiplication, far below what a test could see.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in a range.
    pub fn of(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// True with a probability of `percent` percent.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Draws one of `from`.
    ///
    /// # Panics
    /// If `from` is empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// Draws a time from a span.
    pub fn span(&mut self, span: Span) -> Micros {
        Micros(self.of(span.min.0..=span.max.0))
    }
}

/// The range of how long something takes. It is drawn each time, evenly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The shortest time.
    pub min: Micros,
    /// The longest time.
    pub max: Micros,
}

impl Span {
    /// Always the same time.
    pub const fn fixed(time: Micros) -> Span {
        Span { min: time, max: time }
    }

    /// From `min` to `max` microseconds.
    pub const fn us(min: u64, max: u64) -> Span {
        Span {
            min: Micros(min),
            max: Micros(max),
        }
    }
}
