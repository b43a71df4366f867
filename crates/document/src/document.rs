use crate::{
    Misplaced, Name, Tagged, WrongFile,
    word::TEXT,
    wrong::{shorten, split},
};
use serde::de::DeserializeOwned;
use std::{ops::Range, path::Path};
use toml::{
    Spanned,
    de::{DeTable, DeValue, Deserializer},
};

/// A TOML text with its file and the place of everything in it: any place becomes a line and a field.
pub struct Document<'a> {
    file: &'a Path,
    text: &'a str,
    table: Spanned<DeTable<'a>>,
}

impl<'a> Document<'a> {
    /// Parses the text as TOML.
    ///
    /// # Errors
    /// If it is not TOML.
    pub fn parse(file: &'a Path, text: &'a str) -> Result<Document<'a>, WrongFile> {
        let table = DeTable::parse(text).map_err(|error| {
            let (mut found, expected) = in_our_words(error.message());
            let place = error.span().unwrap_or(0..0);
            // Only for this error is the text at the place a key. For others it might be a secret.
            if let ("duplicate key", Some(key)) = (found.as_str(), text.get(place.clone())) {
                found = format!("the key {} twice", shorten(key, MAX_QUOTED_BYTES));
            }
            WrongFile {
                file: file.to_owned(),
                line: line_of(text, place.start),
                field: String::new(),
                found,
                expected,
            }
        })?;
        Ok(Document { file, text, table })
    }

    /// Decodes the text as a `T`. It is an error if a field is unknown or a value is not possible.
    ///
    /// # Errors
    /// If the text is not a valid `T`.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, WrongFile> {
        self.decode_table(self.table.clone(), &[])
    }

    /// The same, for a text that has a list of tables with a tag somewhere in it.
    ///
    /// # Errors
    /// If the text is not a valid `T`.
    pub fn decode_tagged<T: DeserializeOwned>(&self, tagged: Tagged) -> Result<T, WrongFile> {
        let mut table = self.table.clone();
        tagged.reshape(table.get_mut());
        self.decode_table(table, tagged.shared)
    }

    /// `shared` are the fields that tables of every kind have.
    fn decode_table<T: DeserializeOwned>(
        &self,
        table: Spanned<DeTable<'a>>,
        shared: &[&str],
    ) -> Result<T, WrongFile> {
        T::deserialize(Deserializer::from(table)).map_err(|error| {
            let of_kind = || unknown_of_kind(error.message(), shared);
            let (found, expected) = of_kind().unwrap_or_else(|| in_our_words(error.message()));
            let place = error.span().unwrap_or_default();
            let missing = found.strip_prefix("missing field `");
            self.report(match missing.and_then(|rest| rest.strip_suffix('`')) {
                Some(field) => Misplaced::missing(place, field, expected),
                None => Misplaced::at(place, found, expected),
            })
        })
    }

    /// An error with its line and its field.
    pub fn report(&self, wrong: Misplaced) -> WrongFile {
        let is_whole = wrong.place == (0..0) || wrong.place == self.table.span();
        let found = (!is_whole).then(|| in_table(self.table.get_ref(), wrong.place.start));
        let (mut field, mut table) = match found.flatten() {
            Some((field, value)) => (field, value.as_table()),
            None => (String::new(), Some(self.table.get_ref())),
        };
        let mut offset = wrong.place.start;
        for step in &wrong.below {
            field = join(&field, step);
            let value = table.and_then(|table| table.get(step.as_str()));
            offset = value.map_or(offset, |value| value.span().start);
            table = value.and_then(|value| value.get_ref().as_table());
        }
        WrongFile {
            file: self.file.to_owned(),
            line: line_of(self.text, offset),
            field,
            found: wrong.found,
            expected: wrong.expected,
        }
    }

    /// The line of a place, from 1.
    pub fn line(&self, place: Range<usize>) -> usize {
        line_of(self.text, place.start)
    }

    /// The file.
    pub fn file(&self) -> &'a Path {
        self.file
    }
}

/// The longest quotation of a found text in an error, in characters. The file may contain anything.
const MAX_QUOTED_BYTES: usize = 160;

/// Splits a message of serde or of the TOML library, and rewords it.
fn in_our_words(message: &str) -> (String, String) {
    let (found, expected) = split(message);
    let found = found
        .strip_prefix("invalid type: ")
        .or_else(|| found.strip_prefix("invalid value: "))
        .unwrap_or(&found);
    let found = match found {
        "unknown variant ``" => "nothing",
        "wanted exactly 1 element, more than 1 element" => "several fields",
        "wanted exactly 1 element, found 0 elements" => "no field",
        "wanted string or table" => "something else",
        "string values must be quoted" => BARE_WORD,
        found => found,
    };
    (
        shorten(found, MAX_QUOTED_BYTES),
        expected_in_our_words(message, found, &expected).into(),
    )
}

/// The reworded message of the TOML library about a field that a kind of table does not have.
fn unknown_of_kind(message: &str, shared: &[&str]) -> Option<(String, String)> {
    let message = message.strip_prefix("unexpected keys in table: ")?;
    let (unknown, known) = message.split_once(", available keys: ")?;
    let known = known.split(", ").filter(|field| !field.is_empty());
    let known: Vec<String> = known
        .chain(shared.iter().copied())
        .map(|field| format!("`{field}`"))
        .collect();
    let found = format!("unknown field `{}`", shorten(unknown, MAX_QUOTED_BYTES));
    Some((found, format!("one of {}", known.join(", "))))
}

const BARE_WORD: &str = "a word without quotes";

fn expected_in_our_words<'a>(message: &str, found: &str, expected: &'a str) -> &'a str {
    match (found, expected) {
        (BARE_WORD, _) => "true, false, a number, or text in quotes",
        ("map", "a sequence") => "a list of tables, with double brackets: [[..]]",
        (_, "a sequence") => "a list: [..]",
        (_, "i64" | "u64" | "u16" | "usize") => "a whole number",
        (_, "f64") => "a number",
        (_, "a boolean") => "true or false",
        (_, "a string" | "literal string") => TEXT,
        (_, "a map") => "a table",
        (_, expected) if expected.starts_with("struct ") => "a table",
        ("duplicate key", _) => "every key once",
        ("several fields" | "no field", _) => "one field",
        ("something else", "") => "the name of a kind, in quotes",
        (_, "") if message.starts_with("missing field") => "a value",
        (_, "") if message.contains("recursion") => "less nesting",
        (_, "") => "TOML",
        (_, expected) => expected,
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}

/// The entry at a place: the path and value of the innermost entry whose key or value contains it.
type Entry<'t, 'a> = (String, &'t DeValue<'a>);

/// All children are searched first: the span of a table with a header does not enclose the tables below it.
fn in_table<'t, 'a>(table: &'t DeTable<'a>, offset: usize) -> Option<Entry<'t, 'a>> {
    table.iter().find_map(|(key, value)| {
        let name = shorten(key.get_ref(), MAX_QUOTED_BYTES);
        let at_key = || {
            key.span()
                .contains(&offset)
                .then(|| (name.clone(), value.get_ref()))
        };
        in_value(&name, value, offset).or_else(at_key)
    })
}

fn in_value<'t, 'a>(path: &str, value: &'t Spanned<DeValue<'a>>, offset: usize) -> Option<Entry<'t, 'a>> {
    let inner = match value.get_ref() {
        DeValue::Table(table) => in_table(table, offset).map(|(rest, value)| (join(path, &rest), value)),
        DeValue::Array(array) => array.iter().enumerate().find_map(|(place, element)| {
            in_value(
                &format!("{path}[{}]", element_name(place, element)),
                element,
                offset,
            )
        }),
        _ => None,
    };
    inner.or_else(|| {
        value
            .span()
            .contains(&offset)
            .then(|| (path.to_owned(), value.get_ref()))
    })
}

/// The name of an element of a list: its `name` field if it has one, otherwise its place from 1.
fn element_name(place: usize, element: &Spanned<DeValue<'_>>) -> String {
    let name = element
        .get_ref()
        .get("name")
        .and_then(|name| name.get_ref().as_str());
    match name {
        Some(name) if name.parse::<Name>().is_ok() => name.to_owned(),
        _ => (place + 1).to_string(),
    }
}

fn join(path: &str, field: &str) -> String {
    match path {
        "" => field.to_owned(),
        path => format!("{path}.{field}"),
    }
}
