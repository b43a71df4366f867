//! The settings of a protocol that a keyspace's configuration may change, by name.
//!
//! A protocol lists its [`Parameter`]s. Each refers to a field of the protocol's own configuration, a plain struct whose `Default` has the defaults.
//! The list determines what a configuration file may say, what is reported as wrong with it, the reference in the docs, and the values that simulated
//! worlds try.
use crate::{Micros, Protocol};
use std::{collections::BTreeMap, fmt, ops::RangeInclusive};

/// One parameter of a protocol with the configuration `C`.
pub struct Parameter<C: 'static> {
    /// Its name in configuration files.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub what: &'static str,
    /// Returns the field of the configuration that it sets.
    pub of: fn(&mut C) -> Setting<'_>,
}

/// A field of a configuration, and the values that it may have.
pub enum Setting<'a> {
    /// A time: how often something happens, or how long it may take, from 1 ms to 60 s.
    Interval(&'a mut Micros),
    /// A time that may be zero: how late or how old something may be, up to 60 s.
    Allowance(&'a mut Micros),
    /// A whole number, and the range that it must be in.
    Count(&'a mut usize, RangeInclusive<usize>),
}

/// The value that a parameter is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// A time.
    Interval(Micros),
    /// A whole number.
    Count(usize),
}

/// What a configuration file gives as the value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given<'a> {
    /// Text in quotes.
    Text(&'a str),
    /// A whole number.
    Number(i64),
    /// A value of any other kind, such as a list. The text names the kind.
    Other(&'a str),
}

/// A value in a configuration file that a protocol's parameter cannot have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSetting {
    /// What was found.
    pub found: String,
    /// What was expected.
    pub expected: String,
    /// Whether the protocol has no parameter of that name.
    pub is_unknown: bool,
}

/// A parameter that does not fit the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Its name.
    pub parameter: &'static str,
    /// Its value.
    pub found: String,
    /// What was expected of it.
    pub expected: String,
}

/// A parameter as a line of the reference for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterLine {
    /// Its name.
    pub name: &'static str,
    /// Its default.
    pub default: Value,
    /// The values that it may have.
    pub expected: String,
    /// What it is, in one sentence.
    pub what: &'static str,
}

/// The parameters that are set, and their values. All other parameters have their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings(BTreeMap<String, Value>);

/// The intervals that may be set. With a shorter one, a node would be busy with nothing else. With a longer one, a user would see no effect.
const INTERVALS: RangeInclusive<Micros> = Micros::from_millis(1)..=Micros::from_millis(60_000);
const ALLOWANCES: RangeInclusive<Micros> = Micros(0)..=Micros::from_millis(60_000);

impl Setting<'_> {
    fn value(&self) -> Value {
        match self {
            Setting::Interval(time) | Setting::Allowance(time) => Value::Interval(**time),
            Setting::Count(count, _) => Value::Count(**count),
        }
    }

    /// The times that it may be set to, if it is a time.
    fn times(&self) -> Option<RangeInclusive<Micros>> {
        match self {
            Setting::Interval(_) => Some(INTERVALS),
            Setting::Allowance(_) => Some(ALLOWANCES),
            Setting::Count(..) => None,
        }
    }

    fn expected(&self) -> String {
        match self {
            Setting::Interval(_) | Setting::Allowance(_) => {
                let times = self.times().expect("it is a time");
                let (min, max) = times.into_inner();
                format!("a time in quotes from \"{min}\" to \"{max}\", such as \"5ms\"")
            }
            Setting::Count(_, range) => format!("a whole number from {} to {}", range.start(), range.end()),
        }
    }

    fn read(&self, given: Given<'_>) -> Option<Value> {
        match (self, given) {
            (Setting::Interval(_) | Setting::Allowance(_), Given::Text(text)) => {
                let times = self.times()?;
                let time = text.parse().ok().filter(|time| times.contains(time));
                time.map(Value::Interval)
            }
            (Setting::Count(_, range), Given::Number(number)) => {
                let count = usize::try_from(number).ok().filter(|count| range.contains(count));
                count.map(Value::Count)
            }
            _ => None,
        }
    }

    fn set(self, value: Value) {
        match (self, value) {
            (Setting::Interval(place) | Setting::Allowance(place), Value::Interval(time)) => *place = time,
            (Setting::Count(place, _), Value::Count(count)) => *place = count,
            // Two protocols may have parameters of the same name and different types. A setting whose value has the wrong type changes nothing: the
            // parameter keeps its default.
            _ => {}
        }
    }
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, found {}", self.expected, self.found)
    }
}

impl std::error::Error for BadSetting {}

impl<C: Default> Parameter<C> {
    /// A parameter with its name, what it is, and its field.
    pub const fn new(name: &'static str, what: &'static str, of: fn(&mut C) -> Setting<'_>) -> Parameter<C> {
        Parameter { name, what, of }
    }

    fn line(&self) -> ParameterLine {
        let mut usual = C::default();
        let place = (self.of)(&mut usual);
        ParameterLine {
            name: self.name,
            default: place.value(),
            expected: place.expected(),
            what: self.what,
        }
    }
}

impl Settings {
    /// Sets a parameter.
    pub fn set(&mut self, name: impl Into<String>, value: Value) {
        self.0.insert(name.into(), value);
    }

    /// All that is set, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value)> {
        self.0.iter().map(|(name, &value)| (name.as_str(), value))
    }

    /// The value that a parameter is set to, if it is set.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.0.get(name).copied()
    }

    /// Reads the value that a configuration file gives for a parameter of a protocol.
    ///
    /// # Errors
    /// If the protocol has no such parameter, or if the parameter cannot have that value.
    pub fn read<P: Protocol>(name: &str, given: Given<'_>) -> Result<Value, BadSetting> {
        let bad = |found, expected, is_unknown| BadSetting {
            found,
            expected,
            is_unknown,
        };
        let Some(parameter) = P::PARAMETERS.iter().find(|parameter| parameter.name == name) else {
            let names: Vec<&str> = P::PARAMETERS.iter().map(|parameter| parameter.name).collect();
            let expected = match names.is_empty() {
                true => "no parameter: this protocol has none".to_string(),
                false => names.join(", "),
            };
            return Err(bad(format!("`{name}`"), expected, true));
        };
        let mut usual = P::Config::default();
        let place = (parameter.of)(&mut usual);
        let found = match given {
            Given::Text(text) => format!("\"{}\"", text.chars().take(64).collect::<String>()),
            Given::Number(number) => number.to_string(),
            Given::Other(what) => what.to_string(),
        };
        let value = place.read(given);
        value.ok_or_else(|| bad(found, place.expected(), false))
    }

    /// A protocol's configuration with these settings; everything else has its default. Settings that the protocol does not have are ignored: the
    /// settings of a drawn world are the same for every protocol.
    pub fn config<P: Protocol>(&self) -> P::Config {
        let mut config = P::Config::default();
        self.change::<P>(&mut config);
        config
    }

    /// Changes a protocol's configuration: what is set here. Settings that the protocol does not have are ignored.
    pub fn change<P: Protocol>(&self, config: &mut P::Config) {
        for parameter in P::PARAMETERS {
            if let Some(value) = self.get(parameter.name) {
                (parameter.of)(config).set(value);
            }
        }
    }

    /// All parameters of a protocol.
    pub fn lines<P: Protocol>() -> Vec<ParameterLine> {
        P::PARAMETERS.iter().map(Parameter::line).collect()
    }
}

impl<const N: usize> From<[(&str, Micros); N]> for Settings {
    /// Settings that are all intervals.
    fn from(intervals: [(&str, Micros); N]) -> Settings {
        Settings(
            intervals
                .map(|(name, interval)| (name.to_string(), Value::Interval(interval)))
                .into(),
        )
    }
}

impl Value {
    /// Calls `read` with the value as a configuration file would give it.
    pub fn read_by<T>(self, read: impl FnOnce(Given<'_>) -> T) -> T {
        match self {
            Value::Interval(interval) => read(Given::Text(&interval.to_string())),
            Value::Count(count) => read(Given::Number(i64::try_from(count).unwrap_or(i64::MAX))),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Interval(interval) => write!(f, "\"{interval}\""),
            Value::Count(count) => write!(f, "{count}"),
        }
    }
}
