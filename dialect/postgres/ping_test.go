package postgres_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlconn"
)

// A worker's own connection is not pinged after a second, unless the server has closed it.
func TestPing(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		own := sqlconn.Borrow(db.Pool(), 1)
		c, err := own.Conn(t.Context())
		dbtest.Must(t, err)
		var pid int
		dbtest.Must(t, c.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
		dbtest.Must(t, c.Raw(func(driverConn any) error {
			raw, ok := sqlconn.Unwrap(driverConn).(*stdlib.Conn)
			if !ok {
				return errors.New("not a connection of pgx")
			}
			pings := func(ctx context.Context, idle time.Duration) bool {
				return postgres.ShouldPing(ctx, stdlib.ShouldPingParams{Conn: raw.Conn(), IdleDuration: idle})
			}
			lent := sqlconn.Lent(t.Context())
			if pings(t.Context(), time.Second/2) || !pings(t.Context(), 2*time.Second) {
				t.Error("another connection is to be pinged after a second")
			}
			if pings(lent, 2*time.Second) != (runtime.GOOS == "windows") || !pings(lent, time.Minute) {
				t.Error("a worker's own connection is to be pinged after a longer time")
			}
			db.Do(t, `SELECT pg_terminate_backend(:pid)`, map[string]any{"pid": pid})
			dbtest.Eventually(t, "the end of the connection is seen", func() bool { return pings(lent, 2*time.Second) })
			return nil
		}))
		dbtest.Must(t, c.Close())
		dbtest.Must(t, own.Close())
	})
}
