package mysql

import (
	"context"
	"database/sql"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

var only = []*sqlrun.Dialect{Dialect}

// Open connects to the MySQL or MariaDB database that rawURL names, with everything that the SQL
// relies on, and checks it. The URL is
//
//	mysql://user:password@host:3306/database     (mariadb:// is the same)
//
// optionally followed by parameters of the driver and by dbcron_without=…, a comma-separated list of
// features to do without: see [dialect.Feature]. The caller must Close the DB.
func Open(ctx context.Context, rawURL string, opt dialect.Options) (*dialect.DB, error) {
	return sqlrun.Open(ctx, only, rawURL, sqlrun.Options(opt))
}

// Wrap uses a pool of go-sql-driver/mysql that the program has. Close leaves the pool open.
//
// Such a pool may lack what Open sets on its connections: a cancelled statement goes on in the server
// until it is done, or until innodb_lock_wait_timeout if it waits for a lock.
func Wrap(ctx context.Context, pool *sql.DB, opt dialect.Options) (*dialect.DB, error) {
	return sqlrun.Wrap(ctx, only, pool, sqlrun.Options(opt))
}
