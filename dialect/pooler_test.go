package dialect_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A pooler gives its clients a process number of its own. This one does nothing else.
func pooler(t *testing.T, server string) (address string) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			var d net.Dialer
			up, err := d.DialContext(t.Context(), "tcp", server)
			if err != nil {
				_ = client.Close()
				return
			}
			go func() {
				_, _ = io.Copy(up, client)
				_ = up.Close()
			}()
			go func() {
				_, _ = io.Copy(renumber{client}, up)
				_ = client.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// renumber changes the process number in BackendKeyData: a K, the length 12, four bytes of number,
// and a key of four bytes.
type renumber struct{ io.Writer }

func (r renumber) Write(p []byte) (int, error) {
	changed := bytes.Clone(p)
	if at := bytes.Index(p, []byte{'K', 0, 0, 0, 12}); at >= 0 && at+9 <= len(p) {
		changed[at+8] ^= 0x55
	}
	return r.Writer.Write(changed)
}

func TestSessionLocksAreRefusedBehindAPooler(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		u, err := url.Parse(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = pooler(t, u.Host)
		pooled := dbtest.Open(t, u.String(), dialect.Options{})
		if _, err := pooled.SessionLock(t.Context(), "x"); !errors.Is(err, sqlrun.ErrNoSessions) {
			t.Errorf("behind a pooler: %v", err)
		}
		// It has not kept the lock that it was granted before it looked.
		direct, err := db.SessionLock(t.Context(), "x")
		for errors.Is(err, sqlrun.ErrSessionHeld) { // the server has not yet seen the end of that connection
			direct, err = db.SessionLock(t.Context(), "x")
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := direct.Probe(t.Context()); err != nil {
			t.Error(err)
		}
		direct.Free()
	})
}
