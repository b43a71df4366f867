import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.args.ExpiryOption;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.params.GetExParams;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** The checks of README.md with Jedis. */
public final class JedisChecks {
    static final String HOST = System.getenv("HOST");
    static final int PORT = Integer.parseInt(System.getenv("PORT"));
    static final String PREFIX = UUID.randomUUID().toString();

    static String key(String name) {
        return PREFIX + ":" + name;
    }

    static ProtocolCommand command(String name) {
        return () -> name.getBytes(StandardCharsets.UTF_8);
    }

    static Jedis connect(String keyspace) {
        Jedis jedis = new Jedis(HOST, PORT);
        if (keyspace != null) {
            jedis.sendCommand(command("SELECT"), keyspace);
        }
        return jedis;
    }

    /** Puts what it hears into a queue. */
    static final class Listener extends JedisPubSub {
        final BlockingQueue<String> heard = new LinkedBlockingQueue<>();

        void hears(String expected) throws InterruptedException {
            String next = heard.poll(10, TimeUnit.SECONDS);
            Checks.holds(expected.equals(next), "heard: " + next);
        }

        @Override
        public void onMessage(String channel, String message) {
            heard.add("message " + channel + " " + message);
        }

        @Override
        public void onPMessage(String pattern, String channel, String message) {
            heard.add("pmessage " + pattern + " " + channel + " " + message);
        }

        @Override
        public void onSubscribe(String channel, int count) {
            heard.add("subscribe " + channel + " " + count);
        }

        @Override
        public void onPSubscribe(String pattern, int count) {
            heard.add("psubscribe " + pattern + " " + count);
        }

        @Override
        public void onUnsubscribe(String channel, int count) {
            heard.add("unsubscribe " + channel + " " + count);
        }

        @Override
        public void onPUnsubscribe(String pattern, int count) {
            heard.add("punsubscribe " + pattern + " " + count);
        }
    }

    public static void main(String[] args) {
        System.out.println("version\t" + args[0]);
        Jedis r = connect(null);
        new Checks()
                .add("strings", () -> {
                    byte[] value = new byte[256];
                    for (int at = 0; at < 256; at++) {
                        value[at] = (byte) at;
                    }
                    r.set(key("a").getBytes(), value);
                    Checks.holds(Arrays.equals(r.get(key("a").getBytes()), value), "a value");
                    Checks.holds(r.exists(key("a")), "EXISTS");
                    Checks.holds(r.del(key("a")) == 1 && r.get(key("a")) == null, "DEL");
                })
                .add("many", () -> {
                    List<String> pairs = new ArrayList<>(), keys = new ArrayList<>(), values = new ArrayList<>();
                    for (int number = 0; number < 100; number++) {
                        keys.add(key("m" + number));
                        values.add("" + number);
                        pairs.addAll(List.of(key("m" + number), "" + number));
                    }
                    r.mset(pairs.toArray(new String[0]));
                    Checks.holds(r.mget(keys.toArray(new String[0])).equals(values), "MGET");
                })
                .add("pipeline", () -> {
                    Pipeline pipe = r.pipelined();
                    List<Response<String>> answers = new ArrayList<>();
                    for (int number = 0; number < 100; number++) {
                        pipe.set(key("p" + number), "" + number);
                    }
                    for (int number = 0; number < 100; number++) {
                        answers.add(pipe.get(key("p" + number)));
                    }
                    pipe.sync();
                    for (int number = 0; number < 100; number++) {
                        Checks.holds(answers.get(number).get().equals("" + number), "an answer");
                    }
                })
                .add("expiry", () -> {
                    r.set(key("e"), "v", SetParams.setParams().px(200));
                    long left = r.pttl(key("e"));
                    Thread.sleep(300);
                    Checks.holds(left > 0 && left <= 200 && r.get(key("e")) == null, "the time");
                })
                .add("retimes", () -> {
                    r.set(key("x"), "v");
                    Checks.holds(r.expire(key("x"), 100, ExpiryOption.NX) == 1, "EXPIRE");
                    Checks.holds(r.expire(key("x"), 50, ExpiryOption.NX) == 0, "EXPIRE again");
                    long left = r.ttl(key("x"));
                    Checks.holds(left >= 95 && left <= 100, "the time");
                    Checks.holds(r.getEx(key("x"), new GetExParams().ex(200)).equals("v"), "GETEX");
                    long longer = r.ttl(key("x"));
                    Checks.holds(longer >= 195 && longer <= 200, "the longer time");
                    Checks.holds(r.persist(key("x")) == 1 && r.ttl(key("x")) == -1, "PERSIST");
                    Checks.holds(r.persist(key("x")) == 0, "PERSIST again");
                    Checks.holds(r.expire(key("nothing"), 100) == 0, "EXPIRE of nothing");
                })
                .add("scan", () -> {
                    for (int number = 0; number < 300; number++) {
                        r.set(key("s" + number), "v");
                    }
                    Set<String> found = new HashSet<>();
                    String cursor = ScanParams.SCAN_POINTER_START;
                    do {
                        ScanResult<String> page = r.scan(cursor, new ScanParams().match(key("s*")).count(50));
                        found.addAll(page.getResult());
                        cursor = page.getCursor();
                    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
                    Checks.holds(found.size() == 300, "the keys");
                })
                .add("receipt", () -> {
                    try (Jedis one = connect(null)) {
                        one.set(key("r"), "v");
                        List<?> fields = (List<?>) one.sendCommand(command("RECEIPT"));
                        Checks.holds(new String((byte[]) fields.get(0)).length() > 0, "the receipt");
                        Object value = one.sendCommand(command("GET"), key("r"), "AT", "eventual");
                        Checks.holds(Arrays.equals((byte[]) value, "v".getBytes()), "the value");
                    }
                })
                .add("counter", () -> {
                    try (Jedis one = connect("consensus")) {
                        for (int number = 0; number < 50; number++) {
                            one.incr(key("c"));
                        }
                        Checks.holds(one.get(key("c")).equals("50"), "the count");
                    }
                })
                .add("lock", () -> {
                    try (Jedis one = connect("consensus")) {
                        Checks.holds(one.set(key("l"), "me", SetParams.setParams().nx()) != null, "the lock");
                        Checks.holds(one.set(key("l"), "you", SetParams.setParams().nx()) == null, "two have it");
                    }
                })
                .add("transaction", () -> {
                    try (Jedis one = connect("consensus")) {
                        Transaction multi = one.multi();
                        multi.set(key("t"), "1");
                        multi.incr(key("t"));
                        Checks.holds(multi.exec().get(1).equals(2L), "the sum");
                    }
                })
                .add("transaction_elsewhere", () -> {
                    Transaction multi = r.multi();
                    multi.set(key("t"), "1");
                    multi.exec();
                })
                .add("counter_elsewhere", () -> {
                    Checks.holds(r.incr(key("n")) == 1 && r.incrBy(key("n"), 10) == 11, "the sum");
                    Checks.holds(r.decr(key("n")) == 10, "DECR");
                    Checks.holds(r.incrByFloat(key("n"), 0.5) == 10.5, "INCRBYFLOAT");
                    Checks.holds(r.get(key("n")).equals("10.5"), "the value");
                })
                .add("hashes", () -> {
                    Checks.holds(r.hset(key("h"), Map.of("a", "1", "b", "two")) == 2, "HSET");
                    Checks.holds(r.hset(key("h"), Map.of("b", "2", "c", "three", "d", "")) == 2, "HSET again");
                    Checks.holds(r.hget(key("h"), "b").equals("2") && r.hget(key("h"), "nothing") == null, "HGET");
                    List<String> some = r.hmget(key("h"), "d", "nothing", "a");
                    Checks.holds(some.equals(Arrays.asList("", null, "1")), "HMGET");
                    Map<String, String> all = Map.of("a", "1", "b", "2", "c", "three", "d", "");
                    Checks.holds(r.hgetAll(key("h")).equals(all), "HGETALL");
                    Checks.holds(r.hincrBy(key("h"), "a", 5) == 6 && r.hincrBy(key("h"), "a", -2) == 4, "HINCRBY");
                    Checks.holds(r.hdel(key("h"), "c", "d", "nothing") == 2, "HDEL");
                    Checks.holds(r.hexists(key("h"), "a") && !r.hexists(key("h"), "c"), "HEXISTS");
                    Checks.holds(r.hlen(key("h")) == 2, "HLEN");
                    Map<String, String> left = new HashMap<>();
                    String cursor = ScanParams.SCAN_POINTER_START;
                    do {
                        ScanResult<Map.Entry<String, String>> page = r.hscan(key("h"), cursor);
                        page.getResult().forEach(entry -> left.put(entry.getKey(), entry.getValue()));
                        cursor = page.getCursor();
                    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
                    Checks.holds(left.equals(Map.of("a", "4", "b", "2")), "HSCAN");
                    Checks.holds(r.expire(key("h"), 100) == 1, "EXPIRE");
                    long time = r.ttl(key("h"));
                    Checks.holds(time >= 95 && time <= 100, "the time");
                    Checks.holds(r.del(key("h")) == 1 && !r.exists(key("h")) && r.hgetAll(key("h")).isEmpty(), "DEL");
                })
                .add("sets", () -> {
                    String one = key("{tag}1"), two = key("{tag}2");
                    Checks.holds(r.sadd(one, "a", "b") == 2 && r.sadd(one, "b", "c", "d") == 2, "SADD");
                    Checks.holds(r.sadd(two, "c", "e") == 2, "SADD of another");
                    Checks.holds(r.sismember(one, "a") && !r.sismember(one, "e"), "SISMEMBER");
                    Checks.holds(r.scard(one) == 4 && r.srem(one, "a", "nothing") == 1, "SCARD, SREM");
                    Checks.holds(r.smembers(one).equals(Set.of("b", "c", "d")), "SMEMBERS");
                    Checks.holds(r.sunion(one, two).equals(Set.of("b", "c", "d", "e")), "SUNION");
                    Checks.holds(r.sinter(one, two).equals(Set.of("c")), "SINTER");
                })
                .add("messages", () -> {
                    String channel = key("news:1"), pattern = key("news:*");
                    Listener listener = new Listener();
                    try (Jedis one = connect(null)) {
                        Thread thread = new Thread(() -> one.subscribe(listener, channel));
                        thread.setDaemon(true);
                        thread.start();
                        listener.hears("subscribe " + channel + " 1");
                        listener.psubscribe(pattern);
                        listener.hears("psubscribe " + pattern + " 2");
                        r.publish(key("other"), "not for us");
                        r.publish(channel, "hello");
                        listener.hears("message " + channel + " hello");
                        listener.hears("pmessage " + pattern + " " + channel + " hello");
                        listener.unsubscribe(channel);
                        listener.hears("unsubscribe " + channel + " 1");
                        listener.punsubscribe(pattern);
                        listener.hears("punsubscribe " + pattern + " 0");
                        thread.join(10_000);
                        Checks.holds(!thread.isAlive(), "it still listens");
                    }
                })
                .add("flush", () -> {
                    try (Jedis one = connect("eventual")) {
                        for (int number = 0; number < 300; number++) {
                            one.set(key("f" + number), "v");
                        }
                        Checks.holds(one.flushDB().equals("OK") && one.dbSize() == 0, "keys are left");
                    }
                })
                .add("cluster", () -> {
                    try (JedisCluster cluster = new JedisCluster(new HostAndPort(HOST, PORT))) {
                        for (int number = 0; number < 100; number++) {
                            cluster.set(key("k" + number), "" + number);
                            Checks.holds(cluster.get(key("k" + number)).equals("" + number), "a value");
                        }
                    }
                })
                .run();
    }
}
