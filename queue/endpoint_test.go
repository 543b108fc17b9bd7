package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A job's endpoint moves with the job, and reaches whoever processes it.
func TestEndpointGoesAlong(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { impatient(q); q.MaxAttempts = 2; q.KeepDone = time.Hour })
		const to = "https://worker.example.org/jobs?of=shop"
		ids := []int64{
			enqueue(t, c, Job{Kind: "fails", Endpoint: to}),
			enqueue(t, c, Job{Kind: "waits", Endpoint: to, Delay: time.Hour}),
			enqueue(t, c, Job{Kind: "works", Endpoint: to, Unique: "u"}),
		}
		many := make([]Job, 2*store.Chunk) // which are copied, where there is such a thing
		for i := range many {
			many[i] = Job{Kind: "many"}
		}
		many[store.Chunk].Endpoint = to
		all := enqueueMany(t, c, many)
		if i := info(t, c, all[store.Chunk], admin.StateReady); i.Endpoint != to {
			t.Errorf("one of many: %q", i.Endpoint)
		}
		if i := info(t, c, ids[0], admin.StateReady); i.Endpoint != to {
			t.Errorf("a ready one: %q", i.Endpoint)
		}
		var r record
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "fails", func(_ context.Context, d *Delivery) error {
			r.add("%d %s", d.Attempt, d.Endpoint)
			return errTest
		})
		for _, kind := range []string{"works", "many"} {
			handle(t, w, kind, func(context.Context, *Delivery) error { return nil })
		}
		stop := start(t, w)
		r.wants(t, "1 "+to, "2 "+to)
		for i, state := range []admin.State{admin.StateDead, admin.StateDelayed, admin.StateDone} {
			if i := becomes(t, c, ids[i], state); i.Endpoint != to {
				t.Errorf("%s: %q", state, i.Endpoint)
			}
		}
		stop()
		must(t, adminOf(c).Retry(t.Context(), "", ids[0]))
		if i := info(t, c, ids[0], admin.StateDelayed); i.Endpoint != to {
			t.Errorf("one that is tried anew: %q", i.Endpoint)
		}
		_, err := c.Enqueue(t.Context(), Job{Kind: "x", Endpoint: "ftp://a"})
		want(t, "another protocol", err, ErrInvalid)
	})
}

// A callback has its endpoint, too.
func TestEndpointOfACallback(t *testing.T) {
	text, err := writeCallback(Job{Kind: "x", Endpoint: "http://a/b"})
	must(t, err)
	j, err := readCallback(text)
	must(t, err)
	if j.Endpoint != "http://a/b" {
		t.Errorf("it is sent to %q", j.Endpoint)
	}
}

// The new holder of a lock immediately gets what the workers under it had, however long their
// leases are; workers under another lock keep theirs.
func TestSucceed(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c, next := client(t, db, Options{}), other(t, db)
		began := make(chan error, 1)
		first := worker(t, c, WorkerOptions{LeaderLock: "push"})
		handle(t, first, "x", func(ctx context.Context, _ *Delivery) error {
			began <- nil
			<-ctx.Done()
			began <- context.Cause(ctx)
			return ctx.Err()
		})
		other := worker(t, c, WorkerOptions{Queues: []string{"other"}, LeaderLock: "another"})
		start(t, first)
		start(t, other)
		id := enqueue(t, c, Job{Kind: "x"})
		must(t, received(t, "it begins", began))
		n, err := adminOf(next).TakeOver(t.Context(), "push")
		must(t, err)
		if n != 1 {
			t.Errorf("%d workers had worked under it", n)
		}
		kept := nameOf(other)
		var r record
		second := worker(t, next, WorkerOptions{LeaderLock: "push"})
		handle(t, second, "x", func(_ context.Context, d *Delivery) error { r.add("%d", d.ID); return nil })
		first.c.bells.remove(first) // it hears nothing of what comes
		start(t, second)
		eventually(t, "the other one does the job", func() bool { return r.len() > 0 })
		lost := received(t, "the first one loses the job", began)
		if !errors.Is(lost, ErrLost) {
			t.Errorf("job %d ends with %v", id, lost)
		}
		if name := nameOf(other); name != kept {
			t.Errorf("a worker under another lock is %q and was %q", name, kept)
		}
		_, err = adminOf(next).TakeOver(t.Context(), "")
		want(t, "no lock", err, ErrInvalid)
	})
}
