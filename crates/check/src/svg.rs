//! Writes an SVG document; all pictures use it. Each element is on a line of its own, and all text is escaped.
use std::fmt::Display;

/// A picture being written.
#[derive(Debug)]
pub struct Svg {
    out: String,
    size: String,
}

impl Svg {
    /// A picture of this size, in pixels. `attributes` hold for everything in it; each begins with a space.
    pub fn new(width: impl Display, height: impl Display, attributes: &str) -> Svg {
        let size = format!("width=\"{width}\" height=\"{height}\"");
        let mut svg = Svg {
            out: String::new(),
            size,
        };
        svg.put(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" {} viewBox=\"0 0 {width} {height}\"{attributes}>",
            svg.size
        ));
        svg
    }

    /// A white background.
    pub fn background(&mut self) {
        self.put(&format!("<rect {} fill=\"#fff\"/>", self.size));
    }

    /// Adds an element as it is given.
    pub fn put(&mut self, element: &str) {
        self.out.push_str(element);
        self.out.push('\n');
    }

    /// Adds text. The attributes give its place.
    pub fn text(&mut self, attributes: &str, says: &str) {
        self.put(&format!("<text {attributes}>{}</text>", escaped(says)));
    }

    /// The same, with a tooltip.
    pub fn text_with_title(&mut self, attributes: &str, says: &str, title: &str) {
        let (says, title) = (escaped(says), escaped(title));
        self.put(&format!("<text {attributes}><title>{title}</title>{says}</text>"));
    }

    /// The document.
    pub fn finish(mut self) -> String {
        self.put("</svg>");
        self.out
    }
}

/// Escapes text for XML. A character that XML cannot contain becomes the replacement character.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ if letter.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(letter),
        }
    }
    escaped
}
