//! A page: its blocks, and what is between them.
use super::root;
use std::fs;

/// A block, with the comment above it.
pub struct Block {
    /// What is in the comment above: `shell` of `<!-- shell -->`.
    pub mark: Option<String>,
    /// The lines of the block, each with its end.
    pub text: String,
    /// The line of the page at which the block begins, counted from 1.
    pub line: usize,
}

enum Piece {
    Text(String),
    Block { fence: String, block: Block },
}

/// A Markdown page, cut into text and blocks.
pub struct Page {
    name: String,
    pieces: Vec<Piece>,
}

impl Page {
    pub fn read(name: &str) -> Page {
        let text = fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut pieces = vec![];
        let mut before = String::new();
        let mut above = "";
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            before += &format!("{line}\n");
            if line.starts_with("```") {
                let inside = lines.by_ref().map(|(_, line)| line);
                let inside: Vec<&str> = inside.take_while(|line| *line != "```").collect();
                let mark = above
                    .strip_prefix("<!-- ")
                    .and_then(|rest| rest.strip_suffix(" -->"));
                pieces.push(Piece::Text(
                    before
                        .strip_suffix(&format!("{line}\n"))
                        .unwrap_or_default()
                        .into(),
                ));
                pieces.push(Piece::Block {
                    fence: line.into(),
                    block: Block {
                        mark: mark.map(String::from),
                        text: inside.iter().map(|line| format!("{line}\n")).collect(),
                        line: number + 1,
                    },
                });
                before.clear();
            }
            above = line;
        }
        pieces.push(Piece::Text(before));
        Page {
            name: name.into(),
            pieces,
        }
    }

    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Block { block, .. } => Some(block),
            Piece::Text(_) => None,
        })
    }

    pub fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        self.pieces.iter_mut().filter_map(|piece| match piece {
            Piece::Block { block, .. } => Some(block),
            Piece::Text(_) => None,
        })
    }

    /// Writes the page with its blocks as they are now.
    pub fn write(&self) {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Block { fence, block } => format!("{fence}\n{}```\n", block.text),
        });
        fs::write(root().join(&self.name), pieces.collect::<String>()).expect("the page can be written");
    }
}
