"""The checks of README.md with the asyncio part of redis-py."""

import asyncio
import os
import uuid

import redis
import redis.asyncio as aio

HOST, PORT = os.environ["HOST"], int(os.environ["PORT"])
PREFIX = uuid.uuid4().hex


def key(name):
    return f"{PREFIX}:{name}"


def connect(keyspace=None):
    async def select(connection):
        await connection.on_connect()
        if keyspace:
            await connection.send_command("SELECT", keyspace)
            await connection.read_response()

    return aio.Redis(host=HOST, port=PORT, redis_connect_func=select)


async def strings(r):
    value = bytes(range(256))
    assert await r.set(key("a"), value) and await r.get(key("a")) == value
    assert await r.exists(key("a")) == 1 and await r.strlen(key("a")) == 256
    assert await r.delete(key("a")) == 1 and await r.get(key("a")) is None


async def many(r):
    assert await r.mset({key(f"m{number}"): number for number in range(100)})
    found = await r.mget([key(f"m{number}") for number in range(100)])
    assert found == [str(number).encode() for number in range(100)]


async def pipeline(r):
    async with r.pipeline(transaction=False) as pipe:
        for number in range(100):
            pipe.set(key(f"p{number}"), number)
        for number in range(100):
            pipe.get(key(f"p{number}"))
        assert (await pipe.execute())[100:] == [str(number).encode() for number in range(100)]


async def expiry(r):
    await r.set(key("e"), "v", px=200)
    assert 0 < await r.pttl(key("e")) <= 200
    await asyncio.sleep(0.3)
    assert await r.get(key("e")) is None


async def retimes(r):
    await r.set(key("x"), "v")
    assert await r.expire(key("x"), 100, nx=True) and not await r.expire(key("x"), 50, nx=True)
    assert 95 <= await r.ttl(key("x")) <= 100
    assert await r.getex(key("x"), ex=200) == b"v" and 195 <= await r.ttl(key("x")) <= 200
    assert await r.persist(key("x")) and await r.ttl(key("x")) == -1
    assert not await r.persist(key("x")) and not await r.expire(key("nothing"), 100)


async def scan(r):
    names = {key(f"s{number}").encode() for number in range(300)}
    await r.mset({name: "v" for name in names})
    assert {name async for name in r.scan_iter(match=key("s*"), count=50)} == names


async def receipt(r):
    async with r.client() as one:
        await one.set(key("r"), "v")
        fields = await one.execute_command("RECEIPT")
        names = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2]))
        assert names[b"given"] == b"causal"
        assert await one.execute_command("GET", key("r"), "AT", "eventual") == b"v"


async def counter(_):
    async with connect("consensus") as one:
        await asyncio.gather(*(one.incr(key("c")) for _ in range(50)))
        assert await one.get(key("c")) == b"50"


async def lock(_):
    async with connect("consensus") as one:
        assert await one.set(key("l"), "me", nx=True)
        assert await one.set(key("l"), "you", nx=True) is None


async def transaction(_):
    async with connect("consensus") as one, one.pipeline(transaction=True) as pipe:
        pipe.set(key("t"), 1)
        pipe.incr(key("t"))
        assert await pipe.execute() == [True, 2]


async def transaction_elsewhere(r):
    async with r.pipeline(transaction=True) as pipe:
        pipe.set(key("t"), 1)
        await pipe.execute()


async def counter_elsewhere(r):
    assert await r.incr(key("n")) == 1 and await r.incrby(key("n"), 10) == 11 and await r.decr(key("n")) == 10
    assert await r.incrbyfloat(key("n"), 0.5) == 10.5 and await r.get(key("n")) == b"10.5"


async def hashes(r):
    assert await r.hset(key("h"), mapping={"a": "1", "b": "two"}) == 2
    assert await r.hset(key("h"), mapping={"b": "2", "c": bytes(range(256)), "d": ""}) == 2
    assert await r.hget(key("h"), "b") == b"2" and await r.hget(key("h"), "nothing") is None
    assert await r.hmget(key("h"), "d", "nothing", "a") == [b"", None, b"1"]
    assert await r.hgetall(key("h")) == {b"a": b"1", b"b": b"2", b"c": bytes(range(256)), b"d": b""}
    assert await r.hincrby(key("h"), "a", 5) == 6 and await r.hincrby(key("h"), "a", -2) == 4
    assert await r.hdel(key("h"), "c", "d", "nothing") == 2
    assert await r.hexists(key("h"), "a") and not await r.hexists(key("h"), "c") and await r.hlen(key("h")) == 2
    assert dict([pair async for pair in r.hscan_iter(key("h"))]) == {b"a": b"4", b"b": b"2"}
    assert await r.expire(key("h"), 100) and 95 <= await r.ttl(key("h")) <= 100
    assert await r.delete(key("h")) == 1 and await r.exists(key("h")) == 0 and await r.hgetall(key("h")) == {}


async def sets(r):
    one, two = key("{tag}1"), key("{tag}2")
    assert await r.sadd(one, "a", "b") == 2 and await r.sadd(one, "b", "c", "d") == 2 and await r.sadd(two, "c", "e") == 2
    assert await r.sismember(one, "a") and not await r.sismember(one, "e") and await r.scard(one) == 4
    assert await r.srem(one, "a", "nothing") == 1 and await r.smembers(one) == {b"b", b"c", b"d"}
    assert await r.sunion(one, two) == {b"b", b"c", b"d", b"e"} and await r.sinter(one, two) == {b"c"}


async def heard(listener):
    """What the listener hears next: the type, the channel and what was said."""
    message = await listener.get_message(timeout=10) or {}
    return message.get("type"), message.get("channel"), message.get("data")


async def messages(r):
    channel, pattern = key("news:1").encode(), key("news:*").encode()
    async with connect() as one, one.pubsub() as listener:
        await listener.subscribe(channel)
        assert await heard(listener) == ("subscribe", channel, 1)
        await listener.psubscribe(pattern)
        assert await heard(listener) == ("psubscribe", pattern, 2)
        assert isinstance(await r.publish(key("other"), "not for us"), int)
        assert isinstance(await r.publish(channel, "hello"), int)
        assert await heard(listener) == ("message", channel, b"hello")
        assert await heard(listener) == ("pmessage", channel, b"hello")
        await listener.unsubscribe(channel)
        assert await heard(listener) == ("unsubscribe", channel, 1)
        await listener.punsubscribe(pattern)
        assert await heard(listener) == ("punsubscribe", pattern, 0)


async def flush(_):
    async with connect("eventual") as one:
        await one.mset({key(f"f{number}"): number for number in range(300)})
        assert await one.flushdb()
        assert [name async for name in one.scan_iter()] == []


async def cluster(_):
    r = aio.RedisCluster(host=HOST, port=PORT)
    for number in range(100):
        await r.set(key(f"c{number}"), number)
    assert [await r.get(key(f"c{number}")) for number in range(100)] == [str(n).encode() for n in range(100)]
    await r.aclose()


CHECKS = [
    strings, many, pipeline, expiry, retimes, scan, receipt, counter, counter_elsewhere, lock, transaction, transaction_elsewhere,
    hashes, sets, messages, flush, cluster,
]


async def main():
    print("version", redis.__version__, sep="\t")
    client = connect()
    for check in CHECKS:
        try:
            await check(client)
            answer = "ok"
        except redis.RedisError as error:
            answer = str(error)
        except AssertionError as error:
            answer = f"WRONG {error}"
        print(check.__name__, answer.replace("\n", " "), sep="\t", flush=True)
    await client.aclose()


asyncio.run(main())
