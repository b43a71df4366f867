#!/usr/bin/env python3
"""What TLS costs, beside Redis with TLS, in one run: `benches/tls.py`.

redis-benchmark, 50 connections, 100,000 random keys with values of 128 bytes, in turn against
- redis-server, without and with TLS;
- site a of a three-site cluster on the same machine, without and with TLS. With it, the links between the sites have TLS, too.

Servers that are not measured are paused. Each figure is the median of the rounds; a ratio is that of the medians. Prints a table in Markdown. `--into docs/tls.md` also writes it there,
with the commit and the date.
"""
import argparse
import os
import pathlib
import statistics
import sys
import time

from page import Place, version
from redis import ROOT, Redis, Turnbuckle, put

TESTS = ["SET", "GET"]


class RedisTls(Redis):
    """With the certificate of the first node of that cluster."""

    name = "Redis TLS"

    def __init__(self, fsync, of):
        tls = os.path.dirname(of.authority)
        self.tls = ["--tls-cert-file", os.path.join(tls, "a1.crt"), "--tls-key-file", os.path.join(tls, "a1.key"),
                    "--tls-ca-cert-file", of.authority, "--tls-auth-clients", "no"]
        self.arguments, self.authority = of.arguments, of.authority
        super().__init__(fsync)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=100_000, help="per measurement, without pipelining; 4 x with it")
    parser.add_argument("--binary", default=str(ROOT / "target/release/turnbuckle"))
    parser.add_argument("--into", type=pathlib.Path, help="the page that has the table of this command line")
    options = parser.parse_args()

    place = options.into and Place(options.into, "benches/tls.py", sys.argv[1:])
    servers, results = [], {}
    try:
        servers.append(Turnbuckle("Turnbuckle TLS", options.binary, "interval(10ms)", tls=True))
        servers.append(RedisTls("everysec", servers[0]))
        servers.append(Redis("everysec"))
        servers.append(Turnbuckle("Turnbuckle", options.binary, "interval(10ms)"))
        for server in servers:
            server.fill(TESTS)
            server.measure("SET", 16, options.requests)
            server.pause()
        for _ in range(options.rounds):
            for pipeline in (1, 16):
                for test in TESTS:
                    for server in servers:
                        server.go_on()
                        rate, _ = server.measure(test, pipeline, options.requests * (4 if pipeline > 1 else 1))
                        server.pause()
                        results.setdefault((test, pipeline, server.name), []).append(rate)
    finally:
        for server in reversed(servers):
            server.stop()

    lines = [f"Turnbuckle, {version(options.binary)}, measured on {time.strftime('%Y-%m-%d')}; {options.rounds} rounds of {options.requests:,} requests, medians (least-greatest), {os.cpu_count()} cores:", "",
             "| | Redis op/s | with TLS | | Turnbuckle op/s | with TLS | |", "|---|---:|---:|---:|---:|---:|---:|"]
    for pipeline in (1, 16):
        for test in TESTS:
            cells = [test + (f" -P {pipeline}" if pipeline > 1 else "")]
            for name in ("Redis", "Turnbuckle"):
                plain, tls = results[test, pipeline, name], results[test, pipeline, f"{name} TLS"]
                cells += [f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})" for rates in (plain, tls)]
                cells.append(f"{statistics.median(tls) / statistics.median(plain):.2f}")
            lines.append(f"| {' | '.join(cells)} |")
    put(lines, place)


if __name__ == "__main__":
    main()
