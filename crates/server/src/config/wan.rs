//! Delays as they are written in a file: in `[wan]` of the cluster's file, or in a file of their own.
use super::{ConfigError, read::read_text};
use crate::wan::{LinkDelay, WanDelays};
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};
use toml::Spanned;
use turnbuckle_core::SiteId;
use turnbuckle_document::{Document, Misplaced, Word, quote};

/// Pairs of sites and the delays between them.
pub(super) type WanTable = BTreeMap<Spanned<String>, Word<LinkDelay>>;

/// Reads a file of delays: the lines of a `[wan]` table, without the header.
///
/// ```toml
/// a-b = "40ms~4ms"    # at least 40 ms and at most 44 ms, in both directions
/// "a->c" = "75ms"     # this direction only; it wins over a-c
/// ```
///
/// Pairs that are not named have no delay.
///
/// # Errors
/// If the file cannot be read, names a site that is not in `sites`, or has a delay that is not valid.
pub fn read_wan_file(file: &Path, sites: &[String]) -> Result<WanDelays, ConfigError> {
    let text = read_text(file)?;
    let document = Document::parse(file, &text)?;
    let delays = check_wan(&document, &document.decode()?, sites);
    Ok(delays.map_err(|wrong| document.report(wrong))?)
}

/// The delays of a table. Pairs for both directions are applied first and single directions after them, so the order of lines does not matter.
pub(super) fn check_wan(
    document: &Document<'_>,
    table: &WanTable,
    sites: &[String],
) -> Result<WanDelays, Misplaced> {
    let mut links = Vec::new();
    for (pair, delay) in table {
        links.push((check_pair(pair, sites)?, **delay, pair));
    }
    links.sort_by_key(|(link, _, pair)| (link.one_way, pair.span().start));
    let mut delays = WanDelays::none(sites);
    let mut seen = HashMap::new();
    for (Link { from, to, one_way }, delay, pair) in links {
        let key = if one_way {
            (from, to, true)
        } else {
            (from.min(to), from.max(to), false)
        };
        if let Some(line) = seen.insert(key, document.line(pair.span())) {
            let found = format!("{}, which is on line {line} already", quote(pair.get_ref()));
            return Err(Misplaced::at(pair.span(), found, "every pair of sites once"));
        }
        if one_way {
            delays.set(from, to, delay);
        } else {
            delays.set_both(from, to, delay);
        }
    }
    Ok(delays)
}

struct Link {
    from: SiteId,
    to: SiteId,
    one_way: bool,
}

/// Parses `a-b` or `a->b`, of two different sites. Names may contain hyphens, so every hyphen may be the separator.
fn check_pair(pair: &Spanned<String>, sites: &[String]) -> Result<Link, Misplaced> {
    let site = |name: &str| {
        let place = sites.iter().position(|site| site == name.trim())?;
        Some(SiteId(place as u16))
    };
    let text = pair.get_ref();
    let splits = text.match_indices('-').filter_map(|(at, _)| {
        let rest = &text[at + 1..];
        let (one_way, rest) = rest.strip_prefix('>').map_or((false, rest), |rest| (true, rest));
        let (from, to) = (site(&text[..at])?, site(rest)?);
        Some(Link { from, to, one_way })
    });
    let splits: Vec<Link> = splits.collect();
    let wrong = |found, expected: &str| Err(Misplaced::at(pair.span(), found, expected));
    match <[Link; 1]>::try_from(splits) {
        Ok([link]) if link.from != link.to => Ok(link),
        Err(splits) if splits.len() > 1 => {
            let found = format!("{}, which can be read in more than one way", quote(text));
            wrong(found, "\"a->b\", once for each direction")
        }
        _ => {
            let expected = "two different sites, such as a-b for both directions or \"a->b\" for one";
            wrong(
                quote(text),
                &format!("{expected}; the sites are {}", sites.join(", ")),
            )
        }
    }
}
