package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue"
)

var (
	troubleFor = flag.Duration("trouble", 10*time.Second, "how long before, during and after trouble, for TestQueueTrouble")
	troubles   = flag.String("only-trouble", "", "the trouble to measure, for TestQueueTrouble; default: each")
)

// A worker that counts, ten times a second, the attempts that it has ended, and the jobs that it has begun for the first time.
func init() {
	roles["counting worker"] = func(ctx context.Context, db *dialect.DB) error {
		c, err := queue.New(db, queue.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		w, err := c.Worker(queue.WorkerOptions{})
		if err != nil {
			return err
		}
		var done, jobs atomic.Int64
		count := func(d *queue.Delivery) {
			done.Add(1)
			if d.Attempt == 1 {
				jobs.Add(1)
			}
		}
		err = errors.Join(
			w.Handle("noop", func(_ context.Context, d *queue.Delivery) error { count(d); return nil }),
			w.Handle("fails", func(_ context.Context, d *queue.Delivery) error { count(d); return errors.New("it fails") }))
		if err != nil {
			return err
		}
		go func() {
			for range time.Tick(100 * time.Millisecond) {
				fmt.Println(done.Load(), jobs.Load())
			}
		}()
		return w.Run(ctx)
	}
}

// A plight is a queue under full load, and what is done to it.
type plight struct {
	*bed
	t       *testing.T
	workers []*child
	kind    atomic.Pointer[func(n int) queue.Job] // makes the jobs
	sent    atomic.Int64
	done    []atomic.Int64 // attempts, by worker
	begun   []atomic.Int64 // jobs
}

// most is how many jobs wait: so many that a worker has work while another one's blocks have no worker.
const most = 400_000

func sum(all []atomic.Int64) (n int64) {
	for i := range all {
		n += all[i].Load()
	}
	return n
}

func (p *plight) total() int64 { return sum(p.done) }

func (p *plight) jobs(of func(n int) queue.Job) func() {
	usual := p.kind.Swap(&of)
	return func() { p.kind.Store(usual) }
}

// Each trouble begins when it is called, and ends when what it returns is called.
var plights = []struct {
	name  string
	begin func(p *plight) (end func())
}{
	{"half of all jobs fail, and are tried again", func(p *plight) func() {
		return p.jobs(func(n int) queue.Job {
			j := job(n)
			if n%2 == 0 {
				j.Kind, j.MaxAttempts = "fails", 2
			}
			return j
		})
	}},
	{"every job has the same key", func(p *plight) func() {
		return p.jobs(func(n int) queue.Job {
			j := job(n)
			j.Key = "hot"
			return j
		})
	}},
	{"the table of jobs is locked for 3 s", func(p *plight) func() {
		unlock := p.lock(p.t, "job")
		pause(p.t, 3*time.Second)
		unlock()
		return func() {}
	}},
	{"one of two workers is killed", func(p *plight) func() {
		p.workers[0].kill()
		return func() {}
	}},
	{"somebody holds an old snapshot", func(p *plight) func() { return hold(p.t, p.bed) }},
	{"delayed jobs come due, as many as can be done", func(p *plight) func() {
		at := time.Now().Add(*troubleFor)
		return p.jobs(func(n int) queue.Job {
			j := job(n)
			j.RunAt = at.Add(time.Duration(n%10) * time.Second / 10)
			return j
		})
	}},
}

// TestQueueTrouble prints how many attempts end a second before, during and after trouble, and how long after it the rate
// is back at nine tenths of what it was.
func TestQueueTrouble(t *testing.T) {
	for i, trouble := range plights {
		if *troubles != "" && *troubles != trouble.name {
			continue
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			queues(t, func(t *testing.T, b *bed) {
				p := under(t, b)
				pause(t, *troubleFor/2)
				before := p.rate(*troubleFor)
				started, from := time.Now(), p.total()
				end := trouble.begin(p)
				pause(t, max(0, *troubleFor-time.Since(started)))
				during := perSecond(p.total()-from, time.Since(started))
				end()
				back, ended := "not yet", time.Now()
				var after []int64
				for time.Since(ended) < 3**troubleFor {
					n := p.rate(time.Second)
					after = append(after, int64(n))
					if back == "not yet" && n >= 0.9*before {
						back = fmt.Sprint((time.Since(ended) - time.Second).Round(100 * time.Millisecond))
					}
				}
				last := slices.Sorted(slices.Values(after[len(after)*2/3:]))
				t.Logf("%-8s %-46s before %6.0f/s, during %6.0f/s, after %6d/s; back after %s; each second %v", b.Dialect.Name, trouble.name,
					before, during, last[len(last)/2], back, after)
			})
		})
	}
}

// rate returns how many attempts end a second, in a while.
func (p *plight) rate(while time.Duration) float64 {
	n, at := p.total(), time.Now()
	pause(p.t, while)
	return perSecond(p.total()-n, time.Since(at))
}

// under puts a queue under full load: two workers, and a producer that keeps jobs waiting.
func under(t *testing.T, b *bed) *plight {
	t.Helper()
	p := &plight{bed: b, t: t, done: make([]atomic.Int64, 2), begun: make([]atomic.Int64, 2)}
	p.jobs(job)
	c := client(t, b)
	var all sync.WaitGroup
	for i := range p.done {
		w := start(t, "counting worker", b.URL)
		p.workers = append(p.workers, w)
		all.Go(func() {
			for w.lines.Scan() {
				var done, begun int64
				if _, err := fmt.Sscan(w.lines.Text(), &done, &begun); err == nil {
					p.done[i].Store(done)
					p.begun[i].Store(begun)
				}
			}
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	all.Go(func() {
		const part = 1000
		for n := 0; ctx.Err() == nil; {
			if p.sent.Load()-sum(p.begun) > most {
				time.Sleep(time.Millisecond) // the producer's pace: synchronizes nothing
				continue
			}
			of := *p.kind.Load()
			batch := make([]queue.Job, part)
			for i := range batch {
				batch[i] = of(n + i)
			}
			if _, err := c.EnqueueMany(ctx, batch); err != nil {
				continue // it is in trouble
			}
			n += part
			p.sent.Add(part)
		}
	})
	t.Cleanup(func() {
		stop()
		for _, w := range p.workers {
			w.kill()
		}
		all.Wait()
	})
	return p
}
