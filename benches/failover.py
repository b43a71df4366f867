#!/usr/bin/env python3
"""What clients see of a consensus keyspace while its nodes are killed or restarted, and while its members change: `make bench-failover`.

Three sites on this machine, a process for each node, one partition, `fsync`. 24 clients, 8 at each site, write and read 1,000 keys at `linearizable`. They try again, at the
next site if their connection is lost, for 30 s (`bench --retry`). *Failed* are operations that never succeeded; *tried again* counts the tries that did not. The trace is judged by `turnbuckle check --require linearizable`. Prints tables in Markdown.

kills    Every five seconds the node that leads is killed (`kill -9`), and started again half a second later.
rolling  Every five seconds the next node is told to end (SIGTERM), and started again when it has.
members  Every five seconds an operator does one of these in turn: the replica at c is removed from the group, it is added again, the next node is made the leader.

An *unavailability* is the longest time in which no write of any client was acknowledged, among all times that include such an event.
"""
import argparse
import json
import pathlib
import signal
import subprocess
import time

from causal import ROOT, SITES, Cluster, progress, row, table

EVERY = 5


def leader(cluster):
    """The node that leads the partition, or None while no node does."""
    for name in cluster.names:
        try:
            for line in cluster.get(name, "/metrics").splitlines():
                if line.startswith("turnbuckle_raft_groups_led{") and not line.endswith(" 0"):
                    return name
        except OSError:
            pass  # It does not run.
    return None


def kill(cluster, number):
    for _ in range(100):
        name = leader(cluster)
        if name:
            break
        time.sleep(0.05)
    at = time.time_ns()
    cluster.end(name, signal.SIGKILL)
    time.sleep(0.5)
    cluster.begin(name)
    return at


def restart(cluster, number):
    name = cluster.names[number % len(cluster.names)]
    at = time.time_ns()
    cluster.end(name, signal.SIGTERM)
    cluster.begin(name)
    return at


def change(cluster, number):
    at = time.time_ns()
    everyone = ",".join(f"127.0.0.1:{cluster.admin[name]}" for name in cluster.names)
    leads = cluster.names[(number // 3 + 1) % len(cluster.names)]
    commands = [["member", "remove", "c", "--keyspace", "consensus", "--admin", everyone],
                ["member", "add", "c", "--keyspace", "consensus", "--admin", everyone],
                ["lead", "consensus", "--admin", f"127.0.0.1:{cluster.admin[leads]}"]]
    subprocess.run([cluster.binary, "cluster", *commands[number % 3]], check=True, stdout=subprocess.DEVNULL)
    return at


def run(options, what):
    election = 'election = "1s", heartbeat = "100ms"'
    with Cluster(options.binary, ["consensus"], durability="fsync", protocols={"consensus": ("dacian", election)}, partitions=1) as cluster:
        trace = pathlib.Path(cluster.directory, "trace.jsonl")
        targets = ",".join(f"127.0.0.1:{cluster.resp[site + '1']}" for site in SITES)
        for _ in range(50):
            if leader(cluster):
                break
            time.sleep(0.2)
        bench = subprocess.Popen(
            [options.binary, "bench", "--target", targets, "--keyspace", "consensus", "--workload", "a", "--clients", "24", "--keys", "1000", "--load",
             "--rate", str(options.rate), "--retry", "30s", "--trace", trace, "--for", f"{options.seconds}s", "--json"], stdout=subprocess.PIPE)
        time.sleep(2)
        events, began = [], time.time()
        while time.time() < began + options.seconds - EVERY:
            progress(f"{what.__name__}: {len(events)} so far")
            events.append(what(cluster, len(events)))
            time.sleep(max(0, began + EVERY * len(events) - time.time()))
        found = json.loads(bench.communicate()[0])
        check = subprocess.run([options.binary, "check", trace, "--require", "linearizable"], stdout=subprocess.DEVNULL)
        finished = []
        for line in open(trace):
            record = json.loads(line)
            if record["op"] == "write" and record["status"] == "ok":
                finished.append(record["finish_ns"])
    return found, events, check.returncode, gaps(sorted(finished), events)


def gaps(finished, events):
    """For each event, the longest time around it or after it, up to the next event, without an acknowledged write."""
    longest = []
    for number, at in enumerate(events):
        until = events[number + 1] if number + 1 < len(events) else at + EVERY * 10**9
        times = [at] + [finish for finish in finished if at < finish < until]
        longest.append(max((later - earlier for earlier, later in zip(times, times[1:])), default=until - at) / 1e6)
    return sorted(longest)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "target/release/turnbuckle")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--only", choices=["kills", "rolling", "members"])
    options = parser.parse_args()
    kinds = {"kills": kill, "rolling": restart, "members": change}
    table("", "events", "operations", "failed", "tried again", "no write for, ms: median", "95th", "max", "p99 of a read, ms", "of a write", "check")
    for name, what in kinds.items():
        if options.only in (None, name):
            found, events, code, longest = run(options, what)
            place = lambda part: f"{longest[min(len(longest) - 1, int(part * len(longest)))]:.0f}"
            failed, again = (", ".join(f"{count} {why}" for why, count in found[kind].items() if count) or "0" for kind in ("errors", "retries"))
            p99 = [f"{found[kind]['p99'] / 1000:.1f}" for kind in ("read", "write")]
            row(name, len(events), f"{found['operations']:,}", failed, again, place(0.5), place(0.95), place(1), *p99, "linearizable" if code == 0 else f"exit code {code}")


if __name__ == "__main__":
    main()
