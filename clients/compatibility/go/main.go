// The checks of README.md with go-redis.
package main

import (
	"context"
	"fmt"
	"os"
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

func hashes(r redis.Cmdable) error { return r.HSet(ctx, key("h"), "field", "value").Err() }

func messages(r redis.Cmdable) error { return r.Publish(ctx, "channel", "message").Err() }

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
		{"scan", scan}, {"receipt", receipt}, {"counter", counter}, {"lock", lock}, {"transaction", transaction},
		{"transaction_elsewhere", transactionElsewhere}, {"hashes", hashes}, {"messages", messages},
		{"flush", flush}, {"cluster", cluster},
	}
	for _, one := range checks {
		answer := "ok"
		if err := one.check(r); err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Printf("%s\t%s\n", one.name, answer)
	}
}
