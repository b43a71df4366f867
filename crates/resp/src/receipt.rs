//! Receipts as text: the fields of `RECEIPT`, and of the attribute before each reply under `RECEIPTS ON`.
use crate::{Backend, Writer};
use turnbuckle_core::{
    Conditional, Freshness, Hlc, Micros, Proof, Receipt, ReplicaId, ReplicaSet, Route, VersionId,
};

/// How many fields a receipt has, and how many more one of a causal, a quorum, a consensus or a regional keyspace has. One about a value that expires has one
/// more, and so has one about a version that has changed the expiry of another one, and one of a write that was decided at one site.
const FIELDS: usize = 10;
const CAUSAL_FIELDS: usize = 3;
const QUORUM_FIELDS: usize = 6;
const CONSENSUS_FIELDS: usize = 5;
const REGIONAL_FIELDS: usize = 4;

fn fields(receipt: &Receipt) -> usize {
    let of_family = match receipt.proof {
        Proof::Plain => 0,
        Proof::Causal { .. } => CAUSAL_FIELDS,
        Proof::Quorum(_) => QUORUM_FIELDS,
        Proof::Consensus(_) => CONSENSUS_FIELDS,
        Proof::Regional(_) => REGIONAL_FIELDS,
    };
    let sometimes = [
        receipt.until.is_some(),
        receipt.base.is_some(),
        receipt.decided_at_site,
    ];
    FIELDS + sometimes.into_iter().filter(|has| *has).count() + of_family
}

/// Writes a receipt as a map.
pub(crate) fn write_map(receipt: &Receipt, backend: &dyn Backend, writer: &mut Writer<'_>) {
    writer.map(fields(receipt));
    write_fields(receipt, backend, writer);
}

/// Writes a receipt as an attribute of the reply that follows. RESP3 only.
pub(crate) fn write_attribute(receipt: &Receipt, backend: &dyn Backend, writer: &mut Writer<'_>) {
    writer.attribute(fields(receipt));
    write_fields(receipt, backend, writer);
}

fn write_fields(receipt: &Receipt, backend: &dyn Backend, writer: &mut Writer<'_>) {
    let text = |writer: &mut Writer<'_>, name: &str, value: &str| {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    };
    let site = backend.site_name(receipt.server.site);
    text(writer, "asked", &receipt.asked.to_string());
    text(writer, "given", &receipt.given.to_string());
    writer.bulk(b"version");
    let replica = |replica: ReplicaId| replica.name(backend.site_name(replica.site()));
    let name = |version: VersionId| format!("{}@{}", version.at, replica(version.replica));
    let version = receipt.version.map(name);
    writer.bulk_or_null(version.as_deref().map(str::as_bytes));
    text(writer, "site", site);
    let server = format!("{site}/{}/{}", receipt.server.partition, receipt.server.member);
    text(writer, "server", &server);
    text(
        writer,
        "route",
        match receipt.route {
            Route::Local => "local",
            Route::Forwarded => "forwarded",
        },
    );
    writer.bulk(b"waited_us");
    writer.integer(micros(receipt.waited));
    writer.bulk(b"staleness_us");
    match receipt.staleness {
        Some(staleness) => writer.integer(micros(staleness)),
        None => writer.null(),
    }
    writer.bulk(b"clock_bound_us");
    writer.integer(micros(receipt.clock_bound));
    writer.bulk(b"siblings");
    writer.boolean(receipt.siblings);
    if let Some(until) = receipt.until {
        writer.bulk(b"until_us");
        writer.integer(micros(until));
    }
    if let Some(base) = receipt.base {
        text(writer, "base", &name(base));
    }
    if receipt.decided_at_site {
        text(writer, "conditional", &Conditional::Site.to_string());
    }
    match &receipt.proof {
        Proof::Plain => {}
        Proof::Causal { cut, hidden } => {
            writer.bulk(b"cut");
            writer.map(cut.entries().count());
            for (of, at) in cut.entries() {
                text(writer, &replica(of), &at.to_string());
            }
            writer.bulk(b"hidden");
            writer.integer(i64::from(hidden.versions));
            writer.bulk(b"hidden_newest");
            let newest = hidden.newest.map(name);
            writer.bulk_or_null(newest.as_deref().map(str::as_bytes));
        }
        Proof::Consensus(proof) => {
            let numbers = [
                ("term", proof.term),
                ("index", proof.index),
                ("redirects", proof.redirects.into()),
            ];
            for (field, number) in numbers {
                writer.bulk(field.as_bytes());
                writer.integer(i64::try_from(number).unwrap_or(i64::MAX));
            }
            text(writer, "basis", proof.basis.name());
            writer.bulk(b"held_by");
            writer.array(proof.held_by.len());
            for of in proof.held_by.iter() {
                writer.bulk(replica(of).as_bytes());
            }
        }
        Proof::Regional(proof) => {
            for (field, number) in [("index", proof.index), ("redirects", proof.redirects.into())] {
                writer.bulk(field.as_bytes());
                writer.integer(i64::try_from(number).unwrap_or(i64::MAX));
            }
            writer.bulk(b"applied");
            writer.map(proof.applied.entries().count());
            for (of, until) in proof.applied.entries() {
                text(writer, &replica(of), &until.to_string());
            }
            writer.bulk(b"lag_us");
            writer.map(proof.lags().count());
            for (of, lag) in proof.lags() {
                writer.bulk(replica(of).as_bytes());
                writer.integer(micros(lag));
            }
        }
        Proof::Quorum(quorum) => {
            let freshness = quorum.freshness.as_deref();
            let fresh = match freshness {
                Some(Freshness::Proven(replicas)) => *replicas,
                _ => ReplicaSet::default(),
            };
            let lists = [
                ("asked_replicas", quorum.asked),
                ("answered", quorum.answered),
                ("fresh", fresh),
            ];
            for (field, replicas) in lists {
                writer.bulk(field.as_bytes());
                writer.array(replicas.len());
                for of in replicas.iter() {
                    writer.bulk(replica(of).as_bytes());
                }
            }
            writer.bulk(b"covers");
            writer.integer(i64::from(quorum.covers));
            writer.bulk(b"fallback");
            let fallback = match freshness {
                Some(Freshness::Stale(staleness)) => Some(format!("stale {}us", staleness.0)),
                Some(Freshness::Unknown) => Some("unknown".to_string()),
                Some(Freshness::Proven(_) | Freshness::Cut(_)) | None => None,
            };
            writer.bulk_or_null(fallback.as_deref().map(str::as_bytes));
            writer.bulk(b"as_of");
            let as_of = receipt.cut().map(|cut| cut.to_string());
            writer.bulk_or_null(as_of.as_deref().map(str::as_bytes));
        }
    }
}

/// The version that a receipt names as `timestamp@site`.
pub(crate) fn parse_version(name: &str, backend: &dyn Backend) -> Option<VersionId> {
    let (at, replica) = name.split_once('@')?;
    let at = Hlc::parse(at).filter(|&at| at > Hlc::ZERO)?;
    let (site, member) = match replica.rsplit_once('/') {
        Some((site, member)) => (site, member.parse().ok().filter(|&member| member > 0)?),
        None => (replica, 0),
    };
    let replica = ReplicaId::of(backend.site_named(site)?, member)?;
    Some(VersionId { at, replica })
}

fn micros(span: Micros) -> i64 {
    i64::try_from(span.0).unwrap_or(i64::MAX)
}
