package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

var only = []*sqlrun.Dialect{Dialect}

// Open connects to the PostgreSQL database that rawURL names, with everything that the SQL relies on,
// and checks it. The URL is
//
//	postgres://user:password@host:5432/database
//
// optionally followed by parameters of pgx and by dbcron_without=…, a comma-separated list of
// features to do without: see [dialect.Feature]. The caller must Close the DB.
func Open(ctx context.Context, rawURL string, opt dialect.Options) (*dialect.DB, error) {
	return sqlrun.Open(ctx, only, rawURL, sqlrun.Options(opt))
}

// Wrap uses a pgxpool.Pool that the program has. Close leaves the pool open.
func Wrap(ctx context.Context, pool *pgxpool.Pool, opt dialect.Options) (*dialect.DB, error) {
	inUse := func() int { return int(pool.Stat().AcquiredConns()) }
	return sqlrun.WrapOwned(ctx, only, stdlib.OpenDBFromPool(pool, pings), int(pool.Config().MaxConns), inUse, sqlrun.Options(opt))
}

// WrapDB is Wrap for a pool of database/sql, with pgx's stdlib or another driver whose errors have the
// method SQLState.
func WrapDB(ctx context.Context, pool *sql.DB, opt dialect.Options) (*dialect.DB, error) {
	return sqlrun.Wrap(ctx, only, pool, sqlrun.Options(opt))
}
