package queue

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

// handedBack allows for a busy machine, which takes longer than a second.
var handedBack = regexp.MustCompile(`handed back: the worker was stopped \d+s after it had begun`)

// A stopped is the life of a worker that is stopped as soon as jobs of kind x have begun.
type stopped struct {
	jobs int // their number; default: 1
	opt  WorkerOptions
	slow time.Duration                                                      // when the job is checked out; 0: never
	ends func(ctx context.Context, d *Delivery, over <-chan struct{}) error // the rest of the job, until the worker is over
}

// live returns the jobs that have begun, in order.
func (s *stopped) live(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	s.opt.Grace = -1
	w := worker(t, client(t, db, Options{}), s.opt)
	if w.slow = longWait; s.slow != 0 {
		w.slow = s.slow
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var begun record
	over := make(chan struct{})
	all := max(1, s.jobs)
	handle(t, w, "y", func(context.Context, *Delivery) error { begun.add("y"); return nil })
	handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
		begun.add("x")
		if s.slow != 0 {
			eventually(t, "it is checked out", func() bool { return d.isOut() })
		}
		if begun.count("x") == all {
			stop()
		}
		if s.ends != nil {
			return s.ends(ctx, d, over)
		}
		<-ctx.Done()
		return ctx.Err()
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	err := received(t, "the worker ends", ended)
	close(over)
	must(t, err)
	return begun.all()
}

// pauseOver has the pause of all jobs be over.
func pauseOver(t *testing.T, db *dbtest.DB) {
	t.Helper()
	db.Do(t, `UPDATE {prefix}job_delayed SET run_at = {now} WHERE stops > 0 AND run_at > {now}`, nil)
}

// The class: an outcome that is tried again without a limit because it is nobody's fault. A job that is handed
// back has one of its own, however it is handed back: see TestWaysOfHandingBack. A lost lease has one, too
// (runner_return.go), and so have deaths. Without a limit are: Snooze and a release over HTTP, each of which a program
// asks for, at a time that it chooses; a take at the SQL prompt that is rolled back, which is the session's own doing;
// and a command that cannot be run, which ends its worker before any job of it has begun, and says so.
//
// A job that stops its worker soon after its begin has begun five times when it is dead, twice after a pause. The
// jobs of its key wait until then.
func TestJobThatStopsItsWorker(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, s := range []*stopped{{}, {slow: time.Millisecond, opt: WorkerOptions{Isolated: true}}} {
			c := client(t, db, Options{})
			id := enqueue(t, c, Job{Kind: "x", Key: "k"})
			behind := enqueue(t, c, Job{Kind: "y", Key: "k"})
			for n := 1; n <= pace.Most; n++ {
				if begun := s.live(t, db); !slices.Equal(begun, []string{"x"}) {
					t.Fatalf("%q have begun at start %d", begun, n)
				}
				if n == pace.Most {
					break
				}
				j := info(t, c, id, admin.StateDelayed)
				if j.Attempts != 0 || j.Crashes != 0 || !handedBack.MatchString(j.Error) {
					t.Errorf("%d: %+v", n, j)
				}
				row := db.List(t, `SELECT stops, hold_key, CASE WHEN run_at > {now} THEN 'pauses' ELSE 'goes on' END FROM {prefix}job_delayed WHERE id = :id`,
					sqlrun.Args{"id": id})
				goes := map[bool]string{true: "pauses", false: "goes on"}[n >= pace.Suspicious]
				if want := fmt.Sprint(n, " k ", goes); !slices.Equal(row, []string{want}) {
					t.Errorf("its row says %q, not %q", row, want)
				}
				suspects, err := adminOf(c).Suspicious(t.Context(), time.Hour, 10)
				must(t, err)
				if named := len(suspects) == 1 && suspects[0].ID == id; named != (n >= pace.Suspicious) {
					t.Errorf("after %d stops, suspicious are %+v", n, suspects)
				}
				pauseOver(t, db)
			}
			j := info(t, c, id, admin.StateDead)
			if !strings.Contains(j.Error, "it seems to stop its worker: 5 workers in a row") || j.Attempts != 1 {
				t.Errorf("%+v", j)
			}
			info(t, c, behind, admin.StateReady)
			w := worker(t, c, WorkerOptions{})
			handle(t, w, "y", func(context.Context, *Delivery) error { return nil })
			once(t, w)
			must(t, adminOf(c).Delete(t.Context(), "", id))
			empty(t, db)
		}
	})
}

// A job is handed back by the end of its context, by a handler that snoozes because of that, by one that does not
// return, and by HandBack, of a handler or of a Receiver. All of them count, and a job that does not pause keeps its
// place among the others: it has been due for as long as before.
func TestWaysOfHandingBack(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		for name, end := range map[string]func(ctx context.Context, d *Delivery, over <-chan struct{}) error{
			"returns": nil,
			"snoozes": func(ctx context.Context, _ *Delivery, _ <-chan struct{}) error { <-ctx.Done(); return Snooze(0) },
			"stays":   func(_ context.Context, _ *Delivery, over <-chan struct{}) error { <-over; return nil },
			"hands":   func(ctx context.Context, _ *Delivery, _ <-chan struct{}) error { <-ctx.Done(); return HandBack(nil) },
		} {
			id := enqueue(t, c, Job{Kind: "x"})
			s := &stopped{ends: end}
			for n := 1; n <= 2; n++ {
				if begun := s.live(t, db); !slices.Equal(begun, []string{"x"}) {
					t.Errorf("%s: %q have begun", name, begun)
				}
				wantStops(t, db, id, n)
				if n > 1 && len(db.List(t, `SELECT id FROM {prefix}job_delayed WHERE run_at < {now + -1800000000}`, nil)) == 0 {
					t.Errorf("%s: it has lost its place", name)
				}
				db.Do(t, `UPDATE {prefix}job_delayed SET run_at = {now + -3600000000} WHERE id > 0`, nil)
			}
			must(t, adminOf(c).Cancel(t.Context(), "", id))
		}
		id := enqueue(t, c, Job{Kind: "x"})
		r, err := c.Receiver(t.Context(), WorkerOptions{Lease: longWait})
		must(t, err)
		for n := 1; n <= 2; n++ {
			got, err := r.Receive(t.Context(), 1, longWait)
			must(t, err)
			must(t, r.Fail(t.Context(), got[0], HandBack(errTest)))
			wantStops(t, db, id, n)
		}
		must(t, r.Close())
	})
}

// wantStops fails the test unless a delayed job was handed back so many times in a row.
func wantStops(t *testing.T, db *dbtest.DB, id int64, n int) {
	t.Helper()
	row := db.List(t, `SELECT stops, attempt FROM {prefix}job_delayed WHERE id = :id`, sqlrun.Args{"id": id})
	if want := []string{fmt.Sprint(n, " 0")}; !slices.Equal(row, want) {
		t.Errorf("its row says %q, not %q", row, want)
	}
}

// Any other end of an attempt is no stop: a failure, a snooze, or the end of a worker in which the job has gone on for
// longer. Jobs that are handed back together do not fail as soon.
func TestStopsInARow(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		for what, ends := range map[string]error{"failed": RetryAfter(time.Hour, errTest), "snoozed": Snooze(time.Hour), "long": nil} {
			id := enqueue(t, c, Job{Kind: "x"})
			for range 2 {
				(&stopped{}).live(t, db)
			}
			wantStops(t, db, id, 2)
			if ends == nil {
				(&stopped{ends: func(ctx context.Context, d *Delivery, _ <-chan struct{}) error {
					run := d.runner()
					run.mu.Lock()
					d.began = d.began.Add(-pace.Soon)
					run.mu.Unlock()
					<-ctx.Done()
					return ctx.Err()
				}}).live(t, db)
			} else {
				w := worker(t, c, WorkerOptions{})
				handle(t, w, "x", func(context.Context, *Delivery) error { return ends })
				once(t, w)
			}
			if rows := db.List(t, `SELECT stops FROM {prefix}job_delayed WHERE stops > 0`, nil); len(rows) > 0 {
				t.Errorf("%s: %q stops in a row", what, rows)
			}
			must(t, adminOf(c).Cancel(t.Context(), "", id))
		}
		ids := enqueueMany(t, c, []Job{{Kind: "x"}, {Kind: "x"}})
		for range pace.Most + 1 {
			(&stopped{jobs: 2}).live(t, db)
			pauseOver(t, db)
		}
		for _, id := range ids {
			wantStops(t, db, id, pace.Most+1)
		}
	})
}

// A job that pauses begins at once, and counts from 0, when a worker of its queue is stopped without it, unless that
// was the same stop; not when one ends because nothing is left.
func TestPauseAfterStops(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		id := enqueue(t, c, Job{Kind: "x"})
		for range pace.Suspicious {
			(&stopped{}).live(t, db)
		}
		pauses := func(when string, want bool) {
			t.Helper()
			n := len(db.List(t, `SELECT id FROM {prefix}job_delayed WHERE stops = 3 AND run_at > {now}`, nil))
			if n == 1 != want {
				t.Errorf("%s, %d jobs pause", when, n)
			}
		}
		pauses("after three stops", true)
		start(t, worker(t, c, WorkerOptions{}))()
		pauses("after the same stop", true)
		db.Do(t, `UPDATE {prefix}job_delayed SET stopped_at = {now + :ago} WHERE stops > 0`, sqlrun.Args{"ago": -pace.Soon.Microseconds()})
		once(t, worker(t, c, WorkerOptions{}))
		pauses("after a worker that ended by itself", true)
		start(t, worker(t, c, WorkerOptions{Queues: []string{"other"}}))()
		pauses("after a stop in another queue", true)
		for what, row := range map[string]string{"snoozed": "stops = 2", "due": "run_at = {now}"} {
			db.Do(t, `UPDATE {prefix}job_delayed SET `+row+` WHERE stops > 0`, nil)
			start(t, worker(t, c, WorkerOptions{}))()
			if n := len(db.List(t, `SELECT id FROM {prefix}job_delayed WHERE stops > 0`, nil)); n != 1 {
				t.Errorf("a job that does not pause, and is %s, was let go", what)
			}
			db.Do(t, `UPDATE {prefix}job_delayed SET stops = 3, run_at = {now + 3600000000} WHERE id > 0`, nil)
		}
		start(t, worker(t, c, WorkerOptions{}))()
		pauses("after a stop", false)
		if rows := db.List(t, `SELECT stops FROM {prefix}job_delayed WHERE id = :id AND run_at <= {now}`, sqlrun.Args{"id": id}); !slices.Equal(rows, []string{"0"}) {
			t.Errorf("it has %q stops", rows)
		}
	})
}

// The message of a handler that hands back is what its middleware sees.
func TestHandBackIsNoFailure(t *testing.T) {
	if err := HandBack(errTest); Failed(err) || !errors.Is(err, errTest) || Failed(fmt.Errorf("more: %w", HandBack(nil))) {
		t.Errorf("%v", err)
	}
}
