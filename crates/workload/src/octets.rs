use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, Visitor},
    ser::SerializeMap,
};
use std::fmt;

/// A key or a value in a trace. In JSON it is a string, or `{"base64": ".."}` if it is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Octets(pub Bytes);

impl From<&str> for Octets {
    fn from(text: &str) -> Octets {
        Octets(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl Serialize for Octets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("base64", &STANDARD.encode(&self.0))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Octets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Octets, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

struct Either;

impl<'de> Visitor<'de> for Either {
    type Value = Octets;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"a string or {"base64": ".."}"#)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Octets, E> {
        Ok(Octets::from(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Octets, A::Error> {
        let (name, text): (String, String) = map
            .next_entry()?
            .ok_or_else(|| A::Error::missing_field("base64"))?;
        if name != "base64" {
            return Err(A::Error::unknown_field(&name, &["base64"]));
        }
        if let Some(more) = map.next_key::<String>()? {
            return Err(A::Error::unknown_field(&more, &[]));
        }
        let bytes = STANDARD
            .decode(&text)
            .map_err(|bad| A::Error::custom(format_args!("base64: {bad}")))?;
        Ok(Octets(bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_utf8_is_written_in_base64() {
        let text = serde_json::to_string(&Octets::from("käse\n")).expect("text");
        assert_eq!(text, r#""käse\n""#);
        let bytes = Octets(Bytes::from_static(&[0xff, 0x00]));
        assert_eq!(
            serde_json::to_string(&bytes).expect("bytes"),
            r#"{"base64":"/wA="}"#
        );
    }

    #[test]
    fn nonsense_is_refused_with_what_was_expected() {
        for (json, expected) in [
            ("5", r#"expected a string or {"base64": ".."}"#),
            ("{}", "missing field `base64`"),
            (r#"{"base65": ""}"#, "unknown field `base65`"),
            (r#"{"base64": "", "x": ""}"#, "unknown field `x`"),
            (r#"{"base64": "/"}"#, "base64: "),
        ] {
            let error = serde_json::from_str::<Octets>(json).expect_err(json);
            assert!(error.to_string().contains(expected), "{json}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_come_back(bytes: Vec<u8>) {
            let octets = Octets(bytes.into());
            let json = serde_json::to_string(&octets).expect("octets are JSON");
            proptest::prop_assert_eq!(serde_json::from_str::<Octets>(&json).expect("own JSON"), octets);
        }
    }
}
