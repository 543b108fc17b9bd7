package queue

import (
	"context"
	"fmt"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// A recorder notes whose jobs begin.
type recorder struct {
	begun chan string
	done  chan struct{} // nobody listens any more
}

func (r *recorder) handle(_ context.Context, d *Delivery) error {
	select {
	case r.begun <- d.Tenant:
	case <-r.done:
	}
	return nil
}

// fairQueue makes a fair queue.
func fairQueue(t *testing.T, c *Client, name string) {
	t.Helper()
	_, err := adminOf(c).Edit(t.Context(), name, func(q *admin.Queue) { q.Fair = true })
	must(t, err)
}

func ofTenant(tenant string, n int) []Job {
	all := make([]Job, n)
	for i := range all {
		all[i] = Job{Queue: "q", Kind: "k", Tenant: tenant}
	}
	return all
}

// While one tenant has thousands of jobs, those of others that come later have their turns at once.
func TestFairToEveryTenant(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		fairQueue(t, c, "q")
		_, err := c.EnqueueMany(t.Context(), ofTenant("flood", 12_000))
		must(t, err)
		_, err = c.EnqueueMany(t.Context(), append(ofTenant("ada", 20), ofTenant("", 20)...))
		must(t, err)
		r := recorder{make(chan string), make(chan struct{})}
		w := worker(t, c, WorkerOptions{Queues: []string{"q"}, Concurrency: 1, Batch: 20})
		must(t, w.Handle("k", r.handle))
		stop := start(t, w)
		defer stop()
		defer close(r.done)
		before := 0
		for others := 0; others < 40; {
			// A job takes a round trip: so the server, or a machine that is busy, is as slow for the flood as for those who look ahead.
			db.Scan(t, "SELECT 1", nil, new(int))
			if name := <-r.begun; name != "flood" {
				others++
				continue
			}
			// One turn in three is theirs, once the blocks have been read and looked at; until then the flood's are all there is.
			if before++; before > 3000 {
				t.Fatalf("%d jobs of the flood have begun, and %d of the others", before, others)
			}
		}
	})
}

// A fair queue does each job once, and those of a key in their order.
func TestFairInOrder(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		fairQueue(t, c, "q")
		must(t, adminOf(c).SetShare(t.Context(), "q", "b", 7))
		var jobs []Job
		for i := range 3000 {
			tenant := "a"
			if i%10 == 9 {
				tenant = "b"
			}
			jobs = append(jobs, Job{Queue: "q", Kind: "k", Tenant: tenant, Key: fmt.Sprint(tenant, i%7), Payload: fmt.Append(nil, i)})
		}
		_, err := c.EnqueueMany(t.Context(), jobs)
		must(t, err)
		last, n := map[string]int{}, 0
		w := worker(t, c, WorkerOptions{Queues: []string{"q"}, Concurrency: 1, Batch: 10})
		must(t, w.Handle("k", func(_ context.Context, d *Delivery) error {
			var i int
			must(t, d.Decode(&i))
			if was, ok := last[d.Key]; ok && was >= i {
				t.Errorf("%s: %d after %d", d.Key, i, was)
			}
			last[d.Key] = i
			n++
			return nil
		}))
		must(t, w.RunOnce(t.Context()))
		if n != 3000 {
			t.Errorf("%d of 3000 jobs were done", n)
		}
	})
}

// The shares of tenants are set, listed and deleted; a FIFO queue is not fair.
func TestSharesOfTenants(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		a := adminOf(c)
		fairQueue(t, c, "q")
		must(t, a.SetShare(t.Context(), "q", "b", 2))
		must(t, a.SetShare(t.Context(), "q", "a", 3))
		must(t, a.SetShare(t.Context(), "q", "b", 5))
		is := func(want string) {
			t.Helper()
			all, err := a.Shares(t.Context(), "q", "", 10)
			must(t, err)
			if got := fmt.Sprint(all); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		is("[{q a 3 } {q b 5 }]")
		must(t, a.DeleteShare(t.Context(), "q", "a"))
		is("[{q b 5 }]")
		want(t, "deleting what is not there", a.DeleteShare(t.Context(), "q", "a"), ErrNotFound)
		must(t, a.SetShare(t.Context(), "made", "a", 1))
		want(t, "no share", a.SetShare(t.Context(), "q", "a", 0), ErrInvalid)
		want(t, "a blank", a.SetShare(t.Context(), "q", " a", 1), ErrInvalid)
		_, err := a.Edit(t.Context(), "q", func(q *admin.Queue) { q.FIFO = true })
		want(t, "a FIFO queue that is fair", err, ErrInvalid)
	})
}
