//! Where the shell's lines come from: a terminal, with editing and a history, or a pipe.
use crate::failure::say;
use rustyline::{DefaultEditor, error::ReadlineError};
use std::io::{self, BufRead, IsTerminal, Read};
use thiserror::Error;

/// The longest line that is taken, in bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Why a line cannot be taken.
#[derive(Debug, Error)]
pub(super) enum LineError {
    /// The line is too long. It is skipped.
    #[error("a line of more than {MAX_LINE_BYTES} bytes; expected at most that")]
    TooLong,
    /// The line is not text. It is skipped.
    #[error("a line that is not UTF-8; expected text (other bytes are written as \"\\xff\")")]
    NotText,
}

pub(super) enum Lines {
    Terminal(Box<DefaultEditor>),
    Pipe(io::StdinLock<'static>),
}

impl Lines {
    /// The lines of standard input.
    pub(super) fn open() -> rustyline::Result<Lines> {
        Ok(match io::stdin().is_terminal() {
            true => Lines::Terminal(Box::new(DefaultEditor::new()?)),
            false => Lines::Pipe(io::stdin().lock()),
        })
    }

    /// The next line; `None` at the end. `Ctrl-C` and `Ctrl-D` at a terminal end the input.
    pub(super) fn next(&mut self, prompt: &str) -> Result<Option<String>, LineError> {
        match self {
            Lines::Terminal(editor) => match editor.readline(prompt) {
                Ok(line) => {
                    // A full history drops its oldest line.
                    let _ = editor.add_history_entry(&line);
                    Ok(Some(line))
                }
                Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    Err(LineError::NotText)
                }
                Err(_) => Ok(None),
            },
            Lines::Pipe(input) => {
                let line = read_line(input)?;
                if let Some(line) = &line {
                    // If the output has no reader, the commands are carried out all the same.
                    let _ = say(&format!("{prompt}{line}"));
                }
                Ok(line)
            }
        }
    }
}

/// A line without its line end. If a pipe cannot be read, it counts as ended.
fn read_line(input: &mut impl BufRead) -> Result<Option<String>, LineError> {
    let mut line = Vec::new();
    let read = input.take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
    if read.unwrap_or(0) == 0 {
        return Ok(None);
    }
    if line.pop_if(|end| *end == b'\n').is_none() && line.len() as u64 == MAX_LINE_BYTES {
        skip_line(input);
        return Err(LineError::TooLong);
    }
    line.pop_if(|end| *end == b'\r');
    String::from_utf8(line).map(Some).map_err(|_| LineError::NotText)
}

fn skip_line(input: &mut impl BufRead) {
    while let Ok(bytes) = input.fill_buf()
        && !bytes.is_empty()
    {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let skipped = end.map_or(bytes.len(), |end| end + 1);
        input.consume(skipped);
        if end.is_some() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_pipe_come_without_their_ends() {
        let mut input = &b"SET a 1\r\n\nGET a"[..];
        let mut next = || read_line(&mut input).expect("a line");
        assert_eq!(next().as_deref(), Some("SET a 1"));
        assert_eq!(next().as_deref(), Some(""));
        assert_eq!(next().as_deref(), Some("GET a"));
        assert_eq!(next(), None);
    }

    #[test]
    fn a_line_that_is_too_long_or_no_text_is_left_out() {
        let mut bytes = vec![b'x'; MAX_LINE_BYTES as usize + 7];
        bytes.extend(b"\n\xff\nGET a\n");
        let mut input = &bytes[..];
        assert!(matches!(read_line(&mut input), Err(LineError::TooLong)));
        assert!(matches!(read_line(&mut input), Err(LineError::NotText)));
        assert_eq!(read_line(&mut input).expect("a line").as_deref(), Some("GET a"));
    }
}
