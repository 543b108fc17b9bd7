package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/rig"
)

// What a handler has stored is there at the next attempt, wherever the job has been
// meanwhile: it waited for its retry, was dead and brought back, snoozed.
func TestProgress(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, func(q *admin.Queue) { impatient(q); q.MaxAttempts = 3 })
		w := worker(t, c, WorkerOptions{})
		var r record
		large := bytes.Repeat([]byte("\x00\xffa"), longestState/3)
		handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
			p := d.Progress()
			r.add("%d %d %s", len(p.State), p.Percent, p.Message)
			switch r.len() {
			case 1:
				must(t, d.SetProgress(ctx, Progress{State: []byte("first")}))
				must(t, d.SetProgress(ctx, Progress{State: large, Percent: 40, Message: "page 4"}))
				if !bytes.Equal(d.Progress().State, large) {
					t.Error("it is not what was stored")
				}
				return errTest
			case 2: // and it has stored nothing itself
				if i := info(t, c, d.ID, admin.StateDelayed); i.Progress.Percent != 40 || !bytes.Equal(i.Progress.State, large) {
					t.Errorf("it has %d%% and %d bytes", i.Progress.Percent, len(i.Progress.State))
				}
				return Snooze(time.Millisecond)
			case 3:
				must(t, d.SetProgress(ctx, Progress{Percent: 50}))
				if i := info(t, c, d.ID, admin.StateRunning); i.Progress.Percent != 50 || i.Progress.State != nil || i.Progress.Message != "" {
					t.Errorf("it runs with %+v", i.Progress)
				}
				must(t, d.SetProgress(ctx, Progress{State: []byte("s"), Percent: 60}))
				return errTest
			case 4:
				must(t, d.SetProgress(ctx, Progress{State: []byte("t"), Percent: 70}))
				return errTest // which was its last attempt
			case 5:
				return Bury(errTest)
			}
			return nil
		})
		next := make(chan struct{})
		handle(t, w, "next", func(context.Context, *Delivery) error { close(next); return nil })
		start(t, w)
		id := enqueue(t, c, Job{Kind: "x", Key: "k"})
		for range 2 {
			if i := becomes(t, c, id, admin.StateDead); i.Progress.Percent != 70 || string(i.Progress.State) != "t" {
				t.Errorf("it died with %+v", i.Progress)
			}
			jobs, _, err := adminOf(c).Jobs(t.Context(), admin.Filter{State: admin.StateDead})
			must(t, err)
			if len(jobs) != 1 || jobs[0].Progress.Percent != 70 || jobs[0].Progress.State != nil {
				t.Errorf("listed: %+v", jobs)
			}
			must(t, adminOf(c).Retry(t.Context(), "", id))
		}
		enqueue(t, c, Job{Kind: "next", Key: "k"})
		received(t, "the next job of the key", next)
		r.wants(t, "0 0 ", fmt.Sprintf("%d 40 page 4", len(large)), fmt.Sprintf("%d 40 page 4", len(large)), "1 60 ", "1 70 ", "1 70 ")
		empty(t, db)
	})
}

// Progress goes with a job that is moved to another queue, or to other blocks.
func TestProgressOfTheMoved(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		elsewhere(t, c, "to", 3)
		edit(t, c, func(q *admin.Queue) { q.RetryDelay, q.RetryMaxDelay = time.Hour, time.Hour })
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
			must(t, Checkpoint(ctx, d, []int{d.Attempt, 7}))
			return errTest
		})
		id := enqueue(t, c, Job{Kind: "x"})
		stop := start(t, w)
		becomes(t, c, id, admin.StateDelayed)
		stop()
		moveAll(t, c, MoveOptions{}, Moved{Jobs: 1})
		must(t, adminOf(c).Retry(t.Context(), "to", id))
		w = worker(t, c, WorkerOptions{Queues: []string{"to"}})
		found := make(chan []int, 1)
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			v, ok, err := Resume[[]int](d)
			if !ok || err != nil {
				t.Errorf("resumed: %v, %v", ok, err)
			}
			found <- v
			return nil
		})
		start(t, w)
		if v := received(t, "the next attempt", found); !slices.Equal(v, []int{1, 7}) {
			t.Errorf("it goes on from %v", v)
		}
	})
}

// A worker that has lost a job stores nothing, and is told so.
func TestProgressOfTheLost(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		for _, lost := range []string{"lock_by = 'you'", "attempt = 2", "state = 'handed', started_at = {now}", "divided = 77", ""} {
			c := client(t, db, Options{Blocks: 1})
			w := worker(t, c, WorkerOptions{Lease: longWait})
			outcome := make(chan error, 1)
			handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
				if d.Progress().Percent > 0 {
					return nil // which is another's turn
				}
				must(t, d.SetProgress(ctx, Progress{Percent: 1}))
				if lost == "" {
					must(t, adminOf(c).Cancel(t.Context(), "", d.ID))
				} else {
					byHand(t, db, "UPDATE {prefix}job_running SET "+lost)
				}
				err := d.SetProgress(ctx, Progress{Percent: 2})
				if !errors.Is(context.Cause(ctx), ErrLost) || d.Progress().Percent != 1 {
					t.Errorf("%s: the context has ended with %v, and %+v is stored", lost, context.Cause(ctx), d.Progress())
				}
				if n := db.List(t, `SELECT percent FROM {prefix}job_running WHERE percent > 1`, nil); len(n) > 0 {
					t.Errorf("%s: %v was stored", lost, n)
				}
				outcome <- err
				return err
			})
			stop := start(t, w)
			enqueue(t, c, Job{Kind: "x"})
			want(t, lost, received(t, "the outcome", outcome), ErrLost)
			stop()
			void(t, db)
		}
	})
}

// A worker that dies leaves what its jobs have stored to those who take them over.
func TestProgressOfTheDead(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		cut, sever := severed(t, db)
		first := worker(t, cut, WorkerOptions{Lease: 2 * time.Second})
		var r record
		stored, late := make(chan struct{}), make(chan error, 1)
		handle(t, first, "x", func(ctx context.Context, d *Delivery) error {
			must(t, Checkpoint(ctx, d, "here"))
			close(stored)
			<-ctx.Done()
			late <- Checkpoint(context.WithoutCancel(ctx), d, "late")
			return nil
		})
		start(t, first)
		c := other(t, db)
		id := enqueue(t, c, Job{Kind: "x"})
		received(t, "the snapshot", stored)
		sever()
		second := worker(t, c, WorkerOptions{})
		handle(t, second, "x", func(_ context.Context, d *Delivery) error {
			v, _, err := Resume[string](d)
			r.add("%s %d %v", v, d.Crashes, err)
			return nil
		})
		start(t, second)
		r.wants(t, "here 1 <nil>")
		want(t, "the lost one stores", received(t, "the lost one", late), ErrLost)
		empty(t, db)
		if _, err := adminOf(c).Job(t.Context(), "", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("the job is there: %v", err)
		}
	})
}

// A job that has to end because its worker is stopping can store its progress: the next worker
// continues from there, and no crash is counted.
func TestProgressAtTheEnd(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		w := worker(t, c, WorkerOptions{Grace: time.Millisecond})
		began := make(chan struct{})
		handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
			close(began)
			<-ctx.Done()
			must(t, Checkpoint(context.WithoutCancel(ctx), d, 3))
			return ctx.Err()
		})
		stop := start(t, w)
		enqueue(t, c, Job{Kind: "x"})
		received(t, "it begins", began)
		stop()
		var r record
		w = worker(t, c, WorkerOptions{})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			v, _, err := Resume[int](d)
			r.add("%d %d %d %v", v, d.Attempt, d.Crashes, err)
			return nil
		})
		start(t, w)
		r.wants(t, "3 1 0 <nil>")
		empty(t, db)
	})
}

// Invalid progress is refused, and the error says why.
func TestProgressInvalid(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		refused := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, ErrInvalid) || !strings.Contains(fmt.Sprint(err), what) {
				t.Errorf("%v, and not about %q", err, what)
			}
		}
		ended := make(chan *Delivery, 2)
		for _, opt := range []WorkerOptions{{}, {AtMostOnce: true}} {
			w := worker(t, c, opt)
			handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
				defer func() { ended <- d }()
				if opt.AtMostOnce {
					refused("nowhere to store it", d.SetProgress(ctx, Progress{}))
					return nil
				}
				refused("state: it has 1048577 bytes, and up to 1048576", d.SetProgress(ctx, Progress{State: make([]byte, longestState+1)}))
				refused("percent: 101", d.SetProgress(ctx, Progress{Percent: 101}))
				refused("percent: -1", d.SetProgress(ctx, Progress{Percent: -1}))
				refused("state", Checkpoint(ctx, d, func() {}))
				if _, ok, err := Resume[int](d); ok || err != nil {
					t.Errorf("nothing is stored: %v, %v", ok, err)
				}
				must(t, Checkpoint(ctx, d, "text"))
				if _, _, err := Resume[int](d); !errors.Is(err, ErrInvalid) {
					t.Errorf("a text is a number: %v", err)
				}
				must(t, d.SetProgress(ctx, Progress{Message: strings.Repeat("ä", 2000) + "\xff\x00"}))
				if n := len(d.Progress().Message); n > 1010 || n < 900 {
					t.Errorf("the message has %d bytes", n)
				}
				must(t, inTx(ctx, db, d))
				refused("the job is being completed", d.SetProgress(ctx, Progress{}))
				return nil
			})
			stop := start(t, w)
			enqueue(t, c, Job{Kind: "x"})
			d := received(t, "its end", ended)
			empty(t, db)
			stop()
			if !opt.AtMostOnce {
				want(t, "of a job that has ended", d.SetProgress(t.Context(), Progress{}), ErrLost)
			}
		}
	})
}

// A snag breaks a connection at one round trip, counted from when it is armed.
type snag struct {
	mu          sync.Mutex
	armed       bool
	calls, call int
	after       bool
}

// over returns another connection to a database, which the snag breaks.
func (f *snag) over(t *testing.T, db *dbtest.DB) *dbtest.DB {
	t.Helper()
	broken := db.Broken(t, &dbtest.Fault{Random: func() (bool, bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.armed {
			f.calls++
		}
		return f.armed && f.calls == f.call, f.after
	}})
	broken.Pool().SetMaxOpenConns(2)
	return broken
}

// set chooses the round trip; arm starts counting, disarm stops it, and reached reports whether
// it was reached.
func (f *snag) set(call int, after bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.calls, f.call, f.after = false, 0, call, after
}

func (f *snag) arm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = f.call > 0
}

func (f *snag) disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
}

func (f *snag) reached() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	hit := f.calls >= f.call
	f.armed, f.call = false, 0
	return hit
}

// proceed has workers with some handlers, one after the other, do what there is to do
// until all is done.
func proceed(t *testing.T, c *Client, handlers func(w *Worker), over func() bool) {
	t.Helper()
	eventually(t, "all is done", func() bool {
		w := worker(t, c, WorkerOptions{})
		handlers(w)
		must(t, w.inline(t.Context(), func([]rig.Outcome) bool { return true }))
		return over()
	})
}

// Wherever a worker's connection breaks, the next attempt continues from what was stored last
// or, if that is unknown, from what was being stored: never from before that.
func TestProgressFaults(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, impatient)
		var fault snag
		broken := fault.over(t, db)
		for call := 1; ; call++ {
			hit := false
			for _, after := range cuts(db) {
				fault.set(call, after)
				var mu sync.Mutex
				known, tried := 0, 0
				handlers := func(w *Worker) {
					handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
						fault.arm()
						mu.Lock()
						defer mu.Unlock()
						at, _, err := Resume[int](d)
						if err != nil || at != known && at != tried {
							t.Errorf("call %d (%v): attempt %d goes on from %d, %v; %d were stored", call, after, d.Attempt, at, err, known)
						}
						for known, tried = at, at; tried < 2; known = tried {
							tried++
							if err := Checkpoint(ctx, d, tried); err != nil {
								return err
							}
							if tried == 1 && d.Attempt == 1 {
								known = tried
								return errTest
							}
						}
						return nil
					})
				}
				id := enqueue(t, c, Job{Kind: "x"})
				w := worker(t, client(t, broken, Options{}), WorkerOptions{Lease: 5 * time.Second})
				handlers(w)
				if err := w.inline(t.Context(), func(all []rig.Outcome) bool {
					if all[0].Verdict == words[done] {
						fault.disarm() // what comes then is not about this job
					}
					return true
				}); err != nil {
					t.Logf("call %d (%v): %v", call, after, err)
				}
				hit = hit || fault.reached()
				proceed(t, c, handlers, func() bool {
					_, err := adminOf(c).Job(t.Context(), "", id)
					return errors.Is(err, ErrNotFound)
				})
				mu.Lock()
				if known != 2 {
					t.Errorf("call %d (%v): it ended with %d", call, after, known)
				}
				mu.Unlock()
			}
			if !hit {
				break
			}
		}
		empty(t, db)
	})
}
