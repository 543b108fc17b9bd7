package scheduler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/pace"
)

// A lifetime is the life of one daemon, by the database's clock: it begins what comes due, and is stopped after some
// time, or some time after it has begun a schedule that stops daemons. What it has begun runs until then.
type lifetime struct {
	lasts   time.Duration
	culprit string
	after   time.Duration // from the culprit's begin to the stop
	step    time.Duration // between looks at what is due
}

func (l lifetime) live(t *testing.T, db *dbtest.DB) (begun []string) {
	t.Helper()
	s := daemon(t, again(t, db), Options{})
	born, lived, end := later(0), time.Duration(0), l.lasts
	var held []*execution
	for {
		for _, e := range slices.Concat(takenOver(t, s, batch), claimed(t, s, batch)) {
			begun, held = append(begun, e.schedule), append(held, e)
			e.begun = born.Add(lived)
			if e.schedule == l.culprit {
				end = min(end, lived+l.after)
			}
		}
		if lived >= end {
			break
		}
		step := min(l.step, end-lived)
		db.Advance(t, step)
		lived += step
		db.Do(t, `UPDATE {prefix}run SET next_exec = {now + 30000000} WHERE state = 'running'`, nil) // as it renews leases
	}
	s.stopping.at = born.Add(end)
	s.acquitPaused(t.Context())
	s.findSuspects()
	for _, e := range held {
		e.end()
		ended(t, s, e, guardian.Result{Cause: guardian.Stopped, ExitCode: -1})
	}
	return begun
}

func newestRun(t *testing.T, db *dbtest.DB, name string) Run {
	t.Helper()
	all := allRuns(t, db, name)
	return all[len(all)-1]
}

// The class: an outcome that is tried again without a limit because it is nobody's fault. A run that stops its daemon
// soon after its begin has begun five times when it fails, twice after a pause, and its failure counts as any other.
// A run that is handed back because no executor was free, or whose claim was not answered, never began, so it
// cannot be the reason; lost runs and failed ones have limits.
func TestWorkThatStopsItsDaemon(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, Schedule{Name: "job", Spec: "@every 24h", Command: "true", Policy: Policy{MaxAttempts: 9, OnFailure: "alarm"}})
		addJob(t, db, Schedule{Name: "alarm", Spec: "@every 8000h", Command: "true"})
		db.Advance(t, 24*time.Hour)
		for n := 1; n <= pace.Most; n++ {
			l := lifetime{lasts: time.Hour, culprit: "job", after: 3 * time.Second, step: 20 * time.Second}
			if begun := l.live(t, db); len(begun) != 1 {
				t.Fatalf("%v have begun at start %d", begun, n)
			}
			if r := newestRun(t, db, "job"); n < pace.Most && (r.State != "retry" || r.Stops != n || !strings.Contains(r.Error, "stopped 3s after it had begun")) {
				t.Errorf("%d: %+v", n, r)
			}
		}
		r := newestRun(t, db, "job")
		if r.State != "failed" || r.Attempt != pace.Most || !strings.Contains(r.Error, "it seems to stop its daemon: 5 daemons in a row") {
			t.Errorf("attempt %d: %s, %s", r.Attempt, r.State, r.Error)
		}
		if begun := (lifetime{lasts: time.Second, step: time.Second}).live(t, db); !slices.Equal(begun, []string{"alarm"}) {
			t.Errorf("%v have begun, want what its failure starts", begun)
		}
	})
}

// A run that pauses is cancelled at once, and goes on at once when a daemon is stopped without it, unless that is part
// of the same stop.
func TestPauseAfterStops(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		stopped := func() {
			db.Advance(t, 1000*time.Hour)
			for range SuspiciousStops {
				lifetime{lasts: time.Second, step: time.Second}.live(t, db)
			}
		}
		addJob(t, db, Schedule{Name: "job", Spec: "@every 1000h", Command: "true"})
		stopped()
		other := daemon(t, again(t, db), Options{})
		other.acquitPaused(t.Context())
		if runs := takenOver(t, other, batch); len(runs) != 0 {
			t.Error("it has begun although the other daemon was stopped at the same time")
		}
		db.Advance(t, pace.Soon)
		other.acquitPaused(t.Context())
		runs := takenOver(t, other, batch)
		if len(runs) != 1 || newestRun(t, db, "job").Stops != 0 {
			t.Fatalf("%d runs have begun, want one whose count begins anew", len(runs))
		}
		finished(t, other, runs[0], 0)
		stopped()
		if _, err := Cancel(t.Context(), db.DB, newestRun(t, db, "job").ID, "why"); err != nil {
			t.Fatal(err)
		}
		if runs := takenOver(t, other, batch); len(runs) != 0 || newestRun(t, db, "job").State != "cancelled" {
			t.Errorf("%d runs have begun; the last one is %s", len(runs), newestRun(t, db, "job").State)
		}
	})
}

// Work that restarts hand back does not fail, at whichever interval the daemons are restarted.
func TestWorkThatRestartsHandBack(t *testing.T) {
	for _, every := range []time.Duration{
		time.Second, 59 * time.Second, 100 * time.Second, 150 * time.Second, 200 * time.Second, 5 * time.Minute, time.Hour,
	} {
		t.Run(every.String(), func(t *testing.T) {
			simulated(t, func(t *testing.T, db *dbtest.DB) {
				addJob(t, db, Schedule{Name: "job", Spec: "@every 8000h", Command: "true"})
				db.Advance(t, 8000*time.Hour)
				begun := 0
				for range 12 {
					begun += len(lifetime{lasts: every, step: max(time.Second, every/12)}.live(t, db))
				}
				if begun < 3 {
					t.Errorf("it has begun in %d of 12 daemons", begun)
				}
				for _, r := range allRuns(t, db, "job") {
					if r.State != "retry" {
						t.Errorf("attempt %d: %s, %s", r.Attempt, r.State, r.Error)
					}
				}
			})
		})
	}
}

// Long work that begins together with work that stops daemons does not fail with it.
func TestWorkBesideWorkThatStopsDaemons(t *testing.T) {
	simulated(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"culprit", "long-1", "long-2"} {
			addJob(t, db, Schedule{Name: name, Spec: "@every 8000h", Command: "true"})
		}
		db.Advance(t, 8000*time.Hour)
		for range 40 {
			l := lifetime{lasts: 2 * time.Hour, culprit: "culprit", after: 2 * time.Second, step: 10 * time.Second}
			l.live(t, db)
			if newestRun(t, db, "culprit").State == "failed" {
				break
			}
		}
		for name, want := range map[string]string{"culprit": "failed", "long-1": "retry", "long-2": "retry"} {
			if r := newestRun(t, db, name); r.State != want {
				t.Errorf("%s: %s after %d attempts, want %s: %s", name, r.State, r.Attempt, want, r.Error)
			}
		}
	})
}

// simulated is clocked for decisions of the daemon, on the engine that is the quickest.
func simulated(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Memory.EachClock(t, f, (*testing.T).Parallel)
}
