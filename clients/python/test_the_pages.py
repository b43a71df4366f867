"""Runs the Python of docs/clients.md and docs/operating.md against a demo of three sites: `make test-redis-py`.

The blocks of a page run in their order, with the demo's ports for those of the page. A comment behind a line that begins with a literal is what
the line must give, at once or within ten seconds: `r.get("x")    # 'hello'`. A block of text behind a block of Python is what its last line gives, apart from
numbers.
"""
import ast
import json
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^<!-- tested by: clients/python/test_the_pages.py -->\n```(\w+)\n(.*?)^```$", re.M | re.S)


def expected(line):
    """The literal in the comment behind a line, if there is one, in a list."""
    _, sign, comment = line.partition("  # ")
    words = comment.split()
    for end in range(len(words), 0, -1) if sign else ():
        try:
            return [ast.literal_eval(" ".join(words[:end]))]
        except (SyntaxError, ValueError):
            pass
    return []


def check(place, found, again, wanted):
    deadline = time.monotonic() + 10
    while found != wanted:
        if time.monotonic() > deadline:
            sys.exit(f"FAILED {place}: {found!r}, expected {wanted!r}")
        time.sleep(0.01)
        found = again()
    print(f"ok     {place}: {wanted!r}")


def without_numbers(text):
    return re.sub(r"\d+", "0", re.sub(r"\s+", " ", text)).strip()


def run(page, ports, names):
    text = (ROOT / page).read_text()
    last = None
    for block in BLOCK.finditer(text):
        place = f"{page}:{text[: block.start(2)].count(chr(10)) + 1}"
        language, code = block.groups()
        if language == "text":
            found = without_numbers(repr(last))
            check(place, found, lambda: found, without_numbers(code))
            continue
        for written, real in ports.items():
            code = code.replace(written, real)
        lines = code.splitlines()
        for step in ast.parse(code).body:
            line = lines[step.end_lineno - 1]
            source = ast.get_source_segment(code, step)
            if isinstance(step, ast.Expr):
                value = lambda: eval(source, names)
                last = value()
                for wanted in expected(line):
                    check(f"{place} {source}", last, value, wanted)
            else:
                exec(source, names)
        print(f"ok     {place}: {len(lines)} lines")


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "target/release/turnbuckle")
    demo = subprocess.Popen([binary, "demo", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        sites = json.loads(demo.stdout.readline())["sites"]
        ports = [site["resp"].rsplit(":", 1)[1] for site in sites]
        clients = {f"port={8000 + site}": f"port={port}" for site, port in enumerate(ports)}
        clients |= {f"({8000}, {8001})": f"({ports[0]}, {ports[1]})"}
        # A session's token is the application's own.
        names = {}
        exec(f"import redis\ntoken = redis.Redis(port={ports[0]}).execute_command('SESSION', 'TOKEN')", names)
        run("docs/clients.md", clients, names)
        # The keyspace is read from site a and written at site a: what was read is there again.
        clusters = {'host="10.0.0.1", port=7001': f"port={ports[0]}", 'host="10.9.0.1", port=7001': f"port={ports[0]}"}
        run("docs/operating.md", clusters, {})
    finally:
        demo.terminate()
        demo.wait()


main()
