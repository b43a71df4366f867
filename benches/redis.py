#!/usr/bin/env python3
"""Turnbuckle beside Redis, in one run: `make bench-redis`.

redis-benchmark, 50 connections, 128-byte values, 100,000 random keys, GET and SET, without and with -P 16, in turn against
- redis-server, appendonly yes, appendfsync everysec;
- site a of a three-site cluster on the same machine that replicates everything to b and c, each site a process of its own.

Everything shares the machine's cores, so the two other sites take from what the first one could use. Each figure is the
median of the rounds; the ratio is that of the medians. CPU is user and system time of the serving process alone, for 100,000
operations. Prints a table in Markdown.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024


class Redis:
    name = "redis"

    def __init__(self, fsync="everysec"):
        self.directory = tempfile.mkdtemp(prefix="bench-redis-")
        self.port = free_port()
        arguments = ["redis-server", "--port", str(self.port), "--dir", self.directory, "--save", "",
                     "--appendonly", "yes", "--appendfsync", fsync]
        self.process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
        self.pid = self.process.pid
        wait_for(self.port)

    def stop(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


class Turnbuckle:
    name = "turnbuckle"

    def __init__(self, binary, durability):
        arguments = [binary, "demo", "--processes", "--json", "--wan", "off", "--durability", durability]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        ready = json.loads(self.process.stdout.readline())
        site = ready["sites"][0]
        self.port, self.pid = int(site["resp"].rsplit(":", 1)[1]), site["pid"]
        wait_for(self.port)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def wait_for(port):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(7) == b"+PONG\r\n":
                    return
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"nothing answers on port {port}")


def measure(server, test, pipeline, requests):
    before = cpu_seconds(server.pid)
    arguments = ["redis-benchmark", "-p", str(server.port), "-t", test, "-n", str(requests), "-r", "100000",
                 "-d", "128", "-c", "50", "-P", str(pipeline), "--csv"]
    output = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    rate = float(output.strip().splitlines()[-1].split(",")[1].strip('"'))
    return rate, (cpu_seconds(server.pid) - before) / requests * 100_000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=200_000, help="per measurement, without pipelining; 4 x with it")
    parser.add_argument("--durability", default="interval(10ms)")
    parser.add_argument("--redis-fsync", default="everysec")
    parser.add_argument("--binary", default=str(ROOT / "target/release/turnbuckle"))
    options = parser.parse_args()

    servers = [Redis(options.redis_fsync), Turnbuckle(options.binary, options.durability)]
    cases = [(test, pipeline) for pipeline in (1, 16) for test in ("set", "get")]
    results = {}
    try:
        for server in servers:  # Fill, and warm up.
            measure(server, "set", 16, options.requests)
        for _ in range(options.rounds):
            for test, pipeline in cases:
                requests = options.requests * (4 if pipeline > 1 else 1)
                for server in servers:
                    results.setdefault((test, pipeline, server.name), []).append(
                        measure(server, test, pipeline, requests))
    finally:
        for server in servers:
            server.stop()

    print(f"Turnbuckle `{options.durability}`, Redis `appendfsync {options.redis_fsync}`; "
          f"{options.rounds} rounds, medians (least-greatest), {os.cpu_count()} cores\n")
    print("| | Redis op/s | Turnbuckle op/s | ratio | Redis CPU s/100k | Turnbuckle CPU s/100k | ratio |")
    print("|---|---|---|---|---|---|---|")
    for test, pipeline in cases:
        def figures(name, index):
            values = [run[index] for run in results[test, pipeline, name]]
            return statistics.median(values), min(values), max(values)
        (redis, *redis_range), (ours, *our_range) = figures("redis", 0), figures("turnbuckle", 0)
        (redis_cpu, *_), (our_cpu, *_) = figures("redis", 1), figures("turnbuckle", 1)
        label = test.upper() + (f" -P {pipeline}" if pipeline > 1 else "")
        print(f"| {label} | {redis:,.0f} ({redis_range[0]:,.0f}-{redis_range[1]:,.0f}) "
              f"| {ours:,.0f} ({our_range[0]:,.0f}-{our_range[1]:,.0f}) | {ours / redis:.2f} "
              f"| {redis_cpu:.2f} | {our_cpu:.2f} | {our_cpu / max(redis_cpu, 1e-9):.2f} |")


if __name__ == "__main__":
    main()
