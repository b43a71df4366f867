//! The options of a campaign.
use crate::{cluster::Keyspace, fault::Kind};
use clap::Args;
use std::path::PathBuf;
use turnbuckle_protocols::KnownProtocol;
use turnbuckle_workload::Random;

/// Runs real processes of turnbuckle under load and faults, and judges what they did.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// How long load and faults go on, in minutes; a round is not cut short.
    #[arg(long, default_value_t = 5.0)]
    pub minutes: f64,
    /// The seed from which the faults are drawn.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How long the faults of a round go on, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 40)]
    pub round: u64,
    /// Run only this protocol: causalspartanx, cops, eventual or gentlerain. Otherwise each has a keyspace.
    #[arg(long)]
    pub protocol: Option<String>,
    /// Run only with this durability: fsync, interval(10ms) or none. Otherwise they are spread over the keyspaces.
    #[arg(long)]
    pub durability: Option<String>,
    /// Only these faults, separated by commas.
    #[arg(long, value_delimiter = ',', conflicts_with = "without")]
    pub only: Vec<Kind>,
    /// All faults except these, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub without: Vec<Kind>,
    /// The number of clients of each keyspace.
    #[arg(long, default_value_t = 4)]
    pub clients: u16,
    /// The number of keys in one keyspace that are never deleted; the more there are, the longer it takes to put a full copy of them in
    /// place.
    #[arg(long, value_name = "KEYS", default_value_t = 40_000, value_parser = clap::value_parser!(u64).range(..=100_000_000))]
    pub ballast: u64,
    /// The memory that a node may have resident, in MiB. Otherwise its limit, and what its tables and its requests take beside it.
    #[arg(long, value_name = "MIB")]
    pub memory_mb: Option<u64>,
    /// The turnbuckle program. Otherwise the one beside this program.
    #[arg(long, value_name = "FILE")]
    pub turnbuckle: Option<PathBuf>,
    /// The directory to work in. Otherwise a temporary one, which is kept if something is broken.
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Plants a bug into every node, to see whether the campaign finds it.
    #[arg(long, value_name = "BUG")]
    pub plant: Option<String>,
    /// Goes on after a round in which something was broken.
    #[arg(long)]
    pub keep_going: bool,
    /// Prints JSON in the end.
    #[arg(long)]
    pub json: bool,
}

/// All durabilities.
const DURABILITIES: [&str; 3] = ["fsync", "interval(10ms)", "none"];
/// The protocols that are run if none is named.
const PROTOCOLS: [&str; 4] = ["causalspartanx", "cops", "eventual", "gentlerain"];

impl Options {
    /// The kinds of faults that may happen.
    pub fn kinds(&self) -> Vec<Kind> {
        let is_wanted = |kind: &&Kind| match self.only.is_empty() {
            true => !self.without.contains(kind),
            false => self.only.contains(kind),
        };
        Kind::ALL.iter().filter(is_wanted).copied().collect()
    }

    /// The keyspaces: one for each protocol, with durabilities that follow from the seed. If there is only one protocol, one for each
    /// durability.
    ///
    /// # Errors
    /// If a name is unknown: the reason, as text.
    pub fn keyspaces(&self) -> Result<Vec<Keyspace>, String> {
        let durabilities: Vec<&str> = match &self.durability {
            Some(durability) => {
                let known = durability.parse::<turnbuckle_server::config::Durability>();
                known.map_err(|error| error.to_string())?;
                vec![durability]
            }
            None => DURABILITIES.to_vec(),
        };
        if let Some(name) = &self.protocol {
            let protocol = protocol(name)?;
            let each = durabilities.iter();
            return Ok(each
                .map(|durability| Keyspace::new(protocol, durability))
                .collect());
        }
        let first = Random::new(self.seed, 0).below(durabilities.len() as u64) as usize;
        let each = PROTOCOLS.iter().zip(durabilities.iter().cycle().skip(first));
        each.map(|(name, durability)| Ok(Keyspace::new(protocol(name)?, durability)))
            .collect()
    }

    /// Checks the other options.
    ///
    /// # Errors
    /// If an option is wrong: the reason, as text.
    pub fn check(&self) -> Result<(), String> {
        let is_possible = |name: &str, fits: bool, expected: &str| match fits {
            true => Ok(()),
            false => Err(format!("--{name}: expected {expected}")),
        };
        is_possible(
            "minutes",
            self.minutes > 0.0 && self.minutes <= 10_000.0,
            "more than 0 and at most 10000",
        )?;
        is_possible("round", (5..=3_600).contains(&self.round), "5 to 3600 seconds")?;
        let memory = self.memory_mb.is_none_or(|max| (1..=1 << 24).contains(&max));
        is_possible("memory-mb", memory, "1 to 16777216")?;
        is_possible("clients", (1..=200).contains(&self.clients), "1 to 200")?;
        self.keyspaces().map(drop)
    }
}

fn protocol(name: &str) -> Result<KnownProtocol, String> {
    KnownProtocol::named(name).ok_or_else(|| {
        let known: Vec<&str> = KnownProtocol::names().map(|(name, _)| name).collect();
        format!(
            "there is no protocol '{name}'; expected one of {}",
            known.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn options(arguments: &[&str]) -> Options {
        let all = ["campaign"].iter().chain(arguments);
        Command::try_parse_from(all).expect("it is right").options
    }

    fn names(arguments: &[&str]) -> Vec<String> {
        let keyspaces = options(arguments).keyspaces().expect("there are such");
        keyspaces.into_iter().map(|keyspace| keyspace.name).collect()
    }

    #[test]
    fn a_campaign_has_every_protocol_and_every_durability_unless_it_is_told_which() {
        for seed in ["1", "2", "3"] {
            let all = names(&["--seed", seed]);
            assert_eq!(all.len(), 4);
            for durability in ["-fsync", "-interval10ms", "-none"] {
                assert!(all.iter().any(|name| name.ends_with(durability)), "{all:?}");
            }
        }
        let cops = names(&["--protocol", "cops"]);
        assert_eq!(cops, ["cops-fsync", "cops-interval10ms", "cops-none"]);
        let one = names(&["--protocol", "causal", "--durability", "fsync"]);
        assert_eq!(one, ["causalspartanx-fsync"]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (arguments, expected) in [
            (["--protocol", "paxos"], "no protocol 'paxos'"),
            (["--durability", "maybe"], "expected \"fsync\""),
            (["--minutes", "0"], "--minutes"),
            (["--round", "1"], "--round"),
        ] {
            let error = options(&arguments).check().expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn faults_are_chosen_by_name() {
        let kinds = |arguments: &[&str]| {
            let options = options(arguments);
            options.kinds()
        };
        assert_eq!(kinds(&["--protocol", "causal"]), Kind::ALL);
        assert_eq!(kinds(&["--only", "kills,cuts"]), [Kind::Kills, Kind::Cuts]);
        let without = kinds(&["--protocol", "cops", "--without", "damage,far-clocks"]);
        assert_eq!(without.len(), Kind::ALL.len() - 2);
        assert!(!without.contains(&Kind::Damage));
    }
}
