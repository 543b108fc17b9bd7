package queue

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A program whose connections move from tenant to tenant, each with a schema or a database, enqueues into
// the tables that it has begun with: all jobs that were acknowledged are there and run. A temporary table with the name
// of one of ours takes none of them on PostgreSQL; on MySQL it precedes even a table that is named with its database.
func TestJobsStayInTheirTables(t *testing.T) {
	dbtest.SkipGated(t, "it makes no databases")
	t.Parallel()
	dbtest.Network.Each(t, func(t *testing.T, db *dbtest.DB) {
		pool, move, home, other := homes(t, db)
		own, err := engines.Wrap(t.Context(), pool, dialect.Options{})
		must(t, err)
		c := client(t, &dbtest.DB{DB: own}, Options{})
		w := worker(t, c, WorkerOptions{})
		var r record
		handle(t, w, "x", func(context.Context, *Delivery) error { r.add("x"); return nil })
		start(t, w)
		for i := range 20 {
			must(t, move([]string{home, other}[i%2]))
			enqueue(t, c, Job{Kind: "x", Key: fmt.Sprint(i)})
			tx, err := pool.BeginTx(t.Context(), nil)
			must(t, err)
			if db.Dialect.Schema {
				_, err = tx.ExecContext(t.Context(), "CREATE TEMPORARY TABLE dbcron_job (LIKE "+home+".dbcron_job) ON COMMIT DROP")
				must(t, err)
			}
			_, wake, err := c.EnqueueTx(t.Context(), tx, Job{Kind: "x"})
			must(t, err)
			must(t, tx.Commit())
			wake()
		}
		_, err = c.EnqueueMany(t.Context(), make60())
		must(t, err)
		var n int
		must(t, pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+other+".dbcron_job").Scan(&n))
		if n != 0 {
			t.Fatalf("%d jobs are in the tables of another tenant", n)
		}
		eventually(t, "all jobs are done", func() bool { return r.len() == 100 })
	})
}

func make60() (jobs []Job) {
	for range 60 {
		jobs = append(jobs, Job{Kind: "x"})
	}
	return jobs
}

// homes returns a pool of the program's own in a database with two homes for tables, and a function that
// moves the connection that is used next to one of them.
func homes(t *testing.T, db *dbtest.DB) (pool *sql.DB, move func(to string) error, home, other string) {
	t.Helper()
	use, create, like := "USE ", "CREATE DATABASE ", "CREATE TABLE %s.%s LIKE %[3]s.%[2]s"
	home = db.Home()
	other = home + "_b"
	if db.Dialect.Schema {
		use, create, like = "SET search_path = ", "CREATE SCHEMA ", "CREATE TABLE %s.%s (LIKE %[3]s.%[2]s INCLUDING ALL)"
		cfg, err := pgx.ParseConfig(db.URL)
		must(t, err)
		pool = stdlib.OpenDB(*cfg)
	} else {
		u, err := url.Parse(db.URL)
		must(t, err)
		cfg := mysqldriver.NewConfig()
		cfg.User, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), "tcp", u.Host, home
		cfg.Passwd, _ = u.User.Password()
		must(t, cfg.Apply(mysqldriver.Charset("utf8mb4", "")))
		connector, err := mysqldriver.NewConnector(cfg)
		must(t, err)
		pool = sql.OpenDB(connector)
	}
	t.Cleanup(func() { must(t, pool.Close()) })
	db.Do(t, create+other, nil)
	t.Cleanup(func() {
		_, err := db.Pool().ExecContext(context.Background(), strings.Replace(create, "CREATE", "DROP", 1)+other+map[bool]string{true: " CASCADE"}[db.Dialect.Schema])
		must(t, err)
	})
	for _, table := range db.List(t, `SELECT table_name FROM information_schema.tables WHERE table_schema = :home AND table_type = 'BASE TABLE'`, sqlrun.Args{"home": home}) {
		db.Do(t, fmt.Sprintf(like, other, table, home), nil)
	}
	return pool, func(to string) error {
		_, err := pool.ExecContext(t.Context(), use+to)
		return err
	}, home, other
}
