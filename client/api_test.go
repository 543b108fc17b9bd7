package client_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/client"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/wire"
)

func TestJobs(t *testing.T) {
	eachAPI(t, func(t *testing.T, _ *dbtest.DB, api http.Handler) {
		c := serve(t, api, client.Options{})
		ctx := t.Context()
		const name = "a/b ü"
		at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		e, err := c.Enqueue(ctx, client.Job{
			Kind: "welcome", Queue: name, Payload: map[string]string{"to": "<ada>"}, Key: "k", Priority: "low",
			RunAt: at, MaxAttempts: 3, Timeout: 90 * time.Second,
		})
		must(t, err)
		why, err := c.Explain(ctx, name, e.ID)
		must(t, err)
		if why.ID != e.ID || len(why.Causes) == 0 || why.Causes[0].Why == "" {
			t.Errorf("it is explained by %+v", why)
		}
		j, err := c.Job(ctx, name, e.ID)
		must(t, err)
		if j.Queue != name || j.Kind != "welcome" || string(j.Payload) != `{"to":"<ada>"}` || j.Key != "k" || j.Priority != "low" ||
			!j.At.Equal(at) || j.MaxAttempts != 3 || j.State != "delayed" || j.Enqueued.IsZero() {
			t.Errorf("got %+v", j)
		}
		must(t, c.Run(ctx, name, e.ID))
		must(t, c.Cancel(ctx, name, e.ID))
		if _, err := c.Explain(ctx, name, e.ID); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("explaining it: %v", err)
		}
		if _, err := c.Job(ctx, name, e.ID); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("a job that was cancelled: %v", err)
		}
		if err := c.Retry(ctx, name, e.ID); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("retrying it: %v", err)
		}

		e, err = c.Enqueue(ctx, client.Job{Kind: "image", Queue: name, Binary: []byte{0, 255}})
		must(t, err)
		if j, err = c.Job(ctx, name, e.ID); err != nil || string(j.Binary) != "\x00\xff" || len(j.Payload) > 0 {
			t.Errorf("got %+v, %v", j, err)
		}
		if err := c.Delete(ctx, name, e.ID); !errors.Is(err, client.ErrConflict) {
			t.Errorf("deleting a job that is not dead: %v", err)
		}
	})
}

func TestSendingAgainEnqueuesOnce(t *testing.T) {
	eachAPI(t, func(t *testing.T, _ *dbtest.DB, api http.Handler) {
		// What is before the daemon loses each first answer, in one of three ways.
		var n atomic.Int32
		c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || n.Load() > 2 {
				api.ServeHTTP(w, r)
				return
			}
			api.ServeHTTP(nowhere{http.Header{}}, r)
			switch n.Add(1) {
			case 1:
				panic(http.ErrAbortHandler)
			case 2:
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusServiceUnavailable)
			default:
				w.WriteHeader(http.StatusGatewayTimeout)
			}
		}), client.Options{})
		ctx := t.Context()
		one, err := c.Enqueue(ctx, client.Job{Kind: "x", Queue: "q"})
		must(t, err)
		if !one.Existed || n.Load() != 3 {
			t.Errorf("got %+v after %d lost answers", one, n.Load())
		}
		n.Store(0)
		batch, err := c.EnqueueBatch(ctx, client.Batch{Jobs: []client.Job{{Kind: "y", Queue: "q"}, {Kind: "z", Queue: "q"}}})
		must(t, err)
		if len(batch) != 2 || !batch[0].Existed || batch[0].ID == batch[1].ID {
			t.Errorf("got %+v", batch)
		}
		n.Store(0)
		unique, err := c.Enqueue(ctx, client.Job{Kind: "u", Queue: "q", Unique: "one", UniqueFor: time.Hour})
		must(t, err)
		if !unique.Existed {
			t.Errorf("got %+v", unique)
		}
		n.Store(0)
		if _, err := c.Enqueue(ctx, client.Job{Kind: "v", Queue: "other", Unique: "free at its end"}); err == nil || n.Load() != 1 {
			t.Errorf("a job whose unique key is soon free was sent %d times: %v", n.Load(), err)
		}
		n.Store(0)
		if _, err := c.Publish(ctx, "none", client.Job{Kind: "v", Unique: "free at its end"}); err == nil || n.Load() != 1 {
			t.Errorf("it was published %d times: %v", n.Load(), err)
		}
		n.Store(0)
		if _, err := c.EnqueueBatch(ctx, client.Batch{Jobs: []client.Job{
			{Kind: "v", Queue: "other", Unique: "two"},
			{Kind: "w", Queue: "other"},
		}}); err == nil || n.Load() != 1 {
			t.Errorf("a batch that cannot be sent again was sent %d times: %v", n.Load(), err)
		}
		n.Store(3)
		s, err := c.Stats(ctx, "q")
		must(t, err)
		if s.Ready != 4 {
			t.Errorf("there are %d jobs, want 4", s.Ready)
		}
		kinds := map[string]int{}
		for j, err := range c.AllJobs(ctx, "q", client.Filter{Limit: 1}) {
			must(t, err)
			kinds[j.Kind]++
		}
		if len(kinds) != 4 {
			t.Errorf("got %v", kinds)
		}
		// A key of one's own holds for other processes too.
		first, err := c.Enqueue(ctx, client.Job{Kind: "x", Queue: "q", IdempotencyKey: "order-1"})
		must(t, err)
		second, err := c.Enqueue(ctx, client.Job{Kind: "x", Queue: "q", IdempotencyKey: "order-1"})
		must(t, err)
		if first.Existed || !second.Existed || first.ID != second.ID {
			t.Errorf("got %+v and %+v", first, second)
		}
	})
}

// nowhere is an answer that nobody gets.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header       { return n.header }
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) WriteHeader(int)             {}

func TestQueuesRoutesAndTopics(t *testing.T) {
	eachAPI(t, func(t *testing.T, _ *dbtest.DB, api http.Handler) {
		c := serve(t, api, client.Options{})
		ctx := t.Context()
		ada := "ada@example.org"
		q, err := c.SetQueue(ctx, ".", wire.QueueChange{MaxAttempts: 7, RetryDelay: "30s", KeepDeadMax: wire.All, Notify: &ada})
		must(t, err)
		if q.Name != "." || q.MaxAttempts != 7 || q.RetryDelay != "30s" || q.State != "active" || q.Notify != ada {
			t.Errorf("got %+v", q)
		}
		must(t, c.Pause(ctx, ".", "maintenance"))
		if q, err = c.Queue(ctx, "."); err != nil || q.State != "paused" || q.Reason != "maintenance" {
			t.Errorf("got %+v, %v", q, err)
		}
		must(t, c.Resume(ctx, "."))
		for i := range 101 { // more than a page
			_, err := c.SetQueue(ctx, "q"+strings.Repeat("x", i), wire.QueueChange{})
			must(t, err)
		}
		all, err := c.Queues(ctx)
		must(t, err)
		if len(all) < 102 {
			t.Errorf("got %d queues", len(all))
		}

		must(t, c.SetRoute(ctx, "bill", "."))
		r, err := c.Route(ctx, "bill")
		must(t, err)
		if r.Queue != "." {
			t.Errorf("got %+v", r)
		}
		e, err := c.Enqueue(ctx, client.Job{Kind: "bill"})
		must(t, err)
		if e.Queue != "." {
			t.Errorf("got %+v", e)
		}
		if list, err := c.Routes(ctx); err != nil || len(list) != 1 {
			t.Errorf("got %+v, %v", list, err)
		}
		must(t, c.DeleteRoute(ctx, "bill"))
		if err := c.DeleteQueue(ctx, "."); !errors.Is(err, client.ErrConflict) {
			t.Errorf("deleting a queue with a job: %v", err)
		}
		must(t, c.DeleteQueue(ctx, "q"))

		must(t, c.Subscribe(ctx, "order", "qx"))
		p, err := c.Publish(ctx, "order", client.Job{Kind: "order", Payload: json.RawMessage("[1]")})
		must(t, err)
		if p.Group == "" || len(p.Copies) != 1 || p.Copies[0].Queue != "qx" {
			t.Errorf("got %+v", p)
		}
		must(t, c.Unsubscribe(ctx, "order", "qx"))
		if p, err = c.Publish(ctx, "order", client.Job{Kind: "order"}); err != nil || len(p.Copies) != 0 {
			t.Errorf("got %+v, %v", p, err)
		}
	})
}

func TestProblems(t *testing.T) {
	eachAPI(t, func(t *testing.T, db *dbtest.DB, api http.Handler) {
		c := serve(t, api, client.Options{})
		_, err := c.SetQueue(t.Context(), "q", wire.QueueChange{MaxAttempts: -1})
		var p *client.Problem
		if !errors.As(err, &p) || p.Status != 422 || len(p.Errors) != 1 || p.Errors[0].Location != "body.max_attempts" {
			t.Fatalf("got %v", err)
		}
		if text := err.Error(); !strings.Contains(text, "PUT /queues/q: 422") || !strings.Contains(text, "body.max_attempts") {
			t.Errorf("it says %q", text)
		}
		secret, err := httpapi.NewTokens(db.DB).Create(t.Context(), "shop", []httpapi.Scope{httpapi.ScopeEnqueue}, 0)
		must(t, err)
		shop := serve(t, newAPI(t, db), // which has not seen yet that there was no token
			client.Options{Token: secret})
		_, err = shop.Enqueue(t.Context(), client.Job{Kind: "x"})
		must(t, err)
		if _, err := shop.Queues(t.Context()); !errors.As(err, &p) || p.Status != 403 {
			t.Errorf("a token without the scope: %v", err)
		}
	})
}

// A proxy in front of a daemon answers with anything, and clients give up after a while.
func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("<html>"))
	}), client.Options{Tries: 3})
	_, err := c.Enqueue(t.Context(), client.Job{Kind: "x"})
	var p *client.Problem
	if !errors.As(err, &p) || p.Status != 502 || p.Title != "Bad Gateway" || n.Load() != 3 {
		t.Errorf("got %v after %d tries", err, n.Load())
	}
	for _, address := range []string{"", "127.0.0.1:8686", "ftp://x", "http://u:p@x", "http://x?y"} {
		if _, err := client.New(address, client.Options{}); err == nil {
			t.Errorf("%q is an address", address)
		}
	}
}

func TestFindings(t *testing.T) {
	eachAPI(t, func(t *testing.T, _ *dbtest.DB, api http.Handler) {
		c := serve(t, api, client.Options{})
		ctx := t.Context()
		_, err := c.SetQueue(ctx, "mail", wire.QueueChange{})
		must(t, err)
		must(t, c.Pause(ctx, "mail", "the relay is down"))
		all, err := c.Findings(ctx)
		must(t, err)
		if len(all) != 1 || all[0].What != "Queue mail is paused" || all[0].Why != "the relay is down" || all[0].AcknowledgedBy != "" {
			t.Fatalf("%+v", all)
		}
		must(t, c.AcknowledgeFinding(ctx, all[0].ID, "since Monday"))
		if all, err = c.Findings(ctx); err != nil || len(all) != 1 || all[0].AcknowledgedBy == "" || all[0].Reason != "since Monday" {
			t.Errorf("%+v, %v", all, err)
		}
		must(t, c.ReopenFinding(ctx, all[0].ID))
		if all, err = c.Findings(ctx); err != nil || len(all) != 1 || all[0].AcknowledgedBy != "" {
			t.Errorf("%+v, %v", all, err)
		}
		if err := c.AcknowledgeFinding(ctx, "none", ""); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("one that there is not: %v", err)
		}
	})
}
