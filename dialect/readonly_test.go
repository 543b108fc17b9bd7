package dialect_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/dbtest/dbserver"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A demoted primary becomes read-only and keeps its connections. The pool must not use them forever:
// a new connection may lead to the new primary.
func TestAPrimaryThatBecomesReadOnly(t *testing.T) {
	for _, e := range dbserver.Engines {
		if e.Name == "postgres" { // a demoted PostgreSQL server closes its connections
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			server, err := e.Start(t.Context(), dbserver.Options{})
			if err != nil {
				dbtest.Missing(t, err)
			}
			t.Cleanup(func() { _ = server.Stop() })
			admin := dbtest.Open(t, server.URL(), dialect.Options{})
			admin.Do(t, `CREATE TABLE x (n INTEGER)`, nil)
			admin.Do(t, `CREATE USER app@'%' IDENTIFIED BY 'x'`, nil)
			admin.Do(t, `GRANT ALL ON test.* TO app@'%'`, nil)
			_, host, _ := strings.Cut(server.URL(), "@")
			db := dbtest.Open(t, "mysql://app:x@"+host, dialect.Options{MaxConns: 1})
			insert := sqlrun.Unlisted(`INSERT INTO x VALUES (1)`)
			id := func() string { return db.List(t, `SELECT CONNECTION_ID()`, nil)[0] }

			whyReadOnly(t, db, "")
			before := id()
			admin.Do(t, `SET GLOBAL read_only = 1`, nil)
			whyReadOnly(t, db, "read_only = ON")
			if id() == before {
				t.Error("after it has told that the server takes no writes, the pool uses the same connection")
			}
			before = id()
			err = refusal(t, server.URL(), dialect.Options{})
			if !errors.Is(err, dialect.ErrUnfit) || !strings.Contains(err.Error(), "primary") {
				t.Errorf("opened when it is read-only: %v, want the advice", err)
			}
			_, err = db.Exec(t.Context(), insert, nil)
			refused(t, "a statement", err)
			if id() == before {
				t.Error("after a statement that was refused, the pool uses the same connection")
			}
			before = id()
			refused(t, "a transaction", db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
				_, err := tx.Exec(ctx, insert, nil)
				return err
			}))
			if id() == before {
				t.Error("after a transaction that was refused, the pool uses the same connection")
			}
			before = id()
			admin.Do(t, `SET GLOBAL read_only = 0`, nil)
			err = db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
				if _, err := tx.Exec(ctx, insert, nil); err != nil {
					return err
				}
				_, err := admin.Exec(ctx, sqlrun.Unlisted(`SET GLOBAL read_only = 1`), nil)
				return err
			})
			if err != nil { // the server may wait for the transaction instead
				refused(t, "a commit", err)
				if id() == before {
					t.Error("after a commit that was refused, the pool uses the same connection")
				}
			}
			admin.Do(t, `SET GLOBAL read_only = 0`, nil)
			if n := db.Do(t, `INSERT INTO x VALUES (2)`, nil); n != 1 {
				t.Errorf("%d rows on the new primary", n)
			}
		})
	}
}

// A standby that is not promoted, or that a URL leads to for a while, keeps its connections.
func TestAConnectionLeavesAServerThatTakesNoWrites(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE TABLE x (n INTEGER)`, nil)
		own, err := engines.Connect(t.Context(), db.URL, dialect.Options{MaxConns: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = own.Close() })
		insert := sqlrun.Unlisted(`INSERT INTO x VALUES (1)`)
		write := func(ctx context.Context, tx *sqlrun.Session) error { _, err := tx.Exec(ctx, insert, nil); return err }
		for what, statement := range map[string]func() error{
			"a statement":   func() error { return write(t.Context(), &own.Session) },
			"a transaction": func() error { return own.Tx(t.Context(), write) },
			"a pipeline":    func() error { return own.Pipeline(t.Context(), &sqlrun.Step{Stmt: insert}) },
		} {
			// The next connection will be another one, to a server that accepts writes.
			if _, err := own.Pool().ExecContext(t.Context(), `SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY`); err != nil {
				t.Fatal(err)
			}
			err := statement()
			refused(t, what, err)
			if own.Dialect.Uncertain(err) {
				t.Errorf("%s: it is certain that nothing was changed: %v", what, err)
			}
			if err := statement(); err != nil {
				t.Errorf("%s on another connection: %v", what, err)
			}
		}
		if _, err := own.Pool().ExecContext(t.Context(), `SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY`); err != nil {
			t.Fatal(err)
		}
		whyReadOnly(t, &dbtest.DB{DB: own}, "transaction_read_only = on")
		whyReadOnly(t, &dbtest.DB{DB: own}, "")
	})
}

// A program that only reads may use a standby.
func TestReadingFromAServerThatTakesNoWrites(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		readOnly := db.URL + "&default_transaction_read_only=on"
		if _, err := engines.Open(t.Context(), readOnly, dialect.Options{}); !errors.Is(err, dialect.ErrReadOnly) || !engines.Unavailable(err) {
			t.Errorf("got %v", err)
		}
		if _, err := engines.Open(t.Context(), readOnly+"&target_session_attrs=read-write", dialect.Options{}); !errors.Is(err,
			dialect.ErrReadOnly) || !engines.Unavailable(err) {
			t.Errorf("target_session_attrs: got %v", err)
		}
		own, err := engines.Open(t.Context(), readOnly, dialect.Options{Reading: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	})
}

func whyReadOnly(t *testing.T, db *dbtest.DB, want string) {
	t.Helper()
	if why, err := db.WhyReadOnly(t.Context()); err != nil || why != want {
		t.Errorf("the server takes no writes because %q, %v; want %q", why, err, want)
	}
}

// Drivers' errors about a lost connection mean that the database is unavailable.
func TestLostConnectionsAreUnavailable(t *testing.T) {
	for _, err := range []error{
		driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, mysqldriver.ErrInvalidConn,
		pgconn.ErrConnClosed, &net.OpError{Op: "read", Err: syscall.ECONNRESET},
		&mysqldriver.MySQLError{Number: 1927, Message: "Connection was killed"},
		&mysqldriver.MySQLError{Number: 3100, Message: "Error on observer while running replication hook 'before_commit'."},
		&mysqldriver.MySQLError{Number: 1180, Message: "Got error 6 'No such device or address' during COMMIT"},
		&mysqldriver.MySQLError{Number: 1047, Message: "WSREP has not yet prepared node for application use"},
		&mysqldriver.MySQLError{Number: 1105, Message: "target: app.0.primary: no healthy tablet available for 'keyspace:\"app\" shard:\"0\" tablet_type:PRIMARY'"},
		&mysqldriver.MySQLError{Number: 1105, Message: "target: app.0.primary: primary is not serving, there may be a reparent operation in progress"},
		&mysqldriver.MySQLError{Number: 1105, Message: "target: app.0.primary: vttablet: rpc error: code = Unavailable desc = error reading from server: EOF"},
		&mysqldriver.MySQLError{Number: 1203, Message: "target: app.0.primary: vttablet: rpc error: code = ResourceExhausted desc = transaction pool connection limit exceeded"},
		&mysqldriver.MySQLError{Number: 1317, Message: "target: app.0.primary: vttablet: rpc error: code = DeadlineExceeded desc = context deadline exceeded"},
		&pgconn.PgError{Code: "57P05"},
	} {
		if !engines.Unavailable(fmt.Errorf("a statement: %w", err)) {
			t.Errorf("%v is not unavailable", err)
		}
	}
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		c, err := db.Pool().Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		err = c.Raw(func(driverConn any) error {
			own := sqlconn.Unwrap(driverConn).(*stdlib.Conn).Conn()
			if err := own.Close(t.Context()); err != nil {
				t.Error(err)
			}
			_, err := own.Exec(t.Context(), "SELECT 1")
			return err
		})
		if !engines.Unavailable(err) {
			t.Errorf("%v is not unavailable", err)
		}
	})
}

// A transaction that loses a conflict with another node is repeated, unless its outcome is unknown.
func TestCommitsThatAClusterRefuses(t *testing.T) {
	for _, c := range []struct {
		err                  mysqldriver.MySQLError
		retryable, uncertain bool
	}{
		{
			err:       mysqldriver.MySQLError{Number: 1213, Message: "Deadlock found when trying to get lock; try restarting transaction"},
			retryable: true,
		},
		{err: mysqldriver.MySQLError{Number: 1180, Message: "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT"}, retryable: true},
		{
			err:       mysqldriver.MySQLError{Number: 3101, Message: "Plugin instructed the server to rollback the current transaction."},
			retryable: true,
		},
		{err: mysqldriver.MySQLError{Number: 1180, Message: "Got error 6 'No such device or address' during COMMIT"}, uncertain: true},
		{
			err:       mysqldriver.MySQLError{Number: 3100, Message: "Error on observer while running replication hook 'before_commit'."},
			uncertain: true,
		},
		{
			err:       mysqldriver.MySQLError{Number: 1105, Message: "target: app.0.primary: vttablet: rpc error: code = Unavailable desc = EOF"},
			uncertain: true,
		},
		{
			err: mysqldriver.MySQLError{
				Number:  1317,
				Message: "target: app.0.primary: vttablet: rpc error: code = Aborted desc = transaction 17: ended at 2026-11-27 20:00:00 UTC (exceeded timeout: 30s)",
			},
			retryable: true,
		},
		{err: mysqldriver.MySQLError{
			Number:  1317,
			Message: "target: app.0.primary: vttablet: rpc error: code = Aborted desc = transaction 17: ended at 2026-11-27 20:00:00 UTC (transaction committed)",
		}},
		{
			err: mysqldriver.MySQLError{
				Number: 3024,
				Message: "target: app.0.primary: vttablet: rpc error: code = Canceled desc = (errno 3024) (sqlstate HY000): Query execution was interrupted, " +
					"maximum statement execution time exceeded, elapsed time: 22.484042ms, killing query ID 780",
			},
			uncertain: true,
		},
		{err: mysqldriver.MySQLError{Number: 3024, Message: "Query execution was interrupted, maximum statement execution time exceeded"}},
		{err: mysqldriver.MySQLError{Number: 1047, Message: "WSREP has not yet prepared node for application use"}},
		{err: mysqldriver.MySQLError{
			Number:  1290,
			Message: "The MySQL server is running with the --super-read-only option so it cannot execute this statement",
		}},
	} {
		err := fmt.Errorf("a statement: %w", &c.err)
		if got := mysql.Dialect.Retryable(err); got != c.retryable {
			t.Errorf("%v: retryable is %v", &c.err, got)
		}
		if got := mysql.Dialect.Uncertain(err); got != c.uncertain {
			t.Errorf("%v: uncertain is %v", &c.err, got)
		}
		if mysql.Dialect.Refused(err) {
			t.Errorf("%v is taken for the fault of the statement", &c.err)
		}
	}
}

func refused(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "read-only") || !engines.Unavailable(err) {
		t.Errorf("%s: got %v, want that the server is read-only, and unavailable", what, err)
	}
	if errors.Is(err, dialect.ErrUnfit) {
		t.Errorf("%s: got %v", what, err)
	}
}

// The server's default must not matter: with autocommit off, no transaction can begin.
func TestAServerWithoutAutocommit(t *testing.T) {
	dbtest.One(t, mysql.Dialect, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE TABLE x (n INTEGER)`, nil)
		own := dbtest.Open(t, db.URL+"?autocommit=0", dialect.Options{}) // takes the place of the server's default
		err := own.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
			_, err := tx.Exec(ctx, sqlrun.Unlisted(`INSERT INTO x VALUES (1)`), nil)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		own.Do(t, `INSERT INTO x VALUES (2)`, nil)
		if got := db.List(t, `SELECT COUNT(*) FROM x`, nil)[0]; got != "2" {
			t.Errorf("others see %s rows, want 2", got)
		}
		unfit(t, mysqlPool(t, db, "charset=utf8mb4&autocommit=0"), "autocommit", "autocommit=1")
	})
}

// What stands between us and the server has words of its own for an answer that it has not got. Each leaves open what has happened, is nobody's
// fault, and passes. TestEnqueueFaults and TestFaults of lock drive them through what writes.
func TestWordsForALostAnswer(t *testing.T) {
	for _, d := range engines.All {
		for who, err := range dbtest.Unanswered(d) {
			err = fmt.Errorf("a statement: %w", err)
			for what, is := range map[string]bool{
				"unavailable": d.Unavailable(err), "uncertain": d.Uncertain(err), "not refused": !d.Refused(err), "temporary": d.Temporary(err),
				"not to be repeated": !d.Retryable(err),
			} {
				if !is {
					t.Errorf("%s: %v is not %s", who, err, what)
				}
			}
		}
	}
	for number := uint16(2000); number < 3000; number++ {
		if err := (&mysqldriver.MySQLError{Number: number}); !mysql.Dialect.Uncertain(err) || mysql.Dialect.Refused(err) {
			t.Errorf("%v is taken for the word of a server", err)
		}
	}
}
