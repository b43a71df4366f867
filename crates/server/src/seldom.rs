use std::time::Duration;
use turnbuckle_core::Micros;

/// Limits what is logged about strangers: at most one line in a span of time, however many there are. The lines that are left out are counted.
pub(crate) struct Seldom {
    every: Micros,
    /// Nothing is logged before this time.
    quiet_until: Micros,
    left_out: u64,
}

impl Seldom {
    /// At most one line in each such span.
    pub fn new(every: Duration) -> Seldom {
        Seldom {
            every: Micros(every.as_micros() as u64),
            quiet_until: Micros(0),
            left_out: 0,
        }
    }

    /// Whether a line may be logged now, on a clock that is never set back. If not, it is counted.
    pub fn may_say(&mut self, now: Micros) -> bool {
        let may = self.quiet_until <= now;
        match may {
            true => self.quiet_until = now + self.every,
            false => self.left_out += 1,
        }
        may
    }

    /// How many lines were left out since this was last called.
    pub fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    /// How many lines were left out, if there are any and a line may be logged now to say so.
    pub fn sum_up(&mut self, now: Micros) -> Option<u64> {
        let is_time = self.left_out > 0 && self.quiet_until <= now;
        (is_time && self.may_say(now)).then(|| self.take_left_out())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_lines_are_left_out_and_counted() {
        let mut seldom = Seldom::new(Duration::from_secs(10));
        let ms = Micros::from_millis;
        let said = (0..80_000).filter(|&at| seldom.may_say(ms(at / 10))).count();
        assert_eq!((said, seldom.left_out), (1, 79_999));
        assert_eq!(seldom.sum_up(ms(9_999)), None);
        assert_eq!(seldom.sum_up(ms(10_000)), Some(79_999));
        assert_eq!(seldom.sum_up(ms(30_000)), None);
        assert!(seldom.may_say(ms(30_000)) && !seldom.may_say(ms(30_001)));
        assert_eq!((seldom.take_left_out(), seldom.take_left_out()), (1, 0));
    }
}
