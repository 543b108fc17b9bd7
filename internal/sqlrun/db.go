package sqlrun

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbcron/dbcron/internal/engine"
	"github.com/dbcron/dbcron/internal/pattern"
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
	hasty    bool          // it does not wait for locks: see DB.Hasty
}

var prefixes = pattern.Lazy(`^[a-z_][a-z0-9_]{0,23}$`)

// Filled returns the options with the defaults filled in, and the prefix of table names in SQL:
// schema and prefix. It refuses malformed names, because they become part of statements verbatim.
func (o Options) Filled(d *Dialect) (filled Options, prefix string, err error) {
	o.Prefix = cmp.Or(o.Prefix, "dbcron_")
	o.StatementTimeout = cmp.Or(o.StatementTimeout, 30*time.Second)
	if !prefixes().MatchString(o.Prefix) {
		return o, "", fmt.Errorf("table prefix %q: use up to 24 of a-z, 0-9 and _, and no digit first", o.Prefix)
	}
	if o.Schema == "" {
		return o, o.Prefix, nil
	}
	if !d.Schema {
		return o, "", fmt.Errorf("schema %q: this engine has none beside the database; name the database in the URL", o.Schema)
	}
	if !prefixes().MatchString(o.Schema) {
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

// Hasty returns db for transactions that serve many callers: where the engine can, they fail with a Dialect.LockTimeout when they have
// waited for a lock for [sqlconn.HastyWait], and are not retried then. Elsewhere a statement that ends in Dialect.LockedNow says
// beforehand whether they would have to wait. On engines with one writer it is db itself.
func (db *DB) Hasty() *DB {
	other := *db
	other.hasty = db.Dialect.LockTimeout != nil
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

// heldTooLong recognizes the error of a brief or hasty statement, and says what it means.
func (s *Session) heldTooLong(err error) error {
	if !s.brief && !s.hasty || err == nil || !s.Dialect.LockTimeout(err) {
		return nil
	}
	if s.hasty {
		return fmt.Errorf("another transaction holds a row: %w", err)
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

// ExecGuest runs a statement that somebody else has written, in a transaction of GuestTx, and takes back what it has set in the
// session, for what comes after it in the transaction and, behind a pooler of transactions, for the server's next client. It
// returns the number of rows that the statement changed.
func (s *Session) ExecGuest(ctx context.Context, text string) (int64, error) {
	n, err := s.ExecText(ctx, text)
	for _, restore := range s.Dialect.Restore {
		if err == nil {
			_, err = s.ExecText(ctx, restore)
		}
	}
	return n, err
}

// ExecText runs a statement verbatim, and returns the number of rows it changed. Only ctx limits its time.
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
	switch {
	case err == nil || errors.Is(err, sql.ErrNoRows):
		return err
	case s.Dialect.Missing(err): // of a program that has not migrated, as a rule
		return fmt.Errorf("%s: %w; if these tables are not there, dbcron migrate up or sqlschema.Migrate makes them", stmt.Name, err)
	}
	return fmt.Errorf("%s: %w", stmt.Name, err)
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
