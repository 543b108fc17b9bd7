package peers

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	rounds = flag.Int("rounds", 3, "how often each system is measured, in turns")
	span   = flag.Duration("span", 3*time.Second, "how long each measurement enqueues, or takes locks")
	jobs   = flag.Int("jobs", 100_000, "jobs that are ready before a worker starts")
	chart  = flag.String("chart", "", "the `file` that the chart is written to")
	only   = flag.String("only", "", "the one system to measure, by its name")
)

// stalled is the time without a finished job after which a measurement is given up.
const stalled = time.Minute

// A system is a queue or a way to lock, with the settings that its name tells.
type system interface {
	String() string
	durable() bool // acknowledged jobs survive a crash of the machine
}

// A queueSystem is a queue with its server. The tests act as two processes: one enqueues, and one
// works.
type queueSystem interface {
	system
	one(ctx context.Context, n int) error         // enqueues job n
	many(ctx context.Context, first, n int) error // enqueues n jobs at once, or as fast as it can
	bulk() bool                                   // many is one call
	work(t *testing.T, do func(n int)) (stop func())
	wipe(t *testing.T) // removes all jobs
}

// A uniqueSystem is a queue that refuses a job while another one is there that has the same unique key.
type uniqueSystem interface {
	unique(ctx context.Context, n int) error // enqueues job n, with a key of its own
}

// payload returns the payload of job n: a hundred bytes of JSON.
func payload(n int) []byte {
	return fmt.Appendf(nil, `{"order":%d,"customer":"customer-%d","address":"12 High Street, Springfield","paid":true}`, n+firstOrder, n%1000+1000)
}

const firstOrder = 10_000_000

// number returns the number of the job that has a payload.
func number(t *testing.T, text []byte) int {
	digits, _, ok := bytes.Cut(bytes.TrimPrefix(text, []byte(`{"order":`)), []byte(","))
	n, err := strconv.Atoi(string(digits))
	if err != nil || !ok {
		t.Errorf("a payload of another: %q", text)
	}
	return n - firstOrder
}

// TestQueues measures in each round and for each queue: enqueueing by one caller, by 32, by 32 with a unique key each, and in
// bulk; the drain of ready jobs; and the time from the call that enqueues to the start of the
// handler at 100 jobs a second.
func TestQueues(t *testing.T) {
	var all []queueSystem
	for _, open := range []func(*testing.T) []queueSystem{dbcronQueues, riverQueues, asynqQueues, jetStreamQueues} {
		for _, q := range open(t) {
			if *only == "" || *only == q.String() {
				all = append(all, q)
			}
		}
	}
	r := newReport("Enqueue, 1 caller", "Enqueue, 32 callers", "Unique, 32 callers", "Bulk", "Drain", "Latency, p50", "Latency, p99")
	for range *rounds {
		for _, q := range all {
			r.note(q, "Enqueue, 1 caller", enqueue(t, q, 1, q.one))
			r.note(q, "Enqueue, 32 callers", enqueue(t, q, 32, q.one))
			if u, is := q.(uniqueSystem); is {
				r.note(q, "Unique, 32 callers", enqueue(t, q, 32, u.unique))
			}
			if q.bulk() {
				r.note(q, "Bulk", inBulk(t, q))
			}
			r.note(q, "Drain", drain(t, q))
			p50, p99 := latency(t, q)
			r.note(q, "Latency, p50", p50.Seconds()*1e3)
			r.note(q, "Latency, p99", p99.Seconds()*1e3)
		}
	}
	r.print(t)
	if *chart != "" {
		r.draw(t, *chart, "Enqueue, 32 callers", "Drain")
	}
}

// enqueue returns how many jobs a second the callers enqueue, one per call.
func enqueue(t *testing.T, q queueSystem, callers int, one func(ctx context.Context, n int) error) float64 {
	t.Helper()
	defer q.wipe(t)
	var next atomic.Int64
	var group sync.WaitGroup
	begun := time.Now()
	for range callers {
		group.Go(func() {
			for time.Since(begun) < *span {
				if err := one(t.Context(), int(next.Add(1))); err != nil {
					t.Errorf("%v: %v", q, err)
					return
				}
			}
		})
	}
	group.Wait()
	return float64(next.Load()) / time.Since(begun).Seconds()
}

// inBulk returns how many jobs a second four callers enqueue, 1000 per call.
func inBulk(t *testing.T, q queueSystem) float64 {
	t.Helper()
	defer q.wipe(t)
	var next atomic.Int64
	var group sync.WaitGroup
	begun := time.Now()
	for range 4 {
		group.Go(func() {
			for time.Since(begun) < *span {
				if err := q.many(t.Context(), int(next.Add(1000)-1000), 1000); err != nil {
					t.Errorf("%v: %v", q, err)
					return
				}
			}
		})
	}
	group.Wait()
	return float64(next.Load()) / time.Since(begun).Seconds()
}

// A tally records each job's first start, and counts the started jobs.
type tally struct {
	mu    sync.Mutex
	at    map[int]time.Time
	again int // jobs started more than once
	last  time.Time
}

func newTally(n int) *tally { return &tally{at: make(map[int]time.Time, n)} }

func (s *tally) start(n int) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = now
	if _, there := s.at[n]; there {
		s.again++
		return
	}
	s.at[n] = now
}

// wait waits until n jobs have started.
func (s *tally) wait(t *testing.T, q queueSystem, n int) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		started, last := len(s.at), s.last
		s.mu.Unlock()
		if started >= n {
			return
		}
		if time.Since(begun) > stalled && time.Since(last) > stalled {
			t.Fatalf("%v: %d of %d jobs were started", q, started, n)
		}
	}
}

func (s *tally) check(t *testing.T, q queueSystem) {
	t.Helper()
	if s.again > 0 {
		t.Logf("%v: %d jobs were started more than once", q, s.again)
	}
}

// drain returns how many ready jobs a second one worker does, counted from its first job.
func drain(t *testing.T, q queueSystem) float64 {
	t.Helper()
	defer q.wipe(t)
	var next atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for {
				first := int(next.Add(1000) - 1000)
				n := min(1000, *jobs-first)
				if n <= 0 {
					return
				}
				if err := q.many(t.Context(), first, n); err != nil {
					t.Errorf("%v: %v", q, err)
					return
				}
			}
		})
	}
	group.Wait()
	seen := newTally(*jobs)
	stop := q.work(t, seen.start)
	seen.wait(t, q, *jobs)
	over := time.Now()
	stop()
	seen.check(t, q)
	first := over
	for _, at := range seen.at {
		if at.Before(first) {
			first = at
		}
	}
	return float64(*jobs) / over.Sub(first).Seconds()
}

// latency returns percentiles of the time from the call that enqueues a job to its start, for jobs
// that arrive at random, 100 a second.
func latency(t *testing.T, q queueSystem) (p50, p99 time.Duration) {
	t.Helper()
	defer q.wipe(t)
	const rate, warm = 100, 50
	random := rand.New(rand.NewPCG(1, 2)) // the same for all systems
	n := int(span.Seconds() * rate)
	seen := newTally(n + warm)
	stop := q.work(t, seen.start)
	for i := range warm { // warm up connections, prepared statements, listeners
		if err := q.one(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	sent := make([]time.Time, n)
	var group sync.WaitGroup
	at := time.Now()
	for i := range n {
		at = at.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		time.Sleep(time.Until(at))
		group.Go(func() {
			sent[i] = time.Now()
			if err := q.one(t.Context(), warm+i); err != nil {
				t.Errorf("%v: %v", q, err)
			}
		})
	}
	group.Wait()
	seen.wait(t, q, n+warm)
	stop()
	seen.check(t, q)
	took := make([]time.Duration, n)
	for i := range took {
		took[i] = seen.at[warm+i].Sub(sent[i])
	}
	slices.Sort(took)
	return took[n/2], took[n*99/100]
}
