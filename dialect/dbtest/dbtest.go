// Package dbtest gives tests a real database: a fresh one, with dbcron's
// tables, for each test and each engine.
//
//	func TestClaim(t *testing.T) {
//		dbtest.Each(t, func(t *testing.T, db *dbtest.DB) { … })
//	}
//
// It connects to the servers that DBCRON_TEST_POSTGRES, DBCRON_TEST_MARIADB and
// DBCRON_TEST_MYSQL name (URLs of users who may create databases), or starts private
// ones from the binaries on the machine. A test whose engine is missing is skipped with
// a message that says what to install; with CI=true it fails. DBCRON_TEST_ENGINES, such as
// "mysql,sqlite", leaves out the others. With DBCRON_TEST_BARE=true, PostgreSQL is one without
// notifications, advisory locks and functions, whose transactions are serializable by default.
package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest/dbserver"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/dialect/sqlite"
)

// A DB is a database of a test's own.
type DB struct {
	*dialect.DB
	Engine string // postgres, mariadb, mysql, sqlite; the dialect is the same on two of them
	URL    string // for further connections, and for child processes

	options dialect.Options
}

// Each runs f in a subtest for each engine, with an empty database that has
// dbcron's tables. The clock is the server's. What is to come before the database
// is made, such as (*testing.T).Parallel, is given as first: tests that wait for
// their turn need no connection.
func Each(t *testing.T, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	each(t, true, f, first...)
}

// EachClock is Each with a clock that only moves when told, by Advance. All
// sessions made from db see the same clock.
func EachClock(t *testing.T, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	Each(t, func(t *testing.T, db *DB) {
		db.stopClock(t)
		f(t, db)
	}, first...)
}

// EachEmpty is Each without any table.
func EachEmpty(t *testing.T, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	each(t, false, f, first...)
}

func each(t *testing.T, tables bool, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	for _, e := range tested {
		t.Run(e.name, func(t *testing.T) {
			for _, do := range first {
				do(t)
			}
			f(t, e.open(t, tables))
		})
	}
}

// One is EachEmpty on the engines of one dialect, for tests of what is in its package.
func One(t *testing.T, d *dialect.Dialect, f func(t *testing.T, db *DB)) {
	t.Helper()
	for _, e := range tested {
		if e.dialect == d {
			t.Run(e.name, func(t *testing.T) { f(t, e.open(t, false)) })
		}
	}
}

// Fresh returns a further database of an engine, without any table.
func Fresh(t *testing.T, engine string) *DB {
	t.Helper()
	for _, e := range tested {
		if e.name == engine {
			return e.open(t, false)
		}
	}
	if !dbserver.LeftOut(engine) {
		t.Fatalf("no such engine: %s", engine)
	}
	t.Skip("DBCRON_TEST_ENGINES leaves it out")
	return nil
}

func (e *engine) open(t *testing.T, tables bool) *DB {
	t.Helper()
	db := Open(t, e.fresh(t, tables), dialect.Options{})
	db.Engine = e.name
	return db
}

// Bare tells whether PostgreSQL is to be one without all that an engine may lack.
func Bare() bool { return os.Getenv("DBCRON_TEST_BARE") == "true" }

// SkipBare skips a test then, and says why.
func SkipBare(t *testing.T, why string) {
	t.Helper()
	if Bare() {
		t.Skip("on a bare PostgreSQL: " + why)
	}
}

// bare are the options of a connection, if need be without that.
func bare(opt dialect.Options, databaseURL string) dialect.Options {
	if d, err := engines.ForURL(databaseURL); err == nil && d == postgres.Dialect && Bare() {
		opt.Without = []dialect.Feature{dialect.Notifications, dialect.AdvisoryLocks, dialect.Functions}
	}
	return opt
}

// Open connects a test to a database, and closes the connections at its end.
func Open(t *testing.T, databaseURL string, opt dialect.Options) *DB {
	t.Helper()
	opt = bare(opt, databaseURL)
	db, err := engines.Open(t.Context(), databaseURL, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &DB{DB: db, URL: databaseURL, options: opt}
}

// Do runs a statement of the test's own, with {prefix} and the other fragments
// and with args, and fails the test if it fails.
func (db *DB) Do(t *testing.T, text string, args dialect.Args) int64 {
	t.Helper()
	n, err := db.Exec(t.Context(), dialect.Unlisted(text), args)
	for Bare() && err != nil && db.Dialect.Retryable(err) { // serializable, it may lose many times against what workers do
		n, err = db.Exec(t.Context(), dialect.Unlisted(text), args)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

// Scan runs a query of the test's own and scans its first row.
func (db *DB) Scan(t *testing.T, text string, args dialect.Args, dest ...any) {
	t.Helper()
	if err := db.Get(t.Context(), dialect.Unlisted(text), args, dest...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// List runs a query of the test's own and returns its rows as text, columns
// between blanks.
func (db *DB) List(t *testing.T, text string, args dialect.Args) []string {
	t.Helper()
	lines, err := dialect.Select(t.Context(), &db.Session, dialect.Unlisted(text), args, scanText)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return lines
}

func scanText(rows *sql.Rows) (string, error) {
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	values, dest := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	if err := rows.Scan(dest...); err != nil {
		return "", err
	}
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = v.String
		if !v.Valid {
			words[i] = "NULL"
		}
	}
	return strings.Join(words, " "), nil
}

// stopClock replaces the clock by a row, set to a moment with an even second.
func (db *DB) stopClock(t *testing.T) {
	t.Helper()
	db.Do(t, `CREATE TABLE {prefix}test_clock AS SELECT {time :us} AS now`, dialect.Args{"us": Start.UnixMicro()})
	db.DB = db.WithNow("(SELECT now FROM " + db.Prefix() + "test_clock)")
}

// Start is the moment at which a clock stands that EachClock stopped.
var Start = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// Advance moves the clock of an EachClock database.
func (db *DB) Advance(t *testing.T, d time.Duration) {
	t.Helper()
	// By the column, since MySQL does not read the table in a subquery that it updates.
	db.Do(t, `UPDATE {prefix}test_clock SET now = `+db.Dialect.Add("now", ":us"), dialect.Args{"us": d.Microseconds()})
}

// ShiftClock has the database's clock go on with a difference, 0 at first, which Shift
// changes. Sessions made from db see the same clock.
func (db *DB) ShiftClock(t *testing.T) {
	t.Helper()
	db.Do(t, `CREATE TABLE {prefix}test_shift AS SELECT {int 0} AS us`, nil)
	db.DB = db.WithNow(db.Dialect.Add(db.Dialect.Now, "(SELECT us FROM "+db.Prefix()+"test_shift)"))
}

// Shift sets a clock of ShiftClock forward, or back, as an operator or a failover to
// another host does.
func (db *DB) Shift(t *testing.T, by time.Duration) {
	t.Helper()
	db.Do(t, `UPDATE {prefix}test_shift SET us = us + {int :us}`, dialect.Args{"us": by.Microseconds()})
}

// Another connects to the same database, with the same clock, as another process would.
func (db *DB) Another(t *testing.T, opt dialect.Options) *DB {
	t.Helper()
	other := Open(t, db.URL, opt)
	other.DB, other.Engine = other.WithNow(db.Dialect.Now), db.Engine
	return other
}

// An engine is a kind of server, its dialect, and how it makes fresh databases. A further
// engine is a further line here.
type engine struct {
	name    string
	dialect *dialect.Dialect
	server  func() (adminURL string, err error) // nil: there is none
	create  creation                            // of an empty one
	tables  creation                            // of one with dbcron's tables
}

// A creation makes a database of a name.
type creation func(ctx context.Context, admin *dialect.DB, adminURL, name string) error

// tested are the engines, each with the server of a test.
var tested = func() (all []*engine) {
	byName := map[string]engine{
		"postgres": {dialect: postgres.Dialect, create: createPostgres, tables: copyPostgres},
		"mariadb":  {dialect: mysql.Dialect, create: createMySQL, tables: copyMySQL},
		"mysql":    {dialect: mysql.Dialect, create: createMySQL, tables: copyMySQL},
	}
	for _, s := range dbserver.Engines {
		e := byName[s.Name]
		e.name, e.server = s.Name, server(s)
		all = append(all, &e)
	}
	if !dbserver.LeftOut("sqlite") {
		all = append(all, &engine{name: "sqlite", dialect: sqlite.Dialect})
	}
	return all
}()

func createPostgres(ctx context.Context, admin *dialect.DB, _, name string) error {
	_, err := admin.Pool().ExecContext(ctx, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'UTF8'")
	return err
}

func createMySQL(ctx context.Context, admin *dialect.DB, _, name string) error {
	_, err := admin.Pool().ExecContext(ctx, "CREATE DATABASE "+name)
	return err
}

// running holds on to the servers, which end with this process, or when
// nobody refers to them.
var running sync.Map

// server returns the URL that the engine's variable holds, or that of a server that is
// started when first asked for and shared by all tests of this program.
func server(e dbserver.Engine) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		if u := os.Getenv(e.Variable); u != "" {
			return u, nil
		}
		s, err := e.Start(context.Background(), dbserver.Options{})
		if err != nil {
			return "", err
		}
		running.Store(e.Name, s)
		return s.URL(), nil
	})
}

// fresh makes a database, empty or with dbcron's tables, and returns its URL. It is
// dropped at the end of the test.
func (e *engine) fresh(t *testing.T, tables bool) string {
	t.Helper()
	if e.server == nil {
		name := filepath.Join(t.TempDir(), "test.db")
		if tables {
			copySQLite(t, name)
		}
		return "sqlite:" + name
	}
	adminURL, err := e.server()
	if err != nil {
		Missing(t, err)
	}
	admin, err := engines.Connect(t.Context(), adminURL, dialect.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	create := e.create
	if tables {
		create = e.tables
	}
	name := freshName()
	t.Cleanup(func() { drop(t, adminURL, name) })
	if err := create(t.Context(), admin, adminURL, name); err != nil {
		t.Fatal(err)
	}
	if Bare() && e.name == "postgres" {
		if _, err := admin.Pool().ExecContext(t.Context(), "ALTER DATABASE "+name+
			" SET default_transaction_isolation = 'serializable'"); err != nil {
			t.Fatal(err)
		}
	}
	return withPath(adminURL, name)
}

// withPath is a URL with another path, which names a database.
func withPath(rawURL, name string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return rawURL // which was used as it is
	}
	u.Path = "/" + name
	return u.String()
}

func drop(t *testing.T, adminURL, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	admin, err := engines.Connect(ctx, adminURL, dialect.Options{MaxConns: 1})
	if err != nil {
		t.Error(err)
		return
	}
	defer admin.Close()
	// A connection that was just closed may still be seen by the server.
	query := "DROP DATABASE IF EXISTS " + name
	if admin.Dialect.Schema {
		query += " WITH (FORCE)"
	}
	if _, err := admin.Pool().ExecContext(ctx, query); err != nil {
		t.Error(err)
	}
}

// Missing skips a test whose engine is not to be had, or fails it with CI=true.
func Missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" || !errors.Is(err, dbserver.ErrMissing) {
		t.Fatal(err)
	}
	t.Skip(err)
}

// Begin begins a transaction that may be idle for as long as the test likes, where others
// are ended after a few seconds. Where there is one writer, it waits for its turn. A test
// that has not ended it by then has it rolled back.
func (db *DB) Begin(t *testing.T, opt *sql.TxOptions) *sql.Tx {
	t.Helper()
	for end := time.After(patience); ; {
		tx, err := db.begin(t, opt)
		if err == nil {
			return tx
		}
		select {
		case <-end:
			t.Fatal(err)
		default:
		}
		if !db.Dialect.Retryable(err) {
			t.Fatal(err)
		}
	}
}

// patience is for what must happen, on a slow machine.
const patience = 5 * time.Minute

func (db *DB) begin(t *testing.T, opt *sql.TxOptions) (*sql.Tx, error) {
	t.Helper()
	tx, err := db.Pool().BeginTx(t.Context(), opt)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if db.Dialect.Name == mysql.Dialect.Name { // the others do so in transactions of dialect.DB alone
		_, _ = tx.ExecContext(t.Context(), "SET SESSION idle_transaction_timeout = 0") // MySQL has no such variable
	}
	return tx, nil
}
