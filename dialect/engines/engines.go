// Package engines links all engines and their drivers, for programs that are told by a URL
// which one it is. A program that has one engine imports that engine's package instead, and
// links one driver.
package engines

import (
	"context"
	"database/sql"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/dialect/sqlite"
)

// All lists the engines. A further one is a further package and a line here.
var All = []*dialect.Dialect{postgres.Dialect, mysql.Dialect, sqlite.Dialect}

// Open connects to the database that rawURL names, with all that the SQL
// relies on, and checks it. The URL is one of
//
//	postgres://user:password@host:5432/database
//	mysql://user:password@host:3306/database     (mariadb:// is the same)
//	sqlite:file.db
//
// followed by parameters of the driver, if any, and dbcron_without=…, which names the
// features to do without, with commas between: see [dialect.Feature]. Close it when done.
func Open(ctx context.Context, rawURL string, opt dialect.Options) (*dialect.DB, error) {
	return dialect.Open(ctx, All, rawURL, opt)
}

// Connect is Open without the check, for programs that look into why a
// database is refused.
func Connect(ctx context.Context, rawURL string, opt dialect.Options) (*dialect.DB, error) {
	return dialect.Connect(ctx, All, rawURL, opt)
}

// Wrap takes a pool that the program already has, and asks its server what it is. The pool
// stays the caller's: Close does not close it. Drivers: pgx's stdlib or another for
// PostgreSQL whose errors have SQLState, go-sql-driver/mysql, modernc.org/sqlite. For a pool
// of pgx's own kind there is [postgres.Wrap].
func Wrap(ctx context.Context, pool *sql.DB, opt dialect.Options) (*dialect.DB, error) {
	return dialect.Wrap(ctx, All, pool, opt)
}

// ForURL returns the dialect of the engine that a URL names, without a look at
// the database.
func ForURL(rawURL string) (*dialect.Dialect, error) { return dialect.ForURL(All, rawURL) }

// Unavailable tells whether err means on any engine that the server cannot be reached or
// does not serve yet, so that trying again later makes sense.
func Unavailable(err error) bool {
	for _, d := range All {
		if d.Unreachable(err) {
			return true
		}
	}
	return false
}
