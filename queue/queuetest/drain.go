package queuetest

import (
	"testing"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/internal/bell"
	"github.com/dbcron/dbcron/queue/internal/rig"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// maxAttempts is the number of attempts after which a drain counts as endless.
const maxAttempts = 100_000

// Drain processes the jobs of w's queues with its handlers until none is ready or due, and
// returns the outcomes in order. It runs in this goroutine, one job at a time. It does not run
// w itself, which may be drained again. An attempt that ends as Retried or Dead fails the
// test at once: see [DrainAll].
//
// Jobs that are due later stay, and so do those of a paused queue: see [Advance]. Drain waits
// for jobs that another worker has.
func Drain(t testing.TB, w *queue.Worker) []Outcome {
	t.Helper()
	return drain(t, w, func(o Outcome) bool { return o.Verdict == Retried || o.Verdict == Dead })
}

// DrainAll is [Drain], but continues after failed attempts.
func DrainAll(t testing.TB, w *queue.Worker) []Outcome {
	t.Helper()
	return drain(t, w, func(Outcome) bool { return false })
}

func drain(t testing.TB, w *queue.Worker, fails func(Outcome) bool) (all []Outcome) {
	t.Helper()
	var failed []Outcome
	err := w.RunOnce(rig.With(t.Context(), &rig.Task{Done: func(unit []rig.Outcome) bool {
		for _, o := range outcomes(unit) {
			all = append(all, o)
			if fails(o) {
				failed = append(failed, o)
			}
		}
		return len(failed) == 0 && len(all) < maxAttempts
	}}))
	switch {
	case len(failed) > 0:
		t.Fatalf("queuetest: after %d attempts one did not end well; DrainAll goes on after such: %v", len(all), failed[0])
	case err != nil:
		t.Fatalf("queuetest: %v", err)
	case len(all) >= maxAttempts:
		t.Fatalf("queuetest: there is no end after %d attempts; the last one: %v", len(all), all[len(all)-1])
	}
	return all
}

// Advance lets d pass for delayed jobs, including retries, of all queues of the database: jobs
// that become due can then be drained. It moves the jobs, not the clock: see the package's
// documentation.
func Advance(t testing.TB, c *queue.Client, d time.Duration) {
	t.Helper()
	if d < 0 {
		t.Fatalf("queuetest: time does not go back by %v", -d)
	}
	db := c.DB()
	if _, err := db.Exec(t.Context(), store.AdvanceDelayed, sqlrun.Args{"by": -d.Microseconds()}); err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	bell.Of(db).Tell(t.Context(), db, map[int]string{0: bell.Share}) // workers look for what is due
}
