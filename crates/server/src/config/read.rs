use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};
use thiserror::Error;
use turnbuckle_document::WrongFile;

/// The longest configuration file that is read, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// A configuration that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{}: cannot be read: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The content of the file is wrong.
    #[error(transparent)]
    Wrong(#[from] WrongFile),
}

/// The text of a configuration file. The file must be a regular file of at most `MAX_BYTES`, so that reading neither hangs nor fills the memory.
pub(crate) fn read_text(file: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable {
        file: file.to_owned(),
        source,
    };
    let bytes = read_bounded(file, MAX_BYTES).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        ConfigError::Wrong(WrongFile {
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

/// The bytes of a regular file, if they are at most `max_bytes`.
pub(crate) fn read_bounded(file: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(file)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(file)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        let why = format!("larger than {max_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}
