use super::*;
use compare::Compare;
use std::collections::BTreeSet;

/// All files under `experiments/`, by their names.
fn files(directory: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).expect("the directory is there") {
        let path = entry.expect("it can be listed").path();
        let name = format!("{prefix}{}", path.file_name().expect("a name").to_string_lossy());
        match path.is_dir() {
            true => files(&path, &format!("{name}/"), found),
            false => {
                let name = name.strip_suffix(".toml").expect("nothing but TOML files");
                found.insert(name.to_string());
            }
        }
    }
}

#[test]
fn every_file_is_in_the_binary_and_each_of_its_points_is_a_scenario() {
    let mut found = BTreeSet::new();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    files(&directory, "", &mut found);
    let known: BTreeSet<String> = EXPERIMENTS.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(found, known);
    for (name, text) in EXPERIMENTS {
        let experiment = parse(name, text).unwrap_or_else(|error| panic!("{error}"));
        assert!(
            !experiment.claims.is_empty() && experiment.points().len() > 1,
            "{name}"
        );
    }
}

const SMALL: &str = r#"title = "t"
source = "s"
protocols = ["eventual", "causalspartanx"]
[x]
name = "delay"
values = ["1ms", "20ms", "50ms"]
[[axis]]
name = "think"
values = [{ label = "short", x = 1, time = "1ms" }, { label = "long", x = 5, time = "5ms" }]
[[measure]]
name = "visibility"
what = "visibility mean"
[[claim]]
words = "visibility grows with the delay"
measure = "visibility"
compare = "growth"
of = "causalspartanx"
least = 5
[scenario]
sites = ["a", "b"]
duration = "1s"
durability = "none"
[scenario.network]
delay = "$delay"
[scenario.load]
workload = "ping-pong"
clients_per_node = 1
think = "$think.time"
"#;

fn small() -> file::Experiment {
    file::Experiment::parse("small", SMALL).expect("it is right")
}

#[test]
fn the_values_of_all_axes_are_in_the_scenarios_of_their_points() {
    let experiment = small();
    let points = experiment.points();
    assert_eq!(points.len(), 6);
    assert_eq!(
        (&points[0], &points[1], &points[5]),
        (&vec![0, 0], &vec![0, 1], &vec![2, 1])
    );
    let scenario = experiment.scenario(&[1, 1]).expect("it was checked");
    assert_eq!(scenario.world.delays[0][1].0, 20_000);
    assert_eq!(scenario.load.think.max.0, 10_000);
}

#[test]
fn quick_is_the_first_and_the_last_of_each_axis_and_claims_about_others_do_not_count() {
    let at = |label: &str| {
        let claim = format!(
            "[[claim]]\nwords = \"w\"\nmeasure = \"visibility\"\ncompare = \"value\"\nof = \"eventual\"\n\
             at = {{ delay = \"{label}\" }}\nleast = 0\n[scenario]"
        );
        let text = SMALL.replacen("[scenario]", &claim, 1);
        file::Experiment::parse("small", &text)
            .expect("it is right")
            .quick()
    };
    let (middle, last) = (at("20ms"), at("50ms"));
    assert_eq!(middle.points().len(), 4);
    assert_eq!(last.claims[1].at, [Some(1), None]);
    let verdict = middle.claims[1].judge(&middle, &results::Results::default());
    assert!(matches!(verdict.held, claim::Held::Unknown(_)), "{verdict:?}");
}

#[test]
fn quick_keeps_the_names_of_an_axis_whose_values_are_names() {
    let experiment = file::Experiment::parse("levels", LEVELS).expect("it is right");
    let levels = experiment.quick().axes.swap_remove(1);
    let ends: Vec<(&str, f64)> = levels
        .values
        .iter()
        .map(|value| (value.label.as_str(), value.x))
        .collect();
    assert!(levels.has_names());
    assert_eq!(ends, [("one", 1.0), ("quorum", 2.0)]);
}

/// Reads at two levels, at two distances: the numbers of one site, of two points, and of the trace.
const LEVELS: &str = r#"title = "t"
source = "s"
protocols = ["quorum"]
[x]
name = "delay"
values = [{ label = "near", x = 1, way = "1ms", theta = "1ms" }, { label = "far", x = 20, way = "20ms", theta = "19ms" }]
[[axis]]
name = "level"
values = [
    { label = "one", x = 1, read = "one", age = "1ms" },
    { label = "statuses", x = 2, read = "per-key-sequential", age = "$delay.theta" },
    { label = "quorum", x = 3, read = "quorum", age = "1ms" },
]
[[axis]]
name = "at"
values = [{ label = "a", x = 1 }, { label = "b", x = 2 }]
[[measure]]
name = "read"
what = "read p50"
site = "$at"
[[measure]]
name = "inconsistent"
what = "inconsistent share"
[[measure]]
name = "alone"
what = "alone share"
[[claim]]
words = "quorum takes a round trip more than one"
measure = "read"
compare = "difference"
of = "quorum"
at = { level = "quorum", delay = "far" }
to_at = { level = "one" }
least = 40
most = 42
[[claim]]
words = "the distance costs one nothing"
measure = "read"
compare = "rise"
of = "quorum"
at = { level = "one" }
most = 0.1
[[claim]]
words = "theta follows the distance"
measure = "read"
compare = "difference"
of = "quorum"
at = { level = "statuses", delay = "far" }
to_at = { delay = "near" }
least = -3
most = 3
[[claim]]
words = "one is inconsistent where the other site is far"
measure = "inconsistent"
compare = "value"
of = "quorum"
at = { level = "one", delay = "far" }
least = 0.005
[[claim]]
words = "quorum never is"
measure = "inconsistent"
compare = "value"
of = "quorum"
at = { level = "quorum" }
most = 0
[[claim]]
words = "and one replica never answers it alone"
measure = "alone"
compare = "value"
of = "quorum"
at = { level = "quorum" }
most = 0
[scenario]
sites = ["a", "b", "c"]
duration = "3s"
parameters = { status_age = "$level.age" }
[scenario.network]
delay = "$delay.way"
[scenario.load]
after = "500ms"
think = "1ms"
read = "$level.read"
write = "quorum"
[scenario.workload]
record_count = 5
read_proportion = 0.5
update_proportion = 0.5
"#;

#[test]
fn points_are_compared_with_points_and_numbers_are_those_of_a_site_or_of_the_trace() {
    let experiment = file::Experiment::parse("levels", LEVELS).expect("it is right");
    let results = results::Results::of(&experiment, false).expect("it runs");
    let report = report::Report::new(&experiment, &results);
    assert_eq!(report.broken(), 0, "{}", report.text());
    // All curves are of one protocol, so its name says nothing.
    let names = report.text();
    assert!(
        names.contains("level statuses, at b") && !names.contains("quorum, level"),
        "{names}"
    );
}

/// The site of a measure is a placeholder that stays in the text. What is wrong elsewhere is said all the same.
#[test]
fn a_measure_of_the_site_of_an_axis_hides_nothing_that_is_wrong() {
    let wrong = LEVELS.replace("duration = \"3s\"", "duration = 3");
    let error = file::Experiment::parse("t", &wrong)
        .err()
        .expect("it is refused")
        .to_string();
    assert!(error.contains("scenario.duration: found integer `3`"), "{error}");
    let wrong = LEVELS.replace("{ label = \"b\", x = 2 }", "{ label = \"z\", x = 2 }");
    let error = file::Experiment::parse("t", &wrong)
        .err()
        .expect("it is refused")
        .to_string();
    assert!(
        error.contains("found \"z\"; expected a site of the scenario: a, b, c"),
        "{error}"
    );
}

#[test]
fn a_claim_holds_or_does_not_by_the_numbers_of_the_runs() {
    let mut experiment = small();
    let results = results::Results::of(&experiment, true).expect("it runs");
    assert_eq!(results.violations, Vec::<String>::new());
    let verdict = experiment.claims[0].judge(&experiment, &results);
    assert_eq!(verdict.held, claim::Held::Yes, "{verdict:?}");
    let (min, max) = verdict.found.expect("it was measured");
    assert!(1.0 < min && min <= max, "{min} to {max}");
    // The text of the report says so, and there is a figure for each way to think with a curve for each protocol.
    let report = report::Report::new(&experiment, &results);
    assert!(report.text().contains("held: visibility grows") && report.broken() == 0);
    let figures = report.figures();
    let names: Vec<&str> = figures.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["visibility-think-short", "visibility-think-long"]);
    assert!(
        figures
            .iter()
            .all(|(_, plot)| plot.series.len() == 2 && plot.series[0].points.len() == 3)
    );
    // Two points are no curve, and the figure says that there are no more.
    let quick = small().quick();
    let results_of_ends = results::Results::of(&quick, true).expect("it runs");
    let figures = report::Report::new(&quick, &results_of_ends).figures();
    for (_, plot) in &figures {
        assert!(
            plot.series
                .iter()
                .all(|series| series.shape == turnbuckle_check::Shape::Points)
        );
        assert!(plot.svg().contains("--quick: only the first"), "{}", plot.svg());
    }
    experiment.claims[0].min = Some(1e6);
    experiment.claims[0].differs = Some("it is another machine".into());
    let report = report::Report::new(&experiment, &results);
    assert!(report.text().contains("not held: visibility grows") && report.broken() == 1);
    assert!(
        report
            .text()
            .contains("expected at least 1000000; our number differs because it is another machine")
    );
    // What was not measured does not hold.
    let nothing = results::Results::default();
    let verdict = experiment.claims[0].judge(&experiment, &nothing);
    assert_eq!((verdict.found, verdict.held), (None, claim::Held::No));
    for compare in [Compare::Growth, Compare::LowerBy] {
        experiment.claims[0].compare = compare;
        experiment.claims[0].to = Some(0).filter(|_| compare.takes_two());
        let text = report::Report::new(&experiment, &nothing).text();
        let expected = format!("; {} here not measured; expected", compare.name());
        assert!(text.contains(&expected), "{text}");
    }
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_place() {
    assert!(Compare::Ratio.takes_two() && !Compare::Growth.takes_two());
    for (from, to, expected) in [
        ("title = \"t\"\n", "", "1: title: found nothing; expected a value"),
        (
            "\"eventual\"",
            "\"eventually\"",
            "3: protocols[1]: found \"eventually\"; expected one of the protocols abd,",
        ),
        (
            "[\"1ms\", \"20ms\", \"50ms\"]",
            "[]",
            "6: x.values: found nothing; expected at least one value",
        ),
        (
            "\"50ms\"]",
            "\"far\"]",
            "6: x.values[3]: found \"far\"; expected a number, a time such as",
        ),
        ("x = 5, time", "time", "9: axis[think].values[2]: found "),
        (
            "name = \"think\"",
            "name = \"delay\"",
            "8: axis[delay].name: found \"delay\"; expected a name that no other axis has",
        ),
        (
            "name = \"think\"",
            "name = \"in between\"",
            "8: axis[1].name: found \"in between\"; expected a name: a letter, then",
        ),
        (
            "visibility mean",
            "visibility",
            "12: measure[visibility].what: found \"visibility\"; expected one of operation",
        ),
        (
            "visibility mean\"",
            "visibility mean\"\nscale = \"cubic\"",
            "13: measure[visibility].scale: found unknown variant `cubic`; expected `linear` or `log`",
        ),
        (
            "\"growth\"",
            "\"shrinks\"",
            "16: claim[1].compare: found \"shrinks\"; expected one of value, ratio",
        ),
        (
            "\"growth\"",
            "\"ratio\"",
            "13: claim[1].to: found nothing; expected a second protocol, or to_at: ratio compares two numbers",
        ),
        (
            "least = 5",
            "to = \"eventual\"\nleast = 5",
            "18: claim[1].to: found \"eventual\"; expected no second protocol: growth is about one",
        ),
        (
            "least = 5",
            "to_at = { think = \"long\" }\nleast = 5",
            "18: claim[1].to_at: found a second point; expected none: growth is about one",
        ),
        (
            "what = \"visibility mean\"",
            "what = \"visibility mean\"\nsite = \"a\"",
            "13: measure[visibility].site: found \"a\"; expected no site: there are numbers of one site for reads",
        ),
        (
            "what = \"visibility mean\"",
            "what = \"read mean\"\nsite = \"$where\"",
            "13: measure[visibility].site: found \"$where\"; expected the name of a site, or $ and one of delay, think",
        ),
        (
            "what = \"visibility mean\"",
            "what = \"read mean\"\nsite = \"c\"",
            "13: measure[visibility].site: found \"c\"; expected a site of the scenario: a, b",
        ),
        (
            "\"growth\"\nof = \"causalspartanx\"",
            "\"ratio\"\nof = \"causalspartanx\"\nto_at = {}",
            "18: claim[1].to_at: found nothing; expected another value of some axis",
        ),
        (
            "duration = \"1s\"",
            "duration = \"1s\"\nnodes_per_site = 2\nmembers = { a = 2, b = 1 }",
            "23: scenario.members: found 2,1; expected 1: a site has one replica of each partition with causalspartanx",
        ),
        (
            "least = 5",
            "",
            "13: claim[1].least: found nothing; expected least, most or both",
        ),
        (
            "measure = \"visibility\"",
            "measure = \"speed\"",
            "15: claim[1].measure: found \"speed\"; expected one of visibility",
        ),
        (
            "of = \"causalspartanx\"",
            "of = \"cap\"",
            "17: claim[1].of: found \"cap\"; expected one of eventual, causalspartanx",
        ),
        (
            "least = 5",
            "at = { think = \"never\" }\nleast = 5",
            "18: claim[1].at.think: found \"never\"; expected one of short, long",
        ),
        (
            "least = 5",
            "at = { delay = \"1ms\" }\nleast = 5",
            "18: claim[1].at.delay: found \"delay\"; expected another axis than x: growth is about all values of x",
        ),
        (
            "\"$think.time\"",
            "\"$think.tome\"",
            "28: scenario.load.think: found $think.tome; expected a name that each value of some axis has: \"$delay\"",
        ),
        (
            "\"$delay\"",
            "\"$lag\"",
            "24: scenario.network.delay: found $lag; expected a name that each value",
        ),
        (
            "duration = \"1s\"",
            "duration = 1",
            "21: scenario.duration: found integer `1`; expected a number and s, ms or us",
        ),
        (
            "workload = \"ping-pong\"",
            "workload = \"e\"",
            "26: scenario.load.workload: found \"e\"; expected mixed, ping-pong",
        ),
        (
            "durability = \"none\"",
            "parameters = { teta = \"5ms\" }",
            "22: scenario.parameters.teta: found `teta`; expected a parameter of some protocol: ",
        ),
    ] {
        let text = SMALL.replacen(from, to, 1);
        let error = match file::Experiment::parse("t", &text) {
            Ok(_) => panic!("{to} is taken"),
            Err(error) => error.to_string(),
        };
        assert!(
            error.starts_with(&format!("t:{expected}")),
            "{to}\n  expected {expected}\n  found    {error}"
        );
    }
}

#[test]
fn numbers_that_cannot_be_compared_hold_nothing() {
    assert!(Compare::Step.along(&[0.0, 0.0, 2.0]).is_nan());
    assert!(Compare::Ratio.two(0.0, 0.0).is_nan());
    let mut experiment = small();
    let results = results::Results::of(&experiment, true).expect("it runs");
    // No client reads several keys here: nothing, divided by nothing.
    experiment.measures[0].what = "many per-second".parse().expect("a measure");
    let claim = &mut experiment.claims[0];
    (claim.compare, claim.to, claim.min) = (Compare::Ratio, Some(0), None);
    claim.max = Some(1e9);
    let verdict = experiment.claims[0].judge(&experiment, &results);
    assert_eq!((verdict.found, verdict.held), (None, claim::Held::No));
}
