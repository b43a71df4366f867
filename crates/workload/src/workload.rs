use crate::{Arrival, ClientId, Distribution, Mix, Rate, Spacing, ValueSize, mix::Proportion};
use serde::Deserialize;
use std::{num::NonZeroU64, ops::Range, path::Path};
use thiserror::Error;
use turnbuckle_document::{Document, Misplaced, Number, WrongFile};

/// What all clients of a run do.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// The number of records before the run.
    pub records: NonZeroU64,
    /// The size of values.
    pub value_size: ValueSize,
    /// How often each action is done.
    pub mix: Mix,
    /// Which records are popular.
    pub distribution: Distribution,
    /// When operations begin.
    pub arrival: Arrival,
    /// The number of clients, if the workload names it.
    pub clients: Option<u16>,
    /// The number of operations after which the run ends, if the workload names it.
    pub operations: Option<NonZeroU64>,
    /// The number of seconds after which the run ends, if the workload names it.
    pub seconds: Option<NonZeroU64>,
}

/// The name of a workload that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadName {
    /// It exists in YCSB, but is not supported here.
    #[error(
        "workload e is not supported: it scans ranges of keys, and keys are hashed here; expected a, b, c, d or f"
    )]
    Scans,
    /// It does not exist.
    #[error("no workload '{0}'; expected a, b, c, d or f")]
    Unknown(String),
}

impl Workload {
    /// A thousand records, as in the papers: enough to choose from, and few enough that clients use the same ones.
    const RECORDS: NonZeroU64 = NonZeroU64::new(1_000).unwrap();

    /// YCSB's core workload with this letter, with records of 128 bytes.
    ///
    /// | | read | update | insert | read-modify-write | popular | models |
    /// |-|-|-|-|-|-|-|
    /// | a | 50 % | 50 % | | | zipfian | a session store |
    /// | b | 95 % | 5 % | | | zipfian | tags on photographs |
    /// | c | 100 % | | | | zipfian | profiles that are made elsewhere |
    /// | d | 95 % | | 5 % | | latest | what people posted last |
    /// | f | 50 % | | | 50 % | zipfian | accounts |
    pub fn core(letter: &str) -> Result<Workload, BadName> {
        let (mix, distribution) = match letter.to_ascii_lowercase().as_str() {
            "a" => (Mix::new(0.5, 0.5, 0.0, 0.0), Distribution::Zipfian),
            "b" => (Mix::new(0.95, 0.05, 0.0, 0.0), Distribution::Zipfian),
            "c" => (Mix::new(1.0, 0.0, 0.0, 0.0), Distribution::Zipfian),
            "d" => (Mix::new(0.95, 0.0, 0.05, 0.0), Distribution::Latest),
            "e" => return Err(BadName::Scans),
            "f" => (Mix::new(0.5, 0.0, 0.0, 0.5), Distribution::Zipfian),
            _ => return Err(BadName::Unknown(letter.chars().take(64).collect())),
        };
        Ok(Workload {
            records: Workload::RECORDS,
            value_size: ValueSize::new(128).expect("128 bytes are a size"),
            mix: mix.expect("constants that add up to 1"),
            distribution,
            arrival: Arrival::Closed { think_ns: 0 },
            clients: None,
            operations: None,
            seconds: None,
        })
    }

    /// A workload from TOML, with YCSB's properties in snake case:
    ///
    /// ```toml
    /// record_count = 1000                  # default 1000
    /// field_count = 1                      # a value is field_count * field_length bytes; defaults 1 and 128
    /// field_length = 128
    /// read_proportion = 0.8                # the proportions add up to 1; default 0 each
    /// update_proportion = 0.2
    /// insert_proportion = 0.0
    /// read_modify_write_proportion = 0.0
    /// request_distribution = "latest"      # uniform, zipfian (default) or latest
    /// thread_count = 128                   # clients
    /// operation_count = 100000             # the run ends after so many operations,
    /// max_execution_time = 60              # or seconds
    /// target = 3000                        # open loop: operations per second of all clients together
    /// spacing = "fixed"                    # open loop: fixed (default) or poisson
    /// think_time_us = 0                    # closed loop: from an answer to the next operation
    /// ```
    ///
    /// # Errors
    /// If the text is not TOML, a field is unknown, or a value is not possible. The error names the place in the file.
    pub fn parse(file: &Path, text: &str) -> Result<Workload, WrongFile> {
        let document = Document::parse(file, text)?;
        let table: WorkloadTable = document.decode()?;
        table.check(0..0).map_err(|wrong| document.report(wrong))
    }
}

/// A workload as it is written in a file, or in a table of one. See [`Workload::parse`].
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkloadTable {
    record_count: Option<Number<1>>,
    field_count: Option<Number<1>>,
    field_length: Option<Number<1>>,
    read_proportion: Proportion,
    update_proportion: Proportion,
    insert_proportion: Proportion,
    read_modify_write_proportion: Proportion,
    scan_proportion: f64,
    request_distribution: Option<Distribution>,
    thread_count: Option<Number<1, { ClientId::MAX as u64 }>>,
    operation_count: Option<Number<1>>,
    max_execution_time: Option<Number<1>>,
    target: Option<Rate>,
    spacing: Option<Spacing>,
    think_time_us: Option<Number<0, { WorkloadTable::MAX_THINK_US }>>,
}

impl WorkloadTable {
    /// The longest think time: a day, in microseconds.
    const MAX_THINK_US: u64 = 86_400_000_000;

    /// The workload that the table describes. `place` is the place of the table; an empty one at the beginning is the whole
    /// file.
    ///
    /// # Errors
    /// If a value is not possible together with the others.
    pub fn check(self, place: Range<usize>) -> Result<Workload, Misplaced> {
        if self.scan_proportion != 0.0 {
            let (found, expected) = (
                self.scan_proportion.to_string(),
                "0: keys are hashed here, so there are no scans",
            );
            return Err(Misplaced::of_field(place, &["scan_proportion"], found, expected));
        }
        let number = |given: Option<Number<1>>| given.and_then(|given| NonZeroU64::new(given.get()));
        Ok(Workload {
            value_size: self.value_size(&place)?,
            mix: self.mix(&place)?,
            arrival: self.arrival(&place)?,
            records: number(self.record_count).unwrap_or(Workload::RECORDS),
            distribution: self.request_distribution.unwrap_or(Distribution::Zipfian),
            clients: self.thread_count.map(|count| count.get() as u16),
            operations: number(self.operation_count),
            seconds: number(self.max_execution_time),
        })
    }

    fn value_size(&self, place: &Range<usize>) -> Result<ValueSize, Misplaced> {
        let fields = self.field_count.as_ref().map_or(1, |count| **count);
        let length = self.field_length.as_ref().map_or(128, |length| **length);
        let field = match self.field_length {
            Some(_) => "field_length",
            None => "field_count",
        };
        ValueSize::new(fields.saturating_mul(length))
            .map_err(|bad| Misplaced::because(place.clone(), &[field], bad))
    }

    fn mix(&self, place: &Range<usize>) -> Result<Mix, Misplaced> {
        let [read, update, insert, modify] = [
            self.read_proportion,
            self.update_proportion,
            self.insert_proportion,
            self.read_modify_write_proportion,
        ]
        .map(|Proportion(share)| share);
        Mix::new(read, update, insert, modify)
            .map_err(|bad| Misplaced::because(place.clone(), &["read_proportion"], bad))
    }

    fn arrival(&self, place: &Range<usize>) -> Result<Arrival, Misplaced> {
        let wrong =
            |field, found, expected| Err(Misplaced::of_field(place.clone(), &[field], found, expected));
        match (self.target, self.spacing, &self.think_time_us) {
            (None, Some(_), _) => wrong("spacing", "no target beside it", "both or neither"),
            (Some(_), _, Some(_)) => {
                let expected = "one of them: with a target, clients do not wait for answers";
                wrong("think_time_us", "a target beside it", expected)
            }
            (None, None, think_us) => Ok(Arrival::Closed {
                think_ns: think_us.as_ref().map_or(0, |us| **us * 1_000),
            }),
            (Some(rate), spacing, None) => Ok(Arrival::Open {
                rate,
                spacing: spacing.unwrap_or_default(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Workload, WrongFile> {
        Workload::parse(Path::new("w.toml"), text)
    }

    #[test]
    fn every_property_has_its_effect() {
        let workload = parse(
            r#"
            record_count = 2000
            field_count = 10
            field_length = 100
            read_proportion = 0.5
            update_proportion = 0.25
            insert_proportion = 0.125
            read_modify_write_proportion = 0.125
            scan_proportion = 0
            request_distribution = "latest"
            thread_count = 12
            operation_count = 99
            max_execution_time = 60
            target = 3000
            spacing = "poisson"
            "#,
        );
        let expected = Workload {
            records: NonZeroU64::new(2000).expect("not 0"),
            value_size: ValueSize::new(1000).expect("a size"),
            mix: Mix::new(0.5, 0.25, 0.125, 0.125).expect("a mix"),
            distribution: Distribution::Latest,
            arrival: Arrival::Open {
                rate: Rate::new(3000.0).expect("a rate"),
                spacing: Spacing::Poisson,
            },
            clients: Some(12),
            operations: NonZeroU64::new(99),
            seconds: NonZeroU64::new(60),
        };
        assert_eq!(workload, Ok(expected));
    }

    #[test]
    fn a_file_can_say_what_workload_b_says() {
        let file = "read_proportion = 0.95\nupdate_proportion = 0.05";
        assert_eq!(parse(file).ok(), Workload::core("B").ok());
        let closed = parse("read_proportion = 1\nthink_time_us = 3").expect("a workload");
        assert_eq!(closed.arrival, Arrival::Closed { think_ns: 3_000 });
    }

    #[test]
    fn workload_e_and_unknown_letters_are_refused() {
        assert_eq!(Workload::core("e"), Err(BadName::Scans));
        assert_eq!(Workload::core("z"), Err(BadName::Unknown("z".into())));
    }

    #[test]
    fn errors_name_the_place_the_field_and_what_was_expected() {
        for (text, expected) in [
            (
                "read_proportion = 1\nreed = 1",
                "w.toml:2: reed: found unknown field `reed`; expected one of `record_count`",
            ),
            (
                "read_proportion = \"x\"",
                "w.toml:1: read_proportion: found string \"x\"; expected a number",
            ),
            (
                "read_proportion = 1\n\n record_count = 0",
                "w.toml:3: record_count: found 0; expected a whole number, 1 or more",
            ),
            (
                "read_proportion = 1\nrecord_count = -5",
                "w.toml:2: record_count: found -5; expected a whole number, 1 or more",
            ),
            (
                "",
                "w.toml:1: read_proportion: found proportions that add up to 0; expected 1",
            ),
            (
                "update_proportion = 0.2\nread_proportion = 0.7",
                "w.toml:2: read_proportion: found proportions that add up to 0.8999999999999999; expected 1",
            ),
            (
                "update_proportion = 1.5",
                "w.toml:1: update_proportion: found a proportion of 1.5; expected 0 to 1",
            ),
            (
                "read_proportion = nan",
                "w.toml:1: read_proportion: found a proportion of NaN; expected 0 to 1",
            ),
            (
                "scan_proportion = 0.95",
                "w.toml:1: scan_proportion: found 0.95; expected 0: keys are hashed here",
            ),
            (
                "read_proportion = 1\nrequest_distribution = \"hotspot\"",
                "w.toml:2: request_distribution: found unknown variant `hotspot`; expected one of `uniform`, `zipfian`, `latest`",
            ),
            (
                "read_proportion = 1\nfield_length = 3",
                "w.toml:2: field_length: found values of 3 bytes; expected 24",
            ),
            (
                "read_proportion = 1\nfield_length = 9223372036854775807\nfield_count = 9",
                "w.toml:2: field_length: found values of",
            ),
            (
                "read_proportion = 1\ntarget = 0",
                "w.toml:2: target: found a rate of 0; expected operations per second",
            ),
            (
                "read_proportion = 1\ntarget = inf",
                "w.toml:2: target: found a rate of inf; expected operations per second",
            ),
            (
                "read_proportion = 1\ntarget = 5\nthink_time_us = 3",
                "w.toml:3: think_time_us: found a target beside it; expected one of them",
            ),
            (
                "read_proportion = 1\nthink_time_us = 9223372036854775807",
                "w.toml:2: think_time_us: found 9223372036854775807; expected a whole number from 0 to 86400000000",
            ),
            (
                "read_proportion = 1\nspacing = \"fixed\"",
                "w.toml:2: spacing: found no target beside it; expected both or neither",
            ),
            (
                "read_proportion = 1\nthread_count = 10001",
                "w.toml:2: thread_count: found 10001; expected a whole number from 1 to 10000",
            ),
            (
                "read_proportion = 1\nread_proportion = 1",
                "w.toml:2: found the key read_proportion twice; expected every key once",
            ),
            ("read_proportion = 1\nkäse käse = 1", "w.toml:2: found "),
            ("[[[", "w.toml:1: found "),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_workload_or_an_error(text in "[a-z_=0-9.\\[\\]\"\n ]{0,80}|\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
