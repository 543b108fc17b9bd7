package bench

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
)

// latencyRate is the number of jobs a second that TestQueueLatency enqueues.
var latencyRate = flag.Float64("rate", 100, "how many jobs a second the measurement of latency enqueues")

// alone is package queue with one Client that both enqueues and works.
type alone struct{ *ours }

func (a alone) work(t *testing.T, do func(ctx context.Context, id int64)) (stop func()) {
	t.Helper()
	return a.workWith(t, a.c, do)
}

// ringing is ours with doorbells.
type ringing struct{ *ours }

func newRinging(t *testing.T, b *bed) ringing {
	t.Helper()
	o := newOurs(t, b, "dbcron, doorbells", queue.WorkerOptions{})
	o.c = clientWith(t, b, doorbell)
	return ringing{o}
}

var doorbell = queue.Options{Doorbell: "127.0.0.1:0"}

func (r ringing) work(t *testing.T, do func(ctx context.Context, id int64)) (stop func()) {
	t.Helper()
	return r.workWith(t, clientWith(t, r.bed, doorbell), do)
}

// TestQueueLatency prints the time from the call that enqueues a job to the start of its handler, at
// 100 jobs a second (-rate) that arrive at random.
func TestQueueLatency(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		peers := []peer{
			newOurs(t, b, "dbcron, two processes", queue.WorkerOptions{}),
			alone{newOurs(t, b, "dbcron, one process", queue.WorkerOptions{})},
		}
		if b.Dialect.Notify == nil {
			peers = append(peers, newRinging(t, b))
		}
		var first [2]time.Duration
		for i, p := range peers {
			p50, p99, most, n := latency(t, p)
			ratio := ""
			if i == 0 {
				first = [2]time.Duration{p50, p99}
			} else {
				ratio = fmt.Sprintf("; %v is %.2f and %.2f of it", peers[0], float64(first[0])/float64(p50), float64(first[1])/float64(p99))
			}
			t.Logf("%-8s %-24v p50 %8v, p99 %8v, most %8v of %d%s", b.Dialect.Name, p, p50, p99, most, n, ratio)
		}
	})
}

func latency(t *testing.T, p peer) (p50, p99, most time.Duration, n int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2)) // the same for all
	seen := newStarts(int(*latencyRate) * int(*span/time.Second+1))
	stop := p.work(t, seen.note)
	const warm = 50
	for i := range warm { // warm up connections and prepared statements; the worker leases its blocks
		if _, err := p.one(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		pause(t, 20*time.Millisecond)
	}
	finish(t, p, seen, warm)
	var mu sync.Mutex
	var group sync.WaitGroup
	sent := map[int64]time.Time{}
	for at, over := time.Now(), time.Now().Add(*span); at.Before(over); n++ {
		at = at.Add(time.Duration(random.ExpFloat64() / *latencyRate * float64(time.Second)))
		pause(t, max(0, time.Until(at)))
		group.Go(func() {
			before := time.Now()
			id, err := p.one(t.Context(), n)
			if err != nil {
				t.Errorf("%v: %v", p, err)
			}
			mu.Lock()
			defer mu.Unlock()
			sent[id] = before
		})
	}
	group.Wait()
	finish(t, p, seen, warm+n)
	stop()
	seen.check(t, p, warm+n)
	p.wipe(t)
	var all []time.Duration
	for i, id := range seen.ids {
		if before, ok := sent[id]; ok {
			all = append(all, seen.at[i].Sub(before).Round(10*time.Microsecond))
		}
	}
	if len(all) != n || n == 0 {
		t.Fatalf("%v: %d of %d jobs are known", p, len(all), n)
	}
	slices.Sort(all)
	return all[n/2], all[n*99/100], all[n-1], n
}

// snapshots open a transaction with a fixed view of the tables.
var snapshots = map[string][]string{
	"postgres": {`BEGIN ISOLATION LEVEL REPEATABLE READ`},
	"mysql":    {`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`, `START TRANSACTION WITH CONSISTENT SNAPSHOT`},
	"sqlite":   {`BEGIN DEFERRED`},
}

// TestQueueSnapshot prints how many jobs are enqueued and done in each second while somebody holds
// an old snapshot open, which keeps vacuum and purge from removing deleted rows; and the same
// without the snapshot.
func TestQueueSnapshot(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		p := newOurs(t, b, "dbcron", queue.WorkerOptions{})
		var ends [2]float64
		for i, old := range []bool{false, true} {
			what := map[bool]string{false: "no snapshot", true: "an old snapshot"}[old]
			series := flow(t, b, p, old)
			third := series[len(series)*2/3:]
			for _, n := range third {
				ends[i] += float64(n) / float64(len(third))
			}
			t.Logf("%-8s %-8v %-16s %8.0f jobs/s in the last third; each second: %v", b.Dialect.Name, p, what, ends[i], series)
		}
		t.Logf("%-8s %-8v with the snapshot in the last third: ratio %.2f", b.Dialect.Name, p, ends[1]/ends[0])
	})
}

// flow enqueues and does jobs for a while, and returns how many started in each second.
func flow(t *testing.T, b *bed, p peer, old bool) (series []int64) {
	t.Helper()
	const part, most = 500, 10_000 // jobs per call, and the maximum of ready ones
	seen := newStarts(int(held.Seconds()) * 20_000)
	if old {
		defer hold(t, b)()
	}
	stop := p.work(t, seen.note)
	var sent atomic.Int64
	var over atomic.Bool
	var group sync.WaitGroup
	group.Go(func() {
		for !over.Load() {
			if sent.Load()-seen.count.Load() > most-part {
				time.Sleep(time.Millisecond) // only the producer's pace: synchronizes nothing
				continue
			}
			if err := p.many(t.Context(), int(sent.Load()), part); err != nil {
				t.Errorf("%v: %v", p, err)
				return
			}
			sent.Add(part)
		}
	})
	begun := time.Now()
	for range int(*held / time.Second) {
		before := seen.count.Load()
		pause(t, time.Until(begun.Add(time.Duration(len(series)+1)*time.Second)))
		series = append(series, seen.count.Load()-before)
	}
	over.Store(true)
	group.Wait()
	finish(t, p, seen, int(sent.Load()))
	stop()
	seen.check(t, p, int(sent.Load()))
	return series
}

// hold opens a snapshot and returns a function that ends it.
func hold(t *testing.T, b *bed) func() {
	t.Helper()
	c, err := open(t, b.URL, 1).Pool().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range snapshots[b.Dialect.Name] {
		if _, err := c.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (n int64) {
		if err := c.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM `+b.Prefix()+`job`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { // some servers end an idle transaction
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
			}
			if _, err := c.ExecContext(t.Context(), `SELECT 1`); err != nil {
				t.Error(err)
				return
			}
		}
	})
	return func() {
		close(stop)
		group.Wait()
		if after := count(); after != before {
			t.Errorf("the snapshot had %d jobs, and has %d", before, after)
		}
		if _, err := c.ExecContext(t.Context(), `ROLLBACK`); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
