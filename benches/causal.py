#!/usr/bin/env python3
"""What causal consistency costs, side by side and in one run: `make bench-causal`.

Three sites on this machine, a process for each node, everything on its cores. Each measurement of a table is made once in
every round, next to those that it is compared with; a figure is the median of the rounds, with the least and the greatest (throughput:
the quartiles). A ratio is the median of the rounds' ratios. Prints tables in Markdown. `--into docs/benchmarks.md` also writes each
part there, in the place of what was there before, with the commit and the date.

throughput  `turnbuckle bench`, YCSB A and B, 32 clients, without WAN delays: operations a second, and CPU of all nodes together for
            each of them. And what each protocol keeps with a version, in bytes. Each protocol has a cluster of its own; those that
            are not measured are paused. Windows of a second in turn, so that what the machine does besides hits all of them
            alike: medians (quartiles) of all windows, and of the ratios of neighbours.
before      With --before: throughput of `eventual` and `causal` beside that of another build, in the same run.
visibility  How long a version of site a takes until site b shows it, over a WAN: as a client finds that reads the key at b all the
            time, and as the server counts it (turnbuckle_update_visibility_seconds). The client's includes its two round trips and the
            pause between two reads, about half a millisecond. Alone, and beside 32 clients that read and write at a (YCSB A), at a
            rate and in a closed loop.
rotx        A ROTX of 3 and of 10 keys beside a GET. One client, closed loop, the kinds in turn, operation by operation; then 16
            clients that ask at once. The client writes ready-made bytes and counts those that come back, so that a larger answer costs
            Python nothing. With two nodes in a site, beside GETs that are forwarded, too.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from page import Place, version

ROOT = pathlib.Path(__file__).resolve().parent.parent
SITES = ["a", "b", "c"]
KEYSPACES = ["eventual", "causal", "gentlerain", "cops"]
PARTITIONS = 4
SLOTS = 16384


# ---- a cluster ------------------------------------------------------------------------------------------------------------


def free_ports(count):
    """Held all at once, so that none comes twice."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Cluster:
    """Ends with the `with` block, whatever happens in it."""

    def __init__(self, binary, keyspaces, nodes_per_site=1, durability="interval(10ms)", protocols={}, partitions=PARTITIONS, members={}, limits=""):
        """A keyspace's protocol has its name, unless `protocols` says something else: the protocol, and parameters in TOML. `members`: how many replicas a keyspace has at each site, if not one. `limits`: in TOML."""
        self.binary, self.keyspaces, self.durability, self.protocols, self.partitions = binary, keyspaces, durability, protocols, partitions
        self.members, self.limits = members, limits
        self.names = [f"{site}{number + 1}" for site in SITES for number in range(nodes_per_site)]
        self.processes = []

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="bench-causal-")
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        ports = free_ports(3 * len(self.names))
        self.resp = dict(zip(self.names, ports[0::3]))
        self.admin = dict(zip(self.names, ports[1::3]))
        peer = dict(zip(self.names, ports[2::3]))
        lines = ['cluster = "bench"', f'secret = "{os.urandom(16).hex()}"', f"[limits]\n{self.limits}"]
        lines += [f'[[site]]\nname = "{site}"' for site in SITES]
        for name in self.names:
            lines.append(f'[[node]]\nname = "{name}"\nsite = "{name[0]}"\nresp = "127.0.0.1:{self.resp[name]}"\n'
                         f'peer = "127.0.0.1:{peer[name]}"\nadmin = "127.0.0.1:{self.admin[name]}"\ndata = "{name}"')
        for keyspace in self.keyspaces:
            protocol, parameters = self.protocols.get(keyspace, (keyspace, ""))
            lines.append(f'[[keyspace]]\nname = "{keyspace}"\nprotocol = "{protocol}"\npartitions = {self.partitions}\n'
                         f'durability = "{self.durability}"\nmembers = {self.members.get(keyspace, 1)}\nparameters = {{ {parameters} }}')
        pathlib.Path(self.directory, "cluster.toml").write_text("\n\n".join(lines))
        for name in self.names:
            self.processes.append(self.process(name))
        deadline = time.monotonic() + 20
        while not all(self.is_connected(name) for name in self.names):
            if time.monotonic() > deadline:
                raise SystemExit("the cluster does not come up; its messages are above")
            time.sleep(0.02)

    def process(self, name):
        return subprocess.Popen([self.binary, "start", "--config", pathlib.Path(self.directory, "cluster.toml"), "--node", name],
                                stdout=subprocess.DEVNULL, env={**os.environ, "TURNBUCKLE_LOG": "warn"})

    def end(self, name, number):
        """Sends a signal to a node, and waits until it has ended."""
        process = self.processes[self.names.index(name)]
        process.send_signal(number)
        process.wait(timeout=120)

    def begin(self, name):
        """Starts a node again."""
        self.processes[self.names.index(name)] = self.process(name)

    def stop(self):
        for process in self.processes:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # If it was paused.
        for process in self.processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def signal(self, number):
        for process in self.processes:
            process.send_signal(number)

    def get(self, name, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin[name]}{path}",
                                         data=body and json.dumps(body).encode(),
                                         headers={"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.read().decode()

    def is_connected(self, name):
        try:
            links = json.loads(self.get(name, "/status"))["links"]
            return all(link["up"] for link in links)
        except OSError:
            return False

    def set_wan(self, delays):
        """One-way delays, in ms, by pairs of sites."""
        for name in self.names:
            for (one, other), ms in delays.items():
                if name[0] not in (one, other):
                    continue  # It sends nothing there.
                self.get(name, "/wan", {"from": one, "to": other, "delay": f"{ms}ms", "both": True})

    def metrics(self, names=None):
        """Samples by name and labels, of all nodes together."""
        sums = {}
        for name in names or self.names:
            for line in self.get(name, "/metrics").splitlines():
                if not line.startswith("#"):
                    series, value = line.rsplit(" ", 1)
                    sums[series] = sums.get(series, 0) + float(value)
        return sums

    def cpu_seconds(self):
        return sum(cpu_seconds(process.pid) for process in self.processes)

    def client(self, name, keyspace):
        return Client(self.resp[name], keyspace)


def cpu_seconds(pid):
    """Of all threads, to the nanosecond: the scheduler's own count."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass  # The thread has ended.
    return total / 1e9


def encode(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Client:
    def __init__(self, port, keyspace):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.call("SELECT", keyspace)

    def call(self, *words):
        self.socket.sendall(encode(*words))
        return self.reply()

    def line(self):
        while b"\r\n" not in self.buffer:
            self.more()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def more(self):
        received = self.socket.recv(1 << 16)
        if not received:
            raise SystemExit("the server closed a connection")
        self.buffer += received

    def reply(self):
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise SystemExit(f"the server refused: {rest.decode()}")
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if kind == b"$" and int(rest) >= 0:
            while len(self.buffer) < int(rest) + 2:
                self.more()
            value, self.buffer = self.buffer[:int(rest)], self.buffer[int(rest) + 2:]
            return value
        return None if kind in b"$_" else int(rest) if kind == b":" else rest

    def send(self, command):
        self.socket.sendall(command)

    def receive(self, length):
        """An answer of known length, unread."""
        while length > 0:
            received = self.socket.recv(length)
            if not received or received[:1] == b"-":
                raise SystemExit(f"the server answered {received!r}")
            length -= len(received)

    def time(self, command, length):
        began = time.perf_counter_ns()
        self.socket.sendall(command)
        self.receive(length)
        return (time.perf_counter_ns() - began) / 1e3


# ---- figures --------------------------------------------------------------------------------------------------------------


def figure(values, form="{:.2f}"):
    values = list(values)
    middle, least, greatest = (form.format(value) for value in (statistics.median(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({least}-{greatest})"


def quartiles(values, form="{:.2f}"):
    """For measurements that are many and short: a neighbour's burst of work spoils a few."""
    values = sorted(values)
    low, high = (form.format(quantile(values, share)) for share in (0.25, 0.75))
    middle = form.format(statistics.median(values))
    return middle if low == high else f"{middle} ({low}-{high})"


def quantile(values, share):
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


# The lines of the part that is measured now.
LINES = []


def say(text):
    LINES.append(text)
    print(text, flush=True)


def row(*cells):
    say("| " + " | ".join(str(cell) for cell in cells) + " |")


def table(*heads):
    row(*heads)
    row(*["---"] * len(heads))


def progress(text):
    print(f"  .. {text}", file=sys.stderr, flush=True)


# ---- throughput and metadata ----------------------------------------------------------------------------------------------

# Which workload, and the nodes that clients are at.
LOADS = {"A": ("a", ["a1"]), "B": ("b", ["a1"]), "A at all sites": ("a", ["a1", "b1", "c1"])}


def bench(cluster, keyspace, workload, names, options, seed, *more):
    target = ",".join(f"127.0.0.1:{cluster.resp[name]}" for name in names)
    output = subprocess.run(
        [options.binary, "bench", "--target", target, "--keyspace", keyspace, "--workload", workload, "--clients", "32",
         "--keys", "10000", "--seed", str(seed), "--json", *more],
        check=True, capture_output=True, text=True).stdout
    result = json.loads(output)
    if result["errors"]:
        progress(f"errors in {keyspace}, workload {workload}: {result['errors']}")
    return result


def window(cluster, options, keyspace, load, seed):
    workload, names = LOADS[load]
    cluster.signal(signal.SIGCONT)
    # Links and caches come back.
    bench(cluster, keyspace, workload, names, options, seed, "--for", "300ms")
    metrics, cpu = cluster.metrics(), cluster.cpu_seconds()
    result = bench(cluster, keyspace, workload, names, options, seed, "--for", "1s")
    cpu, after = cluster.cpu_seconds() - cpu, cluster.metrics()
    cluster.signal(signal.SIGSTOP)
    grown = lambda name: after[f'{name}{{keyspace="{keyspace}"}}'] - metrics[f'{name}{{keyspace="{keyspace}"}}']
    return {"rate": result["throughput"], "cpu": cpu / result["operations"] * 1e6,
            "read": result["read"]["p50"], "write": result["write"]["p50"],
            "bytes": grown("turnbuckle_version_metadata_bytes_total") / grown("turnbuckle_versions_written_total")}


def windows_in_turn(options, contenders):
    """Windows of all contenders, each a name for a binary and a keyspace: by load and name."""
    found = {}
    names = list(contenders)
    for load, (workload, nodes) in LOADS.items():
        with contextlib.ExitStack() as stack:
            clusters = {}
            for name, (binary, keyspace) in contenders.items():
                clusters[name] = cluster = stack.enter_context(Cluster(binary, [keyspace]))
                bench(cluster, keyspace, workload, nodes, options, 0, "--load", "--for", "500ms")
                cluster.signal(signal.SIGSTOP)
            for number in range(options.windows):
                progress(f"throughput, {load}, window {number + 1} of {options.windows}")
                # Who comes first differs from window to window.
                first = number % len(names)
                for name in names[first:] + names[:first]:
                    measured = window(clusters[name], options, contenders[name][1], load, number + 1)
                    found.setdefault((load, name), []).append(measured)
    return found


def before(options):
    keyspaces = ["eventual", "causal"]
    if not options.before:
        raise SystemExit("error: expected --before with the binary to compare with")
    old = {f"{keyspace}, before": (options.before, keyspace) for keyspace in keyspaces}
    found = windows_in_turn(options, {**old, **{keyspace: (options.binary, keyspace) for keyspace in keyspaces}})
    
    table("workload", "keyspace", "op/s before", "op/s", "to before", "CPU us/op before", "CPU us/op, all nodes", "to before")
    for load in LOADS:
        for keyspace in keyspaces:
            was, runs = found[load, f"{keyspace}, before"], found[load, keyspace]
            cells = []
            for what, form in (("rate", "{:,.0f}"), ("cpu", "{:.1f}")):
                cells += [quartiles((run[what] for run in those), form) for those in (was, runs)]
                cells.append(quartiles(run[what] / other[what] for run, other in zip(runs, was)))
            row(load, f"`{keyspace}`", *cells)


def throughput(options):
    found = windows_in_turn(options, {keyspace: (options.binary, keyspace) for keyspace in KEYSPACES})
    table("workload", "keyspace", "op/s", "to `eventual`", "CPU us/op, all nodes", "to `eventual`", "read p50 us", "write p50 us")
    for load in LOADS:
        base = found[load, "eventual"]
        for keyspace in KEYSPACES:
            runs = found[load, keyspace]
            ratio = lambda what: quartiles(run[what] / other[what] for run, other in zip(runs, base))
            row(load, f"`{keyspace}`", quartiles((run["rate"] for run in runs), "{:,.0f}"), ratio("rate"),
                quartiles((run["cpu"] for run in runs), "{:.1f}"), ratio("cpu"),
                quartiles((run["read"] for run in runs), "{:.0f}"), quartiles((run["write"] for run in runs), "{:.0f}"))
    say("\nBytes with each version, as it lies in the log and travels, beside its stamp and site (10 bytes, 8 of which are GentleRain's number):\n")
    table("keyspace", *LOADS)
    for keyspace in KEYSPACES:
        row(f"`{keyspace}`", *(quartiles((run["bytes"] for run in found[load, keyspace]), "{:.1f}") for load in LOADS))


# ---- visibility -----------------------------------------------------------------------------------------------------------

# The aim: as long as the way, and this, at the median and at p99.
AIM_MS = {"p50": 3, "p99": 6}

# What it is, the one-way delays, and whether the writer at a first reads what c writes.
WORLDS = [
    ("depends on nothing, c near", {("a", "b"): 20, ("a", "c"): 20, ("b", "c"): 20}, False),
    ("depends on nothing, c far", {("a", "b"): 20, ("a", "c"): 100, ("b", "c"): 100}, False),
    ("depends on c, c near", {("a", "b"): 20, ("a", "c"): 20, ("b", "c"): 20}, True),
    ("depends on c, c far from b", {("a", "b"): 20, ("a", "c"): 20, ("b", "c"): 100}, True),
]


# The keyspace, and how many operations a second other clients at a do: none, this number, or as many as they can.
RATE = 5_000
CONTENDERS = [("causal", None), ("causal", RATE), ("causal", "max"), ("gentlerain", None)]


class Watch:
    """A writer at a, a reader at b, and a writer at c, of one keyspace. What they do they do in threads."""

    def __init__(self, cluster, keyspace, delays, depends, seed):
        self.cluster, self.keyspace, self.delays, self.depends = cluster, keyspace, delays, depends
        self.random = random.Random(seed)
        self.ending = threading.Event()
        self.sent, self.ways, self.seen, self.failure = [], [], [], None
        # New connections are new sessions, which have seen nothing; new keys, too.
        self.key, self.far_key = f"near-{seed}", f"far-{seed}"
        self.clients = {site: cluster.client(f"{site}1", keyspace) for site in SITES}
        self.clients["a"].call("SET", self.key, -1)
        self.far_sent = []
        tasks = [self.write, self.read] + ([self.write_far] if depends else [])
        self.threads = [threading.Thread(target=self.run, args=(task,)) for task in tasks]

    def run(self, task):
        try:
            task()
        except BaseException as failure:
            self.failure = failure

    def write(self):
        """At all phases of what is done at intervals."""
        client, one_way = self.clients["a"], self.delays["a", "b"]
        while not self.ending.is_set():
            if self.depends:
                read = client.call("GET", self.far_key)
                if read is None:
                    time.sleep(0.005)
                    continue
                far_at = self.far_sent[int(read)]
            now = time.perf_counter()
            way = one_way
            if self.depends:
                far_age = (now - far_at) * 1e3
                way = max(way, self.delays["b", "c"] - far_age)
            self.sent.append(now)
            self.ways.append(way)
            client.call("SET", self.key, len(self.sent) - 1)
            time.sleep(self.random.uniform(0.004, 0.026))

    def write_far(self):
        client = self.clients["c"]
        while not self.ending.is_set():
            self.far_sent.append(time.perf_counter())
            client.call("SET", self.far_key, len(self.far_sent) - 1)
            time.sleep(self.random.uniform(0.004, 0.016))

    def read(self):
        client = self.clients["b"]
        while not self.ending.is_set() or (len(self.seen) < len(self.sent) and time.perf_counter() < self.until):
            newest = int(client.call("GET", self.key) or -1)
            now = time.perf_counter()
            # Whoever sees a version has everything that the same session wrote before it.
            self.seen += [now] * (newest + 1 - len(self.seen))
            time.sleep(0.0003)

    def finish(self):
        self.until = time.perf_counter() + 2
        self.ending.set()
        for thread in self.threads:
            thread.join()
        for client in self.clients.values():
            client.socket.close()
        if self.failure:
            raise self.failure
        if len(self.seen) < len(self.sent):
            raise SystemExit(f"{self.keyspace}: {len(self.sent) - len(self.seen)} versions were never seen")
        return [(seen - sent) * 1e3 for sent, seen in zip(self.sent, self.seen)]


def histogram(before, after, keyspace):
    """The server's buckets at b for what comes from a, as (bound in ms, how many at most)."""
    start = f'turnbuckle_update_visibility_seconds_bucket{{keyspace="{keyspace}",from="a",to="b",le="'
    grown = [(series[len(start):-2], count - before.get(series, 0))
             for series, count in after.items() if series.startswith(start)]
    return sorted((float(bound.replace("+Inf", "inf")) * 1e3, count) for bound, count in grown)


def quantile_of(buckets, share):
    """Between the bounds of its bucket, as if that were filled evenly."""
    wanted, low, below = share * buckets[-1][1], 0.0, 0
    for bound, count in buckets:
        if count >= wanted:
            return low + (bound - low) * (wanted - below) / max(count - below, 1)
        low, below = bound, count
    return low


@contextlib.contextmanager
def other_clients(cluster, options, keyspace, load):
    """32 clients of another process at a, in a closed loop or at a rate. Returns their rate in the end."""
    if not load:
        yield lambda: ""
        return
    command = [options.binary, "bench", "--target", f"127.0.0.1:{cluster.resp['a1']}", "--keyspace", keyspace, "--workload", "a",
               "--clients", "32", "--keys", "10000", "--for", f"{options.seconds + 1.5}s", "--json", *([] if load == "max" else ["--rate", str(load)])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(1)
        yield lambda: json.loads(process.communicate()[0])["throughput"]
    finally:
        process.kill()
        process.wait()


def visibility(options):
    found = {}
    sys.setswitchinterval(0.0002)
    with Cluster(options.binary, ["causal", "gentlerain"]) as cluster:
        for number in range(options.rounds):
            for place, (world, delays, depends) in enumerate(WORLDS):
                cluster.set_wan(delays)
                time.sleep(1)
                for part, (keyspace, load) in enumerate(CONTENDERS):
                    progress(f"visibility, round {number + 1} of {options.rounds}, {world}, {keyspace}{f', {load}' if load else ''}")
                    with other_clients(cluster, options, keyspace, load) as rate:
                        before = cluster.metrics(["b1"])
                        watch = Watch(cluster, keyspace, delays, depends, (number * 10 + place) * 10 + part)
                        for thread in watch.threads:
                            thread.start()
                        time.sleep(options.seconds)
                        spans = watch.finish()
                        buckets = histogram(before, cluster.metrics(["b1"]), keyspace)
                        found.setdefault((world, keyspace, load), []).append({
                            "p50": quantile(spans, 0.5), "p99": quantile(spans, 0.99), "way": quantile(watch.ways, 0.5),
                            "server p50": quantile_of(buckets, 0.5), "server p99": quantile_of(buckets, 0.99), "rate": rate(),
                            "beyond": quantile([span - way for span, way in zip(spans, watch.ways)], 0.5),
                            "beyond, p99": quantile([span - way for span, way in zip(spans, watch.ways)], 0.99)})
    say(f"From a write at a until it is seen at b, in ms. a and b are 20 ms apart, one way; far is 100 ms. A write that depends on one of c is seen when that one is here, too: the way is the longer one of "
        f"both, write by write. The aim of `causal`: {AIM_MS['p50']} ms beyond the way at the median, {AIM_MS['p99']} ms at p99.\n")
    table("writer at a", "keyspace", "other clients, op/s", "client p50", "client p99", "server p50", "server p99", "the way, p50", "beyond the way, p50", "p99")
    for world, _, _ in WORLDS:
        for keyspace, load in CONTENDERS:
            runs = found[world, keyspace, load]
            of = lambda what: figure((run[what] for run in runs), "{:.1f}")
            row(world, f"`{keyspace}`", figure((run["rate"] for run in runs), "{:,.0f}") if load else "none", of("p50"), of("p99"), of("server p50"), of("server p99"),
                of("way"), of("beyond"), of("beyond, p99"))


# ---- ROTX -----------------------------------------------------------------------------------------------------------------

VALUE = b"v" * 128
BULK = len(b"$128\r\n\r\n") + len(VALUE)


def partition_of(client, key):
    return client.call("CLUSTER", "KEYSLOT", key) * PARTITIONS // SLOTS


def keys_of_partitions(client, count):
    """So many keys of each partition."""
    keys, number = {partition: [] for partition in range(PARTITIONS)}, 0
    while min(map(len, keys.values())) < count:
        key = f"k{number}"
        keys[partition_of(client, key)].append(key)
        number += 1
    return {partition: keys[:count] for partition, keys in keys.items()}


def snapshot(keys):
    return encode("ROTX", *keys), len(b"*%d\r\n" % len(keys)) + BULK * len(keys)


def get(key):
    return encode("GET", key), BULK


def in_turn(cluster, client, kinds, operations):
    """Latencies in us by kind; one operation of each kind after the other."""
    found = {name: [] for name in kinds}
    for _ in range(operations):
        for name, (command, length) in kinds.items():
            found[name].append(client.time(command, length))
    return found


def at_once(cluster, clients, command, length, bursts):
    """us of time and of the nodes' CPU for each operation."""
    began, cpu = time.perf_counter(), cluster.cpu_seconds()
    for _ in range(bursts):
        for client in clients:
            client.send(command)
        for client in clients:
            client.receive(length)
    each = 1e6 / (bursts * len(clients))
    return (time.perf_counter() - began) * each, (cluster.cpu_seconds() - cpu) * each


def fill(cluster, client, keys):
    for key in sum(keys.values(), []):
        client.call("SET", key, VALUE)


def rotx_one_node(options, cluster, client, clients, keys):
    """All partitions are on the node that is asked."""
    spread = [keys[place % PARTITIONS][place // PARTITIONS] for place in range(10)]
    # A PING is what the way there and back costs alone.
    kinds = {"PING": (encode("PING"), len(b"+PONG\r\n")), "GET": get(spread[0]),
             "ROTX 3": snapshot(spread[:3]), "ROTX 10": snapshot(spread)}
    found = {name: {"p50": quantile(spans, 0.5), "p99": quantile(spans, 0.99)}
             for name, spans in in_turn(cluster, client, kinds, options.operations).items()}
    for name, (command, length) in kinds.items():
        found[name]["burst"], found[name]["cpu"] = at_once(cluster, clients, command, length, options.operations // 16)
    return found


def rotx_two_nodes(options, cluster, client, clients, keys):
    """Partitions 0 and 2 are here, 1 and 3 on the other node. The node of the first key reads the snapshot."""
    here = keys[0] + keys[2]
    there = keys[1] + keys[3]
    kinds = {
        "GET": get(here[0]),
        "GET forwarded": get(there[0]),
        "ROTX 3, first key here": snapshot([here[0], there[0], there[1]]),
        "ROTX 10, first key here": snapshot(here[:5] + there[:5]),
        "ROTX 3, first key there": snapshot([there[0], here[0], here[1]]),
        "ROTX 10, first key there": snapshot(there[:5] + here[:5]),
    }
    spans = in_turn(cluster, client, kinds, options.operations)
    found = {name: {"p50": quantile(spans, 0.5), "p99": quantile(spans, 0.99)} for name, spans in spans.items()}
    forwarded = spans["GET forwarded"]
    for name in kinds:
        if name.startswith("ROTX"):
            # As many as there are keys on the other node than the one that reads the snapshot.
            count = 2 if name.startswith("ROTX 3") else 5
            groups = [max(forwarded[at:at + count]) for at in range(0, len(forwarded) - count + 1, count)]
            found[name]["aim"] = found["GET"]["p50"] + 1.5 * statistics.median(groups)
    return found


def rotx(options):
    one, two = [], []
    with Cluster(options.binary, ["causal"]) as small, Cluster(options.binary, ["causal"], 2) as large:
        client, far = small.client("a1", "causal"), large.client("a1", "causal")
        clients = [small.client("a1", "causal") for _ in range(16)]
        keys = keys_of_partitions(client, 10)
        fill(small, client, keys)
        fill(large, far, keys)
        for number in range(options.rounds + 1):
            progress(f"rotx, round {number} of {options.rounds}" if number else "rotx, to warm up")
            one.append(rotx_one_node(options, small, client, clients, keys))
            two.append(rotx_two_nodes(options, large, far, [], keys))
    one, two = one[1:], two[1:]
    say("All partitions on the node that is asked. One client in a closed loop, us; the aim is 1.5 x a GET at the median. Then 16 clients at once: us of time and of CPU (of all nodes) for each.\n")
    table("", "p50", "to a GET", "p99", "16 clients", "to a GET", "CPU", "to a GET")
    for name in one[0]:
        of = lambda what: figure((run[name][what] for run in one), "{:.0f}")
        ratio = lambda what: figure(run[name][what] / run["GET"][what] for run in one)
        row(name, of("p50"), ratio("p50"), of("p99"), of("burst"), ratio("burst"), of("cpu"), ratio("cpu"))
    say("\nThe partitions on two nodes of the site. One client in a closed loop, us. The aim at the median: a GET, and 1.5 x the slowest of as many forwarded GETs as there are keys on the other node (2 of 3, 5 of 10).\n")
    table("", "p50", "p99", "aim", "p50 to the aim")
    for name in two[0]:
        of = lambda what: figure((run[name][what] for run in two), "{:.0f}")
        aims = "aim" in two[0][name]
        row(name, of("p50"), of("p99"), of("aim") if aims else "",
            figure(run[name]["p50"] / run[name]["aim"] for run in two) if aims else "")


def main():
    parts = {"throughput": throughput, "before": before, "visibility": visibility, "rotx": rotx}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=parts, help="this part; may be given more than once")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--windows", type=int, default=15, help="of throughput, for each workload and keyspace")
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement of visibility")
    parser.add_argument("--operations", type=int, default=2000, help="of each kind in a round of rotx")
    parser.add_argument("--binary", default=str(ROOT / "target/release/turnbuckle"))
    parser.add_argument("--before", help="the binary of an older build; measured by the part of that name")
    parser.add_argument("--into", type=pathlib.Path, help="the page that has the tables of this command line")
    options = parser.parse_args()
    # Whoever ends this ends the clusters, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = options.only or [part for part in parts if part != "before" or options.before]
    others = [word for place, word in enumerate(sys.argv[1:], 1) if "--only" not in (word, sys.argv[place - 1])]
    places = {part: options.into and Place(options.into, "benches/causal.py", ["--only", part, *others]) for part in chosen}
    for part in chosen:
        LINES.clear()
        other = f"before: {version(options.before)}; " if options.before else ""
        rounds = f"{options.rounds} rounds, medians (least-greatest)" if part in ("visibility", "rotx") else f"{options.windows} windows, medians (quartiles)"
        say(f"Turnbuckle, {version(options.binary)}, {other}measured on {time.strftime('%Y-%m-%d')}; {rounds}; {os.cpu_count()} cores.\n")
        parts[part](options)
        if places[part]:
            places[part].put("\n".join(LINES) + "\n")


if __name__ == "__main__":
    main()
