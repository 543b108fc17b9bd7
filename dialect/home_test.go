package dialect_test

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Tables may be in schemas and databases with any name. Statements name it, whatever the connections do later.
// Where a database's name is a target of Vitess, which statements cannot name, the connections decide as before.
func TestStatementsNameTheirHome(t *testing.T) {
	dbtest.SkipGated(t, "it makes no databases")
	for _, d := range []*dialect.Dialect{postgres.Dialect, mysql.Dialect} {
		dbtest.One(t, d, func(t *testing.T, db *dbtest.DB) {
			for _, home := range []string{"tenant-1", "Tenant.A", "order", "b`q", `d"q`, "größe", "a?b:c", "jobs:-80", "jobs@replica", "in'ward"} {
				t.Run(strings.NewReplacer("/", "", "'", "").Replace(home), func(t *testing.T) { namesHome(t, db, home) })
			}
		})
	}
}

func namesHome(t *testing.T, db *dbtest.DB, home string) {
	create, drop, move, quoted := "CREATE SCHEMA ", "", "SET search_path = nowhere", `"`+strings.ReplaceAll(home, `"`, `""`)+`"`
	if !db.Dialect.Schema {
		home += db.Dialect.Name + strings.TrimPrefix(pathOf(t, db.URL), "/dbcron")
		create, drop, move, quoted = "CREATE DATABASE ", "DROP DATABASE ", "USE information_schema", "`"+strings.ReplaceAll(home, "`", "``")+"`"
	}
	exec := func(on *sql.DB, text string) {
		t.Helper()
		_, err := on.ExecContext(t.Context(), text)
		dbtest.Must(t, err)
	}
	exec(db.Pool(), create+quoted)
	if drop != "" {
		defer exec(db.Pool(), drop+quoted)
	}
	pool := poolAt(t, db, home, quoted)
	own, err := sqlrun.Wrap(t.Context(), []*dialect.Dialect{db.Dialect}, pool, sqlrun.Options{})
	dbtest.Must(t, err)
	if own.Home() != home {
		t.Errorf("the home is %q", own.Home())
	}
	named := own.Prefix() != "dbcron_"
	if unnamed := strings.ContainsAny(home, "?:'") || !db.Dialect.Schema && strings.Contains(home, "@"); named == unnamed {
		t.Errorf("the prefix is %s", own.Prefix())
	}
	for i, text := range []string{`CREATE TABLE {prefix}x (n INTEGER)`, `INSERT INTO {prefix}x (n) VALUES (:n)`, `UPDATE {prefix}x SET n = {prefix}x.n + :n`} {
		if i > 0 && named {
			exec(pool, move)
		}
		_, err := own.Exec(t.Context(), sqlrun.Unlisted(text), sqlrun.Args{"n": 1})
		dbtest.Must(t, err)
	}
	var n int
	dbtest.Must(t, db.Pool().QueryRowContext(t.Context(), "SELECT n FROM "+quoted+".dbcron_x").Scan(&n))
	if n != 2 {
		t.Errorf("there is %d in the table", n)
	}
}

func pathOf(t *testing.T, rawURL string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	dbtest.Must(t, err)
	return u.Path
}

// poolAt returns a pool of a program's own, of one connection, in a schema or database.
func poolAt(t *testing.T, db *dbtest.DB, home, quoted string) *sql.DB {
	t.Helper()
	u, err := url.Parse(db.URL)
	dbtest.Must(t, err)
	var pool *sql.DB
	if db.Dialect.Schema {
		cfg, err := pgx.ParseConfig(db.URL)
		dbtest.Must(t, err)
		cfg.RuntimeParams["search_path"] = quoted
		pool = stdlib.OpenDB(*cfg)
	} else {
		cfg := mysqldriver.NewConfig()
		cfg.User, cfg.Net, cfg.Addr, cfg.DBName, cfg.ClientFoundRows = u.User.Username(), "tcp", u.Host, home, true
		cfg.Passwd, _ = u.User.Password()
		dbtest.Must(t, cfg.Apply(mysqldriver.Charset("utf8mb4", "")))
		connector, err := mysqldriver.NewConnector(cfg)
		dbtest.Must(t, err)
		pool = sql.OpenDB(connector)
	}
	pool.SetMaxOpenConns(1)
	t.Cleanup(func() { dbtest.Must(t, pool.Close()) })
	return pool
}

// The first schema of the search_path that has the tables is their home; a temporary table is none of ours.
func TestHomeIsWhereTheTablesAre(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE SCHEMA empty`, nil)
		db.Do(t, `CREATE TABLE {prefix}migration (version_id INTEGER)`, nil)
		pool := poolAt(t, db, "", `empty, public`)
		_, err := pool.ExecContext(t.Context(), `CREATE TEMPORARY TABLE dbcron_migration (version_id INTEGER)`)
		dbtest.Must(t, err)
		for prefix, want := range map[string]string{"": "public.dbcron_", "none_": "empty.none_"} {
			own, err := postgres.WrapDB(t.Context(), pool, dialect.Options{Prefix: prefix})
			dbtest.Must(t, err)
			if own.Prefix() != want {
				t.Errorf("the prefix is %s, want %s", own.Prefix(), want)
			}
		}
	})
}
