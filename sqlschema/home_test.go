package sqlschema_test

import (
	"database/sql"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/sqlschema"
)

// moved runs a statement on both connections of a pool.
func moved(t *testing.T, pool *sql.DB, statements ...string) {
	t.Helper()
	var held [2]*sql.Conn
	for i := range held {
		c, err := pool.Conn(t.Context())
		dbtest.Must(t, err)
		held[i] = c
		for _, text := range statements {
			_, err = c.ExecContext(t.Context(), text)
			dbtest.Must(t, err)
		}
	}
	for _, c := range held {
		dbtest.Must(t, c.Close())
	}
}

// wrapping returns db on a pool of two connections that are a program's own.
func wrapping(t *testing.T, db *dbtest.DB) *dialect.DB {
	t.Helper()
	u, err := url.Parse(db.URL)
	dbtest.Must(t, err)
	c, err := db.Dialect.Connector(u, sqlrun.Options{})
	dbtest.Must(t, err)
	pool := sql.OpenDB(c)
	pool.SetMaxOpenConns(2)
	t.Cleanup(func() { dbtest.Must(t, pool.Close()) })
	own, err := sqlrun.Wrap(t.Context(), []*sqlrun.Dialect{db.Dialect}, pool, sqlrun.Options{})
	dbtest.Must(t, err)
	return own
}

// Connections of a program's pool may be in another schema by the time that it migrates, and have temporary tables: the
// tables and the functions for the SQL prompt are made at home all the same.
func TestMigrationsStayAtHome(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		own := wrapping(t, db)
		db.Do(t, `CREATE SCHEMA tenant`, nil)
		moved(t, own.Pool(), `SET search_path = tenant`, `CREATE TEMPORARY TABLE dbcron_queue (x INTEGER)`)
		dbtest.Must(t, sqlschema.Migrate(t.Context(), own))
		dbtest.Must(t, sqlschema.Check(t.Context(), own))
		if there, err := sqlschema.HasPrompt(t.Context(), own); !there || err != nil {
			t.Errorf("the functions are there: %t, %v", there, err)
		}
		got := db.List(t, `SELECT DISTINCT array_to_string(proconfig, '; ') FROM pg_proc WHERE proname LIKE 'dbcron%'`, nil)
		if want := []string{"search_path=pg_catalog, public, pg_temp"}; !slices.Equal(got, want) {
			t.Errorf("functions look for tables in %q, want %q", got, want)
		}
		if got := db.List(t, `SELECT relname FROM pg_class WHERE relnamespace = CAST('tenant' AS regnamespace)`, nil); len(got) != 0 {
			t.Errorf("another schema has %s", got)
		}
		dbtest.Must(t, sqlschema.Prompt(t.Context(), own))
		dbtest.Must(t, sqlschema.To(t.Context(), own, 0))
	})
}

// The migrations of MySQL ask the connection for its database, so one that has moved is refused.
func TestMigrationsRefuseAnotherDatabase(t *testing.T) {
	dbtest.One(t, mysql.Dialect, func(t *testing.T, db *dbtest.DB) {
		own := wrapping(t, db)
		moved(t, own.Pool(), `USE information_schema`)
		if err := sqlschema.Migrate(t.Context(), own); !errors.Is(err, dialect.ErrUnfit) || !strings.Contains(err.Error(), own.Home()) {
			t.Errorf("got %v, want that it is refused and the name %s", err, own.Home())
		}
		moved(t, own.Pool(), "USE `"+own.Home()+"`")
		dbtest.Must(t, sqlschema.Migrate(t.Context(), own))
		dbtest.Must(t, sqlschema.Check(t.Context(), own))
	})
}
