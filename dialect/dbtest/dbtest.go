// Package dbtest gives tests a real database: one as if fresh, with dbcron's
// tables, for each test and each engine.
//
//	func TestClaim(t *testing.T) {
//		dbtest.Each(t, func(t *testing.T, db *dbtest.DB) { … })
//	}
//
// It connects to the servers that DBCRON_TEST_POSTGRES, DBCRON_TEST_MARIADB and DBCRON_TEST_MYSQL
// name (URLs of users who may create databases), or starts private ones from the binaries on the
// machine. If an engine is missing, its tests are skipped with a message that says what to install;
// with CI=true they fail. DBCRON_TEST_ENGINES, such as "mysql,sqlite", selects the engines to test.
// A test that proves nothing about some engines says so, as in dbtest.Memory.Each(…), and runs on
// them with DBCRON_TEST_LONG=true only.
// DBCRON_TEST_BARE=true tests PostgreSQL without notifications, advisory locks and functions, and
// with transactions that are serializable by default.
// DBCRON_TEST_MYSQL_DIRECT is set where DBCRON_TEST_MYSQL is a gate to a server: see gate.go.
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
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A DB is a test's own database.
type DB struct {
	*dialect.DB
	Engine string // postgres, mariadb, mysql or sqlite; the first two MySQLs share a dialect
	URL    string // for further connections, and for child processes

	options dialect.Options
}

// Each runs f in a subtest per engine, with an empty database that has dbcron's tables and the
// server's clock. first runs before the database is made; pass (*testing.T).Parallel there, so that
// tests that wait for their turn hold no connection.
func Each(t *testing.T, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	each(t, tested, pooled, f, first...)
}

// EachClock is Each with a clock that moves only by Advance. All sessions made from db share it.
func EachClock(t *testing.T, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	Each(t, clocked(f), first...)
}

func clocked(f func(t *testing.T, db *DB)) func(t *testing.T, db *DB) {
	return func(t *testing.T, db *DB) {
		t.Helper()
		db.stopClock(t)
		f(t, db)
	}
}

// EachEmpty is Each without tables.
func EachEmpty(t *testing.T, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	each(t, tested, empty, f, first...)
}

// Anew is Each with a database that no test had before: for tests that depend on what a server
// remembers of a table, such as its statistics.
func Anew(t *testing.T, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	each(t, tested, made, f, first...)
}

// A state is what a database is like at first.
type state int

const (
	empty  state = iota // without tables
	made                // with dbcron's tables, and new
	pooled              // with dbcron's tables
)

func each(t *testing.T, on []*engine, state state, f func(t *testing.T, db *DB), first ...func(*testing.T)) {
	t.Helper()
	for _, e := range on {
		t.Run(e.name, func(t *testing.T) {
			for _, do := range first {
				do(t)
			}
			f(t, e.open(t, state))
		})
	}
}

// One is EachEmpty on the engines of one dialect, for tests of that dialect's package.
func One(t *testing.T, d *sqlrun.Dialect, f func(t *testing.T, db *DB)) {
	t.Helper()
	for _, e := range tested {
		if e.dialect == d {
			t.Run(e.name, func(t *testing.T) { f(t, e.open(t, empty)) })
		}
	}
}

// Fresh returns another database of an engine, without tables.
func Fresh(t *testing.T, engine string) *DB {
	t.Helper()
	for _, e := range tested {
		if e.name == engine {
			return e.open(t, empty)
		}
	}
	if !dbserver.LeftOut(engine) {
		t.Fatalf("no such engine: %s", engine)
	}
	t.Skip("DBCRON_TEST_ENGINES leaves it out")
	return nil
}

func (e *engine) open(t *testing.T, state state) *DB {
	t.Helper()
	db := Open(t, e.fresh(t, state), dialect.Options{})
	db.Engine = e.name
	return db
}

// Bare reports whether PostgreSQL is tested without all optional features.
func Bare() bool { return os.Getenv("DBCRON_TEST_BARE") == "true" }

// SkipBare skips a test in that case.
func SkipBare(t *testing.T, why string) {
	t.Helper()
	if Bare() {
		t.Skip("on a bare PostgreSQL: " + why)
	}
}

// bare adapts a connection's options for that case.
func bare(opt dialect.Options, databaseURL string) dialect.Options {
	if d, err := engines.ForURL(databaseURL); err == nil && d == postgres.Dialect && Bare() {
		opt.Without = []dialect.Feature{dialect.Notifications, dialect.AdvisoryLocks, dialect.Functions}
	}
	return opt
}

// Open connects a test to a database and closes the connections when the test ends.
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
		drained(t, db.Pool())
	})
	return &DB{DB: db, URL: databaseURL, options: opt}
}

// drained waits until a closed pool has no connection. Close does not wait for those in use, such as one
// whose transaction is rolled back since its context has ended: these would go on in a folder that
// is being removed, or in the next test's database.
func drained(t *testing.T, pool *sql.DB) {
	tick, over := time.NewTicker(time.Millisecond), time.After(10*time.Second)
	defer tick.Stop()
	for pool.Stats().OpenConnections > 0 {
		select {
		case <-tick.C:
		case <-over:
			t.Logf("%d connections are still in use", pool.Stats().OpenConnections)
			return
		}
	}
}

// Do runs a statement of the test itself, with {prefix} and the other fragments and with args. An
// error fails the test.
func (db *DB) Do(t *testing.T, text string, args sqlrun.Args) int64 {
	t.Helper()
	n, err := db.Exec(t.Context(), sqlrun.Unlisted(text), args)
	for Bare() && err != nil && db.Dialect.Retryable(err) { // a serializable one may lose many times against workers
		n, err = db.Exec(t.Context(), sqlrun.Unlisted(text), args)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

// Scan runs a query of the test itself and scans its first row.
func (db *DB) Scan(t *testing.T, text string, args sqlrun.Args, dest ...any) {
	t.Helper()
	if err := db.Get(t.Context(), sqlrun.Unlisted(text), args, dest...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// List runs a query of the test itself and returns its rows as text, with blanks between columns.
func (db *DB) List(t *testing.T, text string, args sqlrun.Args) []string {
	t.Helper()
	lines, err := sqlrun.Select(t.Context(), &db.Session, sqlrun.Unlisted(text), args, scanText)
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

// stopClock replaces the clock by a table row, set to a whole second.
func (db *DB) stopClock(t *testing.T) {
	t.Helper()
	db.behindGate(t).Do(t, `CREATE TABLE {prefix}test_clock AS SELECT {time :us} AS reading`, sqlrun.Args{"us": Start.UnixMicro()})
	db.DB = db.WithNow("(SELECT reading FROM " + db.Prefix() + "test_clock)")
}

// Start is the time at which EachClock stops the clock.
var Start = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// Advance moves the clock of a database made by EachClock.
func (db *DB) Advance(t *testing.T, d time.Duration) {
	t.Helper()
	// In terms of the column, since MySQL cannot read a table in a subquery of its own UPDATE.
	db.Do(t, `UPDATE {prefix}test_clock SET reading = `+db.Dialect.Add("reading", ":us"), sqlrun.Args{"us": d.Microseconds()})
}

// ShiftClock adds a difference to the database's clock, 0 at first, which Shift changes. Sessions
// made from db share it.
func (db *DB) ShiftClock(t *testing.T) {
	t.Helper()
	db.Do(t, `CREATE TABLE {prefix}test_shift AS SELECT {int 0} AS us`, nil)
	db.DB = db.WithNow(db.Dialect.Add(db.Dialect.Now, "(SELECT us FROM "+db.Prefix()+"test_shift)"))
}

// Shift moves a clock of ShiftClock forward or back, as an operator or a failover to another host
// may.
func (db *DB) Shift(t *testing.T, by time.Duration) {
	t.Helper()
	db.Do(t, `UPDATE {prefix}test_shift SET us = us + {int :us}`, sqlrun.Args{"us": by.Microseconds()})
}

// Another connects to the same database with the same clock, as another process would.
func (db *DB) Another(t *testing.T, opt dialect.Options) *DB {
	t.Helper()
	other := Open(t, db.URL, opt)
	other.DB, other.Engine = other.WithNow(db.Dialect.Now), db.Engine
	return other
}

// An engine is a kind of server, its dialect, and how to make fresh databases on it. A further
// engine is a further line here.
type engine struct {
	name    string
	dialect *sqlrun.Dialect
	server  func() (adminURL string, err error) // nil: no server needed
	create  creation                            // makes an empty database
	tables  creation                            // makes one with dbcron's tables
	pool    *pooling                            // of those with tables

	mu   sync.Mutex
	like template // of the server, once it is known
}

// A creation makes a database with the given name.
type creation func(ctx context.Context, admin *dialect.DB, adminURL, name string) error

// tested lists the engines to test.
var tested = func() (all []*engine) {
	byName := map[string]*engine{
		"postgres": {dialect: postgres.Dialect, create: createPostgres, tables: copyPostgres, pool: poolPostgres},
		"mariadb":  {dialect: mysql.Dialect, create: createMySQL, tables: copyMySQL, pool: poolMySQL},
		"mysql":    {dialect: mysql.Dialect, create: createMySQL, tables: copyMySQL, pool: poolMySQL},
	}
	for _, s := range dbserver.Engines {
		e := byName[s.Name]
		e.name, e.server = s.Name, server(s)
		all = append(all, e)
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

// running keeps the servers referenced: they end with this process, or when nothing refers to
// them.
var running sync.Map

// server returns the URL in the engine's variable, or that of a server that is started on first use
// and shared by all tests of this program.
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

// fresh returns the URL of a database that is the test's own until it ends.
func (e *engine) fresh(t *testing.T, state state) string {
	t.Helper()
	if e.server == nil {
		name := filepath.Join(t.TempDir(), "test.db")
		if state != empty {
			copySQLite(t, name)
		}
		return "sqlite:" + name
	}
	adminURL, err := e.server()
	if err != nil {
		Missing(t, err)
	}
	if e.name == "mysql" && Gated() {
		return e.gated(t, adminURL, state)
	}
	if state == pooled {
		return e.pooled(t, adminURL)
	}
	admin, err := engines.Connect(t.Context(), adminURL, dialect.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	name := freshName()
	t.Cleanup(func() {
		// Connected anew, since the test may have taken long.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		admin, err := engines.Connect(ctx, adminURL, dialect.Options{MaxConns: 1})
		if err == nil {
			err = errors.Join(e.drop(ctx, admin, name), admin.Close())
		}
		if err != nil {
			t.Error(err)
		}
	})
	create := e.create
	if state == made {
		create = e.tables
	}
	if err := e.make(t.Context(), admin, adminURL, name, create); err != nil {
		t.Fatal(err)
	}
	return withPath(adminURL, name)
}

func (e *engine) make(ctx context.Context, admin *dialect.DB, adminURL, name string, create creation) error {
	if err := create(ctx, admin, adminURL, name); err != nil {
		return err
	}
	if !Bare() || e.name != "postgres" {
		return nil
	}
	_, err := admin.Pool().ExecContext(ctx, "ALTER DATABASE "+name+" SET "+serializable)
	return err
}

// withPath replaces the path of a URL, which names the database.
func withPath(rawURL, name string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return rawURL // the URL was used unparsed before
	}
	u.Path = "/" + name
	return u.String()
}

// drop drops a database, if it is there.
func (e *engine) drop(ctx context.Context, admin *dialect.DB, name string) error {
	// The server may still count a connection that was just closed.
	query := "DROP DATABASE IF EXISTS " + name
	if admin.Dialect.Schema {
		query += " WITH (FORCE)"
	}
	_, err := admin.Pool().ExecContext(ctx, query)
	return err
}

// Missing skips a test whose engine is unavailable, or fails it with CI=true.
func Missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" || !errors.Is(err, dbserver.ErrMissing) {
		t.Fatal(err)
	}
	t.Skip(err)
}

// Conn returns a connection, until the test ends, that the server does not end if it is idle for long: what limits
// that is on until a transaction without a limit begins. On engines with one writer, it waits for its turn.
func (db *DB) Conn(t *testing.T) *sql.Conn {
	t.Helper()
	c, err := db.Pool().Conn(t.Context())
	Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	Must(t, db.turn(func() error {
		tx, err := c.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		return tx.Rollback()
	}))
	return c
}

// Begin begins a transaction that may stay idle for as long as the test likes; others end after a
// few seconds. On engines with one writer, it waits for its turn. If the test has not ended the
// transaction, it is rolled back.
func (db *DB) Begin(t *testing.T, opt *sql.TxOptions) (tx *sql.Tx) {
	t.Helper()
	Must(t, db.turn(func() (err error) {
		tx, err = db.begin(t, opt)
		return err
	}))
	return tx
}

// turn begins something until nobody else is in the way.
func (db *DB) turn(begin func() error) error {
	for end := time.After(patience); ; {
		err := begin()
		if err == nil || !db.Dialect.Retryable(err) {
			return err
		}
		select {
		case <-end:
			return err
		default:
		}
	}
}

// patience bounds waits for events that must happen, on a slow machine.
const patience = 5 * time.Minute

func (db *DB) begin(t *testing.T, opt *sql.TxOptions) (*sql.Tx, error) {
	t.Helper()
	tx, err := db.Pool().BeginTx(t.Context(), opt)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if db.Dialect.Name == mysql.Dialect.Name { // on the other engines only dialect.DB limits idle transactions
		_, _ = tx.ExecContext(t.Context(), "SET SESSION idle_transaction_timeout = 0") // fails on MySQL, which has no such variable
	}
	return tx, nil
}
