#!/usr/bin/env python3
"""What a million keys take in memory, and how long a node with them takes to start, for each kind of keyspace and beside Redis: `make bench-memory`.

A million keys of 16 bytes with values of 128 bytes are written once, by 16 clients in pipelines of 100, to
- redis-server, appendonly yes, appendfsync everysec;
- site a of a three-site cluster on the same machine with one keyspace of four partitions, each site a process of its own.

The resident memory of a process (VmRSS) is read before the first write, and after the last one when it has not grown or shrunk by more than a percent for three seconds, at most a minute. The table has the difference. Of
the three sites it has that of a, to which the client writes, and of b. Then the node of a is killed and started again, and then it is ended and started again: the time until it answers a GET. Prints a table in Markdown. `--into docs/benchmarks.md` also writes it there, with the commit and the date.
"""
import argparse
import multiprocessing
import os
import pathlib
import signal
import socket
import sys
import time

from causal import Cluster
from page import Place, version
from redis import PROTOCOLS, ROOT, Redis, command, put, until_written

VALUE = "v" * 128
BATCH = 100
WRITERS = 16


def resident(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


def write(port, keyspace, keys, value):
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        answers = connection.makefile("rb", buffering=1 << 20)
        if keyspace:
            connection.sendall(command("SELECT", keyspace))
            if answers.readline() != b"+OK\r\n":
                raise SystemExit(f"{keyspace} is not there")
        for first in range(0, len(keys), BATCH):
            batch = [command("SET", f"key:{number:012}", value) for number in keys[first:first + BATCH]]
            connection.sendall(b"".join(batch))
            for _ in batch:
                answer = answers.readline()
                if answer[:1] != b"+":
                    raise SystemExit(f"a SET is answered with {answer!r}")


def load(port, keyspace, keys, value=VALUE):
    """Writes each key once. Each client is a process of its own: one of them would be slower than the server, where a write does not wait for one of another client."""
    clients = [multiprocessing.Process(target=write, args=(port, keyspace, range(first, keys, WRITERS), value), daemon=True) for first in range(WRITERS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if any(client.exitcode for client in clients):
        raise SystemExit("a client could not write its keys; its message is above")


def at_rest(pids):
    """The resident memory of each process, when it does not change any more."""
    deadline, since, before = time.monotonic() + 60, time.monotonic(), [resident(pid) for pid in pids]
    while time.monotonic() < min(deadline, since + 3):
        time.sleep(0.2)
        now = [resident(pid) for pid in pids]
        if any(abs(one - other) > 0.01 * other for one, other in zip(now, before)):
            since, before = time.monotonic(), now
    return [resident(pid) for pid in pids]


def of_redis(keys):
    server = Redis("everysec")
    try:
        pid = server.processes[0].pid
        before = resident(pid)
        load(server.port, None, keys)
        return [at_rest([pid])[0] - before], []
    finally:
        server.stop()


def of_keyspace(options, protocol):
    with Cluster(options.binary, [protocol]) as cluster:
        pids = [process.pid for process in cluster.processes[:2]]
        # It may have to elect a leader, or to ask the other sites what they have.
        with cluster.client("a1", protocol).socket as connection:
            until_written(connection, protocol)
        before = [resident(pid) for pid in pids]
        load(cluster.resp["a1"], protocol, options.keys)
        grown = [after - old for after, old in zip(at_rest(pids), before)]
        return grown, [start(cluster, protocol, number) for number in (signal.SIGKILL, signal.SIGTERM)]


def start(cluster, protocol, number, size=len(VALUE)):
    """Ends the node of site a by a signal and starts it again. Returns after how many seconds it answers with a value of this size."""
    cluster.end("a1", number)
    began = time.perf_counter()
    cluster.begin("a1")
    request = command("SELECT", protocol) + command("GET", f"key:{0:012}")
    while time.perf_counter() - began < 600:
        try:
            with socket.create_connection(("127.0.0.1", cluster.resp["a1"]), timeout=5) as connection:
                connection.sendall(request)
                answers = connection.makefile("rb")
                if answers.readline() == b"+OK\r\n" and answers.readline() == b"$%d\r\n" % size:
                    return time.perf_counter() - began
        except OSError:
            pass
        time.sleep(0.005)
    raise SystemExit(f"{protocol}: the node does not answer within ten minutes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=PROTOCOLS, metavar="PROTOCOL", help=f"of {', '.join(PROTOCOLS)}")
    parser.add_argument("--binary", default=str(ROOT / "target/release/turnbuckle"))
    parser.add_argument("--into", type=pathlib.Path, help="the page that has the table of this command line")
    options = parser.parse_args()

    place = options.into and Place(options.into, "benches/memory.py", sys.argv[1:])
    found = {"Redis": of_redis(options.keys)}
    for protocol in options.protocols:
        print(f"  .. {protocol}", file=sys.stderr, flush=True)
        found[f"`{protocol}`"] = of_keyspace(options, protocol)
    redis = found["Redis"][0][0]
    lines = [f"Turnbuckle, {version(options.binary)}, measured on {time.strftime('%Y-%m-%d')}; {options.keys:,} keys of 16 bytes, values of 128 bytes; {os.cpu_count()} cores:", "",
             "| | bytes a key | to Redis | bytes a key at b | to Redis | started after kill -9, s | after a clean end, s |", "|---|---:|---:|---:|---:|---:|---:|"]
    for name, (sites, starts) in found.items():
        cells = [cell for site in sites for cell in (f"{site / options.keys:.0f}", f"{site / redis:.2f}")]
        cells += [""] * (4 - len(cells)) + [f"{seconds:.2f}" for seconds in starts]
        lines.append(f"| {' | '.join([name, *cells, *[''] * (6 - len(cells))])} |")
    put(lines, place)


if __name__ == "__main__":
    main()
