// The checks of README.md with ioredis.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createRequire } from "node:module";
import Redis from "ioredis";

const { HOST: host, PORT: port } = process.env;
const prefix = randomUUID();
const key = (name) => `${prefix}:${name}`;
const numbers = (count) => [...Array(count).keys()];
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const open = [];

async function connect(keyspace) {
  const client = new Redis({ host, port, maxRetriesPerRequest: 1 });
  open.push(client);
  if (keyspace) await client.select(keyspace);
  return client;
}

const checks = {
  async strings(r) {
    const value = Buffer.from(numbers(256));
    await r.set(key("a"), value);
    assert.deepEqual(await r.getBuffer(key("a")), value);
    assert.equal(await r.exists(key("a")), 1);
    assert.equal(await r.del(key("a")), 1);
    assert.equal(await r.get(key("a")), null);
  },
  async many(r) {
    await r.mset(new Map(numbers(100).map((number) => [key(`m${number}`), number])));
    const found = await r.mget(numbers(100).map((number) => key(`m${number}`)));
    assert.deepEqual(found, numbers(100).map(String));
  },
  async pipeline(r) {
    const pipe = r.pipeline();
    numbers(100).forEach((number) => pipe.set(key(`p${number}`), number));
    numbers(100).forEach((number) => pipe.get(key(`p${number}`)));
    const answers = (await pipe.exec()).map(([error, answer]) => error ?? answer);
    assert.deepEqual(answers.slice(100), numbers(100).map(String));
  },
  async expiry(r) {
    await r.set(key("e"), "v", "PX", 200);
    const left = await r.pttl(key("e"));
    assert.ok(left > 0 && left <= 200);
    await sleep(300);
    assert.equal(await r.get(key("e")), null);
  },
  async retimes(r) {
    await r.set(key("x"), "v");
    assert.equal(await r.expire(key("x"), 100, "NX"), 1);
    assert.equal(await r.expire(key("x"), 50, "NX"), 0);
    const left = await r.ttl(key("x"));
    assert.ok(left >= 95 && left <= 100);
    assert.equal(await r.getex(key("x"), "EX", 200), "v");
    const longer = await r.ttl(key("x"));
    assert.ok(longer >= 195 && longer <= 200);
    assert.equal(await r.persist(key("x")), 1);
    assert.equal(await r.ttl(key("x")), -1);
    assert.equal(await r.persist(key("x")), 0);
    assert.equal(await r.expire(key("nothing"), 100), 0);
  },
  async scan(r) {
    await r.mset(new Map(numbers(300).map((number) => [key(`s${number}`), "v"])));
    const found = new Set();
    for await (const names of r.scanStream({ match: key("s*"), count: 50 })) names.forEach((name) => found.add(name));
    assert.equal(found.size, 300);
  },
  async receipt() {
    const one = await connect();
    await one.set(key("r"), "v");
    const fields = await one.call("RECEIPT");
    assert.equal(fields[fields.indexOf("given") + 1], "causal");
    assert.equal(await one.call("GET", key("r"), "AT", "eventual"), "v");
  },
  async counter() {
    const r = await connect("consensus");
    await Promise.all(numbers(50).map(() => r.incr(key("c"))));
    assert.equal(await r.get(key("c")), "50");
  },
  async lock() {
    const r = await connect("consensus");
    assert.equal(await r.set(key("l"), "me", "NX"), "OK");
    assert.equal(await r.set(key("l"), "you", "NX"), null);
  },
  async transaction() {
    const r = await connect("consensus");
    const answers = await r.multi().set(key("t"), 1).incr(key("t")).exec();
    assert.deepEqual(answers.map(([error, answer]) => error ?? answer), ["OK", 2]);
  },
  async transaction_elsewhere(r) {
    await r.multi().set(key("t"), 1).exec();
  },
  async counter_elsewhere(r) {
    assert.equal(await r.incr(key("n")), 1);
    assert.equal(await r.incrby(key("n"), 10), 11);
    assert.equal(await r.decr(key("n")), 10);
    assert.equal(await r.incrbyfloat(key("n"), 0.5), "10.5");
    assert.equal(await r.get(key("n")), "10.5");
  },
  async hashes(r) {
    assert.equal(await r.hset(key("h"), { a: "1", b: "two" }), 2);
    assert.equal(await r.hset(key("h"), { b: "2", c: "three", d: "" }), 2);
    assert.equal(await r.hget(key("h"), "b"), "2");
    assert.equal(await r.hget(key("h"), "nothing"), null);
    assert.deepEqual(await r.hmget(key("h"), "d", "nothing", "a"), ["", null, "1"]);
    assert.deepEqual({ ...(await r.hgetall(key("h"))) }, { a: "1", b: "2", c: "three", d: "" });
    assert.equal(await r.hincrby(key("h"), "a", 5), 6);
    assert.equal(await r.hincrby(key("h"), "a", -2), 4);
    assert.equal(await r.hdel(key("h"), "c", "d", "nothing"), 2);
    assert.equal(await r.hexists(key("h"), "a"), 1);
    assert.equal(await r.hexists(key("h"), "c"), 0);
    assert.equal(await r.hlen(key("h")), 2);
    const left = {};
    for await (const words of r.hscanStream(key("h"))) {
      for (let at = 0; at < words.length; at += 2) left[words[at]] = words[at + 1];
    }
    assert.deepEqual(left, { a: "4", b: "2" });
    assert.equal(await r.expire(key("h"), 100), 1);
    const time = await r.ttl(key("h"));
    assert.ok(time >= 95 && time <= 100);
    assert.equal(await r.del(key("h")), 1);
    assert.equal(await r.exists(key("h")), 0);
    assert.deepEqual({ ...(await r.hgetall(key("h"))) }, {});
  },
  async sets(r) {
    const [one, two] = [key("{tag}1"), key("{tag}2")];
    assert.equal(await r.sadd(one, "a", "b"), 2);
    assert.equal(await r.sadd(one, "b", "c", "d"), 2);
    assert.equal(await r.sadd(two, "c", "e"), 2);
    assert.equal(await r.sismember(one, "a"), 1);
    assert.equal(await r.sismember(one, "e"), 0);
    assert.equal(await r.scard(one), 4);
    assert.equal(await r.srem(one, "a", "nothing"), 1);
    assert.deepEqual((await r.smembers(one)).sort(), ["b", "c", "d"]);
    assert.deepEqual((await r.sunion(one, two)).sort(), ["b", "c", "d", "e"]);
    assert.deepEqual(await r.sinter(one, two), ["c"]);
  },
  async messages(r) {
    const [channel, pattern] = [key("news:1"), key("news:*")];
    const listener = await connect();
    const heard = [];
    listener.on("message", (...words) => heard.push(words));
    listener.on("pmessage", (...words) => heard.push(words));
    assert.equal(await listener.subscribe(channel), 1);
    assert.equal(await listener.psubscribe(pattern), 2);
    const signal = AbortSignal.timeout(10_000);
    const both = Promise.all([once(listener, "message", { signal }), once(listener, "pmessage", { signal })]);
    const [other, count] = await Promise.all([r.publish(key("other"), "not for us"), r.publish(channel, "hello")]);
    assert.ok(Number.isInteger(other) && Number.isInteger(count));
    await both;
    assert.equal(await listener.unsubscribe(channel), 1);
    assert.equal(await listener.punsubscribe(pattern), 0);
    assert.deepEqual(heard, [[channel, "hello"], [pattern, channel, "hello"]]);
  },
  async flush() {
    const r = await connect("eventual");
    await r.mset(new Map(numbers(300).map((number) => [key(`f${number}`), number])));
    assert.equal(await r.flushdb(), "OK");
    assert.equal(await r.dbsize(), 0);
  },
  async cluster() {
    const r = new Redis.Cluster([{ host, port }]);
    open.push(r);
    for (const number of numbers(100)) await r.set(key(`c${number}`), number);
    const found = await Promise.all(numbers(100).map((number) => r.get(key(`c${number}`))));
    assert.deepEqual(found, numbers(100).map(String));
  },
};

console.log(`version\t${createRequire(import.meta.url)("ioredis/package.json").version}`);
const client = await connect();
for (const [name, check] of Object.entries(checks)) {
  let answer = "ok";
  try {
    await check(client);
  } catch (error) {
    answer = error instanceof assert.AssertionError ? `WRONG ${error.message}` : error.message;
  }
  console.log(`${name}\t${answer.replaceAll("\n", " ")}`);
}
open.forEach((client) => client.disconnect());
