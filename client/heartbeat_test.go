package client

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// A job of another daemon does not keep the leases of the others from being renewed.
func TestHeartbeatOfSeveralDaemons(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var renewed []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Claims []struct{ Token string } }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		var tokens, lost []string
		for _, c := range in.Claims {
			switch c.Token {
			case "elsewhere":
				w.WriteHeader(http.StatusMisdirectedRequest)
				return
			case "lost":
				lost = append(lost, c.Token)
			default:
				tokens = append(tokens, c.Token)
			}
		}
		if len(tokens) == 0 {
			w.WriteHeader(http.StatusConflict)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		renewed = append(renewed, tokens...)
		_ = json.NewEncoder(w).Encode(map[string]any{"done": len(tokens), "lost": lost}) // the client finds out
	}))
	t.Cleanup(server.Close)
	c, err := New(server.URL, Options{Tries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	w := &worker{c: c, opt: WorkOptions{Lease: time.Hour}, log: slog.New(slog.DiscardHandler), held: map[string]*underWay{}}
	var want []string
	jobs := map[string]context.Context{}
	hold := func(token string) {
		ctx, lose := context.WithCancelCause(t.Context())
		u := &underWay{lose: lose, expiry: time.AfterFunc(time.Hour, func() {})}
		t.Cleanup(func() { u.expiry.Stop(); lose(nil) })
		w.held[token], jobs[token] = u, ctx
	}
	for i := range 10 {
		token := fmt.Sprint(i)
		hold(token)
		want = append(want, token)
	}
	hold("elsewhere")
	hold("lost")
	w.heartbeat(t.Context())
	slices.Sort(renewed)
	if !slices.Equal(renewed, want) {
		t.Errorf("renewed are %q", renewed)
	}
	for token, job := range jobs {
		if over := job.Err() != nil; over != (token == "lost") {
			t.Errorf("%s is lost: %v", token, over)
		}
	}
}
