use std::time::Duration;
use turnbuckle_core::Micros;

/// Limits how often something is logged that anybody can cause: at most one line in a span of time. The lines that are left out are counted.
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

    /// Whether a line may be logged now, on a clock that is never set back. If so, it returns what belongs behind the line: how many were left out before it.
    /// If not, this line is counted.
    pub fn may_say(&mut self, now: Micros) -> Option<String> {
        if now < self.quiet_until {
            self.left_out += 1;
            return None;
        }
        self.quiet_until = now + self.every;
        Some(match std::mem::take(&mut self.left_out) {
            0 => String::new(),
            more => format!(" (left out of the log since the last such line: {more})"),
        })
    }

    /// How many lines were left out, if there are any and a line may be logged now to say so: for the end of a flood.
    pub fn sum_up(&mut self, now: Micros) -> Option<u64> {
        if self.left_out == 0 || now < self.quiet_until {
            return None;
        }
        self.quiet_until = now + self.every;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Micros = Micros::from_millis;

    #[test]
    fn of_a_flood_one_line_is_logged_and_the_others_are_counted() {
        let mut seldom = Seldom::new(Duration::from_secs(10));
        let said = (0..80_000).filter_map(|at| seldom.may_say(MS(at / 10)));
        assert_eq!(said.collect::<Vec<_>>(), [""]);
        assert_eq!(seldom.sum_up(MS(9_999)), None);
        assert_eq!(seldom.sum_up(MS(10_000)), Some(79_999));
        assert_eq!(seldom.sum_up(MS(30_000)), None);
    }

    #[test]
    fn what_goes_on_is_logged_with_what_was_left_out() {
        let mut seldom = Seldom::new(Duration::from_secs(10));
        let said = (0..=30)
            .step_by(5)
            .filter_map(|at| seldom.may_say(MS(1_000 * at)));
        let one = " (left out of the log since the last such line: 1)";
        assert_eq!(said.collect::<Vec<_>>(), ["", one, one, one]);
    }
}
