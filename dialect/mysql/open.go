package mysql

import (
	"context"
	"database/sql"

	"github.com/dbcron/dbcron/dialect"
)

var only = []*dialect.Dialect{Dialect}

// Open connects to the MySQL or MariaDB database that rawURL names, with all that the SQL relies on,
// and checks it. The URL is
//
//	mysql://user:password@host:3306/database     (mariadb:// is the same)
//
// followed by parameters of the driver, if any, and dbcron_without=…, which names the
// features to do without, with commas between: see [dialect.Feature]. Close it when done.
func Open(ctx context.Context, rawURL string, opt dialect.Options) (*dialect.DB, error) {
	return dialect.Open(ctx, only, rawURL, opt)
}

// Wrap takes a pool that the program already has, of go-sql-driver/mysql. The pool stays the caller's:
// Close does not close it.
//
// What Open sets on its connections, and a caller's pool may lack: a cancelled statement goes
// on in the server until it is done, or until innodb_lock_wait_timeout if it waits for a lock.
func Wrap(ctx context.Context, pool *sql.DB, opt dialect.Options) (*dialect.DB, error) {
	return dialect.Wrap(ctx, only, pool, opt)
}
