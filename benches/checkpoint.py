#!/usr/bin/env python3
"""How long operations take while checkpoints run: `make bench-checkpoint`.

Three sites on this machine, a process for each node. At site a, --keys keys with values of 100 bytes are written again and again, in pipelines of 100, at a fixed rate. So the sites write a checkpoint whenever their logs have
grown by `checkpoint_log_mb`. Meanwhile a probe asks site a for other keys, at a fixed rate: half of its operations are SET, half are GET. Each operation counts from the moment at which it was to be sent. It is
one "while a checkpoint runs" if one of the three sites was writing a checkpoint then: they share the cores. Prints a table in Markdown. `--into docs/benchmarks.md` also writes it there, with the commit and the date.
"""
import argparse
import bisect
import multiprocessing
import os
import pathlib
import re
import sys
import time

from causal import Cluster
from deletes import Client, command
from expiry import Probe, quantiles
from page import Place, version
from redis import PROTOCOLS, ROOT

BATCH = 100
# How often the sites are asked whether they write a checkpoint.
LOOK_EVERY = 0.05


class Writer(multiprocessing.Process):
    def __init__(self, port, keyspace, options):
        super().__init__(daemon=True)
        self.port, self.keyspace, self.options = port, keyspace, options
        self.written = multiprocessing.Value("q", 0)

    def run(self):
        client, value, begun, number = Client(self.port, self.keyspace), "v" * 100, time.monotonic(), 0
        while True:
            time.sleep(max(0, begun + number / self.options.rate - time.monotonic()))
            client.call([command("SET", f"plain:{(number + each) % self.options.keys}", value) for each in range(BATCH)])
            number += BATCH
            self.written.value = number


def measure(options, protocol):
    limits = f"checkpoint_log_mb = {options.log}"
    with Cluster(options.binary, [protocol], limits=limits) as cluster:
        port = cluster.resp["a1"]
        writer, probe = Writer(port, protocol, options), Probe(port, protocol, options.probe)
        writer.start()
        # All keys are there before anything counts.
        while writer.written.value < options.keys:
            time.sleep(0.1)
        probe.start()
        probe.theirs.close()
        began, at_first, looks = time.monotonic(), writer.written.value, []
        while time.monotonic() < began + options.seconds:
            running = any(re.search(r"^turnbuckle_checkpoint_running\S* [^0]", cluster.get(name, "/metrics"), re.M) for name in cluster.names)
            looks.append((time.monotonic(), running))
            time.sleep(LOOK_EVERY)
        rate = (writer.written.value - at_first) / (time.monotonic() - began)
        took = probe.end()
        writer.terminate()
        writer.join()
    times = [at for at, _ in looks]
    parts = {False: [], True: []}
    for due, micros in took:
        # What lies between two looks counts with the later one.
        look = bisect.bisect_left(times, due)
        if look < len(looks):
            parts[looks[look][1]].append(micros)
    count = sum(1 for (_, before), (_, after) in zip(looks, looks[1:]) if after and not before)
    return rate, count, parts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=200_000, help=f"a multiple of {BATCH}")
    parser.add_argument("--rate", type=int, default=10_000, help="writes a second")
    parser.add_argument("--probe", type=int, default=1_000, help="operations of the probe a second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--log", type=int, default=16, help="checkpoint_log_mb: small, so that there are several checkpoints")
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=["eventual", "causalspartanx"], metavar="PROTOCOL", help=f"of {', '.join(PROTOCOLS)}")
    parser.add_argument("--binary", default=str(ROOT / "target/release/turnbuckle"))
    parser.add_argument("--into", type=pathlib.Path, help="the page that has the table of this command line")
    options = parser.parse_args()

    place = options.into and Place(options.into, "benches/checkpoint.py", sys.argv[1:])
    lines = [f"Turnbuckle, {version(options.binary)}, measured on {time.strftime('%Y-%m-%d')}; {options.rate:,} writes a second wanted, {options.keys:,} keys, the probe at {options.probe}/s for {options.seconds} s, "
             f"`checkpoint_log_mb = {options.log}`; {os.cpu_count()} cores:", "",
             "| keyspace | writes a second | checkpoints run | operations | p50 ms | p99 | p99.9 | the greatest | p99.9, to without |", "|---|---:|---|---:|---:|---:|---:|---:|---:|"]
    for protocol in options.protocols:
        rate, count, parts = measure(options, protocol)
        if not all(parts.values()):
            raise SystemExit(f"{protocol}: {len(parts[True])} operations while a checkpoint ran, {len(parts[False])} while none did: choose another --log or --seconds")
        without = quantiles(parts[False])
        for running in (False, True):
            found = quantiles(parts[running])
            cells = " | ".join(f"{micros / 1000:.2f}" for micros in found)
            ratio = f"{found[2] / without[2]:.1f}" if running else ""
            lines.append(f"| `{protocol}` | {rate:,.0f} | {f'yes, {count} times' if running else 'no'} | {len(parts[running]):,} | {cells} | {ratio} |")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if place:
        place.put(text)


if __name__ == "__main__":
    main()
