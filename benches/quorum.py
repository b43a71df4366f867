#!/usr/bin/env python3
"""What each level of a quorum keyspace costs, side by side and in one run: `make bench-quorum`.

Three sites on this machine, a process for each node, everything on its cores. 80 % reads, 1,000 zipfian keys, values of 128 bytes. Windows of two
seconds in turn, so that what the machine does besides hits all of them alike. A figure is the median of the rounds, with the quartiles.
Prints tables in Markdown.

levels      64 clients at all three sites, without WAN delays: operations a second, their ratio to `eventual` in the same round, times, and CPU of all
            nodes together for 100,000 operations.
one         Reads and writes at `one` beside `eventual`, with twice as many rounds and no other keyspace: also the ratio of their CPU.
exchange    Reads at bounded(1s), with the exchange at several intervals, and reads at `one` beside them.
wan         One client at each site, 50, 100 and 150 ms between sites: the median time of a read. `status_age` is 2 ms below the one-way delay. The bound
            of bounded(t) is above the round trip and the exchange.
"""
import argparse
import json
import pathlib
import random
import subprocess
import tempfile
import time

from causal import ROOT, SITES, Cluster, progress, quartiles, row, table

WORKLOAD = 'read_proportion = 0.8\nupdate_proportion = 0.2\nrequest_distribution = "zipfian"\n'


class Bench:
    def __init__(self, options, cluster):
        self.options, self.cluster = options, cluster
        self.file = tempfile.NamedTemporaryFile("w", suffix=".toml")
        self.file.write(WORKLOAD)
        self.file.flush()
        self.targets = ",".join(f"127.0.0.1:{cluster.resp[site + '1']}" for site in SITES)

    def run(self, keyspace, levels=(), clients=64, seconds=2, load=False):
        before = self.cluster.cpu_seconds()
        done = subprocess.run(
            [self.options.binary, "bench", "--target", self.targets, "--workload", self.file.name, "--keyspace", keyspace,
             "--keys", "1000", "--value-size", "128", "--clients", str(clients), "--for", f"{seconds}s", "--json"]
            + (["--load"] if load else []) + list(levels), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if load else None)
        if load and done.returncode:
            return None
        done.check_returncode()
        found = json.loads(done.stdout)
        found["cpu"] = (self.cluster.cpu_seconds() - before) / max(found["operations"], 1) * 1e5
        found["failed"] = sum(found["errors"].values())
        return found


    def load(self):
        """A new replica serves once it has heard the others."""
        for keyspace in self.cluster.keyspaces:
            for _ in range(20):
                if self.run(keyspace, load=True, seconds=1):
                    break
                time.sleep(0.5)
            else:
                raise SystemExit(f"{keyspace} takes no writes")


def at(read, write):
    return ("--read", read, "--write", write)


def rounds(count, bench, kinds, **more):
    """For each kind its windows. The order is another one in each round: what a window leaves behind falls to another kind."""
    found = {name: [] for name in kinds}
    for number in range(count):
        order = list(kinds.items())
        random.Random(number).shuffle(order)
        for name, (keyspace, levels) in order:
            progress(f"round {number + 1} of {count}: {name}")
            found[name].append(bench.run(keyspace, levels, **more))
    return found


def times(runs, what):
    return " ".join(quartiles((run[what][quantile] / 1e3 for run in runs), "{:.2f}") for quantile in ("p50", "p95", "p99"))


def levels(options):
    kinds = {
        "`eventual`": ("eventual", ()),
        "`quorum`: `one` / `one`": ("quorum", at("one", "one")),
        "`quorum`: `quorum` / `quorum`": ("quorum", at("quorum", "quorum")),
        "`quorum`: `atomic` / `atomic`": ("quorum", at("atomic", "atomic")),
        "`quorum`: `bounded(1s)` / `quorum`": ("exchanging", at("bounded(1s)", "quorum")),
        "`quorum`: `sequential` / `quorum`": ("sequential", at("sequential", "quorum")),
        "`quorum-siblings`: `one` / `one`": ("siblings", at("one", "one")),
        "`quorum-siblings`: `quorum` / `quorum`": ("siblings", at("quorum", "quorum")),
        "`abd`": ("abd", ()),
    }
    # Replicas exchange their freshness for half a minute after the last read that wants it. So those reads have keyspaces of their own.
    protocols = {"siblings": ("quorum-siblings", ""), "exchanging": ("quorum", ""), "sequential": ("quorum", "")}
    with Cluster(options.binary, ["eventual", "quorum", "abd", *protocols], protocols=protocols) as cluster:
        bench = Bench(options, cluster)
        bench.load()
        found = rounds(options.rounds, bench, kinds)
    print("\n### Levels\n")
    table("reads / writes at", "op/s", "to `eventual`", "read p50, p95, p99 ms", "write p50, p95, p99 ms", "CPU s for 100,000", "errors")
    for name, runs in found.items():
        ratio = (run["throughput"] / other["throughput"] for run, other in zip(runs, found["`eventual`"]))
        row(name, quartiles((run["throughput"] for run in runs), "{:,.0f}"), quartiles(ratio), times(runs, "read"), times(runs, "write"),
            quartiles((run["cpu"] for run in runs)), sum(run["failed"] for run in runs))


def one(options):
    kinds = {
        "`eventual`": ("eventual", ()),
        "`quorum`": ("quorum", at("one", "one")),
        "`quorum-siblings`": ("siblings", at("one", "one")),
    }
    protocols = {"siblings": ("quorum-siblings", "")}
    with Cluster(options.binary, ["eventual", "quorum", *protocols], protocols=protocols) as cluster:
        bench = Bench(options, cluster)
        bench.load()
        found = rounds(2 * options.rounds, bench, kinds)
    print("\n### `one`\n")
    table("reads and writes at `one`", "op/s", "to `eventual`", "CPU s for 100,000", "to `eventual`")
    ratios = lambda runs, what: quartiles(run[what] / other[what] for run, other in zip(runs, found["`eventual`"]))
    for name, runs in found.items():
        row(name, quartiles((run["throughput"] for run in runs), "{:,.0f}"), ratios(runs, "throughput"), quartiles((run["cpu"] for run in runs)), ratios(runs, "cpu"))


def exchange(options):
    every = [10, 50, 100]
    names = {f"quorum{ms}": ("quorum", f'exchange = "{ms}ms"') for ms in every}
    kinds = {f"`bounded(1s)`, `exchange` {ms} ms": (f"quorum{ms}", at("bounded(1s)", "one")) for ms in every}
    kinds = {"`one`": ("quorum10", at("one", "one")), **kinds}
    with Cluster(options.binary, list(names), protocols=names) as cluster:
        bench = Bench(options, cluster)
        bench.load()
        found = rounds(options.rounds, bench, kinds)
    print("\n### The exchange\n")
    table("reads", "op/s", "to `one`")
    for name, runs in found.items():
        ratio = (run["throughput"] / other["throughput"] for run, other in zip(runs, found["`one`"]))
        row(name, quartiles((run["throughput"] for run in runs), "{:,.0f}"), quartiles(ratio))


def wan(options):
    print("\n### Over a WAN\n")
    table("one-way ms", "`one`", "`bounded(t)`", "`per-key-sequential`", "the same, `status_age` 0", "`sequential`", "`quorum`")
    for delay in (50, 100, 150):
        aged = {"aged": ("quorum", f'status_age = "{delay - 2}ms"')}
        kinds = {
            "one": ("quorum", at("one", "quorum")),
            "bounded": ("quorum", at(f"bounded({2 * delay + 150}ms)", "quorum")),
            "per-key": ("aged", at("per-key-sequential", "quorum")),
            "per-key, age 0": ("quorum", at("per-key-sequential", "quorum")),
            "sequential": ("quorum", at("sequential", "quorum")),
            "quorum": ("quorum", at("quorum", "quorum")),
        }
        with Cluster(options.binary, ["quorum", "aged"], protocols=aged) as cluster:
            cluster.set_wan({("a", "b"): delay, ("a", "c"): delay, ("b", "c"): delay})
            bench = Bench(options, cluster)
            bench.load()
            found = rounds(options.rounds, bench, kinds, clients=3, seconds=4)
        row(delay, *(quartiles((run["read"]["p50"] / 1e3 for run in runs)) for runs in found.values()))


def main():
    parts = {"levels": levels, "one": one, "exchange": exchange, "wan": wan}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/turnbuckle")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=parts)
    options = parser.parse_args()
    for name, part in parts.items():
        if options.only in (None, name):
            part(options)


if __name__ == "__main__":
    main()
