//! Protocols by name, as options and files give them.
use crate::failure::{Failure, usage};
use std::collections::BTreeSet;
use turnbuckle_core::{BadSetting, Settings};
use turnbuckle_document::Misplaced;
use turnbuckle_protocols::KnownProtocol;
use turnbuckle_sim::Scenario;

/// The protocol of that name, which `place` gives: an option, or a field of a file.
pub(crate) fn protocol_named(place: &str, name: &str) -> Result<KnownProtocol, Failure> {
    let names: Vec<&str> = KnownProtocol::names().map(|(name, _)| name).collect();
    let unknown = || {
        usage(&format!(
            "{place}: there is no protocol '{name}'; expected one of {}",
            names.join(", ")
        ))
    };
    KnownProtocol::named(name).ok_or_else(unknown)
}

/// Checks that everything that a file sets in the table at `way` is a parameter of some protocol. The file may be run with several protocols, one
/// after the other.
pub(crate) fn check_parameters(settings: &Settings, way: &[&str]) -> Result<(), Misplaced> {
    for (name, value) in settings.iter() {
        let read = |protocol: &KnownProtocol| value.read_by(|given| protocol.read(name, given));
        let of_all: Vec<Result<_, BadSetting>> = KnownProtocol::ALL.iter().map(read).collect();
        let mut known = of_all.iter().filter_map(|read| read.as_ref().err());
        let way = [way, &[name]].concat();
        if let Some(wrong) = known.find(|bad| !bad.is_unknown) {
            return Err(Misplaced::of_field(0..0, &way, &wrong.found, &wrong.expected));
        }
        if of_all.iter().all(Result::is_err) {
            let lines = KnownProtocol::ALL
                .iter()
                .flat_map(|protocol| protocol.parameters());
            let names: BTreeSet<&str> = lines.map(|line| line.name).collect();
            let names: Vec<&str> = names.into_iter().collect();
            let expected = format!("a parameter of some protocol: {}", names.join(", "));
            return Err(Misplaced::of_field(0..0, &way, format!("`{name}`"), expected));
        }
    }
    Ok(())
}

/// Checks that a protocol's partitions can have the members of a file's world. `way` is the way to them.
pub(crate) fn check_members(
    protocol: KnownProtocol,
    scenario: &Scenario,
    way: &[&str],
) -> Result<(), Misplaced> {
    let members = &scenario.world.members;
    let numbers: Vec<u64> = members.numbers().iter().map(|&number| number.into()).collect();
    match protocol.members(&numbers) {
        Ok(_) => Ok(()),
        Err(expected) => Err(Misplaced::of_field(0..0, way, members.to_string(), expected)),
    }
}
