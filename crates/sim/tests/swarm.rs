//! Worlds drawn from seeds, with the protocol `eventual`. `SEEDS=1000..2000` runs other seeds.
use turnbuckle_causal::eventual::{Eventual, EventualConfig, EventualSession};
use turnbuckle_sim::{Draw, Keep, Outcome, Scenario};

fn run(seed: u64) -> (Scenario, Outcome) {
    let scenario = Draw::new(seed).scenario();
    let keep = Keep {
        trace: false,
        ..Keep::JUDGE_AND_TRACE
    };
    let outcome = scenario.run::<EventualSession>(config(&scenario), keep);
    (scenario, outcome)
}

fn config(scenario: &Scenario) -> EventualConfig {
    scenario.parameters.config::<Eventual>()
}

fn seeds() -> std::ops::RangeInclusive<u64> {
    let Ok(seeds) = std::env::var("SEEDS") else {
        return 1..=50;
    };
    let (from, until) = seeds.split_once("..").expect("SEEDS=first..last");
    from.parse().expect("a number")..=until.parse().expect("a number")
}

#[test]
fn every_drawn_world_converges_and_every_answer_in_it_was_true() {
    let (mut events, mut answered, mut failed, mut audited, mut faults) = (0, 0, 0, 0, 0);
    let mut wrong = Vec::new();
    for seed in seeds() {
        let (scenario, outcome) = std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|panic| {
            println!("seed {seed} panics: {}", reproduce(seed));
            std::panic::resume_unwind(panic)
        });
        events += outcome.events;
        answered += outcome.tally.answered();
        failed += outcome.tally.failed();
        audited += outcome.claims.judged;
        faults += scenario.faults.len();
        if !outcome.violations.is_empty() {
            println!("seed {seed}: {}", outcome.violations[0]);
            wrong.push((seed, scenario, outcome));
        }
    }
    println!(
        "{} seeds: {events} events, {answered} answers, {failed} failures, {audited} claims audited, {faults} faults",
        seeds().count()
    );
    assert!(
        answered > 0 && audited > 0,
        "the worlds were too empty to show anything"
    );
    if let Some((seed, scenario, outcome)) = wrong.first() {
        panic!(
            "{} of {} worlds went wrong; the first:\n{}\nREPRODUCE WITH: {}",
            wrong.len(),
            seeds().count(),
            scenario.explain::<EventualSession>(&config(scenario), outcome),
            reproduce(*seed)
        );
    }
}

fn reproduce(seed: u64) -> String {
    format!("SEEDS={seed}..{seed} cargo test -p turnbuckle-sim --test all swarm")
}

#[test]
fn the_same_seed_gives_the_same_world_to_the_last_byte() {
    for seed in 0..6 {
        let ((_, first), (_, second)) = (run(seed), run(seed));
        assert_eq!(
            (first.hash, first.events),
            (second.hash, second.events),
            "seed {seed}"
        );
    }
    assert_ne!(run(1).1.hash, run(2).1.hash);
}
