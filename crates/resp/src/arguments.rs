use bytes::Bytes;

/// A command as it came in: its name and its arguments, all in the one piece of memory that they were read into.
///
/// [`Arguments::bytes`] takes an argument out without copying it, and keeps the whole piece of memory alive. Copy an argument that is to be kept for
/// long.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    pub(crate) frame: Bytes,
    pub(crate) spans: Vec<Span>,
}

/// The place of an argument in its frame, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Arguments {
    /// How many there are, the command's name included.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is not even a name.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// How many bytes the whole command took on the wire.
    pub fn frame_bytes(&self) -> usize {
        self.frame.len()
    }

    /// How many bytes of memory it takes to keep them.
    pub(crate) fn held_bytes(&self) -> usize {
        self.frame.len() + self.spans.len() * size_of::<Span>()
    }

    /// The argument at `place`; 0 is the command's name.
    ///
    /// # Panics
    /// If there is no such argument.
    pub fn at(&self, place: usize) -> &[u8] {
        let span = self.spans[place];
        &self.frame[span.start as usize..span.end as usize]
    }

    /// The argument at `place`, to keep.
    ///
    /// # Panics
    /// If there is no such argument.
    pub fn bytes(&self, place: usize) -> Bytes {
        let span = self.spans[place];
        self.frame.slice(span.start as usize..span.end as usize)
    }

    /// Whether the argument at `place` is this word, in any case. `word` is upper case.
    pub fn is(&self, place: usize, word: &str) -> bool {
        place < self.len() && self.at(place).eq_ignore_ascii_case(word.as_bytes())
    }

    /// All of them in order, the name first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.spans
            .iter()
            .map(|span| &self.frame[span.start as usize..span.end as usize])
    }

    /// Releases the frame, and also the list if a very long command made it large.
    pub(crate) fn clear(&mut self) {
        const KEPT_SPANS: usize = 1_024;
        self.frame = Bytes::new();
        self.spans.clear();
        self.spans.shrink_to(KEPT_SPANS);
    }
}
