"""Runs the part of Valkey's own test suite that can be run against another server, and compares the outcome of each test with `expected.txt`:
`make test-valkey-suite SUITE=/path/to/valkey`.

The suite is not in this repository. SUITE is a checkout of https://github.com/valkey-io/valkey; nothing in it is built. Needs tclsh 8.6.

An outcome is one of these. A run shows the first three; only a person can tell the last two apart:

    passed            the test passed
    refused COMMAND   the test failed, because Turnbuckle does not have this command, and says so
    failed            the test failed for another reason. In the list it is one of these two, with the reason:
        differs       Turnbuckle does something else on purpose, or the test needs keys of an earlier test that was refused
        wrong         the answer is wrong, or lacks something that it should have

Exits 1 if an outcome is not the expected one, in either direction, and 2 if the suite could not be run."""
import argparse
import base64
import collections
import json
import pathlib
import re
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIST = HERE / "expected.txt"
PAGE = ROOT / "docs/clients.md"
MARKS = "<!-- the next lines are written by `clients/valkey/run.py --update` -->\n", "<!-- up to here -->\n"
FILE_SECONDS = 300
HUNG = f"the test did not end within {FILE_SECONDS} s"
UNKNOWN_REASON = "?"
BY_HAND = ("differs", "wrong")
HEAD = """\
# The outcome of each test of Valkey's test suite: see run.py. `make test-valkey-suite SUITE=.. UPDATE=yes` writes this file, and keeps the reasons.
#
#   passed [COMMANDS]  | name             COMMANDS: replaced in this test by SCAN and DEL; "without": refused, and the test passed all the same
#   refused COMMAND    | name
#   differs            | name | why this is right here
#   wrong              | name | what is wrong
#
# A name that is listed twice belongs to two tests.
"""

# What became of a test. `what`: the replaced commands, the refused command, or the reason. `error`: the message of the suite.
Outcome = collections.namedtuple("Outcome", "word what error", defaults=[""])


class Stopped(Exception):
    """The runner of a file ended before the file did."""


def run_file(suite, host, port, keyspace, file, left_out=()):
    """Runs one file. Returns its outcomes by (name, which of this name), and how often something was skipped or lost, by reason."""
    command = ["tclsh", str(HERE / "suite.tcl"), host, str(port), keyspace, file, *map(str, left_out)]
    process = subprocess.Popen(command, cwd=suite, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    killer = threading.Timer(FILE_SECONDS, process.kill)
    killer.start()
    outcomes, skipped, trouble, running, done = {}, collections.Counter(), [], None, False
    for line in process.stdout:
        try:
            word, *texts = line.decode().rstrip("\n").split("\t")
            texts = [base64.b64decode(text, validate=True).decode(errors="replace") for text in texts]
        except ValueError:
            continue  # a test has printed something
        if word == "begin":
            running = int(texts[0]), texts[1]
        elif word == "end":
            _, name, error, replaced, refused = texts
            if error:
                outcome = Outcome("refused" if refused else "failed", refused, error)
            else:
                outcome = Outcome("passed", ", ".join(filter(None, [replaced, refused and f"without {refused}"])))
            add(outcomes, name, outcome)
            running = None
        elif word == "skip":
            skipped[texts[0]] += 1
            running = None
        elif word == "trouble":
            trouble.append(texts[0])
        elif word == "done":
            done = True
    errors = process.stderr.read().decode(errors="replace")
    process.wait()
    killer.cancel()
    if done:
        return outcomes, skipped, trouble
    if running and process.returncode == -9 and len(left_out) < 3:
        # The other tests, without this one.
        number, name = running
        outcomes, skipped, trouble = run_file(suite, host, port, keyspace, file, [*left_out, number])
        add(outcomes, name, Outcome("failed", "", HUNG))
        return outcomes, skipped, trouble
    where = f"in '{running[1]}'" if running else "outside a test"
    raise Stopped(f"{file} stopped {where}, with code {process.returncode}: {errors.strip()}")


def add(outcomes, name, outcome):
    which = sum(1 for known, _ in outcomes if known == name)
    outcomes[name, which] = outcome


def read_list(path):
    """The expected outcomes by (file, name, which), and the version of the suite that they are of."""
    expected, file, version, seen = {}, None, None, collections.Counter()
    for line in path.read_text().splitlines() if path.exists() else []:
        if not line or line.startswith("#"):
            continue
        if line.startswith("suite "):
            version = line.removeprefix("suite ")
        elif line.startswith("["):
            file = line.strip("[]")
        else:
            outcome, name = line.split(" | ", 1)
            word, _, what = outcome.strip().partition(" ")
            if word in BY_HAND:
                name, what = name.rsplit(" | ", 1)
            expected[file, unescape(name), seen[file, name]] = Outcome(word, what.strip())
            seen[file, name] += 1
    return expected, version


def escape(name):
    return name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def unescape(name):
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "r": "\r"}.get(match[1], match[1]), name)


def write_list(path, outcomes, version):
    lines = [HEAD, f"suite {version}\n"]
    last = None
    for (file, name, _), outcome in outcomes.items():
        if file != last:
            lines.append(f"\n[{file}]\n")
            last = file
        by_hand = outcome.word in BY_HAND
        first = outcome.word if by_hand else f"{outcome.word} {outcome.what}".strip()
        lines.append(f"{first:<18} | {escape(name)}" + (f" | {outcome.what}" if by_hand else "") + "\n")
    path.write_text("".join(lines))


def matches(found, expected):
    if found.word == "failed":
        return expected.word in BY_HAND and expected.what != UNKNOWN_REASON
    return found[:2] == expected[:2]


def merge(found, expected):
    """The outcome to write: what was found, with the reason that the list has."""
    if found.word != "failed":
        return Outcome(*found[:2])
    if expected and expected.word in BY_HAND:
        return expected
    return Outcome("wrong", UNKNOWN_REASON)


def shown(outcome):
    return f"{outcome.word} {outcome.what}".strip()


def compare(found, expected, files):
    """Prints each difference, and returns how many there are."""
    differences = 0
    for key in [*found, *(key for key in expected if key not in found)]:
        file, name, _ = key
        if file not in files:
            continue
        now, before = found.get(key), expected.get(key)
        if now and before and matches(now, before):
            continue
        differences += 1
        print(f"DIFFERENT {file}: {name}")
        print(f"    expected: {shown(before) if before else 'not in the list'}")
        print(f"    now:      {shown(now) if now else 'did not run'}")
        if now and now.error:
            print(f"    {now.error[:500]}")
    return differences


def table(found, expected):
    """The rows (file, then the numbers of passed, refused, differs, wrong), and the totals."""
    rows = {}
    for key, outcome in found.items():
        word = outcome.word
        if word == "failed":
            word = expected[key].word if key in expected and matches(outcome, expected[key]) else "wrong"
        rows.setdefault(key[0], collections.Counter())[word] += 1
    return rows, sum(rows.values(), collections.Counter())


WORDS = ("passed", "refused", "differs", "wrong")


def print_table(rows, total):
    print(f"\n{'file':<28}" + "".join(f"{word:>9}" for word in WORDS))
    for file, counts in [*rows.items(), ("all", total)]:
        print(f"{file:<28}" + "".join(f"{counts[word] or '':>9}" for word in WORDS))


def write_page(rows, total, refused, version, keyspace):
    """Writes the figures of this run into the page."""
    begin, end = MARKS
    before, _, rest = PAGE.read_text().partition(begin)
    _, _, after = rest.partition(end)
    if not after:
        sys.exit(f"FAILED {PAGE} has no place for the figures")
    commit = subprocess.run(["git", "log", "-1", "--format=commit %h of %cs"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    most = ", ".join(f"`{command}` {count}" for command, count in refused.most_common(8))
    figures = f"""\
Last run against Valkey {version} at {commit}, in the keyspace `{keyspace or 'causal'}`: {sum(total.values())} tests in {len(rows)} files.

| passed | refused by name | differs, with a reason | wrong |
|---|---|---|---|
| {total['passed']} | {total['refused']} | {total['differs']} | {total['wrong']} |

Refused most: {most}.
"""
    PAGE.write_text(before + begin + figures + end + after)


def version_of(suite):
    match = re.search(r'define VALKEY_VERSION "(.*)"', (suite / "src/version.h").read_text())
    return match[1]


def files_of(suite):
    """Every file of unit tests. The other files start servers of Valkey's own."""
    paths = [*sorted(suite.glob("tests/unit/*.tcl")), *sorted(suite.glob("tests/unit/type/*.tcl"))]
    paths = [path for path in paths if re.search(r"^\s*test\b", path.read_text(errors="replace"), re.MULTILINE)]
    return [str(path.relative_to(suite / "tests").with_suffix("")) for path in paths]


def run(arguments, host, port):
    expected, listed_version = read_list(LIST)
    version = version_of(arguments.suite)
    if listed_version and listed_version != version:
        print(f"NOTE the suite is of Valkey {version}, and the list of {listed_version}: tests may have come, gone or changed")
    found, skipped, trouble, refused = {}, collections.Counter(), [], collections.Counter()
    files = arguments.file or files_of(arguments.suite)
    for file in files:
        outcomes, skips, troubles = run_file(arguments.suite, host, port, arguments.keyspace, file)
        skipped += skips
        trouble += [f"{file}: {text}" for text in troubles]
        for (name, which), outcome in outcomes.items():
            found[file, name, which] = outcome
            if outcome.word == "refused":
                refused[outcome.what] += 1
    for text in trouble:
        print(f"NOTE outside a test: {text[:300]}")
    if arguments.update:
        merged = {key: merge(outcome, expected.get(key)) for key, outcome in found.items()}
        kept = {key: outcome for key, outcome in expected.items() if key[0] not in files}
        order = {file: place for place, file in enumerate(files_of(arguments.suite))}
        everything = sorted({**kept, **merged}.items(), key=lambda item: order.get(item[0][0], len(order)))
        write_list(LIST, dict(everything), version)
        expected, _ = read_list(LIST)
    differences = compare(found, expected, files)
    rows, total = table(found, expected)
    print_table(rows, total)
    print("\nnot run: " + "; ".join(f"{count} {why}" for why, count in skipped.most_common()))
    print("refused: " + ", ".join(f"{command} {count}" for command, count in refused.most_common(12)) + ", ..")
    if arguments.update and not arguments.file:
        write_page(rows, total, refused, version, arguments.keyspace)
    print(f"\n{sum(total.values())} tests: " + ", ".join(f"{total[word]} {word}" for word in WORDS) + f"; {differences} not as expected")
    return 1 if differences else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=pathlib.Path, required=True, help="a checkout of Valkey")
    parser.add_argument("--binary", default=str(ROOT / "target/release/turnbuckle"), help="runs a demo of it")
    parser.add_argument("--address", help="HOST:PORT of a server that runs already. Its keys are DELETED. Default: a demo is started")
    parser.add_argument("--keyspace", default="", help="a keyspace of the demo; default: the one that connections begin in")
    parser.add_argument("--file", action="append", help="run only this file, such as unit/type/string; may be repeated")
    parser.add_argument("--update", action="store_true", help="write the list, and the figures into docs/clients.md")
    arguments = parser.parse_args()
    arguments.suite = arguments.suite.resolve()
    if not (arguments.suite / "tests/test_helper.tcl").exists():
        print(f"FAILED {arguments.suite} is no checkout of Valkey: it has no tests/test_helper.tcl")
        return 2
    if arguments.address:
        host, _, port = arguments.address.rpartition(":")
        try:
            return run(arguments, host, port)
        except Stopped as stopped:
            print(f"FAILED {stopped}")
            return 2
    demo = subprocess.Popen([arguments.binary, "demo", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        site = json.loads(demo.stdout.readline())["sites"][0]
        host, _, port = site["resp"].rpartition(":")
        return run(arguments, host, port)
    except Stopped as stopped:
        print(f"FAILED {stopped}")
        if demo.poll() is not None:
            print(f"FAILED the demo ended during the tests, with code {demo.returncode}")
        return 2
    finally:
        demo.terminate()
        demo.wait()


sys.exit(main())
