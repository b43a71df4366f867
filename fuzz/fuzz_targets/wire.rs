//! Just enough of Protocol Buffers to write messages with any fields: what a peer or a disk may hold.
#![allow(dead_code)]

/// A message under construction.
#[derive(Debug, Clone, Default)]
pub struct Fields(pub Vec<u8>);

impl Fields {
    fn varint(mut self, mut number: u64) -> Fields {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
        self
    }

    pub fn uint(self, tag: u64, number: u64) -> Fields {
        self.varint(tag << 3).varint(number)
    }

    pub fn fixed64(self, tag: u64, number: u64) -> Fields {
        let mut fields = self.varint(tag << 3 | 1);
        fields.0.extend_from_slice(&number.to_le_bytes());
        fields
    }

    pub fn fixed32(self, tag: u64, number: u32) -> Fields {
        let mut fields = self.varint(tag << 3 | 5);
        fields.0.extend_from_slice(&number.to_le_bytes());
        fields
    }

    pub fn bytes(self, tag: u64, bytes: impl AsRef<[u8]>) -> Fields {
        let bytes = bytes.as_ref();
        let mut fields = self.varint(tag << 3 | 2).varint(bytes.len() as u64);
        fields.0.extend_from_slice(bytes);
        fields
    }

    pub fn message(self, tag: u64, fields: &Fields) -> Fields {
        self.bytes(tag, &fields.0)
    }

    pub fn each<T>(self, items: impl IntoIterator<Item = T>, add: impl Fn(Fields, T) -> Fields) -> Fields {
        items.into_iter().fold(self, add)
    }
}
