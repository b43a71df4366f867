#!/usr/bin/env python3
"""A million short-lived keys a minute: `benches/expiry.py`.

For each keyspace, in a cluster of its own of three sites on this machine. At site a, keys with values of 100 bytes are written in pipelines: a million each
minute, each key once. Meanwhile a probe asks site a for other keys, at a fixed rate: half of its operations are SET, half are GET. Each operation counts from
the moment at which it was to be sent.

1. The probe alone.
2. The keys never expire. Each minute writes the same keys as the minute before.
3. The keys expire after half a minute, and each minute writes new ones.

Prints the probe's latencies in each phase, what site a has resident and on disk, how many keys expire at some time, and how long after the last write the last of
them was gone. Figures, no verdict: the machine is shared with everything on it.
"""
import argparse
import multiprocessing
import os
import re
import time

from deletes import ROOT, Client, Watch, command, run, settle

BATCH = 500


class Probe(multiprocessing.Process):
    """Asks for other keys, and notes how long each answer took, in microseconds. It is a process of its own: a thread would wait for the one that writes."""

    def __init__(self, port, keyspace, rate):
        super().__init__(daemon=True)
        self.port, self.keyspace, self.rate = port, keyspace, rate
        self.stop = multiprocessing.Event()
        self.ours, self.theirs = multiprocessing.Pipe()

    def ask(self, client, number):
        key = f"probe:{number // 2 % 1000}"
        if number % 2 == 0:
            return client.call([command("SET", key, "v" * 100)])
        client.socket.sendall(command("GET", key))
        if client.file.readline() != b"$-1\r\n":
            client.file.readline()

    def run(self):
        client, took = Client(self.port, self.keyspace), []
        begun, number = time.monotonic(), 0
        while not self.stop.is_set():
            due = begun + number / self.rate
            time.sleep(max(0, due - time.monotonic()))
            self.ask(client, number)
            took.append((due, (time.monotonic() - due) * 1e6))
            number += 1
        self.theirs.send(took)

    def end(self):
        """When each operation was to be sent, and how long its answer took."""
        self.stop.set()
        took = self.ours.recv()
        self.join()
        return took


def quantiles(took):
    """The median, p99, p99.9 and the greatest."""
    took = sorted(took)
    return [took[min(len(took) - 1, int(len(took) * part))] for part in (0.5, 0.99, 0.999)] + [took[-1]]


def expiring(site, keyspace):
    found = re.search(r'^turnbuckle_expiring_keys\{keyspace="%s"\} (\S+)' % keyspace, site.metrics(), re.M)
    return int(float(found.group(1)))


def write(client, options, make):
    """Writes for some minutes, at the rate. Returns for how many seconds it was behind in the end."""
    begun = time.monotonic()
    for first in range(0, options.keys * options.minutes, BATCH):
        due = begun + first * 60 / options.keys
        time.sleep(max(0, due - time.monotonic()))
        client.call([make(number) for number in range(first, first + BATCH)])
    return max(0, time.monotonic() - begun - 60 * options.minutes)


def phase(what, options, sites, keyspace, work):
    watch = Watch(sites[:1])
    watch.start()
    probe = Probe(sites[0].port, keyspace, options.probe)
    probe.start()
    probe.theirs.close()
    late = work()
    latencies = quantiles([took for _, took in probe.end()])
    watch.stop.set()
    watch.join()
    cells = " | ".join(f"{latency / 1000:.2f}" for latency in latencies)
    resident, disk = watch.most[sites[0].name]
    behind = f", {late:.0f} s behind in the end" if late > 1 else ""
    print(f"| {what}{behind} | {cells} | {resident:.0f} | {disk:.0f} | {expiring(sites[0], keyspace)} |", flush=True)


def measure(options, keyspace, sites):
    print(f"\nkeyspace {keyspace}, {options.keys} keys a minute for {options.minutes} minutes, the probe at {options.probe}/s, {os.cpu_count()} cores\n")
    print("| | probe p50 ms | p99 | p99.9 | max | MiB resident at a, at most | on disk | keys that expire, in the end |")
    print("|---|" + "---:|" * 7, flush=True)
    client, value = Client(sites[0].port, keyspace), "v" * 100
    phase("the probe alone", options, sites, keyspace, lambda: time.sleep(20) or 0)
    plain = lambda number: command("SET", f"plain:{number % options.keys}", value)  # noqa: E731
    phase("keys that never expire", options, sites, keyspace, lambda: write(client, options, plain))
    settle(sites, keyspace)
    before = sites[0].resident_mib()
    short = lambda number: command("SET", f"short:{number}", value, "PX", "30000")  # noqa: E731
    phase("keys that expire", options, sites, keyspace, lambda: write(client, options, short))
    ended = time.monotonic()
    gone = {}
    while len(gone) < len(sites) and time.monotonic() - ended < options.patience:
        for site in sites:
            if site.name not in gone and expiring(site, keyspace) == 0:
                gone[site.name] = time.monotonic() - ended
        time.sleep(0.5)
    time.sleep(10)
    words = ", ".join(f"{name} {after:.0f} s" for name, after in sorted(gone.items()))
    missing = "" if len(gone) == len(sites) else f"; NOT all gone after {options.patience:.0f} s"
    print(f"\nThe last of them was gone at {words} after the last write{missing}. Site a had {before:.0f} MiB resident before, and has {sites[0].resident_mib():.0f} MiB 10 s later.", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/turnbuckle"))
    parser.add_argument("--directory", help="where the data are meanwhile")
    parser.add_argument("--memory-mb", type=int, default=1024, help="the memory limit of each site, which its keyspaces share")
    parser.add_argument("--keys", type=int, default=1_000_000, help=f"how many keys are written each minute, a multiple of {BATCH}")
    parser.add_argument("--minutes", type=int, default=2, help="for how many minutes")
    parser.add_argument("--probe", type=int, default=200, help="how many operations of the probe in a second")
    parser.add_argument("--patience", type=float, default=300, help="how many seconds to wait for the keys to be gone")
    parser.add_argument("keyspaces", nargs="*", default=["eventual", "causal"])
    options = parser.parse_args()
    run(options, measure, "--memory-mb", str(options.memory_mb))


if __name__ == "__main__":
    main()
