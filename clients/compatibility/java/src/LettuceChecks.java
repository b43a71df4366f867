import io.lettuce.core.ExpireArgs;
import io.lettuce.core.GetExArgs;
import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.KeyValue;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.MapScanCursor;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanCursor;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.ObjectOutput;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.output.ValueOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.CommandType;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The checks of README.md with Lettuce. */
public final class LettuceChecks {
    static final String HOST = System.getenv("HOST");
    static final int PORT = Integer.parseInt(System.getenv("PORT"));
    static final String PREFIX = UUID.randomUUID().toString();
    static final RedisClient CLIENT = RedisClient.create(RedisURI.create(HOST, PORT));

    static String key(String name) {
        return PREFIX + ":" + name;
    }

    static CommandArgs<String, String> words(String... words) {
        CommandArgs<String, String> args = new CommandArgs<>(StringCodec.UTF8);
        for (String word : words) {
            args.add(word);
        }
        return args;
    }

    static ProtocolKeyword command(String name) {
        return new ProtocolKeyword() {
            @Override
            public byte[] getBytes() {
                return name.getBytes(StandardCharsets.UTF_8);
            }

            @Override
            public String toString() {
                return name;
            }
        };
    }

    static RedisCommands<String, String> connect(String keyspace) {
        RedisCommands<String, String> commands = CLIENT.connect().sync();
        if (keyspace != null) {
            commands.dispatch(CommandType.SELECT, new StatusOutput<>(StringCodec.UTF8), words(keyspace));
        }
        return commands;
    }

    /** Puts what it hears into a queue. */
    static final class Listener extends RedisPubSubAdapter<String, String> {
        final BlockingQueue<String> heard = new LinkedBlockingQueue<>();

        void hears(String expected) throws InterruptedException {
            String next = heard.poll(10, TimeUnit.SECONDS);
            Checks.holds(expected.equals(next), "heard: " + next);
        }

        @Override
        public void message(String channel, String message) {
            heard.add("message " + channel + " " + message);
        }

        @Override
        public void message(String pattern, String channel, String message) {
            heard.add("pmessage " + pattern + " " + channel + " " + message);
        }

        @Override
        public void subscribed(String channel, long count) {
            heard.add("subscribe " + channel + " " + count);
        }

        @Override
        public void psubscribed(String pattern, long count) {
            heard.add("psubscribe " + pattern + " " + count);
        }

        @Override
        public void unsubscribed(String channel, long count) {
            heard.add("unsubscribe " + channel + " " + count);
        }

        @Override
        public void punsubscribed(String pattern, long count) {
            heard.add("punsubscribe " + pattern + " " + count);
        }
    }

    public static void main(String[] args) {
        System.out.println("version\t" + args[0]);
        StatefulRedisConnection<String, String> connection = CLIENT.connect();
        RedisCommands<String, String> r = connection.sync();
        new Checks()
                .add("strings", () -> {
                    String value = "a value \u0000 of \u00fcnicode";
                    r.set(key("a"), value);
                    Checks.holds(r.get(key("a")).equals(value), "a value");
                    Checks.holds(r.exists(key("a")) == 1, "EXISTS");
                    Checks.holds(r.del(key("a")) == 1 && r.get(key("a")) == null, "DEL");
                })
                .add("many", () -> {
                    Map<String, String> pairs = new HashMap<>();
                    List<String> keys = new ArrayList<>();
                    for (int number = 0; number < 100; number++) {
                        keys.add(key("m" + number));
                        pairs.put(key("m" + number), "" + number);
                    }
                    r.mset(pairs);
                    List<KeyValue<String, String>> found = r.mget(keys.toArray(new String[0]));
                    for (int number = 0; number < 100; number++) {
                        Checks.holds(found.get(number).getValue().equals("" + number), "MGET");
                    }
                })
                .add("pipeline", () -> {
                    List<RedisFuture<?>> futures = new ArrayList<>();
                    List<RedisFuture<String>> answers = new ArrayList<>();
                    for (int number = 0; number < 100; number++) {
                        futures.add(connection.async().set(key("p" + number), "" + number));
                        answers.add(connection.async().get(key("p" + number)));
                    }
                    LettuceFutures.awaitAll(Duration.ofSeconds(10), futures.toArray(new RedisFuture[0]));
                    for (int number = 0; number < 100; number++) {
                        Checks.holds(answers.get(number).get().equals("" + number), "an answer");
                    }
                })
                .add("expiry", () -> {
                    r.set(key("e"), "v", SetArgs.Builder.px(200));
                    long left = r.pttl(key("e"));
                    Thread.sleep(300);
                    Checks.holds(left > 0 && left <= 200 && r.get(key("e")) == null, "the time");
                })
                .add("retimes", () -> {
                    r.set(key("x"), "v");
                    Checks.holds(r.expire(key("x"), 100, ExpireArgs.Builder.nx()), "EXPIRE");
                    Checks.holds(!r.expire(key("x"), 50, ExpireArgs.Builder.nx()), "EXPIRE again");
                    long left = r.ttl(key("x"));
                    Checks.holds(left >= 95 && left <= 100, "the time");
                    Checks.holds(r.getex(key("x"), GetExArgs.Builder.ex(200)).equals("v"), "GETEX");
                    long longer = r.ttl(key("x"));
                    Checks.holds(longer >= 195 && longer <= 200, "the longer time");
                    Checks.holds(r.persist(key("x")) && r.ttl(key("x")) == -1, "PERSIST");
                    Checks.holds(!r.persist(key("x")), "PERSIST again");
                    Checks.holds(!r.expire(key("nothing"), 100), "EXPIRE of nothing");
                })
                .add("scan", () -> {
                    for (int number = 0; number < 300; number++) {
                        r.set(key("s" + number), "v");
                    }
                    Set<String> found = new HashSet<>();
                    ScanCursor cursor = ScanCursor.INITIAL;
                    do {
                        KeyScanCursor<String> page = r.scan(cursor, ScanArgs.Builder.matches(key("s*")).limit(50));
                        found.addAll(page.getKeys());
                        cursor = page;
                    } while (!cursor.isFinished());
                    Checks.holds(found.size() == 300, "the keys");
                })
                .add("receipt", () -> {
                    RedisCommands<String, String> one = connect(null);
                    one.set(key("r"), "v");
                    Object fields = one.dispatch(command("RECEIPT"), new ObjectOutput<>(StringCodec.UTF8));
                    Checks.holds(fields.toString().contains("given"), "the receipt");
                    ValueOutput<String, String> output = new ValueOutput<>(StringCodec.UTF8);
                    String value = one.dispatch(CommandType.GET, output, words(key("r"), "AT", "eventual"));
                    Checks.holds(value.equals("v"), "the value");
                })
                .add("counter", () -> {
                    RedisCommands<String, String> one = connect("consensus");
                    for (int number = 0; number < 50; number++) {
                        one.incr(key("c"));
                    }
                    Checks.holds(one.get(key("c")).equals("50"), "the count");
                })
                .add("lock", () -> {
                    RedisCommands<String, String> one = connect("consensus");
                    Checks.holds(one.set(key("l"), "me", SetArgs.Builder.nx()) != null, "the lock");
                    Checks.holds(one.set(key("l"), "you", SetArgs.Builder.nx()) == null, "two have it");
                })
                .add("transaction", () -> {
                    RedisCommands<String, String> one = connect("consensus");
                    one.multi();
                    one.set(key("t"), "1");
                    one.incr(key("t"));
                    Checks.holds(one.exec().get(1).equals(2L), "the sum");
                })
                .add("transaction_elsewhere", () -> {
                    RedisCommands<String, String> one = connect(null);
                    one.multi();
                    one.set(key("t"), "1");
                    one.exec();
                })
                .add("counter_elsewhere", () -> {
                    Checks.holds(r.incr(key("n")) == 1 && r.incrby(key("n"), 10) == 11, "the sum");
                    Checks.holds(r.decr(key("n")) == 10, "DECR");
                    Checks.holds(r.incrbyfloat(key("n"), 0.5) == 10.5, "INCRBYFLOAT");
                    Checks.holds(r.get(key("n")).equals("10.5"), "the value");
                })
                .add("hashes", () -> {
                    Checks.holds(r.hset(key("h"), Map.of("a", "1", "b", "two")) == 2, "HSET");
                    Checks.holds(r.hset(key("h"), Map.of("b", "2", "c", "three", "d", "")) == 2, "HSET again");
                    Checks.holds(r.hget(key("h"), "b").equals("2") && r.hget(key("h"), "nothing") == null, "HGET");
                    List<KeyValue<String, String>> some = r.hmget(key("h"), "d", "nothing", "a");
                    List<KeyValue<String, String>> expected =
                            List.of(KeyValue.just("d", ""), KeyValue.empty("nothing"), KeyValue.just("a", "1"));
                    Checks.holds(some.equals(expected), "HMGET");
                    Map<String, String> all = Map.of("a", "1", "b", "2", "c", "three", "d", "");
                    Checks.holds(r.hgetall(key("h")).equals(all), "HGETALL");
                    Checks.holds(r.hincrby(key("h"), "a", 5) == 6 && r.hincrby(key("h"), "a", -2) == 4, "HINCRBY");
                    Checks.holds(r.hdel(key("h"), "c", "d", "nothing") == 2, "HDEL");
                    Checks.holds(r.hexists(key("h"), "a") && !r.hexists(key("h"), "c"), "HEXISTS");
                    Checks.holds(r.hlen(key("h")) == 2, "HLEN");
                    Map<String, String> left = new HashMap<>();
                    ScanCursor cursor = ScanCursor.INITIAL;
                    do {
                        MapScanCursor<String, String> page = r.hscan(key("h"), cursor);
                        left.putAll(page.getMap());
                        cursor = page;
                    } while (!cursor.isFinished());
                    Checks.holds(left.equals(Map.of("a", "4", "b", "2")), "HSCAN");
                    Checks.holds(r.expire(key("h"), 100), "EXPIRE");
                    long time = r.ttl(key("h"));
                    Checks.holds(time >= 95 && time <= 100, "the time");
                    Checks.holds(r.del(key("h")) == 1 && r.exists(key("h")) == 0, "DEL");
                    Checks.holds(r.hgetall(key("h")).isEmpty(), "the fields are left");
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
                    try (StatefulRedisPubSubConnection<String, String> one = CLIENT.connectPubSub()) {
                        one.addListener(listener);
                        one.sync().subscribe(channel);
                        listener.hears("subscribe " + channel + " 1");
                        one.sync().psubscribe(pattern);
                        listener.hears("psubscribe " + pattern + " 2");
                        r.publish(key("other"), "not for us");
                        r.publish(channel, "hello");
                        listener.hears("message " + channel + " hello");
                        listener.hears("pmessage " + pattern + " " + channel + " hello");
                        one.sync().unsubscribe(channel);
                        listener.hears("unsubscribe " + channel + " 1");
                        one.sync().punsubscribe(pattern);
                        listener.hears("punsubscribe " + pattern + " 0");
                    }
                })
                .add("flush", () -> {
                    RedisCommands<String, String> one = connect("eventual");
                    for (int number = 0; number < 300; number++) {
                        one.set(key("f" + number), "v");
                    }
                    Checks.holds(one.flushdb().equals("OK") && one.dbsize() == 0, "keys are left");
                })
                .add("cluster", () -> {
                    try (RedisClusterClient client = RedisClusterClient.create(RedisURI.create(HOST, PORT))) {
                        var commands = client.connect().sync();
                        for (int number = 0; number < 100; number++) {
                            commands.set(key("k" + number), "" + number);
                            Checks.holds(commands.get(key("k" + number)).equals("" + number), "a value");
                        }
                    }
                })
                .run();
        CLIENT.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        System.exit(0);
    }
}
