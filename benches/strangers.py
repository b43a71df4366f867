#!/usr/bin/env python3
"""What others do to one client: `benches/strangers.py`.

A client sends GET after GET to site a of a cluster of three sites on this machine, first alone, then beside each kind of neighbour:
- 8 clients that ask EXISTS of 65,000 keys, again and again; 8 that delete 20,000 keys in one command, and 8 that write as many;
- 20 clients that pipeline MGET of 60 values of 1 MB and never read an answer;
- 60 clients that each send 62 MiB of a command and never the rest.

Prints, for each, the client's latencies, how many times its p99 alone that is, the p99 of a second client that asks a program which does nothing but
answer (what is as slow there is slow because others have the processors), how much memory of site a's process was resident at most, and by how much that
had grown beside the neighbours, which `client_memory_mb` (256 MiB) and the buffers of what is under way bound.
The first keyspace named is asked; every case has a cluster of its own. Figures, no verdict: the machine is shared with everything on it.

Neighbours of a real site have machines of their own; here they take the processors from the server, and whoever takes them keeps them for some milliseconds.
`--first` (needs root) gives the processors to the servers, the client and the echo before anybody else (SCHED_RR): what is slow then is the server's
own doing.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import re
import select
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def command(*arguments):
    parts = [argument if isinstance(argument, bytes) else str(argument).encode() for argument in arguments]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


class Client:
    def __init__(self, port, keyspace):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", buffering=1 << 20)
        self.call(command("SELECT", keyspace))

    def send(self, data):
        self.socket.sendall(data)

    def read(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("closed")
        if line[:1] == b"$" and line[:2] != b"$-":
            self.file.read(int(line[1:]) + 2)
        if line[:1] == b"*":
            for _ in range(int(line[1:])):
                self.read()
        return line

    def call(self, data):
        self.send(data)
        return self.read()


def go_first():
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def echo(ports, first):
    """Answers whatever comes: as fast as anybody can be on this machine now."""
    if first:
        go_first()
    listener = socket.create_server(("127.0.0.1", 0))
    ports.put(listener.getsockname()[1])
    stream, _ = listener.accept()
    while data := stream.recv(4096):
        stream.sendall(data)


class Echo:
    def __init__(self, first):
        ports = multiprocessing.Queue()
        self.process = multiprocessing.Process(target=echo, args=(ports, first), daemon=True)
        self.process.start()
        self.socket = socket.create_connection(("127.0.0.1", ports.get()))

    def call(self, data):
        self.socket.sendall(data)
        self.socket.recv(4096)

    def stop(self):
        self.socket.close()
        self.process.join()


class Cluster:
    def __init__(self, binary, first):
        self.process = subprocess.Popen([binary, "demo", "--processes", "--json", "--wan", "off"], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, preexec_fn=go_first if first else None)
        ready = json.loads(self.process.stdout.readline())
        site = ready["sites"][0]
        self.port, self.pid = int(site["resp"].rsplit(":", 1)[1]), site["pid"]

    def resident_mib(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024

    def stop(self):
        self.process.terminate()
        self.process.wait()


def again_and_again(port, keyspace, number, make, stop):
    client = Client(port, keyspace)
    data = make(number)
    while not stop.is_set():
        for one in data:
            client.call(one)


def keys(number, count):
    return [f"n{number}:{place}" for place in range(count)]


def exists(number):
    return [command("EXISTS", *keys(0, 65_000))]


def delete(number):
    mine = keys(number, 20_000)
    return [command("MSET", *(word for key in mine for word in (key, "v"))), command("DEL", *mine)]


def never_reads(port, keyspace, number, _, stop):
    client = Client(port, keyspace)
    client.socket.settimeout(0.2)
    data = command("MGET", *(f"big{place}" for place in range(60))) * 64
    while not stop.is_set():
        try:
            client.send(data)
        except socket.timeout:
            pass
        except OSError:
            return


def never_ends(port, keyspace, number, _, stop):
    """Thirty connections of one process: what is measured is the server and not sixty Pythons."""
    value = bytes(15 << 20)
    data = memoryview(b"*11\r\n$4\r\nMSET\r\n" + b"".join(b"$2\r\nk%d\r\n$%d\r\n%s\r\n" % (place, len(value), value)
                                                        for place in range(4)) + b"$2\r\nk5\r\n$15000000\r\n" + bytes(2 << 20))
    left = {}
    for _ in range(30):
        client = Client(port, keyspace).socket
        client.setblocking(False)
        left[client] = 0
    while not stop.is_set():
        waiting = [client for client, sent in left.items() if sent < len(data)]
        _, ready, _ = select.select([], waiting, [], 0.1)
        for client in ready:
            try:
                left[client] += client.send(data[left[client]:left[client] + (256 << 10)])
            except BlockingIOError:
                pass
            except OSError:
                left[client] = len(data)
        if not waiting:
            time.sleep(0.1)


def fill(client, case):
    if case in ("none", "unread"):
        for place in range(60):
            client.call(command("SET", f"big{place}", bytes(1_000_000)))
    client.call(command("SET", "victim", "v" * 100))


CASES = {
    "none": (0, None, None),
    "exists": (8, again_and_again, exists),
    "write and delete": (8, again_and_again, delete),
    "unread": (20, never_reads, None),
    "unfinished": (2, never_ends, None),
}


def run(options, case):
    count, what, make = CASES[case]
    cluster = Cluster(options.binary, options.first)
    stop = multiprocessing.Event()
    most = [0.0]

    def watch():
        while not stop.is_set():
            most[0] = max(most[0], cluster.resident_mib())
            time.sleep(0.02)

    others = [multiprocessing.Process(target=what, args=(cluster.port, options.keyspace, number, make, stop), daemon=True)
              for number in range(count)]
    beside = Echo(options.first)
    try:
        client = Client(cluster.port, options.keyspace)
        fill(client, case)
        time.sleep(0.5)
        before = cluster.resident_mib()
        watcher = threading.Thread(target=watch)
        watcher.start()
        for other in others:
            other.start()
        if options.first:
            go_first()
        time.sleep(1)
        spans, echoes, get, end = [], [], command("GET", "victim"), time.monotonic() + options.seconds
        while time.monotonic() < end:
            for asked, took in ((client, spans), (beside, echoes)):
                begun = time.perf_counter()
                asked.call(get)
                took.append((time.perf_counter() - begun) * 1000)
                time.sleep(0.001)
        stop.set()
        watcher.join()
    finally:
        stop.set()
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        for other in others:
            other.join(2)
            other.kill()
        cluster.stop()
        beside.stop()
    return sorted(spans), sorted(echoes), most[0], most[0] - before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/turnbuckle"))
    parser.add_argument("--keyspace", default="eventual")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("cases", nargs="*", default=list(CASES), help=", ".join(CASES))
    options = parser.parse_args()
    print(f"keyspace {options.keyspace}, {os.cpu_count()} cores{', servers and client first' if options.first else ''}\n")
    print("| neighbours | answers | p50 ms | p99 ms | most ms | p99, times alone | p99 of an echo, ms | p99, times the echo's | resident MiB | grown by |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    alone = None
    for case in options.cases:
        spans, echoes, resident, grown = run(options, case)
        of = lambda spans, part: spans[min(int(len(spans) * part), len(spans) - 1)]
        at = lambda part: of(spans, part)
        alone = alone or at(0.99)
        print(f"| {case} | {len(spans)} | {at(.5):.2f} | {at(.99):.2f} | {spans[-1]:.1f} | {at(.99) / alone:.1f} | {of(echoes, .99):.2f} | "
              f"{at(.99) / of(echoes, .99):.1f} | {resident:.0f} | {grown:.0f} |", flush=True)


if __name__ == "__main__":
    main()
