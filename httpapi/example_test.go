package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/sqlschema"
)

// A program serves the API beside its own pages. Once there is a token, each request needs one.
func Example() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	api, err := httpapi.New(db, httpapi.Options{})
	if err != nil {
		panic(err)
	}
	defer api.Close()
	mux := http.NewServeMux()
	mux.Handle("/api/", api)
	server := httptest.NewServer(mux)
	defer server.Close()

	secret, err := api.Tokens().Create(ctx, "shop", []httpapi.Scope{httpapi.ScopeEnqueue}, 90*24*time.Hour)
	if err != nil {
		panic(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/api/v1/jobs",
		strings.NewReader(`{"kind": "welcome", "queue": "mail", "payload": {"to": "ada@example.org"}}`))
	if err != nil {
		panic(err)
	}
	request.Header.Set("Authorization", "Bearer "+secret)
	request.Header.Set("Content-Type", "application/json")
	answer, err := server.Client().Do(request)
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	fmt.Println(answer.Status)
	// Output: 201 Created
}

// A token has scopes, which the server of other pages may check.
func ExampleTokens_Verify() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	tokens := httpapi.NewTokens(db)
	secret, err := tokens.Create(ctx, "report", []httpapi.Scope{httpapi.ScopeRead}, 0)
	if err != nil {
		panic(err)
	}
	who, err := tokens.Verify(ctx, secret)
	if err != nil {
		panic(err)
	}
	fmt.Println(who.Name(), who.May(httpapi.ScopeRead), who.May(httpapi.ScopeAdmin))
	_, err = tokens.Verify(ctx, "dbcron_guessed")
	fmt.Println(err)
	// Output:
	// report true false
	// httpapi: there is no such token
}

func openExample(ctx context.Context) (*dialect.DB, func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	db, err := sqlite.Open(ctx, "sqlite:"+filepath.Join(dir, "app.db"), dialect.Options{})
	if err != nil {
		panic(err)
	}
	if err := sqlschema.Migrate(ctx, db); err != nil {
		panic(err)
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}
