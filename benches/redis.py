#!/usr/bin/env python3
"""Turnbuckle beside Redis, in one run: `make bench-redis`.

redis-benchmark, 50 connections, 100,000 random keys, without and with pipelining, in turn against
- redis-server, appendonly yes, appendfsync everysec;
- site a of a three-site cluster on the same machine that replicates everything to b and c, each site a process of its own;
- with --before, such a cluster of another build;
- with --protocols, such a cluster for each of these protocols. Then the table has a row for each of them and each test.

Values have 128 bytes. A hash has ten fields of 13 bytes. All keys are there before the measurements begin. HSET and HGET name one field.

Everything shares the machine's cores, so the two other sites take from what the first one could use. Servers that are not measured are paused. No measurement begins while a checkpoint runs: it would
count for whoever comes after the writes that have brought it about. A checkpoint that begins within a measurement counts for it; the order of the tests changes from round to round, so that it is not always the same one. Each figure
is the median of the rounds; a ratio is that of the medians. Ratios to another build are taken in each round, because the machine changes from round to round. CPU is user and system time of the serving process alone, for 100,000 operations. Prints a table in
Markdown. `--into docs/benchmarks.md` also writes it there, in the place of the table before, with the commit and the date.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from causal import free_ports
from page import Place, version

ROOT = pathlib.Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")
PROTOCOLS = ["eventual", "causalspartanx", "gentlerain", "cops", "quorum", "abd", "dacian", "nukv"]
KEYS = 100_000
FIELDS = 10
VALUE, PART = "v" * 128, "v" * 13
KEY, EXPIRING, HASH, NUMBER = "key:__rand_int__", "expiring:__rand_int__", "hash:__rand_int__", "number:__rand_int__"
# By name: the command, and which other one it is compared with.
TESTS = {
    "SET": (["SET", KEY, VALUE], None),
    "SET EX": (["SET", EXPIRING, VALUE, "EX", "3600"], "SET"),
    "INCR": (["INCR", NUMBER], "SET"),
    "HSET": (["HSET", HASH, "field:3", PART], "SET"),
    "GET": (["GET", KEY], None),
    "HGET": (["HGET", HASH, "field:3"], "GET"),
}


def command(*arguments):
    parts = [argument.encode() for argument in arguments]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def until_written(connection, name):
    """Returns when each partition takes writes."""
    deadline, answers = time.monotonic() + 60, connection.makefile("rb")
    for number in range(64):
        answer = b""
        while answer[:1] != b"+":
            if time.monotonic() > deadline:
                raise SystemExit(f"{name}: a SET is answered with {answer!r}")
            connection.sendall(command("SET", f"key:{number:012}", VALUE))
            answer = answers.readline()


class Server:
    """Ends with `stop`, also if it is paused."""

    # Arguments for redis-benchmark, and the certificate of whom the client trusts, if the port takes TLS.
    arguments = ()
    authority = None

    def signal(self, number):
        for process in self.processes:
            process.send_signal(number)

    def pause(self):
        self.signal(signal.SIGSTOP)

    def go_on(self):
        self.signal(signal.SIGCONT)

    def stop(self):
        for number in (signal.SIGTERM, signal.SIGCONT):
            self.signal(number)
        for process in self.processes:
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.processes[0].pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        if not self.authority:
            return connection
        return ssl.create_default_context(cafile=self.authority).wrap_socket(connection, server_hostname="127.0.0.1")

    def wait(self):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                with self.connect() as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(7) == b"+PONG\r\n":
                        return
            except OSError:
                pass
            time.sleep(0.02)
        self.stop()
        raise SystemExit(f"nothing answers on port {self.port}")

    def until_written(self):
        """Returns when writes are taken."""

    def fill(self, tests):
        """Writes every key that these tests name."""
        self.until_written()
        fields = [part for field in range(FIELDS) for part in (f"field:{field}", PART)]
        with self.connect() as connection:
            answers = connection.makefile("rb", buffering=1 << 20)
            for first in range(0, KEYS, 500):
                batch = []
                for number in (f"{number:012}" for number in range(first, first + 500)):
                    batch.append(command("SET", f"key:{number}", VALUE))
                    if "SET EX" in tests:
                        batch.append(command("SET", f"expiring:{number}", VALUE, "EX", "3600"))
                    if "INCR" in tests:
                        batch.append(command("INCR", f"number:{number}"))
                    if {"HSET", "HGET"} & set(tests):
                        batch.append(command("HSET", f"hash:{number}", *fields))
                connection.sendall(b"".join(batch))
                for _ in batch:
                    answer = answers.readline()
                    if answer[:1] not in (b"+", b":"):
                        raise SystemExit(f"{self.name} answers {answer!r}")

    def settle(self):
        """Returns when nothing is under way any more that earlier writes have brought about."""

    def measure(self, test, pipeline, requests):
        """Operations a second, and seconds of CPU for 100,000."""
        self.settle()
        before = self.cpu_seconds()
        arguments = ["redis-benchmark", "-p", str(self.port), "-n", str(requests), "-r", str(KEYS), "-c", "50", "-P", str(pipeline), "--csv",
                     *self.arguments, *TESTS[test][0]]
        output = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
        rate = float(output.strip().splitlines()[-1].split('","')[1].strip('"'))
        return rate, (self.cpu_seconds() - before) / requests * 100_000


class Redis(Server):
    name = "Redis"
    # Arguments for a server whose port takes TLS alone.
    tls = ()

    def __init__(self, fsync):
        self.directory = tempfile.mkdtemp(prefix="bench-redis-")
        self.port = free_ports(1)[0]
        ports = ["--port", "0", "--tls-port", str(self.port), *self.tls] if self.tls else ["--port", str(self.port)]
        arguments = ["redis-server", *ports, "--dir", self.directory, "--save", "", "--appendonly", "yes", "--appendfsync", fsync]
        self.processes = [subprocess.Popen(arguments, stdout=subprocess.DEVNULL)]
        self.wait()


class Turnbuckle(Server):
    """Three sites with one keyspace. With `tls`, all connections are protected, by certificates that an authority of this run has signed."""

    def __init__(self, name, binary, durability, tls=False, protocol="causalspartanx"):
        self.name, self.directory, self.processes = name, tempfile.mkdtemp(prefix="bench-redis-"), []
        ports = iter(free_ports(9))
        nodes = {node: [next(ports) for _ in range(3)] for node in ("a1", "b1", "c1")}
        lines = ['cluster = "bench"', f'secret = "{os.urandom(16).hex()}"']
        if tls:
            lines.append('[tls]\ncertificate = "tls/{node}.crt"\nkey = "tls/{node}.key"\nauthority = "tls/authority.crt"')
        lines += [f'[[site]]\nname = "{node[0]}"' for node in nodes]
        for node, (resp, peer, admin) in nodes.items():
            lines.append(f'[[node]]\nname = "{node}"\nsite = "{node[0]}"\nresp = "127.0.0.1:{resp}"\npeer = "127.0.0.1:{peer}"\nadmin = "127.0.0.1:{admin}"\ndata = "{node}"')
        lines.append(f'[[keyspace]]\nname = "measured"\nprotocol = "{protocol}"\npartitions = 2\ndurability = "{durability}"')
        config = pathlib.Path(self.directory, "cluster.toml")
        config.write_text("\n\n".join(lines))
        if tls:
            folder = pathlib.Path(self.directory, "tls")
            subprocess.run([binary, "certificates", "--config", config, "--into", folder], check=True, stdout=subprocess.DEVNULL)
            self.authority = str(folder / "authority.crt")
            self.arguments = ["--tls", "--cacert", self.authority]
        environment = {**os.environ, "TURNBUCKLE_LOG": "warn"}
        for node in nodes:
            start = [binary, "start", "--config", config, "--node", node]
            self.processes.append(subprocess.Popen(start, stdout=subprocess.DEVNULL, env=environment))
        self.port, self.admins = nodes["a1"][0], [admin for *_, admin in nodes.values()]
        self.wait()

    def until_written(self):
        """Returns when each partition takes writes: it may have to elect a leader, or to ask the other sites what they have, also after a pause."""
        with self.connect() as connection:
            until_written(connection, self.name)

    def settle(self):
        """All sites share the cores, so a checkpoint of any of them counts."""
        self.until_written()
        scheme, trust = ("https", ssl.create_default_context(cafile=self.authority)) if self.authority else ("http", None)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            pages = [urllib.request.urlopen(f"{scheme}://127.0.0.1:{admin}/metrics", timeout=10, context=trust).read() for admin in self.admins]
            if not any(float(running) for page in pages for running in re.findall(rb"^turnbuckle_checkpoint_running\S* (\S+)$", page, re.M)):
                return
            time.sleep(0.05)
        raise SystemExit(f"{self.name}: after a minute, a checkpoint still runs")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=100_000, help="per measurement, without pipelining; 4 x with it")
    parser.add_argument("--durability", default="interval(10ms)")
    parser.add_argument("--redis-fsync", default="everysec")
    parser.add_argument("--tests", nargs="+", choices=TESTS, default=list(TESTS), metavar="TEST", help=f"of {', '.join(TESTS)}")
    parser.add_argument("--pipelines", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--binary", default=str(ROOT / "target/release/turnbuckle"))
    parser.add_argument("--before", metavar="BINARY", help="another build, measured in the same run")
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, metavar="PROTOCOL", help=f"of {', '.join(PROTOCOLS)}; default: causalspartanx alone")
    parser.add_argument("--run", metavar="NUMBER", help="of several runs with the same options: the page has a table for each")
    parser.add_argument("--into", type=pathlib.Path, help="the page that has the table of this command line")
    options = parser.parse_args()

    place = options.into and Place(options.into, "benches/redis.py", sys.argv[1:])
    servers = []
    results = {}
    try:
        servers.append(Redis(options.redis_fsync))
        for protocol in options.protocols or []:
            servers.append(Turnbuckle(protocol, options.binary, options.durability, protocol=protocol))
        if not options.protocols:
            servers.append(Turnbuckle("Turnbuckle", options.binary, options.durability))
        if options.before:
            servers.append(Turnbuckle("before", options.before, options.durability))
        for server in servers:
            server.fill(options.tests)
            server.measure("SET", 16, options.requests)
            server.pause()
        for number in range(options.rounds):
            # The order changes, because a machine that has just worked is slower.
            turns = servers if number % 2 == 0 else servers[::-1]
            # And so does the order of the tests: a checkpoint comes after so many writes, and would come during the same test in each round.
            begin = number % len(options.tests)
            for pipeline in options.pipelines:
                for test in options.tests[begin:] + options.tests[:begin]:
                    for server in turns:
                        server.go_on()
                        found = server.measure(test, pipeline, options.requests * (4 if pipeline > 1 else 1))
                        server.pause()
                        results.setdefault((test, pipeline, server.name), []).append(found)
    finally:
        for server in servers:
            server.stop()

    def median(test, pipeline, name, index):
        return statistics.median(run[index] for run in results[test, pipeline, name])

    def rates(test, pipeline, name):
        found = [run[0] for run in results[test, pipeline, name]]
        return f"{statistics.median(found):,.0f} ({min(found):,.0f}-{max(found):,.0f})"

    def by_round(test, pipeline, index):
        rounds = zip(results[test, pipeline, "Turnbuckle"], results[test, pipeline, "before"])
        found = [run[index] / max(before[index], 1e-9) for run, before in rounds]
        return f"{statistics.median(found):.2f} ({min(found):.2f}-{max(found):.2f})"

    names = [server.name for server in servers[1:]]
    before = f"before: {version(options.before)}; " if options.before else ""
    lines = [f"Turnbuckle, {version(options.binary)}, {before}measured on {time.strftime('%Y-%m-%d, %H:%M')}, `{options.durability}`; Redis `appendfsync {options.redis_fsync}`; {options.rounds} rounds of {options.requests:,} requests, medians (least-greatest), {os.cpu_count()} cores:", ""]
    if options.protocols:
        lines += ["| | keyspace | op/s | to Redis | CPU, to Redis |", "|---|---|---:|---:|---:|"]
        for pipeline in options.pipelines:
            for test in options.tests:
                of_redis = [median(test, pipeline, "Redis", index) for index in (0, 1)]
                for server in servers:
                    rate, cpu = (median(test, pipeline, server.name, index) / max(of_redis[index], 1e-9) for index in (0, 1))
                    name = "Redis" if server.name == "Redis" else f"`{server.name}`"
                    lines.append(f"| {test}{f' -P {pipeline}' if pipeline > 1 else ''} | {name} | {rates(test, pipeline, server.name)} | {rate:.2f} | {cpu:.2f} |")
        return put(lines, place)
    columns = ["", "Redis op/s", *[f"{name} op/s" for name in names], *[f"{name} to Redis" for name in names], *[f"CPU, {name} to Redis" for name in names],
               *(["op/s, Turnbuckle to before", "CPU, Turnbuckle to before"] if options.before else []), "to SET or GET: Redis", *names]
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for pipeline in options.pipelines:
        for test in options.tests:
            rate = {server.name: median(test, pipeline, server.name, 0) for server in servers}
            cpu = {server.name: median(test, pipeline, server.name, 1) for server in servers}
            other = TESTS[test][1]
            cells = [test + (f" -P {pipeline}" if pipeline > 1 else ""), *[rates(test, pipeline, server.name) for server in servers],
                     *[f"{rate[name] / rate['Redis']:.2f}" for name in names], *[f"{cpu[name] / max(cpu['Redis'], 1e-9):.2f}" for name in names]]
            if options.before:
                cells += [by_round(test, pipeline, index) for index in (0, 1)]
            for server in servers:
                compared = other in options.tests
                cells.append(f"{rate[server.name] / median(other, pipeline, server.name, 0):.2f}" if compared else "")
            lines.append(f"| {' | '.join(cells)} |")
    put(lines, place)


def put(lines, place):
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if place:
        place.put(text)


if __name__ == "__main__":
    main()
