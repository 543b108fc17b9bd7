package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// ends describes the outcome of a job for whoever awaits it.
func ends(ctx context.Context, c *Client, id int64) string {
	r, err := c.Await(ctx, "", id)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %s %s %s %s", r.Queue, r.Kind, r.State, r.Result, r.Error)
}

// Who awaits a job learns how it has ended, in the process of its worker and in another, before and after its end, by its id
// alone and in its queue.
func TestAwait(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c, far := client(t, db, Options{}), other(t, db)
		edit(t, c, func(q *admin.Queue) { impatient(q); keeps(q) })
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "done", func(_ context.Context, d *Delivery) error { return d.SetResult(map[string]int{"n": 1}) })
		handle(t, w, "plain", func(context.Context, *Delivery) error { return nil })
		handle(t, w, "retried", func(_ context.Context, d *Delivery) error {
			if must(t, d.SetResult(d.Attempt)); d.Attempt < 3 {
				return errTest
			}
			return nil
		})
		handle(t, w, "slow", func(ctx context.Context, d *Delivery) error {
			must(t, d.SetProgress(ctx, Progress{Percent: 1}))
			return d.SetResult("slow")
		})
		handle(t, w, "tx", func(ctx context.Context, d *Delivery) error {
			must(t, d.SetResult("tx"))
			return inTx(ctx, db, d)
		})
		handle(t, w, "discarded", func(context.Context, *Delivery) error { return Discard(errTest) })
		handle(t, w, "dead", func(context.Context, *Delivery) error { return Bury(errTest) })
		jobs := []Job{
			{Kind: "done"},
			{Kind: "plain", Key: "k"},
			{Kind: "retried", Unique: "u"},
			{Kind: "slow"},
			{Kind: "tx"},
			{Kind: "discarded"},
			{Kind: "dead"},
			{Kind: "nobody's", Delay: time.Hour},
			{Kind: "plain", Delay: time.Millisecond},
		}
		want := []string{
			`default done done {"n":1} `, "default plain done  ", "default retried done 3 ", `default slow done "slow" `, `default tx done "tx" `,
			"default discarded discarded  " + limitText(errTest.Error(), 100), "default dead dead  " + limitText(errTest.Error(), 100), "default nobody's cancelled  ",
			"default plain done  ",
		}
		ids := enqueueMany(t, c, jobs)
		look := func(when string) (wait func()) {
			var all sync.WaitGroup
			for i, id := range ids {
				for n, of := range []*Client{c, far, far} {
					all.Go(func() {
						if got := ends(t.Context(), of, id); got != want[i] {
							t.Errorf("%s, client %d: got %q, want %q", when, n, got, want[i])
						}
					})
				}
			}
			return all.Wait
		}
		wait := look("before its end")
		start(t, w)
		must(t, adminOf(c).Cancel(t.Context(), "", ids[7]))
		wait()
		look("after its end")()
		r, err := far.Await(t.Context(), defaultQueue, ids[0])
		var made struct{ N int }
		if must(t, err); r.Job != ids[0] || r.Decode(&made) != nil || made.N != 1 {
			t.Errorf("got %+v, %+v", r, made)
		}
		r, err = far.Await(t.Context(), defaultQueue, ids[6])
		must(t, err)
		if err := r.Decode(&made); !errors.Is(err, ErrNotDone) {
			t.Errorf("got %v", err)
		}
	})
}

// A job whose end nobody could tell is refused before anybody waits, and one that leaves nothing is told.
func TestAwaitNotKept(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		id := enqueue(t, c, Job{Kind: "x", Delay: time.Hour})
		_, err := c.Await(t.Context(), "", id)
		want(t, "in a queue that keeps nothing", err, ErrNotKept)
		_, err = c.Await(t.Context(), defaultQueue, id+1)
		want(t, "of no job", err, ErrNotFound)
		_, err = c.Await(t.Context(), "none", id)
		want(t, "of no queue", err, ErrNotFound)

		edit(t, c, keeps)
		_, err = adminOf(c).Edit(t.Context(), "to", keeps)
		must(t, err)
		moved, purged := enqueue(t, c, Job{Kind: "moved", Delay: time.Hour}), enqueue(t, c, Job{Kind: "purged", Delay: time.Hour})
		said := make(chan error, 2)
		go func() {
			_, err := c.Await(t.Context(), "", purged)
			said <- err
		}()
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			_, err := c.Await(ctx, "", moved)
			said <- err
		}()
		eventually(t, "both were seen", func() bool {
			c.awaits.mu.Lock()
			defer c.awaits.mu.Unlock()
			n := 0
			for _, list := range c.awaits.all {
				for _, w := range list {
					if w.there {
						n++
					}
				}
			}
			return n == 2
		})
		_, err = c.Move(t.Context(), defaultQueue, "to", MoveOptions{Kinds: []string{"moved"}})
		must(t, err)
		db.Do(t, `DELETE FROM {prefix}job_delayed WHERE id = :id`, map[string]any{"id": purged})
		want(t, "of a job that was removed by hand", received(t, "an answer", said), ErrNotKept)
		eventually(t, "the move is noticed", func() bool {
			c.awaits.mu.Lock()
			defer c.awaits.mu.Unlock()
			return len(c.awaits.all[moved]) == 1 && c.awaits.all[moved][0].name == "to"
		})
		id = wantFresh(t, c, debounced(1))
		go func() {
			_, err := c.Await(t.Context(), "", id)
			said <- err
		}()
		eventually(t, "it was seen", func() bool {
			c.awaits.mu.Lock()
			defer c.awaits.mu.Unlock()
			return len(c.awaits.all[id]) == 1 && c.awaits.all[id][0].there
		})
		wantFresh(t, c, debounced(2))
		err = received(t, "an answer", said)
		if want(t, "of a job that was replaced", err, ErrNotKept); !strings.Contains(err.Error(), "has replaced it") {
			t.Errorf("it says: %v", err)
		}
		cancel(errTest)
		want(t, "whose context ends", received(t, "an answer", said), context.Canceled)
		c.awaits.mu.Lock()
		defer c.awaits.mu.Unlock()
		if len(c.awaits.all) > 0 || c.awaits.stop != nil {
			t.Error("it looks for jobs that nobody awaits")
		}
	})
}

// Many who wait share statements and hold no connection, so a pool of one is enough for them and for others.
func TestAwaitMany(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, keeps)
		var jobs []Job
		for range 300 {
			jobs = append(jobs, Job{Kind: "x"})
		}
		ids := enqueueMany(t, c, jobs)
		one := client(t, db.Another(t, dialect.Options{MaxConns: 1}), Options{})
		var all sync.WaitGroup
		for i, id := range ids {
			all.Go(func() {
				if got, want := ends(t.Context(), one, id), fmt.Sprintf("default x done %d ", id); got != want {
					t.Errorf("%d: got %q, want %q", i, got, want)
				}
			})
		}
		eventually(t, "all wait", func() bool {
			one.awaits.mu.Lock()
			defer one.awaits.mu.Unlock()
			return len(one.awaits.all) == len(ids)
		})
		enqueue(t, one, Job{Kind: "x"})
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error { return d.SetResult(d.ID) })
		start(t, w)
		all.Wait()
	})
}

// Cut connections and lost answers end no wait.
func TestAwaitFaults(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, keeps)
		var fault snag
		broken := client(t, fault.over(t, db), Options{})
		for call := 1; ; call++ {
			hit := false
			for _, after := range cuts(db) {
				id := enqueue(t, c, Job{Kind: "x"})
				fault.set(call, after)
				fault.arm()
				got := make(chan string)
				go func() { got <- ends(t.Context(), broken, id) }()
				eventually(t, "it waits, or was cut", func() bool {
					broken.awaits.mu.Lock()
					defer broken.awaits.mu.Unlock()
					return len(broken.awaits.all[id]) == 1 && broken.awaits.all[id][0].there || fault.reached()
				})
				w := worker(t, c, WorkerOptions{})
				handle(t, w, "x", func(_ context.Context, d *Delivery) error { return d.SetResult(1) })
				must(t, w.RunOnce(t.Context()))
				if got := received(t, "an answer", got); got != "default x done 1 " {
					t.Errorf("call %d (%v): got %q", call, after, got)
				}
				hit = hit || fault.reached()
				fault.disarm()
			}
			if !hit || call == 12 {
				break
			}
		}
	})
}
