//go:build unix

package examples

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/client"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/wire"
)

// The pull workers do jobs of the real API.
func TestPullWorkersAndTheAPI(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"python/worker.py", "node/worker.mjs", "curl/worker.sh"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
				api, err := httpapi.New(db.DB, httpapi.Options{Node: "test", Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				server := httptest.NewServer(api)
				t.Cleanup(func() {
					server.Close()
					api.Close()
					_ = api.Flush(context.WithoutCancel(t.Context()))
				})
				pullWith(t, file, server.URL)
			}, (*testing.T).Parallel)
		})
	}
}

func pullWith(t *testing.T, file, url string) {
	c, err := client.New(url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	if _, err := c.SetQueue(t.Context(), "mail", wire.QueueChange{}); err != nil {
		t.Fatal(err)
	}
	enqueued, err := c.EnqueueBatch(t.Context(), client.Batch{Jobs: []client.Job{
		{Kind: "welcome", Queue: "mail", Payload: map[string]string{"to": "ada"}},
		{Kind: "welcome", Queue: "mail", Payload: map[string]string{"from": "bob"}},
		{Kind: "welcome", Queue: "mail", Payload: map[string]string{"to": "eve"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	worker := start(t, file, []string{"mail"}, "DBCRON_API="+url+"/api/v1")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for timeout := time.After(longWait); ; {
		s, err := c.Stats(t.Context(), "mail")
		if err != nil {
			t.Fatal(err)
		}
		if s.Ready+s.Running+s.Delayed == 0 && s.Dead == 1 {
			break
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("the jobs are not done: %+v", s)
		}
	}
	if j, err := c.Job(t.Context(), "mail", enqueued[1].ID); err != nil || j.State != "dead" {
		t.Errorf("the job that cannot be done: %+v, %v", j, err)
	}
	_ = syscall.Kill(-worker.cmd.Process.Pid, syscall.SIGTERM)
	_ = worker.wait()
}
