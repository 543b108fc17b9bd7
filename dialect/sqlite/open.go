package sqlite

import (
	"context"
	"database/sql"

	"github.com/dbcron/dbcron/dialect"
)

var only = []*dialect.Dialect{Dialect}

// Open connects to the SQLite database that rawURL names, with all that the SQL relies on,
// and checks it. The URL is
//
//	sqlite:file.db
//
// followed by parameters of the driver, if any, and dbcron_without=…, which names the
// features to do without, with commas between: see [dialect.Feature]. Close it when done.
func Open(ctx context.Context, rawURL string, opt dialect.Options) (*dialect.DB, error) {
	return dialect.Open(ctx, only, rawURL, opt)
}

// Wrap takes a pool that the program already has, of modernc.org/sqlite. The pool stays the caller's:
// Close does not close it.
func Wrap(ctx context.Context, pool *sql.DB, opt dialect.Options) (*dialect.DB, error) {
	return dialect.Wrap(ctx, only, pool, opt)
}
