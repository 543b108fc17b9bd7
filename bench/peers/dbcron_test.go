package peers

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/sqlschema"
)

// database returns an empty PostgreSQL database, or skips the test.
func database(t *testing.T) *dbtest.DB {
	t.Helper()
	db := dbtest.Fresh(t, "postgres")
	if err := sqlschema.Migrate(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
	return db
}

func connect(t *testing.T, db *dbtest.DB, conns int) *dialect.DB {
	t.Helper()
	other, err := postgres.Open(t.Context(), db.URL, dialect.Options{MaxConns: conns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	return other
}

// complaints fails the test for each warning that a system logs.
type complaints struct{ t *testing.T }

func (c complaints) Write(line []byte) (int, error) {
	c.t.Errorf("logged: %s", line)
	return len(line), nil
}

func strict(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(complaints{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// dbcronQueue is package queue with its defaults.
type dbcronQueue struct {
	db *dbtest.DB
	c  *queue.Client
}

func dbcronQueues(t *testing.T) []queueSystem {
	db := database(t)
	q := &dbcronQueue{db: db}
	q.c = q.client(t)
	return []queueSystem{q}
}

func (q *dbcronQueue) client(t *testing.T) *queue.Client {
	t.Helper()
	c, err := queue.New(connect(t, q.db, 10), queue.Options{Logger: strict(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (*dbcronQueue) String() string { return "dbcron on PostgreSQL" }
func (*dbcronQueue) durable() bool  { return true }
func (*dbcronQueue) bulk() bool     { return true }

func dbcronJob(n int) queue.Job { return queue.Job{Kind: "noop", Payload: payload(n)} }

func (q *dbcronQueue) one(ctx context.Context, n int) error {
	_, err := q.c.Enqueue(ctx, dbcronJob(n))
	return err
}

func (q *dbcronQueue) unique(ctx context.Context, n int) error {
	j := dbcronJob(n)
	j.Unique = strconv.Itoa(n)
	_, err := q.c.Enqueue(ctx, j)
	return err
}

func (q *dbcronQueue) many(ctx context.Context, first, n int) error {
	batch := make([]queue.Job, n)
	for i := range batch {
		batch[i] = dbcronJob(first + i)
	}
	_, err := q.c.EnqueueMany(ctx, batch)
	return err
}

func (q *dbcronQueue) work(t *testing.T, do func(n int)) (stop func()) {
	t.Helper()
	w, err := q.client(t).Worker(queue.WorkerOptions{})
	if err == nil {
		err = w.Handle("noop", func(_ context.Context, d *queue.Delivery) error {
			do(number(t, d.Payload))
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() { cancel(); group.Wait() }
}

func (q *dbcronQueue) wipe(t *testing.T) {
	t.Helper()
	q.db.Do(t, `TRUNCATE {prefix}job, {prefix}job_delayed, {prefix}job_running, {prefix}job_unique`, nil)
}

// dbcronLocks is package lock with a pool for each contender.
type dbcronLocks struct{ lockers [contenders]*lock.Locker }

func newDbcronLocks(t *testing.T) []lockSystem {
	db := database(t)
	l := &dbcronLocks{}
	for i := range l.lockers {
		one, err := lock.New(connect(t, db, 5), lock.Options{})
		if err != nil {
			t.Fatal(err)
		}
		l.lockers[i] = one
	}
	return []lockSystem{l}
}

func (*dbcronLocks) String() string { return "dbcron on PostgreSQL" }
func (*dbcronLocks) durable() bool  { return true }

func (l *dbcronLocks) turn(ctx context.Context, i int, name string, held func()) error {
	lease, err := l.lockers[i].Acquire(ctx, name)
	if err != nil {
		return err
	}
	held()
	return lease.Release(context.WithoutCancel(ctx))
}
