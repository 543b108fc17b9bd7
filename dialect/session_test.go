package dialect_test

import (
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

func TestStatementTimeout(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		short := dbtest.Open(t, db.URL, dialect.Options{StatementTimeout: 200 * time.Millisecond})
		began := time.Now() //nolint:forbidigo // measures how long it takes
		_, err := short.Exec(t.Context(), sqlrun.Unlisted(sleep(short.DB)), nil)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || engines.Unavailable(err) {
			t.Errorf("got %v, want the deadline; and the server is there", err)
		}
		if got := short.List(t, `SELECT 1`, nil); got[0] != "1" {
			t.Errorf("after it: %v", got)
		}
		err = short.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
			_, err := tx.Exec(ctx, sqlrun.Unlisted(sleep(short.DB)), nil)
			return err
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in a transaction: got %v, want the deadline", err)
		}
	})
}

func TestErrorsNameTheStatement(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		broken := sqlrun.Unlisted(`SELEC 1`)
		broken.Name = "test.broken"
		var n int
		_, exec := db.Exec(t.Context(), broken, nil)
		_, list := sqlrun.Select(t.Context(), &db.Session, broken, nil, func(*sql.Rows) (int, error) { return 0, nil })
		tx := db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error { return tx.Get(ctx, broken, nil, &n) })
		unclear := sqlrun.Unlisted(`SELECT {soon}`)
		unclear.Name = "test.broken"
		_, compile := db.Exec(t.Context(), unclear, nil)
		for _, err := range []error{exec, list, tx, db.Get(t.Context(), broken, nil, &n), compile} {
			if err == nil || !strings.HasPrefix(err.Error(), "test.broken: ") {
				t.Errorf("got %v, want it to begin with the statement's name", err)
			}
		}
	})
}

// A cancelled statement must end in the server, with its connection and its locks, although the
// driver only closes its own end.
func TestACancelledStatementsConnectionIsKilled(t *testing.T) {
	dbtest.SkipGated(t, "it does not permit KILL")
	dbtest.One(t, mysql.Dialect, func(t *testing.T, db *dbtest.DB) {
		other := dbtest.Open(t, db.URL, dialect.Options{MaxConns: 1})
		var id int64
		other.Scan(t, `SELECT CONNECTION_ID()`, nil, &id)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := other.Exec(ctx, sqlrun.Unlisted(sleep(other.DB)), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want the deadline", err)
		}
		// KILL returns before the other thread has noticed.
		dbtest.Eventually(t, "the connection to end", func() bool {
			return len(db.List(t, `SELECT id FROM information_schema.processlist WHERE id = :id`, sqlrun.Args{"id": id})) == 0
		})
	})
}

// During a rolling upgrade, older programs must not get the lock that a newer one holds. They had
// the server compute its name with a function that MySQL 9.7 lacks.
func TestSessionLocksHaveTheirOldNames(t *testing.T) {
	dbtest.One(t, mysql.Dialect, func(t *testing.T, db *dbtest.DB) {
		if _, err := db.Pool().ExecContext(t.Context(), "DO SHA1('')"); err != nil {
			t.Skip("this server ran no program from before:", err)
		}
		lock, err := db.SessionLock(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Free()
		hash := fnv.New64a()
		hash.Write([]byte("dbcron:" + db.Name() + " job"))
		held := db.List(t, `SELECT IS_USED_LOCK(CONCAT('dbcron:', SHA1(CONCAT(DATABASE(), '/', :hash)))) IS NOT NULL`,
			sqlrun.Args{"hash": strconv.FormatUint(hash.Sum64(), 16)})
		if held[0] != "1" {
			t.Error("under its old name the lock is free")
		}
	})
}
