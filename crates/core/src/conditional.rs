use std::{fmt, str::FromStr};

/// What a keyspace does with writes that depend on the value before them, if its protocol cannot decide them exactly: with conditions, with writes that
/// return the value before them, and with values that are computed from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conditional {
    /// It refuses them.
    #[default]
    Refuse,
    /// The replica that takes the write decides by what its site shows. That is atomic at this site. Between sites the last writer wins.
    Site,
}

impl Conditional {
    /// Both, with their names in configuration files.
    pub const ALL: [(Conditional, &str); 2] = [(Conditional::Refuse, "refuse"), (Conditional::Site, "site")];
}

impl fmt::Display for Conditional {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Conditional::ALL[*self as usize].1)
    }
}

impl FromStr for Conditional {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Conditional, &'static str> {
        let known = Conditional::ALL.into_iter().find(|(_, name)| *name == text);
        known
            .map(|(conditional, _)| conditional)
            .ok_or("expected \"refuse\" or \"site\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_read_as_it_is_written() {
        for (conditional, name) in Conditional::ALL {
            assert_eq!(
                (conditional.to_string().as_str(), name.parse()),
                (name, Ok(conditional))
            );
        }
        assert!("exact".parse::<Conditional>().is_err());
        assert_eq!(Conditional::default(), Conditional::Refuse);
    }
}
