use std::ops::Range;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A list of tables. Each table has a field, the tag, that says which other fields it has.
///
/// ```toml
/// [[fault]]                    # as people write it
/// kind = "cut"
/// at = "1s"
/// a = "x"
///
/// [[fault]]                    # as serde's enums are decoded without losing places
/// at = "1s"
/// kind = { cut = { a = "x" } }
/// ```
///
/// So such a table is decoded as a struct of the fields that all kinds have, and of the tag, which is an enum of structs.
#[derive(Debug, Clone, Copy)]
pub struct Tagged {
    /// The list's name. The list may be anywhere in the document.
    pub list: &'static str,
    /// The name of the field that says the kind.
    pub tag: &'static str,
    /// The fields that tables of every kind have.
    pub shared: &'static [&'static str],
}

impl Tagged {
    /// Reshapes each such list in a table.
    pub(crate) fn reshape(self, table: &mut DeTable<'_>) {
        for (key, value) in table.iter_mut() {
            match value.get_mut() {
                DeValue::Table(inner) => self.reshape(inner),
                DeValue::Array(elements) if key.get_ref() == self.list => {
                    elements.iter_mut().for_each(|element| self.nest(element));
                }
                _ => {}
            }
        }
    }

    /// Moves the fields of the kind into the tag's own table.
    fn nest(self, element: &mut Spanned<DeValue<'_>>) {
        let place = element.span();
        let DeValue::Table(outer) = element.get_mut() else {
            return;
        };
        // A table without a tag gets a kind with an empty name: the enum refuses that, and says which kinds there are.
        let none = || (Spanned::new(place.clone(), self.tag.into()), text(place.clone()));
        let (key, kind) = outer.remove_entry(self.tag).unwrap_or_else(none);
        let kind_place = kind.span();
        let mut inner = DeTable::new();
        for (key, value) in std::mem::replace(outer, DeTable::new()) {
            let to = match self.shared.contains(&key.get_ref().as_ref()) {
                true => &mut *outer,
                false => &mut inner,
            };
            to.insert(key, value);
        }
        let nested = match kind.into_inner() {
            DeValue::String(kind) => {
                let fields = Spanned::new(place.clone(), DeValue::Table(inner));
                let variant = DeTable::from_iter([(Spanned::new(kind_place, kind), fields)]);
                Spanned::new(place, DeValue::Table(variant))
            }
            other => Spanned::new(kind_place, other),
        };
        outer.insert(key, nested);
    }
}

fn text(place: Range<usize>) -> Spanned<DeValue<'static>> {
    Spanned::new(place, DeValue::String("".into()))
}
