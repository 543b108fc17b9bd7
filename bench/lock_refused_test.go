package bench

import (
	"errors"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/lock"
)

// TestLockRefusedWritesNothing prints how many bytes 1000 refused tries write to the server's log
// or, on SQLite, whether they change the file. The server also writes things of its own at times,
// so the minimum of some windows counts: what each try writes would be in all of them.
func TestLockRefusedWritesNothing(t *testing.T) {
	const tries, windows = 1000, 10
	written := map[string]func(t *testing.T, db *dbtest.DB) int64{
		"postgres": func(t *testing.T, db *dbtest.DB) (n int64) {
			db.Scan(t, `SELECT CAST(pg_current_wal_insert_lsn() - CAST('0/0' AS pg_lsn) AS BIGINT)`, nil, &n)
			return n
		},
		"mysql": func(t *testing.T, db *dbtest.DB) (n int64) {
			var name string
			db.Scan(t, `SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_lsn_current', 'Innodb_redo_log_current_lsn')`, nil, &name, &n)
			return n
		},
		"sqlite": func(t *testing.T, db *dbtest.DB) (n int64) {
			db.Scan(t, `PRAGMA data_version`, nil, &n)
			return n
		},
	}
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		// SQLite tells a connection only about changes by others.
		watch := &dbtest.DB{DB: open(t, db.URL, 1), URL: db.URL}
		measure := written[db.Dialect.Name]
		l := locker(t, db.DB, lock.Options{TTL: time.Hour})
		if _, err := l.TryAcquire(t.Context(), "refused"); err != nil { // never released: the database is dropped
			t.Fatal(err)
		}
		window := func(tries int) int64 {
			before := measure(t, watch)
			for range tries {
				if _, err := l.TryAcquire(t.Context(), "refused"); !errors.Is(err, lock.ErrHeld) {
					t.Fatalf("got %v, want ErrHeld", err)
				}
			}
			return measure(t, watch) - before
		}
		window(tries) // hint bits, caches
		if db.Dialect.Name == "postgres" {
			db.Do(t, `CHECKPOINT`, nil)
		}
		var figures []int64
		for range windows {
			figures = append(figures, window(tries))
			if figures[len(figures)-1] == 0 {
				break
			}
		}
		t.Logf("%-8s %d refused tries wrote %v", db.Dialect.Name, tries, figures)
		if figures[len(figures)-1] != 0 {
			t.Errorf("something was written in each of %d windows", windows)
		}
		before := measure(t, watch)
		if _, err := l.TryAcquire(t.Context(), "granted"); err != nil {
			t.Fatal(err)
		}
		if n := measure(t, watch) - before; n <= 0 {
			t.Errorf("got %d for a try that was granted: this measures nothing", n)
		}
	})
}
