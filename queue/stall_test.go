package queue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// A handler that makes no progress is ended, and its job tried again; one that makes some may take
// longer than that. Extend is none.
func TestStall(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, impatient)
		w := worker(t, c, WorkerOptions{})
		stalls := func(ctx context.Context, d *Delivery) error {
			d.Extend(longWait)
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, ErrStalled) {
				t.Errorf("it ends with %v", cause)
			}
			return ctx.Err()
		}
		p := RetryPolicy{Stall: 100 * time.Millisecond, MaxAttempts: 2}
		must(t, w.HandleWith("stalls", p, stalls))
		must(t, w.HandleBatch("batch", BatchOptions{Retry: p}, func(ctx context.Context, batch []*Delivery) error {
			return stalls(ctx, batch[0])
		}))
		const enough = 3 * time.Second
		must(t, HandleKindWith(w, Kind[int]{Name: "goes on"}, RetryPolicy{Stall: enough, MaxAttempts: 1000},
			func(ctx context.Context, _ int, d *Delivery) error {
				for began := time.Now(); time.Since(began) < enough+time.Second; { //nolint:forbidigo // longer than it may stall
					if err := Checkpoint(ctx, d, 1); err != nil || ctx.Err() != nil {
						return errors.Join(err, ctx.Err()) // on a machine that has stood still: once more
					}
					select {
					case <-ctx.Done():
					case <-time.After(20 * time.Millisecond):
					}
				}
				return nil
			}))
		start(t, w)
		dead := []int64{enqueue(t, c, Job{Kind: "stalls"}), enqueue(t, c, Job{Kind: "batch"})}
		enqueue(t, c, Kind[int]{Name: "goes on"}.Job(1))
		for _, id := range dead {
			if i := becomes(t, c, id, admin.StateDead); !strings.Contains(i.Error, ErrStalled.Error()+" for 100ms") || i.Attempts != 2 {
				t.Errorf("after %d attempts it failed with %q", i.Attempts, i.Error)
			}
		}
		empty(t, db)
	})
}
