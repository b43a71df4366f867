//! Reading traces: our own, and those of other programs.
//!
//! The file's name says its format. `.edn` is a history as Jepsen and Knossos write them (`jepsen.rs`), `.csv` is a table
//! (`csv.rs`), and everything else is JSON: one record a line, or one object with all records in `ops`. A further `.zst`
//! says that the file is compressed.
//!
//! The input is not trusted. So the longest line, the longest table row and the deepest nesting have limits. Memory holds
//! one record at a time (of a history also the operations that are under way; of an object all of it). Every error names the
//! file and the line, what was expected there and what was found. After an error nothing more is read.
use crate::{Packing, Record};
use serde::{Deserialize, de::IgnoredAny};
use std::{
    borrow::Cow,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};
use thiserror::Error;

mod csv;
mod edn;
mod jepsen;

use self::{csv::Table, jepsen::Jepsen};

/// The longest line, in bytes.
const MAX_LINE_BYTES: u64 = 64 << 20;

const A_RECORD: &str = "an operation as JSON (client, site, op, key, value, start_ns, finish_ns, status)";

/// Reads a trace, one record after the other: JSON lines, one object with all records in `ops`, CSV, or a Jepsen history.
pub struct TraceReader {
    file: PathBuf,
    source: Source,
}

enum Source {
    Lines(Lines),
    Whole(std::vec::IntoIter<Record>),
    Table(Box<Table>),
    Jepsen(Box<Jepsen>),
    /// There is no more input, or an error has ended the reading.
    Done,
}

/// A trace that cannot be read.
#[derive(Debug, Error)]
pub enum BadTraceFile {
    /// The file could not be read.
    #[error("{}: {source}", file.display())]
    Unreadable {
        /// The file's path.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A line is no record.
    #[error("{}:{line}: expected {expected}, found {found}", file.display())]
    BadLine {
        /// The file's path.
        file: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What was expected.
        expected: Cow<'static, str>,
        /// What was found.
        found: String,
    },
}

/// An error, before the file's name is added.
enum Fault {
    Unreadable(io::Error),
    Bad {
        line: u64,
        expected: Cow<'static, str>,
        found: String,
    },
}

impl Fault {
    fn bad(line: u64, expected: impl Into<Cow<'static, str>>, found: impl Into<String>) -> Fault {
        Fault::Bad {
            line,
            expected: expected.into(),
            found: found.into(),
        }
    }

    fn json(line: u64, error: &serde_json::Error) -> Fault {
        let text = error.to_string();
        let what = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
        let column = error.column();
        let found = if error.is_eof() {
            format!("a line that ends too early, after column {column}: {what}")
        } else {
            format!("something else at column {column}: {what}")
        };
        Fault::bad(line, A_RECORD, found)
    }

    fn in_file(self, file: &Path) -> BadTraceFile {
        let file = file.to_path_buf();
        match self {
            Fault::Unreadable(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                let source = io::Error::new(
                    source.kind(),
                    format!("expected a whole file, found one that is cut off ({source})"),
                );
                BadTraceFile::Unreadable { file, source }
            }
            Fault::Unreadable(source) => BadTraceFile::Unreadable { file, source },
            Fault::Bad {
                line,
                expected,
                found,
            } => BadTraceFile::BadLine {
                file,
                line,
                expected,
                found,
            },
        }
    }
}

impl From<io::Error> for Fault {
    fn from(source: io::Error) -> Fault {
        Fault::Unreadable(source)
    }
}

/// A trace that is one object. Small traces with expected answers have this form. Beside the operations it may have a name, a note and
/// the answers, which are not read here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    ops: Vec<Record>,
    #[serde(rename = "name", default)]
    _name: IgnoredAny,
    #[serde(rename = "note", default)]
    _note: IgnoredAny,
    #[serde(rename = "expect", default)]
    _expect: IgnoredAny,
}

/// What such an object has at least.
#[derive(Deserialize)]
struct HasOps {
    #[serde(rename = "ops")]
    _ops: IgnoredAny,
}

impl TraceReader {
    /// Opens a trace. The file's extensions say how it is packed and which format it has.
    ///
    /// # Errors
    /// If the file cannot be read, or its first line is neither a record nor what may come before records.
    pub fn open(file: &Path) -> Result<TraceReader, BadTraceFile> {
        match File::open(file) {
            Ok(opened) => TraceReader::new(file, opened),
            Err(source) => Err(Fault::from(source).in_file(file)),
        }
    }

    /// Reads a trace from any source, as if it were in a file with this name.
    ///
    /// # Errors
    /// Those of [`TraceReader::open`].
    pub fn new(file: &Path, from: impl Read + 'static) -> Result<TraceReader, BadTraceFile> {
        match Source::new(file, from) {
            Ok(source) => Ok(TraceReader {
                file: file.to_path_buf(),
                source,
            }),
            Err(fault) => Err(fault.in_file(file)),
        }
    }

    /// The line of the record that was read last, from 1. In a history it is the line of the operation's completion. `None`
    /// if records have no lines of their own.
    pub fn line(&self) -> Option<u64> {
        match &self.source {
            Source::Lines(lines) => Some(lines.line),
            Source::Table(table) => Some(table.line()),
            Source::Jepsen(history) => Some(history.line()),
            Source::Whole(_) | Source::Done => None,
        }
    }
}

impl Iterator for TraceReader {
    type Item = Result<Record, BadTraceFile>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = match &mut self.source {
            Source::Lines(lines) => lines.next(),
            Source::Whole(records) => Ok(records.next()),
            Source::Table(table) => table.next(),
            Source::Jepsen(history) => history.next(),
            Source::Done => Ok(None),
        };
        let next = next.and_then(|record| self.sensible(record));
        if !matches!(next, Ok(Some(_))) {
            self.source = Source::Done;
        }
        next.map_err(|fault| fault.in_file(&self.file)).transpose()
    }
}

impl TraceReader {
    /// Checks that the operation does not end before it starts.
    fn sensible(&self, record: Option<Record>) -> Result<Option<Record>, Fault> {
        match &record {
            Some(Record {
                start_ns,
                finish_ns: Some(finish),
                ..
            }) if finish < start_ns => Err(Fault::bad(
                self.line().unwrap_or(1),
                "an operation that is over after it began",
                format!("one from {start_ns} to {finish}"),
            )),
            _ => Ok(record),
        }
    }
}

impl Source {
    fn new(file: &Path, from: impl Read + 'static) -> Result<Source, Fault> {
        let (packing, mut name) = (Packing::of(file), file.to_path_buf());
        let input: Box<dyn BufRead> = match packing {
            Packing::Plain => Box::new(BufReader::with_capacity(1 << 16, from)),
            Packing::Zstd => {
                name.set_extension("");
                let unpacked = zstd::Decoder::new(from)?;
                Box::new(BufReader::with_capacity(1 << 16, unpacked))
            }
        };
        match name.extension() {
            Some(extension) if extension == "edn" => Ok(Source::Jepsen(Box::new(Jepsen::new(input)))),
            Some(extension) if extension == "csv" => Ok(Source::Table(Box::new(Table::new(input)?))),
            _ => Source::json(input),
        }
    }

    /// If the first line is not a record, the whole input must be one object.
    fn json(mut input: Box<dyn BufRead>) -> Result<Source, Fault> {
        let mut first = Vec::new();
        (&mut input).take(MAX_LINE_BYTES).read_until(b'\n', &mut first)?;
        let is_line = first.trim_ascii().is_empty() || serde_json::from_slice::<Record>(&first).is_ok();
        let together = io::Cursor::new(first).chain(input);
        if is_line {
            return Ok(Source::Lines(Lines::new(together)));
        }
        let mut text = Vec::new();
        together.take(MAX_LINE_BYTES).read_to_end(&mut text)?;
        let whole: Whole = serde_json::from_slice(&text).map_err(|error| {
            // The error is reported for the first line, unless that was the beginning of an object, or one with operations.
            let has_ops = serde_json::from_slice::<HasOps>(&text).is_ok();
            let as_line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
            match serde_json::from_slice::<Record>(as_line).err() {
                // A first line that is cut off is a record's if its fields are those of records, and so not those of the whole object.
                Some(blamed) if !has_ops && (!blamed.is_eof() || (error.line() == 1 && !error.is_eof())) => {
                    Fault::json(1, &blamed)
                }
                _ if text.len() as u64 == MAX_LINE_BYTES => too_long(1),
                _ => Fault::json(error.line().max(1) as u64, &error),
            }
        })?;
        Ok(Source::Whole(whole.ops.into_iter()))
    }
}

fn too_long(line: u64) -> Fault {
    let found = format!("one of more than {} MiB", MAX_LINE_BYTES >> 20);
    Fault::bad(line, A_RECORD, found)
}

/// JSON, one record a line.
struct Lines {
    input: Box<dyn BufRead>,
    /// The number of the last line that was read, from 1.
    line: u64,
    text: Vec<u8>,
}

impl Lines {
    fn new(input: impl BufRead + 'static) -> Lines {
        Lines {
            input: Box::new(input),
            line: 0,
            text: Vec::new(),
        }
    }

    fn next(&mut self) -> Result<Option<Record>, Fault> {
        loop {
            self.text.clear();
            self.line += 1;
            let mut limited = (&mut self.input).take(MAX_LINE_BYTES);
            let read = limited.read_until(b'\n', &mut self.text)?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 == MAX_LINE_BYTES && !self.text.ends_with(b"\n") {
                return Err(too_long(self.line));
            }
            if !self.text.trim_ascii().is_empty() {
                let record = serde_json::from_slice(&self.text);
                return record.map(Some).map_err(|error| Fault::json(self.line, &error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const LINE: &str = r#"{"client":"c1","site":"a","op":"write","key":"k","value":"v","start_ns":5,"finish_ns":9,"status":"ok"}"#;

    fn read(name: &str, bytes: &[u8]) -> Result<Vec<Record>, String> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join(name);
        File::create(&file)
            .and_then(|mut file| file.write_all(bytes))
            .expect("it can be written");
        let records = TraceReader::open(&file).and_then(|reader| reader.collect());
        records.map_err(|error| {
            let text = error.to_string();
            text.rsplit_once('/')
                .map_or(text.clone(), |(_, text)| text.to_owned())
        })
    }

    #[test]
    fn lines_packed_lines_and_objects_are_read() {
        let lines = format!("{LINE}\n\n{LINE}");
        assert_eq!(
            read("t.jsonl", lines.as_bytes()).map(|records| records.len()),
            Ok(2)
        );
        let packed = zstd::encode_all(lines.as_bytes(), 3).expect("memory takes it");
        assert_eq!(read("t.jsonl.zst", &packed).map(|records| records.len()), Ok(2));
        let object = format!("{{\n\"name\": \"x\",\n\"ops\": [{LINE}, {LINE}, {LINE}]}}");
        assert_eq!(
            read("t.json", object.as_bytes()).map(|records| records.len()),
            Ok(3)
        );
        assert_eq!(read("t.jsonl", b"").map(|records| records.len()), Ok(0));
        assert_eq!(read("t.jsonl", b"\n \n").map(|records| records.len()), Ok(0));
    }

    #[test]
    fn what_is_no_record_is_named_with_its_line() {
        for (name, bytes, expected) in [
            (
                "t.jsonl",
                format!("{LINE}\nnoise"),
                "t.jsonl:2: expected an operation as JSON",
            ),
            (
                "t.jsonl",
                format!("{LINE}\n{}", &LINE[..40]),
                "t.jsonl:2: expected",
            ),
            (
                "t.jsonl",
                LINE[..40].into(),
                "t.jsonl:1: expected an operation as JSON (client, site, op, key, value, start_ns, finish_ns, status), found a line that ends \
                 too early",
            ),
            ("t.jsonl", LINE.replace("status", "state"), "t.jsonl:1: expected"),
            (
                "t.jsonl",
                format!("\n{}", LINE.replace("\"finish_ns\":9", "\"finish_ns\":4")),
                "t.jsonl:2: expected an operation that is over after it began, found one from 5 to 4",
            ),
            (
                "t.jsonl",
                LINE.replace('5', "99999999999999999999"),
                "t.jsonl:1: expected an operation as JSON",
            ),
            (
                "t.jsonl",
                format!("{LINE}\n{}", "[".repeat(1 << 20)),
                "t.jsonl:2: expected",
            ),
            ("t.jsonl", "\u{0}\u{1}".into(), "t.jsonl:1: expected"),
            (
                "t.jsonl",
                format!(
                    "{LINE}\n{}",
                    LINE.replace("\"status\"", "\"levl\":\"causal\",\"status\"")
                ),
                "t.jsonl:2: expected an operation as JSON (client, site, op, key, value, start_ns, finish_ns, status), found something else \
                 at column 94: unknown field `levl`, expected one of `client`, `site`,",
            ),
            (
                "t.json",
                format!(
                    "{{\"name\":\"x\",\n\"ops\":[{}]}}",
                    LINE.replace("\"site\"", "\"sight\"")
                ),
                "t.json:2: expected an operation as JSON (client, site, op, key, value, start_ns, finish_ns, status), found something else \
                 at column 29: unknown field `sight`",
            ),
            (
                "t.json",
                format!(
                    "{{\"name\":\"x\",\"ops\":[{}]}}",
                    LINE.replace("\"site\"", "\"sight\"")
                ),
                "t.json:1: expected an operation as JSON (client, site, op, key, value, start_ns, finish_ns, status), found something else \
                 at column 41: unknown field `sight`",
            ),
            (
                "t.json",
                format!("{{\"operations\":[],\"ops\":[{LINE}]}}"),
                "t.json:1: expected an operation as JSON (client, site, op, key, value, start_ns, finish_ns, status), found something else \
                 at column 13: unknown field `operations`, expected one of `ops`, `name`, `note`, `expect`",
            ),
            ("t.json", "{\"name\": \"x\"}".into(), "t.json:1: expected"),
            ("t.jsonl.zst", LINE.into(), "t.jsonl.zst: "),
        ] {
            let error = read(name, bytes.as_bytes()).expect_err(expected);
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_named_with_their_line() {
        let wrong = [
            LINE.as_bytes(),
            b"\n",
            &LINE.as_bytes()[..12],
            b"\xff\xfe",
            LINE.as_bytes(),
        ]
        .concat();
        let error = read("t.jsonl", &wrong).expect_err("noise");
        assert!(error.starts_with("t.jsonl:2: expected"), "{error}");
    }

    #[test]
    fn a_packed_trace_that_was_cut_off_says_so() {
        let lines = format!("{LINE}\n").repeat(1_000);
        let packed = zstd::encode_all(lines.as_bytes(), 3).expect("memory takes it");
        let error = read("t.jsonl.zst", &packed[..packed.len() - 9]).expect_err("it is cut off");
        assert!(
            error.contains("expected a whole file, found one that is cut off"),
            "{error}"
        );
    }

    #[test]
    fn a_line_without_an_end_is_not_taken_in() {
        let line = io::repeat(b'x').take(1 << 40);
        let first = io::Cursor::new(format!("{LINE}\n"));
        for (name, expected) in [
            ("t.jsonl", "t.jsonl:2: expected an operation as JSON"),
            ("t.edn", "t.edn:1: expected"),
            ("t.csv", "t.csv:1: expected"),
        ] {
            let reader = TraceReader::new(
                Path::new(name),
                first.clone().chain(io::repeat(b'x').take(1 << 40)),
            );
            let error = reader.and_then(|reader| reader.collect::<Result<Vec<_>, _>>());
            let error = error.expect_err("it has no end").to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let quoted = io::Cursor::new("client,site,op,key,value,start_ns,finish_ns,status\n\"").chain(line);
        let mut table = TraceReader::new(Path::new("t.csv"), quoted).expect("a header");
        let error = table
            .next()
            .expect("a row")
            .expect_err("it has no end")
            .to_string();
        assert!(
            error.ends_with("found more than 64 MiB (is a quote left open?)"),
            "{error}"
        );
        assert!(table.next().is_none(), "nothing is read behind a complaint");
    }
}
