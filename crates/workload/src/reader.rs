use crate::{Packing, Record};
use serde::Deserialize;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};
use thiserror::Error;

/// The longest line that is taken for one.
const MOST_LINE_BYTES: u64 = 64 << 20;

/// Reads a trace, one record after the other: JSON lines, or one object with all of them in `ops`.
///
/// Memory holds one line at a time; of an object all of it.
pub struct TraceReader {
    file: PathBuf,
    source: Source,
    /// Of the last line that was read, from 1.
    line: u64,
}

enum Source {
    Lines(Box<dyn BufRead>),
    Whole(std::vec::IntoIter<Record>),
}

/// A trace that cannot be read.
#[derive(Debug, Error)]
pub enum BadTraceFile {
    /// The world failed.
    #[error("{}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file says something that is no record.
    #[error("{}:{line}: expected an operation as JSON (client, site, op, key, value, start_ns, finish_ns, status), {found}", file.display())]
    BadLine {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        found: String,
    },
}

/// A trace that is one object, as small ones with expected answers are.
#[derive(Deserialize)]
struct Whole {
    ops: Vec<Record>,
}

impl TraceReader {
    /// Opens a trace, packed as the file's extension says.
    ///
    /// # Errors
    /// If the file cannot be read, or its first line is no record.
    pub fn open(file: &Path) -> Result<TraceReader, BadTraceFile> {
        let unreadable = |source| BadTraceFile::Unreadable {
            file: file.to_path_buf(),
            source,
        };
        let opened = File::open(file).map_err(unreadable)?;
        let mut lines: Box<dyn BufRead> = match Packing::of(file) {
            Packing::Plain => Box::new(BufReader::with_capacity(1 << 16, opened)),
            Packing::Zstd => {
                let unpacked = zstd::Decoder::new(opened).map_err(unreadable)?;
                Box::new(BufReader::with_capacity(1 << 16, unpacked))
            }
        };
        // An object that does not end with its first line is a trace as a whole.
        let mut first = Vec::new();
        (&mut lines)
            .take(MOST_LINE_BYTES)
            .read_until(b'\n', &mut first)
            .map_err(unreadable)?;
        let is_line = first.trim_ascii().is_empty() || serde_json::from_slice::<Record>(&first).is_ok();
        let mut reader = TraceReader {
            file: file.to_path_buf(),
            source: Source::Whole(Vec::new().into_iter()),
            line: 0,
        };
        let together = io::Cursor::new(first).chain(lines);
        if is_line {
            reader.source = Source::Lines(Box::new(together));
            return Ok(reader);
        }
        let mut text = Vec::new();
        together
            .take(MOST_LINE_BYTES)
            .read_to_end(&mut text)
            .map_err(unreadable)?;
        let whole: Whole = serde_json::from_slice(&text).map_err(|error| {
            // The first line is to blame unless it was the beginning of an object.
            let as_line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let blamed = serde_json::from_slice::<Record>(as_line).err();
            let blamed = blamed.filter(|blamed| !blamed.is_eof()).unwrap_or(error);
            reader.bad_line(1, &blamed)
        })?;
        reader.source = Source::Whole(whole.ops.into_iter());
        Ok(reader)
    }

    fn bad_line(&self, line: u64, error: &serde_json::Error) -> BadTraceFile {
        BadTraceFile::BadLine {
            file: self.file.clone(),
            line,
            found: format!("found what does not fit: {error}"),
        }
    }

    fn next_line(&mut self) -> Option<Result<Record, BadTraceFile>> {
        let Source::Lines(lines) = &mut self.source else {
            return None;
        };
        let mut line = Vec::new();
        loop {
            line.clear();
            self.line += 1;
            let read = lines.take(MOST_LINE_BYTES).read_until(b'\n', &mut line);
            match read {
                Ok(0) => return None,
                Ok(_) if line.trim_ascii().is_empty() => {}
                Ok(_) => break,
                Err(source) => {
                    let file = self.file.clone();
                    return Some(Err(BadTraceFile::Unreadable { file, source }));
                }
            }
        }
        Some(serde_json::from_slice(&line).map_err(|error| self.bad_line(self.line, &error)))
    }
}

impl Iterator for TraceReader {
    type Item = Result<Record, BadTraceFile>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.source {
            Source::Whole(records) => records.next().map(Ok),
            Source::Lines(_) => self.next_line(),
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
            ("t.jsonl", LINE.replace("status", "state"), "t.jsonl:1: expected"),
            ("t.jsonl", "\u{0}\u{1}".into(), "t.jsonl:1: expected"),
            ("t.json", "{\"name\": \"x\"}".into(), "t.json:1: expected"),
            ("t.jsonl.zst", LINE.into(), "t.jsonl.zst: "),
        ] {
            let error = read(name, bytes.as_bytes()).expect_err(expected);
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
