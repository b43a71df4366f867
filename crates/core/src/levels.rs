use crate::{Failure, Level, Operation, Wanted};

/// The levels that operations on keyspaces of a protocol may name, the protocol's default first. A level with an argument stands for that level with
/// any argument: `bounded(0us)` is shown as `bounded(t)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// The levels of reads.
    pub reads: &'static [Level],
    /// The levels of writes and deletes.
    pub writes: &'static [Level],
}

impl Levels {
    /// The same levels for reads and for writes.
    pub const fn of_both(levels: &'static [Level]) -> Levels {
        Levels {
            reads: levels,
            writes: levels,
        }
    }

    /// Each level once, those of reads first.
    pub fn all(self) -> impl Iterator<Item = Level> {
        let writes = self
            .writes
            .iter()
            .filter(move |level| !level.is_among(self.reads));
        self.reads.iter().chain(writes).copied()
    }
}

/// The levels of one keyspace: those that it offers, and those that it uses for operations that name none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyspaceLevels {
    /// The levels that its protocol offers.
    pub offered: Levels,
    /// The default of reads.
    pub read: Level,
    /// The default of writes and deletes.
    pub write: Level,
}

impl KeyspaceLevels {
    /// With the protocol's defaults.
    pub fn of(offered: Levels) -> KeyspaceLevels {
        KeyspaceLevels {
            offered,
            read: offered.reads[0],
            write: offered.writes[0],
        }
    }

    /// The level of an operation: the one that it names, or the default.
    ///
    /// # Errors
    /// If the keyspace does not offer it.
    pub fn resolve(&self, operation: &Operation) -> Result<Level, Failure> {
        let default = match operation {
            Operation::Put { .. } | Operation::Transact { .. } => self.write,
            Operation::Get { .. }
            | Operation::Siblings { .. }
            | Operation::ReadMany { .. }
            | Operation::Watch { .. }
            | Operation::Scan { .. }
            | Operation::Count
            | Operation::Wait { .. }
            | Operation::Publish { .. }
            | Operation::First(_) => self.read,
        };
        let level = operation.level().unwrap_or(default);
        level.offered_by(self.offered, operation.is_write())
    }

    /// Checks that the keyspace offers every level that operations of a kind want.
    ///
    /// # Errors
    /// If it does not offer one of them, or if a write has a time after which the next level is tried: it may take effect later.
    pub fn check(&self, wanted: &Wanted, is_write: bool) -> Result<(), Failure> {
        for level in wanted.levels() {
            level.offered_by(self.offered, is_write)?;
        }
        let has_times = match wanted {
            Wanted::Level(_) => false,
            Wanted::First(chain) => chain.choices().iter().any(|choice| choice.within.is_some()),
        };
        if is_write && has_times {
            let why = "a write cannot be given up after a time, because it may take effect later: name its levels without 'within'";
            return Err(Failure::Unsupported(why.into()));
        }
        Ok(())
    }
}

impl Level {
    /// Whether the level is one of `levels`. Arguments are not compared.
    pub fn is_among(self, levels: &[Level]) -> bool {
        let kind = std::mem::discriminant(&self);
        levels.iter().any(|level| std::mem::discriminant(level) == kind)
    }

    /// This level, if it is one of those that are offered to reads or to writes.
    ///
    /// # Errors
    /// If it is not; the failure names the levels that are.
    pub fn offered_by(self, levels: Levels, is_write: bool) -> Result<Level, Failure> {
        let offered = match is_write {
            true => levels.writes,
            false => levels.reads,
        };
        match self.is_among(offered) {
            true => Ok(self),
            false => Err(Failure::BadLevel {
                asked: self,
                is_write,
                offered: offered.to_vec(),
            }),
        }
    }

    /// How the level is written, with a letter for its argument.
    pub fn form(self) -> String {
        match self {
            Level::Bounded(_) => "bounded(t)".into(),
            Level::Delay(_) => "delay(t)".into(),
            Level::Cpq(_) => "cpq(p)".into(),
            Level::Replicas(_) => "replicas(n)".into(),
            word => word.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Micros};

    const LEVELS: Levels = Levels {
        reads: &[Level::Quorum, Level::One, Level::Bounded(Micros(0))],
        writes: &[Level::Quorum, Level::All],
    };

    fn get(level: Option<Level>) -> Operation {
        Operation::Get {
            key: Key::from("k"),
            level,
        }
    }

    fn put(level: Option<Level>) -> Operation {
        Operation::delete(Key::from("k")).at(level)
    }

    #[test]
    fn reads_and_writes_have_defaults_of_their_own() {
        let levels = KeyspaceLevels {
            read: Level::One,
            ..KeyspaceLevels::of(LEVELS)
        };
        assert_eq!(levels.resolve(&get(None)), Ok(Level::One));
        assert_eq!(levels.resolve(&put(None)), Ok(Level::Quorum));
        assert_eq!(levels.resolve(&put(Some(Level::All))), Ok(Level::All));
    }

    #[test]
    fn a_level_with_an_argument_is_offered_with_any() {
        let levels = KeyspaceLevels::of(LEVELS);
        let bounded = Level::Bounded(Micros(2_000_000));
        assert_eq!(levels.resolve(&get(Some(bounded))), Ok(bounded));
        let refused = levels
            .resolve(&put(Some(bounded)))
            .expect_err("a write has no bound");
        assert!(refused.to_string().contains("quorum, all"), "{refused}");
        let refused = levels
            .resolve(&get(Some(Level::All)))
            .expect_err("no read asks all");
        assert!(refused.to_string().contains("bounded(t)"), "{refused}");
    }

    #[test]
    fn every_level_is_listed_once() {
        let all: Vec<String> = LEVELS.all().map(Level::form).collect();
        assert_eq!(all, ["quorum", "one", "bounded(t)", "all"]);
    }
}
