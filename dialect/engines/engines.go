// Package engines links all engines and their drivers, for programs that choose the engine by a
// URL. A program with one engine imports that engine's package instead, and links one driver.
package engines

import (
	"context"
	"database/sql"
	"slices"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// All lists the engines. A further engine is a further package and a line here.
var All = []*dialect.Dialect{postgres.Dialect, mysql.Dialect, sqlite.Dialect}

// Open connects to the database that rawURL names, with everything that the SQL relies on, and
// checks it. The URL is one of
//
//	postgres://user:password@host:5432/database
//	mysql://user:password@host:3306/database     (mariadb:// is the same)
//	sqlite:file.db
//
// optionally followed by parameters of the driver and by dbcron_without=…, a comma-separated list of
// features to do without: see [dialect.Feature]. The caller must Close the DB.
func Open(ctx context.Context, rawURL string, opt dialect.Options) (*dialect.DB, error) {
	return sqlrun.Open(ctx, All, rawURL, sqlrun.Options(opt))
}

// Connect is Open without the check, for programs that examine why a database is refused.
func Connect(ctx context.Context, rawURL string, opt dialect.Options) (*dialect.DB, error) {
	return sqlrun.Connect(ctx, All, rawURL, sqlrun.Options(opt))
}

// Wrap uses a pool that the program has, and asks its server which engine it is. Close leaves the
// pool open. The driver must be go-sql-driver/mysql, modernc.org/sqlite or, for PostgreSQL, pgx's
// stdlib or one whose errors have SQLState. For a pgxpool.Pool there is [postgres.Wrap].
func Wrap(ctx context.Context, pool *sql.DB, opt dialect.Options) (*dialect.DB, error) {
	return sqlrun.Wrap(ctx, All, pool, sqlrun.Options(opt))
}

// ForURL returns the dialect of the engine that a URL names, without connecting.
func ForURL(rawURL string) (*dialect.Dialect, error) { return sqlrun.ForURL(All, rawURL) }

// Unavailable reports whether err means, on any engine, that the server is unreachable or not ready,
// so that a later retry makes sense.
func Unavailable(err error) bool {
	for _, d := range All {
		if d.Unreachable(err) {
			return true
		}
	}
	return false
}

// Full reports whether err means, on any engine, that the server lets nobody in, since the user, the database or the server has as
// many connections as it may.
func Full(err error) bool {
	return slices.ContainsFunc(All, func(d *dialect.Dialect) bool { return d.Full(err) })
}
