#!/usr/bin/env python3
"""Makes the book of all pages, in target/book: see `make book`.

    book.py stage    copies the pages into target/book-src, where mdBook reads them
    book.py finish   writes a page for each source file and folder that the pages link to, and checks all links of the book

The pages lie in the book as in the repository, so that links between them are the same in both. mdBook makes page.html of page.md. What else
the pages link to becomes a plain page too, because a browser does not show a file without a known ending, or a folder: crates/x.rs becomes
crates/x.rs.html, and the folder crates/x becomes crates/x/index.html, a list of its files. Pictures are copied as they are.
"""
import html
import html.parser
import os
import re
import shutil
import sys
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAGED = ROOT / "target" / "book-src"
BOOK = ROOT / "target" / "book"
ROOT_PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
PICTURES = {".svg", ".png", ".jpg", ".gif"}
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"\s*(```|~~~)")


PAGES = [Path(page) for page in ROOT_PAGES] + sorted(path.relative_to(ROOT) for path in ROOT.glob("docs/**/*.md"))


def outside_code(text, change):
    """The text with `change` done to what is not code: not in a fenced block, and not in backticks."""
    lines, fence = [], None
    for line in text.splitlines(keepends=True):
        mark = FENCE.match(line)
        if mark and fence in (None, mark[1]):
            fence = None if fence else mark[1]
        elif not fence:
            # Code in backticks is put aside, so that a link whose text is code is still one link.
            code = re.findall(r"`[^`]*`", line)
            line = change(re.sub(r"`[^`]*`", "\0", line))
            for each in code:
                line = line.replace("\0", each, 1)
        lines.append(line)
    return "".join(lines)


def linked(page, target):
    """What a link of a page leads to, as a path in the repository. None if it leads to the web."""
    if ":" in target:
        return None
    return Path(os.path.normpath(page.parent / urllib.parse.unquote(target)))


def is_source(path):
    return path is not None and path not in PAGES and path.suffix not in PICTURES


def staged_link(page, match):
    """A link as it is in the book."""
    path, fragment = linked(page, match[1]), match[2] or ""
    if not is_source(path):
        return match[0]
    end = "/index.html" if (ROOT / path).is_dir() else ".html"
    return f"]({match[1].rstrip('/')}{end}{fragment})"


def table_of_contents():
    """docs/SUMMARY.md, as seen from the root, with the pages of the root."""
    contents = (ROOT / "docs/SUMMARY.md").read_text()
    contents = LINK.sub(lambda match: f"](docs/{match[1]})", contents)
    contents = contents.replace("# Summary\n", "# Summary\n\n[Turnbuckle](README.md)\n[All pages](docs/SUMMARY.md)\n", 1)
    names = {"ARCHITECTURE.md": "Architecture", "CONTRIBUTING.md": "Contributing", "SECURITY.md": "Security", "CHANGELOG.md": "Changes"}
    return contents + "\n# The repository\n\n" + "".join(f"- [{name}]({page})\n" for page, name in names.items())


def stage():
    shutil.rmtree(STAGED, ignore_errors=True)
    shutil.rmtree(BOOK, ignore_errors=True)
    for page in PAGES:
        text = (ROOT / page).read_text()
        to = STAGED / "pages" / page
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(outside_code(text, lambda line: LINK.sub(lambda match: staged_link(page, match), line)))
        for match in LINK.finditer(text):
            path = linked(page, match[1])
            if path is not None and path.suffix in PICTURES and (ROOT / path).is_file():
                picture = STAGED / "pages" / path
                picture.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, picture)
    (STAGED / "pages/SUMMARY.md").write_text(table_of_contents())
    for name in ["book.toml", "book.css"]:
        shutil.copy(ROOT / "packaging" / name, STAGED / name)


SOURCE_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ margin: 1.5em; font: 16px/1.5 sans-serif; color-scheme: light dark; }}
pre {{ font: 14px/1.45 monospace; overflow-x: auto; }}
</style>
</head>
<body>
<p><a href="{up}">Turnbuckle</a> / {title}</p>
{body}
</body>
</html>
"""


def write_source_page(to, title, body):
    up = os.path.relpath(BOOK / "index.html", to.parent)
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(SOURCE_PAGE.format(title=html.escape(str(title)), up=up, body=body))


def write_file(path):
    text = (ROOT / path).read_text(errors="replace")
    write_source_page(BOOK / f"{path}.html", path, f"<pre>{html.escape(text)}</pre>")


def write_folder(path):
    items = []
    for entry in sorted((ROOT / path).iterdir()):
        inner = path / entry.name
        if entry.name.startswith((".", "__")):
            continue
        if entry.is_dir():
            write_folder(inner)
            items.append((entry.name + "/", entry.name + "/index.html"))
        elif inner in PAGES:
            items.append((entry.name, entry.stem + ".html"))
        else:
            write_file(inner)
            items.append((entry.name, entry.name + ".html"))
    lines = "".join(f'<li><a href="{urllib.parse.quote(to)}">{html.escape(name)}</a></li>\n' for name, to in items)
    write_source_page(BOOK / path / "index.html", f"{path}/", f"<ul>\n{lines}</ul>")


def finish():
    for page in PAGES:
        for match in LINK.finditer((ROOT / page).read_text()):
            path = linked(page, match[1])
            if is_source(path) and (ROOT / path).is_dir():
                write_folder(path)
            elif is_source(path) and (ROOT / path).is_file():
                write_file(path)
    check()


class Links(html.parser.HTMLParser):
    """The links and the anchors of one page of the book."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.update(attributes[name] for name in ("id", "name") if attributes.get(name))
        self.links.extend(attributes[name] for name in ("href", "src") if attributes.get(name))


def check():
    """Every relative link of the book leads to a file of the book, and every fragment to an anchor in it."""
    found = {path: Links(path.read_text()) for path in BOOK.rglob("*.html")}
    faults, links = [], 0
    for path, page in sorted(found.items()):
        # The page for an address that does not exist has links from the root of a server.
        if path.name == "404.html":
            continue
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            links += 1
            to = path if not parts.path else Path(os.path.normpath(path.parent / urllib.parse.unquote(parts.path)))
            fragment = urllib.parse.unquote(parts.fragment)
            if not to.is_file() or BOOK not in to.parents:
                faults.append(f"{path.relative_to(BOOK)}: {link}: no such file in the book")
            elif fragment and to in found and fragment not in found[to].anchors:
                faults.append(f"{path.relative_to(BOOK)}: {link}: no such anchor")
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    print(f"{BOOK.relative_to(ROOT)}: {len(found)} pages, {links} links, {len(faults)} of them lead nowhere")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    {"stage": stage, "finish": finish}[sys.argv[1]]()
