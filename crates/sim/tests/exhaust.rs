//! Every order of events of a small world. Without planted bugs nothing goes wrong. Planted bugs are found by a short schedule. States that
//! are not explored again would have shown nothing new.
use turnbuckle_causal::{
    CausalSpartanX, CausalSpartanXConfig, CausalSpartanXSession, Cops, CopsSession, Eventual, EventualConfig,
    EventualSession, GentleRain, GentleRainSession,
};
use turnbuckle_core::{Protocol, Session, Settings};
use turnbuckle_sim::{Exhaust, Explored, Program, plant};

fn pace() -> Settings {
    Settings::from([("heartbeat", Exhaust::STEP), ("theta", Exhaust::STEP)])
}

fn small(depth: usize) -> Exhaust {
    Exhaust {
        depth,
        ..Exhaust::new(2)
    }
}

fn programs(texts: &[&str]) -> Vec<Program> {
    let parsed = texts.iter().map(|text| text.parse().expect("a program"));
    parsed.collect()
}

fn eventual() -> EventualConfig {
    pace().config::<Eventual>()
}

fn causalspartanx() -> CausalSpartanXConfig {
    pace().config::<CausalSpartanX>()
}

/// Explores, and prints the numbers.
fn explored<S: Session>(small: &Exhaust, config: &<S::Protocol as Protocol>::Config) -> Explored {
    let explored = small.explore::<S>(config);
    println!(
        "depth {}: {} executions, {} states, {} pruned, {} outcomes, {} left",
        explored.depth,
        explored.executions,
        explored.states,
        explored.pruned,
        explored.outcomes.len(),
        explored.left
    );
    explored
}

fn finds_nothing<S: Session>(small: &Exhaust, config: &<S::Protocol as Protocol>::Config) {
    let explored = explored::<S>(small, config);
    assert!(explored.found.is_empty(), "{:?}", explored.found);
    assert!(explored.executions > 30, "there was too little to see");
    assert_eq!(explored.executions, explored.states);
}

#[test]
fn no_order_of_a_few_steps_breaks_a_promise() {
    finds_nothing::<EventualSession>(&small(3), &eventual());
    finds_nothing::<CausalSpartanXSession>(&small(2), &causalspartanx());
    finds_nothing::<CopsSession>(&small(2), &pace().config::<Cops>());
    finds_nothing::<GentleRainSession>(&small(2), &pace().config::<GentleRain>());
}

/// The bug breaks a rule after this number of steps, and not before. The schedule shows it again.
fn is_found(bug: &str, rule: &str, steps: usize) {
    let (mut wrong, mut config) = (small(steps), eventual());
    let known = plant::<<EventualSession as Session>::Protocol>(&mut wrong.world, &mut config, bug);
    assert!(known, "there is no bug '{bug}'");
    let explored = explored::<EventualSession>(&wrong, &config);
    let found = explored.found.get(rule);
    let found = found.unwrap_or_else(|| panic!("{bug} was not noticed: {:?}", explored.found));
    println!("{bug}: {:?}: {}", found.schedule, found.words);
    assert_eq!(found.schedule.len(), steps, "a shortest schedule of {bug}");
    let again = |small: &Exhaust, config| {
        let replayed = small.replay::<EventualSession>(config, &found.schedule);
        replayed.expect("the schedule can be run").broken
    };
    let broken = again(&wrong, config);
    assert!(
        broken
            .iter()
            .any(|broken| broken.rule == rule && broken.words == found.words),
        "{broken:?}"
    );
    assert_eq!(again(&small(steps), eventual()), Vec::new());
}

#[test]
fn ties_that_go_by_arrival_are_found_by_two_writes_at_one_moment() {
    is_found("ties_by_arrival", "diverged", 2);
}

#[test]
fn an_answer_before_it_is_durable_is_found_by_the_power_failing_behind_it() {
    is_found("answers_early,stamps_unheard", "undone", 3);
}

#[test]
fn an_entry_dropped_after_a_restart_is_found_by_one_crash() {
    is_found("drops_after_restart,stamps_unheard", "lost", 1);
}

/// Checks that what is not explored again would not have shown anything else.
fn prunes_nothing_new<S: Session>(pruning: &Exhaust, config: &<S::Protocol as Protocol>::Config) {
    let all = Exhaust {
        prunes: false,
        ..pruning.clone()
    };
    let (few, all) = (explored::<S>(pruning, config), explored::<S>(&all, config));
    assert!(few.pruned > 0 && few.executions < all.executions);
    assert_eq!((few.states, all.pruned), (all.states, 0));
    // Executions in the same state end in the same way.
    assert_eq!(all.unlike, 0);
    assert_eq!(few.outcomes, all.outcomes);
}

#[test]
fn without_pruning_there_are_more_executions_and_the_same_outcomes() {
    prunes_nothing_new::<EventualSession>(&small(3), &eventual());
    let roaming = Exhaust {
        clients: programs(&["a put x, move b, get x", "b del x, get x"]),
        cuts: 0,
        ..small(3)
    };
    prunes_nothing_new::<CausalSpartanXSession>(&roaming, &causalspartanx());
}

/// The same with a planted bug: violations are a part of the outcome.
#[test]
fn without_pruning_a_bug_is_found_by_the_same_rules() {
    let (mut wrong, mut config) = (small(3), eventual());
    (wrong.crashes, wrong.cuts) = (0, 0);
    plant::<<EventualSession as Session>::Protocol>(&mut wrong.world, &mut config, "ties_by_arrival");
    let all = Exhaust {
        prunes: false,
        ..wrong.clone()
    };
    let (few, all) = (
        explored::<EventualSession>(&wrong, &config),
        explored::<EventualSession>(&all, &config),
    );
    assert!(!few.found.is_empty());
    assert!(few.found.keys().eq(all.found.keys()));
    assert_eq!(few.outcomes, all.outcomes);
}

#[test]
fn a_world_that_is_small_enough_is_explored_to_its_end() {
    let tiny = Exhaust {
        clients: programs(&["a put x", "b get x"]),
        passes: 0,
        crashes: 0,
        cuts: 0,
        ..small(100)
    };
    let all = explored::<EventualSession>(&tiny, &eventual());
    assert!(
        all.is_complete() && all.depth < 100 && all.found.is_empty(),
        "{all:?}"
    );
    // What b reads before and after it has heard of the write.
    assert!(all.outcomes.len() > 1);
    for (limit, depth, executions) in [(u64::MAX, 2, u64::MAX), (3, 100, 3)] {
        let cut_short = Exhaust {
            depth,
            executions: limit,
            ..tiny.clone()
        };
        let found = explored::<EventualSession>(&cut_short, &eventual());
        assert!(!found.is_complete() && found.depth <= depth && found.executions <= executions);
    }
}

#[test]
fn what_cannot_be_run_is_refused_with_what_was_expected() {
    let bad = small(1).replay::<EventualSession>(eventual(), &[0, 77]);
    let words = bad.expect_err("there are fewer choices").to_string();
    assert!(
        words.contains("step 2 of the schedule is 77; expected one of these:\n  0  "),
        "{words}"
    );
    let elsewhere = Exhaust {
        clients: programs(&["c get x"]),
        ..small(1)
    };
    let words = elsewhere.check().expect_err("there is no site c").to_string();
    assert_eq!(words, "there is no site 'c' for 'c get x'; expected a, b");
    for (text, expected) in [
        ("", "expected a site and operations"),
        ("a", "expected a site and operations"),
        ("a put", "expected 'get KEY'"),
        ("a put x y", "found 'put x y'"),
        ("a put x,", "found ''"),
    ] {
        let words = text.parse::<Program>().expect_err("it is no program");
        assert!(words.contains(expected), "{text}: {words}");
    }
}
