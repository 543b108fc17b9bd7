package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// A job is a request: its payload byte for byte, who it is in headers, signed.
func TestRequest(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, r := client(t, db), receive(t, nil)
		e := point(t, db, c, "q", r.URL+"/jobs?of=shop", nil)
		requests := make(chan string, 100)
		start(t, db, Options{Version: "1.2", Observe: func(origin string, status int, took time.Duration) {
			requests <- fmt.Sprintf("%s %d %t", origin, status, took > 0)
		}})
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		id := enqueue(t, c, queue.Job{
			Kind: "größe: 50 %", Key: "kunde 7", Payload: []byte(`{"a":  1 }`), Trace: trace, MaxAttempts: 4, Timeout: time.Hour,
		})
		becomes(t, c, id, "")
		g := r.wait(t, 1)[0]
		if got, want := <-requests, r.URL+" 200 true"; got != want {
			t.Errorf("observed %q, want %q", got, want)
		}
		if g.body != `{"a":  1 }` {
			t.Errorf("the body is %q", g.body)
		}
		text := strconv.FormatInt(id, 10)
		for name, want := range map[string]string{
			"Content-Type": "application/json", "User-Agent": "dbcron/1.2", "Webhook-Id": text, "Idempotency-Key": text,
			"Dbcron-Queue": "q", "Dbcron-Kind": "gr%C3%B6%C3%9Fe:%2050%20%25", "Dbcron-Key": "kunde%207",
			"Dbcron-Attempt": "1", "Dbcron-Max-Attempts": "4",
			"Traceparent": trace, "Ce-Id": "",
		} {
			if got := g.header.Get(name); got != want {
				t.Errorf("%s: %q, not %q", name, got, want)
			}
		}
		deadline, err := time.Parse(time.RFC3339, g.header.Get("Dbcron-Deadline"))
		if left := deadline.Sub(enqueuedAt(id)); err != nil || (left-time.Hour).Abs() > longWait {
			t.Errorf("the deadline is %s, %v after the job was enqueued: %v", deadline, left, err)
		}
		verifies(t, g, e.Secret)

		binary := enqueue(t, c, queue.Job{Payload: []byte("\xff\x00"), Binary: true})
		empty := enqueue(t, c, queue.Job{})
		becomes(t, c, binary, "")
		becomes(t, c, empty, "")
		for _, g := range r.wait(t, 3)[1:] {
			want, body := "application/json", ""
			if g.header.Get("Webhook-Id") == strconv.FormatInt(binary, 10) {
				want, body = "application/octet-stream", "\xff\x00"
			}
			if g.header.Get("Content-Type") != want || g.body != body || g.header.Get("Dbcron-Max-Attempts") != "10" {
				t.Errorf("%q %v", g.body, g.header)
			}
			verifies(t, g, e.Secret)
		}
	})
}

// verifies checks a signature with the library that receivers use.
func verifies(t *testing.T, g got, secret string) {
	t.Helper()
	w, err := standardwebhooks.NewWebhook(secret)
	must(t, err)
	if err := w.Verify([]byte(g.body), g.header); err != nil {
		t.Errorf("the signature: %v", err)
	}
	if err := w.Verify([]byte(g.body+" "), g.header); err == nil {
		t.Error("another body has the same signature")
	}
}

// What is changed of an endpoint holds from the next job on, while it is sent to: its URL,
// format, and secrets, of which two sign at a time. A job may have an endpoint of its own.
func TestChanges(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c, first, second, own := client(t, db), receive(t, nil), receive(t, nil), receive(t, nil)
		all := NewEndpoints(db.DB)
		before := point(t, db, c, "q", first.URL, nil)
		start(t, db, Options{})
		becomes(t, c, enqueue(t, c, queue.Job{}), "")
		after := point(t, db, c, "q", second.URL, func(e *Endpoint) {
			e.Rotate(NewSecret())
			e.Format, e.Concurrency = FormatCloudEvents, 3
		})
		if after.Secret == before.Secret || after.OldSecret != before.Secret {
			t.Errorf("%q and %q after %q", after.Secret, after.OldSecret, before.Secret)
		}
		eventually(t, "the new endpoint has a job", func() bool {
			becomes(t, c, enqueue(t, c, queue.Job{Key: "a b"}), "")
			return len(second.got()) > 0
		})
		g := second.got()[0]
		verifies(t, g, before.Secret)
		verifies(t, g, after.Secret)
		id := g.header.Get("Webhook-Id")
		n, err := strconv.ParseInt(id, 10, 64)
		must(t, err)
		for name, want := range map[string]string{
			"Ce-Specversion": "1.0", "Ce-Id": id, "Ce-Source": "/dbcron/queues/q", "Ce-Type": "k", "Ce-Subject": "a%20b",
			"Ce-Time": enqueuedAt(n).Format("2006-01-02T15:04:05.000000Z"),
		} {
			if got := g.header.Get(name); got != want {
				t.Errorf("%s: %q, not %q", name, got, want)
			}
		}
		becomes(t, c, enqueue(t, c, queue.Job{Endpoint: own.URL + "/own"}), "")
		if len(own.got()) != 1 {
			t.Errorf("%d requests to the job's own endpoint", len(own.got()))
		}
		_, _, err = all.Edit(t.Context(), "q", func(e *Endpoint) { e.URL = "" })
		must(t, err)
		eventually(t, "a job that names no endpoint is dead", func() bool {
			id := enqueue(t, c, queue.Job{})
			var i admin.Job
			eventually(t, "it has ended", func() bool {
				var err error
				i, err = adminOf(c).Job(t.Context(), "q", id)
				return errors.Is(err, queue.ErrNotFound) || i.State == admin.StateDead
			})
			return i.State == admin.StateDead && strings.Contains(i.Error, "names no endpoint")
		})
		must(t, all.Delete(t.Context(), "q"))
		if err := all.Delete(t.Context(), "q"); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("a second time: %v", err)
		}
		w, err := c.Worker(queue.WorkerOptions{Queues: []string{"q"}, Lease: longWait})
		must(t, err)
		var done atomic.Bool // not a channel: a full one would block the handlers
		must(t, w.HandleOthers(func(context.Context, *queue.Delivery) error { done.Store(true); return nil }))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		eventually(t, "a worker does the jobs", func() bool {
			enqueue(t, c, queue.Job{Kind: "left"})
			return done.Load()
		})
		cancel()
		must(t, <-ended)
	})
}

// What answers make of jobs.
func TestAnswers(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db)
		r := receive(t, func(w http.ResponseWriter, q *http.Request) {
			for _, header := range q.URL.Query()["h"] {
				name, value, _ := strings.Cut(header, ":")
				w.Header().Set(name, value)
			}
			status, err := strconv.Atoi(q.URL.Query().Get("s"))
			if err != nil {
				t.Error(err)
			}
			w.WriteHeader(status)
			n, _ := strconv.Atoi(q.URL.Query().Get("n"))
			_, _ = w.Write([]byte(q.URL.Query().Get("b") + strings.Repeat("x", n)))
		})
		point(t, db, c, "q", "", nil)
		start(t, db, Options{})
		type want struct {
			state admin.State
			err   string
		}
		for query, want := range map[string]want{
			"s=200":                                  {"", ""},
			"s=204":                                  {"", ""},
			"s=202&b=" + esc(`{"status":"success"}`): {"", ""},
			"s=200&b=" + esc(`{"status":"of the art"}`): {"", ""},
			"s=200&b=" + esc(`{"status":7}`):            {"", ""},
			"s=200&b=" + esc(`[{"status":"failure"}]`):  {"", ""},
			"s=200&n=5000":                                  {"", ""},
			"s=200&h=Dbcron-No-Retry:true":                  {"", ""},
			"s=404&h=Dbcron-No-Retry:true&b=no+such+person": {admin.StateDead, "HTTP 404 Not Found: no such person"},
			"s=410": {admin.StateDead, "HTTP 410 Gone"},
			"s=200&b=" + esc(` {"status":"permanent-failure","message":"it \u0000 is lost"}`): {
				admin.StateDead,
				"permanent-failure: it \ufffd is lost",
			},
			"s=500&h=Retry-After:7200&b=oh": {
				admin.StateDelayed,
				"HTTP 500 Internal Server Error: oh",
			},
			"s=302&h=Retry-After:7200&h=Location:" + esc("http://127.0.0.1:1/"):           {admin.StateDelayed, "redirects are not followed"},
			"s=400&h=Retry-After:7200&n=5000":                                             {admin.StateDelayed, "xxx…"},
			"s=200&h=Retry-After:7200&b=" + esc(`{"status":"failure","message":"later"}`): {admin.StateDelayed, "failure: later"},
			"s=304&h=Retry-After:7200":                                                    {admin.StateDelayed, "HTTP 304"},
		} {
			id := enqueue(t, c, queue.Job{Endpoint: r.URL + "/?" + query})
			if i := becomes(t, c, id, want.state); !strings.Contains(i.Error, want.err) {
				t.Errorf("%.60s: %s with %q, not %q", query, i.State, i.Error, want.err)
			} else if want.state == admin.StateDelayed && (i.Attempts != 1 || (i.At.Sub(i.Enqueued)-2*time.Hour).Abs() > longWait) {
				t.Errorf("%.60s: tried again at %s after %d attempts", query, i.At, i.Attempts)
			}
		}
		id := enqueue(t, c, queue.Job{Endpoint: r.URL + "/?s=500", MaxAttempts: 3})
		if i := becomes(t, c, id, admin.StateDead); i.Attempts != 3 {
			t.Errorf("dead after %d attempts", i.Attempts)
		}
		seen := map[string]int{}
		for _, g := range r.got() {
			if g.header.Get("Webhook-Id") == strconv.FormatInt(id, 10) {
				seen[g.header.Get("Dbcron-Attempt")]++
			}
		}
		if fmt.Sprint(seen) != "map[1:1 2:1 3:1]" {
			t.Errorf("attempts %v", seen)
		}
	})
}

// An endpoint that hangs, drips, breaks off or has no end costs its own queue's time, and
// nobody else's; no job is lost.
func TestBadEndpoints(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db)
		over := make(chan struct{})
		bad := receive(t, func(w http.ResponseWriter, q *http.Request) {
			flush := http.NewResponseController(w).Flush
			switch q.URL.Path {
			case "/hangs":
			case "/drips":
				for {
					select {
					case <-over:
						return
					case <-q.Context().Done():
						return
					case <-time.After(20 * time.Millisecond):
						_, _ = w.Write([]byte(" "))
						_ = flush()
					}
				}
			case "/breaks":
				w.Header().Set("Content-Length", "100")
				_, _ = w.Write([]byte("half of"))
				_ = flush()
				panic(http.ErrAbortHandler)
			case "/switches":
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n"))
				<-over
				return
			case "/endless":
				for range 1 << 30 / len(plenty) {
					if _, err := w.Write(plenty); err != nil {
						return
					}
				}
				t.Error("all of it was read")
				return
			}
			select {
			case <-over:
			case <-q.Context().Done():
			}
		})
		t.Cleanup(func() { close(over) })
		good := receive(t, nil)
		ends := map[string]string{
			"hangs": "no whole answer within 300ms", "drips": "no whole answer within 300ms",
			"breaks": "HTTP 200, and the answer breaks off", "endless": "", "switches": "HTTP 101",
		}
		ids := map[string]int64{}
		for name := range ends {
			point(t, db, c, name, bad.URL+"/"+name, func(e *Endpoint) {
				e.Concurrency, e.Timeout = 2, longWait
				if strings.HasPrefix(ends[name], "no whole answer") { // the others end by themselves, also on a slow machine
					e.Timeout = 300 * time.Millisecond
				}
			})
		}
		point(t, db, c, "q", good.URL, nil)
		start(t, db, Options{})
		for name := range ends {
			ids[name] = enqueue(t, c, queue.Job{Queue: name, MaxAttempts: 2})
			for range 20 {
				enqueue(t, c, queue.Job{Queue: name, MaxAttempts: 1000})
			}
		}
		const many = 100
		var all []int64
		for range many {
			all = append(all, enqueue(t, c, queue.Job{}))
		}
		for _, id := range all {
			becomes(t, c, id, "")
		}
		if n := len(good.got()); n != many {
			t.Errorf("%d requests for %d jobs", n, many)
		}
		for name, text := range ends {
			eventually(t, name+": the first job has its end", func() bool {
				i, err := adminOf(c).Job(t.Context(), name, ids[name])
				if text == "" {
					return errors.Is(err, queue.ErrNotFound)
				}
				must(t, err)
				if i.State == admin.StateDead && !strings.Contains(i.Error, text) {
					t.Fatalf("%s: %q", name, i.Error)
				}
				return i.State == admin.StateDead
			})
		}
	})
}

var plenty = bytes.Repeat([]byte("x"), 1<<20)

// A host that says that there are too many requests gets few, until it is well. All jobs are
// done in the end.
func TestBusyHost(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db)
		var refused atomic.Int32
		r := receive(t, func(w http.ResponseWriter, _ *http.Request) {
			if refused.Add(1) <= 3 {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		point(t, db, c, "q", r.URL, func(e *Endpoint) { e.Concurrency = 1 })
		var ids []int64
		for range 20 {
			ids = append(ids, enqueue(t, c, queue.Job{}))
		}
		start(t, db, Options{})
		for _, id := range ids { // each by itself: a job that waits for its retry is in no list of ready ones
			becomes(t, c, id, "")
		}
		if n := len(r.got()); n != 23 {
			t.Errorf("%d requests for 20 jobs, of which 3 were refused", n)
		}
	})
}

// Jobs that wait for a host that is busy use up neither their time nor their attempts, and go
// where the endpoint leads when that is changed meanwhile. A dispatcher that ends does not wait
// for them.
func TestWaitingForAHost(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db)
		full := receive(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		})
		good := receive(t, nil)
		point(t, db, c, "q", full.URL, func(e *Endpoint) { e.Concurrency = 4 })
		stop := start(t, db, Options{Grace: longWait})
		first := enqueue(t, c, queue.Job{})
		if i := becomes(t, c, first, admin.StateDelayed); i.Attempts != 1 {
			t.Errorf("%+v", i)
		}
		// A job is shown as running after a second, which is twice its time. One whose time counted
		// while it waits would never get there. The attempts are for requests that take
		// longer on a slow machine.
		var ids []int64
		for range 4 {
			ids = append(ids, enqueue(t, c, queue.Job{Timeout: 500 * time.Millisecond, MaxAttempts: 1000}))
		}
		for _, id := range ids {
			becomes(t, c, id, admin.StateRunning)
		}
		point(t, db, c, "q", good.URL, nil)
		for _, id := range ids {
			becomes(t, c, id, "")
		}
		var own []int64
		for attempts := range 2 { // the first finds out that it is busy; the next goes back, since others need not wait for it
			own = append(own, enqueue(t, c, queue.Job{Endpoint: full.URL + "/own"}))
			if i := becomes(t, c, own[attempts], admin.StateDelayed); i.Attempts != 1-attempts || i.At.Sub(i.Enqueued) < 30*time.Minute {
				t.Errorf("%+v", i)
			}
		}
		point(t, db, c, "q", full.URL, nil)
		eventually(t, "it is followed", func() bool {
			id := enqueue(t, c, queue.Job{Key: "k"})
			var i admin.Job
			eventually(t, "it is done, or waits", func() bool {
				var err error
				i, err = adminOf(c).Job(t.Context(), "q", id)
				return errors.Is(err, queue.ErrNotFound) || i.State == admin.StateRunning
			})
			return i.State == admin.StateRunning
		})
		stop()
		if len(full.got()) != 2 {
			t.Errorf("%d requests to a host that is busy", len(full.got()))
		}
		jobs, _, err := adminOf(c).Jobs(t.Context(), admin.Filter{Queue: "q", State: admin.StateDelayed, Limit: 100})
		must(t, err)
		for _, i := range jobs {
			if i.ID != first && i.ID != own[0] && i.Attempts != 0 {
				t.Errorf("%+v", i)
			}
		}
	})
}

// Abort cancels requests under way, and these attempts do not count.
func TestAbort(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db)
		r := receive(t, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
		point(t, db, c, "q", r.URL, nil)
		d, err := New(db.DB, Options{Hosts: local(t), Logger: quiet(), Lease: longWait, Grace: longWait})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		id := enqueue(t, c, queue.Job{MaxAttempts: 1})
		r.wait(t, 1)
		cancel()
		d.Abort()
		must(t, <-ended)
		if i, err := adminOf(c).Job(t.Context(), "q", id); err != nil || i.State == admin.StateDead || i.Error != "" && i.Attempts > 0 {
			t.Errorf("%+v, %v", i, err)
		}
	})
}

// What may not be sent to is not, whatever its name; nothing is lost meanwhile.
func TestRefusedHosts(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, r := client(t, db), receive(t, nil)
		public, err := ParseHosts(nil)
		must(t, err)
		point(t, db, c, "q", strings.Replace(r.URL, "127.0.0.1", "localhost", 1), nil)
		id := enqueue(t, c, queue.Job{})
		stop := start(t, db, Options{Hosts: public})
		eventually(t, "it was tried", func() bool {
			i, err := adminOf(c).Job(t.Context(), "q", id)
			must(t, err)
			return strings.Contains(i.Error, "may not send there") && strings.Contains(i.Error, "--push-to")
		})
		stop()
		if n := len(r.got()); n != 0 {
			t.Errorf("%d requests came through", n)
		}
		start(t, db, Options{})
		becomes(t, c, id, "")
	})
}

// An invalid endpoint that was written by hand keeps its jobs until it is corrected.
func TestWrongEndpoint(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, r := client(t, db), receive(t, nil)
		point(t, db, c, "q", r.URL, nil)
		set := func(format string) {
			db.Do(t, `UPDATE {prefix}endpoint SET format = :format`, sqlrun.Args{"format": format})
		}
		set("morse")
		id := enqueue(t, c, queue.Job{})
		point(t, db, c, "other", r.URL, nil)
		start(t, db, Options{})
		enqueue(t, c, queue.Job{Queue: "other"})
		r.wait(t, 1)
		if i := becomes(t, c, id, admin.StateReady); i.Attempts != 0 {
			t.Errorf("%+v", i)
		}
		set("plain")
		becomes(t, c, id, "")
	})
}

// Of dispatchers on standby one sends; the next takes over when it ends, while its requests
// are still under way, and those are not sent twice.
func TestStandby(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db)
		var held atomic.Bool
		hold, release := make(chan struct{}), make(chan struct{})
		r := receive(t, func(http.ResponseWriter, *http.Request) {
			if held.CompareAndSwap(false, true) {
				close(hold)
				<-release
			}
		})
		point(t, db, c, "q", r.URL, nil)
		agent := func() map[string]int {
			all := map[string]int{}
			for _, g := range r.got() {
				all[g.header.Get("User-Agent")]++
			}
			return all
		}
		stop := start(t, db, Options{Standby: true, Version: "first", Grace: longWait})
		slow := enqueue(t, c, queue.Job{})
		<-hold
		start(t, dbtest.Open(t, db.URL, dialect.Options{MaxConns: 6}), Options{Standby: true, Version: "second"})
		for range 20 {
			becomes(t, c, enqueue(t, c, queue.Job{}), "")
		}
		if all := agent(); all["dbcron/second"] != 0 || all["dbcron/first"] != 21 {
			t.Errorf("requests by %v", all)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			stop()
		}()
		eventually(t, "the second one sends", func() bool {
			enqueue(t, c, queue.Job{})
			return agent()["dbcron/second"] > 0
		})
		close(release)
		<-ended
		becomes(t, c, slow, "")
		n := 0
		for _, g := range r.got() {
			if g.header.Get("Webhook-Id") == strconv.FormatInt(slow, 10) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("what was under way was sent %d times", n)
		}
	})
}

// Endpoints that cannot be are refused, and nothing is stored.
func TestEdit(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c, all := client(t, db), NewEndpoints(db.DB)
		if _, _, err := all.Edit(t.Context(), "none", func(*Endpoint) {}); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("no such queue: %v", err)
		}
		for _, name := range []string{"q", "a", "z"} {
			_, err := adminOf(c).Edit(t.Context(), name, func(*admin.Queue) {})
			must(t, err)
		}
		for field, change := range map[string]func(*Endpoint){
			"url": func(e *Endpoint) { e.URL = "gopher://a" }, "format": func(e *Endpoint) { e.Format = "" },
			"concurrency": func(e *Endpoint) { e.Concurrency = 0 },
			"timeout":     func(e *Endpoint) { e.Timeout = 0 }, "secret": func(e *Endpoint) { e.Secret = "whsec_short" },
			"old_secret": func(e *Endpoint) { e.OldSecret = "x" },
		} {
			var invalid *queue.InvalidError
			if _, _, err := all.Edit(t.Context(), "q", change); !errors.As(err, &invalid) || invalid.Field != field ||
				strings.Contains(err.Error(), "short") {
				t.Errorf("%s: %v", field, err)
			}
		}
		if _, err := all.Get(t.Context(), "q"); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("something was stored: %v", err)
		}
		for _, name := range []string{"q", "a", "z"} {
			e, made, err := all.Edit(t.Context(), name, func(e *Endpoint) { e.URL = "https://worker.example.org" })
			must(t, err)
			if !made || CheckSecret(e.Secret) != nil || e.Concurrency != usualConcurrency || e.Timeout != usualTimeout || e.Format != FormatPlain {
				t.Errorf("%v %+v", made, e)
			}
		}
		var group sync.WaitGroup // each adds one, none is lost
		for range 10 {
			group.Go(func() {
				_, made, err := all.Edit(t.Context(), "q", func(e *Endpoint) { e.Concurrency++ })
				if made || err != nil {
					t.Error(made, err)
				}
			})
		}
		group.Wait()
		e, err := all.Get(t.Context(), "q")
		must(t, err)
		if e.Concurrency != usualConcurrency+10 {
			t.Errorf("%d after ten changes", e.Concurrency)
		}
		list, err := all.List(t.Context(), "a", 1)
		must(t, err)
		if len(list) != 1 || list[0].Queue != "q" {
			t.Errorf("%+v", list)
		}
		_, _, err = all.Edit(t.Context(), "q", func(e *Endpoint) { e.Rotate(NewSecret()) })
		must(t, err)
		if _, _, err := all.Edit(t.Context(), "q", func(e *Endpoint) { e.Rotate(NewSecret()) }); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("the secret that receivers know is thrown away: %v", err)
		}
		given := NewSecret()
		must(t, all.Delete(t.Context(), "q"))
		e, _, err = all.Edit(t.Context(), "q", func(e *Endpoint) { e.Rotate(given) })
		must(t, err)
		if e.Secret != given || e.OldSecret != "" {
			t.Errorf("a new one with a secret has %+v", e)
		}
		must(t, adminOf(c).DeleteQueue(t.Context(), "q"))
		if list, err := all.List(t.Context(), "", 10); err != nil || len(list) != 2 {
			t.Errorf("with a deleted queue: %+v, %v", list, err)
		}
		if _, _, err := all.Edit(t.Context(), "q", func(*Endpoint) {}); !errors.Is(err, queue.ErrDeleted) {
			t.Errorf("a deleted queue: %v", err)
		}
	})
}

func esc(text string) string { return url.QueryEscape(text) }

// A log line can be had for each job that was sent, with its duration.
func TestLogDone(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, r := client(t, db), receive(t, nil)
		point(t, db, c, "q", r.URL, nil)
		for _, each := range []bool{false, true} {
			var log bytes.Buffer
			stop := start(t, db, Options{LogDone: each, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			id := enqueue(t, c, queue.Job{})
			becomes(t, c, id, "")
			stop() // nobody writes any more
			if got := strings.Contains(log.String(), fmt.Sprintf(`msg="job done" queue=q kind=k id=%d attempt=1`, id)); got != each {
				t.Errorf("with LogDone %t there is\n%s", each, log.String())
			}
		}
	})
}

// enqueuedAt returns the time that an id has, in units of 2^-12 µs since 2020.
func enqueuedAt(id int64) time.Time {
	return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(id>>12) * time.Microsecond)
}
