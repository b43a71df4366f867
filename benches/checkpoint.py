#!/usr/bin/env python3
"""How long operations take while checkpoints run: `make bench-checkpoint`.

Three sites on this machine, a process for each node. At site a, --keys keys with values of 100 bytes are written again and again, in pipelines of 100, at a fixed rate. So the sites write a checkpoint whenever their logs have
grown by `checkpoint_log_mb`. Meanwhile a probe asks site a for other keys, at a fixed rate: half of its operations are SET, half are GET. Each operation counts from the moment at which it was to be sent. It counts as one "while a
checkpoint runs" if one of the three sites was writing a checkpoint when the sites were last asked before it, first asked after it, or at any time between: they share the cores. "Busy" is the share of the machine's processor time that was used meanwhile, by whatever program. Prints a table in Markdown. `--into docs/benchmarks.md` also writes it there, with the commit and the date.
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
from redis import PROTOCOLS, ROOT, put, until_written

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


def processor_time():
    """The processor time of all cores since the machine's start: that was used, and all of it."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def look(cluster):
    """Whether a site writes a checkpoint, and how many checkpoints all sites have written."""
    pages = [cluster.get(name, "/metrics") for name in cluster.names]
    running = any(re.search(r"^turnbuckle_checkpoint_running\S* [^0]", page, re.M) for page in pages)
    return running, sum(float(count) for page in pages for count in re.findall(r"^turnbuckle_checkpoints_total\S* (\S+)", page, re.M))


def measure(options, protocol):
    with Cluster(options.binary, [protocol], limits=f"checkpoint_log_mb = {options.log}") as cluster:
        port = cluster.resp["a1"]
        with cluster.client("a1", protocol).socket as connection:
            until_written(connection, protocol)
        writer = Writer(port, protocol, options)
        writer.start()
        # All keys are there before anything counts.
        while writer.written.value < options.keys and writer.is_alive():
            time.sleep(0.1)
        probe = Probe(port, protocol, options.probe)
        probe.start()
        probe.theirs.close()
        began, at_first, looks = time.monotonic(), writer.written.value, []
        times, at = {False: [0, 0], True: [0, 0]}, processor_time()
        while time.monotonic() < began + options.seconds:
            before, (running, count) = time.monotonic(), look(cluster)
            # One that has begun and ended between two looks counts, too.
            running = running or bool(looks) and count > looks[-1][3]
            looks.append((before, time.monotonic(), running, count))
            was, at = at, processor_time()
            times[running] = [total + new - old for total, new, old in zip(times[running], at, was)]
            time.sleep(LOOK_EVERY)
        rate = (writer.written.value - at_first) / (time.monotonic() - began)
        took = probe.end()
        if not writer.is_alive():
            raise SystemExit(f"{protocol}: the writer has ended; its message is above")
        writer.terminate()
        writer.join()
    parts = {False: [], True: []}
    begins, ends = [look[0] for look in looks], [look[1] for look in looks]
    for due, micros in took:
        first, last = bisect.bisect_left(ends, due) - 1, bisect.bisect_right(begins, due + micros / 1e6)
        if 0 <= first and last < len(looks):
            parts[any(running for _, _, running, _ in looks[first:last + 1])].append(micros)
    busy = {running: used / max(1, total) for running, (used, total) in times.items()}
    return rate, looks[-1][3] - looks[0][3], parts, busy


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
             "| keyspace | writes a second | checkpoints run | busy | operations | p50 ms | p99 | p99.9 | the greatest | p99.9, to without |", "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|"]
    for protocol in options.protocols:
        rate, count, parts, busy = measure(options, protocol)
        if not all(parts.values()):
            raise SystemExit(f"{protocol}: {len(parts[True])} operations while a checkpoint ran, {len(parts[False])} while none did: choose another --log or --seconds")
        without = quantiles(parts[False])
        for running in (False, True):
            found = quantiles(parts[running])
            cells = " | ".join(f"{micros / 1000:.2f}" for micros in found)
            ratio = f"{found[2] / without[2]:.1f}" if running else ""
            lines.append(f"| `{protocol}` | {rate:,.0f} | {f'yes, {count:.0f} at all sites' if running else 'no'} | {busy[running]:.0%} | {len(parts[running]):,} | {cells} | {ratio} |")
    put(lines, place)


if __name__ == "__main__":
    main()
