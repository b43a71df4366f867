use bytes::Bytes;
use std::fmt;
use thiserror::Error;

/// The size of values, in bytes. At least [`ValueSize::MIN`], so that every value can contain the name of its write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueSize(usize);

/// A size that is not allowed for values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("values of {0} bytes; expected {min} to {max}: each value begins with the name of its write",
    min = ValueSize::MIN, max = ValueSize::MAX)]
pub struct BadValueSize(u64);

impl ValueSize {
    /// The length of the longest label, in bytes.
    pub const MIN: u64 = 24;
    /// The largest value that a server takes by default, in bytes: 16 MiB.
    pub const MAX: u64 = 16 << 20;

    /// A size of `bytes` bytes.
    pub fn new(bytes: u64) -> Result<ValueSize, BadValueSize> {
        if !(ValueSize::MIN..=ValueSize::MAX).contains(&bytes) {
            return Err(BadValueSize(bytes));
        }
        Ok(ValueSize(bytes as usize))
    }

    /// The size in bytes.
    pub fn bytes(self) -> usize {
        self.0
    }
}

/// The number of a client in a run. Less than [`ClientId::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u16);

impl ClientId {
    /// The most clients of a run: the label of a value has four digits for it.
    pub const MAX: u16 = 10_000;

    /// The client with this number.
    ///
    /// # Panics
    /// If `number` is not less than [`ClientId::MAX`].
    pub fn new(number: u16) -> ClientId {
        assert!(
            number < ClientId::MAX,
            "client {number} of at most {}",
            ClientId::MAX
        );
        ClientId(number)
    }

    /// The client's number, from 0.
    pub fn number(self) -> u16 {
        self.0
    }
}

/// `c7`: the name of the client in traces.
impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// Tells the values of one run from those of another run, which may still be in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunTag(u32);

impl RunTag {
    /// The number of tags: six digits in base 36.
    const ALL: u32 = 36u32.pow(6);

    /// The tag of the run with this seed. Two seeds have the same tag with a chance of one in two billion.
    pub fn of_seed(seed: u64) -> RunTag {
        RunTag((mix(seed) % u64::from(RunTag::ALL)) as u32)
    }
}

impl fmt::Display for RunTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut digits = [b'0'; 6];
        for digit in digits.iter_mut().rev() {
            *digit = b"0123456789abcdefghijklmnopqrstuvwxyz"[(rest % 36) as usize];
            rest /= 36;
        }
        f.write_str(std::str::from_utf8(&digits).expect("digits and letters are ASCII"))
    }
}

/// Makes the values that one client writes. No two values of a run are equal. Otherwise the checker could not tell which of
/// two equal ones a read has seen.
///
/// ```text
///   c7.1234.0k3x9a mJx0fQ...     what the client of number 7 wrote as its 1,234th value in the run 0k3x9a
///   |--- label ---|-padding-|    padding: letters that follow from the label and do not compress
/// ```
///
/// So a value proves that it is whole: [`label`] returns the label of a value that is unaltered. A trace needs only the
/// label.
#[derive(Debug, Clone)]
pub struct Values {
    run: RunTag,
    client: ClientId,
    size: ValueSize,
    written: u64,
}

impl Values {
    /// The most values that a client may write: the label has eleven digits for it.
    const MAX: u64 = 100_000_000_000;

    /// The values of one client.
    pub fn new(run: RunTag, client: ClientId, size: ValueSize) -> Values {
        Values {
            run,
            client,
            size,
            written: 0,
        }
    }

    /// The next value.
    ///
    /// # Panics
    /// After a hundred billion values.
    pub fn next_value(&mut self) -> Bytes {
        assert!(
            self.written < Values::MAX,
            "a client wrote {} values",
            Values::MAX
        );
        let label = format!("{}.{}.{}", self.client, self.written, self.run);
        self.written += 1;
        let mut value = Vec::with_capacity(self.size.0);
        value.extend_from_slice(label.as_bytes());
        pad(&mut value, self.size.0);
        Bytes::from(value)
    }
}

/// The label of a value that [`Values`] has made. `None` if any byte of it is different.
pub fn label(value: &[u8]) -> Option<&str> {
    let end = value.iter().position(|&byte| byte == b' ').unwrap_or(value.len());
    let label = std::str::from_utf8(&value[..end]).ok()?;
    if label.len() > ValueSize::MIN as usize || value.len() < ValueSize::MIN as usize || !is_label(label) {
        return None;
    }
    let mut whole = Vec::with_capacity(value.len());
    whole.extend_from_slice(label.as_bytes());
    pad(&mut whole, value.len());
    (whole == value).then_some(label)
}

fn is_label(text: &str) -> bool {
    let mut parts = text.split('.');
    let client = parts.next().and_then(|part| part.strip_prefix('c'));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    client.is_some_and(is_number)
        && parts.next().is_some_and(is_number)
        && parts
            .next()
            .is_some_and(|run| run.len() == 6 && run.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        && parts.next().is_none()
}

/// Pads with a space and then letters that follow from what is there.
fn pad(value: &mut Vec<u8>, size: usize) {
    const LETTERS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
    if value.len() >= size {
        return;
    }
    // The size is included, so that a value that was cut short is not taken for a shorter value.
    let mut state = value
        .iter()
        .fold(size as u64, |state, &byte| mix(state ^ u64::from(byte)));
    value.push(b' ');
    while value.len() < size {
        state = mix(state);
        let take = (size - value.len()).min(10);
        value.extend((0..take).map(|place| LETTERS[(state >> (6 * place)) as usize & 63]));
    }
}

/// One step of splitmix64: every bit of the number influences every bit of the result.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn values(run: u64, client: u16, bytes: u64) -> Values {
        let size = ValueSize::new(bytes).expect("a size for tests");
        Values::new(RunTag::of_seed(run), ClientId::new(client), size)
    }

    #[test]
    fn no_two_values_are_equal_across_clients_and_runs() {
        let mut seen = BTreeSet::new();
        for run in [1, 2] {
            for client in [0, 1, 9_999] {
                let mut values = values(run, client, 24);
                for _ in 0..2_000 {
                    assert!(seen.insert(values.next_value()));
                }
            }
        }
        assert_eq!(seen.len(), 12_000);
    }

    #[test]
    fn a_value_has_the_size_asked_for_and_tells_its_label() {
        for bytes in [24, 25, 26, 100, 128, 1_000] {
            let mut values = values(3, 7, bytes);
            for number in 0..20 {
                let value = values.next_value();
                assert_eq!(value.len() as u64, bytes);
                let expected = format!("c7.{number}.{}", RunTag::of_seed(3));
                assert_eq!(label(&value), Some(expected.as_str()));
            }
        }
    }

    #[test]
    fn the_longest_label_fits_the_smallest_value() {
        let mut values = values(3, ClientId::MAX - 1, ValueSize::MIN);
        values.written = Values::MAX - 1;
        let value = values.next_value();
        assert_eq!(value.len() as u64, ValueSize::MIN);
        assert!(label(&value).is_some());
    }

    #[test]
    fn a_value_with_any_byte_changed_or_missing_has_no_label() {
        let value = values(3, 7, 128).next_value();
        for place in 0..value.len() {
            let mut altered = value.to_vec();
            altered[place] ^= 1;
            assert_eq!(label(&altered), None, "byte {place}");
        }
        for len in 0..value.len() {
            assert_eq!(label(&value[..len]), None, "cut to {len} bytes");
        }
    }

    #[test]
    fn other_peoples_values_have_no_label() {
        for other in [
            "",
            " ",
            "v1",
            "c1",
            "c1.2",
            "c1.2.3",
            "c.1.abcdef",
            "c1.2.abcdef.",
            "c1.2.abc def",
        ] {
            assert_eq!(label(other.as_bytes()), None, "{other}");
        }
        assert_eq!(label(&[0xff; 40]), None);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for bytes in [0, 23, (16 << 20) + 1, u64::MAX] {
            let error = ValueSize::new(bytes).expect_err("refused");
            assert!(error.to_string().contains("expected 24 to 16777216"), "{error}");
        }
    }
}
