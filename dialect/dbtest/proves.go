package dbtest

import (
	"os"
	"slices"
	"testing"

	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Proves says what a test proves, and so on which engines it runs. Each, EachClock and EachEmpty
// run on all of them: what they test is statements, isolation, plans, grants, classes of errors.
// With DBCRON_TEST_LONG=true every test runs on all engines that it can run on. If DBCRON_TEST_ENGINES leaves out the
// engines of a test, it runs on the first that is left.
type Proves int

const (
	// Memory is what happens in the memory of the process: the database is only where its jobs
	// come from. Such a test runs on SQLite.
	Memory Proves = iota

	// Locks is what also needs writers side by side, but not those of a certain engine. Such a
	// test runs on SQLite, which has one writer at a time, and on an engine that locks rows:
	// PostgreSQL.
	Locks

	// Dialects is what depends on the shape of the statements, such as where a transaction is cut
	// off, but not on the server that runs them. Such a test runs on one engine of each dialect.
	Dialects

	// Processes is what happens when processes die, stop or are cut off, in the way that every
	// engine shows it. Such a test runs on an engine that locks rows: PostgreSQL.
	Processes
)

// Each is dbtest.Each on these engines.
func (p Proves) Each(t *testing.T, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	each(t, p.engines(tested), pooled, f, first...)
}

// EachClock is dbtest.EachClock on these engines.
func (p Proves) EachClock(t *testing.T, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	p.Each(t, clocked(f), first...)
}

// EachEmpty is dbtest.EachEmpty on these engines.
func (p Proves) EachEmpty(t *testing.T, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	each(t, p.engines(tested), empty, f, first...)
}

func (p Proves) engines(all []*engine) (some []*engine) {
	if Long() {
		return all
	}
	rows := false // an engine that locks rows is among them
	for _, e := range all {
		file, same := e.dialect == sqlite.Dialect, func(other *engine) bool { return other.dialect == e.dialect }
		if p == Memory && file || p == Locks && (file || !rows) || p == Dialects && !slices.ContainsFunc(some, same) ||
			p == Processes && !file && !rows {
			some, rows = append(some, e), rows || !file
		}
	}
	if len(some) == 0 {
		return all[:min(1, len(all))]
	}
	return some
}

// With is what an engine must have for a test to mean something there. Each, EachClock, EachEmpty and
// Anew are those of the package on the engines that have it; the others have no subtest.
type With func(*sqlrun.Dialect) bool

var (
	// SeveralWriters is missing where one transaction writes at a time.
	SeveralWriters With = func(d *sqlrun.Dialect) bool { return d.SkipLocked != "" }

	// Network is missing where the database is a file.
	Network With = func(d *sqlrun.Dialect) bool { return d != sqlite.Dialect }

	// Notifications is missing where programs must poll.
	Notifications With = func(d *sqlrun.Dialect) bool { return d.Notify != nil }

	// Routines is missing where SQL has no functions of ours.
	Routines With = func(d *sqlrun.Dialect) bool { return d.Routines }

	// Users is missing where whoever can read the file may do everything.
	Users With = func(d *sqlrun.Dialect) bool { return d.Holdings != nil }

	// TableLocks is missing where a change of tables waits for no reader.
	TableLocks With = func(d *sqlrun.Dialect) bool { return d.TableLocks != nil }
)

// Each is dbtest.Each on the engines that have it.
func (w With) Each(t *testing.T, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	each(t, w.engines(tested), pooled, w.there(f), first...)
}

// EachClock is dbtest.EachClock on the engines that have it.
func (w With) EachClock(t *testing.T, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	w.Each(t, clocked(f), first...)
}

// EachEmpty is dbtest.EachEmpty on the engines that have it.
func (w With) EachEmpty(t *testing.T, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	each(t, w.engines(tested), empty, w.there(f), first...)
}

// Anew is dbtest.Anew on the engines that have it.
func (w With) Anew(t *testing.T, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	each(t, w.engines(tested), made, w.there(f), first...)
}

// there skips the test where the server lacks it, unlike others of its engine.
func (w With) there(f func(t *testing.T, db *DB)) func(t *testing.T, db *DB) {
	return func(t *testing.T, db *DB) {
		t.Helper()
		d := *db.Dialect
		d.Routines = d.Routines && !Gated()
		if !w(&d) {
			t.Skip("this server does not have what it needs")
		}
		f(t, db)
	}
}

func (w With) engines(all []*engine) []*engine {
	return slices.DeleteFunc(slices.Clone(all), func(e *engine) bool { return !w(e.dialect) })
}

// Long reports whether the long proofs run as well, and each test on all engines:
// DBCRON_TEST_LONG=true, as make proof sets it.
func Long() bool { return os.Getenv(longVariable) == "true" }

const longVariable = "DBCRON_TEST_LONG"

// OnlyLong skips a long proof, unless they run.
func OnlyLong(t *testing.T, why string) {
	t.Helper()
	if !Long() {
		t.Skip("make proof: " + why)
	}
}
