use super::*;
use file::Compare;
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
    assert_eq!(scenario.load.think.most.0, 10_000);
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
fn a_claim_holds_or_does_not_by_the_numbers_of_the_runs() {
    let mut experiment = small();
    let results = results::Results::of(&experiment, true).expect("it runs");
    assert_eq!(results.violations, Vec::<String>::new());
    let verdict = experiment.claims[0].judge(&experiment, &results);
    assert_eq!(verdict.held, claim::Held::Yes, "{verdict:?}");
    let (least, most) = verdict.found.expect("it was measured");
    assert!(1.0 < least && least <= most, "{least} to {most}");
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
    experiment.claims[0].least = Some(1e6);
    experiment.claims[0].differs = Some("it is another machine".into());
    let report = report::Report::new(&experiment, &results);
    assert!(report.text().contains("not held: visibility grows") && report.broken() == 1);
    assert!(
        report
            .text()
            .contains("expected at least 1000000; ours is another number because it is another machine")
    );
    // What was not measured does not hold.
    let verdict = experiment.claims[0].judge(&experiment, &results::Results::default());
    assert_eq!((verdict.found, verdict.held), (None, claim::Held::No));
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_place() {
    assert!(Compare::Ratio.takes_two() && !Compare::Growth.takes_two());
    for (from, to, expected) in [
        ("title = \"t\"\n", "", "missing field `title`"),
        (
            "\"eventual\"",
            "\"eventually\"",
            "3:14: protocols: there is no protocol 'eventually'",
        ),
        ("[\"1ms\", \"20ms\", \"50ms\"]", "[]", "6:10: values: none"),
        ("\"50ms\"]", "\"far\"]", "6:26: values: expected numbers, times"),
        (
            "name = \"think\"",
            "name = \"delay\"",
            "8:8: name: there is an axis 'delay' already",
        ),
        (
            "visibility mean",
            "visibility",
            "12:8: what: 'visibility'; expected one of operation",
        ),
        (
            "\"growth\"",
            "\"shrinks\"",
            "16:11: compare: 'shrinks'; expected one of value",
        ),
        (
            "\"growth\"",
            "\"ratio\"",
            "16:11: compare: ratio; expected a protocol 'to'",
        ),
        (
            "least = 5",
            "to = \"eventual\"\nleast = 5",
            "16:11: compare: growth; expected no 'to'",
        ),
        ("least = 5", "", "14:9: words: expected least, most or both"),
        (
            "of = \"causalspartanx\"",
            "of = \"cap\"",
            "17:6: of: 'cap'; expected one of eventual, causalspartanx",
        ),
        (
            "least = 5",
            "at = { think = \"never\" }\nleast = 5",
            "18:16: at: 'never'; expected one of short, long",
        ),
        (
            "least = 5",
            "at = { delay = \"1ms\" }\nleast = 5",
            "18:8: at: growth looks along the whole of x",
        ),
        (
            "\"$think.time\"",
            "\"$think.tome\"",
            "$think.tome: no axis has it for each of its values; expected \"$delay\"",
        ),
        ("\"$delay\"", "\"$lag\"", "24:9: $lag: no axis has it"),
        ("duration = \"1s\"", "duration = 1", "21:12: invalid type"),
        (
            "workload = \"ping-pong\"",
            "workload = \"e\"",
            "26:12: workload: workload e is not supported",
        ),
    ] {
        let text = SMALL.replacen(from, to, 1);
        let error = match file::Experiment::parse("t", &text) {
            Ok(_) => panic!("{to} is taken"),
            Err(error) => error.to_string(),
        };
        assert!(
            error.contains(expected),
            "{to}\n  expected {expected}\n  found    {error}"
        );
    }
}
