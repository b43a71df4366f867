//! `turnbuckle sim --exhaust`, as a person and as a script use it.
use serde_json::Value;
use std::process::{Command, Output};

fn turnbuckle(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_tiny_world_of_each_protocol_is_explored_to_its_end() {
    for protocol in ["causalspartanx", "cops", "eventual", "gentlerain"] {
        let world = [
            "--client",
            "a put x",
            "--client",
            "b get x",
            "--passes",
            "0",
            "--crashes",
            "0",
        ];
        let mut arguments = vec![
            "sim",
            "--exhaust",
            "--protocol",
            protocol,
            "--json",
            "--cuts",
            "0",
            "--depth",
            "40",
        ];
        arguments.extend(world);
        let output = turnbuckle(&arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let found: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
        assert_eq!(
            (&found["complete"], &found["left"]),
            (&true.into(), &0.into()),
            "{found}"
        );
        assert_eq!(
            found["violations"],
            Value::Object(serde_json::Map::new()),
            "{found}"
        );
        let count = |name: &str| found[name].as_u64().unwrap_or(0);
        assert!(
            count("executions") > 20 && count("pruned") > 0 && count("outcomes") > 0,
            "{found}"
        );
    }
}

#[test]
fn a_planted_bug_ends_with_1_and_with_the_line_that_shows_it_again() {
    let output = turnbuckle(&[
        "sim",
        "--exhaust",
        "--depth",
        "2",
        "--plant",
        "ties_by_arrival",
        "--crashes",
        "0",
    ]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let (said, error) = (text(&output.stdout), text(&output.stderr));
    assert!(
        said.contains("complete    no: ") && said.contains("violations  diverged in "),
        "{said}"
    );
    let (_, line) = error
        .split_once("REPRODUCE WITH: turnbuckle ")
        .expect("it says how to see it again");
    let words: Vec<&str> = line.split_whitespace().collect();
    let again = turnbuckle(&words);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    let said = text(&again.stdout);
    assert!(
        said.contains("wrong:\n") && said.contains("diverged: the sites differ"),
        "{said}"
    );
    // The same schedule without the bug.
    let right: Vec<&str> = words
        .iter()
        .copied()
        .filter(|&word| word != "ties_by_arrival" && word != "--plant")
        .collect();
    let right = turnbuckle(&right);
    assert_eq!(right.status.code(), Some(0), "{right:?}");
    assert!(text(&right.stdout).ends_with("nothing wrong\n"), "{right:?}");
}

#[test]
fn what_cannot_be_explored_is_refused_with_what_was_expected() {
    for (arguments, expected) in [
        (&["--depth", "3"][..], "--exhaust"),
        (&["--exhaust", "--seed", "3"], "cannot be used with"),
        (&["--exhaust", "--depth", "deep"], "invalid digit"),
        (&["--exhaust", "--depth", "100000"], "expected at most 1000"),
        (&["--exhaust", "--sites", "9"], "9 is not in 1..=4"),
        (
            &["--exhaust", "--client", "a jump"],
            "expected 'get KEY', 'put KEY'",
        ),
        (
            &["--exhaust", "--client", "z get x"],
            "there is no site 'z' for 'z get x'; expected a, b",
        ),
        (
            &["--exhaust", "--replay", "0,99"],
            "step 2 of the schedule is 99; expected one of these:",
        ),
        (&["--exhaust", "--replay", "0,x"], "invalid digit"),
        (
            &["--exhaust", "--replay", "0", "--depth", "2"],
            "cannot be used with",
        ),
        (
            &["--exhaust", "--plant", "no_such_bug"],
            "there is no bug 'no_such_bug'",
        ),
    ] {
        let output = turnbuckle(&[&["sim"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
