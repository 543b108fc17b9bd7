package bench

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
)

var (
	delayed = flag.Int("delayed", 1_000_000, "delayed jobs, a hundred thousand of which are due in each second, for TestQueueDelayed")
	ahead   = flag.Duration("ahead", 25*time.Second, "how long it takes at the most to enqueue them")
)

// delayedOurs enqueues jobs that are due later.
type delayedOurs struct {
	*ours
	first time.Time // due time of the first one
}

func (o *delayedOurs) due(n int) time.Time {
	return o.first.Add(time.Duration(n) * 10 * time.Microsecond)
}

func (o *delayedOurs) many(ctx context.Context, first, n int) error {
	batch := make([]queue.Job, n)
	for i := range batch {
		batch[i] = job(first + i)
		batch[i].RunAt = o.due(first + i)
	}
	_, err := o.c.EnqueueMany(ctx, batch)
	return err
}

func (o *delayedOurs) wipe(t *testing.T) {
	t.Helper()
	o.truncate(t, "{prefix}job_delayed")
}

func (o *delayedOurs) analyze(t *testing.T) {
	t.Helper()
	o.Analyze(t, "job_delayed")
}

// TestQueueDelayed prints how many delayed jobs a second one worker does when all are due: for the
// first third of them, for the last third, and as a ratio to jobs that were never delayed.
func TestQueueDelayed(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		ready := drain(t, drained(t, b, 1000), *delayed)
		p := &delayedOurs{drained(t, b, 1000), time.Now().Add(*ahead)} //nolint:forbidigo // one host has both clocks
		load(t, p, *delayed)
		if time.Now().After(p.first) { //nolint:forbidigo // the same
			t.Fatalf("it took longer than %v to enqueue %d jobs", *ahead, *delayed)
		}
		pause(t, time.Until(p.due(*delayed))+time.Second)
		seen := newStarts(*delayed)
		stop := p.work(t, seen.note)
		finish(t, p, seen, *delayed)
		took := time.Since(seen.at[0])
		stop()
		seen.check(t, p, *delayed)
		p.wipe(t)
		third := *delayed / 3
		rate := perSecond(int64(*delayed), took)
		t.Logf("%-8s %d delayed jobs that are due: %.0f jobs/s, %.0f of the first third, %.0f of the last; %.2f of %.0f that were ready",
			b.Dialect.Name, *delayed, rate, perSecond(int64(third), seen.at[third].Sub(seen.at[0])),
			perSecond(int64(third), seen.at[len(seen.at)-1].Sub(seen.at[len(seen.at)-third])), rate/ready, ready)
	})
}
