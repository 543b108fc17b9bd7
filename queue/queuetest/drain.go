package queuetest

import (
	"testing"
	"time"

	"github.com/dbcron/dbcron/internal/rig"
	"github.com/dbcron/dbcron/queue"
)

// mostAttempts is after how many attempts a drain is taken for endless.
const mostAttempts = 100_000

// Drain does the jobs of w's queues, with its handlers, until none is ready or due, and
// returns what was done, in order. It runs in this goroutine, one job at a time; w
// itself is not run, and may be drained again. An attempt that ends as Failed, Retry or
// Dead ends the test at once.
//
// Jobs that are due later stay, and those of a paused queue: see [Advance]. What
// another worker has is waited for.
func Drain(t testing.TB, w *queue.Worker) []Outcome {
	t.Helper()
	return drain(t, w, func(o Outcome) bool { return o.Verdict == Failed || o.Verdict == Retry || o.Verdict == Dead })
}

// DrainAll is [Drain], and goes on after attempts that fail.
func DrainAll(t testing.TB, w *queue.Worker) []Outcome {
	t.Helper()
	return drain(t, w, func(Outcome) bool { return false })
}

func drain(t testing.TB, w *queue.Worker, fails func(Outcome) bool) (all []Outcome) {
	t.Helper()
	var failed []Outcome
	err := rig.Drain(t.Context(), w, func(unit []rig.Outcome) bool {
		for _, o := range outcomes(unit) {
			all = append(all, o)
			if fails(o) {
				failed = append(failed, o)
			}
		}
		return len(failed) == 0 && len(all) < mostAttempts
	})
	switch {
	case len(failed) > 0:
		t.Fatalf("queuetest: after %d attempts one did not end well: %v", len(all), failed[0])
	case err != nil:
		t.Fatalf("queuetest: %v", err)
	case len(all) >= mostAttempts:
		t.Fatalf("queuetest: there is no end after %d attempts; the last one: %v", len(all), all[len(all)-1])
	}
	return all
}

// Advance lets d pass for the jobs that wait for their time or their retry, of all
// queues of the database: those that are due within it can be drained then. It moves
// the jobs and not the clock: see the package's documentation.
func Advance(t testing.TB, c *queue.Client, d time.Duration) {
	t.Helper()
	if d < 0 {
		t.Fatalf("queuetest: time does not go back by %v", -d)
	}
	if _, err := rig.Advance(t.Context(), c, d); err != nil {
		t.Fatalf("queuetest: %v", err)
	}
}
