"""The photo album, on a demo of three sites whose delays let a comment arrive before its photo: `make test-redis-py`.

a is 300 ms from c, and b is 20 ms from both. Alice puts a photo into the album at a. Bob sees it at b, and comments. In a causal
keyspace, no reader at any site sees the comment without its photo. In an eventual keyspace, a reader at c does."""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import redis

ROOT = pathlib.Path(__file__).resolve().parents[2]
WAN = 'a-c = "300ms"\na-b = "20ms"\nb-c = "20ms"\n'
ROUNDS = 30


def until(what, condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"FAILED {what} did not happen within {seconds} s")


def client(port, keyspace):
    # One connection: a connection is a session.
    connection = redis.Redis(port=port, protocol=3, single_connection_client=True)
    connection.execute_command("SELECT", keyspace)
    return connection


def one_round(ports, keyspace, number):
    """Returns, for each site, how often a comment was seen without its photo, by two GETs and by an MGET."""
    photo, comment = f"photo:{number}", f"comment:{number}"
    alice, bob = client(ports[0], keyspace), client(ports[1], keyspace)
    readers = [client(port, keyspace) for port in ports]
    seen = [False] * len(readers)
    torn = [0] * len(readers)
    alice.set(photo, "sunset")
    until("the photo reaches b", lambda: bob.get(photo))
    bob.set(comment, "lovely")
    while not all(seen):
        for site, reader in enumerate(readers):
            if reader.get(comment):
                seen[site] = True
                torn[site] += reader.get(photo) is None
            both = reader.mget(comment, photo)
            torn[site] += both[0] is not None and both[1] is None
    return torn


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "target/release/turnbuckle")
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as wan:
        wan.write(WAN)
        wan.flush()
        demo = subprocess.Popen([binary, "demo", "--json", "--wan", wan.name], stdout=subprocess.PIPE, text=True)
        try:
            sites = json.loads(demo.stdout.readline())["sites"]
            ports = [int(site["resp"].rsplit(":", 1)[1]) for site in sites]
            for number in range(ROUNDS):
                torn = one_round(ports, "causal", number)
                if any(torn):
                    sys.exit(f"FAILED causal: in round {number} a comment was seen without its photo: {torn} times at a, b, c")
            print(f"ok     causal: {ROUNDS} comments, none seen without its photo at any site")
            began = time.monotonic()
            number = 0
            while not any(one_round(ports, "eventual", number)):
                number += 1
                if time.monotonic() - began > 60:
                    sys.exit("FAILED eventual: no comment was seen without its photo within a minute")
            print(f"ok     eventual: comment {number + 1} was seen without its photo after {time.monotonic() - began:.1f} s")
        finally:
            demo.terminate()
            demo.wait()


main()
