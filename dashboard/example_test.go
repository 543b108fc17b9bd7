package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/dbcron/dbcron/dashboard"
	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/sqlschema"
)

// A program serves the API and the dashboard from a server of its own.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := engines.Open(ctx, "sqlite:"+filepath.Join(dir, "app.db"), dialect.Options{})
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if err := sqlschema.Migrate(ctx, db); err != nil {
		panic(err)
	}
	api, err := httpapi.New(db, httpapi.Options{})
	if err != nil {
		panic(err)
	}
	defer api.Close()
	pages, err := dashboard.New(db, api, dashboard.Options{})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/api/", api)
	mux.Handle("/dbcron/", http.StripPrefix("/dbcron", pages))
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, path := range []string{"/api/v1/queues", "/dbcron/"} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		if err != nil {
			panic(err)
		}
		answer, err := server.Client().Do(request)
		if err != nil {
			panic(err)
		}
		fmt.Println(path, answer.StatusCode)
		_ = answer.Body.Close()
	}
	// Output:
	// /api/v1/queues 200
	// /dbcron/ 200
}
