//! Extensible data notation, as far as histories need it: a stream of forms, each with the line on which it begins.
//!
//! This is not done by a library, because histories may not fit into memory. So forms are read one after the other from a
//! stream, including those inside one vector around all of them. Nesting and size have limits, and errors have lines. What
//! is read:
//!
//! ```text
//!   nil  true  -3  2N  1.5  :keyword  symbol  \c  "text"        atoms; all but nil and text are kept as they are written
//!   (..) [..] #{..}                                             sequences
//!   {key value ..}                                              maps
//!   #tag form                                                   the form: tags are dropped
//!   ; comment, #_ discarded form, commas                        nothing
//! ```
use super::Fault;
use std::io::BufRead;

/// The largest form in a file, in bytes.
const MAX_FORM_BYTES: usize = 4 << 20;
/// The deepest nesting of forms.
const MAX_DEPTH: usize = 64;

/// A form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    Nil,
    /// A number, keyword, symbol or character, as it is written.
    Atom(String),
    /// The text between quotes.
    Text(String),
    Sequence(Vec<Form>),
    Map(Vec<(Form, Form)>),
}

impl Form {
    /// The value that a map has for a keyword.
    pub(super) fn field(&self, keyword: &str) -> Option<&Form> {
        let Form::Map(entries) = self else {
            return None;
        };
        let is_it = |key: &Form| matches!(key, Form::Atom(text) if text == keyword);
        entries.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value)
    }

    /// The form as an error message shows it.
    pub(super) fn shown(&self) -> String {
        match self {
            Form::Nil => "nil".into(),
            Form::Atom(text) => super::csv::shortened(text),
            Form::Text(text) => format!("{:?}", super::csv::shortened(text)),
            Form::Sequence(forms) => format!("a collection of {}", forms.len()),
            Form::Map(entries) => format!("a map of {}", entries.len()),
        }
    }
}

/// A reader of forms.
pub(super) struct Forms<R> {
    input: R,
    /// The line of the next byte, from 1.
    line: u64,
    /// The number of bytes that the form that is being read may still take.
    left: usize,
}

impl<R: BufRead> Forms<R> {
    pub(super) fn new(input: R, line: u64) -> Forms<R> {
        Forms {
            input,
            line,
            left: MAX_FORM_BYTES,
        }
    }

    /// The line of the next byte.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// The next byte that begins a form. Spaces, commas and comments before it are skipped.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, Fault> {
        loop {
            self.left = MAX_FORM_BYTES;
            match self.byte()? {
                Some(b';') => self.pass_line()?,
                Some(byte) if is_space(byte) => self.advance(byte),
                other => return Ok(other),
            }
        }
    }

    /// Skips one byte that was peeked at.
    pub(super) fn pass(&mut self, byte: u8) {
        self.advance(byte);
    }

    /// The rest of the line as it is, and its line number.
    pub(super) fn rest_of_line(&mut self) -> Result<(u64, Vec<u8>), Fault> {
        let (line, mut text) = (self.line, Vec::new());
        while let Some(byte) = self.byte()? {
            self.take(byte)?;
            if byte == b'\n' {
                break;
            }
            text.push(byte);
        }
        Ok((line, text))
    }

    /// The next form. `None` at the end, also if only discarded forms were left.
    pub(super) fn next(&mut self) -> Result<Option<Form>, Fault> {
        if self.peek()?.is_none() {
            return Ok(None);
        }
        self.form(0)
    }

    /// A form. `None` if a bracket closes, or the input ends, before there is one.
    fn form(&mut self, depth: usize) -> Result<Option<Form>, Fault> {
        if depth > MAX_DEPTH {
            return Err(self.bad(
                "forms nested",
                format!("more than {MAX_DEPTH} of them in each other"),
            ));
        }
        loop {
            let Some(byte) = self.significant()? else {
                return Ok(None);
            };
            if is_closing(byte) {
                return Ok(None);
            }
            self.take(byte)?;
            let form = match byte {
                b'(' => Form::Sequence(self.until(b')', depth)?),
                b'[' => Form::Sequence(self.until(b']', depth)?),
                b'{' => self.map(depth)?,
                b'"' => Form::Text(self.text()?),
                b'#' => match self.byte()? {
                    Some(b'{') => {
                        self.take(b'{')?;
                        Form::Sequence(self.until(b'}', depth)?)
                    }
                    Some(b'_') => {
                        self.take(b'_')?;
                        self.needed(depth)?;
                        continue;
                    }
                    _ => {
                        self.atom(Vec::new())?;
                        self.needed(depth)?
                    }
                },
                b'\\' => self.character()?,
                byte => match self.atom(vec![byte])? {
                    text if text == "nil" => Form::Nil,
                    text => Form::Atom(text),
                },
            };
            return Ok(Some(form));
        }
    }

    /// A form that must be there.
    fn needed(&mut self, depth: usize) -> Result<Form, Fault> {
        match self.form(depth + 1)? {
            Some(form) => Ok(form),
            None => Err(self.unexpected("a form")),
        }
    }

    fn until(&mut self, closing: u8, depth: usize) -> Result<Vec<Form>, Fault> {
        let (began, mut forms) = (self.line, Vec::new());
        while let Some(form) = self.form(depth + 1)? {
            forms.push(form);
        }
        match self.byte()? {
            Some(byte) if byte == closing => {
                self.take(byte)?;
                Ok(forms)
            }
            _ => Err(self.unexpected(&format!(
                "{:?} for what began on line {began}",
                char::from(closing)
            ))),
        }
    }

    fn map(&mut self, depth: usize) -> Result<Form, Fault> {
        let mut forms = self.until(b'}', depth)?.into_iter();
        let mut entries = Vec::with_capacity(forms.len() / 2);
        while let Some(key) = forms.next() {
            let Some(value) = forms.next() else {
                return Err(self.bad("a map", format!("the key {} without a value", key.shown())));
            };
            entries.push((key, value));
        }
        Ok(Form::Map(entries))
    }

    /// The text behind an opening quote.
    fn text(&mut self) -> Result<String, Fault> {
        let (began, mut text) = (self.line, Vec::new());
        loop {
            match self.byte()? {
                None => {
                    return Err(self.unexpected(&format!("the end of the text that began on line {began}")));
                }
                Some(b'"') => break,
                Some(b'\\') => {
                    self.take(b'\\')?;
                    self.escaped(&mut text)?;
                }
                Some(byte) => {
                    self.take(byte)?;
                    text.push(byte);
                }
            }
        }
        self.take(b'"')?;
        self.utf8(text)
    }

    /// The character behind a backslash in a text.
    fn escaped(&mut self, text: &mut Vec<u8>) -> Result<(), Fault> {
        let Some(byte) = self.byte()? else {
            return Err(self.unexpected("an escaped character"));
        };
        self.take(byte)?;
        text.push(match byte {
            b't' => b'\t',
            b'r' => b'\r',
            b'n' => b'\n',
            b'b' => 8,
            b'f' => 12,
            b'\\' | b'"' | b'\'' => byte,
            b'u' => {
                let code = self.four_digits()?;
                // Half of a surrogate pair is no character.
                let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            other => {
                let found = format!("\\{}", char::from(other).escape_default());
                return Err(self.bad(r#"an escape: \t \r \n \b \f \\ \" or \u and four digits"#, found));
            }
        });
        Ok(())
    }

    fn four_digits(&mut self) -> Result<u32, Fault> {
        let mut code = 0;
        for _ in 0..4 {
            let byte = self.byte()?;
            let digit = byte.and_then(|byte| char::from(byte).to_digit(16));
            let (Some(byte), Some(digit)) = (byte, digit) else {
                return Err(self.unexpected("four hexadecimal digits"));
            };
            self.take(byte)?;
            code = code * 16 + digit;
        }
        Ok(code)
    }

    /// The character behind a backslash outside of a text: any byte, even a bracket, and then the rest of its name.
    fn character(&mut self) -> Result<Form, Fault> {
        let Some(byte) = self.byte()? else {
            return Err(self.unexpected("a character"));
        };
        self.take(byte)?;
        Ok(Form::Atom(self.atom(vec![b'\\', byte])?))
    }

    /// The rest of an atom that has begun.
    fn atom(&mut self, mut text: Vec<u8>) -> Result<String, Fault> {
        while let Some(byte) = self.byte()? {
            if is_space(byte) || is_closing(byte) || b"([{\";".contains(&byte) {
                break;
            }
            self.take(byte)?;
            text.push(byte);
        }
        self.utf8(text)
    }

    fn utf8(&self, text: Vec<u8>) -> Result<String, Fault> {
        String::from_utf8(text).map_err(|error| self.bad("UTF-8", error.utf8_error().to_string()))
    }

    /// The next byte inside a form that is not skipped.
    fn significant(&mut self) -> Result<Option<u8>, Fault> {
        loop {
            match self.byte()? {
                Some(b';') => self.pass_line()?,
                Some(byte) if is_space(byte) => self.take(byte)?,
                other => return Ok(other),
            }
        }
    }

    fn pass_line(&mut self) -> Result<(), Fault> {
        while let Some(byte) = self.byte()? {
            self.advance(byte);
            if byte == b'\n' {
                break;
            }
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<Option<u8>, Fault> {
        loop {
            match self.input.fill_buf() {
                Ok(buffer) => return Ok(buffer.first().copied()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Consumes a byte of a form.
    fn take(&mut self, byte: u8) -> Result<(), Fault> {
        if self.left == 0 {
            let found = format!("one of more than {} MiB", MAX_FORM_BYTES >> 20);
            return Err(self.bad("an operation", found));
        }
        self.left -= 1;
        self.advance(byte);
        Ok(())
    }

    fn advance(&mut self, byte: u8) {
        self.input.consume(1);
        self.line += u64::from(byte == b'\n');
    }

    fn bad(&self, expected: &'static str, found: String) -> Fault {
        Fault::bad(self.line, expected, found)
    }

    /// An error: something else than `expected` comes next, or the input ends.
    fn unexpected(&mut self, expected: &str) -> Fault {
        match self.byte() {
            Ok(Some(byte)) => {
                let found = format!("'{}'", char::from(byte).escape_default());
                Fault::bad(self.line, expected.to_owned(), found)
            }
            Ok(None) => Fault::bad(self.line, expected.to_owned(), "the end of the file"),
            Err(fault) => fault,
        }
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == b','
}

fn is_closing(byte: u8) -> bool {
    matches!(byte, b')' | b']' | b'}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Form>, String> {
        let mut forms = Forms::new(text.as_bytes(), 1);
        let mut all = Vec::new();
        loop {
            match forms.next() {
                Ok(Some(form)) => all.push(form),
                Ok(None) if matches!(forms.peek(), Ok(None)) => return Ok(all),
                Ok(None) => return Err("closed".into()),
                Err(Fault::Bad {
                    line,
                    expected,
                    found,
                }) => {
                    return Err(format!("{line}: expected {expected}, found {found}"));
                }
                Err(Fault::Unreadable(error)) => return Err(error.to_string()),
            }
        }
    }

    fn atom(text: &str) -> Form {
        Form::Atom(text.into())
    }

    #[test]
    fn forms_are_read_as_they_are_written() {
        let expected = vec![
            Form::Map(vec![
                (atom(":a"), Form::Sequence(vec![atom("1"), Form::Nil])),
                (Form::Text("b\n\"\u{e4}".into()), atom("-2.5e3M")),
            ]),
            Form::Sequence(vec![atom(":x/y")]),
            atom("\\("),
        ];
        let text =
            "; words\n#a.b.C{:a [1, nil], \"b\\n\\\"\\u00e4\" #inst -2.5e3M} #_ (gone #_ too 5) #{:x/y}\n\\(";
        assert_eq!(read(text), Ok(expected));
        assert_eq!(read(" ,\n; nothing"), Ok(vec![]));
    }

    #[test]
    fn what_is_no_form_is_named_with_its_line() {
        let deep = "[".repeat(100_000);
        let long = format!("[\"{}\"]", "x".repeat(MAX_FORM_BYTES));
        for (text, expected) in [
            (
                "{:a\n[1 2",
                "2: expected ']' for what began on line 2, found the end",
            ),
            ("\n{:a 1)", "2: expected '}' for what began on line 2, found ')'"),
            ("{:a}", "1: expected a map, found the key :a without a value"),
            ("\"abc\n", "2: expected the end of the text that began on line 1"),
            ("\"\\q\"", "1: expected an escape"),
            ("\"\\u12\"", "1: expected four hexadecimal digits, found '\\\"'"),
            ("#tag", "1: expected a form, found the end of the file"),
            ("]", "closed"),
            (&deep, "1: expected forms nested, found more than 64"),
            (&long, "1: expected an operation, found one of more than 4 MiB"),
        ] {
            let error = read(text).expect_err(expected);
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
