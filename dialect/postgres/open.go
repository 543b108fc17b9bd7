package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dbcron/dbcron/dialect"
)

var only = []*dialect.Dialect{Dialect}

// Open connects to the PostgreSQL database that rawURL names, with all that the SQL relies
// on, and checks it. The URL is
//
//	postgres://user:password@host:5432/database
//
// followed by parameters of pgx, if any, and dbcron_without=…, which names the features to do
// without, with commas between: see [dialect.Feature]. Close it when done.
func Open(ctx context.Context, rawURL string, opt dialect.Options) (*dialect.DB, error) {
	return dialect.Open(ctx, only, rawURL, opt)
}

// Wrap takes a pool of pgx's own kind that the program already has. The pool stays the
// caller's: Close leaves it open.
func Wrap(ctx context.Context, pool *pgxpool.Pool, opt dialect.Options) (*dialect.DB, error) {
	return dialect.WrapOwned(ctx, only, stdlib.OpenDBFromPool(pool), int(pool.Config().MaxConns), opt)
}

// WrapDB is Wrap for a pool of database/sql: of pgx's stdlib, or of another driver whose
// errors have the method SQLState.
func WrapDB(ctx context.Context, pool *sql.DB, opt dialect.Options) (*dialect.DB, error) {
	return dialect.Wrap(ctx, only, pool, opt)
}
