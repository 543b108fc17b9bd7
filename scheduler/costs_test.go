package scheduler

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

var updateCosts = flag.Bool("update", false, "write the costs that were counted into docs/benchmarks.md")

// costly is how many runs the costs are counted of.
const costly = 100

// What each outcome of a slot costs, in statements and round trips, is as docs/benchmarks.md says, and a batch of bad ones is a batch.
func TestCosts(t *testing.T) {
	t.Parallel()
	costs := dbtest.NewCosts(t, "../docs/benchmarks.md", "runs", *updateCosts)
	for _, e := range runCosts {
		costs.Row(e.what)
	}
	dbtest.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		metered, meter := db.Metered(t, ``)
		s := daemon(t, metered, Options{Lease: 24 * time.Hour})
		add(t, db, "follower", "@yearly")
		for i, e := range runCosts {
			for n := range costly {
				addWith(t, db, fmt.Sprintf("s%02d-%03d", i, n), "@every 1m", e.policy)
			}
			db.Advance(t, time.Minute)
			if e.before != nil {
				e.before(t, db, s)
			}
			costs.Spend(t, e.what, costly, meter, db.Engine, func() { e.do(t, s) })
			got := db.List(t, `SELECT state, COUNT(*) FROM {prefix}run GROUP BY state ORDER BY state`, nil)
			if !slices.Equal(got, e.states) {
				t.Errorf("%s: runs are %q, want %q", e.what, got, e.states)
			}
			db.Do(t, `DELETE FROM {prefix}schedule WHERE name <> 'follower'`, nil)
			db.Do(t, `DELETE FROM {prefix}run`, nil)
			s.mu.Lock()
			clear(s.running)
			s.mu.Unlock()
		}
	}, (*testing.T).Parallel)
}

// A runCost is what the runs of many schedules cost.
type runCost struct {
	what   string
	policy Policy
	before func(t *testing.T, db *dbtest.DB, s *Scheduler)
	do     func(t *testing.T, s *Scheduler)
	states []string // of runs, afterwards, with how many there are
}

// claimsAll claims the runs that are due.
func claimsAll(begin int) func(t *testing.T, s *Scheduler) {
	return func(t *testing.T, s *Scheduler) {
		t.Helper()
		if held := claimed(t, s, 2*costly); len(held) != begin {
			t.Errorf("%d have begun, want %d", len(held), begin)
		}
	}
}

// claimedBefore claims the runs, and lets time pass.
func claimedBefore(later time.Duration) func(t *testing.T, db *dbtest.DB, s *Scheduler) {
	return func(t *testing.T, db *dbtest.DB, s *Scheduler) {
		t.Helper()
		claimsAll(costly)(t, s)
		if later > 0 {
			db.Advance(t, later)
		}
	}
}

// endsAll has all runs end at once with an exit code.
func endsAll(code int) func(t *testing.T, s *Scheduler) {
	return func(t *testing.T, s *Scheduler) {
		t.Helper()
		endTogether(t, s, code).Wait()
	}
}

// endTogether has the runs that a daemon executes end with an exit code, so that their outcomes are written together.
func endTogether(t *testing.T, s *Scheduler, code int) *sync.WaitGroup {
	t.Helper()
	s.finisher.holdFor = longWait
	s.finisher.hold()
	var all sync.WaitGroup
	held := s.held()
	for _, e := range held {
		all.Go(func() { s.record(t.Context(), e, guardian.Result{Cause: guardian.Exited, ExitCode: code}) })
	}
	eventually(t, "all have ended", func() bool {
		s.finisher.mu.Lock()
		defer s.finisher.mu.Unlock()
		return len(s.finisher.waiting) == len(held)
	})
	s.finisher.release()
	return &all
}

// Failures that are written together: each run has its outcome, the next attempt its row, and the failures are counted and noted. Those of
// a schedule that another transaction has locked wait, the others do not. A run that was lost stays as it is, and one whose schedule is gone ends.
func TestFailuresTogether(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		s := daemon(t, db, Options{Lease: 24 * time.Hour})
		for name, p := range map[string]Policy{
			"again": {MaxAttempts: 2, RetryDelay: time.Second}, "counted": {MaxFailures: 2}, "ended": {MaxFailures: 1}, "gone": {}, "locked": {}, "lost": {},
			"plain": {}, "queued": {Overlap: "queue"},
		} {
			addWith(t, db, name, "@every 1m", p)
		}
		db.Advance(t, time.Minute)
		claimed(t, s, 100)
		db.Advance(t, time.Minute)
		claimed(t, s, 100) // the queued one waits
		db.Do(t, `DELETE FROM {prefix}schedule WHERE name = 'gone'`, nil)
		state := func(want ...string) {
			t.Helper()
			got := db.List(t, `SELECT schedule, attempt, state FROM {prefix}run WHERE state <> 'skipped' ORDER BY schedule, due_at, attempt`, nil)
			if !slices.Equal(got, want) {
				t.Errorf("runs are\n%q, want\n%q", got, want)
			}
		}
		var done *sync.WaitGroup
		ended := []string{
			"again 1 failed", "again 2 waiting", "counted 1 failed", "ended 1 failed", "gone 1 failed", "locked 1 running", "lost 1 running",
			"plain 1 failed", "queued 1 failed", "queued 1 waiting",
		}
		db.Do(t, `UPDATE {prefix}run SET claim = 'of another' WHERE schedule = 'lost'`, nil)
		if dbtest.SeveralWriters(db.Dialect) {
			stranger := db.Begin(t, nil)
			_, err := db.On(stranger).Exec(t.Context(), sqlrun.Unlisted(`UPDATE {prefix}schedule SET reason = 'mine' WHERE name = 'locked'`), nil)
			must(t, err)
			done = endTogether(t, s, 1)
			eventually(t, "the others are written", func() bool {
				var n int
				db.Scan(t, `SELECT COUNT(*) FROM {prefix}run WHERE state = 'running'`, nil, &n)
				return n == 2
			})
			state(ended...)
			must(t, stranger.Commit())
		} else {
			done = endTogether(t, s, 1)
		}
		done.Wait()
		ended[5] = "locked 1 failed"
		state(ended...)
		for name, want := range map[string]string{"counted": "active 1", "ended": "failed 1", "plain": "active 0"} {
			if got := stored(t, db, name); fmt.Sprint(got.State, " ", got.Failures) != want {
				t.Errorf("%s is %s after %d failures, want %s", name, got.State, got.Failures, want)
			}
		}
		notes := db.List(t, `SELECT name, problem FROM {prefix}notice ORDER BY name`, nil)
		if want := []string{"counted failed", "ended given-up", "locked failed", "plain failed", "queued failed"}; !slices.Equal(notes, want) {
			t.Errorf("notices are %q, want %q", notes, want)
		}
	})
}

var runCosts = []runCost{
	{what: "claimed", do: claimsAll(costly), states: []string{"running 100"}},
	{what: "ended well", before: claimedBefore(0), do: endsAll(0), states: []string{"ok 100"}},
	{what: "ended well, and followed by another schedule", policy: Policy{OnSuccess: "follower"}, before: claimedBefore(0), do: endsAll(0), states: []string{"ok 100", "waiting 1"}},
	{what: "ended well, while the next one waits", policy: Policy{Overlap: "queue"}, before: func(t *testing.T, db *dbtest.DB, s *Scheduler) {
		t.Helper()
		claimedBefore(time.Minute)(t, db, s)
		claimsAll(0)(t, s)
	}, do: endsAll(0), states: []string{"ok 100", "waiting 100"}},
	{what: "failed", before: claimedBefore(0), do: endsAll(1), states: []string{"failed 100"}},
	{what: "failed, and tried again", policy: Policy{MaxAttempts: 3, RetryDelay: time.Second}, before: claimedBefore(0), do: endsAll(1), states: []string{"failed 100", "waiting 100"}},
	{what: "failed, and counted", policy: Policy{MaxFailures: 3}, before: claimedBefore(0), do: endsAll(1), states: []string{"failed 100"}},
	{what: "missed, and one run", before: func(t *testing.T, db *dbtest.DB, _ *Scheduler) { db.Advance(t, 5*time.Minute) }, do: claimsAll(costly), states: []string{"missed 100", "running 100"}},
	{what: "skipped", before: claimedBefore(time.Minute), do: claimsAll(0), states: []string{"running 100", "skipped 100"}},
	{what: "replaced", policy: Policy{Overlap: "replace"}, before: claimedBefore(time.Minute), do: claimsAll(0), states: []string{"running 100", "waiting 100"}},
	{what: "lost, and begun again", before: claimedBefore(25 * time.Hour), do: func(t *testing.T, s *Scheduler) {
		t.Helper()
		if held := takenOver(t, s, costly); len(held) != costly {
			t.Errorf("%d were taken over", len(held))
		}
	}, states: []string{"lost 100", "running 100"}},
}
