#!/usr/bin/env python3
"""A million deletes: `benches/deletes.py`.

For each keyspace, in a cluster of its own of three sites on this machine: a million keys with values of 100 bytes are written at site a and deleted there again, in
pipelines. Prints when how many deletes are still remembered at any site, and what each site's process has resident and has on disk: before, with
the keys, at its most, and after. Figures, no verdict: the machine is shared with everything on it.
"""
import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH = 1_000


def command(*arguments):
    parts = [argument.encode() for argument in arguments]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


class Client:
    def __init__(self, port, keyspace):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb", buffering=1 << 20)
        self.call([command("SELECT", keyspace)])

    def call(self, commands):
        self.socket.sendall(b"".join(commands))
        answers = [self.file.readline() for _ in commands]
        wrong = [answer for answer in answers if answer[:1] not in (b"+", b":")]
        if wrong:
            raise RuntimeError(f"{len(wrong)} answers such as {wrong[0]!r}")


def disk_mib(data):
    """What a node's directory takes on disk, without the space that it reserves."""
    total = 0
    for folder, _, files in os.walk(data):
        for file in files:
            try:
                if file != "ballast":
                    total += os.stat(os.path.join(folder, file)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total / (1 << 20)


class Site:
    def __init__(self, ready, data):
        self.name, self.pid = ready["site"], ready["pid"]
        self.port = int(ready["resp"].rsplit(":", 1)[1])
        self.admin = ready["admin"] if "//" in ready["admin"] else "http://" + ready["admin"]
        self.data = data

    def metrics(self):
        with urllib.request.urlopen(self.admin + "/metrics", timeout=30) as answer:
            return answer.read().decode()

    def deletes(self, keyspace):
        found = re.search(r'^turnbuckle_deletes_waiting\{keyspace="%s"\} (\S+)' % keyspace, self.metrics(), re.M)
        return int(float(found.group(1)))

    def lag(self, keyspace):
        found = re.findall(r'^turnbuckle_replication_lag_entries\{keyspace="%s".*\} (\S+)' % keyspace, self.metrics(), re.M)
        return sum(map(float, found))

    def versions_mib(self):
        return float(re.search(r"^turnbuckle_memory_bytes (\S+)", self.metrics(), re.M).group(1)) / (1 << 20)

    def resident_mib(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024

    def disk_mib(self):
        return disk_mib(self.data)


class Watch(threading.Thread):
    """The most that each site has."""

    def __init__(self, sites):
        super().__init__(daemon=True)
        self.sites, self.stop = sites, threading.Event()
        self.most = {site.name: [0, 0] for site in sites}

    def run(self):
        while not self.stop.wait(0.5):
            for site in self.sites:
                most = self.most[site.name]
                self.most[site.name] = [max(most[0], site.resident_mib()), max(most[1], site.disk_mib())]


def show(what, figures):
    cells = " | ".join(f"{resident:.0f} | {disk:.0f}" for resident, disk in figures)
    print(f"| {what} | {cells} |", flush=True)


def now(sites):
    return [(site.resident_mib(), site.disk_mib()) for site in sites]


def pipelines(client, count, make, size=1):
    begun = time.monotonic()
    for start in range(0, count, BATCH):
        client.call([make(range(first, first + size)) for first in range(start, start + BATCH, size)])
    return time.monotonic() - begun


def settle(sites, keyspace):
    while any(site.lag(keyspace) for site in sites):
        time.sleep(0.2)


def run(options, measure, *arguments):
    """Measures each keyspace in a cluster of its own, which is started with these further arguments."""
    for keyspace in options.keyspaces:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            demo = [options.binary, "demo", "--processes", "--json", "--wan", "off", *arguments, "--data", directory]
            process = subprocess.Popen(demo, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            try:
                ready = json.loads(process.stdout.readline())
                measure(options, keyspace, [Site(site, pathlib.Path(directory) / site["node"]) for site in ready["sites"]])
            finally:
                process.terminate()
                process.wait()


def measure(options, keyspace, sites):
    print(f"\nkeyspace {keyspace}, {options.keys} keys, {options.each} in each DEL, {os.cpu_count()} cores\n")
    print("| MiB | " + " | ".join(f"{site.name} resident | disk" for site in sites) + " |")
    print("|---|" + "---:|" * 2 * len(sites), flush=True)
    show("before", now(sites))
    watch = Watch(sites)
    watch.start()
    client = Client(sites[0].port, keyspace)
    value = "v" * 100
    wrote = pipelines(client, options.keys, lambda keys: command("SET", f"key:{keys[0]}", value))
    settle(sites, keyspace)
    show("with the keys", now(sites))
    deleted = pipelines(client, options.keys, lambda keys: command("DEL", *(f"key:{key}" for key in keys)), options.each)
    ended, seen = time.monotonic(), []
    while True:
        waiting = [site.deletes(keyspace) for site in sites]
        seen.append((time.monotonic() - ended, waiting))
        if not any(waiting) or seen[-1][0] > options.patience:
            break
        time.sleep(0.5)
    show("deletes forgotten", now(sites))
    time.sleep(options.after)
    watch.stop.set()
    watch.join()
    show("at most", watch.most.values())
    show(f"{options.after:.0f} s later", now(sites))
    print(f"\n{options.keys} keys were written in {wrote:.0f} s and deleted in {deleted:.0f} s.")
    for place, site in enumerate(sites):
        gone = [after for after, waiting in seen if not waiting[place]]
        words = f"forgotten {gone[0]:.0f} s after the last one was acknowledged" if gone else \
            f"NOT forgotten: {seen[-1][1][place]} after {seen[-1][0]:.0f} s"
        words += f"; {site.versions_mib():.0f} MiB are counted for keys in the end"
        print(f"Site {site.name}: at most {max(waiting[place] for _, waiting in seen)} deletes remembered; {words}.", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/turnbuckle"))
    parser.add_argument("--directory", help="where the data are meanwhile")
    parser.add_argument("--keys", type=int, default=1_000_000, help=f"a multiple of {BATCH}")
    parser.add_argument("--each", type=int, default=1, help=f"how many keys one DEL names; a divisor of {BATCH}")
    parser.add_argument("--patience", type=float, default=300, help="how many seconds to wait for the deletes to be forgotten")
    parser.add_argument("--after", type=float, default=30, help="how many seconds after that to look again")
    parser.add_argument("keyspaces", nargs="*", default=["eventual", "causal"])
    run(parser.parse_args(), measure)


if __name__ == "__main__":
    main()
