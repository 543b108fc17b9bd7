package bench

import (
	"context"
	"database/sql"
	"errors"
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

// TestQueueCostOne prints what a job costs that its caller enqueues alone, while the queue has no worker: by Enqueue, and by EnqueueTx
// in a transaction that inserts one row of the caller's own, beside the same without dbcron.
func TestQueueCostOne(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		rawQueue(t, b)
		p := newOurs(t, b, "dbcron", queue.WorkerOptions{})
		links := connectMany(t, b, 1)
		db, ctx := open(t, b.URL, 10), t.Context()
		transaction := func(n int, more func(tx *sql.Tx) error) error {
			return again(ctx, b.Dialect, func() error {
				tx, err := db.Pool().BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
				if _, err = tx.ExecContext(ctx, `INSERT INTO raw_job (queue_id, divided, priority, id, kind, payload) VALUES (1, 1, 2, `+
					b.Dialect.Placeholder(1)+`, 'noop', `+b.Dialect.Placeholder(2)+`)`,
					rawID.Add(1), string(payload(n))); err == nil {
					err = more(tx)
				}
				return errors.Join(err, tx.Commit())
			})
		}
		ways := []struct {
			what string
			do   func(n int) error
		}{
			{"raw, one row a statement", func(n int) error { return with(links, func(l *link) error { return l.insertOne(ctx, n) }) }},
			{"Enqueue", func(n int) error { _, err := p.one(context.Background(), n); return err }},
			{"a transaction with one row", func(n int) error { return transaction(n, func(*sql.Tx) error { return nil }) }},
			{"the same with EnqueueTx", func(n int) error {
				return transaction(n, func(tx *sql.Tx) error {
					_, _, err := p.c.EnqueueTx(ctx, tx, job(n))
					return err
				})
			}},
		}
		for round := range 3 {
			for _, way := range ways {
				t.Logf("%-8s %d %-28s %s", b.Dialect.Name, round, way.what, b.cost(t, *jobs/100, func() {
					for n := range *jobs / 100 {
						if err := way.do(n); err != nil {
							t.Fatal(err)
						}
					}
				}))
			}
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
