// Package dialect holds everything that differs from one database engine to
// the next, and nothing else: how a connection is opened and what it must
// promise, the few fragments of SQL that are spelled differently, and which
// errors mean what. All other packages write each statement once, with the
// fragments and named arguments described at [SQL], and run it through a [DB].
//
// This package links no driver. Those are in the packages postgres, mysql and sqlite below
// it, which open a [DB] or make one of a pool that the program has; package engines links
// all three, for programs that are told by a URL which one it is.
//
// Time is the database's. Instants stand in native UTC columns that a person
// can read at the SQL prompt; Go sees only microseconds since 1970, converted
// inside the statements. No clock of a host, no time zone of a session and no
// parsing flag of a driver takes part.
package dialect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/url"
	"time"
)

// A Column is one of a table of records: an int or a text.
type Column struct{ Name, Kind string }

// A Dialect holds everything that differs from one engine to the next.
// Each engine has a package below this one, with its driver and a Dialect whose fields
// are in the order given here. Code asks what an engine can do (a field), never what it is
// called.
type Dialect struct {
	Name    string   // names the folder of migrations and the subtests: postgres, mysql, sqlite
	Title   string   // what people call it; several names with commas between
	Goose   string   // goose's name for the engine
	Schemes []string // of the URLs that Open takes
	Example string   // one of them
	Probe   string   // a query that no other engine answers

	Placeholder func(n int) string // n counts from 1
	Now         string             // the server's clock as the statement began, UTC, in the column type
	Add         func(t, us string) string
	FromMicros  func(us string) string // µs since 1970 to the column type; ToMicros is its inverse
	ToMicros    func(t string) string
	BigInt      string // a CAST's target for 64-bit integers

	JSONBytes func(column string) string // how many bytes the JSON in a column has, as text

	// ends a SELECT that locks its rows and passes over locked ones; "" where writers are alone anyway
	SkipLocked string
	Locked     string // ends a SELECT that locks its rows, and waits for locked ones; "" likewise
	// ends a SELECT that locks its rows, and fails at once if one is locked; "" where Exclusive locks no row
	RowLocked   string
	ShareLocked string // ends a SELECT whose rows must not change until the transaction ends; "" likewise
	// ends a SELECT that sees what is committed by now, whatever its transaction saw; "" where that fails instead
	Current         string
	LocksTakeUpdate bool                       // whether these three take the right to UPDATE; elsewhere the right to DELETE will do
	IgnoreDuplicate func(column string) string // ends an INSERT that leaves rows alone whose key exists

	// AddDuplicate ends an INSERT that adds columns of the new rows to those of the rows
	// that have the same key.
	AddDuplicate func(table, key string, columns []string) string

	// Records is the table, called record, of some rows: of the argument :rows,
	// a JSON array of objects, or of :rows.column, an array for each column.
	Records func(rows string, columns []Column) string

	// JoinByKey joins a table, "name alias", to records, each of which names a row by
	// the primary key: the engine is to look for those, and not to read or lock more.
	JoinByKey func(tableAndAlias string) string

	// Ranges tells whether several ranges of a key that are joined by OR are read in
	// its order, and no further than a LIMIT; elsewhere they are read by a UNION.
	Ranges bool

	// ArrayRows tells whether Records makes rows of arrays, so that it is the
	// best source of an INSERT of many rows. Elsewhere {values} is.
	ArrayRows bool

	// In compares a column with the list in an argument such as :ids; :ids.list is
	// the list as one argument, an array, and :ids.json as JSON. Only ends a DELETE or UPDATE
	// that is not to scan more rows than so many, "" where none does.
	In   func(column, list string) string
	Only func(columnAndCount string) string

	// UpdateFrom updates the rows of table that pick selects by the columns of
	// key and for which a further condition holds, "" for none; set and the
	// condition see pick's columns as picked.x.
	UpdateFrom func(table string, key []string, set, condition, pick string) string

	// Next is a column's part in an UPDATE's SET that adds one to it, for a
	// statement of one row that Session.Next runs. Returning ends such a
	// statement; nil where the new value comes back by other means.
	Next      func(column string) string
	Returning func(column string) string

	Isolation sql.IsolationLevel // of every transaction of DB.Tx
	Isolated  bool               // connections of Open have it from the beginning

	OnBegin      string // run first in every transaction of DB.Tx; "" for nothing
	OnBeginShort string // the same in one of DB.ShortTx; "": OnBegin

	Duplicate   func(error) bool // a unique key already holds the value
	Missing     func(error) bool // a table does not exist
	Denied      func(error) bool // the user lacks a right
	Unknown     func(error) bool // the server lacks a language, a function or a feature
	Retryable   func(error) bool // run the transaction again
	Unavailable func(error) bool // the server cannot be reached or does not serve yet: try to connect again

	// ReadOnly tells that the server has refused a statement because it takes no writes.
	// Nothing was changed. It is Unavailable, too.
	ReadOnly func(error) bool

	// Refused tells that the engine has refused a statement for what it says or for the rows that
	// it is about: a constraint, a trigger, a right. The same statement would fail again, and
	// another one need not. It is no error of the connection, of other transactions, of time, or
	// of what the server as a whole lacks, such as space.
	Refused func(error) bool

	// SyntaxError tells that the engine could not read a statement, in an error of a driver
	// whose errors the functions above understand.
	SyntaxError func(error) bool

	// Connector prepares connections with all that the SQL relies on.
	Connector func(u *url.URL, opt Options) (driver.Connector, error)

	// IdleLife is how long a connection of Open may be idle; 0: the server does not mind.
	IdleLife time.Duration

	// Check looks at a database through its pool, ours or a caller's, for what the SQL relies on.
	Check func(ctx context.Context, db *DB) ([]Finding, error)

	// Strain looks for what makes the server slow in the long run: old snapshots, dead rows.
	// nil: nothing of that kind can be seen.
	Strain func(ctx context.Context, db *DB) ([]Finding, error)

	// WhyReadOnly asks a connection why the server takes no writes; "": it takes them. It is
	// cheap, and changes nothing.
	WhyReadOnly func(ctx context.Context, on Execer) (why string, err error)

	// Holdings tells which rights on tables the user of a DB has; nil if there are no tables,
	// and no such function where there are no rights but those on files.
	Holdings func(ctx context.Context, db *DB, want Rights) (*Holdings, error)

	// MaxPacket is a query for how many bytes a statement may have, with its values; ""
	// where it may have a GiB.
	MaxPacket string

	// Lacks finds out which features, besides those that are known, a database does not have
	// that its engine may have; nil where all have them.
	Lacks func(ctx context.Context, c *sql.Conn, known map[Feature]string) ([]Lack, error)

	// Exclusive is how DB.Exclusive waits for its lock. Where there is RowLocked, it also locks the
	// row that a query returns, for the sake of processes that have nothing else; "": it does not.
	Exclusive func(ctx context.Context, db *DB, name, query string) (unlock func(), err error)

	// Session is how a lock is held by a connection; nil where there is no such
	// thing. See DB.SessionLock.
	Session *SessionLocks

	// Notify is an expression that, in a statement that is committed, sends
	// payload to those who Listen on the channel; both are nil where there is no
	// such thing.
	Notify func(channel, payload string) string
	Listen func(ctx context.Context, driverConn any, channel string, ready func(), heard func(payload string)) error

	// PipelineWithout are the settings that are off in pipelines, so that plans that
	// are kept are good ones.
	PipelineWithout []string

	// Pipeline runs statements in one round trip on a driver's connection, and
	// tells which of them an error is of; Copy loads rows in bulk. They are nil
	// where there is no such thing, and return errors.ErrUnsupported for drivers
	// that have none.
	Pipeline func(ctx context.Context, driverConn any, texts []string, values [][]any, steps []*Step) (at int, err error)
	Copy     func(ctx context.Context, driverConn any, table string, columns []string, rows CopyRows) error

	// DDLInTx tells whether a transaction can hold statements that change tables.
	DDLInTx bool

	// Routines tells whether there are functions or procedures in the database, and
	// Delimiter whether the engine's client at the command line has to be told where one
	// ends.
	Routines, Delimiter bool

	// Schema tells whether tables can be put into a schema of their own.
	Schema bool
}

// Options adjusts a DB. The zero value is ready to use.
type Options struct {
	Prefix           string        // of all table names; default: dbcron_
	Schema           string        // PostgreSQL: where the tables are; default: the search_path's first
	StatementTimeout time.Duration // the longest that a statement may take; default: 30s
	ApplicationName  string        // what the server's list of connections shows; default: dbcron
	Existing         bool          // SQLite: do not make the file if there is none
	Without          []Feature     // what to do without, besides what the database is found to lack
	MaxConns         int           // the pool's size; default: 10. Not for Wrap.
	Reading          bool          // Open takes a server that takes no writes, too
}
