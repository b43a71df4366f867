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


def counter_elsewhere(r):
    assert r.incr(key("n")) == 1 and r.incrby(key("n"), 10) == 11 and r.decr(key("n")) == 10
    assert r.incrbyfloat(key("n"), 0.5) == 10.5 and r.get(key("n")) == b"10.5"


def hashes(r):
    assert r.hset(key("h"), mapping={"a": "1", "b": "two"}) == 2
    assert r.hset(key("h"), mapping={"b": "2", "c": bytes(range(256)), "d": ""}) == 2
    assert r.hget(key("h"), "b") == b"2" and r.hget(key("h"), "nothing") is None
    assert r.hmget(key("h"), "d", "nothing", "a") == [b"", None, b"1"]
    assert r.hgetall(key("h")) == {b"a": b"1", b"b": b"2", b"c": bytes(range(256)), b"d": b""}
    assert r.hincrby(key("h"), "a", 5) == 6 and r.hincrby(key("h"), "a", -2) == 4
    assert r.hdel(key("h"), "c", "d", "nothing") == 2
    assert r.hexists(key("h"), "a") and not r.hexists(key("h"), "c") and r.hlen(key("h")) == 2
    assert dict(r.hscan_iter(key("h"))) == {b"a": b"4", b"b": b"2"}
    assert r.expire(key("h"), 100) and 95 <= r.ttl(key("h")) <= 100
    assert r.delete(key("h")) == 1 and r.exists(key("h")) == 0 and r.hgetall(key("h")) == {}


def sets(r):
    one, two = key("{tag}1"), key("{tag}2")
    assert r.sadd(one, "a", "b") == 2 and r.sadd(one, "b", "c", "d") == 2 and r.sadd(two, "c", "e") == 2
    assert r.sismember(one, "a") and not r.sismember(one, "e") and r.scard(one) == 4
    assert r.srem(one, "a", "nothing") == 1 and r.smembers(one) == {b"b", b"c", b"d"}
    assert r.sunion(one, two) == {b"b", b"c", b"d", b"e"} and r.sinter(one, two) == {b"c"}


def heard(listener):
    """What the listener hears next: the type, the channel and what was said."""
    message = listener.get_message(timeout=10) or {}
    return message.get("type"), message.get("channel"), message.get("data")


def messages(r):
    channel, pattern = key("news:1").encode(), key("news:*").encode()
    with connect().pubsub() as listener:
        listener.subscribe(channel)
        assert heard(listener) == ("subscribe", channel, 1)
        listener.psubscribe(pattern)
        assert heard(listener) == ("psubscribe", pattern, 2)
        assert isinstance(r.publish(key("other"), "not for us"), int)
        assert isinstance(r.publish(channel, "hello"), int)
        assert heard(listener) == ("message", channel, b"hello")
        assert heard(listener) == ("pmessage", channel, b"hello")
        listener.unsubscribe(channel)
        assert heard(listener) == ("unsubscribe", channel, 1)
        listener.punsubscribe(pattern)
        assert heard(listener) == ("punsubscribe", pattern, 0)


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
    strings, many, pipeline, expiry, retimes, scan, receipt, counter, counter_elsewhere, lock, transaction, transaction_elsewhere,
    hashes, sets, messages, flush, cluster,
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
