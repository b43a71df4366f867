// The checks of README.md with node-redis.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
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
  async hashes(r) {
    await r.hSet(key("h"), "field", "value");
  },
  async messages(r) {
    await r.publish("channel", "message");
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
