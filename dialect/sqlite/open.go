package sqlite

import (
	"context"
	"database/sql"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

var only = []*sqlrun.Dialect{Dialect}

// Open connects to the SQLite database that rawURL names, with everything that the SQL relies on, and
// checks it. The URL is
//
//	sqlite:file.db
//
// optionally followed by ?dbcron_without=…, a comma-separated list of features to do without: see
// [dialect.Feature]. The caller must Close the DB.
func Open(ctx context.Context, rawURL string, opt dialect.Options) (*dialect.DB, error) {
	return sqlrun.Open(ctx, only, rawURL, sqlrun.Options(opt))
}

// Wrap uses a pool of modernc.org/sqlite that the program has. Close leaves the pool open.
func Wrap(ctx context.Context, pool *sql.DB, opt dialect.Options) (*dialect.DB, error) {
	return sqlrun.Wrap(ctx, only, pool, sqlrun.Options(opt))
}
