package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// A procession checks that jobs are done one at a time, in the order of their payloads.
type procession struct {
	mu   sync.Mutex
	made int
	next int
	busy bool
}

// jobs returns the next jobs, of any kind and with any key.
func (p *procession) jobs(n int) (jobs []Job) {
	for range n {
		jobs = append(jobs, Job{Kind: "x", Key: []string{"", "", "a", "b"}[rand.IntN(4)], Payload: fmt.Append(nil, p.made)})
		p.made++
	}
	return jobs
}

// handler does them, by what an attempt is to return.
func (p *procession) handler(t *testing.T, try func(ctx context.Context, d *Delivery) error) Handler {
	return func(ctx context.Context, d *Delivery) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.busy {
			t.Errorf("%s begins beside another", d.Payload)
		}
		if got, want := string(d.Payload), strconv.Itoa(p.next); got != want {
			t.Errorf("%s comes, and %s should", got, want)
		}
		p.busy = true
		p.mu.Unlock()
		err := try(ctx, d)
		p.mu.Lock()
		p.busy = false
		if err == nil || d.Attempt == d.MaxAttempts {
			p.next++
		}
		return err
	}
}

func (p *procession) done() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

func fifo(q *admin.Queue) { q.FIFO = true }

// The jobs of a FIFO queue are done one after the other, by several workers that come and go,
// while some fail, are put off, or die, and whatever their keys are.
func TestFIFO(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 4})
		edit(t, c, fifo)
		edit(t, c, impatient)
		if q, err := adminOf(c).Queue(t.Context(), defaultQueue); err != nil || !q.FIFO || q.Blocks != 1 {
			t.Fatalf("%+v, %v", q, err)
		}
		_, err := c.Enqueue(t.Context(), Job{Kind: "x", Priority: Urgent})
		want(t, "with a priority", err, ErrInvalid)
		want(t, "with more blocks", adminOf(c).Resize(t.Context(), defaultQueue, 2), ErrInvalid)
		var p procession
		jobs := p.jobs(120)
		for i := range jobs {
			if jobs[i].MaxAttempts = 1000; i%20 == 7 {
				jobs[i].MaxAttempts = 2
			}
		}
		h := p.handler(t, func(_ context.Context, d *Delivery) error {
			switch {
			case d.MaxAttempts == 2 || rand.IntN(10) == 0:
				return errTest
			case rand.IntN(20) == 0:
				return Snooze(time.Millisecond)
			}
			return nil
		})
		stop := crew(t, db, 2, WorkerOptions{Batch: 10}, h)
		for part := range slices.Chunk(jobs, 40) {
			enqueueMany(t, c, part)
			eventually(t, "half of them are done", func() bool { return p.done() > p.made/6 })
			stop[0]()
			stop = append(stop[1:], crew(t, db, 1, WorkerOptions{}, h)...)
		}
		eventually(t, "all are done", func() bool { return p.done() == len(jobs) })
		if n, err := adminOf(c).Count(t.Context(), "", 99); err != nil || n.Dead != 6 {
			t.Errorf("%+v, %v", n, err)
		}
	})
}

// When a worker of a FIFO queue is lost, the job that it had begun comes first, and then those
// after it.
func TestFIFOOfTheLost(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, fifo)
		var r record
		lost, cut := severed(t, db)
		w := worker(t, lost, WorkerOptions{Lease: time.Second, Grace: -1, Isolated: true})
		began := make(chan bool)
		handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
			if r.add("%s", d.Payload); string(d.Payload) == "2" {
				began <- true
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		start(t, w)
		var p procession
		jobs := p.jobs(6)
		for i := range jobs {
			jobs[i].Key = ""
		}
		enqueueMany(t, c, jobs)
		received(t, "it begins the third", began)
		eventually(t, "the ends of the first two are written", func() bool {
			return rowsOf(t, db) == 4
		})
		cut()
		crew(t, db, 1, WorkerOptions{Isolated: true}, func(_ context.Context, d *Delivery) error { r.add("%s", d.Payload); return nil })
		r.wants(t, "0", "1", "2", "2", "3", "4", "5")
		empty(t, db)
	})
}

// A delayed job of a FIFO queue takes its place when it is due, and waits for nobody before.
func TestFIFODelayed(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, fifo)
		late := enqueue(t, c, Job{Kind: "x", Payload: []byte("9"), Delay: time.Hour})
		var r record
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error { r.add("%s", d.Payload); return nil })
		enqueueMany(t, c, []Job{{Kind: "x", Payload: []byte("1")}, {Kind: "x", Payload: []byte("2")}})
		start(t, w)
		r.wants(t, "1", "2")
		must(t, adminOf(c).RunNow(t.Context(), "", late))
		r.wants(t, "1", "2", "9")
		empty(t, db)
	})
}

// With key_retry pass a failed job keeps nobody waiting.
func TestFIFOPass(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { q.FIFO, q.KeyRetry, q.RetryDelay = true, "pass", time.Hour })
		enqueueMany(t, c, []Job{{Kind: "x", Payload: []byte("1")}, {Kind: "x", Payload: []byte("2")}})
		var r record
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			if r.add("%s", d.Payload); string(d.Payload) == "1" {
				return errTest
			}
			return nil
		})
		start(t, w)
		r.wants(t, "1", "2")
	})
}

// RunOnce ends while a job of a FIFO queue waits for its retry, and others for that.
func TestFIFORunOnce(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { q.FIFO, q.RetryDelay, q.RetryMaxDelay = true, time.Hour, time.Hour })
		enqueueMany(t, c, []Job{{Kind: "x"}, {Kind: "x"}, {Kind: "x"}})
		var r record
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "x", func(context.Context, *Delivery) error {
			if r.add("one"); r.len() == 2 {
				return errTest
			}
			return nil
		})
		must(t, w.RunOnce(t.Context()))
		r.wants(t, "one", "one")
		if n := left(t, c.db); n == nil {
			t.Error("nothing is left")
		}
	})
}

// A queue becomes FIFO, and ceases to be so, while jobs come and workers process them: jobs
// enqueued after a change has taken effect follow the new rule, after all that existed before.
func TestFIFOChanges(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 3})
		edit(t, c, impatient)
		var p procession
		var before sync.Map
		h := p.handler(t, func(context.Context, *Delivery) error { return nil })
		free := make(chan bool)
		crew(t, db, 2, WorkerOptions{Batch: 10}, func(ctx context.Context, d *Delivery) error {
			if d.Payload == nil {
				<-free
				before.Store(d.ID, true)
				return nil
			}
			return h(ctx, d)
		})
		old := enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x"}}, 30))
		takesEffect := func() {
			eventually(t, "the change has taken effect", func() bool {
				q, err := c.read(t.Context(), defaultQueue)
				must(t, err)
				// What the client knows of the clock may be corrected meanwhile, and ids follow it.
				return q.Newest().From < c.clock.now()-2*time.Second.Microseconds()
			})
		}
		edit(t, c, fifo)
		takesEffect()
		enqueueMany(t, c, p.jobs(30))
		close(free)
		eventually(t, "all are done", func() bool { return p.done() == p.made })
		for _, id := range old {
			if _, ok := before.Load(id); !ok {
				t.Errorf("%d was there before, and was not done before", id)
			}
		}
		edit(t, c, func(q *admin.Queue) { q.FIFO = false })
		takesEffect()
		last := enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x"}}, 10))
		eventually(t, "all are done", func() bool {
			n := 0
			for _, id := range last {
				if _, ok := before.Load(id); ok {
					n++
				}
			}
			return n == len(last)
		})
		if q, err := adminOf(c).Queue(t.Context(), defaultQueue); err != nil || q.FIFO || q.Blocks != 3 {
			t.Errorf("%+v, %v", q, err)
		}
		empty(t, db)
	})
}
