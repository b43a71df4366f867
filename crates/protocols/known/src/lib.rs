//! The protocols that exist, by name: what a keyspace can have, and what a simulated world can run.
//!
//! This is the only place that lists them. A protocol is a type, but names come from files and command lines. Code that does something with the
//! protocol of a name is written for any type, as a [`ForProtocol`], and [`KnownProtocol::apply`] runs it for that protocol. A protocol itself
//! declares its properties and its parameters ([`Descriptor`], [`turnbuckle_core::Parameter`]).
use std::{fmt, str::FromStr};
use turnbuckle_abd::AbdSession;
use turnbuckle_causal::{CausalSpartanXSession, CopsSession, EventualSession, GentleRainSession};
use turnbuckle_consensus::DacianSession;
use turnbuckle_core::{
    BadSetting, Bug, Descriptor, Given, Level, Levels, Members, Misfit, ParameterLine, Protocol, Session,
    Settings, Value,
};
use turnbuckle_quorum::{QuorumSession, SiblingsSession};
use turnbuckle_regional::NukvSession;

/// The kinds of keyspaces. A cluster without a configuration has a keyspace of each kind, and a new connection is in the first.
pub const KINDS: &[&str] = &["causal", "eventual", "quorum", "consensus", "regional"];

/// Defines [`KnownProtocol`], from a line for each protocol. The name of a kind of keyspace stands for its first protocol.
macro_rules! protocols {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal, of kind $kind:literal: $session:ty $(, $preset:expr)?;)*) => {
        /// A protocol. It is shown by its own name, which is also its name on disk, between nodes and in a node's status.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum KnownProtocol {
            $($(#[doc = $doc])* $variant,)*
        }

        impl KnownProtocol {
            /// All protocols.
            pub const ALL: &[KnownProtocol] = &[$(KnownProtocol::$variant),*];

            /// Its own name.
            pub fn name(self) -> &'static str {
                match self {
                    $(KnownProtocol::$variant => $name,)*
                }
            }

            /// The kind of keyspace that it belongs to.
            pub fn kind(self) -> &'static str {
                match self {
                    $(KnownProtocol::$variant => $kind,)*
                }
            }

            /// Runs `what` with this protocol, configured by `settings`.
            pub fn apply<F: ForProtocol>(self, settings: &Settings, what: F) -> F::Output {
                match self {
                    $(KnownProtocol::$variant => {
                        let config = settings.config::<<$session as Session>::Protocol>();
                        $(let config = $preset(config);)?
                        what.with::<$session>(config)
                    })*
                }
            }
        }
    };
}

protocols! {
    /// Linearizable registers by majorities of the sites.
    Abd = "abd", of kind "abd": AbdSession;
    /// CausalSpartanX, as it is corrected.
    CausalSpartanX = "causalspartanx", of kind "causal": CausalSpartanXSession;
    /// CausalSpartanX as it is printed, with its errors.
    CausalSpartanXPublished = "causalspartanx-published", of kind "causal": CausalSpartanXSession,
        turnbuckle_causal::CausalSpartanXConfig::published;
    /// COPS.
    Cops = "cops", of kind "causal": CopsSession;
    /// Each partition is a Raft group, and each read says how fresh it must be.
    Dacian = "dacian", of kind "consensus": DacianSession;
    /// Last writer wins, and nothing more.
    Eventual = "eventual", of kind "eventual": EventualSession;
    /// GentleRain.
    GentleRain = "gentlerain", of kind "causal": GentleRainSession;
    /// Raft inside each site, and session guarantees between the sites.
    Nukv = "nukv", of kind "regional": NukvSession;
    /// Each operation says how many replicas must take part.
    Quorum = "quorum", of kind "quorum": QuorumSession;
    /// The same, where writes that did not know of each other are all kept.
    QuorumSiblings = "quorum-siblings", of kind "quorum": SiblingsSession;
}

/// By its own name, or by that of a kind.
impl FromStr for KnownProtocol {
    type Err = String;

    fn from_str(name: &str) -> Result<KnownProtocol, String> {
        KnownProtocol::named(name).ok_or_else(|| {
            let names: Vec<&str> = KnownProtocol::names().map(|(name, _)| name).collect();
            format!("expected one of the protocols {}", names.join(", "))
        })
    }
}

/// Code that runs with a protocol of which only the name is known.
pub trait ForProtocol {
    /// The result.
    type Output;

    /// Runs the code, with the protocol's sessions and its configuration.
    fn with<S: Session>(self, config: <S::Protocol as Protocol>::Config) -> Self::Output;
}

impl KnownProtocol {
    /// The protocol that a name stands for.
    pub fn named(name: &str) -> Option<KnownProtocol> {
        let found = KnownProtocol::names().find(|(known, _)| *known == name);
        found.map(|(_, protocol)| protocol)
    }

    /// All names, in order, each with the protocol that it stands for: the protocols' own, and those of kinds.
    pub fn names() -> impl Iterator<Item = (&'static str, KnownProtocol)> {
        let own = KnownProtocol::ALL
            .iter()
            .map(|&protocol| (protocol.name(), protocol));
        let kinds = KnownProtocol::ALL
            .iter()
            .map(|&protocol| (protocol.kind(), protocol));
        let mut names: Vec<_> = own.chain(kinds).collect();
        // The first of a kind's protocols is kept.
        names.sort_by_key(|&(name, _)| name);
        names.dedup_by_key(|&mut (name, _)| name);
        names.into_iter()
    }

    /// The levels that the protocol offers.
    pub fn levels(self) -> Levels {
        self.about().levels
    }

    /// The protocol's properties.
    pub fn descriptor(self) -> Descriptor {
        self.about().descriptor
    }

    /// The protocol's parameters.
    pub fn parameters(self) -> Vec<ParameterLine> {
        self.about().parameters
    }

    fn about(self) -> About {
        struct Ask;
        impl ForProtocol for Ask {
            type Output = About;
            fn with<S: Session>(self, _: <S::Protocol as Protocol>::Config) -> About {
                About {
                    levels: S::LEVELS,
                    descriptor: S::Protocol::DESCRIPTOR,
                    parameters: Settings::lines::<S::Protocol>(),
                    bugs: S::Protocol::BUGS,
                }
            }
        }
        self.apply(&Settings::default(), Ask)
    }

    /// The bugs that worlds drawn from seeds must find when they are planted into it. None, if the protocol is wrong already.
    pub fn bugs(self) -> &'static [Bug] {
        match self {
            KnownProtocol::CausalSpartanXPublished => &[],
            sound => sound.about().bugs,
        }
    }

    /// The members of a partition: one number for all sites, or one for each.
    ///
    /// # Errors
    /// If partitions of this protocol cannot have them. The error says what they can have.
    pub fn members(self, numbers: &[u64]) -> Result<Members, String> {
        let descriptor = self.descriptor();
        let (min, max) = (
            u64::from(!descriptor.leaves_sites_out),
            u64::from(descriptor.max_members),
        );
        let possible = |&number: &u64| {
            u16::try_from(number)
                .ok()
                .filter(|_| (min..=max).contains(&number))
        };
        let numbers: Option<Vec<u16>> = numbers.iter().map(possible).collect();
        let members = numbers.and_then(|numbers| Members::of(&numbers));
        members.ok_or_else(|| match (max, descriptor.leaves_sites_out) {
            (1, _) => format!("1: a site has one replica of each partition with {self}"),
            (_, true) => format!("a whole number from 1 to {max}, or one for each site, of which some may be 0"),
            (_, false) => format!(
                "a whole number from 1 to {max}, or one for each site: with {self} each site needs at least one replica of each partition"
            ),
        })
    }

    /// What an operator should know of operations at this level with these parameters: see [`Protocol::doubt`].
    pub fn doubt(self, parameters: &Settings, level: Level) -> Option<String> {
        struct Doubt(Level);
        impl ForProtocol for Doubt {
            type Output = Option<String>;
            fn with<S: Session>(self, config: <S::Protocol as Protocol>::Config) -> Option<String> {
                S::Protocol::doubt(&config, self.0)
            }
        }
        self.apply(parameters, Doubt(level))
    }

    /// Checks whether parameters fit each other: see [`Protocol::check`].
    ///
    /// # Errors
    /// If one of them does not fit the others.
    pub fn check(self, parameters: &Settings) -> Result<(), Misfit> {
        struct Check;
        impl ForProtocol for Check {
            type Output = Result<(), Misfit>;
            fn with<S: Session>(self, config: <S::Protocol as Protocol>::Config) -> Self::Output {
                S::Protocol::check(&config)
            }
        }
        self.apply(parameters, Check)
    }

    /// Reads the value that a configuration file gives for a parameter.
    ///
    /// # Errors
    /// If this protocol has no such parameter, or if the parameter cannot have that value.
    pub fn read(self, parameter: &str, given: Given<'_>) -> Result<Value, BadSetting> {
        struct Read<'a>(&'a str, Given<'a>);
        impl ForProtocol for Read<'_> {
            type Output = Result<Value, BadSetting>;
            fn with<S: Session>(self, _: <S::Protocol as Protocol>::Config) -> Self::Output {
                Settings::read::<S::Protocol>(self.0, self.1)
            }
        }
        self.apply(&Settings::default(), Read(parameter, given))
    }
}

struct About {
    levels: Levels,
    descriptor: Descriptor,
    parameters: Vec<ParameterLine>,
    bugs: &'static [Bug],
}

impl fmt::Display for KnownProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::Micros;

    #[test]
    fn a_bound_below_the_interval_of_the_exchange_is_a_surprise() {
        let doubt = |ms| {
            let level = Level::Bounded(Micros::from_millis(ms));
            let parameters = Settings::from([("exchange", Micros::from_millis(50))]);
            KnownProtocol::Quorum.doubt(&parameters, level)
        };
        let words = doubt(10).expect("it is below");
        assert!(
            words.contains("bounded(10ms)") && words.contains("every 50ms"),
            "{words}"
        );
        assert!(doubt(50).is_some() && doubt(51).is_none());
        let causal = KnownProtocol::CausalSpartanX;
        assert_eq!(
            causal.doubt(&Settings::default(), Level::Bounded(Micros(1))),
            None
        );
    }

    #[test]
    fn every_protocol_is_found_by_its_own_name_and_every_kind_by_its_first_one() {
        for (name, protocol) in KnownProtocol::names() {
            assert_eq!(KnownProtocol::named(protocol.name()), Some(protocol), "{name}");
            let Levels { reads, writes } = protocol.levels();
            assert!(!reads.is_empty() && !writes.is_empty(), "{name} offers no level");
        }
        for kind in KINDS {
            assert_eq!(KnownProtocol::named(kind).map(KnownProtocol::kind), Some(*kind));
        }
        assert_eq!(
            KnownProtocol::named("causal"),
            Some(KnownProtocol::CausalSpartanX)
        );
    }

    #[test]
    fn a_site_may_have_no_replica_only_where_the_protocol_leaves_sites_out() {
        for protocol in KnownProtocol::ALL {
            let descriptor = protocol.descriptor();
            let none_at_b = protocol.members(&[1, 0]);
            assert_eq!(none_at_b.is_ok(), descriptor.leaves_sites_out, "{protocol}");
            let expected = protocol.members(&[0]).expect_err("no replica at all");
            assert_eq!(
                expected.contains("may be 0"),
                descriptor.leaves_sites_out,
                "{protocol}: {expected}"
            );
        }
        let expected = KnownProtocol::Nukv.members(&[4, 0]).expect_err("none at b");
        assert_eq!(
            expected,
            "a whole number from 1 to 8, or one for each site: with nukv each site needs at least one replica of each partition"
        );
        assert!(KnownProtocol::Nukv.members(&[3, 1]).is_ok());
    }

    #[test]
    fn parameters_are_read_and_refused_by_what_the_protocol_says() {
        let read = |protocol: KnownProtocol, name, given| protocol.read(name, given);
        let theta = read(KnownProtocol::GentleRain, "theta", Given::Text("5ms"));
        assert_eq!(theta, Ok(Value::Interval(Micros::from_millis(5))));
        let unknown = read(KnownProtocol::Eventual, "theta", Given::Text("5ms")).expect_err("it has none");
        assert!(unknown.is_unknown);
        assert_eq!(unknown.expected, "heartbeat, patience");
        for (name, given) in [
            ("theta", Given::Text("0ms")),
            ("theta", Given::Number(5)),
            ("heartbeat", Given::Text("2h")),
            ("heartbeat", Given::Other("a list")),
        ] {
            let wrong = read(KnownProtocol::CausalSpartanX, name, given).expect_err(name);
            assert!(wrong.expected.contains("1ms"), "{}", wrong.expected);
        }
        let max =
            read(KnownProtocol::Cops, "max_context_bytes", Given::Number(1 << 40)).expect_err("too many");
        assert_eq!(max.expected, "a whole number from 1024 to 49152");
    }

    #[test]
    fn what_a_file_says_is_what_the_protocol_is_set_to() {
        struct Heartbeat;
        impl ForProtocol for Heartbeat {
            type Output = Vec<Value>;
            fn with<S: Session>(self, mut config: <S::Protocol as Protocol>::Config) -> Vec<Value> {
                let parameters = S::Protocol::PARAMETERS.iter();
                let heartbeat = parameters.filter(|parameter| parameter.name == "heartbeat");
                heartbeat
                    .map(|parameter| match (parameter.of)(&mut config) {
                        turnbuckle_core::Setting::Interval(time)
                        | turnbuckle_core::Setting::Allowance(time) => Value::Interval(*time),
                        turnbuckle_core::Setting::Count(count, _) => Value::Count(*count),
                    })
                    .collect()
            }
        }
        let seven = Value::Interval(Micros::from_millis(7));
        let mut settings = Settings::from([("heartbeat", Micros::from_millis(7))]);
        settings.set("not of this one", Value::Count(1));
        for protocol in KnownProtocol::ALL {
            let set = protocol.apply(&settings, Heartbeat);
            assert!(set.iter().all(|value| *value == seven), "{protocol}: {set:?}");
        }
    }
}
