//! The protocols that exist, by name: what a keyspace can have, and what a simulated world can run.
//!
//! This is the one place that lists them. A protocol is a type, and names come from files and command lines: who wants to do
//! something with the protocol of a name says what, for any type, as a [`ForProtocol`], and [`KnownProtocol::apply`] does it for that one.
use std::fmt;
use turnbuckle_causal::{
    CausalSpartanXConfig, CausalSpartanXSession, CopsConfig, CopsSession, EventualConfig, EventualSession,
    GentleRainConfig, GentleRainSession,
};
use turnbuckle_core::{Levels, Micros, Protocol, Session};

/// A protocol. It is shown by its own name, which is what it has on disk, between nodes and in what a node says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KnownProtocol {
    /// `causalspartanx`
    CausalSpartanX,
    /// `causalspartanx-published`: as it is printed, with what is wrong in it.
    CausalSpartanXPublished,
    /// `cops`
    Cops,
    /// `eventual`
    Eventual,
    /// `gentlerain`
    GentleRain,
}

/// All names that files and command lines may have. A kind of keyspace stands for its usual protocol.
const NAMES: &[(&str, KnownProtocol)] = &[
    ("causal", KnownProtocol::CausalSpartanX),
    ("causalspartanx", KnownProtocol::CausalSpartanX),
    ("causalspartanx-published", KnownProtocol::CausalSpartanXPublished),
    ("cops", KnownProtocol::Cops),
    ("eventual", KnownProtocol::Eventual),
    ("gentlerain", KnownProtocol::GentleRain),
];

/// The kinds of keyspaces, which are the keyspaces of a cluster that nobody has configured; the first is where a new connection is.
pub const KINDS: &[&str] = &["causal", "eventual"];

/// Something to be done with a protocol that only its name tells.
pub trait ForProtocol {
    /// What comes of it.
    type Output;

    /// Does it, with the protocol's sessions and its configuration.
    fn with<S: Session>(self, config: <S::Protocol as Protocol>::Config) -> Self::Output;
}

/// How often replicas speak; the protocol's defaults where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// How often they tell their peers how far they are.
    pub heartbeat: Option<Micros>,
    /// How often a site's partitions work out what is stable, for those that do.
    pub theta: Option<Micros>,
}

impl KnownProtocol {
    /// The protocol that a name stands for.
    pub fn named(name: &str) -> Option<KnownProtocol> {
        let found = KnownProtocol::names().find(|(known, _)| *known == name);
        found.map(|(_, protocol)| protocol)
    }

    /// All names, each with the protocol that it stands for.
    pub fn names() -> impl Iterator<Item = (&'static str, KnownProtocol)> {
        NAMES.iter().copied()
    }

    /// The kind of keyspace that it belongs to.
    pub fn kind(self) -> &'static str {
        match self {
            KnownProtocol::Eventual => "eventual",
            KnownProtocol::CausalSpartanX
            | KnownProtocol::CausalSpartanXPublished
            | KnownProtocol::Cops
            | KnownProtocol::GentleRain => "causal",
        }
    }

    /// Whether its partitions work out together what is stable, and so how often can be set.
    pub fn has_theta(self) -> bool {
        match self {
            KnownProtocol::CausalSpartanX
            | KnownProtocol::CausalSpartanXPublished
            | KnownProtocol::GentleRain => true,
            KnownProtocol::Cops | KnownProtocol::Eventual => false,
        }
    }

    /// Whether it keeps its promises when clocks are set: GentleRain stamps by raw clocks, and rests on their never going back.
    pub fn stands_clock_steps(self) -> bool {
        self != KnownProtocol::GentleRain
    }

    /// The levels that it offers.
    pub fn levels(self) -> Levels {
        struct Offered;
        impl ForProtocol for Offered {
            type Output = Levels;
            fn with<S: Session>(self, _: <S::Protocol as Protocol>::Config) -> Levels {
                S::LEVELS
            }
        }
        self.apply(Pace::default(), Offered)
    }

    /// Does something with this protocol.
    pub fn apply<F: ForProtocol>(self, pace: Pace, what: F) -> F::Output {
        let Pace { heartbeat, theta } = pace;
        let causalspartanx = || CausalSpartanXConfig::paced(heartbeat, theta);
        match self {
            KnownProtocol::CausalSpartanX => what.with::<CausalSpartanXSession>(causalspartanx()),
            KnownProtocol::CausalSpartanXPublished => {
                what.with::<CausalSpartanXSession>(causalspartanx().published())
            }
            KnownProtocol::Cops => what.with::<CopsSession>(CopsConfig::paced(heartbeat, theta)),
            KnownProtocol::Eventual => what.with::<EventualSession>(EventualConfig::paced(heartbeat, theta)),
            KnownProtocol::GentleRain => {
                what.with::<GentleRainSession>(GentleRainConfig::paced(heartbeat, theta))
            }
        }
    }
}

impl fmt::Display for KnownProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KnownProtocol::CausalSpartanX => "causalspartanx",
            KnownProtocol::CausalSpartanXPublished => "causalspartanx-published",
            KnownProtocol::Cops => "cops",
            KnownProtocol::Eventual => "eventual",
            KnownProtocol::GentleRain => "gentlerain",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_is_found_by_its_own_name_and_every_kind_by_its_usual_one() {
        for (name, protocol) in KnownProtocol::names() {
            assert_eq!(
                KnownProtocol::named(&protocol.to_string()),
                Some(protocol),
                "{name}"
            );
            let Levels { reads, writes } = protocol.levels();
            assert!(!reads.is_empty() && !writes.is_empty(), "{name} offers no level");
        }
        for kind in KINDS {
            assert_eq!(KnownProtocol::named(kind).map(KnownProtocol::kind), Some(*kind));
        }
    }
}
