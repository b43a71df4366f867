//! Links between the pages of the repository lead somewhere.
//!
//! Every relative link leads to a file or folder that exists. Every `#fragment` is the anchor of a heading of its page, by the rule that GitHub
//! and mdBook have in common. Addresses of the web are not looked up. Of Markdown this knows what the pages use: headings that begin with `#`,
//! fenced code, code in backticks, and links of the form `[text](target)`.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Component, Path, PathBuf},
};

/// One page: the lines that are neither fenced code nor a fence.
struct Page {
    /// The number of each line in the file, from 1, and its text.
    lines: Vec<(usize, String)>,
}

impl Page {
    fn parse(text: &str) -> Page {
        let mut lines = Vec::new();
        // The fence that closes the block of code in which the line is.
        let mut fence = None;
        for (number, line) in (1..).zip(text.lines()) {
            let mark = ["```", "~~~"]
                .into_iter()
                .find(|mark| line.trim_start().starts_with(mark));
            match (fence, mark) {
                (None, None) => lines.push((number, line.to_owned())),
                (None, Some(_)) => fence = mark,
                (Some(_), _) if fence == mark => fence = None,
                (Some(_), _) => {}
            }
        }
        Page { lines }
    }

    /// The anchors of the headings. The second heading of the same text has `-1` at its end, the third `-2`.
    fn anchors(&self) -> BTreeSet<String> {
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut anchors = BTreeSet::new();
        for (_, line) in &self.lines {
            let text = line.trim_start_matches('#');
            let level = line.len() - text.len();
            if !(1..=6).contains(&level) || !text.starts_with(' ') {
                continue;
            }
            let anchor = anchor(text.trim());
            let before = seen.entry(anchor.clone()).or_default();
            anchors.insert(match *before {
                0 => anchor,
                times => format!("{anchor}-{times}"),
            });
            *before += 1;
        }
        anchors
    }

    /// The targets of the links, each with the number of its line.
    fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for (number, line) in &self.lines {
            // Outside of backticks. A link's text may itself be in backticks; its target is not.
            let outside: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
            for after in outside.split("](").skip(1) {
                if let Some((target, _)) = after.split_once(')') {
                    links.push((*number, target.to_owned()));
                }
            }
        }
        links
    }
}

/// The anchor of a heading: lower case; letters, digits, `-` and `_` stay, a space becomes `-`, and all else is left out. Of a link its text counts.
fn anchor(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.to_lowercase()
        .chars()
        .filter_map(|character| match character {
            ' ' => Some('-'),
            '-' | '_' => Some(character),
            _ if character.is_alphanumeric() => Some(character),
            _ => None,
        })
        .collect()
}

fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository is there")
}

/// All pages of the repository, by their path in it. Folders of builds and hidden folders have none.
fn pages(root: &Path) -> BTreeMap<PathBuf, Page> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be read") {
            let entry = entry.expect("the folder can be read");
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type().expect("its type is known").is_dir() {
                if !name.starts_with('.') && name != "target" {
                    folders.push(path);
                }
            } else if name.ends_with(".md") {
                let text = fs::read_to_string(&path).expect("the page can be read");
                let path = path.strip_prefix(root).expect("it is in the repository");
                pages.insert(path.to_owned(), Page::parse(&text));
            }
        }
    }
    pages
}

/// `base/target` without `.` and `..`. `None` if it leaves the repository.
fn resolve(base: &Path, target: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for component in base.join(target).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => path.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// Why a link leads nowhere. `None` if it leads somewhere, or to the web.
fn fault(root: &Path, pages: &BTreeMap<PathBuf, Page>, from: &Path, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (target, fragment) = link.split_once('#').unwrap_or((link, ""));
    let path = match target {
        "" => from.to_owned(),
        target => match resolve(from.parent().expect("a page is in a folder"), target) {
            Some(path) => path,
            None => return Some("leaves the repository".to_owned()),
        },
    };
    if !pages.contains_key(&path) && !root.join(&path).exists() {
        return Some(format!("{} does not exist", path.display()));
    }
    match pages.get(&path) {
        _ if fragment.is_empty() => None,
        None => Some("has a fragment, but does not lead to a page".to_owned()),
        Some(page) if page.anchors().contains(fragment) => None,
        Some(_) => Some(format!("{} has no heading for it", path.display())),
    }
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let root = repository();
    let pages = pages(&root);
    let mut faults = Vec::new();
    let mut links = 0;
    for (from, page) in &pages {
        for (line, link) in page.links() {
            links += 1;
            if let Some(fault) = fault(&root, &pages, from, &link) {
                faults.push(format!("{}:{line}: {link}: {fault}", from.display()));
            }
        }
    }
    assert!(links > 100, "only {links} links were found");
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_table_of_contents_names_every_page_of_docs() {
    let root = repository();
    let pages = pages(&root);
    let contents = Path::new("docs/SUMMARY.md");
    let named: BTreeSet<_> = pages[contents]
        .links()
        .iter()
        .filter_map(|(_, link)| resolve(Path::new("docs"), link))
        .collect();
    let missing: Vec<_> = pages
        .keys()
        .filter(|page| page.starts_with("docs") && *page != contents)
        .filter(|page| !named.contains(*page))
        .collect();
    assert!(missing.is_empty(), "not in {}: {missing:?}", contents.display());
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let root = repository();
    let text = "# A page\n## `SET` and [GET](x.md), twice\n## Same\n## Same\n```sh\n# no heading [x](no.md)\n```\n`[x](no.md)` [a](#same-1) [`b`](../README.md)";
    let page = Page::parse(text);
    assert_eq!(
        page.anchors().iter().map(String::as_str).collect::<Vec<_>>(),
        ["a-page", "same", "same-1", "set-and-get-twice"]
    );
    assert_eq!(page.links().len(), 3, "{:?}", page.links());
    let from = Path::new("docs/page.md");
    let pages = BTreeMap::from([(from.to_owned(), page)]);
    for (link, found) in [
        ("#same-1", false),
        ("page.md#a-page", false),
        ("../README.md", false),
        ("../crates", false),
        ("https://example.org/no", false),
        ("#same-2", true),
        ("page.md#no-heading-x", true),
        ("no.md", true),
        ("../../README.md", true),
        ("../Cargo.toml#package", true),
    ] {
        let fault = fault(&root, &pages, from, link);
        assert_eq!(fault.is_some(), found, "{link}: {fault:?}");
    }
}
