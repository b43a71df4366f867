// The checks of README.md with node-redis.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { createRequire } from "node:module";
import { RESP_TYPES, createClient, createCluster } from "redis";

const { HOST, PORT } = process.env;
const url = `redis://${HOST}:${PORT}`;
const prefix = randomUUID();
const key = (name) => `${prefix}:${name}`;
const numbers = (count) => [...Array(count).keys()];
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const open = [];

async function connect(keyspace) {
  const client = createClient({ url });
  client.on("error", () => {});
  await client.connect();
  open.push(client);
  if (keyspace) await client.sendCommand(["SELECT", keyspace]);
  return client;
}

const checks = {
  async strings(r) {
    const value = Buffer.from(numbers(256));
    await r.set(key("a"), value);
    const bytes = r.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
    assert.deepEqual(await bytes.get(key("a")), value);
    assert.equal(await r.exists(key("a")), 1);
    assert.equal(await r.del(key("a")), 1);
    assert.equal(await r.get(key("a")), null);
  },
  async many(r) {
    await r.mSet(numbers(100).map((number) => [key(`m${number}`), String(number)]));
    const found = await r.mGet(numbers(100).map((number) => key(`m${number}`)));
    assert.deepEqual(found, numbers(100).map(String));
  },
  async pipeline(r) {
    await Promise.all(numbers(100).map((number) => r.set(key(`p${number}`), String(number))));
    const found = await Promise.all(numbers(100).map((number) => r.get(key(`p${number}`))));
    assert.deepEqual(found, numbers(100).map(String));
  },
  async expiry(r) {
    await r.set(key("e"), "v", { expiration: { type: "PX", value: 200 } });
    const left = await r.pTTL(key("e"));
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
    assert.equal(await r.getEx(key("x"), { type: "EX", value: 200 }), "v");
    const longer = await r.ttl(key("x"));
    assert.ok(longer >= 195 && longer <= 200);
    assert.equal(await r.persist(key("x")), 1);
    assert.equal(await r.ttl(key("x")), -1);
    assert.equal(await r.persist(key("x")), 0);
    assert.equal(await r.expire(key("nothing"), 100), 0);
  },
  async scan(r) {
    await r.mSet(numbers(300).map((number) => [key(`s${number}`), "v"]));
    const found = new Set();
    for await (const names of r.scanIterator({ MATCH: key("s*"), COUNT: 50 })) names.forEach((name) => found.add(name));
    assert.equal(found.size, 300);
  },
  async receipt() {
    const one = await connect();
    await one.set(key("r"), "v");
    const fields = await one.sendCommand(["RECEIPT"]);
    const given = Array.isArray(fields) ? fields[fields.indexOf("given") + 1] : fields.given;
    assert.equal(given, "causal");
    assert.equal(await one.sendCommand(["GET", key("r"), "AT", "eventual"]), "v");
  },
  async counter() {
    const r = await connect("consensus");
    await Promise.all(numbers(50).map(() => r.incr(key("c"))));
    assert.equal(await r.get(key("c")), "50");
  },
  async lock() {
    const r = await connect("consensus");
    assert.equal(await r.set(key("l"), "me", { condition: "NX" }), "OK");
    assert.equal(await r.set(key("l"), "you", { condition: "NX" }), null);
  },
  async transaction() {
    const r = await connect("consensus");
    assert.deepEqual(await r.multi().set(key("t"), "1").incr(key("t")).exec(), ["OK", 2]);
  },
  async transaction_elsewhere(r) {
    await r.multi().set(key("t"), "1").exec();
  },
  async counter_elsewhere(r) {
    assert.equal(await r.incr(key("n")), 1);
    assert.equal(await r.incrBy(key("n"), 10), 11);
    assert.equal(await r.decr(key("n")), 10);
    assert.equal(await r.incrByFloat(key("n"), 0.5), "10.5");
    assert.equal(await r.get(key("n")), "10.5");
  },
  async hashes(r) {
    assert.equal(await r.hSet(key("h"), { a: "1", b: "two" }), 2);
    assert.equal(await r.hSet(key("h"), { b: "2", c: "three", d: "" }), 2);
    assert.equal(await r.hGet(key("h"), "b"), "2");
    assert.equal(await r.hGet(key("h"), "nothing"), null);
    assert.deepEqual(await r.hmGet(key("h"), ["d", "nothing", "a"]), ["", null, "1"]);
    assert.deepEqual({ ...(await r.hGetAll(key("h"))) }, { a: "1", b: "2", c: "three", d: "" });
    assert.equal(await r.hIncrBy(key("h"), "a", 5), 6);
    assert.equal(await r.hIncrBy(key("h"), "a", -2), 4);
    assert.equal(await r.hDel(key("h"), ["c", "d", "nothing"]), 2);
    assert.equal(await r.hExists(key("h"), "a"), 1);
    assert.equal(await r.hExists(key("h"), "c"), 0);
    assert.equal(await r.hLen(key("h")), 2);
    const left = {};
    for await (const entries of r.hScanIterator(key("h"))) entries.forEach(({ field, value }) => (left[field] = value));
    assert.deepEqual(left, { a: "4", b: "2" });
    assert.equal(await r.expire(key("h"), 100), 1);
    const time = await r.ttl(key("h"));
    assert.ok(time >= 95 && time <= 100);
    assert.equal(await r.del(key("h")), 1);
    assert.equal(await r.exists(key("h")), 0);
    assert.deepEqual({ ...(await r.hGetAll(key("h"))) }, {});
  },
  async sets(r) {
    const [one, two] = [key("{tag}1"), key("{tag}2")];
    assert.equal(await r.sAdd(one, ["a", "b"]), 2);
    assert.equal(await r.sAdd(one, ["b", "c", "d"]), 2);
    assert.equal(await r.sAdd(two, ["c", "e"]), 2);
    assert.equal(await r.sIsMember(one, "a"), 1);
    assert.equal(await r.sIsMember(one, "e"), 0);
    assert.equal(await r.sCard(one), 4);
    assert.equal(await r.sRem(one, ["a", "nothing"]), 1);
    assert.deepEqual((await r.sMembers(one)).sort(), ["b", "c", "d"]);
    assert.deepEqual((await r.sUnion([one, two])).sort(), ["b", "c", "d", "e"]);
    assert.deepEqual(await r.sInter([one, two]), ["c"]);
  },
  async messages(r) {
    const [channel, pattern] = [key("news:1"), key("news:*")];
    const listener = await connect();
    const [heard, news] = [[], new EventEmitter()];
    const listen = (name) => (message, from) => {
      heard.push([name, from, message]);
      news.emit(name);
    };
    const [onMessage, onPattern] = [listen("message"), listen("pmessage")];
    await listener.subscribe(channel, onMessage);
    await listener.pSubscribe(pattern, onPattern);
    const signal = AbortSignal.timeout(10_000);
    const both = Promise.all([once(news, "message", { signal }), once(news, "pmessage", { signal })]);
    const [other, count] = await Promise.all([r.publish(key("other"), "not for us"), r.publish(channel, "hello")]);
    assert.ok(Number.isInteger(other) && Number.isInteger(count));
    await both;
    await listener.unsubscribe(channel, onMessage);
    await listener.pUnsubscribe(pattern, onPattern);
    assert.deepEqual(heard, [["message", channel, "hello"], ["pmessage", channel, "hello"]]);
  },
  async flush() {
    const r = await connect("eventual");
    await r.mSet(numbers(300).map((number) => [key(`f${number}`), String(number)]));
    assert.equal(await r.flushDb(), "OK");
    assert.equal(await r.dbSize(), 0);
  },
  async cluster() {
    const r = createCluster({ rootNodes: [{ url }] });
    await r.connect();
    open.push(r);
    for (const number of numbers(100)) await r.set(key(`c${number}`), String(number));
    const found = await Promise.all(numbers(100).map((number) => r.get(key(`c${number}`))));
    assert.deepEqual(found, numbers(100).map(String));
  },
};

console.log(`version\t${createRequire(import.meta.url)("redis/package.json").version}`);
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
open.forEach((client) => client.destroy());
