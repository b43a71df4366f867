#!/usr/bin/env python3
"""A consensus keyspace beside etcd: `make bench-etcd`, which builds etcd and its load from Go modules (benches/etcd).

Three replicas of each on this machine, on the same disk, with every write synced. 64 clients, spread over the replicas, read and write 1,000 keys with 128-byte values: YCSB's workload A (half reads) and B
(95 % reads), Zipf. One partition. Both are measured in turn, several times. Prints tables in Markdown: medians, and quartiles in parentheses.

The load runs on the same cores as the servers, and etcd's needs more of them than Turnbuckle's. So CPU time, which is that of the servers alone, compares them better than operations per second.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import tempfile
import time

from causal import ROOT, SITES, Cluster, cpu_seconds, free_ports, progress, quartiles, row, table

LOADS = {"A": 50, "B": 95}
# Reads at these levels; writes are linearizable.
LEVELS = {"linearizable": "linearizable", "serializable / eventual": "eventual"}


class Etcd:
    def __init__(self, binary):
        self.binary = binary

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="bench-etcd-")
        ports = free_ports(6)
        self.clients, peers = ports[:3], ports[3:]
        everyone = ",".join(f"{site}=http://127.0.0.1:{port}" for site, port in zip(SITES, peers))
        self.processes = []
        for site, client, peer in zip(SITES, self.clients, peers):
            urls = (f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}")
            self.processes.append(subprocess.Popen(
                [self.binary, "--name", site, "--data-dir", pathlib.Path(self.directory, site), "--listen-client-urls", urls[0], "--advertise-client-urls", urls[0],
                 "--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1], "--initial-cluster", everyone, "--initial-cluster-state", "new",
                 "--log-level", "panic"], stdout=subprocess.DEVNULL))
        time.sleep(3)
        if any(process.poll() is not None for process in self.processes):
            self.__exit__()
            raise SystemExit("an etcd did not start: another program took its port, or its messages are above")
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(timeout=30)
        shutil.rmtree(self.directory, ignore_errors=True)

    def cpu_seconds(self):
        return sum(cpu_seconds(process.pid) for process in self.processes)


def measured(cluster, command):
    """Of what a load prints: latencies are in microseconds."""
    before = cluster.cpu_seconds()
    found = json.loads(subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True).stdout)
    found["cpu"] = (cluster.cpu_seconds() - before) / found["operations"] * 1e5
    return found


def etcd(cluster, options, load, level):
    endpoints = ",".join(f"127.0.0.1:{port}" for port in cluster.clients)
    return measured(cluster, [options.etcd / "load", f"--endpoints={endpoints}", f"--reads={LOADS[load]}", f"--for={options.seconds}s",
                              f"--clients={options.clients}", f"--serializable={str(level == 'eventual').lower()}"])


def turnbuckle(cluster, options, load, level):
    targets = ",".join(f"127.0.0.1:{cluster.resp[site + '1']}" for site in SITES)
    return measured(cluster, [options.binary, "bench", "--target", targets, "--keyspace", "consensus", "--workload", load.lower(), "--clients", options.clients,
                              "--keys", 1000, "--value-size", 128, "--read", level, "--for", f"{options.seconds}s", "--load", "--json"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "target/release/turnbuckle")
    parser.add_argument("--etcd", type=pathlib.Path, default=ROOT / "target/etcd", help="the directory of etcd's server and load")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--clients", type=int, default=64)
    options = parser.parse_args()
    with Etcd(options.etcd / "server") as theirs, \
            Cluster(options.binary, ["consensus"], durability="fsync", protocols={"consensus": ("dacian", "")}, partitions=1) as ours:
        table("workload, reads", "", "operations/s", "ratio", "p99 of a read, ms", "of a write", "CPU s per 100,000", "ratio", "failed")
        for load in LOADS:
            for level, name in LEVELS.items():
                found = {"etcd": [], "turnbuckle": []}
                for run in range(options.runs):
                    progress(f"{load}, {level}: run {run + 1}")
                    found["etcd"].append(etcd(theirs, options, load, name))
                    found["turnbuckle"].append(turnbuckle(ours, options, load, name))
                for server, runs in found.items():
                    ratio = lambda what: quartiles([mine[what] / other[what] for mine, other in zip(runs, found["etcd"])])
                    p99 = [quartiles((run[kind]["p99"] / 1e3 for run in runs)) for kind in ("read", "write")]
                    throughput = quartiles((run["throughput"] for run in runs), "{:,.0f}")
                    failed = sum(run["errors"] if server == "etcd" else sum(run["errors"].values()) for run in runs)
                    row(f"{load}, {level}", server, throughput, ratio("throughput"), *p99, quartiles(run["cpu"] for run in runs), ratio("cpu"), failed)


if __name__ == "__main__":
    main()
