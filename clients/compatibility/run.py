"""Lets Redis clients do the same things with a demo, and says what they can do: see README.md."""

import argparse
import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "target" / "compatibility"
PAGE = ROOT / "docs" / "clients.md"

# The checks of every client, with what they are called in the table.
CHECKS = {
    "strings": "values of any bytes (Lettuce: text): `SET`, `GET`, `DEL`, `EXISTS`",
    "many": "`MSET`, `MGET` of 100 keys",
    "pipeline": "a pipeline of 200 commands",
    "expiry": "`SET .. PX`, `PTTL`; the value is gone in time",
    "retimes": "`EXPIRE` with `NX`, `PERSIST`, `GETEX`",
    "scan": "`SCAN` with a pattern",
    "receipt": "`RECEIPT`, `GET .. AT eventual`",
    "flush": "`FLUSHDB` of 300 keys in `eventual`",
    "cluster": "the client's cluster mode",
    "counter": "`INCR` in `consensus`",
    "counter_elsewhere": "`INCR`, `INCRBY`, `DECR`, `INCRBYFLOAT` in `causal`",
    "lock": "`SET .. NX` in `consensus`",
    "transaction": "`MULTI` .. `EXEC` in `consensus`",
    "transaction_elsewhere": "`MULTI` .. `EXEC` in `causal`",
    "hashes": "a hash: `HSET`, `HGET`, `HMGET`, `HGETALL`, `HINCRBY`, `HDEL`, `HEXISTS`, `HLEN`, `HSCAN`, `EXPIRE`",
    "sets": "a set: `SADD`, `SREM`, `SISMEMBER`, `SCARD`, `SMEMBERS`; `SUNION`, `SINTER` of two keys of one partition",
    "messages": "`SUBSCRIBE`, `PSUBSCRIBE`, `PUBLISH`",
}
DJANGO = {
    "set_and_get": "`set` with a timeout, `get`",
    "get_many": "`get_many`",
    "delete": "`delete`, `has_key`",
    "clear": "`clear`",
    "add": "`add`",
    "touch": "`touch`",
    "incr": "`incr`",
    "set_many": "`set_many`, with keys of one partition",
}
# What is refused.
REFUSED = {"add"}


def run(command, cwd=HERE, **more):
    subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL, **more)


def install():
    """The programs: the name of each client, and how it is run."""
    WORK.mkdir(parents=True, exist_ok=True)
    python = WORK / "python" / "bin" / "python"
    if not python.exists():
        run([sys.executable, "-m", "venv", str(WORK / "python")])
    run([str(python), "-m", "pip", "install", "--quiet", "-r", str(HERE / "requirements.txt")])
    node, java = WORK / "node", WORK / "java"
    node.mkdir(exist_ok=True)
    for name in ["package.json", "package-lock.json", "ioredis.js", "node_redis.js"]:
        (node / name).write_bytes((HERE / "node" / name).read_bytes())
    run(["npm", "ci", "--silent"], cwd=node)
    run(["go", "build", "-o", str(WORK / "go_redis"), "."], cwd=HERE / "go")
    jars = ["dependency:copy-dependencies", f"-DoutputDirectory={java / 'jars'}"]
    run(["mvn", "-q", "-B", *jars], cwd=HERE / "java")
    sources = [str(source) for source in sorted((HERE / "java" / "src").glob("*.java"))]
    run(["javac", "-nowarn", "-cp", f"{java / 'jars'}/*", "-d", str(java / "classes"), *sources], stderr=subprocess.DEVNULL)
    classes = f"{java / 'classes'}:{java / 'jars'}/*"
    versions = dict(re.findall(r"<artifactId>(\S+)</artifactId><version>(\d[\d.]*\d)", (HERE / "java" / "pom.xml").read_text()))
    programs = {
        "redis-py": [python, HERE / "python" / "redis_py.py"],
        "redis-py, asyncio": [python, HERE / "python" / "redis_py_asyncio.py"],
        "ioredis": ["node", node / "ioredis.js"],
        "node-redis": ["node", node / "node_redis.js"],
        "go-redis": [WORK / "go_redis"],
        "Jedis": ["java", "-cp", classes, "JedisChecks", versions["jedis"]],
        "Lettuce": ["java", "-cp", classes, "LettuceChecks", versions["lettuce-core"]],
    }
    return programs, {"Django": [python, HERE / "python" / "django_cache.py"]}


def start_demo(binary):
    """A demo, and the port of its first site."""
    demo = subprocess.Popen([binary, "demo"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
    for line in demo.stdout:
        if found := re.search(r"-p (\d+)", line):
            return demo, found.group(1)
    raise SystemExit(f"the demo ended: {binary} demo")


def ask(command, port):
    """The version of a client, and the answers of its checks."""
    environment = {**os.environ, "HOST": "127.0.0.1", "PORT": port}
    done = subprocess.run(
        [str(word) for word in command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120
    )
    answers = dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)
    return answers.pop("version", "?"), answers


def look(name, checks, answers):
    """What is not as it must be."""
    for check in checks:
        answer = answers.get(check, "no answer")
        is_refused = re.match(r"(Command # .*)?(UNSUPPORTED|EXECABORT)|the keyspace '\w+' has no transactions", answer)
        if (answer != "ok") if check not in REFUSED else not is_refused:
            yield f"{name}: {check}: {answer}"


def table(checks, columns):
    lines = ["| | " + " | ".join(f"{name} {version}" for name, version, _ in columns) + " |", "|---|" + "---|" * len(columns)]
    for check, title in checks.items():
        words = ["yes" if answers.get(check) == "ok" else "refused" for _, _, answers in columns]
        lines.append(f"| {title} | " + " | ".join(words) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=ROOT / "target" / "release" / "turnbuckle")
    parser.add_argument("--update", action="store_true", help="write the tables into docs/clients.md")
    options = parser.parse_args()
    clients, django = install()
    demo, port = start_demo(str(options.binary))
    wrong, tables = [], []
    try:
        for checks, programs in [(CHECKS, clients), (DJANGO, django)]:
            columns = []
            for name, command in programs.items():
                version, answers = ask(command, port)
                columns.append((name, version, answers))
                wrong += look(name, checks, answers)
            tables.append(table(checks, columns))
    finally:
        demo.terminate()
        demo.wait()
    print("\n\n".join(tables))
    if wrong:
        raise SystemExit("\n".join(["not as it must be:", *wrong]))
    if options.update:
        commit = subprocess.run(["git", "log", "-1", "--format=%h"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        page = PAGE.read_text()
        stamp = f"Written by `make test-clients UPDATE=yes`, commit {commit}, {date.today()}."
        text = f"<!-- clients:begin -->\n{stamp}\n\n{tables[0]}\n\n{tables[1]}\n<!-- clients:end -->"
        changed = re.sub(r"<!-- clients:begin -->.*<!-- clients:end -->", lambda _: text, page, flags=re.DOTALL)
        if changed == page and stamp not in page:
            raise SystemExit(f"{PAGE} has no place for the tables")
        PAGE.write_text(changed)


if __name__ == "__main__":
    main()
