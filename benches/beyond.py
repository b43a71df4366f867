#!/usr/bin/env python3
"""Keys that do not fit into memory: `make bench-beyond`.

Keys of 16 bytes are written once, by 16 clients in pipelines of 100, to site a of a three-site cluster on this machine, whose nodes may keep --limit MiB of versions in memory. What does not fit is on disk. Then redis-benchmark reads and
writes these keys at random with 50 connections, without and with pipelining; then the node of a is killed and started again, and then it is ended and started again: the time until it answers a GET. Everything
shares the machine's cores. Prints a table in Markdown. `--into docs/benchmarks.md` also writes it there, with the commit and the date.
"""
import argparse
import csv
import os
import pathlib
import signal
import subprocess
import sys
import time

from causal import Cluster
from deletes import disk_mib
from memory import at_rest, load, start
from page import Place, version
from redis import PROTOCOLS, ROOT, put, until_written


def ask(port, options, pipeline, *command):
    """Operations a second, and the median and p99 of their times in milliseconds."""
    arguments = ["redis-benchmark", "-p", str(port), "-n", str(options.requests), "-r", str(options.keys), "-c", "50", "-P", str(pipeline), "--csv", *command]
    output = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    row = next(row for row in csv.DictReader(output.splitlines()) if row)
    return float(row["rps"]), float(row["p50_latency_ms"]), float(row["p99_latency_ms"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--bytes", type=int, default=16, help="the size of a value")
    parser.add_argument("--limit", type=int, default=128, help="memory_limit_mb of each node")
    parser.add_argument("--requests", type=int, default=200_000, help="in each measurement of redis-benchmark")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="causalspartanx")
    parser.add_argument("--binary", default=str(ROOT / "target/release/turnbuckle"))
    parser.add_argument("--into", type=pathlib.Path, help="the page that has the table of this command line")
    options = parser.parse_args()

    place = options.into and Place(options.into, "benches/beyond.py", sys.argv[1:])
    value = "v" * options.bytes
    with Cluster(options.binary, [options.protocol], limits=f"memory_limit_mb = {options.limit}") as cluster:
        port, pids = cluster.resp["a1"], [process.pid for process in cluster.processes[:1]]
        with cluster.client("a1", options.protocol).socket as connection:
            until_written(connection, options.protocol)
        began = time.monotonic()
        load(port, options.protocol, options.keys, value)
        rate = options.keys / (time.monotonic() - began)
        resident = at_rest(pids)[0] / (1 << 20)
        disk = disk_mib(pathlib.Path(cluster.directory, "a1"))
        print(f"  .. written, {rate:,.0f} a second", file=sys.stderr, flush=True)
        found = {(name, pipeline): ask(port, options, pipeline, *command)
                 for name, command in (("GET", ["GET", "key:__rand_int__"]), ("SET", ["SET", "key:__rand_int__", value])) for pipeline in (1, 16)}
        in_the_end = at_rest(pids)[0] / (1 << 20)
        starts = [start(cluster, options.protocol, number, len(value)) for number in (signal.SIGKILL, signal.SIGTERM)]
    lines = [f"Turnbuckle, {version(options.binary)}, measured on {time.strftime('%Y-%m-%d')}; `{options.protocol}`, {options.keys:,} keys of 16 bytes, values of {options.bytes} bytes, "
             f"`memory_limit_mb = {options.limit}`; {options.requests:,} requests each; {os.cpu_count()} cores:", "",
             "| | op/s | p50 ms | p99 ms |", "|---|---:|---:|---:|", f"| written | {rate:,.0f} | | |"]
    for (name, pipeline), (each, p50, p99) in found.items():
        lines.append(f"| {name}{f' -P {pipeline}' if pipeline > 1 else ''} | {each:,.0f} | {p50:.2f} | {p99:.2f} |")
    lines += ["", f"Site a had {resident:.0f} MiB resident and {disk:.0f} MiB on disk when all was written, and {in_the_end:.0f} MiB resident in the end. It answered {starts[0]:.1f} s after `kill -9`, and {starts[1]:.1f} s after a clean end."]
    put(lines, place)


if __name__ == "__main__":
    main()
