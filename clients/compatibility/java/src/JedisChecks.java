import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisCluster;
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
                .add("hashes", () -> r.hset(key("h"), "field", "value"))
                .add("messages", () -> r.publish("channel", "message"))
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
