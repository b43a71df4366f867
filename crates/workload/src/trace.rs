use crate::Octets;
use serde::{Deserialize, Serialize};
use std::{
    io::{self, BufWriter, Write},
    num::NonZeroU8,
    path::Path,
};

/// One operation as its client saw it: one line of a trace.
///
/// ```text
/// {"client":"c7","site":"a","op":"write","key":"user3","value":"c7.0.0k3x9a","start_ns":5,"finish_ns":9,"status":"ok"}
/// ```
///
/// The first eight fields are always there. The optional ones are left out if they have no value. A line with another field is
/// refused: the field may be a misspelt one, and then the line would be judged without it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The session. Its acknowledged operations do not overlap, unless they were [pipelined](Record::pipelined).
    pub client: String,
    /// The site to which the operation was sent.
    pub site: String,
    /// The kind of the operation.
    pub op: Op,
    /// The key. Empty for a snapshot.
    #[serde(default = "no_key")]
    pub key: Octets,
    /// The value that was read or written. `None`: a key without value, or nothing read because there was no answer.
    pub value: Option<Octets>,
    /// When the operation was sent, in nanoseconds of the recorder's clock. Signed, because recorders count from different
    /// times.
    pub start_ns: i64,
    /// When the answer came, on the same clock. `None` if none came.
    pub finish_ns: Option<i64>,
    /// How the operation ended.
    pub status: Status,
    /// The version that was read or written, as the store writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The level that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// What the answer claims about itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Claim>,
    /// The recorder with whose monotonic clock the times were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorder: Option<String>,
    /// Whether it was sent before the client's last operation was answered, to take effect after it. A session's operations
    /// are in the order of their starts, which differ.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pipelined: bool,
    /// For a delete: whether it was told that there was a value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub existed: bool,
    /// What a snapshot read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<Vec<SnapshotRead>>,
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Reads a key. A write whose condition did not hold counts as a read, too: it saw what is there, and wrote nothing.
    Read,
    /// Writes a value to a key.
    Write,
    /// Deletes a key's value.
    Delete,
    /// Reads several keys as one snapshot.
    Snapshot,
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It was carried out.
    Ok,
    /// It was certainly not carried out, and never will be.
    Fail,
    /// It may have been carried out, or may still be.
    Unknown,
}

/// One key of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRead {
    /// The key.
    pub key: Octets,
    /// The key's value, if it had one.
    pub value: Option<Octets>,
    /// The key's version, if the store named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A receipt in a trace: a claim that can be audited. Levels, sites and versions are written as the store writes them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The level that was asked for.
    pub asked: String,
    /// The level that was given.
    pub given: String,
    /// The site that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The server that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// How the operation reached the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// How long the operation was parked, in microseconds.
    #[serde(default)]
    pub waited_us: u64,
    /// The answer reflects every write acknowledged this long before the operation began, in microseconds. If `covers` is above 1, some writes
    /// are excepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staleness_us: Option<u64>,
    /// The number of replicas k: `staleness_us` covers the writes that at least k replicas had stored when they were acknowledged. `None`: 1, which
    /// is every write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<NonZeroU8>,
    /// The number of replicas that had stored a write when it was acknowledged, or that had answered a read. `None`: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<NonZeroU8>,
    /// The clock error that `staleness_us` allows for, in microseconds.
    #[serde(default)]
    pub clock_bound_us: u64,
    /// Whether concurrent versions are hidden behind the answer.
    #[serde(default)]
    pub siblings: bool,
    /// The moment as of which the keys were read: everything that was stamped up to it is shown, and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// When the value expires, or expired, in microseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_us: Option<u64>,
    /// The version that wrote the value, if the version of the answer has only changed its expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
}

fn no_key() -> Octets {
    Octets(bytes::Bytes::new())
}

/// How a trace is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Not packed.
    Plain,
    /// Zstandard.
    Zstd,
}

impl Packing {
    /// The packing by the file's extension: `.zst` is packed, any other is not.
    pub fn of(path: &Path) -> Packing {
        match path.extension() {
            Some(extension) if extension == "zst" => Packing::Zstd,
            _ => Packing::Plain,
        }
    }
}

/// Writes a trace, one line per record.
///
/// [`TraceWriter::finish`] must be called in the end. If a writer is dropped, the records that it still holds are lost.
pub struct TraceWriter<W: Write> {
    out: Out<W>,
    line: Vec<u8>,
}

enum Out<W: Write> {
    Plain(BufWriter<W>),
    Zstd(BufWriter<zstd::Encoder<'static, W>>),
}

impl<W: Write> TraceWriter<W> {
    /// The compression level of zstd: it costs little in comparison with the formatting of JSON.
    const ZSTD_LEVEL: i32 = 3;

    /// A writer into `out`.
    ///
    /// # Errors
    /// If there is not enough memory for zstd.
    pub fn new(out: W, packing: Packing) -> io::Result<TraceWriter<W>> {
        Ok(TraceWriter {
            out: match packing {
                Packing::Plain => Out::Plain(BufWriter::with_capacity(1 << 16, out)),
                Packing::Zstd => {
                    let encoder = zstd::Encoder::new(out, TraceWriter::<W>::ZSTD_LEVEL)?;
                    Out::Zstd(BufWriter::with_capacity(1 << 16, encoder))
                }
            },
            line: Vec::new(),
        })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// Those of the underlying writer. The trace is of no use then.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, record)?;
        self.line.push(b'\n');
        match &mut self.out {
            Out::Plain(out) => out.write_all(&self.line),
            Out::Zstd(out) => out.write_all(&self.line),
        }
    }

    /// Writes what is still held, ends the packing, and returns the underlying writer.
    ///
    /// # Errors
    /// Those of the underlying writer. The trace is of no use then.
    pub fn finish(self) -> io::Result<W> {
        let mut out = match self.out {
            Out::Plain(out) => out.into_inner().map_err(io::IntoInnerError::into_error)?,
            Out::Zstd(out) => out
                .into_inner()
                .map_err(io::IntoInnerError::into_error)?
                .finish()?,
        };
        out.flush()?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let plain = Record {
            client: "c1".into(),
            site: "a".into(),
            op: Op::Write,
            key: "user1".into(),
            value: Some("c1.0.000001".into()),
            start_ns: 5,
            finish_ns: Some(9),
            status: Status::Ok,
            version: None,
            level: None,
            receipt: None,
            recorder: None,
            pipelined: false,
            existed: false,
            reads: None,
        };
        let full = Record {
            op: Op::Read,
            key: Octets(bytes::Bytes::from_static(&[0xff])),
            version: Some("12.0@a".into()),
            level: Some("bounded(2s)".into()),
            receipt: Some(Claim {
                asked: "bounded(2s)".into(),
                given: "bounded(2s)".into(),
                site: Some("a".into()),
                server: Some("a/0/1".into()),
                route: Some("local".into()),
                waited_us: 3,
                staleness_us: Some(1_000),
                covers: NonZeroU8::new(2),
                copies: NonZeroU8::new(3),
                clock_bound_us: 500,
                siblings: false,
                as_of: None,
                until_us: None,
                base: None,
            }),
            recorder: Some("bench".into()),
            pipelined: false,
            ..plain.clone()
        };
        let lost = Record {
            op: Op::Snapshot,
            value: None,
            start_ns: i64::MAX - 1,
            finish_ns: None,
            status: Status::Unknown,
            reads: Some(vec![SnapshotRead {
                key: "user1".into(),
                value: None,
                version: None,
            }]),
            ..plain.clone()
        };
        vec![plain, full, lost]
    }

    fn write(packing: Packing) -> Vec<u8> {
        let mut writer = TraceWriter::new(Vec::new(), packing).expect("a writer into memory");
        for record in records() {
            writer.write(&record).expect("memory takes it");
        }
        writer.finish().expect("memory takes it")
    }

    fn read(bytes: &[u8]) -> Vec<Record> {
        std::str::from_utf8(bytes)
            .expect("JSON is UTF-8")
            .lines()
            .map(|line| serde_json::from_str(line).expect("own JSON"))
            .collect()
    }

    #[test]
    fn records_come_back_as_they_were_written() {
        assert_eq!(read(&write(Packing::Plain)), records());
        let unpacked = zstd::decode_all(&write(Packing::Zstd)[..]).expect("own zstd");
        assert_eq!(read(&unpacked), records());
    }

    #[test]
    fn a_record_without_extras_has_the_eight_fields_and_no_other() {
        let lines = write(Packing::Plain);
        let first = lines.split(|&byte| byte == b'\n').next().expect("a line");
        assert_eq!(
            std::str::from_utf8(first).expect("JSON is UTF-8"),
            r#"{"client":"c1","site":"a","op":"write","key":"user1","value":"c1.0.000001","start_ns":5,"finish_ns":9,"status":"ok"}"#
        );
    }

    #[test]
    fn a_receipt_without_replicas_is_read_and_written_without_them() {
        let json = r#"{"asked":"one","given":"one","waited_us":0,"staleness_us":5,"clock_bound_us":0,"siblings":false}"#;
        let claim: Claim = serde_json::from_str(json).expect("a receipt");
        assert_eq!((claim.covers, claim.copies), (None, None));
        assert_eq!(serde_json::to_string(&claim).expect("JSON"), json);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (json, expected) in [
            (r#"{"client":"c1"}"#, "missing field `site`"),
            (
                r#"{"client":"c1","site":"a","op":"reed"}"#,
                "unknown variant `reed`, expected one of `read`",
            ),
            (
                r#"{"client":"c1","site":"a","op":"read","levl":"causal"}"#,
                "unknown field `levl`, expected one of `client`",
            ),
            (
                r#"{"client":"c1","reads":[{"key":"x","value":null,"versoin":"1.0@a"}]}"#,
                "unknown field `versoin`, expected one of `key`, `value`, `version`",
            ),
            (
                r#"{"client":"c1","receipt":{"asked":"causal","given":"causal","stalenes_us":5}}"#,
                "unknown field `stalenes_us`, expected one of `asked`",
            ),
            (
                r#"{"client":"c1","receipt":{"asked":"one","given":"one","covers":0}}"#,
                "invalid value: integer `0`, expected a nonzero u8",
            ),
        ] {
            let error = serde_json::from_str::<Record>(json).expect_err(json);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn the_extension_says_how_a_trace_is_packed() {
        assert_eq!(Packing::of(Path::new("a/b.jsonl.zst")), Packing::Zstd);
        assert_eq!(Packing::of(Path::new("a/b.jsonl")), Packing::Plain);
        assert_eq!(Packing::of(Path::new("zst")), Packing::Plain);
    }
}
