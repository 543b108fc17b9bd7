package postgres_test

import (
	"context"
	"errors"
	"net"
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
		own := sqlconn.Borrow(db.Pool(), 1, nil)
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

// The look at a socket does not wait for somebody who reads it.
func TestPingBesideAReader(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there, every connection is pinged")
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	dbtest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	dbtest.Must(t, err)
	server, err := l.Accept()
	dbtest.Must(t, err)
	read, looked := make(chan error, 1), make(chan bool)
	go func() {
		_, err := c.Read(make([]byte, 1))
		read <- err
	}()
	go func() {
		waits := true
		for range 1000 { // the reader begins at some time
			waits = waits && postgres.WouldBlock(c)
			runtime.Gosched()
		}
		looked <- waits
	}()
	select {
	case waits := <-looked:
		if !waits {
			t.Error("there was something to read")
		}
	case <-time.After(time.Minute):
		t.Error("the look waits for the reader")
	}
	dbtest.Must(t, server.Close())
	if err := <-read; err == nil {
		t.Error("something was read")
	}
	if postgres.WouldBlock(c) {
		t.Error("the end of the connection is not seen")
	}
	dbtest.Must(t, c.Close())
}
