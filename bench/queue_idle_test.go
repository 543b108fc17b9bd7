package bench

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
)

// idleQueues are the numbers of queues for the worker of TestQueueIdle.
var idleQueues = numbers{1, 100, 1000}

func init() { flag.Var(&idleQueues, "queues", "how many queues the idle worker has") }

// TestQueueIdle prints what an idle worker costs: the transactions a second, by the server's count on
// PostgreSQL and by the client's on the others, and the processor time of both.
func TestQueueIdle(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		for _, n := range idleQueues {
			workerIdle(t, b, n, queue.Options{})
			if b.Dialect.Notify == nil {
				workerIdle(t, b, n, doorbell)
			}
		}
	})
}

func workerIdle(t *testing.T, b *bed, n int, opt queue.Options) {
	t.Helper()
	var trips atomic.Int64
	on := b.DB
	if b.Dialect.Notify == nil { // otherwise the server counts
		on = b.Broken(t, &dbtest.Fault{Random: func() (broken, after bool) { trips.Add(1); return false, false }})
	}
	names := make([]string, n)
	for i := range names {
		names[i] = "idle" + strconv.Itoa(i)
	}
	began := time.Now()
	stop := b.begin(t, on.DB, names, opt)
	ready := b.untilLeased(t, 16*n, began)
	pause(t, 15*time.Second) // until it is idle
	trips.Store(0)
	before, commits := b.cpu(t), b.commits(t)
	from := time.Now()
	pause(t, *span)
	took := time.Since(from)
	u := b.cpu(t).since(before, 1)
	sent := perSecond(trips.Load()+b.commits(t)-commits, took)
	from = time.Now()
	stop()
	t.Logf("%-8s %5d queues, doorbell %q: %.1f transactions/s; CPU of client and server %.1f + %.1f ms/s; began in %.1f s, ended in %.1f s",
		b.Dialect.Name, n, opt.Doorbell, sent, 1e3*u.client.Seconds()/took.Seconds(), 1e3*u.server.Seconds()/took.Seconds(), ready.Seconds(), time.Since(from).Seconds())
}

// TestQueueTakeover prints how long a worker needs to take over all blocks of a worker that died.
func TestQueueTakeover(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		for _, n := range idleQueues {
			names := make([]string, n)
			for i := range names {
				names[i] = "left" + strconv.Itoa(i)
			}
			run := func() (took time.Duration) {
				began := time.Now()
				stop := b.begin(t, b.DB.DB, names, queue.Options{})
				took = b.untilLeased(t, 16*n, began)
				stop()
				return took
			}
			took := run()
			b.Do(t, `UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'dead'`, nil)
			over := run()
			t.Logf("%-8s %5d queues: free blocks taken in %.1f s, those of a dead worker in %.1f s", b.Dialect.Name, n, took.Seconds(), over.Seconds())
		}
	})
}

// begin starts a worker of some queues, which does nothing with their jobs. stop waits until it has ended.
func (b *bed) begin(t *testing.T, db *dialect.DB, names []string, opt queue.Options) (stop func()) {
	t.Helper()
	opt.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	c, err := queue.New(db, opt)
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Worker(queue.WorkerOptions{Queues: names})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.HandleOthers(func(context.Context, *queue.Delivery) error { return nil }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// untilLeased waits until living workers have so many blocks, and returns how long that took.
func (b *bed) untilLeased(t *testing.T, blocks int, began time.Time) time.Duration {
	t.Helper()
	for b.leased(t) < int64(blocks) && time.Since(began) < 3*time.Minute {
		pause(t, 100*time.Millisecond)
	}
	return time.Since(began)
}

// leased returns how many blocks workers have leased.
func (b *bed) leased(t *testing.T) (n int64) {
	t.Helper()
	n, _ = strconv.ParseInt(b.List(t, `SELECT COUNT(*) FROM {prefix}queue_block WHERE state = 'LEASED' AND lock_by <> 'dead'`, nil)[0], 10, 64)
	return n
}

// commits returns how many transactions the server has ended, or 0 if it does not tell.
func (b *bed) commits(t *testing.T) (n int64) {
	t.Helper()
	if b.Dialect.Notify == nil {
		return 0
	}
	n, _ = strconv.ParseInt(b.List(t, `SELECT SUM(xact_commit + xact_rollback) FROM pg_stat_database`, nil)[0], 10, 64)
	return n
}
