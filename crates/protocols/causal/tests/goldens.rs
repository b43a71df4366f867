//! Golden scripts: what each protocol does, step by step, in the simulated world. Their commands are those of [`turnbuckle_sim::Script`].
//! `UPDATE_GOLDENFILES=1 cargo test -p turnbuckle-causal` writes them again; read the diff.
use std::path::{Path, PathBuf};
use turnbuckle_causal::causalspartanx::Departures;
use turnbuckle_causal::{
    CausalSpartanXConfig, CausalSpartanXSession, CopsConfig, CopsSession, EventualConfig, EventualSession,
    GentleRainConfig, GentleRainSession,
};
use turnbuckle_core::{Protocol, Session};
use turnbuckle_sim::{Verdict, gallery, goldens};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/goldens")
        .join(name)
}

fn run<S: Session>(name: &str, config: &<S::Protocol as Protocol>::Config) {
    goldens::<S>(config, &folder(name));
}

/// Checks that of all anomalies in the gallery exactly those in `prevented` are prevented.
fn prevents<S: Session>(protocol: &str, config: &<S::Protocol as Protocol>::Config, prevented: &[&str]) {
    turnbuckle_sim::prevents::<S>(config, &folder("gallery").join(protocol), prevented);
}

/// The anomalies that no protocol may show.
const NEVER: [&str; 5] = [
    "deleted_key_comes_back",
    "increment_lost",
    "old_value_revived_by_expire",
    "sites_stay_different",
    "acknowledged_write_lost",
];

/// The anomalies that a causal protocol prevents: those of `NEVER`, and more.
const CAUSAL: [&str; 12] = [
    "deleted_key_comes_back",
    "increment_lost",
    "old_value_revived_by_expire",
    "sites_stay_different",
    "acknowledged_write_lost",
    "answer_before_question",
    "comment_before_post",
    "expired_key_comes_back",
    "fractured_snapshot",
    "own_write_missing",
    "reads_go_back",
    "writes_out_of_order",
];

#[test]
fn eventual_does_what_its_scripts_show() {
    run::<EventualSession>("eventual", &EventualConfig::default());
}

#[test]
fn causalspartanx_does_what_its_scripts_show() {
    run::<CausalSpartanXSession>("causalspartanx", &CausalSpartanXConfig::default());
}

#[test]
fn cops_does_what_its_scripts_show() {
    run::<CopsSession>("cops", &CopsConfig::default());
}

#[test]
fn gentlerain_does_what_its_scripts_show() {
    run::<GentleRainSession>("gentlerain", &GentleRainConfig::default());
}

/// Each script shows what the algorithms as printed get wrong.
#[test]
fn causalspartanx_published_does_what_its_scripts_show() {
    let printed = CausalSpartanXConfig::default().published();
    run::<CausalSpartanXSession>("causalspartanx-published", &printed);
}

/// What line 21 of Algorithm 5.4 is for. Worlds drawn from seeds hardly ever show it, because a site's clocks are kept together.
#[test]
fn a_slice_that_promises_nothing_lets_a_snapshot_be_torn() {
    let departures = Departures {
        slice_promises_nothing: true,
        ..Departures::default()
    };
    let config = CausalSpartanXConfig {
        departures,
        ..CausalSpartanXConfig::default()
    };
    run::<CausalSpartanXSession>("causalspartanx-without-line-21", &config);
}

/// Each script shows a planted bug, and what the world reports of it; then the same without the bug.
#[test]
fn planted_bugs_are_seen() {
    run::<EventualSession>("planted", &EventualConfig::default());
}

#[test]
fn eventual_shows_in_the_gallery_what_it_does_not_promise_and_nothing_worse() {
    prevents::<EventualSession>("eventual", &EventualConfig::default(), &NEVER);
}

#[test]
fn causalspartanx_prevents_in_the_gallery_what_it_promises_to() {
    prevents::<CausalSpartanXSession>("causalspartanx", &CausalSpartanXConfig::default(), &CAUSAL);
}

#[test]
fn gentlerain_prevents_in_the_gallery_what_it_promises_to() {
    // A long fork is allowed. In this script all sites wait for the far links before anything is seen.
    let prevented = [&CAUSAL[..], &["long_fork"]].concat();
    prevents::<GentleRainSession>("gentlerain", &GentleRainConfig::default(), &prevented);
}

#[test]
fn cops_shows_in_the_gallery_what_is_causal_and_nothing_else() {
    let folder = folder("gallery/cops");
    let verdicts = gallery::<CopsSession>(&CopsConfig::default(), &folder).expect("the gallery runs");
    for (anomaly, verdict) in verdicts {
        let expected = match anomaly.name {
            // Causal consistency says nothing of what is concurrent, or how old.
            "stale_read"
            | "long_fork"
            | "neither_sees_the_other"
            | "lost_update"
            | "lock_lost_with_its_machine" => Verdict::Shown,
            // These scripts read several keys at once, or add to a number.
            "fractured_snapshot" | "increment_lost" => Verdict::NotOffered,
            _ => Verdict::Prevented,
        };
        assert_eq!(verdict, expected, "{}", anomaly.title());
    }
}
