package dialect

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/dbcron/dbcron/dialect/internal/engine"
	"github.com/dbcron/dbcron/internal/sqlconn"
)

// A DB is a database that dbcron's tables are in. It is safe for concurrent use.
type DB struct {
	Session // statements outside of a transaction

	pool  *sql.DB
	opt   Options
	owned bool // opened by Open, so Close closes it
	limit int  // of connections, where the pool does not know; 0: it does

	isolation sql.IsolationLevel // that transactions have to ask for
	lacks     map[Feature]string // what to do without, and why
}

// An Execer runs statements: a *sql.DB, *sql.Conn or *sql.Tx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// A Session runs statements on a pool or in a transaction.
type Session struct {
	Dialect *Dialect

	on       Execer
	prefix   string
	timeout  time.Duration
	compiled *sync.Map     // *Stmt to *compiled; of all sessions of a DB
	packet   *packet       // likewise
	copies   *atomic.Int32 // likewise; never: the driver cannot copy
	turn     chan struct{} // where there is one writer: who may write; nil elsewhere
	retry    bool          // each statement is a transaction of its own, and is run again as one
}

var prefixes = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,23}$`)

// Filled returns the options with the defaults filled in, and what stands
// before each table's name in SQL: schema and prefix. It refuses names that are
// none, since they become part of statements as they are.
func (o Options) Filled(d *Dialect) (filled Options, prefix string, err error) {
	o.Prefix = cmp.Or(o.Prefix, "dbcron_")
	o.StatementTimeout = cmp.Or(o.StatementTimeout, 30*time.Second)
	if !prefixes.MatchString(o.Prefix) {
		return o, "", fmt.Errorf("table prefix %q: use up to 24 of a-z, 0-9 and _, and no digit first", o.Prefix)
	}
	if o.Schema == "" {
		return o, o.Prefix, nil
	}
	if !d.Schema {
		return o, "", fmt.Errorf("schema %q: this engine has none beside the database; name the database in the URL", o.Schema)
	}
	if !prefixes.MatchString(o.Schema) {
		return o, "", fmt.Errorf("schema %q: use up to 24 of a-z, 0-9 and _, and no digit first", o.Schema)
	}
	return o, o.Schema + "." + o.Prefix, nil
}

func newDB(d *Dialect, pool *sql.DB, opt Options) (*DB, error) {
	opt, prefix, err := opt.Filled(d)
	if err != nil {
		return nil, err
	}
	if err := d.checkWithout(opt.Without); err != nil {
		return nil, err
	}
	db := &DB{pool: pool, opt: opt, isolation: d.Isolation, lacks: map[Feature]string{}}
	db.Session = Session{
		Dialect: d, on: pool, prefix: prefix, timeout: opt.StatementTimeout, compiled: &sync.Map{},
		packet: &packet{}, copies: &atomic.Int32{}, retry: true,
	}
	if d.SkipLocked == "" {
		db.turn = make(chan struct{}, 1)
	}
	db.without(opt.told())
	return db, nil
}

// patience is how long a writer of this process waits for the others before it tries
// its luck with the engine, which knows no order: long enough for each to have its turn,
// and an end for one that waits for itself.
const patience = 5 * time.Second

// write waits for its turn to write, where there is one writer: the engine lets those
// wait who come at once, and then lets anybody go first.
func (s *Session) write(ctx context.Context) (done func()) {
	if s.turn == nil {
		return func() {}
	}
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }
	case <-ctx.Done():
	case <-timer.C:
	}
	return func() {}
}

// inTurn runs f in its turn to write, on a connection that it has before: one that waits for
// a connection of the pool, which others may hold for long, must not keep writers waiting
// that have one.
func (s *Session) inTurn(ctx context.Context, f func(on Execer) error) error {
	pool, ok := s.on.(*sql.DB)
	if s.turn == nil || !ok {
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

// Pool returns the pool, for what a DB does not offer.
func (db *DB) Pool() *sql.DB { return db.pool }

// MaxConns returns how many connections the pool has at the most; 0: any number.
func (db *DB) MaxConns() int { return cmp.Or(db.limit, db.pool.Stats().MaxOpenConnections) }

// Over returns db on another pool of the same database, such as one that Borrow made.
func (db *DB) Over(pool *sql.DB) *DB {
	other := *db
	other.pool, other.on, other.owned = pool, pool, false
	return &other
}

// Options returns the options with the defaults filled in.
func (db *DB) Options() Options { return db.opt }

// Prefix returns what stands before each table's name in SQL: schema and prefix.
func (db *DB) Prefix() string { return db.prefix }

// WithNow returns db with another clock: an SQL expression of the column type.
// For tests, which move time instead of waiting for it.
func (db *DB) WithNow(now string) *DB {
	d, other := *db.Dialect, *db
	d.Now = now
	other.Dialect, other.compiled = &d, &sync.Map{}
	return &other
}

// Close closes the pool if Open made it, and leaves a caller's pool alone.
func (db *DB) Close() error {
	var err error
	if db.owned {
		err = db.pool.Close()
	}
	return err
}

// On returns a session in a transaction or on a connection of the caller's.
// Nothing is retried there: the caller's whole transaction would have to be.
func (db *DB) On(x Execer) *Session {
	s := db.Session
	s.on, s.retry, s.turn = x, false, nil
	return &s
}

// Hold returns a session on one connection of the pool, which release gives back. In a
// transaction, or on a connection, it is the session itself. A statement that fails is not
// run again.
func (s *Session) Hold(ctx context.Context) (held *Session, release func(), err error) {
	pool, ok := s.on.(*sql.DB)
	if !ok {
		return s, func() {}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	conn, err := pool.Conn(bounded)
	if err != nil {
		return nil, nil, err
	}
	own := *s
	own.on, own.retry, own.turn = conn, false, nil
	return &own, func() { _ = conn.Close() }, nil
}

// Execer returns what the session runs statements on: in a transaction, the
// transaction.
func (s *Session) Execer() Execer { return s.on }

// Exec runs a statement and tells how many rows it changed or, for an UPDATE
// through Open, matched.
func (s *Session) Exec(ctx context.Context, stmt *Stmt, args Args) (int64, error) {
	var n int64
	err := s.run(ctx, stmt, args, func(ctx context.Context, query string, values []any) error {
		return s.inTurn(ctx, func(on Execer) error {
			r, err := on.ExecContext(ctx, query, values...)
			if err != nil {
				return err
			}
			n, err = r.RowsAffected()
			return err
		})
	})
	return n, err
}

// ExecText runs a statement that a user wrote, as it is, and tells how many rows
// it changed. Nothing but ctx limits its time.
func (s *Session) ExecText(ctx context.Context, text string) (int64, error) {
	r, err := s.on.ExecContext(ctx, text)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// Next runs an UPDATE of one row at the most that has {next column} in its SET
// and ends in {returning column}. It tells the column's new value in one round
// trip, and whether there was such a row.
func (s *Session) Next(ctx context.Context, stmt *Stmt, args Args) (value int64, found bool, err error) {
	if s.Dialect.Returning != nil {
		err = s.Get(ctx, stmt, args, &value)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, false, nil
		}
		return value, err == nil, err
	}
	err = s.run(ctx, stmt, args, func(ctx context.Context, query string, values []any) error {
		r, err := s.on.ExecContext(ctx, query, values...)
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		if err != nil || n == 0 {
			return err
		}
		found = true
		value, err = r.LastInsertId()
		return err
	})
	return value, found, err
}

// Get runs a query, or a statement that returns what it has written, and scans its first row. It
// returns sql.ErrNoRows if there is none.
func (s *Session) Get(ctx context.Context, stmt *Stmt, args Args, dest ...any) error {
	return s.run(ctx, stmt, args, func(ctx context.Context, query string, values []any) error {
		get := func(on Execer) error { return engine.QueryRow(ctx, on, query, values, dest...) }
		if s.turn != nil && strings.Contains(query, "RETURNING") {
			return s.inTurn(ctx, get)
		}
		return get(s.on)
	})
}

// Select runs a query and reads each row with scan.
func Select[T any](ctx context.Context, s *Session, stmt *Stmt, args Args, scan func(*sql.Rows) (T, error)) ([]T, error) {
	var all []T
	err := s.run(ctx, stmt, args, func(ctx context.Context, query string, values []any) error {
		all = nil
		rows, err := s.on.QueryContext(ctx, query, values...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			one, err := scan(rows)
			if err != nil {
				return err
			}
			all = append(all, one)
		}
		return rows.Err()
	})
	return all, err
}

// run renders a statement, bounds its time, and names it in its error.
func (s *Session) run(ctx context.Context, stmt *Stmt, args Args, call func(context.Context, string, []any) error) error {
	query, values, err := s.render(stmt, args)
	if err != nil {
		return fmt.Errorf("%s: %w", stmt.Name, err)
	}
	once := func() error {
		bounded, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		err := call(bounded, query, values)
		if err != nil && bounded.Err() != nil && !errors.Is(err, bounded.Err()) {
			err = fmt.Errorf("%w: %w", bounded.Err(), err) // engines call it what they like
		}
		return err
	}
	if s.retry {
		err = s.retrying(ctx, once)
	} else {
		err = once()
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%s: %w", stmt.Name, err)
	}
	return err
}

func (s *Session) render(stmt *Stmt, args Args) (string, []any, error) {
	found, ok := s.compiled.Load(stmt)
	if !ok {
		fresh, err := newCompiled(stmt, s.Dialect, s.prefix)
		if err != nil {
			return "", nil, err
		}
		found, _ = s.compiled.LoadOrStore(stmt, fresh)
	}
	return found.(*compiled).render(s.Dialect, args)
}

// Tx runs f in a transaction at READ COMMITTED and commits it. On a deadlock,
// a serialization failure or a lock that could not be had in time it rolls
// back (a lock timeout on MySQL leaves the transaction open, with its earlier
// writes) and runs the whole again, so f must not change anything outside of
// it before it returns. An error of f rolls back, and a panic too.
//
// An error of the commit itself, such as a cut connection, leaves open whether
// it happened.
func (db *DB) Tx(ctx context.Context, f func(ctx context.Context, tx *Session) error) error {
	return db.retrying(ctx, func() error { return db.once(ctx, f) })
}

// ShortTx is Tx for a transaction that waits for nothing but the database: the server
// ends it when it hears nothing of it for five seconds, where it can, so that a process
// that is stopped in the middle does not keep its locks.
func (db *DB) ShortTx(ctx context.Context, f func(ctx context.Context, tx *Session) error) error {
	return db.Tx(sqlconn.Short(ctx), f)
}

// FreeTx is ShortTx, once, if it gets a connection of the pool within a moment. If not, it
// returns an error that is Unavailable.
func (db *DB) FreeTx(ctx context.Context, wait time.Duration, f func(ctx context.Context, tx *Session) error) error {
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	c, err := db.pool.Conn(bounded)
	if err != nil {
		return db.unconnected(ctx, fmt.Errorf("connect: %w", err))
	}
	defer c.Close()
	return db.begin(sqlconn.Short(ctx), c, f)
}

func (db *DB) once(ctx context.Context, f func(context.Context, *Session) error) error {
	if db.turn == nil {
		return db.begin(ctx, db.pool, f)
	}
	c, err := db.pool.Conn(ctx)
	if err != nil {
		return db.unconnected(ctx, fmt.Errorf("begin: %w", err))
	}
	defer c.Close()
	defer db.write(ctx)()
	return db.begin(ctx, c, f)
}

// begin runs f in a transaction on a pool or a connection.
func (db *DB) begin(ctx context.Context, where interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}, f func(context.Context, *Session) error,
) error {
	tx, err := where.BeginTx(ctx, &sql.TxOptions{Isolation: db.isolation})
	if err != nil {
		return db.unconnected(ctx, fmt.Errorf("begin: %w", err))
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing; before, the error that led here says more
	onBegin := db.Dialect.OnBegin
	if sqlconn.IsShort(ctx) {
		onBegin = cmp.Or(db.Dialect.OnBeginShort, onBegin)
	}
	if onBegin != "" {
		if _, err := tx.ExecContext(ctx, onBegin); err != nil {
			return db.unconnected(ctx, fmt.Errorf("begin: %w", err))
		}
	}
	if err := f(ctx, db.On(tx)); err != nil {
		return db.Undone(err)
	}
	if err := tx.Commit(); err != nil {
		return &commitError{err}
	}
	return nil
}

// WithConn runs f with a session on one connection of the pool: what f sends waits for
// no connection, and for no other writer of this process where there is one writer.
// Like Tx it runs the whole again where that helps: so only the last statement of f may
// change anything.
func (db *DB) WithConn(ctx context.Context, f func(ctx context.Context, on *Session) error) error {
	return db.retrying(ctx, func() error {
		bounded, cancel := context.WithTimeout(ctx, db.timeout)
		defer cancel()
		c, err := db.pool.Conn(bounded)
		if err != nil {
			return db.unconnected(ctx, fmt.Errorf("connect: %w", err))
		}
		defer c.Close()
		defer db.write(ctx)()
		return f(ctx, db.On(c))
	})
}

// A commitError is one of a commit.
type commitError struct{ error }

func (e *commitError) Error() string { return "commit: " + e.error.Error() }
func (e *commitError) Unwrap() error { return e.error }

// An undoneError is one that left nothing behind, although the server could not be
// asked: nothing was sent, or what was sent is rolled back.
type undoneError struct{ error }

func (e *undoneError) Unwrap() error { return e.error }

// Undone marks an error of what changes nothing, or of what came before the commit: if
// there was no answer, nothing is left open.
func (db *DB) Undone(err error) error {
	if err != nil && db.Dialect.lost(err) {
		return &undoneError{err}
	}
	return err
}

// unconnected marks an error of getting a connection.
func (db *DB) unconnected(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errNoAnswer, err) // the time for that is over, and not the caller's
	}
	return db.Undone(err)
}

// Unreachable tells whether err is one of a connection, or says that the server does not serve
// yet or takes no writes, so that trying again later makes sense.
func (d *Dialect) Unreachable(err error) bool { return ConnectionError(err) || d.Unavailable(err) }

// lost tells whether err says no more than that there was no answer.
func (d *Dialect) lost(err error) bool {
	return d.Unavailable(err) || errors.Is(err, sqlconn.ErrCut) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Uncertain tells whether err of a statement or transaction that was to be committed
// leaves open whether it was. It is not if nothing was sent, or if the connection was
// lost before the commit of a transaction.
func (d *Dialect) Uncertain(err error) bool {
	var commit *commitError
	return err != nil && !d.Retryable(err) && !d.ReadOnly(err) && !isUndone(err) && (d.lost(err) || errors.As(err, &commit))
}

// Unsent tells whether err says that the server could not be reached, and that nothing
// was changed: the whole can be tried again later.
func (d *Dialect) Unsent(err error) bool {
	return err != nil && (isUndone(err) || d.ReadOnly(err)) && d.Unavailable(err)
}

// isUndone tells whether nothing is left of what failed. Drivers say ErrBadConn only of
// what they have not sent.
func isUndone(err error) bool {
	var undone *undoneError
	return errors.As(err, &undone) || errors.Is(err, driver.ErrBadConn)
}

// retrying runs f again while the engine says that this helps, ten times at
// the most: contention in tests never took more than four.
func (s *Session) retrying(ctx context.Context, f func() error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 5*time.Millisecond, time.Second
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := f()
		if err != nil && !s.Dialect.Retryable(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(wait), backoff.WithMaxTries(10))
	return err
}
