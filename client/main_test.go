package client_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/dbcron/dbcron/client"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// longWait is for what must happen, on a slow machine.
const longWait = 2 * time.Minute

// Short names of dbtest's.
var must, eventually = dbtest.Must, dbtest.Eventually

// eachAPI runs a test against the API itself. The client knows nothing of its database.
func eachAPI(t *testing.T, f func(t *testing.T, db *dbtest.DB, api http.Handler)) {
	t.Helper()
	t.Parallel()
	dbtest.Memory.Each(t, func(t *testing.T, db *dbtest.DB) { f(t, db, newAPI(t, db)) }, (*testing.T).Parallel)
}

func newAPI(t *testing.T, db *dbtest.DB) http.Handler {
	t.Helper()
	api, err := httpapi.New(db.DB, httpapi.Options{Node: "test", Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() {
		api.Close()
		must(t, api.Flush(context.WithoutCancel(t.Context())))
	})
	return api
}

// serve serves a handler until the test ends, and returns a client of it.
func serve(t *testing.T, h http.Handler, opt client.Options) *client.Client {
	t.Helper()
	server := httptest.NewServer(h)
	opt.Delay = time.Millisecond
	c, err := client.New(server.URL, opt)
	must(t, err)
	t.Cleanup(func() {
		c.CloseIdleConnections()
		server.Close()
	})
	return c
}
