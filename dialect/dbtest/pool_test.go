package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/postgres"
)

// servers runs f for each engine that pools its databases.
func servers(t *testing.T, f func(t *testing.T, e *engine, adminURL string, admin *dialect.DB, c *sql.Conn)) {
	for _, e := range tested {
		if e.server == nil {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			adminURL, err := e.server()
			if err != nil {
				Missing(t, err)
			}
			admin := Open(t, adminURL, dialect.Options{MaxConns: 3})
			c, err := admin.Pool().Conn(t.Context())
			Must(t, err)
			t.Cleanup(func() { _ = c.Close() })
			f(t, e, adminURL, admin.DB, c)
		})
	}
}

// When a test has ended, none of its connections is open any more, even if one was still in use when
// its pool was closed.
func TestPoolsAreDrained(t *testing.T) {
	folder := t.TempDir()
	t.Run("test", func(t *testing.T) {
		var pool *sql.DB
		t.Cleanup(func() { // after those of Open
			if n := pool.Stats().OpenConnections; n != 0 {
				t.Errorf("%d connections are open", n)
			}
		})
		pool = Open(t, "sqlite:"+filepath.Join(folder, "test.db"), dialect.Options{}).Pool()
		c, err := pool.Conn(t.Context())
		Must(t, err)
		go func() {
			for pool.PingContext(context.Background()) == nil { // until it is closed
				runtime.Gosched()
			}
			_ = c.Close()
		}()
	})
}

// fill writes to every table that takes a row without much ado, and to those with numbers.
func fill(t *testing.T, db *DB) {
	t.Helper()
	db.Do(t, `INSERT INTO {prefix}queue (name) VALUES ('q')`, nil)
	db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at, version) VALUES ('n', 'live', {now}, '')`, nil)
	db.Do(t, `INSERT INTO {prefix}lock (name, fence) VALUES ('l', 3)`, nil)
	db.Do(t, `UPDATE {prefix}lock_fence SET fence = 7`, nil)
	db.Do(t, `INSERT INTO {prefix}lock_fence (name, slot) VALUES ('l', 1)`, nil)
	entry := `('a', '', '', '', '', 1, '` + strings.Repeat("x", 200) + `')`
	db.Do(t, `INSERT INTO {prefix}audit (actor, login, source, action, object, affected, detail) VALUES `+
		strings.Repeat(entry+", ", 700)+entry, nil) // so that it is large
}

// rows returns all rows of all tables, and the next number of a queue and of an entry of the audit.
func rows(t *testing.T, db *DB, tables []string) (all []string) {
	t.Helper()
	for _, table := range tables {
		for _, line := range db.List(t, "SELECT * FROM "+table, nil) {
			if table != "dbcron_migration" { // it has the time of each
				all = append(all, table+": "+line)
			}
		}
	}
	db.Do(t, `INSERT INTO {prefix}queue (name) VALUES ('next')`, nil)
	return append(all, db.List(t, `SELECT queue_id FROM {prefix}queue`, nil)...)
}

// A database that a test has used has the rows of a fresh one for the next test, and the same
// numbers come next.
func TestPoolEmpties(t *testing.T) {
	servers(t, func(t *testing.T, e *engine, adminURL string, admin *dialect.DB, c *sql.Conn) {
		name := freshName()
		t.Cleanup(func() { Must(t, e.drop(context.Background(), admin, name)) })
		like, err := e.template(t.Context(), admin, adminURL)
		Must(t, err)
		Must(t, e.make(t.Context(), admin, adminURL, name, e.tables))
		open := func() *DB { return Open(t, withPath(adminURL, name), dialect.Options{MaxConns: 1}) }
		db := open()
		tables := db.List(t, `SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'
			AND table_schema IN ('public', '`+name+`')`, nil)
		fresh := rows(t, db, tables)
		fill(t, db)
		db.stopClock(t)
		db.ShiftClock(t)
		Must(t, db.Close())
		same, err := e.pool.empty(t.Context(), c, adminURL, name, like.described)
		if !same || err != nil {
			t.Fatalf("it is not the same: %v", err)
		}
		db = open()
		if again := rows(t, db, tables); !slices.Equal(again, fresh) {
			t.Errorf("got  %q\nwant %q", again, fresh)
		}
	})
}

// A database that is not like a fresh one is not used again.
func TestPoolNotices(t *testing.T) {
	servers(t, func(t *testing.T, e *engine, adminURL string, admin *dialect.DB, c *sql.Conn) {
		like, err := e.template(t.Context(), admin, adminURL)
		Must(t, err)
		name := freshName()
		t.Cleanup(func() { Must(t, e.drop(context.Background(), admin, name)) })
		Must(t, e.make(t.Context(), admin, adminURL, name, e.tables))
		db := Open(t, withPath(adminURL, name), dialect.Options{MaxConns: 1})
		description := func() string {
			c, query := c, fmt.Sprintf(linesMySQL, name)
			if e.dialect == postgres.Dialect {
				query = linesPostgres
				c, err = db.Pool().Conn(t.Context())
				Must(t, err)
				defer c.Close()
			}
			is, err := describe(t.Context(), c, query)
			Must(t, err)
			return is
		}
		before := description()
		if before != like.described {
			t.Error("a fresh one is not as described")
		}
		for _, change := range []func(){
			func() { db.Do(t, "CREATE TABLE mine (n INTEGER)", nil) },
			func() { db.Do(t, "ALTER TABLE dbcron_queue ADD mine INTEGER", nil) },
			func() { db.Do(t, "CREATE INDEX of_mine ON dbcron_audit (actor)", nil) },
			func() { db.Do(t, "DELETE FROM dbcron_migration WHERE version_id = 102", nil) },
			func() { db.Do(t, "ALTER TABLE dbcron_node DROP COLUMN version", nil) },
			func() { db.Refuse(t, "INSERT", "job", "NEW.kind = 'bad'") },
		} {
			change()
			if is := description(); is == before {
				t.Errorf("the description is the same after a change")
			} else {
				before = is
			}
		}
		same, err := e.pool.empty(t.Context(), c, adminURL, name, like.described)
		if same || err != nil {
			t.Errorf("the same is %t, and %v", same, err)
		}
	})
}

// Whoever is connected is counted, whatever is in the statements that run meanwhile.
func TestPoolCountsConnections(t *testing.T) {
	servers(t, func(t *testing.T, e *engine, adminURL string, admin *dialect.DB, c *sql.Conn) {
		name, err := e.take(t.Context(), admin, c, adminURL)
		Must(t, err)
		db := Open(t, withPath(adminURL, name), dialect.Options{MaxConns: 1})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() {
			defer close(ended)
			query := "SELECT SLEEP(60), '🏽'"
			if e.dialect == postgres.Dialect {
				query = "SELECT pg_sleep(60), '🏽'"
			}
			_, _ = db.Pool().ExecContext(ctx, query) // it is cut off
		}()
		defer func() { cancel(); <-ended }()
		look := "SHOW PROCESSLIST"
		if e.dialect == postgres.Dialect {
			look = `SELECT datname AS db, query AS "Info" FROM pg_stat_activity`
		}
		Eventually(t, "it runs", func() bool {
			rows, err := c.QueryContext(t.Context(), look)
			Must(t, err)
			defer rows.Close()
			for rows.Next() {
				if line, err := ScanPlan(rows); err == nil && line["db"] == name && strings.Contains(strings.ToLower(line["Info"]), "sleep(") {
					return true
				}
			}
			return false
		})
		Eventually(t, "it alone is connected", func() bool { // what took the database may still be ending
			n, err := e.pool.connected(t.Context(), c, name)
			if n < 1 || err != nil {
				t.Fatalf("%d are connected, and %v", n, err)
			}
			return n == 1
		})
	})
}

// A database to which somebody is connected is not used by another test, nor is one that another
// program uses.
func TestPoolSparesWhatIsInUse(t *testing.T) {
	servers(t, func(t *testing.T, e *engine, adminURL string, admin *dialect.DB, c *sql.Conn) {
		var names []string
		for range 2 { // each at first with a connection that a test has left
			name, err := e.take(t.Context(), admin, c, adminURL)
			Must(t, err)
			names = append(names, name)
			Open(t, withPath(adminURL, name), dialect.Options{MaxConns: 1})
			var unlocked bool
			Must(t, ask(t.Context(), c, e.pool.unlock, name, &unlocked))
		}
		another, err := admin.Pool().Conn(t.Context())
		Must(t, err)
		defer another.Close()
		for _, conn := range []*sql.Conn{c, another} {
			name, err := e.take(t.Context(), admin, conn, adminURL)
			Must(t, err)
			names = append(names, name)
		}
		slices.Sort(names)
		if len(slices.Compact(names)) != 4 {
			t.Errorf("got %q", names)
		}
	})
}
