//! Patterns of `SCAN MATCH`, `COMMAND LIST` and `CONFIG GET`.

/// Matches `text` against a pattern as Redis understands it: `*`, `?`, `[abc]`, `[^a-z]`, and a backslash before a byte that is meant literally.
///
/// Only the last `*` is ever tried again, so the work is at most the product of the two lengths. Trying all of them would take practically for ever
/// on `*a*a*a*b`. `steps` limits even that: `None` when it is used up. A step is a byte of the pattern that is looked at, so a long class takes many.
pub(crate) fn matches(pattern: &[u8], text: &[u8], steps: &mut u64) -> Option<bool> {
    let (mut p, mut t) = (0, 0);
    // The place after the last star, and the place in the text where the rest of the pattern was last tried.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            *steps = steps.checked_sub(1)?;
            p += 1;
            star = Some((p, t));
            continue;
        }
        let (is_match, len) = match_one(&pattern[p..], text[t]);
        *steps = steps.checked_sub(len.max(1) as u64)?;
        if is_match {
            p += len;
            t += 1;
            continue;
        }
        let Some((behind, tried)) = star else {
            return Some(false);
        };
        (p, t) = (behind, tried + 1);
        star = Some((behind, t));
    }
    Some(pattern[p..].iter().all(|&byte| byte == b'*'))
}

/// Whether the first piece of the pattern matches `byte`, and the length of that piece.
fn match_one(pattern: &[u8], byte: u8) -> (bool, usize) {
    match pattern {
        [] => (false, 0),
        [b'?', ..] => (true, 1),
        [b'[', class @ ..] => {
            let (is_match, len) = match_class(class, byte);
            (is_match, len + 1)
        }
        [b'\\', escaped, ..] => (*escaped == byte, 2),
        [literal, ..] => (*literal == byte, 1),
    }
}

/// Whether `byte` is in the class that begins here, and the length of the class, with its closing bracket. A class that is never closed ends with the
/// pattern.
fn match_class(class: &[u8], byte: u8) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut place = usize::from(negated);
    let mut found = false;
    loop {
        match class[place..] {
            [] => break,
            [b']', ..] => {
                place += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= escaped == byte;
                place += 2;
            }
            [low, b'-', high, ..] => {
                found |= (low.min(high)..=low.max(high)).contains(&byte);
                place += 3;
            }
            [literal, ..] => {
                found |= literal == byte;
                place += 1;
            }
        }
    }
    (found != negated, place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn glob(pattern: &str, text: &str) -> bool {
        matches(pattern.as_bytes(), text.as_bytes(), &mut 1_000_000).expect("enough steps")
    }

    #[test]
    fn patterns_mean_what_they_mean_in_redis() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "anything"),
            ("h?llo", "hallo"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hello"),
            ("h[^e]llo", "hbllo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("h\\*llo", "h*llo"),
            ("[\\]]", "]"),
            ("[abc", "b"),
            ("a*b*c", "axxbxxbyyc"),
            ("**a**", "a"),
            ("a\\", "a\\"),
        ] {
            assert!(glob(pattern, text), "{pattern} should match {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("?", ""),
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("h\\*llo", "hello"),
            ("a*b", "ac"),
            ("a", "ab"),
            ("[]", "a"),
        ] {
            assert!(!glob(pattern, text), "{pattern} should not match {text}");
        }
    }

    #[test]
    fn a_pattern_that_would_take_for_ever_runs_out_of_steps() {
        let text = vec![b'a'; 64 << 10];
        let mut pattern = b"*".to_vec();
        pattern.extend(vec![b'a'; 1 << 10]);
        pattern.push(b'b');
        assert_eq!(matches(&pattern, &text, &mut 1_000_000), None);
        // A long class at each byte of the text.
        let pattern = [b"*[".as_slice(), &[b'b'; 32 << 10], b"]"].concat();
        assert_eq!(matches(&pattern, &text, &mut 1_000_000), None);
    }

    /// The definition of a match, by trying every way.
    fn oracle(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|skip| oracle(rest, &text[skip..])),
            _ => {
                let Some((first, rest)) = text.split_first() else {
                    return false;
                };
                let (is_match, len) = match_one(pattern, *first);
                is_match && oracle(&pattern[len..], rest)
            }
        }
    }

    proptest! {
        #[test]
        fn one_star_tried_again_finds_what_all_stars_find(pattern in "[ab*?]{0,7}", text in "[ab]{0,9}") {
            prop_assert_eq!(glob(&pattern, &text), oracle(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
