use crate::{Arrival, BadFile, BadMix, Distribution, Misplaced, Mix, Rate, Spacing, ValueSize};
use serde::Deserialize;
use std::{num::NonZeroU64, ops::Range};
use thiserror::Error;
use toml::Spanned;

/// What the clients of a run do, all together.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// How many records there are before the run.
    pub records: NonZeroU64,
    /// How long values are.
    pub value_size: ValueSize,
    /// How often each action is done.
    pub mix: Mix,
    /// Which records are popular.
    pub distribution: Distribution,
    /// When operations begin.
    pub arrival: Arrival,
    /// How many clients there are, if the workload says.
    pub clients: Option<u16>,
    /// How many operations end the run, if the workload says.
    pub operations: Option<NonZeroU64>,
    /// How many seconds end the run, if the workload says.
    pub seconds: Option<NonZeroU64>,
}

/// A workload that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadName {
    /// It exists in YCSB, but cannot be run here.
    #[error(
        "workload e is not supported: it scans ranges of keys, and keys are hashed here; expected a, b, c, d or f"
    )]
    Scans,
    /// It does not exist.
    #[error("no workload '{0}'; expected a, b, c, d or f")]
    Unknown(String),
}

impl Workload {
    /// A thousand records, as in the papers: enough for a choice, few enough that clients meet.
    const RECORDS: NonZeroU64 = NonZeroU64::new(1_000).unwrap();

    /// YCSB's core workload of that letter, with records of 128 bytes.
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
    /// Text that is not TOML, an unknown field, or a value that cannot be, with its place in the text.
    pub fn parse(text: &str) -> Result<Workload, BadFile> {
        let file: WorkloadTable = BadFile::parse(text)?;
        file.check()
            .map_err(|(place, message)| BadFile::at(text, place, &message))
    }
}

/// A workload as it stands in a file, or in a table of one. See [`Workload::parse`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadTable {
    record_count: Option<Spanned<u64>>,
    field_count: Option<Spanned<u64>>,
    field_length: Option<Spanned<u64>>,
    read_proportion: Option<Spanned<f64>>,
    update_proportion: Option<Spanned<f64>>,
    insert_proportion: Option<Spanned<f64>>,
    read_modify_write_proportion: Option<Spanned<f64>>,
    scan_proportion: Option<Spanned<f64>>,
    request_distribution: Option<Distribution>,
    thread_count: Option<Spanned<u64>>,
    operation_count: Option<Spanned<u64>>,
    max_execution_time: Option<Spanned<u64>>,
    target: Option<Spanned<f64>>,
    spacing: Option<Spanned<Spacing>>,
    think_time_us: Option<Spanned<u64>>,
}

impl WorkloadTable {
    /// The longest think time: a day.
    const MOST_THINK_US: u64 = 86_400_000_000;

    /// The workload that it describes.
    ///
    /// # Errors
    /// A value that cannot be, and its place in the text.
    pub fn check(self) -> Result<Workload, Misplaced> {
        Ok(Workload {
            records: positive("record_count", &self.record_count)?.unwrap_or(Workload::RECORDS),
            value_size: self.value_size()?,
            mix: self.mix()?,
            distribution: self.request_distribution.unwrap_or(Distribution::Zipfian),
            arrival: self.arrival()?,
            clients: self.clients()?,
            operations: positive("operation_count", &self.operation_count)?,
            seconds: positive("max_execution_time", &self.max_execution_time)?,
        })
    }

    fn value_size(&self) -> Result<ValueSize, Misplaced> {
        let fields = positive("field_count", &self.field_count)?.map_or(1, NonZeroU64::get);
        let length = positive("field_length", &self.field_length)?.map_or(128, NonZeroU64::get);
        let place = span(&self.field_length)
            .or(span(&self.field_count))
            .unwrap_or(0..0);
        ValueSize::new(fields.saturating_mul(length))
            .map_err(|bad| (place, format!("field_count * field_length: {bad}")))
    }

    fn mix(&self) -> Result<Mix, Misplaced> {
        if let Some(scans) = &self.scan_proportion
            && *scans.get_ref() != 0.0
        {
            let message = "scan_proportion: scans are not supported, keys are hashed here; expected 0";
            return Err((scans.span(), message.into()));
        }
        let all = [
            ("read_proportion", &self.read_proportion),
            ("update_proportion", &self.update_proportion),
            ("insert_proportion", &self.insert_proportion),
            ("read_modify_write_proportion", &self.read_modify_write_proportion),
        ];
        for (name, given) in all {
            if let Some(given) = given
                && !(0.0..=1.0).contains(given.get_ref())
            {
                let message = format!("{name}: {}", BadMix::Proportion(*given.get_ref()));
                return Err((given.span(), message));
            }
        }
        let [read, update, insert, modify] =
            all.map(|(_, given)| given.as_ref().map_or(0.0, |given| *given.get_ref()));
        let place = all.iter().find_map(|(_, given)| span(given)).unwrap_or(0..0);
        Mix::new(read, update, insert, modify).map_err(|bad| {
            let names = all.map(|(name, _)| name).join(" + ");
            (place, format!("{names}: {bad}"))
        })
    }

    fn arrival(&self) -> Result<Arrival, Misplaced> {
        let Some(target) = &self.target else {
            if let Some(spacing) = &self.spacing {
                return Err((
                    spacing.span(),
                    "spacing: there is no target; expected both or neither".into(),
                ));
            }
            let think_us = self.think_time_us.as_ref().map_or(0, |given| *given.get_ref());
            if think_us > WorkloadTable::MOST_THINK_US {
                let message = format!(
                    "think_time_us: {think_us}; expected at most {}",
                    WorkloadTable::MOST_THINK_US
                );
                return Err((span(&self.think_time_us).unwrap_or(0..0), message));
            }
            return Ok(Arrival::Closed {
                think_ns: think_us * 1_000,
            });
        };
        if let Some(think) = &self.think_time_us {
            let message =
                "think_time_us: with a target, clients do not wait for answers; expected only one of them";
            return Err((think.span(), message.into()));
        }
        Ok(Arrival::Open {
            rate: Rate::new(*target.get_ref()).map_err(|bad| (target.span(), format!("target: {bad}")))?,
            spacing: self
                .spacing
                .as_ref()
                .map_or(Spacing::Fixed, |given| *given.get_ref()),
        })
    }

    fn clients(&self) -> Result<Option<u16>, Misplaced> {
        let Some(given) = &self.thread_count else {
            return Ok(None);
        };
        u16::try_from(*given.get_ref())
            .ok()
            .filter(|count| (1..=crate::ClientId::MOST).contains(count))
            .map(Some)
            .ok_or_else(|| {
                let message = format!(
                    "thread_count: {}; expected 1 to {}",
                    given.get_ref(),
                    crate::ClientId::MOST
                );
                (given.span(), message)
            })
    }
}

fn span<T>(given: &Option<Spanned<T>>) -> Option<Range<usize>> {
    given.as_ref().map(Spanned::span)
}

fn positive(name: &str, given: &Option<Spanned<u64>>) -> Result<Option<NonZeroU64>, Misplaced> {
    let Some(given) = given else {
        return Ok(None);
    };
    NonZeroU64::new(*given.get_ref())
        .map(Some)
        .ok_or_else(|| (given.span(), format!("{name}: 0; expected 1 or more")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_property_has_its_effect() {
        let workload = Workload::parse(
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
        assert_eq!(Workload::parse(file).ok(), Workload::core("B").ok());
        let closed = Workload::parse("read_proportion = 1\nthink_time_us = 3").expect("a workload");
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
                "2:1: unknown field `reed`, expected one of `record_count`",
            ),
            (
                "read_proportion = \"x\"",
                "1:19: invalid type: string \"x\", expected f64",
            ),
            (
                "read_proportion = 1\n\n record_count = 0",
                "3:17: record_count: 0; expected 1 or more",
            ),
            ("read_proportion = 1\nrecord_count = -5", "2:16: invalid value"),
            ("", "1:1: read_proportion + update_proportion"),
            (
                "read_proportion = 0.7\nupdate_proportion = 0.2",
                "0.8999999999999999; expected 1",
            ),
            (
                "update_proportion = 1.5",
                "1:21: update_proportion: a proportion of 1.5; expected 0 to 1",
            ),
            (
                "read_proportion = nan",
                "1:19: read_proportion: a proportion of NaN",
            ),
            (
                "scan_proportion = 0.95",
                "1:19: scan_proportion: scans are not supported",
            ),
            (
                "read_proportion = 1\nrequest_distribution = \"hotspot\"",
                "2:24: unknown variant `hotspot`, expected one of `uniform`, `zipfian`, `latest`",
            ),
            (
                "read_proportion = 1\nfield_length = 3",
                "2:16: field_count * field_length: values of 3 bytes",
            ),
            (
                "read_proportion = 1\nfield_length = 9223372036854775807\nfield_count = 9",
                "2:16: field_count",
            ),
            (
                "read_proportion = 1\ntarget = 0",
                "2:10: target: a rate of 0; expected",
            ),
            (
                "read_proportion = 1\ntarget = inf",
                "2:10: target: a rate of inf; expected",
            ),
            (
                "read_proportion = 1\ntarget = 5\nthink_time_us = 3",
                "3:17: think_time_us: with a target",
            ),
            (
                "read_proportion = 1\nthink_time_us = 9223372036854775807",
                "2:17: think_time_us: 92",
            ),
            (
                "read_proportion = 1\nspacing = \"fixed\"",
                "2:11: spacing: there is no target",
            ),
            (
                "read_proportion = 1\nthread_count = 10001",
                "2:16: thread_count: 10001; expected 1 to 10000",
            ),
            ("read_proportion = 1\nread_proportion = 1", "2:1: duplicate key"),
            ("käse käse = 1", "1:6: "),
            ("[[[", "1:"),
        ] {
            let error = Workload::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_workload_or_an_error(text in "[a-z_=0-9.\\[\\]\"\n ]{0,80}|\\PC{0,40}") {
            let _ = Workload::parse(&text);
        }
    }
}
