package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

var pushJobs = flag.Int("push-jobs", 20_000, "jobs that are ready before they are sent, for TestPushDispatch")

// A pushed is package queue as a peer, with HTTP on both sides: jobs are enqueued through the API
// and sent to a worker that answers at once.
type pushed struct {
	*ours
	concurrency int
	url         string // of the API
	client      *http.Client
	worker      *httptest.Server
	do          atomic.Pointer[func(context.Context, int64)] // called when a job arrives
}

func newPushed(t *testing.T, b *bed, as string, concurrency int) *pushed {
	t.Helper()
	p := &pushed{ours: newOurs(t, b, as, queue.WorkerOptions{}), concurrency: concurrency, client: keepAlive(t)}
	if _, err := adminOf(p.c).Edit(t.Context(), "default", func(*admin.Queue) {}); err != nil {
		t.Fatal(err)
	}
	api, err := httpapi.New(open(t, b.URL, 10), httpapi.Options{Logger: strict(t), Doorbell: doorbell.Doorbell})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api)
	t.Cleanup(func() {
		server.Close()
		if err := api.Flush(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	p.url = server.URL + "/api/v1/jobs"
	p.worker = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		id, err := strconv.ParseInt(r.Header.Get("Webhook-Id"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		(*p.do.Load())(r.Context(), id)
	}))
	t.Cleanup(p.worker.Close)
	return p
}

// keepAlive returns a client that keeps any number of connections open.
func keepAlive(t *testing.T) *http.Client {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func (p *pushed) one(ctx context.Context, n int) (int64, error) {
	var made struct {
		ID int64 `json:"id,string"`
	}
	err := post(ctx, p.client, p.url, jobText(n), &made)
	return made.ID, err
}

// work starts a dispatcher, as another process would, and returns a function that stops it.
func (p *pushed) work(t *testing.T, do func(ctx context.Context, id int64)) (stop func()) {
	t.Helper()
	p.do.Store(&do)
	db := open(t, p.URL, 10)
	_, _, err := push.NewEndpoints(db).Edit(t.Context(), "default", func(e *push.Endpoint) {
		e.URL, e.Concurrency = p.worker.URL, p.concurrency
	})
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := push.ParseHosts([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	d, err := push.New(db, push.Options{Hosts: hosts, Logger: strict(t), Doorbell: doorbell.Doorbell})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := d.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); group.Wait() }
	t.Cleanup(stop)
	return stop
}

// jobText is job n as the API accepts it.
func jobText(n int) []byte { return fmt.Appendf(nil, `{"kind":"noop","payload":%s}`, payload(n)) }

// batchText is n jobs as the API accepts them.
func batchText(first, n int) []byte {
	text := []byte(`{"jobs":[`)
	for i := range n {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, jobText(first+i)...)
	}
	return append(text, "]}"...)
}

// post sends a request that must succeed and reads its answer.
func post(ctx context.Context, c *http.Client, url string, body []byte, answer any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	got, err := c.Do(r)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return err
	}
	if got.StatusCode >= 300 {
		return fmt.Errorf("HTTP %d: %s", got.StatusCode, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// An echo is the API's floor: it reads the same JSON and answers, without a database.
type echo struct{ jobs atomic.Int64 }

type echoJob struct {
	Kind    string          `json:"kind"`
	Payload json.RawMessage `json:"payload"`
}

type echoMade struct {
	ID    string `json:"id"`
	Queue string `json:"queue"`
}

func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	var batch struct {
		echoJob
		Jobs []echoJob `json:"jobs"`
	}
	if err == nil {
		err = json.Unmarshal(text, &batch)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	n := max(1, len(batch.Jobs))
	e.jobs.Add(int64(n))
	made := make([]echoMade, n)
	for i := range made {
		made[i] = echoMade{"890927924496436505", "default"}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	if batch.Jobs == nil {
		_ = json.NewEncoder(w).Encode(made[0])
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"jobs": made})
}

// TestPushEnqueue prints how many jobs a second clients enqueue through the API, one per request and
// a hundred. For comparison it prints a handler that only reads the same JSON, and package queue
// without HTTP.
func TestPushEnqueue(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		p := newPushed(t, b, "HTTP API", 1)
		floor := &echo{}
		bare := httptest.NewServer(floor)
		t.Cleanup(bare.Close)
		for _, way := range []struct{ clients, per int }{{1, 1}, {32, 1}, {1, 100}, {32, 100}} {
			text := jobText
			path, direct := "", singles(p.ours)
			if way.per > 1 {
				path = "/batch"
				text = func(n int) []byte { return batchText(n, way.per) }
				direct = contestantOf(p, func(ctx context.Context, n int) error { return p.many(ctx, n, way.per) })
			}
			direct.name = "package queue, without HTTP"
			figures := contest(t, b, way.clients, way.per, []contestant{
				contestantOf(p, func(ctx context.Context, n int) error { return post(ctx, p.client, p.url+path, text(n), nil) }),
				{
					"the same JSON, no database",
					func(ctx context.Context, n int) error { return post(ctx, p.client, bare.URL, text(n), nil) },
					func(*testing.T) int64 { return floor.jobs.Load() },
					func(*testing.T) { floor.jobs.Store(0) },
				},
				direct,
			})
			report(t, b, fmt.Sprintf("%2d clients, %3d jobs a request", way.clients, way.per), figures)
		}
	})
}

// TestPushDispatch prints how many jobs a second of a large backlog are sent to a worker that
// answers at once. For comparison it prints how many a loop without a database sends.
func TestPushDispatch(t *testing.T) {
	const loops = 64
	queues(t, func(t *testing.T, b *bed) {
		var figures []figure
		for _, concurrency := range []int{64, 32, 128} {
			p := newPushed(t, b, fmt.Sprintf("push, concurrency %d", concurrency), concurrency)
			drain(t, p, min(2000, *pushJobs)) // warm up connections, prepared statements
			figures = append(figures, figure{p.String(), drain(t, p, *pushJobs)})
			if concurrency == loops {
				figures = append(figures, figure{fmt.Sprintf("%d loops, no database", loops), p.loop(t, loops, *pushJobs)})
			}
		}
		report(t, b, fmt.Sprintf("dispatch of %d", *pushJobs), figures)
	})
}

// loop sends n payloads to the worker and returns the number per second.
func (p *pushed) loop(t *testing.T, loops, n int) float64 {
	t.Helper()
	seen := newStarts(n)
	do := seen.note
	p.do.Store(&do)
	client := keepAlive(t)
	var next atomic.Int64
	var group sync.WaitGroup
	begun := time.Now()
	for range loops {
		group.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.worker.URL, bytes.NewReader(payload(int(i))))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Webhook-Id", strconv.FormatInt(i, 10))
				got, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, got.Body)
				got.Body.Close()
			}
		})
	}
	group.Wait()
	rate := perSecond(int64(n), time.Since(begun))
	seen.check(t, p, n)
	return rate
}

// TestPushLatency prints the time from the request that enqueues a job to its arrival at the worker,
// at 100 jobs a second (-rate) that arrive at random. For comparison it prints the time from the
// call to the handler without HTTP.
func TestPushLatency(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		var first [2]time.Duration
		for i, p := range []peer{newPushed(t, b, "HTTP to HTTP", 64), newRinging(t, b)} {
			p50, p99, most, n := latency(t, p)
			ratio := ""
			if i == 0 {
				first = [2]time.Duration{p50, p99}
			} else {
				ratio = fmt.Sprintf("; HTTP to HTTP is %.2f and %.2f of it", float64(first[0])/float64(p50), float64(first[1])/float64(p99))
			}
			t.Logf("%-8s %-24v p50 %8v, p99 %8v, most %8v of %d%s", b.Dialect.Name, p, p50, p99, most, n, ratio)
		}
	})
}
