package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/dbcron/dbcron/queue"
)

// TestQueueSteady prints how many jobs a second 32 goroutines enqueue, one per call, while a worker
// of another process does them; and what a job costs the clients and the server.
func TestQueueSteady(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		for _, callers := range []int{1, 32} {
			t.Run(fmt.Sprint(callers), func(t *testing.T) {
				p := newOurs(t, b, "dbcron", queue.WorkerOptions{})
				if b.Dialect.Notify == nil {
					p = newRinging(t, b).ours
				}
				seen := newStarts(int(span.Seconds() * 100_000))
				stop := p.work(t, seen.note)
				pause(t, *span/10)
				before := b.cpu(t)
				rate := pairs(t, b.DB.DB, callers, *span, func(ctx context.Context, n int) error {
					_, err := p.one(ctx, n)
					return err
				})
				n := int(rate * span.Seconds())
				done := seen.count.Load()
				spent := b.cpu(t).since(before, int64(n))
				stop()
				t.Logf("%-8s %3d callers: %8.0f jobs/s; done at the end %.3f of them; %v a job", b.Dialect.Name, callers, rate, float64(done)/float64(n), spent)
				p.wipe(t)
			})
		}
	})
}
