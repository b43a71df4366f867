//! Explanations as people read them, under `tests/goldens`. A script's commands:
//!
//! ```text
//!   trace NAME                               takes the trace of a vector
//!   op CLIENT SITE KIND KEY VALUE START FINISH   adds one: read, write or delete; times in microseconds
//!      [version=V] [level=L]                 (none is no value; never, if there was no answer; failed, if it was not done)
//!      [asked=L given=L staleness=US         with a receipt
//!       covers=N copies=N]
//!   op CLIENT SITE snapshot KEY:VALUE[:VERSION],.. none START FINISH   several reads at once
//!   explain [KEYS] [width=COLUMNS]           what is wrong with it
//! ```
//!
//! `UPDATE_GOLDENFILES=1` writes them anew.
use serde::Deserialize;
use std::{error::Error, fs};
use turnbuckle_check::{Audit, HistoryBuilder, Orders, WORST_KEYS, explain_keys, levels::LevelJudge};
use turnbuckle_workload::{Claim, Op, Record, SnapshotRead, Status};

#[derive(Deserialize)]
struct Vector {
    ops: Vec<Record>,
}

#[derive(Default)]
struct Explaining {
    records: Vec<Record>,
}

impl Explaining {
    fn explain(&self, keys: usize, width: usize) -> Result<String, Box<dyn Error>> {
        let mut builder = HistoryBuilder::new();
        for record in &self.records {
            builder.add(record)?;
        }
        let history = builder.finish()?;
        let orders = Orders::of(&history);
        let mut judge = LevelJudge::new(&history, None);
        orders.teach(&history, &mut judge);
        let (audit, _) = Audit::of(&history, &judge);
        let texts: Vec<String> = explain_keys(&history, &orders, &audit, keys)
            .iter()
            .map(|explanation| explanation.text(&history, width))
            .collect();
        Ok(match texts.is_empty() {
            true => "nothing is wrong".into(),
            false => texts.join("\n\n"),
        })
    }
}

fn operation(words: &[&str], mut key: impl FnMut(&str) -> Option<String>) -> Result<Record, Box<dyn Error>> {
    let [client, site, op, name, value, start, finish] = words else {
        return Err("expected seven words".into());
    };
    let (op, reads) = match *op {
        "read" => (Op::Read, None),
        "write" => (Op::Write, None),
        "delete" => (Op::Delete, None),
        "snapshot" => (Op::Snapshot, Some(name.split(',').map(read).collect())),
        other => return Err(format!("unknown kind {other}").into()),
    };
    let (status, finish_ns) = match *finish {
        "never" => (Status::Unknown, None),
        "failed" => (Status::Fail, None),
        time => (Status::Ok, Some(time.parse::<i64>()? * 1_000)),
    };
    let receipt = match (key("asked"), key("given")) {
        (Some(asked), Some(given)) => Some(Claim {
            asked,
            given,
            staleness_us: key("staleness").map(|us| us.parse()).transpose()?,
            covers: key("covers").map(|number| number.parse()).transpose()?,
            copies: key("copies").map(|number| number.parse()).transpose()?,
            ..Claim::default()
        }),
        _ => None,
    };
    Ok(Record {
        client: (*client).into(),
        site: (*site).into(),
        key: if reads.is_some() {
            "".into()
        } else {
            (*name).into()
        },
        op,
        value: Some(*value).filter(|value| *value != "none").map(Into::into),
        start_ns: start.parse::<i64>()? * 1_000,
        finish_ns,
        status,
        version: key("version"),
        level: key("level"),
        receipt,
        recorder: None,
        pipelined: false,
        existed: false,
        reads,
    })
}

fn read(text: &str) -> SnapshotRead {
    let mut parts = text.splitn(3, ':');
    let key = parts.next().unwrap_or_default().into();
    let value = parts.next().filter(|value| *value != "none");
    SnapshotRead {
        key,
        value: value.map(Into::into),
        version: parts.next().map(Into::into),
    }
}

impl goldenscript::Runner for Explaining {
    type Command = goldenscript::Command;

    fn run(
        &mut self,
        command: &goldenscript::Command,
        _: &goldenscript::Context,
    ) -> Result<String, Box<dyn Error>> {
        let mut args = command.consume_args();
        match command.name.as_str() {
            "trace" => {
                let name = args.next_pos().ok_or("which?")?;
                let text = fs::read_to_string(format!("tests/vectors/{name}.json"))?;
                self.records = serde_json::from_str::<Vector>(&text)?.ops;
            }
            "op" => {
                let words: Vec<String> = std::iter::from_fn(|| args.next_pos().map(str::to_owned)).collect();
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                self.records
                    .push(operation(&words, |key| args.take_key(key).map(str::to_owned))?);
            }
            "explain" => {
                let width = args.take_key("width").map(str::parse).transpose()?.unwrap_or(100);
                let keys = args.next_pos().map(str::parse).transpose()?;
                args.reject_next()?;
                return self.explain(keys.unwrap_or(WORST_KEYS), width);
            }
            name => return Err(format!("unknown command {name}").into()),
        }
        args.reject_next()?;
        Ok(String::new())
    }
}

#[test]
fn every_script_is_explained_as_before() {
    let mut scripts = 0;
    for entry in fs::read_dir("tests/goldens").expect("the scripts are beside this test") {
        let path = entry.expect("the folder can be listed").path();
        goldenscript::run(&mut Explaining::default(), &path).expect("the script runs");
        scripts += 1;
    }
    assert!(scripts >= 1, "only {scripts} scripts");
}
