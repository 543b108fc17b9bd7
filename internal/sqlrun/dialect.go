// Package sqlrun runs statements that are written once, on every engine. It holds all that differs
// between engines, and nothing else: how to open a connection and what it must guarantee, the few SQL
// fragments that differ, and what errors mean. The other packages write each statement with the
// fragments and named arguments described at [SQL], and run it through a [DB].
//
// Package dialect is the part of it that programs see. The engines' packages are below dialect, with
// their drivers: this package links none.
//
// Time is the database's: statements convert instants to microseconds since 1970, and Go sees only
// those.
//
// A [DB] and its [Session] are safe for concurrent use; a session in a transaction is not. Errors of
// statements begin with the statement's name, such as "queue.insert". Use [Dialect.Unreachable],
// [Dialect.Uncertain] and the functions of [Dialect] to tell what an error means.
package sqlrun

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/url"
	"time"
)

// A Column is a column of {records}; its Kind is int or text.
type Column struct{ Name, Kind string }

// A Dialect describes an engine. Each engine has a package below dialect, with its driver and a
// Dialect whose fields are in the order given here. Code asks what an engine can do (a field), never
// for its name.
type Dialect struct {
	Name    string   // names the folder of migrations and the subtests: postgres, mysql, sqlite
	Title   string   // for people; several names are comma-separated
	Goose   string   // the engine's name in goose
	Schemes []string // of the URLs that Open takes
	Example string   // one of them
	Probe   string   // a query that only this engine answers

	Placeholder func(n int) string // n counts from 1
	Now         string             // the server's clock at the start of the statement, UTC, in the column type
	Add         func(t, us string) string
	FromMicros  func(us string) string // µs since 1970 to the column type; ToMicros is its inverse
	ToMicros    func(t string) string
	BigInt      string // target type of a CAST to 64-bit integers

	JSONBytes func(column string) string // length in bytes of a JSON column's text

	// ends a SELECT that locks its rows and skips locked ones; "" on engines with one writer
	SkipLocked string
	Locked     string // ends a SELECT that locks its rows and waits for locked ones; "" likewise
	// ends a SELECT that locks its rows and fails at once if one is locked; "" if Exclusive locks no row
	RowLocked string
	// ends a SELECT that locks its rows and fails at once, with a LockTimeout, if another transaction has locked or inserted one;
	// "" where OnBeginHasty has that happen, and on engines with one writer
	LockedNow   string
	ShareLocked string // ends a SELECT that keeps others from changing its rows; "" likewise
	// ends a SELECT that sees the latest commits, whatever its snapshot; "" if that would fail
	Current         string
	LocksTakeUpdate bool                       // whether these three require the right to UPDATE; otherwise the right to DELETE suffices
	IgnoreDuplicate func(column string) string // ends an INSERT that skips rows whose key exists

	// AddDuplicate ends an INSERT that, for each row whose key exists, adds the given columns
	// to those of the existing row.
	AddDuplicate func(table, key string, columns []string) string

	// Records is a table, called record, made from an argument: from :rows, a JSON array of
	// objects, or from :rows.column, one array per column.
	Records func(rows string, columns []Column) string

	// JoinByKey joins a table, "name alias", to records, each of which names a row by its
	// primary key. It makes the engine look up those rows and neither read nor lock others.
	JoinByKey func(tableAndAlias string) string

	// Ranges reports that several ranges of a key, joined by OR, are read in key order and only
	// up to a LIMIT. Otherwise statements use a UNION.
	Ranges bool

	// PassesEnds reports that a read passes over deleted rows beyond the end of a range, as many as
	// there are before the next row, while an old snapshot keeps the engine from removing them.
	PassesEnds bool

	// ArrayRows reports that Records is made from arrays, so that it is the fastest source for
	// an INSERT of many rows. Otherwise {values} is.
	ArrayRows bool

	// CountsIgnored reports that the number of rows that an INSERT with {ignore_duplicate} has changed includes those that were there.
	CountsIgnored bool

	// In compares a column with a list argument such as :ids; :ids.list is the list as one
	// array argument, and :ids.json as JSON. Only ends a DELETE or UPDATE that must not scan
	// more than so many rows; it is "" on engines that scan no more.
	In   func(column Column, list string) string
	Only func(columnAndCount string) string

	// UpdateFrom updates those rows of table that pick selects by the columns of key and that
	// meet a further condition, "" for none. set and the condition refer to pick's columns as
	// picked.x.
	UpdateFrom func(table string, key []string, set, condition, pick string) string

	// LocksReads reports that an UPDATE of several tables, and any DELETE, locks the rows that its
	// subqueries read, and waits for them. An UPDATE of one table does not.
	LocksReads bool

	// DeleteFrom deletes those rows of table that pick selects by the columns of key.
	DeleteFrom func(table string, key []string, pick string) string

	// Next is the assignment in the SET of a one-row UPDATE that adds one to a column; see
	// Session.Next. Returning ends such a statement; it is nil if the new value comes back by
	// other means.
	Next      func(column string) string
	Returning func(column string) string

	Isolation sql.IsolationLevel // of every transaction of DB.Tx
	Isolated  bool               // connections of Open have that level by default

	OnBegin      string // run first in every transaction of DB.Tx; "" for nothing
	OnBeginShort string // the same for DB.ShortTx; "": OnBegin
	OnBeginBrief string // the same for a DB.Brief; "": OnBeginShort
	OnBeginHasty string // the same for a DB.Hasty; "": OnBeginShort

	// Briefly makes a connection wait for locks for sqlconn.BriefWait at most, until restore is called. It
	// is nil where OnBeginBrief and Pipeline do that for a transaction, and on engines with one writer.
	Briefly func(ctx context.Context, c driver.Conn) (restore func() error, err error)

	Duplicate   func(error) bool // a unique key already holds the value
	Missing     func(error) bool // a table does not exist
	Denied      func(error) bool // the user lacks a right
	Unknown     func(error) bool // the server lacks a language, function or feature
	Retryable   func(error) bool // the transaction should be run again
	Outdated    func(error) bool // the transaction's snapshot is older than a row that it changes; nil on engines that cannot say so
	LockTimeout func(error) bool // another transaction has held a row's lock for too long; nil on engines with one writer
	Unavailable func(error) bool // the server is unreachable or not ready: try to connect again
	Full        func(error) bool // it lets nobody in, since the user, the database or the server has as many connections as it may

	NoSpace func(error) bool // the disk of the server, or of the file, is full; such an error is Temporary, too

	// ReadOnly reports that the server refused a statement because it takes no writes. Nothing was
	// changed. Such an error is Unavailable, too.
	ReadOnly func(error) bool

	// Refused reports that the engine refused a statement because of its text or the rows it is
	// about: a constraint, a trigger, a right. The same statement would fail again; another one
	// may succeed. Errors of the connection, of concurrent transactions, of timeouts, or of the
	// whole server, such as lack of space, are not Refused.
	Refused func(error) bool

	// Temporary reports an error of the server that has nothing to do with the statement: another transaction, a limit of
	// time, connections or space, an end of the session or the server. It may succeed later.
	Temporary func(error) bool

	// SyntaxError reports a syntax error, in the error type of a driver that the functions above
	// understand.
	SyntaxError func(error) bool

	// Restore takes back what a statement of somebody else may have set in the session, within its transaction.
	Restore []string

	// Connector makes connections with everything that the SQL relies on.
	Connector func(u *url.URL, opt Options) (driver.Connector, error)

	// IdleLife is how long a connection of Open may be idle; 0 means no limit.
	IdleLife time.Duration

	// Check examines a database, through a pool of ours or a caller's, for what the SQL relies on.
	Check func(ctx context.Context, db *DB) ([]Finding, error)

	// Strain looks for what makes the server slow over time: old snapshots, dead rows. It is nil if
	// the engine shows nothing of that kind.
	Strain func(ctx context.Context, db *DB) ([]Finding, error)

	// WhyReadOnly asks a connection why the server takes no writes; "" means that it does. It is
	// cheap and changes nothing.
	WhyReadOnly func(ctx context.Context, on Execer) (why string, err error)

	// Holdings returns the rights on tables that the user of a DB holds, or nil if there are no
	// tables. The function is nil if the engine only has rights on files.
	Holdings func(ctx context.Context, db *DB, want Rights) (*Holdings, error)

	// MaxPacket is a query for the largest size of a statement with its values, in bytes; "" if
	// that is a GiB.
	MaxPacket string

	// Lacks finds features, besides the known ones, that a database lacks although its engine has
	// them. It is nil if all databases of the engine have them.
	Lacks func(ctx context.Context, c *sql.Conn, known map[Feature]string) ([]Lack, error)

	// Exclusive acquires the lock of DB.Exclusive. If there is RowLocked, it also locks the row that
	// query returns, for processes that know no other lock; "" means that it does not.
	Exclusive func(ctx context.Context, db *DB, name, query string) (unlock func(), err error)

	// File returns the name of the file that a database is in, the same whichever way it was opened. It
	// is nil on engines with a server.
	File func(ctx context.Context, db *DB) (string, error)

	// Session describes locks held by a connection; nil if the engine has none. See
	// DB.SessionLock.
	Session *SessionLocks

	// Notify is an expression that sends payload to the listeners of a channel when its statement is
	// committed. Notify and Listen are nil on engines without notifications.
	Notify func(channel, payload string) string
	Listen func(ctx context.Context, driverConn any, channel string, ready func(), heard func(payload string)) error

	// PipelineWithout lists planner settings that are off in pipelines, so that cached plans are
	// good ones.
	PipelineWithout []string

	// Pipeline runs statements in one round trip on a driver's connection, and returns the index
	// of the statement that failed. Copy loads rows in bulk. They are nil on engines without such
	// a feature, and return errors.ErrUnsupported for drivers without it.
	Pipeline func(ctx context.Context, driverConn any, texts []string, values [][]any, steps []*Step) (at int, err error)
	Copy     func(ctx context.Context, driverConn any, table string, columns []string, rows CopyRows) error

	// Home returns the schema or database in which a connection finds a table, or would make it, and its name in
	// statements; "" for a home that none can name. AtHome has unqualified names mean those of a home until the
	// transaction ends that a connection is in, or fails. They are nil on engines whose connections cannot move.
	Home   func(ctx context.Context, on Execer, table string) (home, quoted string, err error)
	AtHome func(ctx context.Context, c driver.Conn, home, quoted string) error

	// TableLocks bounds how long a change of tables waits for those who use them; nil if nobody waits
	// behind it.
	TableLocks *TableLocks

	// DDLInTx reports whether a transaction can contain statements that change tables.
	DDLInTx bool

	// Routines reports whether the database can have functions or procedures, and Delimiter
	// whether the engine's command line client must be told where one ends.
	Routines, Delimiter bool

	// Schema reports whether tables can be in a schema of their own.
	Schema bool
}

// Options are the dialect.Options of a DB; each is converted to the other.
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
