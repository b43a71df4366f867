//! Delays as they stand in a file: `[wan]` of the cluster's, or a file of its own.
use super::{
    ConfigError, WrongConfig,
    check::quote,
    document::{Document, read_text},
    raw::{RawWan, Text},
};
use crate::wan::{LinkDelay, WanDelays};
use std::path::Path;
use turnbuckle_core::SiteId;

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
/// If it cannot be read, or names sites that are not among `sites`, or delays that are none.
pub fn read_wan_file(file: &Path, sites: &[String]) -> Result<WanDelays, ConfigError> {
    let text = read_text(file)?;
    let document = Document::parse(file, &text)?;
    Ok(check_wan(&document, &document.decode()?, sites)?)
}

/// The delays of a table. Both directions first, then single ones, so that the order of lines does not matter.
pub(super) fn check_wan(
    document: &Document<'_>,
    raw: &RawWan,
    sites: &[String],
) -> Result<WanDelays, WrongConfig> {
    let mut links = Vec::new();
    for (pair, text) in raw {
        let link = check_pair(document, pair, sites)?;
        let expected = LinkDelay::EXPECTED;
        let delay: LinkDelay = text
            .get_ref()
            .parse()
            .map_err(|_| document.wrong(text.span(), quote(text), expected))?;
        links.push((link, delay, pair));
    }
    links.sort_by_key(|(link, _, pair)| (link.one_way, pair.span().start));
    let mut delays = WanDelays::none(sites);
    let mut seen = std::collections::HashMap::new();
    for (Link { from, to, one_way }, delay, pair) in links {
        let key = if one_way {
            (from, to, true)
        } else {
            (from.min(to), from.max(to), false)
        };
        if let Some(line) = seen.insert(key, document.line(pair.span())) {
            let found = format!("{}, which is on line {line} already", quote(pair));
            return Err(document.wrong(pair.span(), found, "every pair of sites once"));
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

/// `a-b` or `a->b`, of two different sites. Names may contain hyphens, so each hyphen might be the one in between.
fn check_pair(document: &Document<'_>, pair: &Text, sites: &[String]) -> Result<Link, WrongConfig> {
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
    let expected = || {
        format!(
            "two different sites, such as a-b for both directions or \"a->b\" for one; the sites are {}",
            sites.join(", ")
        )
    };
    match <[Link; 1]>::try_from(splits) {
        Ok([link]) if link.from != link.to => Ok(link),
        Ok(_) => Err(document.wrong(pair.span(), quote(pair), expected())),
        Err(splits) if splits.is_empty() => Err(document.wrong(pair.span(), quote(pair), expected())),
        Err(_) => {
            let found = format!("{}, which can be read in more than one way", quote(pair));
            Err(document.wrong(pair.span(), found, "\"a->b\", once for each direction"))
        }
    }
}
