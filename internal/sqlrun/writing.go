package sqlrun

import (
	"context"
	"database/sql"
	"runtime"
	"sync"
	"time"
	"weak"
)

// An engine with one writer lets any of the writers that wait go first, and those that wait ask more
// and more seldom. So the writers of a process wait for a permit, in order, before they ask the engine:
// first for that of their DB, then for that of the file, which all DBs of the file share. A permit only
// decides who asks first. A writer that does not get it in time asks the engine in any case, so a writer
// that stalls delays others but never blocks them.
const (
	// patience bounds the wait for the other writers of a DB. It is long enough for each of them to
	// write, and it frees a writer that waits for itself.
	patience = 5 * time.Second

	// courtesy bounds the wait for the other DBs of a file, whose transactions this DB knows
	// nothing about.
	courtesy = 100 * time.Millisecond
)

// A permit is a full channel while somebody has it. Those who wait get it in the order of their arrival.
type permit chan struct{}

// take waits for the permit, until ctx ends or for at most the given time, and reports whether it came.
func (p permit) take(ctx context.Context, most time.Duration) bool {
	select {
	case p <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case p <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

func (p permit) end() { <-p }

// writing is what the writers of a DB wait for.
type writing struct {
	own  permit // of this DB
	file *file  // has that of all DBs with this file; nil: unknown
}

// take waits for the right to write. done gives it back.
func (w *writing) take(ctx context.Context) (done func()) {
	if !w.own.take(ctx, patience) {
		return func() {}
	}
	if w.file == nil || !w.file.permit.take(ctx, courtesy) {
		return w.own.end
	}
	return func() {
		w.file.permit.end()
		w.own.end()
	}
}

// A file is a database file that this process has open.
type file struct{ permit permit }

// files holds each file as long as a DB has it.
var files = struct {
	sync.Mutex
	named map[string]weak.Pointer[file]
}{named: map[string]weak.Pointer[file]{}}

// fileNamed returns the file with a name, the same one for all DBs.
func fileNamed(name string) *file {
	files.Lock()
	defer files.Unlock()
	if f := files.named[name].Value(); f != nil {
		return f
	}
	f := &file{permit: make(permit, 1)}
	files.named[name] = weak.Make(f)
	runtime.AddCleanup(f, forget, name)
	return f
}

// forget drops a name that no DB uses any more.
func forget(name string) {
	files.Lock()
	defer files.Unlock()
	if files.named[name].Value() == nil {
		delete(files.named, name)
	}
}

// share makes the DB use the permit of its file. Without an answer it does not, which costs speed only.
func (db *DB) share(ctx context.Context) {
	if db.writing == nil || db.Dialect.File == nil {
		return
	}
	if name, err := db.Dialect.File(ctx, db); err == nil {
		db.writing.file = fileNamed(name)
	}
}

// write waits for the right to write, on engines with one writer.
func (s *Session) write(ctx context.Context) (done func()) {
	if s.writing == nil {
		return func() {}
	}
	return s.writing.take(ctx)
}

// inTurn takes a connection, waits for the right to write, and runs f. It takes the connection
// first: otherwise a writer that waits for the pool would block writers that have a connection.
func (s *Session) inTurn(ctx context.Context, f func(on Execer) error) error {
	pool, ok := s.on.(*sql.DB)
	if s.writing == nil || !ok {
		defer s.write(ctx)()
		return f(s.on)
	}
	c, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	defer s.write(ctx)()
	return f(c)
}
