#!/usr/bin/env python3
"""Prints the licences of the libraries that are in the program: a package that contains the program must contain them.

For each library: its name, version and licence, as it says itself, and the files with the texts. A text that several libraries share word
for word is printed once. The sources must be there; after `cargo build` they are.
"""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

FILE = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.IGNORECASE)
CODE = {".rs", ".c", ".h", ".py", ".sh", ".toml"}


def libraries():
    """The packages that `turnbuckle` is built with on this system, without those for builds and tests, and without our own."""
    host = re.search(r"host: (\S+)", subprocess.check_output(["rustc", "-vV"], text=True))[1]
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--format-version=1", "--locked", f"--filter-platform={host}"]
    metadata = json.loads(subprocess.check_output(command))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    open_ids = [package["id"] for package in packages.values() if package["name"] == "turnbuckle"]
    seen = set()
    while open_ids:
        each = open_ids.pop()
        if each in seen:
            continue
        seen.add(each)
        for needed in nodes[each]["deps"]:
            if any(kind["kind"] is None for kind in needed["dep_kinds"]):
                open_ids.append(needed["pkg"])
    return sorted((packages[each] for each in seen if packages[each]["source"]), key=lambda package: (package["name"], package["version"]))


def texts(folder):
    """The files with licences below a folder. Libraries in C lie in folders inside, with their own."""
    for path in sorted(folder.rglob("*")):
        if FILE.match(path.name) and path.is_file() and path.suffix not in CODE:
            yield path.relative_to(folder), path.read_text(errors="replace").strip()


def main():
    shared, lines, without = {}, [], []
    for package in libraries():
        name = f"{package['name']} {package['version']}"
        lines.append(f"{'=' * 100}\n{name}: {package['license'] or 'see its text'}")
        if package["authors"]:
            lines.append("By " + ", ".join(package["authors"]))
        found = False
        for path, text in texts(Path(package["manifest_path"]).parent):
            found = True
            if text in shared:
                lines.append(f"{path}: the same as {shared[text]}")
            else:
                shared[text] = f"{path} of {name}"
                lines.append(f"{path}:\n\n{text}\n")
        if not found:
            without.append(name)
            lines.append("Its package has no file with the text.")
    print("The program `turnbuckle` contains these libraries.\n")
    print("\n".join(lines))
    if without:
        print(f"without a text of the licence: {', '.join(without)}", file=sys.stderr)


main()
