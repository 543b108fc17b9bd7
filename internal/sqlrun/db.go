package sqlrun

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/dbcron/dbcron/internal/engine"
	"github.com/dbcron/dbcron/internal/sqlconn"
)

// A DB is a database with dbcron's tables. It is safe for concurrent use.
type DB struct {
	Session // runs statements outside of transactions

	pool  *sql.DB
	opt   Options
	owned bool // opened by Open, so Close closes it
	limit int  // connections at most, if the pool does not know; 0: ask the pool

	inUse func() int // how many of them are in use, likewise; nil: ask the pool

	name   string // of the tables, in the names of locks and channels
	home   string // schema or database of the tables; "": unknown
	quoted string // the same as statements name it; "": they do not

	isolation sql.IsolationLevel // the level that transactions must ask for
	lacks     map[Feature]string // missing features, and why each is missing

	further fs.FS // migrations after the program's own; nil: none
}

// An Execer runs statements. It is a *sql.DB, a *sql.Conn or a *sql.Tx.
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
	compiled *sync.Map     // *Stmt to *compiled; shared by all sessions of a DB
	packet   *packet       // shared likewise
	copies   *atomic.Int32 // shared likewise; never: the driver cannot copy
	writing  *writing      // the right to write, on engines with one writer; otherwise nil
	retry    bool          // each statement is its own transaction and may be retried
	brief    bool          // it waits shortly for locks: see DB.Brief
}

var prefixes = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,23}$`)

// Filled returns the options with the defaults filled in, and the prefix of table names in SQL:
// schema and prefix. It refuses malformed names, because they become part of statements verbatim.
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
	db := &DB{pool: pool, opt: opt, name: prefix, isolation: d.Isolation, lacks: map[Feature]string{}}
	db.Session = Session{
		Dialect: d, on: pool, prefix: prefix, timeout: opt.StatementTimeout, compiled: &sync.Map{},
		packet: &packet{}, copies: &atomic.Int32{}, retry: true,
	}
	if d.SkipLocked == "" {
		db.writing = &writing{own: make(permit, 1)}
	}
	db.without(opt.told())
	return db, nil
}

// Pool returns the underlying pool, for what a DB does not offer.
func (db *DB) Pool() *sql.DB { return db.pool }

// MaxConns returns the largest number of connections in the pool; 0 means no limit.
func (db *DB) MaxConns() int { return cmp.Or(db.limit, db.pool.Stats().MaxOpenConnections) }

// Full reports whether all connections of the pool are in use, so that the next caller has to wait. It is
// false for a pool without a limit, and for one that hides its own.
func (db *DB) Full() bool {
	most := db.MaxConns()
	if most == 0 {
		return false
	}
	n := db.pool.Stats().InUse
	if db.inUse != nil {
		n = db.inUse()
	}
	return n >= most
}

// Over returns db on another pool of the same database, such as one made by Borrow.
func (db *DB) Over(pool *sql.DB) *DB {
	other := *db
	other.pool, other.on, other.owned = pool, pool, false
	return &other
}

// Brief returns db on connections that Borrow has taken with Dialect.Briefly: its statements, transactions
// and pipelines wait for the lock of a row for a second at most, and then fail with an error that is a
// Dialect.LockTimeout, without being retried. It is for work that is done for all, which a stranger's
// transaction must not stop. On engines with one writer it is db itself.
func (db *DB) Brief() *DB {
	other := *db
	other.brief = db.Dialect.LockTimeout != nil
	return &other
}

// Exec is [Session.Exec]. A brief one is a transaction of its own, where an engine knows the limit only in
// transactions.
func (db *DB) Exec(ctx context.Context, stmt *Stmt, args Args) (int64, error) {
	if db.brief && db.Dialect.Briefly == nil && db.Dialect.Pipeline != nil {
		step := &Step{Stmt: stmt, Args: args}
		err := db.Pipeline(ctx, step)
		return step.Changed, err
	}
	return db.Session.Exec(ctx, stmt, args)
}

// heldTooLong recognizes the error of a brief statement, and says what it means.
func (s *Session) heldTooLong(err error) error {
	if !s.brief || err == nil || !s.Dialect.LockTimeout(err) {
		return nil
	}
	return fmt.Errorf("another transaction has held a row for more than %v: %w", sqlconn.BriefWait, err)
}

// Options returns the options with the defaults filled in.
func (db *DB) Options() Options { return db.opt }

// Prefix returns the prefix of table names in SQL: schema or database, and prefix.
func (db *DB) Prefix() string { return db.prefix }

// Name returns what locks and channels are named after: the schema, if the options have one, and the
// prefix. It is the same in all versions, so that they exclude and hear each other.
func (db *DB) Name() string { return db.name }

// WithNow returns db with another clock, an SQL expression of the column type. It lets tests move
// time instead of waiting.
func (db *DB) WithNow(now string) *DB {
	d, other := *db.Dialect, *db
	d.Now = now
	other.Dialect, other.compiled = &d, &sync.Map{}
	return &other
}

// WithMigrations returns db as a later version of the program would use it, whose migrations go on with those in further:
// files DIALECT/NUMBER_NAME.sql, as in sqlschema/migrations. It lets tests upgrade.
func (db *DB) WithMigrations(further fs.FS) *DB {
	other := *db
	other.further = further
	return &other
}

// FurtherMigrations returns those of WithMigrations, or nil.
func (db *DB) FurtherMigrations() fs.FS { return db.further }

// Close closes the pool if Open made it. It leaves a caller's pool open.
func (db *DB) Close() error {
	var err error
	if db.owned {
		err = db.pool.Close()
	}
	return err
}

// On returns a session in the caller's transaction or on the caller's connection. It does not
// retry, because the caller's whole transaction would have to be repeated.
func (db *DB) On(x Execer) *Session {
	s := db.Session
	s.on, s.retry, s.writing = x, false, nil
	return &s
}

// Hold returns a session on one connection of the pool, which release returns to the pool. In a
// transaction or on a connection, Hold returns the session itself. Statements of the held session
// are not retried.
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
	own.on, own.retry, own.writing = conn, false, nil
	return &own, func() { _ = conn.Close() }, nil
}

// Execer returns what the session runs statements on, such as its transaction.
func (s *Session) Execer() Execer { return s.on }

// Exec runs a statement and returns the number of rows it changed or, for an UPDATE through Open,
// matched. If the server does not take so long a statement, Exec divides its rows over several, of which,
// outside of a transaction, only some may have been committed when it returns an error.
func (s *Session) Exec(ctx context.Context, stmt *Stmt, args Args) (n int64, err error) {
	err = s.runParts(ctx, stmt, args, s.adds(&n))
	return n, err
}

// ExecWhole is Exec for all rows or none, in one statement: it returns an [ErrTooLong] if the server does
// not take it.
func (s *Session) ExecWhole(ctx context.Context, stmt *Stmt, args Args) (n int64, err error) {
	err = s.run(ctx, stmt, args, s.adds(&n))
	return n, err
}

// adds executes a statement and adds the number of rows that it changed.
func (s *Session) adds(n *int64) func(context.Context, string, []any) error {
	return func(ctx context.Context, query string, values []any) error {
		return s.inTurn(ctx, func(on Execer) error {
			r, err := on.ExecContext(ctx, query, values...)
			if err != nil {
				return err
			}
			changed, err := r.RowsAffected()
			*n += changed
			return err
		})
	}
}

// ExecText runs a statement written by a user, verbatim, and returns the number of rows it changed.
// Only ctx limits its time.
func (s *Session) ExecText(ctx context.Context, text string) (int64, error) {
	r, err := s.on.ExecContext(ctx, text)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// Next runs an UPDATE of at most one row that has {next column} in its SET and ends in
// {returning column}, or an INSERT of one row that ends in the {returning} of its generated key. In one round trip
// it returns the column's new value and whether the row was found.
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

// Get runs a query, or a statement that returns what it has written, and scans the first row. It
// returns sql.ErrNoRows if there is none.
func (s *Session) Get(ctx context.Context, stmt *Stmt, args Args, dest ...any) error {
	return s.run(ctx, stmt, args, func(ctx context.Context, query string, values []any) error {
		get := func(on Execer) error { return engine.QueryRow(ctx, on, query, values, dest...) }
		if s.writing != nil && strings.Contains(query, "RETURNING") {
			return s.inTurn(ctx, get)
		}
		return get(s.on)
	})
}

// Select runs a query and converts each row with scan.
func Select[T any](ctx context.Context, s *Session, stmt *Stmt, args Args, scan func(*sql.Rows) (T, error)) ([]T, error) {
	var all []T
	err := s.runParts(ctx, stmt, args, func(ctx context.Context, query string, values []any) error {
		before := len(all)
		rows, err := s.on.QueryContext(ctx, query, values...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			one, err := scan(rows)
			if err != nil {
				all = all[:before]
				return err
			}
			all = append(all, one)
		}
		if err := rows.Err(); err != nil {
			all = all[:before]
			return err
		}
		return nil
	})
	return all, err
}

// run renders a statement, bounds its time, and adds its name to errors.
func (s *Session) run(ctx context.Context, stmt *Stmt, args Args, call func(context.Context, string, []any) error) error {
	query, values, err := s.render(stmt, args)
	if err != nil {
		return fmt.Errorf("%s: %w", stmt.Name, err)
	}
	if err := s.fits(ctx, query, values); err != nil {
		return fmt.Errorf("%s: %w", stmt.Name, err)
	}
	once := func() error {
		bounded, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		err := call(bounded, query, values)
		if err != nil && bounded.Err() != nil && !errors.Is(err, bounded.Err()) {
			err = fmt.Errorf("%w: %w", bounded.Err(), err) // engines report this in their own ways
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

// Tx runs f in a transaction at READ COMMITTED and commits it. On a deadlock, a serialization
// failure or a lock timeout it rolls back and runs f again, so f must have no effects outside the
// transaction. (It rolls back explicitly because a lock timeout on MySQL leaves the transaction
// open, with its earlier writes.) An error of f, or a panic, rolls back.
//
// If the commit itself fails, for example because the connection was cut, it may or may not have
// happened: see [Dialect.Uncertain].
func (db *DB) Tx(ctx context.Context, f func(ctx context.Context, tx *Session) error) error {
	return db.retrying(ctx, func() error { return db.once(ctx, f) })
}

// ShortTx is Tx for a transaction that waits only for the database. Where the server can, it ends
// the transaction after five idle seconds, so that a process that is stopped in the middle does not
// keep its locks.
func (db *DB) ShortTx(ctx context.Context, f func(ctx context.Context, tx *Session) error) error {
	return db.Tx(sqlconn.Short(ctx), f)
}

// FreeTx is ShortTx without retries. If the pool has no free connection within wait, it returns an
// error that is Unavailable.
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
	if db.writing == nil {
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
	if db.brief {
		onBegin = cmp.Or(db.Dialect.OnBeginBrief, onBegin)
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

// WithConn runs f with a session on one connection of the pool. What f sends waits for no
// connection and, on engines with one writer, for no other writer of this process. Like Tx it may
// run f again, so only the last statement of f may change anything.
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

// A commitError is an error of a commit.
type commitError struct{ error }

func (e *commitError) Error() string { return "commit: " + e.error.Error() }
func (e *commitError) Unwrap() error { return e.error }

// An undoneError is an error that left no changes behind, even though the server gave no answer:
// nothing was sent, or it was rolled back.
type undoneError struct{ error }

func (e *undoneError) Unwrap() error { return e.error }

// Undone marks an error of a step that changes nothing or precedes the commit. Without an answer
// from the server, such an error is still certain to have changed nothing.
func (db *DB) Undone(err error) error {
	if err != nil && db.Dialect.lost(err) {
		return &undoneError{err}
	}
	return err
}

// unconnected marks an error in getting a connection.
func (db *DB) unconnected(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errNoAnswer, err) // the timeout for connecting is over, not the caller's
	}
	return db.Undone(err)
}

// Unreachable reports whether err is a connection error, or says that the server is not ready or
// takes no writes, so that a later retry makes sense.
func (d *Dialect) Unreachable(err error) bool { return ConnectionError(err) || d.Unavailable(err) }

// lost reports whether err only means that there was no answer.
func (d *Dialect) lost(err error) bool {
	return d.Unavailable(err) || errors.Is(err, sqlconn.ErrCut) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Uncertain reports whether, after err, a statement or transaction may or may not have been
// committed. It is certain not to be if nothing was sent, or if the connection was lost before the
// commit.
func (d *Dialect) Uncertain(err error) bool {
	var commit *commitError
	return err != nil && !d.Retryable(err) && !d.ReadOnly(err) && !isUndone(err) && (d.lost(err) || errors.As(err, &commit))
}

// Unsent reports whether the server could not be reached and nothing was changed, so that the whole
// operation can be retried later.
func (d *Dialect) Unsent(err error) bool {
	return err != nil && (isUndone(err) || d.ReadOnly(err)) && d.Unavailable(err)
}

// isUndone reports whether the failed operation left no changes. Drivers return ErrBadConn only for
// what they have not sent.
func isUndone(err error) bool {
	var undone *undoneError
	return errors.As(err, &undone) || errors.Is(err, driver.ErrBadConn)
}

// retrying runs f, and runs it again while the engine asks for that, ten times at most: contention
// in tests never needed more than four.
func (s *Session) retrying(ctx context.Context, f func() error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 5*time.Millisecond, time.Second
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := f()
		if held := s.heldTooLong(err); held != nil {
			err = backoff.Permanent(held)
		} else if err != nil && !s.Dialect.Retryable(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(wait), backoff.WithMaxTries(10))
	return err
}
