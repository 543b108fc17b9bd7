package client_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/client"
	"github.com/dbcron/dbcron/wire"
)

// A redirect to another host does not get the token; one on the same host is followed.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var stolen string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen = r.Header.Get("Authorization") + r.URL.Path }))
	defer other.Close()
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/queues/away":
			http.Redirect(w, r, other.URL+"/queues", http.StatusTemporaryRedirect)
		case "/api/v1/queues/here":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case "/api/v1/queues/here/pause":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case "/elsewhere":
			_, _ = w.Write([]byte(`{"name": "here"}`))
		}
	}))
	defer daemon.Close()
	c, err := client.New(daemon.URL, client.Options{Token: "geheim", Tries: 1})
	must(t, err)
	_, err = c.Queue(t.Context(), "away")
	if err == nil || !strings.Contains(err.Error(), "it redirects to "+other.URL+", which does not get the token") || strings.Contains(err.Error(), "geheim") {
		t.Errorf("%v", err)
	}
	if stolen != "" {
		t.Errorf("the other host got %q", stolen)
	}
	var q wire.Queue
	must(t, c.Do(t.Context(), client.Request{Method: http.MethodGet, Path: "/queues/here"}, &q))
	if q.Name != "here" {
		t.Errorf("%+v", q)
	}
	err = c.Do(t.Context(), client.Request{Method: http.MethodPost, Path: "/queues/here/pause"}, nil)
	if err == nil || !strings.Contains(err.Error(), "it redirects POST to /elsewhere, where nothing would be changed") {
		t.Errorf("a change that becomes a question: %v", err)
	}
	var text []byte
	must(t, c.Do(t.Context(), client.Request{Method: http.MethodGet, Path: "/queues/here"}, &text))
	if string(text) != `{"name": "here"}` {
		t.Errorf("%s", text)
	}
}
