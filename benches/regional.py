#!/usr/bin/env python3
"""What clients see of a regional keyspace: `make bench-regional`.

Three sites on this machine, with three nodes each, a process for each node, everything on its cores. Prints tables in Markdown.

kills       Every five seconds one node of each site is killed (`kill -9`) at the same time, the first of each, then the second, and so on, and started again half a second later. `fsync`, one partition, three replicas of it at each site. 18 clients,
            two at each node, write and read 1,000 keys at `session`. They take their sessions from node to node and from site to site, and try again for 30 s (`bench --retry`). *Failed* are operations that never succeeded. The trace is judged by
            `turnbuckle check --require session`. At the end, every node is asked for every key: *lost* are keys of which a node shows less than the newest version that was acknowledged, and *different* are keys of which two nodes show different versions.
guarantees  Clients that stay at their nodes, at `session` beside `eventual`, in turn in the same cluster: windows of --window seconds. The figures are medians of all windows; a ratio or difference is the median of those of neighbouring windows.
moving      The same with clients that take their sessions from node to node (`bench --session roam`), over the WAN delays of the demo: writes at `session` beside writes at `eventual`.
wan         Over the WAN delays of the demo: writes of a regional keyspace beside linearizable writes of a consensus keyspace, whose replicas are one at each site. Clients at site a.
"""
import argparse
import collections
import json
import pathlib
import signal
import statistics
import subprocess
import time

from causal import ROOT, SITES, Cluster, progress, row, table

EVERY = 5
WAN = {("a", "b"): 40, ("a", "c"): 75, ("b", "c"): 60}


def start(options, keyspaces=("regional",), durability="fsync", partitions=1):
    protocols = {"regional": ("nukv", ""), "consensus": ("dacian", "")}
    return Cluster(options.binary, list(keyspaces), nodes_per_site=3, durability=durability, partitions=partitions,
                   protocols=protocols, members={"regional": 3})


def wait_for_writes(cluster):
    """Until every node has carried out a write in every keyspace."""
    for keyspace in cluster.keyspaces:
        for name in cluster.names:
            client = cluster.client(name, keyspace)
            deadline = time.monotonic() + 30
            while client.call("SET", "ready", name) != b"OK":
                if time.monotonic() > deadline:
                    raise SystemExit(f"{name} takes no writes in {keyspace}")
                time.sleep(0.1)


def bench(options, cluster, names, *more):
    targets = ",".join(f"127.0.0.1:{cluster.resp[name]}" for name in names)
    return [options.binary, "bench", "--target", targets, "--keys", "1000", "--json", *map(str, more)]


def measure(*arguments):
    return json.loads(subprocess.run(bench(*arguments), stdout=subprocess.PIPE, check=True).stdout)


# ---- nodes are killed ------------------------------------------------------------------------------------------------------


def kills(options):
    with start(options) as cluster:
        wait_for_writes(cluster)
        trace = pathlib.Path(cluster.directory, "trace.jsonl")
        clients = subprocess.Popen(
            bench(options, cluster, cluster.names, "--keyspace", "regional", "--workload", "a", "--clients", 18, "--load", "--session", "roam",
                  "--rate", options.rate, "--retry", "30s", "--trace", trace, "--for", f"{options.seconds}s"), stdout=subprocess.PIPE)
        time.sleep(2)
        number, began = 0, time.time()
        while time.time() < began + options.seconds - EVERY:
            progress(f"kills: {number} so far")
            victims = [f"{site}{number % 3 + 1}" for site in SITES]
            for victim in victims:
                cluster.end(victim, signal.SIGKILL)
            time.sleep(0.5)
            for victim in victims:
                cluster.begin(victim)
            number += 1
            time.sleep(max(0, began + EVERY * number - time.time()))
        found = json.loads(clients.communicate()[0])
        check = subprocess.run([options.binary, "check", trace, "--require", "session"], stdout=None if options.verbose else subprocess.DEVNULL)
        lost, different = compare(cluster, trace)
    failed, again = (", ".join(f"{count} {why}" for why, count in found[kind].items() if count) or "0" for kind in ("errors", "retries"))
    table("", "kills", "operations", "failed", "tried again", "p99 of a read, ms", "of a write", "check", "lost", "different")
    p99 = [f"{found[kind]['p99'] / 1000:.1f}" for kind in ("read", "write")]
    row("kills", 3 * number, f"{found['operations']:,}", failed, again, *p99, "session" if check.returncode == 0 else f"exit code {check.returncode}", lost, different)


def place(version):
    """`microseconds.counter@site`, so that it can be compared."""
    at, site = version.split("@")
    wall, counter = at.split(".")
    return int(wall), int(counter), site


def compare(cluster, trace):
    """The keys of which a node shows less than was acknowledged, and those of which two nodes show different versions."""
    newest = {}
    for line in open(trace):
        record = json.loads(line)
        if record["op"] == "write" and record["status"] == "ok":
            newest[record["key"]] = max(place(record["version"]), newest.get(record["key"], (0, 0, "")))
    time.sleep(5)  # Every site has everything long before.
    shown = collections.defaultdict(dict)
    for name in cluster.names:
        client = cluster.client(name, "regional")
        for key in newest:
            client.call("GET", key, "AT", "eventual")
            receipt = client.call("RECEIPT")
            fields = dict(zip(receipt[0::2], receipt[1::2]))
            shown[key][name] = place(fields[b"version"].decode())
    lost = sum(any(there < newest[key] for there in at.values()) for key, at in shown.items())
    different = sum(len(set(at.values())) > 1 for at in shown.values())
    return lost, different


# ---- speed -----------------------------------------------------------------------------------------------------------------


def in_turn(options, kinds, run):
    """The windows of each kind, in turn."""
    windows = {kind: [] for kind in kinds}
    for number in range(options.runs):
        for kind in kinds:
            progress(f"{kind}: {number + 1} of {options.runs}")
            windows[kind].append(run(kind))
    return windows


def show(windows, base):
    table("", "operations/s", "ratio", "p50 of a read, ms", "difference", "p50 of a write, ms", "difference", "p99 of a read", "of a write")
    median = statistics.median
    for kind, found in windows.items():
        pairs = list(zip(found, windows[base]))
        p50 = {what: median(one[what]["p50"] for one in found) / 1000 for what in ("read", "write")}
        more = {what: median(one[what]["p50"] - other[what]["p50"] for one, other in pairs) / 1000 for what in ("read", "write")}
        ratio = median(one["throughput"] / other["throughput"] for one, other in pairs)
        p99 = [median(one[what]["p99"] for one in found) / 1000 for what in ("read", "write")]
        row(kind, f"{median(one['throughput'] for one in found):,.0f}", f"{ratio:.3f}", f"{p50['read']:.2f}", f"{more['read']:+.2f}",
            f"{p50['write']:.2f}", f"{more['write']:+.2f}", *(f"{one:.1f}" for one in p99))


def guarantees(options):
    with start(options, partitions=2) as cluster:
        wait_for_writes(cluster)
        common = ("--keyspace", "regional", "--workload", "a", "--clients", 18, "--for", f"{options.window}s")
        measure(options, cluster, cluster.names, *common, "--load")
        run = lambda level: measure(options, cluster, cluster.names, *common, "--read", level, "--write", level)
        show(in_turn(options, ["eventual", "session"], run), "eventual")


def moving(options):
    with start(options, partitions=2) as cluster:
        cluster.set_wan(WAN)
        wait_for_writes(cluster)
        common = ("--keyspace", "regional", "--workload", "a", "--clients", 18, "--session", "roam", "--for", f"{options.window}s")
        measure(options, cluster, cluster.names, *common, "--load")
        run = lambda level: measure(options, cluster, cluster.names, *common, "--read", "eventual", "--write", level)
        show(in_turn(options, ["eventual", "session"], run), "eventual")


def wan(options):
    with start(options, ("regional", "consensus")) as cluster:
        cluster.set_wan(WAN)
        wait_for_writes(cluster)
        names = [name for name in cluster.names if name[0] == "a"]
        common = ("--workload", "a", "--clients", 18, "--for", f"{options.window}s")
        for keyspace in cluster.keyspaces:
            measure(options, cluster, names, "--keyspace", keyspace, *common, "--load")
        run = lambda keyspace: measure(options, cluster, names, "--keyspace", keyspace, *common)
        show(in_turn(options, ["consensus", "regional"], run), "consensus")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "target/release/turnbuckle")
    parser.add_argument("--seconds", type=int, default=300, help="of kills")
    parser.add_argument("--rate", type=int, default=1000, help="operations a second, of kills")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--verbose", action="store_true")
    parts = {"kills": kills, "guarantees": guarantees, "moving": moving, "wan": wan}
    parser.add_argument("--only", choices=parts)
    options = parser.parse_args()
    for name, part in parts.items():
        if options.only in (None, name):
            part(options)
            print()


if __name__ == "__main__":
    main()
