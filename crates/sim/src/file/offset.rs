use serde::Deserializer;
use std::str::FromStr;
use turnbuckle_core::Micros;
use turnbuckle_document::word;

/// A time that may be negative, in microseconds: how far a clock is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset(pub i64);

impl FromStr for Offset {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Offset, &'static str> {
        let (sign, rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
        let Micros(us) = rest.parse().map_err(|_| "expected a time such as 5ms or -5ms")?;
        Ok(Offset(sign * us as i64))
    }
}

/// For `deserialize_with`: an [`Offset`] in microseconds.
pub(crate) fn offset_us<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    word(deserializer).map(|Offset(us)| us)
}
