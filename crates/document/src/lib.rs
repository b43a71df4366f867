//! TOML files that people write, and the errors if one of them is wrong.
//!
//! ```text
//!   text ----> Document ----> decode: a struct whose fields check themselves ----> check: what depends on other fields
//!                                  |   (Word, Number, Name)                              |
//!                                  v                                                     v
//!                              WrongFile <------------ Document::report <------------ Misplaced
//! ```
//!
//! All files are read in these two steps, and all errors end in one line:
//!
//! ```text
//! cluster.toml:12: node[a1].resp: found "127.0.0.1"; expected host:port, such as "127.0.0.1:7001"
//! ```
//!
//! Serde does the decoding. A field that is text for another type is a [`Word`] of that type, and a whole number within bounds is
//! a [`Number`]. Both refuse wrong values, say what they expected if they are missing, and remember their place for the second
//! step. Structs and enums derive `Deserialize` with `deny_unknown_fields`.
//!
//! **Limits.** One error is reported at a time. This crate opens no file. Serde's tagged enums forget places, so a [`Document`]
//! reshapes the lists of tables that have a tag before it decodes them ([`Tagged`]).
mod by_name;
pub use by_name::ByName;
mod document;
pub use document::Document;
mod name;
pub use name::{BadName, Name};
mod number;
pub use number::{Number, number};
mod tagged;
pub use tagged::Tagged;
mod word;
pub use word::{Word, word};
mod wrong;
pub use wrong::{Misplaced, WrongFile, quote};

#[cfg(test)]
mod tests;
