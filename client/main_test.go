package client_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dbcron/dbcron/client"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// longWait is for what must happen, on a slow machine.
const longWait = 2 * time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eachAPI runs a test against the API itself, on each engine.
func eachAPI(t *testing.T, f func(t *testing.T, db *dbtest.DB, api http.Handler)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) { f(t, db, newAPI(t, db)) }, (*testing.T).Parallel)
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
