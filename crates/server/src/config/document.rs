use super::{ConfigError, WrongConfig};
use serde::de::DeserializeOwned;
use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    path::{Path, PathBuf},
};
use toml::{
    Spanned,
    de::{DeTable, DeValue, Deserializer},
};

/// The longest configuration file that is looked at, in bytes.
const MOST_BYTES: u64 = 1024 * 1024;

/// A TOML text that knows which file it came from, and what stands where: any span of it becomes a line and a field.
pub(super) struct Document<'a> {
    file: &'a Path,
    text: &'a str,
    table: Spanned<DeTable<'a>>,
}

impl<'a> Document<'a> {
    /// The text as TOML.
    pub(super) fn parse(file: &'a Path, text: &'a str) -> Result<Document<'a>, WrongConfig> {
        let table = DeTable::parse(text).map_err(|error| {
            let (mut found, expected) = split_message(error.message());
            let span = error.span().unwrap_or(0..0);
            // Only here is the text at the place a key: elsewhere it might be the secret.
            if let ("duplicate key", Some(key)) = (found.as_str(), text.get(span.clone())) {
                found = format!("the key {} twice", shorten(key));
            }
            WrongConfig {
                file: file.to_owned(),
                line: line_of(text, span.start),
                field: String::new(),
                found,
                expected,
            }
        })?;
        Ok(Document { file, text, table })
    }

    /// The text as a `T`. Unknown fields and values of the wrong type end here.
    pub(super) fn decode<T: DeserializeOwned>(&self) -> Result<T, WrongConfig> {
        T::deserialize(Deserializer::from(self.table.clone())).map_err(|error| {
            let (found, expected) = split_message(error.message());
            let mut wrong = self.wrong(error.span().unwrap_or(0..0), found, expected);
            if wrong.field == "secret" {
                wrong.found = "something else".into();
            }
            wrong
        })
    }

    /// An error about the value or key at `span`.
    pub(super) fn wrong(
        &self,
        span: Range<usize>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> WrongConfig {
        WrongConfig {
            file: self.file.to_owned(),
            line: line_of(self.text, span.start),
            field: field_in_table(self.table.get_ref(), span.start).unwrap_or_default(),
            found: found.into(),
            expected: expected.into(),
        }
    }

    /// An error about a field that the table at `span` lacks. `Range::default()` is the whole file.
    pub(super) fn missing(
        &self,
        span: Range<usize>,
        field: &str,
        expected: impl Into<String>,
    ) -> WrongConfig {
        let mut wrong = if span == (0..0) {
            WrongConfig {
                file: self.file.to_owned(),
                line: 1,
                field: String::new(),
                found: String::new(),
                expected: expected.into(),
            }
        } else {
            self.wrong(span, "", expected)
        };
        wrong.found = "nothing".into();
        wrong.field = join(&wrong.field, field);
        wrong
    }

    /// The line of a span, from 1.
    pub(super) fn line(&self, span: Range<usize>) -> usize {
        line_of(self.text, span.start)
    }

    /// A path written in the file: a relative one starts at the file's directory.
    pub(super) fn resolve(&self, path: &str) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }
}

/// The text of a configuration file; only regular files of a sane size, so that nothing hangs or swells.
pub(super) fn read_text(file: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable {
        file: file.to_owned(),
        source,
    };
    let bytes = read_bounded(file, MOST_BYTES).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        ConfigError::Wrong(WrongConfig {
            file: file.to_owned(),
            line: 1 + error.as_bytes()[..valid]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count(),
            field: String::new(),
            found: format!("the byte 0x{:02x}", error.as_bytes()[valid]),
            expected: "text in UTF-8".into(),
        })
    })
}

/// The bytes of a regular file, if they are at most `most_bytes`.
pub(super) fn read_bounded(file: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(file)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(file)?.take(most_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes {
        let why = format!("larger than {most_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// What the library calls a string.
const TEXT: &str = "text in quotes";

/// Splits a message of the TOML library, `<found>, expected <expected>`, and says it in our words.
fn split_message(message: &str) -> (String, String) {
    let otherwise = match message {
        "duplicate key" => "every key once",
        _ if message.contains("recursion") => "less nesting",
        _ => "TOML",
    };
    let (found, expected) = message.split_once(", expected ").unwrap_or((message, otherwise));
    let found = found
        .strip_prefix("invalid type: ")
        .or_else(|| found.strip_prefix("invalid value: "))
        .unwrap_or(found);
    let expected = match (found, expected) {
        ("map", "a sequence") => "a list of tables, with double brackets: [[..]]",
        (_, "a sequence") => "a list of tables: [[..]]",
        (_, "i64") => "a whole number",
        (_, "a boolean") => "true or false",
        (_, "a string" | "literal string") => TEXT,
        (_, "a map" | "struct RawLimits") => "a table",
        (_, expected) => expected,
    };
    (shorten(found), expected.to_owned())
}

/// At most so many characters of what was found: the file may say anything.
fn shorten(text: &str) -> String {
    const MOST: usize = 160;
    if text.chars().count() <= MOST {
        return text.replace('\n', " ");
    }
    text.chars()
        .take(MOST)
        .chain("..".chars())
        .collect::<String>()
        .replace('\n', " ")
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}

/// The path of the innermost entry that has `offset` in its key or value.
///
/// Children first and all of them: the span of a table with a header does not enclose what stands below it.
fn field_in_table(table: &DeTable<'_>, offset: usize) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        field_in_value(key.get_ref(), value, offset)
            .or_else(|| key.span().contains(&offset).then(|| key.get_ref().to_string()))
    })
}

fn field_in_value(path: &str, value: &Spanned<DeValue<'_>>, offset: usize) -> Option<String> {
    let inner = match value.get_ref() {
        DeValue::Table(table) => field_in_table(table, offset).map(|rest| join(path, &rest)),
        DeValue::Array(array) => array.iter().enumerate().find_map(|(place, element)| {
            field_in_value(
                &format!("{path}[{}]", element_name(place, element)),
                element,
                offset,
            )
        }),
        _ => None,
    };
    inner.or_else(|| value.span().contains(&offset).then(|| path.to_owned()))
}

/// What to call an element of a list: its name if it has one, else its place from 1.
fn element_name(place: usize, element: &Spanned<DeValue<'_>>) -> String {
    let name = element
        .get_ref()
        .get("name")
        .and_then(|name| name.get_ref().as_str());
    match name {
        Some(name) if super::name::is_name(name) => name.to_owned(),
        _ => (place + 1).to_string(),
    }
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}
