"""The checks of README.md with redis-py, plain and in cluster mode."""

import os
import time
import uuid

import redis
from redis.cluster import RedisCluster

HOST, PORT = os.environ["HOST"], int(os.environ["PORT"])
PREFIX = uuid.uuid4().hex


def key(name):
    return f"{PREFIX}:{name}"


def connect(keyspace=None):
    def select(connection):
        connection.on_connect()
        if keyspace:
            connection.send_command("SELECT", keyspace)
            connection.read_response()

    return redis.Redis(host=HOST, port=PORT, redis_connect_func=select)


def strings(r):
    value = bytes(range(256))
    assert r.set(key("a"), value) and r.get(key("a")) == value
    assert r.exists(key("a")) == 1 and r.strlen(key("a")) == 256
    assert r.delete(key("a")) == 1 and r.get(key("a")) is None


def many(r):
    assert r.mset({key(f"m{number}"): number for number in range(100)})
    found = r.mget([key(f"m{number}") for number in range(100)])
    assert found == [str(number).encode() for number in range(100)]


def pipeline(r):
    with r.pipeline(transaction=False) as pipe:
        for number in range(100):
            pipe.set(key(f"p{number}"), number)
        for number in range(100):
            pipe.get(key(f"p{number}"))
        assert pipe.execute()[100:] == [str(number).encode() for number in range(100)]


def expiry(r):
    r.set(key("e"), "v", px=200)
    assert 0 < r.pttl(key("e")) <= 200
    r.set(key("long"), "v", ex=100)
    assert 90 < r.ttl(key("long")) <= 100
    time.sleep(0.3)
    assert r.get(key("e")) is None


def retimes(r):
    r.set(key("x"), "v")
    assert r.expire(key("x"), 100, nx=True) and not r.expire(key("x"), 50, nx=True)
    assert 95 <= r.ttl(key("x")) <= 100
    assert r.getex(key("x"), ex=200) == b"v" and 195 <= r.ttl(key("x")) <= 200
    assert r.persist(key("x")) and r.ttl(key("x")) == -1
    assert not r.persist(key("x")) and not r.expire(key("nothing"), 100)


def scan(r):
    names = {key(f"s{number}").encode() for number in range(300)}
    r.mset({name: "v" for name in names})
    assert set(r.scan_iter(match=key("s*"), count=50)) == names
    assert set(r.keys(key("s*"))) == names


def receipt(r):
    with r.client() as one:
        one.set(key("r"), "v")
        fields = one.execute_command("RECEIPT")
        names = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2]))
        assert names[b"given"] == b"causal"
        assert one.execute_command("GET", key("r"), "AT", "eventual") == b"v"


def counter(_):
    r = connect("consensus")
    for _ in range(50):
        r.incr(key("c"))
    assert r.get(key("c")) == b"50"


def lock(_):
    r = connect("consensus")
    assert r.set(key("l"), "me", nx=True)
    assert r.set(key("l"), "you", nx=True) is None


def transaction(_):
    r = connect("consensus")
    with r.pipeline(transaction=True) as pipe:
        pipe.set(key("t"), 1)
        pipe.incr(key("t"))
        assert pipe.execute() == [True, 2]


def transaction_elsewhere(r):
    with r.pipeline(transaction=True) as pipe:
        pipe.set(key("t"), 1)
        pipe.execute()


def hashes(r):
    r.hset(key("h"), "field", "value")


def messages(r):
    r.publish("channel", "message")


def flush(_):
    r = connect("eventual")
    r.mset({key(f"f{number}"): number for number in range(300)})
    assert r.flushdb()
    assert list(r.scan_iter()) == []


def cluster(_):
    r = RedisCluster(host=HOST, port=PORT)
    for number in range(100):
        r.set(key(f"c{number}"), number)
    assert [r.get(key(f"c{number}")) for number in range(100)] == [str(n).encode() for n in range(100)]


CHECKS = [
    strings, many, pipeline, expiry, retimes, scan, receipt, counter, lock, transaction, transaction_elsewhere,
    hashes, messages, flush, cluster,
]

if __name__ == "__main__":
    print("version", redis.__version__, sep="\t")
    client = connect()
    for check in CHECKS:
        try:
            check(client)
            answer = "ok"
        except redis.RedisError as error:
            answer = str(error)
        except AssertionError as error:
            answer = f"WRONG {error}"
        print(check.__name__, answer.replace("\n", " "), sep="\t", flush=True)
