package dbtest

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
)

// EachWay runs f in a subtest for each way in which a program may connect to db's database: by its
// URL, with a pool of the driver or with one of database/sql, in each mode of the driver. The modes
// differ in how values are sent and in the format in which they come back. If modes are given, those of
// PostgreSQL's driver, there are no other ways.
func (db *DB) EachWay(t *testing.T, f func(t *testing.T, db *DB), modes ...string) {
	t.Helper()
	ways := map[string]func(t *testing.T) (*dialect.DB, error){}
	switch db.Dialect.Name {
	case postgres.Dialect.Name:
		all := []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}
		if modes != nil {
			all = modes
		}
		for _, mode := range all {
			withMode := db.URL + "&default_query_exec_mode=" + mode
			ways["url/"+mode] = func(t *testing.T) (*dialect.DB, error) {
				return postgres.Open(t.Context(), withMode, bare(dialect.Options{}, db.URL))
			}
			ways["pgxpool/"+mode] = func(t *testing.T) (*dialect.DB, error) { return db.wrapPgx(t, withMode) }
			ways["sql/"+mode] = func(t *testing.T) (*dialect.DB, error) { return db.wrapSQL(t, withMode) }
		}
	case mysql.Dialect.Name:
		for _, parameters := range []string{
			"", "interpolateParams=true", "parseTime=true", "clientFoundRows=true", "interpolateParams=true&parseTime=true",
			"multiStatements=true", "columnsWithAlias=true", "time_zone='%2B09:00'&loc=Asia%2FTokyo&parseTime=true",
		} {
			ways["sql/"+parameters] = func(t *testing.T) (*dialect.DB, error) { return db.wrapMySQL(t, parameters) }
		}
	}
	if modes == nil {
		ways["url"] = func(t *testing.T) (*dialect.DB, error) { return Open(t, db.URL, db.options).DB, nil }
	}
	for name, open := range ways {
		t.Run(name, func(t *testing.T) {
			own, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { Must(t, own.Close()) })
			f(t, &DB{DB: own, Engine: db.Engine, URL: db.URL, options: db.options})
		})
	}
}

func (db *DB) wrapPgx(t *testing.T, databaseURL string) (*dialect.DB, error) {
	pool, err := pgxpool.New(t.Context(), databaseURL)
	if err != nil {
		return nil, err
	}
	t.Cleanup(pool.Close)
	return postgres.Wrap(t.Context(), pool, bare(dialect.Options{}, db.URL))
}

func (db *DB) wrapSQL(t *testing.T, databaseURL string) (*dialect.DB, error) {
	cfg, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	pool := stdlib.OpenDB(*cfg)
	t.Cleanup(func() { Must(t, pool.Close()) })
	return postgres.WrapDB(t.Context(), pool, bare(dialect.Options{}, db.URL))
}

func (db *DB) wrapMySQL(t *testing.T, parameters string) (*dialect.DB, error) {
	u, err := url.Parse(db.URL)
	if err != nil {
		return nil, err
	}
	cfg := mysqldriver.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	cfg.Passwd, _ = u.User.Password()
	pool, err := sql.Open("mysql", cfg.FormatDSN()+"?charset=utf8mb4&"+parameters)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { Must(t, pool.Close()) })
	return mysql.Wrap(t.Context(), pool, dialect.Options{})
}
