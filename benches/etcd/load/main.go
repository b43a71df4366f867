// Loads etcd as `turnbuckle bench` loads a server that speaks RESP: clients with a connection each, spread over the endpoints, that read and write keys
// of one value size, one operation after the other. Keys are chosen by a Zipf distribution with the constant 0.99, as in YCSB. Prints JSON; times are in microseconds.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The cumulative weights of a Zipf distribution.
func zipf(keys int) []float64 {
	sum, sums := 0.0, make([]float64, keys)
	for rank := range sums {
		sum += 1 / math.Pow(float64(rank+1), 0.99)
		sums[rank] = sum
	}
	return sums
}

type latencies struct {
	mutex sync.Mutex
	all   []float64
}

func (l *latencies) add(some []float64) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.all = append(l.all, some...)
}

func (l *latencies) summary() map[string]float64 {
	sort.Float64s(l.all)
	at := func(part float64) float64 {
		if len(l.all) == 0 {
			return 0
		}
		return l.all[min(len(l.all)-1, int(part*float64(len(l.all))))]
	}
	return map[string]float64{"p50": at(0.5), "p99": at(0.99), "max": at(1)}
}

func main() {
	endpoints := flag.String("endpoints", "", "HOST:PORT,..")
	clients := flag.Int("clients", 64, "the number of clients")
	keys := flag.Int("keys", 1000, "the number of keys")
	size := flag.Int("value-size", 128, "how long values are")
	reads := flag.Int("reads", 50, "the percentage of reads")
	span := flag.Duration("for", 10*time.Second, "how long it takes")
	serializable := flag.Bool("serializable", false, "reads that any member answers from what it has")
	flag.Parse()
	targets := strings.Split(*endpoints, ",")
	connect := func(number int) *clientv3.Client {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{targets[number%len(targets)]}, DialTimeout: 10 * time.Second})
		if err != nil {
			log.Fatal(err)
		}
		return client
	}
	key := func(number int) string { return fmt.Sprintf("key%d", number) }
	value := strings.Repeat("x", *size)
	loader := connect(0)
	for number := range *keys {
		if _, err := loader.Put(context.Background(), key(number), value); err != nil {
			log.Fatal(err)
		}
	}
	loader.Close()

	sums := zipf(*keys)
	var reading, writing latencies
	var errors, operations int
	var mutex sync.Mutex
	var group sync.WaitGroup
	ready := make(chan struct{})
	all := make([]*clientv3.Client, *clients)
	for number := range all {
		all[number] = connect(number)
		soon, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if _, err := all[number].Get(soon, key(0)); err != nil {
			log.Fatal(err)
		}
		cancel()
	}
	for number, client := range all {
		group.Add(1)
		go func() {
			defer group.Done()
			random := rand.New(rand.NewSource(int64(number)))
			var read, written []float64
			failed := 0
			<-ready
			for end := time.Now().Add(*span); time.Now().Before(end); {
				name := key(sort.SearchFloat64s(sums, random.Float64()*sums[len(sums)-1]))
				began := time.Now()
				var err error
				if isRead := random.Intn(100) < *reads; isRead {
					options := []clientv3.OpOption{}
					if *serializable {
						options = append(options, clientv3.WithSerializable())
					}
					_, err = client.Get(context.Background(), name, options...)
					read = append(read, float64(time.Since(began).Nanoseconds())/1000)
				} else {
					_, err = client.Put(context.Background(), name, value)
					written = append(written, float64(time.Since(began).Nanoseconds())/1000)
				}
				if err != nil {
					failed++
				}
			}
			reading.add(read)
			writing.add(written)
			mutex.Lock()
			defer mutex.Unlock()
			errors += failed
			operations += len(read) + len(written)
		}()
	}
	close(ready)
	group.Wait()
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"operations": operations, "throughput": float64(operations) / span.Seconds(),
		"read": reading.summary(), "write": writing.summary(), "errors": errors,
	})
}
