package queue

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// The same failure of many jobs is a line in the log, and one more that counts them.
func TestRepeatedFailures(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		var out lockedBuffer
		w := worker(t, c, WorkerOptions{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		for _, kind := range []string{"a", "b"} {
			must(t, w.HandleWith(kind, RetryPolicy{MaxAttempts: 1}, func(_ context.Context, d *Delivery) error {
				return fmt.Errorf("no host for %d", d.ID)
			}))
		}
		handle(t, w, "dropped", func(context.Context, *Delivery) error { return Discard(errTest) })
		enqueueMany(t, c, slices.Repeat([]Job{{Kind: "a"}, {Kind: "b"}, {Kind: "dropped"}}, 50))
		stop := start(t, w)
		empty(t, db)
		// A failure is logged once its move is committed, and so after the test may see it.
		eventually(t, "a line for each of two failures", func() bool { return out.count("msg=\"job failed\"") >= 2 })
		stop()
		if n, times := out.count("msg=\"job failed\""), out.count("times=49"); n != 4 || times != 3 {
			t.Errorf("%d lines at the end, and %d with a count", n, times)
		}
	})
}
