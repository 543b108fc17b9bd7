package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

func receiver(t *testing.T, c *Client, opt WorkerOptions) *Receiver {
	t.Helper()
	opt.Lease = cmp.Or(opt.Lease, longWait)
	r, err := c.Receiver(t.Context(), opt)
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

// receive receives n jobs that must come.
func receive(t *testing.T, r *Receiver, n int) (all []*Delivery) {
	t.Helper()
	for len(all) < n {
		got, err := r.Receive(t.Context(), n-len(all), longWait)
		must(t, err)
		if len(got) == 0 {
			t.Fatalf("%d of %d jobs came; there are %v", len(all), n, left(t, r.w.db))
		}
		all = append(all, got...)
	}
	return all
}

// What was received is done when that is said, and the next of its key comes then.
func TestReceive(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, impatient)
		r := receiver(t, c, WorkerOptions{Grace: time.Millisecond})
		_, err := r.Receive(t.Context(), 0, 0)
		want(t, "none", err, ErrInvalid)
		for _, wait := range []time.Duration{-1, 0, time.Millisecond} {
			if got, err := r.Receive(t.Context(), 1, wait); got != nil || err != nil {
				t.Errorf("nothing is there, and came %v, %v", got, err)
			}
		}
		ids := enqueueMany(t, c, []Job{{Kind: "x", Key: "k"}, {Kind: "y", Key: "k"}, {Kind: "z", Key: "k", MaxAttempts: 1}})
		d := receive(t, r, 1)[0]
		if d.ID != ids[0] || d.Kind != "x" || d.Attempt != 1 || d.Context().Err() != nil {
			t.Errorf("received %+v", d.Job)
		}
		must(t, r.Complete(t.Context(), d))
		if _, err := adminOf(c).Job(t.Context(), "", d.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("it is done, and there: %v", err)
		}
		if d.Context().Err() == nil {
			t.Error("its context goes on")
		}
		want(t, "twice", r.Complete(t.Context(), d), ErrLost)
		want(t, "and failed", r.Fail(t.Context(), d, errTest), ErrLost)

		for attempt := 1; attempt <= 3; attempt++ { // fails twice
			d = receive(t, r, 1)[0]
			if d.ID != ids[1] || d.Attempt != attempt {
				t.Errorf("received %d, attempt %d", d.ID, d.Attempt)
			}
			if attempt < 3 {
				must(t, r.Fail(t.Context(), d, errTest))
				if i := info(t, c, d.ID, admin.StateDelayed); i.Attempts != attempt {
					t.Errorf("it is %+v", i)
				}
				continue
			}
			must(t, r.Complete(t.Context(), d))
		}
		d = receive(t, r, 1)[0]
		must(t, r.Fail(t.Context(), d, nil))
		info(t, c, ids[2], admin.StateDead)
		empty(t, db)
	})
}

// Jobs whose rows were deleted by somebody else are reported one by one, whatever is completed
// with them.
func TestReceiveDeleted(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		r := receiver(t, c, WorkerOptions{Grace: time.Millisecond})
		group, err := c.NewGroup(t.Context(), Group{})
		must(t, err)
		jobs := slices.Repeat([]Job{{Kind: "x"}}, 20)
		for i := range jobs[:10] {
			jobs[i].Group = group
		}
		enqueueMany(t, c, jobs)
		var outcomes []Outcome
		for i, d := range receive(t, r, len(jobs)) {
			outcomes = append(outcomes, Outcome{Delivery: d})
			if i%3 == 0 {
				db.Do(t, "DELETE FROM {prefix}job WHERE id = :id", sqlrun.Args{"id": d.ID})
			}
		}
		for i, err := range r.Settle(t.Context(), outcomes) {
			if lost := i%3 == 0; lost != errors.Is(err, ErrLost) || !lost && err != nil {
				t.Errorf("job %d, deleted: %t, got %v", i, lost, err)
			}
		}
		empty(t, db)
	})
}

// A job that is not finished in time has failed; Extend gives it more. A cancelled one is lost,
// and its context says so.
func TestReceiveTimeout(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, impatient)
		r := receiver(t, c, WorkerOptions{Grace: time.Millisecond})
		late := enqueue(t, c, Job{Kind: "x", MaxAttempts: 1, Timeout: 10 * time.Millisecond})
		d := receive(t, r, 1)[0]
		received(t, "its context ends", d.Context().Done())
		want(t, "its cause", context.Cause(d.Context()), ErrTimeout)
		if i := becomes(t, c, late, admin.StateDead); !strings.Contains(i.Error, ErrTimeout.Error()) {
			t.Errorf("it is %+v", i)
		}
		want(t, "too late", r.Complete(t.Context(), d), ErrLost)

		enqueue(t, c, Job{Kind: "x", MaxAttempts: 1000, Timeout: time.Second})
		d = receive(t, r, 1)[0]
		for d.Extend(time.Hour); d.Context().Err() != nil; d.Extend(time.Hour) {
			d = receive(t, r, 1)[0] // again, if it was too late, on a slow machine
		}
		extended := instant.Now()
		becomes(t, c, d.ID, admin.StateRunning)
		eventually(t, "its time would be over", func() bool { return since(extended) > 1200*time.Millisecond })
		must(t, r.Complete(t.Context(), d))

		enqueue(t, c, Job{Kind: "x"})
		d = receive(t, r, 1)[0]
		must(t, adminOf(c).Cancel(t.Context(), "", d.ID))
		received(t, "its context ends", d.Context().Done())
		want(t, "its cause", context.Cause(d.Context()), ErrLost)
		want(t, "what was cancelled", r.Complete(t.Context(), d), ErrLost)
		empty(t, db)
	})
}

// Those who wait get what comes, each something if there is enough.
func TestReceiversWait(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		r := receiver(t, c, WorkerOptions{Grace: time.Millisecond})
		type answer struct {
			got []*Delivery
			err error
		}
		for range 5 {
			answers := make(chan answer)
			for range 2 {
				go func() {
					got, err := r.Receive(t.Context(), 1, longWait)
					answers <- answer{got, err}
				}()
			}
			enqueueMany(t, c, []Job{{Kind: "x"}, {Kind: "x"}})
			for range 2 {
				a := received(t, "both get one", answers)
				must(t, a.err)
				if len(a.got) != 1 {
					t.Fatalf("got %d", len(a.got))
				}
				must(t, r.Complete(t.Context(), a.got[0]))
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := r.Receive(ctx, 1, longWait)
			ended <- err
		}()
		cancel()
		want(t, "cancelled", received(t, "it ends", ended), context.Canceled)
		go func() {
			_, err := r.Receive(t.Context(), 1, longWait)
			ended <- err
		}()
		must(t, r.Close())
		want(t, "closed", received(t, "it ends", ended), ErrClosed)
	})
}

// Close gives received jobs its grace, and then leaves them to others, not as crashed. Later
// reports about them have no effect.
func TestReceiverClose(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { q.MaxCrashes = 1 })
		r := receiver(t, c, WorkerOptions{Grace: time.Hour})
		enqueue(t, c, Job{Kind: "x"})
		d := receive(t, r, 1)[0]
		closed := make(chan error, 1)
		go func() { closed <- r.Close() }()
		eventually(t, "it is closing", func() bool {
			_, err := r.Receive(t.Context(), 1, 0)
			return errors.Is(err, ErrClosed)
		})
		ctx, cancel := context.WithTimeout(t.Context(), longWait)
		defer cancel()
		must(t, r.Complete(ctx, d))
		must(t, received(t, "it is closed", closed))
		empty(t, db)

		for _, atMostOnce := range []bool{false, true} {
			r = receiver(t, c, WorkerOptions{Grace: -1, AtMostOnce: atMostOnce})
			enqueueMany(t, c, []Job{{Kind: "x"}, {Kind: "x"}})
			both := receive(t, r, 2)
			must(t, r.Close())
			for i, say := range []error{r.Complete(t.Context(), both[0]), r.Fail(t.Context(), both[1], errTest)} {
				if say == nil && !atMostOnce {
					t.Errorf("%d: what was said after the close is heard", i)
				}
			}
			want(t, "twice", r.Complete(t.Context(), both[0]), ErrLost)
			if atMostOnce {
				break
			}
			r = receiver(t, c, WorkerOptions{Grace: time.Millisecond})
			for _, d := range receive(t, r, 2) {
				if d.Crashes != 0 || d.ID != both[0].ID && d.ID != both[1].ID {
					t.Errorf("%d comes, which crashed %d times", d.ID, d.Crashes)
				}
				must(t, r.Complete(t.Context(), d))
			}
			must(t, r.Close())
		}
		empty(t, db)
		if n, err := adminOf(c).Count(t.Context(), "", 9); err != nil || n.Dead > 0 {
			t.Errorf("%+v, %v", n, err)
		}
	})
}

// A caller gets as many jobs as it asks for, if they are ready: whether they existed before the
// receiver, or come while somebody waits.
func TestReceiveFills(t *testing.T) {
	for _, c := range []struct {
		name   string
		blocks int
		jobs   int
		takes  []int
		waits  bool
	}{
		{"ready before", 16, 250, []int{100, 100, 100}, false},
		{"many of one block", 1, 750, []int{500, 500}, false},
		{"they come", 16, 250, []int{100, 100, 100}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			memory(t, func(t *testing.T, db *dbtest.DB) {
				cl := client(t, db, Options{Blocks: c.blocks})
				jobs := slices.Repeat([]Job{{Kind: "x"}}, c.jobs)
				var ids []int64
				if !c.waits {
					ids = enqueueMany(t, cl, jobs)
				}
				r := receiver(t, cl, WorkerOptions{Grace: -1})
				r.w.mu.Lock()
				r.w.patience = longWait
				r.w.mu.Unlock()
				if c.waits {
					if got, err := r.Receive(t.Context(), 1, 0); len(got) > 0 || err != nil {
						t.Fatalf("got %d, %v", len(got), err)
					}
					time.AfterFunc(0, func() {
						_, err := cl.EnqueueMany(t.Context(), jobs)
						if err != nil {
							t.Error(err)
						}
					})
				}
				var all []int64
				for i, n := range c.takes {
					got, err := r.Receive(t.Context(), n, longWait)
					must(t, err)
					if want := min(n, c.jobs-len(all)); len(got) != want {
						t.Errorf("%d: got %d of %d jobs", i, len(got), want)
					}
					for _, d := range got {
						all = append(all, d.ID)
					}
				}
				if !c.waits && !slices.Equal(all, ids) {
					t.Errorf("got %v, in this order, and not %v", all, ids)
				}
			})
		})
	}
}

// A smallRoom has room for some bytes.
type smallRoom struct{ left int }

func (r *smallRoom) Free() bool { return r.left > 0 }
func (r *smallRoom) Take(n int) { r.left -= n }

// A caller gets as many jobs as there is room for, plus one. One without room keeps no other waiting, and gets jobs when there is
// room again. A payload can be dropped; the job goes on, and so does its next attempt.
func TestReceiveWithin(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, impatient)
		r := receiver(t, c, WorkerOptions{Grace: time.Millisecond})
		within := func(room Room, wait time.Duration) []*Delivery {
			t.Helper()
			got, err := r.ReceiveWithin(t.Context(), 10, wait, nil, room)
			must(t, err)
			return got
		}
		enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x", Payload: []byte(`"12345678"`)}}, 4))
		eventually(t, "all are there", func() bool {
			r.w.mu.Lock()
			defer r.w.mu.Unlock()
			return r.w.terms.Held >= 40
		})
		got := within(&smallRoom{15}, longWait)
		if len(got) != 2 {
			t.Fatalf("got %d jobs for 15 bytes", len(got))
		}
		none := &smallRoom{}
		if got, err := r.ReceiveWithin(t.Context(), 1, 0, nil, none); len(got) > 0 || !errors.Is(err, ErrNoRoom) {
			t.Errorf("without room: %d jobs, %v", len(got), err)
		}
		later := make(chan []*Delivery)
		go func() {
			got, err := r.ReceiveWithin(t.Context(), 10, longWait, nil, none)
			if err != nil {
				t.Error(err)
			}
			later <- got
		}()
		eventually(t, "it waits", func() bool {
			r.w.mu.Lock()
			defer r.w.mu.Unlock()
			return len(r.waiting) == 1
		})
		got = append(got, within(&smallRoom{1}, longWait)...)
		if len(got) != 3 {
			t.Errorf("the one behind got %d jobs", len(got)-2)
		}
		r.w.mu.Lock()
		none.left = 1
		r.w.mu.Unlock()
		r.Resume()
		got = append(got, <-later...)
		if len(got) != 4 {
			t.Fatalf("%d jobs came", len(got))
		}
		r.Unload(got[:2])
		if got[0].Payload != nil || got[2].Payload == nil {
			t.Errorf("there are %q and %q", got[0].Payload, got[2].Payload)
		}
		must(t, r.Complete(t.Context(), got[0]))
		must(t, r.Fail(t.Context(), got[1], errTest))
		if again := receive(t, r, 1)[0]; again.ID != got[1].ID || string(again.Payload) != `"12345678"` {
			t.Errorf("after its failure came %d with %q", again.ID, again.Payload)
		}
	})
}
