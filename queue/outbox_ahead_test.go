package queue

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// heavy are jobs with payloads of heavySize bytes, which say which job it is.
func heavy(n int, job Job) []Job {
	all := make([]Job, n)
	for i := range all {
		all[i] = job
		all[i].Payload = fmt.Appendf(nil, `"%06d%s"`, i, bytes.Repeat([]byte("x"), heavySize-8))
	}
	return all
}

// retained returns how many bytes of payloads a worker holds of jobs that it has read.
func retained(w *Worker) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		for _, b := range q.blocks {
			for j := range b.AllSeen() {
				if d := deliveryOf(j); d != nil {
					n += d.bytes()
				}
			}
		}
	}
	return n
}

// counted returns how many bytes a worker counts as read ahead.
func counted(w *Worker) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.terms.Held
}

const (
	heavyJobs  = 120
	heavySize  = 32 << 10
	heavyAhead = 8 * heavySize
)

// However large payloads are, a worker keeps no more of them than it may, but for those
// that run, and does all jobs with the payloads that they have: those that are ready, that
// wait for others of their keys, for a limit or for their time, and that are tried again.
func TestReadAhead(t *testing.T) {
	type load struct {
		job   Job
		limit int
		fail  bool
	}
	for name, l := range map[string]load{
		"ready":   {},
		"key":     {job: Job{Key: "k"}},
		"limit":   {limit: 1},
		"delayed": {job: Job{Delay: time.Millisecond}},
		"binary":  {job: Job{Binary: true}},
		"retried": {fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, db *dbtest.DB) {
				c := client(t, db, Options{Blocks: 3})
				edit(t, c, impatient)
				if l.limit > 0 {
					_, err := adminOf(c).EditLimit(t.Context(), defaultQueue, "x", func(limit *admin.Limit) { limit.Running = l.limit })
					must(t, err)
				}
				job := l.job // the engines run side by side
				job.Kind = "x"
				jobs := heavy(heavyJobs, job)
				enqueueMany(t, c, jobs)
				enqueueMany(t, c, []Job{{Kind: "light"}})
				w := worker(t, other(t, db), WorkerOptions{Concurrency: 4, ReadAhead: heavyAhead})
				r, done := &record{}, &record{}
				handle(t, w, "light", func(context.Context, *Delivery) error { return nil })
				handle(t, w, "x", func(_ context.Context, d *Delivery) error {
					if l.fail && d.Attempt == 1 {
						return errTest
					}
					if n := retained(w); n > heavyAhead+(4+2*4)*heavySize { // what runs, and what ends
						r.add("%d bytes are kept", n)
					}
					var n int
					if _, err := fmt.Sscanf(string(d.Payload[1:7]), "%d", &n); err != nil || !bytes.Equal(d.Payload, jobs[n].Payload) ||
						d.Binary != l.job.Binary {
						r.add("a payload of %d bytes: %.10s", len(d.Payload), d.Payload)
						return nil
					}
					done.add("%06d", n)
					return nil
				})
				start(t, w)
				empty(t, db)
				lines := map[string]bool{}
				for _, line := range done.all() {
					lines[line] = true
				}
				if len(lines) != heavyJobs || r.len() > 0 {
					t.Errorf("%d of %d were done; %.20q", len(lines), heavyJobs, r.all())
				}
				eventually(t, "nothing counts any more", func() bool { return counted(w) == 0 })
			})
		})
	}
}

// Batches and Receivers get whole payloads, too.
func TestReadAheadOfBatches(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 3})
		whole := func(d *Delivery) {
			if len(d.Payload) != heavySize {
				t.Errorf("job %d has a payload of %d bytes", d.ID, len(d.Payload))
			}
		}
		for _, key := range []string{"", "k"} {
			enqueueMany(t, c, heavy(30, Job{Kind: "x", Key: key}))
			w := worker(t, other(t, db), WorkerOptions{Concurrency: 2, ReadAhead: heavyAhead})
			must(t, w.HandleBatch("x", BatchOptions{Max: 5, ByKey: key != ""}, func(_ context.Context, batch []*Delivery) error {
				for _, d := range batch {
					whole(d)
				}
				return nil
			}))
			stop := start(t, w)
			empty(t, db)
			stop()
		}
		enqueueMany(t, c, heavy(30, Job{Kind: "x"}))
		r, err := other(t, db).Receiver(t.Context(), WorkerOptions{ReadAhead: heavyAhead})
		must(t, err)
		defer r.Close()
		for range 30 {
			list := receive(t, r, 1)
			whole(list[0])
			must(t, r.Complete(t.Context(), list[0]))
		}
		enqueueMany(t, c, heavy(10, Job{Kind: "x"}))
		w := worker(t, other(t, db), WorkerOptions{AtMostOnce: true, ReadAhead: heavyAhead})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			whole(d)
			return nil
		})
		must(t, r.Close())
		start(t, w)
		empty(t, db)
	})
}

// Jobs that a worker left that died are checked out before they begin. Those that do not
// fit are read from there.
func TestReadAheadOfTheDead(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		enqueueMany(t, c, heavy(40, Job{Kind: "x"}))
		away, cut := severed(t, db)
		dead := worker(t, away, WorkerOptions{Concurrency: 1})
		stuck := make(chan bool)
		handle(t, dead, "x", func(ctx context.Context, _ *Delivery) error {
			stuck <- true
			<-ctx.Done()
			return nil
		})
		start(t, dead)
		received(t, "a job begins", stuck)
		cut()
		lapse(t, db, dead, 0)
		w := worker(t, other(t, db), WorkerOptions{Concurrency: 2, ReadAhead: 2 * heavySize})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			if len(d.Payload) != heavySize {
				t.Errorf("job %d has a payload of %d bytes", d.ID, len(d.Payload))
			}
			return nil
		})
		start(t, w)
		empty(t, db)
	})
}

// A job that is cancelled while its payload is still in the table does not begin, and does
// not stop the others of its key.
func TestReadAheadOfTheCancelled(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		w, b := idleWorker(t, db)
		w.terms.Size = 1
		ids := enqueueMany(t, w.c, heavy(3, Job{Kind: "x", Key: "k"}))
		flushDry(t, w, b)
		if got := begun(t, w, b); got != "none" {
			t.Fatalf("%.10s begins without its payload", got)
		}
		must(t, adminOf(w.c).Cancel(t.Context(), "", ids[0]))
		w.mu.Lock()
		w.enlist(b)
		w.mu.Unlock()
		flushDry(t, w, b)
		for _, want := range []string{`"000001x`, `"000002x`} {
			_ = begun(t, w, b) // which has its payload read
			w.mu.Lock()
			w.enlist(b)
			w.mu.Unlock()
			flushDry(t, w, b)
			if got := begun(t, w, b); len(got) != heavySize || got[:8] != want {
				t.Fatalf("%.10s begins, not %s", got, want)
			}
		}
		flushDry(t, w, b)
		if n := counted(w); n != 0 {
			t.Errorf("%d bytes are left", n)
		}
	})
}
