//! A table: CSV with a header.
//!
//! The header names the columns, in any order, as the fields of a [`Record`] are named: `client`, `site`, `op`, `key`,
//! `value`, `start_ns`, `finish_ns` and `status` have to be there, `version`, `level` and `recorder` may be. A column with
//! another name is refused, because it may be misspelt. Fields are separated by commas and quoted as in RFC 4180. All of it
//! is UTF-8.
//!
//! Limits:
//! - An empty cell means nothing: no value read, no finish. CSV cannot tell a quoted empty string from nothing, so a written
//!   value must not be empty.
//! - Empty lines are skipped. An error in the row behind them names the first of them.
//! - Snapshots and receipts do not fit into a table: they need JSON.
use super::{Fault, MAX_LINE_BYTES};
use crate::{Octets, Op, Record, Status};
use csv::StringRecord;
use serde::Deserialize;
use std::io::{self, BufRead, Read};

const NEEDED: [&str; 8] = [
    "client",
    "site",
    "op",
    "key",
    "value",
    "start_ns",
    "finish_ns",
    "status",
];
const OPTIONAL: [&str; 3] = ["version", "level", "recorder"];

/// Reads the rows of a table.
pub(super) struct Table {
    rows: csv::Reader<Limited>,
    header: StringRecord,
    row: StringRecord,
}

/// Reads at most `left` bytes: an unbalanced quote would make the rest of a file one row.
struct Limited {
    input: Box<dyn BufRead>,
    left: u64,
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.input.fill_buf()?.is_empty() {
            let limit = MAX_LINE_BYTES >> 20;
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("more than {limit} MiB (is a quote left open?)"),
            ));
        }
        let read = (&mut self.input).take(self.left).read(buffer)?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// The cells of a row, by column name.
#[derive(Deserialize)]
struct Row<'a> {
    client: &'a str,
    site: &'a str,
    op: Op,
    key: &'a str,
    value: &'a str,
    start_ns: i64,
    finish_ns: Option<i64>,
    status: Status,
    version: Option<String>,
    level: Option<String>,
    recorder: Option<String>,
}

impl Table {
    pub(super) fn new(input: Box<dyn BufRead>) -> Result<Table, Fault> {
        let limited = Limited {
            input,
            left: MAX_LINE_BYTES,
        };
        let mut rows = csv::ReaderBuilder::new().from_reader(limited);
        let header = rows.headers().map_err(|error| fault(error, 1))?.clone();
        check_header(&header)?;
        Ok(Table {
            rows,
            header,
            row: StringRecord::new(),
        })
    }

    /// The line on which the last row began.
    pub(super) fn line(&self) -> u64 {
        self.row.position().map_or(1, csv::Position::line)
    }

    pub(super) fn next(&mut self) -> Result<Option<Record>, Fault> {
        self.rows.get_mut().left = MAX_LINE_BYTES;
        let before = self.rows.position().line();
        let more = self.rows.read_record(&mut self.row);
        if !more.map_err(|error| fault(error, before))? {
            return Ok(None);
        }
        let line = self.line();
        let row: Row<'_> = self
            .row
            .deserialize(Some(&self.header))
            .map_err(|error| fault(error, line))?;
        record(&row, line).map(Some)
    }
}

/// A file without content has no header, and no rows either.
fn check_header(header: &StringRecord) -> Result<(), Fault> {
    let expected = || {
        format!(
            "the columns {}, and optionally {}, each once",
            NEEDED.join(", "),
            OPTIONAL.join(", ")
        )
    };
    let bad = |found: String| Err(Fault::bad(1, expected(), found));
    if header.is_empty() {
        return Ok(());
    }
    for (place, column) in header.iter().enumerate() {
        if !NEEDED.contains(&column) && !OPTIONAL.contains(&column) {
            return bad(format!("{:?}", shortened(column)));
        }
        if header.iter().take(place).any(|before| before == column) {
            return bad(format!("{column} twice"));
        }
    }
    match NEEDED
        .iter()
        .find(|&needed| header.iter().all(|column| column != *needed))
    {
        Some(missing) => bad(format!("no {missing}")),
        None => Ok(()),
    }
}

fn record(row: &Row<'_>, line: u64) -> Result<Record, Fault> {
    let value = (!row.value.is_empty()).then(|| Octets::from(row.value));
    if row.op == Op::Snapshot {
        return Err(Fault::bad(
            line,
            "read, write or delete",
            "snapshot, which only JSON can hold",
        ));
    }
    if row.op == Op::Write && value.is_none() {
        return Err(Fault::bad(
            line,
            "the value that was written",
            "an empty one, which CSV cannot distinguish from no value",
        ));
    }
    Ok(Record {
        client: row.client.to_owned(),
        site: row.site.to_owned(),
        op: row.op,
        key: row.key.into(),
        value,
        start_ns: row.start_ns,
        finish_ns: row.finish_ns,
        status: row.status,
        version: row.version.clone(),
        level: row.level.clone(),
        receipt: None,
        recorder: row.recorder.clone(),
        pipelined: false,
        existed: false,
        reads: None,
    })
}

fn fault(error: csv::Error, line: u64) -> Fault {
    let line = error.position().map_or(line, csv::Position::line);
    let expected = "a row as the header says";
    match error.into_kind() {
        csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Fault::bad(line, expected, error.to_string())
        }
        csv::ErrorKind::Io(error) => Fault::Unreadable(error),
        csv::ErrorKind::Utf8 { err, .. } => Fault::bad(line, "UTF-8", err.to_string()),
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => Fault::bad(line, format!("{expected_len} cells"), len.to_string()),
        csv::ErrorKind::Deserialize { err, .. } => {
            let found = match err.field() {
                Some(cell) => format!("in cell {}: {}", cell.saturating_add(1), err.kind()),
                None => err.kind().to_string(),
            };
            Fault::bad(line, expected, shortened(&found))
        }
        other => Fault::bad(line, expected, format!("{other:?}")),
    }
}

/// The beginning of a text that may be very long, for messages.
pub(super) fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 100;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}
