package postgres_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
)

// lateCancels forwards connections to a server. It keeps requests to cancel a statement until deliver is called,
// as a busy server does. asked receives when one has come.
func lateCancels(t *testing.T, server string) (address string, asked <-chan struct{}, deliver func()) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	dbtest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	came, requests := make(chan struct{}, 1), make(chan []byte, 1)
	dial := func() net.Conn {
		to, err := new(net.Dialer).DialContext(context.Background(), "tcp", server)
		if err != nil {
			t.Error(err)
		}
		return to
	}
	serve := func(c net.Conn) {
		defer func() { _ = c.Close() }()
		first := make([]byte, 8) // the length and the kind
		if _, err := io.ReadFull(c, first); err != nil {
			return
		}
		if binary.BigEndian.Uint32(first[4:]) == 80877102 { // a CancelRequest
			rest := make([]byte, binary.BigEndian.Uint32(first)-8)
			if _, err := io.ReadFull(c, rest); err == nil {
				requests <- append(first, rest...)
				came <- struct{}{}
			}
			return
		}
		to := dial()
		if to == nil {
			return
		}
		go func() {
			_, _ = io.Copy(c, to)
			_ = c.Close()
		}()
		_, _ = to.Write(first)
		_, _ = io.Copy(to, c)
		_ = to.Close()
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String(), came, func() {
		to := dial()
		if to == nil {
			return
		}
		_, _ = to.Write(<-requests)
		_, _ = io.Copy(io.Discard, to) // the server closes it when it has carried it out
		_ = to.Close()
	}
}

// A request to cancel a statement that comes too late cancels no other statement of the connection. The class: what
// is asked of a session beside its statements, and answered by nobody.
func TestALateCancelHitsNobody(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		u, err := url.Parse(db.URL)
		dbtest.Must(t, err)
		address, asked, deliver := lateCancels(t, u.Host)
		u.Host = address
		own := dbtest.Open(t, u.String(), dialect.Options{MaxConns: 1})
		holder, err := db.Pool().Conn(t.Context())
		dbtest.Must(t, err)
		t.Cleanup(func() { _ = holder.Close() })
		do := func(query string) {
			t.Helper()
			_, err := holder.ExecContext(t.Context(), query)
			dbtest.Must(t, err)
		}
		waits := func(key string) {
			dbtest.Eventually(t, "it waits", func() bool {
				return len(db.List(t, `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = `+key, nil)) == 1
			})
		}
		do(`SELECT pg_advisory_lock(771), pg_advisory_lock(772)`)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := own.Pool().ExecContext(ctx, `SELECT pg_advisory_lock(771)`)
			ended <- err
		}()
		waits("771")
		cancel()
		<-asked
		do(`SELECT pg_advisory_unlock(771)`) // the statement ends by itself
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		go func() {
			_, err := own.Pool().ExecContext(t.Context(), `SELECT pg_advisory_lock(772)`)
			ended <- err
		}()
		waits("772")
		deliver()
		do(`SELECT pg_advisory_unlock(772)`)
		if err := <-ended; err != nil {
			t.Errorf("the next statement: %v", err)
		}
	})
}
