package lock

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("6") // mostly the database is waited for
	}
	dbtest.MutantsMain(m, forProgram())
	goleak.VerifyTestMain(m)
}

// patience is for what must happen, on a slow machine.
const longWait = 5 * time.Minute

// each is dbtest.Each, beside the other tests: most of them wait for a time.
func each(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, f, (*testing.T).Parallel)
}

// having is each on the engines that have what a test is about.
func having(t *testing.T, with dbtest.With, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	with.Each(t, f, (*testing.T).Parallel)
}

// locks is each on the engines for what needs writers side by side: see dbtest.Locks.
func locks(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Locks.Each(t, f, (*testing.T).Parallel)
}

// dialects is each on the engines for what depends on the shape of statements: see dbtest.Dialects.
func dialects(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Dialects.Each(t, f, (*testing.T).Parallel)
}

// clocked is dbtest.EachClock, likewise.
func clocked(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.EachClock(t, f, (*testing.T).Parallel)
}

// locker returns a Locker on connections of its own. Its leases are not renewed and outlast any
// test, unless opt says otherwise.
func locker(t *testing.T, db *dbtest.DB, opt Options) *Locker {
	t.Helper()
	other := dbtest.Open(t, db.URL, dialect.Options{})
	return lockerOn(t, &dbtest.DB{DB: other.WithNow(db.Dialect.Now), URL: db.URL}, opt)
}

func lockerOn(t *testing.T, db *dbtest.DB, opt Options) *Locker {
	t.Helper()
	if opt.Heartbeat == 0 {
		opt.Heartbeat = -1
	}
	opt.TTL = cmp.Or(opt.TTL, time.Hour)
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	l, err := New(db.DB, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.leftovers.Wait)
	return l
}

// mustTake acquires a lock that must be free, and releases it at the end.
func (l *Locker) mustTake(t *testing.T, name string) *Lease {
	t.Helper()
	le, err := l.TryAcquire(t.Context(), name)
	return granted(t, le, err)
}

func (p *Pool) mustTake(t *testing.T) *Lease {
	t.Helper()
	le, err := p.TryAcquire(t.Context())
	return granted(t, le, err)
}

// granted returns a lease that must have been granted, and gives it up at the
// end of the test.
func granted(t *testing.T, le *Lease, err error) *Lease {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = le.Release(context.WithoutCancel(t.Context())) })
	return le
}

func (l *Locker) mustPool(t *testing.T, name string, size int) *Pool {
	t.Helper()
	p, err := l.Pool(name, size)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// want fails the test unless err is target, or nil if that is nil.
func want(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got %v, want %v", what, err, target)
	}
}

// Short names of dbtest's.
var must, eventually = dbtest.Must, dbtest.Eventually

// state reads the row of a lock that must exist.
func state(t *testing.T, l *Locker, name string) Info {
	t.Helper()
	rows, err := l.Get(t.Context(), name)
	must(t, err)
	return rows[0]
}

// ended waits for the end of a context and returns its cause.
func ended(t *testing.T, ctx context.Context) error {
	t.Helper()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(longWait):
		t.Fatal("the context has not ended")
		return nil
	}
}

// result waits for a value from a goroutine.
func result[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(longWait):
		t.Fatal("waited in vain")
		panic("not reached")
	}
}
