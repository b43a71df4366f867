//! TOML files that people write, and what is said when one of them is wrong.
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
//! Decoding is serde's. A field that is text for something else is a [`Word`] of that, and a whole number within bounds is a [`Number`]:
//! both refuse what they cannot be, say what they expected if they are missing, and remember their place for the second step.
//! Structs and enums derive `Deserialize` with `deny_unknown_fields`.
//!
//! **Caveats.** One error at a time. This crate opens no file. Serde's tagged enums forget places, so a [`Document`] reshapes the
//! lists of tables that have a tag before it decodes them ([`Tagged`]).
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
