// Package dialect has the database that the other packages work on: a [DB], which the packages
// postgres, mysql and sqlite below this one open by a URL, or wrap around a pool that the program has.
// Each of them links one driver. Package engines links all three, for programs that choose the
// engine by a URL.
//
//	db, err := postgres.Wrap(ctx, pool, dialect.Options{Prefix: "jobs_"})
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	queues, err := queue.New(db, queue.Options{})
//
// Most programs need no more than [Options] from here. Their own statements run on their own pool or
// driver, and they hand a transaction over as an [Execer]. A program that runs on any engine may
// write its statements once, by [SQL].
//
// Time is the database's. Instants are stored in native UTC columns that a person can read at the
// SQL prompt. Go sees only microseconds since 1970, which the statements convert. Hosts' clocks,
// session time zones and drivers' parsing flags do not matter.
package dialect

import (
	"context"
	"database/sql"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A DB is a database with dbcron's tables. It is safe for concurrent use. Its methods for programs
// are:
//
//   - Close closes the connections. A pool that the program had before stays open.
//   - Pool returns the *sql.DB below, for transactions of the program's own.
//   - Prefix returns what stands before the names of tables: schema or database, and prefix.
//   - Exec, Get and Tx run statements made by [SQL], as in a [Session]. Tx(ctx, f) runs f in a
//     transaction at READ COMMITTED and commits it; after a deadlock it runs f again.
//   - On(tx) is a [Session] in a transaction of the program's own.
//
// Its field Dialect says which engine it is.
type DB = sqlrun.DB

// Options configures a DB. The zero value is ready to use: tables dbcron_… in the database that the
// URL names, ten connections, thirty seconds for a statement.
type Options struct {
	Prefix           string        // of all table names; default: dbcron_
	Schema           string        // PostgreSQL: schema of the tables; default: the first of the search_path that has them, looked up once
	StatementTimeout time.Duration // limit of a statement; default: 30s
	ApplicationName  string        // name in the server's list of connections; default: dbcron
	Existing         bool          // SQLite: do not create the file
	Without          []Feature     // features to do without, besides those the database lacks
	MaxConns         int           // size of the pool; default: 10. Ignored by Wrap.
	Reading          bool          // Open accepts a server that takes no writes, too
}

// A Dialect describes an engine: Name is postgres, mysql (also of MariaDB) or sqlite. Its functions
// tell what a driver's error means: Duplicate, Missing, Denied, Retryable, Unreachable (try again
// later), Uncertain (the statement may have been done, or not).
type Dialect = sqlrun.Dialect

// An Execer runs statements in the program's transaction or on its connection: a *sql.DB, a
// *sql.Conn or a *sql.Tx. For transactions of pgx there is postgres.Tx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// A Feature is an optional feature of a database: dbcron uses it if it is there.
// [Options] can list features to do without.
type Feature = sqlrun.Feature

const (
	// Notifications tell listeners about commits. Without them, dbcron polls.
	Notifications = sqlrun.Notifications

	// AdvisoryLocks are locks of the server that belong to no table. Without them there are no
	// session locks, and migrations exclude each other by a row lock.
	AdvisoryLocks = sqlrun.AdvisoryLocks

	// Functions are stored functions. Without them there are no views and no function for the SQL
	// prompt.
	Functions = sqlrun.Functions
)

var (
	// ErrUnfit means that a database lacks something that the statements rely on. The error's text says
	// what it lacks and what to do.
	ErrUnfit = sqlrun.ErrUnfit

	// ErrReadOnly means that the server takes no writes: it is a standby or a replica, was set
	// read-only, or is a node that its cluster has left behind. After a failover, another connection
	// may lead to a server that takes writes.
	ErrReadOnly = sqlrun.ErrReadOnly
)

// Redact removes what may be a password from a database URL, for messages and logs.
func Redact(rawURL string) string { return sqlrun.Redact(rawURL) }

// A Stmt is one statement, written once for all engines. It is safe for concurrent use.
type Stmt = sqlrun.Stmt

// Args holds the values of a statement's arguments: integers (durations and instants in µs), strings,
// nil, slices of those for lists, and []Args for {values}.
type Args = sqlrun.Args

// A Session runs statements outside of transactions, or in one: Exec(ctx, stmt, args) returns the
// number of rows changed, and Get(ctx, stmt, args, dest...) scans the first row of a query, or returns
// sql.ErrNoRows. Execer returns its transaction.
type Session = sqlrun.Session

// SQL makes a statement from its text, for any engine. The name begins its errors. The text contains
// named arguments and fragments:
//
//	:name              an argument; a slice becomes a list, for IN (:ids)
//	{prefix}           before the names of dbcron's tables
//	{now}              the server's clock when the statement began
//	{now + :ttl}       a moment later; the argument is in µs
//	{us expire_at}     an instant as µs since 1970
//	{time :due}        µs since 1970 as an instant
//	{int :id}          an argument's type, where the server cannot infer it
//	{ignore_duplicate column}  at the end of an INSERT: skip rows whose key exists
//	{values rows: (:a, :b)}    one tuple for each of the Args in the slice Args["rows"], comma-separated
func SQL(name, text string) *Stmt {
	s := sqlrun.Unlisted(text)
	s.Name = name
	return s
}
