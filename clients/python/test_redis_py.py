"""Tests an unchanged redis-py against a cluster of three sites: `make test-redis-py`."""
import json
import pathlib
import subprocess
import sys
import time

import redis
from redis.cluster import RedisCluster

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(name, condition):
    print(("ok    " if condition else "FAILED") + " " + name)
    if not condition:
        sys.exit(1)


def eventually(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


def commands(name, client):
    client.delete("x", "y", "z")
    check(f"{name}: set and get", client.set("x", "1") and client.get("x") == b"1")
    check(f"{name}: binary and empty", client.set(b"\x00\xff", b"") and client.get(b"\x00\xff") == b"")
    check(f"{name}: exists, strlen, delete", client.exists("x") == 1 and client.strlen("x") == 1 and client.delete("x") == 1)
    check(f"{name}: nothing there", client.get("x") is None)
    try:
        client.set("x", "1", ex=10)
        check(f"{name}: expiry is refused", False)
    except redis.ResponseError as error:
        check(f"{name}: expiry is refused: {error}", str(error).startswith("UNSUPPORTED"))


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "target/release/turnbuckle")
    demo = subprocess.Popen([binary, "demo", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        sites = json.loads(demo.stdout.readline())["sites"]
        ports = [int(site["resp"].rsplit(":", 1)[1]) for site in sites]
        for protocol in (2, 3):
            client = redis.Redis(port=ports[0], protocol=protocol)
            commands(f"RESP{protocol}", client)
            check(f"RESP{protocol}: mset and mget", client.mset({"y": "2", "z": "3"}) and client.mget("y", "none", "z") == [b"2", None, b"3"])
            pipeline = client.pipeline(transaction=False)
            for number in range(1000):
                pipeline.set(f"p{number}", number)
            check(f"RESP{protocol}: a pipeline of 1000", all(pipeline.execute()))
            check(f"RESP{protocol}: scan", len(set(client.scan_iter(match="p*", count=100))) == 1000)
        far = redis.Redis(port=ports[-1])
        near = redis.Redis(port=ports[0])
        near.set("far", "away")
        check("not at the other site before the WAN's delay", far.get("far") is None)
        check("and there after it", eventually(lambda: far.get("far") == b"away"))
        receipt = far.execute_command("RECEIPT")
        check(f"a receipt: {receipt}", b"server" in receipt)
        cluster = RedisCluster(host="127.0.0.1", port=ports[0])
        commands("cluster mode", cluster)
        check("cluster mode: many keys", all(cluster.set(f"c{number}", number) for number in range(200)))
        check("cluster mode: and back", all(cluster.get(f"c{number}") == str(number).encode() for number in range(200)))
    finally:
        demo.terminate()
        demo.wait()
    print("all passed")


if __name__ == "__main__":
    main()
