// The checks of README.md with go-redis.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	ctx    = context.Background()
	addr   = os.Getenv("HOST") + ":" + os.Getenv("PORT")
	prefix = fmt.Sprintf("go%d", time.Now().UnixNano())
)

func key(name string, number ...int) string {
	if len(number) > 0 {
		name = fmt.Sprintf("%s%d", name, number[0])
	}
	return prefix + ":" + name
}

// A client whose connections select a keyspace.
func connect(keyspace string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, OnConnect: func(ctx context.Context, one *redis.Conn) error {
		if keyspace == "" {
			return nil
		}
		return one.Do(ctx, "SELECT", keyspace).Err()
	}})
}

func wrong(holds bool, what string) error {
	if holds {
		return nil
	}
	return fmt.Errorf("WRONG %s", what)
}

func firstOf(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}

func text(r redis.Cmdable) error {
	value := make([]byte, 256)
	for at := range value {
		value[at] = byte(at)
	}
	if err := r.Set(ctx, key("a"), value, 0).Err(); err != nil {
		return err
	}
	found, err := r.Get(ctx, key("a")).Bytes()
	exists, third := r.Exists(ctx, key("a")).Result()
	deleted, second := r.Del(ctx, key("a")).Result()
	_, gone := r.Get(ctx, key("a")).Result()
	return firstOf(err, second, third, wrong(string(found) == string(value) && exists == 1 && deleted == 1 && gone == redis.Nil, "a value"))
}

func many(r redis.Cmdable) error {
	var pairs, expected []any
	var keys []string
	for number := range 100 {
		pairs = append(pairs, key("m", number), number)
		keys = append(keys, key("m", number))
		expected = append(expected, fmt.Sprint(number))
	}
	if err := r.MSet(ctx, pairs...).Err(); err != nil {
		return err
	}
	found, err := r.MGet(ctx, keys...).Result()
	return firstOf(err, wrong(fmt.Sprint(found) == fmt.Sprint(expected), "MGET"))
}

func pipeline(r redis.Cmdable) error {
	answers, err := r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for number := range 100 {
			pipe.Set(ctx, key("p", number), number, 0)
		}
		for number := range 100 {
			pipe.Get(ctx, key("p", number))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for number := range 100 {
		if answers[100+number].(*redis.StringCmd).Val() != fmt.Sprint(number) {
			return wrong(false, "an answer of the pipeline")
		}
	}
	return nil
}

func expiry(r redis.Cmdable) error {
	if err := r.Set(ctx, key("e"), "v", 200*time.Millisecond).Err(); err != nil {
		return err
	}
	left, err := r.PTTL(ctx, key("e")).Result()
	time.Sleep(300 * time.Millisecond)
	_, gone := r.Get(ctx, key("e")).Result()
	return firstOf(err, wrong(left > 0 && left <= 200*time.Millisecond && gone == redis.Nil, "the time"))
}

func retimes(r redis.Cmdable) error {
	if err := r.Set(ctx, key("x"), "v", 0).Err(); err != nil {
		return err
	}
	first, err := r.ExpireNX(ctx, key("x"), 100*time.Second).Result()
	again, second := r.ExpireNX(ctx, key("x"), 50*time.Second).Result()
	left, third := r.TTL(ctx, key("x")).Result()
	if err := firstOf(err, second, third, wrong(first && !again && within(left, 95, 100), "EXPIRE")); err != nil {
		return err
	}
	value, err := r.GetEx(ctx, key("x"), 200*time.Second).Result()
	left, second = r.TTL(ctx, key("x")).Result()
	if err := firstOf(err, second, wrong(value == "v" && within(left, 195, 200), "GETEX")); err != nil {
		return err
	}
	first, err = r.Persist(ctx, key("x")).Result()
	left, second = r.TTL(ctx, key("x")).Result()
	again, third = r.Persist(ctx, key("x")).Result()
	nothing, fourth := r.Expire(ctx, key("nothing"), 100*time.Second).Result()
	return firstOf(err, second, third, fourth, wrong(first && left == -1 && !again && !nothing, "PERSIST"))
}

func within(left time.Duration, least, most int) bool {
	return left >= time.Duration(least)*time.Second && left <= time.Duration(most)*time.Second
}

func scan(r redis.Cmdable) error {
	for number := range 300 {
		if err := r.Set(ctx, key("s", number), "v", 0).Err(); err != nil {
			return err
		}
	}
	found := map[string]bool{}
	keys := r.Scan(ctx, 0, key("s*"), 50).Iterator()
	for keys.Next(ctx) {
		found[keys.Val()] = true
	}
	return firstOf(keys.Err(), wrong(len(found) == 300, "the keys"))
}

func receipt(redis.Cmdable) error {
	one := connect("").Conn()
	defer one.Close()
	if err := one.Set(ctx, key("r"), "v", 0).Err(); err != nil {
		return err
	}
	fields, err := one.Do(ctx, "RECEIPT").Result()
	value, second := one.Do(ctx, "GET", key("r"), "AT", "eventual").Text()
	return firstOf(err, second, wrong(value == "v" && strings.Contains(fmt.Sprint(fields), "given"), "the receipt"))
}

func counter(redis.Cmdable) error {
	r := connect("consensus")
	for range 50 {
		if err := r.Incr(ctx, key("c")).Err(); err != nil {
			return err
		}
	}
	count, err := r.Get(ctx, key("c")).Int()
	return firstOf(err, wrong(count == 50, "the count"))
}

func lock(redis.Cmdable) error {
	r := connect("consensus")
	mine, err := r.SetNX(ctx, key("l"), "me", 0).Result()
	yours, second := r.SetNX(ctx, key("l"), "you", 0).Result()
	return firstOf(err, second, wrong(mine && !yours, "who has the lock"))
}

func transaction(redis.Cmdable) error {
	answers, err := connect("consensus").TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, key("t"), 1, 0)
		pipe.Incr(ctx, key("t"))
		return nil
	})
	if err != nil {
		return err
	}
	return wrong(answers[1].(*redis.IntCmd).Val() == 2, "the sum")
}

func transactionElsewhere(r redis.Cmdable) error {
	_, err := r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, key("t"), 1, 0)
		return nil
	})
	return err
}

func counterElsewhere(r redis.Cmdable) error {
	one, err := r.Incr(ctx, key("n")).Result()
	more, second := r.IncrBy(ctx, key("n"), 10).Result()
	less, third := r.Decr(ctx, key("n")).Result()
	if err := firstOf(err, second, third, wrong(one == 1 && more == 11 && less == 10, "the sums")); err != nil {
		return err
	}
	sum, err := r.IncrByFloat(ctx, key("n"), 0.5).Result()
	found, second := r.Get(ctx, key("n")).Result()
	return firstOf(err, second, wrong(sum == 10.5 && found == "10.5", "INCRBYFLOAT"))
}

func hashes(r redis.Cmdable) error {
	added, err := r.HSet(ctx, key("h"), "a", "1", "b", "two").Result()
	more, second := r.HSet(ctx, key("h"), map[string]any{"b": "2", "c": "three", "d": ""}).Result()
	if err := firstOf(err, second, wrong(added == 2 && more == 2, "HSET")); err != nil {
		return err
	}
	value, err := r.HGet(ctx, key("h"), "b").Result()
	_, nothing := r.HGet(ctx, key("h"), "nothing").Result()
	some, second := r.HMGet(ctx, key("h"), "d", "nothing", "a").Result()
	if err := firstOf(err, second, wrong(value == "2" && nothing == redis.Nil, "HGET"),
		wrong(slices.Equal(some, []any{"", nil, "1"}), "HMGET")); err != nil {
		return err
	}
	all, err := r.HGetAll(ctx, key("h")).Result()
	expected := map[string]string{"a": "1", "b": "2", "c": "three", "d": ""}
	if err := firstOf(err, wrong(maps.Equal(all, expected), "HGETALL")); err != nil {
		return err
	}
	sum, err := r.HIncrBy(ctx, key("h"), "a", 5).Result()
	less, second := r.HIncrBy(ctx, key("h"), "a", -2).Result()
	if err := firstOf(err, second, wrong(sum == 6 && less == 4, "HINCRBY")); err != nil {
		return err
	}
	deleted, err := r.HDel(ctx, key("h"), "c", "d", "nothing").Result()
	kept, second := r.HExists(ctx, key("h"), "a").Result()
	gone, third := r.HExists(ctx, key("h"), "c").Result()
	count, fourth := r.HLen(ctx, key("h")).Result()
	if err := firstOf(err, second, third, fourth, wrong(deleted == 2 && kept && !gone && count == 2, "HDEL")); err != nil {
		return err
	}
	var words []string
	fields := r.HScan(ctx, key("h"), 0, "", 0).Iterator()
	for fields.Next(ctx) {
		words = append(words, fields.Val())
	}
	left := map[string]string{}
	for pair := range slices.Chunk(words, 2) {
		left[pair[0]] = pair[len(pair)-1]
	}
	if err := firstOf(fields.Err(), wrong(maps.Equal(left, map[string]string{"a": "4", "b": "2"}), "HSCAN")); err != nil {
		return err
	}
	expires, err := r.Expire(ctx, key("h"), 100*time.Second).Result()
	lasts, second := r.TTL(ctx, key("h")).Result()
	removed, third := r.Del(ctx, key("h")).Result()
	exists, fourth := r.Exists(ctx, key("h")).Result()
	return firstOf(err, second, third, fourth, wrong(expires && within(lasts, 95, 100), "EXPIRE"), wrong(removed == 1 && exists == 0, "DEL"))
}

func sets(r redis.Cmdable) error {
	one, two := key("{tag}1"), key("{tag}2")
	added, err := r.SAdd(ctx, one, "a", "b").Result()
	more, second := r.SAdd(ctx, one, "b", "c", "d").Result()
	other, third := r.SAdd(ctx, two, "c", "e").Result()
	if err := firstOf(err, second, third, wrong(added == 2 && more == 2 && other == 2, "SADD")); err != nil {
		return err
	}
	member, err := r.SIsMember(ctx, one, "a").Result()
	stranger, second := r.SIsMember(ctx, one, "e").Result()
	count, third := r.SCard(ctx, one).Result()
	removed, fourth := r.SRem(ctx, one, "a", "nothing").Result()
	if err := firstOf(err, second, third, fourth, wrong(member && !stranger && count == 4 && removed == 1, "the members")); err != nil {
		return err
	}
	left, err := r.SMembers(ctx, one).Result()
	union, second := r.SUnion(ctx, one, two).Result()
	both, third := r.SInter(ctx, one, two).Result()
	slices.Sort(left)
	slices.Sort(union)
	return firstOf(err, second, third, wrong(slices.Equal(left, []string{"b", "c", "d"}), "SMEMBERS"),
		wrong(slices.Equal(union, []string{"b", "c", "d", "e"}), "SUNION"), wrong(slices.Equal(both, []string{"c"}), "SINTER"))
}

// What the listener hears next must be this.
func hears(listener *redis.PubSub, expected string) error {
	heard, err := listener.ReceiveTimeout(ctx, 10*time.Second)
	said := fmt.Sprint(heard)
	switch heard := heard.(type) {
	case *redis.Subscription:
		said = fmt.Sprintln(heard.Kind, heard.Channel, heard.Count)
	case *redis.Message:
		said = fmt.Sprintln("message", heard.Pattern, heard.Channel, heard.Payload)
	}
	return firstOf(err, wrong(strings.TrimSpace(said) == expected, "heard: "+said))
}

func messages(r redis.Cmdable) error {
	channel, pattern := key("news:1"), key("news:*")
	client := connect("")
	defer client.Close()
	listener := client.Subscribe(ctx, channel)
	defer listener.Close()
	if err := hears(listener, "subscribe "+channel+" 1"); err != nil {
		return err
	}
	if err := firstOf(listener.PSubscribe(ctx, pattern), hears(listener, "psubscribe "+pattern+" 2")); err != nil {
		return err
	}
	err := firstOf(r.Publish(ctx, key("other"), "not for us").Err(), r.Publish(ctx, channel, "hello").Err())
	if err != nil {
		return err
	}
	err = firstOf(hears(listener, "message  "+channel+" hello"), hears(listener, "message "+pattern+" "+channel+" hello"))
	if err != nil {
		return err
	}
	if err := firstOf(listener.Unsubscribe(ctx, channel), hears(listener, "unsubscribe "+channel+" 1")); err != nil {
		return err
	}
	return firstOf(listener.PUnsubscribe(ctx, pattern), hears(listener, "punsubscribe "+pattern+" 0"))
}

func flush(redis.Cmdable) error {
	r := connect("eventual")
	for number := range 300 {
		if err := r.Set(ctx, key("f", number), "v", 0).Err(); err != nil {
			return err
		}
	}
	if err := r.FlushDB(ctx).Err(); err != nil {
		return err
	}
	left, err := r.DBSize(ctx).Result()
	return firstOf(err, wrong(left == 0, fmt.Sprint(left, " keys are left")))
}

func cluster(redis.Cmdable) error {
	r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}})
	defer r.Close()
	for number := range 100 {
		if err := r.Set(ctx, key("c", number), number, 0).Err(); err != nil {
			return err
		}
		if found, err := r.Get(ctx, key("c", number)).Int(); err != nil || found != number {
			return firstOf(err, wrong(false, "a value"))
		}
	}
	return nil
}

func main() {
	fmt.Printf("version\t%s\n", redis.Version())
	r := connect("")
	checks := []struct {
		name  string
		check func(redis.Cmdable) error
	}{
		{"strings", text}, {"many", many}, {"pipeline", pipeline}, {"expiry", expiry}, {"retimes", retimes},
		{"scan", scan}, {"receipt", receipt}, {"counter", counter}, {"counter_elsewhere", counterElsewhere},
		{"lock", lock}, {"transaction", transaction}, {"transaction_elsewhere", transactionElsewhere},
		{"hashes", hashes}, {"sets", sets}, {"messages", messages}, {"flush", flush}, {"cluster", cluster},
	}
	for _, one := range checks {
		answer := "ok"
		if err := one.check(r); err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Printf("%s\t%s\n", one.name, answer)
	}
}
