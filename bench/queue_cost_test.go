package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/dbcron/dbcron/queue"
)

// written returns how many bytes of log the server has written; 0 for SQLite.
func (b *bed) written(t *testing.T) (n int64) {
	t.Helper()
	switch b.Dialect.Name {
	case "postgres":
		b.Scan(t, `SELECT CAST(pg_current_wal_lsn() - CAST('0/0' AS pg_lsn) AS BIGINT)`, nil, &n)
	case "mysql":
		var name string
		b.Scan(t, `SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_lsn_current', 'Innodb_redo_log_current_lsn')`, nil, &name, &n)
	}
	return n
}

// cost returns the processor time and bytes of log per job, where f handles n jobs.
func (b *bed) cost(t *testing.T, n int, f func()) string {
	t.Helper()
	wal, before := b.written(t), b.cpu(t)
	f()
	spent := b.cpu(t).since(before, int64(n))
	return fmt.Sprintf("%v, log %.0f bytes", spent, float64(b.written(t)-wal)/float64(n))
}

// TestQueueCost prints what a job costs the client and the server: to enqueue it in bulk, to enqueue
// it alone from 32 goroutines, and to do it. The client's figure includes what the worker records
// about the job, and the test's checks.
func TestQueueCost(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		p := newOurs(t, b, "dbcron", queue.WorkerOptions{})
		single := max(1, *jobs/10)
		t.Logf("%-8s %-24v enqueue, in bulk:  %s", b.Dialect.Name, p, b.cost(t, *jobs, func() { load(t, p, *jobs) }))
		seen := newStarts(*jobs)
		t.Logf("%-8s %-24v do:                %s", b.Dialect.Name, p, b.cost(t, *jobs, func() {
			stop := p.work(t, seen.note)
			finish(t, p, seen, *jobs)
			stop()
		}))
		seen.check(t, p, *jobs)
		p.wipe(t)
		t.Logf("%-8s %-24v enqueue, by 32:    %s", b.Dialect.Name, p, b.cost(t, single, func() {
			share(t, single, 32, func(ctx context.Context, n int) error {
				_, err := p.one(ctx, n)
				return err
			})
		}))
		if left := p.left(t); left != int64(single) {
			t.Errorf("%v: %d jobs after %d were enqueued", p, left, single)
		}
		p.wipe(t)
		if *compare {
			rawCost(t, b)
		}
	})
}

// rawCost prints the same for the floors.
func rawCost(t *testing.T, b *bed) {
	t.Helper()
	rawQueue(t, b)
	t.Logf("%-8s %-24s enqueue, and do:   %s", b.Dialect.Name, "raw, leased blocks of 100",
		b.cost(t, *jobs, func() { leaseFloor(t, b, *jobs, 100) }))
	t.Logf("%-8s %-24s enqueue, in bulk:  %s", b.Dialect.Name, "raw, INSERT of 1000 rows",
		b.cost(t, *jobs, func() { fillRaw(t, b, "raw_job", *jobs) }))
	if n := rawRows(t, b, "raw_job"); n != int64(*jobs) {
		t.Errorf("%d rows of %d jobs", n, *jobs)
	}
	b.truncate(t, "raw_job")
	single := max(1, *jobs/10)
	waiting := coalesce(t, b, writersOf(b))
	t.Logf("%-8s %-24s enqueue, by 32:    %s", b.Dialect.Name, "raw, coalesced", b.cost(t, single, func() {
		share(t, single, 32, func(_ context.Context, n int) error {
			r := &request{n, make(chan error, 1)}
			waiting <- r
			return <-r.done
		})
	}))
	if n := rawRows(t, b, "raw_job"); n != int64(single) {
		t.Errorf("%d rows of %d jobs", n, single)
	}
}
