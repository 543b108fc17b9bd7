package scheduler

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
)

// endpoint is a server that answers by the path of a request.
func endpoint(t *testing.T, answer map[string]http.HandlerFunc) (address string) {
	t.Helper()
	mux := http.NewServeMux()
	for path, f := range answer {
		mux.HandleFunc(path, f)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// 2xx is success, a redirect is not followed, and anything else is a failure.
// The status is the exit code, and the answer's head and tail the output.
func TestRequests(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		var followed sync.Map
		url := endpoint(t, map[string]http.HandlerFunc{
			"/ok": status(200, "fine\n"), "/created": status(201, ""), "/empty": status(204, ""), "/bad": status(400, "no such report"),
			"/failed": status(503, "later\n"), "/binary": status(200, "a\x00b\xff"),
			"/away": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/target", http.StatusFound) },
			"/target": func(http.ResponseWriter, *http.Request) {
				followed.Store("target", true)
			},
			"/big": func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "begin")
				for range 160 {
					_, _ = w.Write([]byte(strings.Repeat("x", 1<<16)))
				}
				_, _ = io.WriteString(w, "end")
			},
			"/cut": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "1000")
				_, _ = io.WriteString(w, "half")
			},
		})
		refused := "127.0.0.1:" + dbtest.FreePort(t)
		cases := map[string]struct {
			target string
			state  string
			code   int
			err    string
			output func(string) bool
		}{
			"ok":      {url + "/ok", "ok", 200, "", is("fine\n")},
			"created": {url + "/created", "ok", 201, "", is("")},
			"empty":   {url + "/empty", "ok", 204, "", is("")},
			"bad":     {url + "/bad", "failed", 400, "status 400", is("no such report")},
			"missing": {url + "/nowhere", "failed", 404, "status 404", nil},
			"failed":  {url + "/failed", "failed", 503, "status 503", is("later\n")},
			"away":    {url + "/away", "failed", 302, "not followed", nil},
			"binary":  {url + "/binary", "ok", 200, "", is("a\uFFFDb\uFFFD")},
			"big": {url + "/big", "ok", 200, "", func(o string) bool {
				return len(o) < 70_000 && strings.HasPrefix(o, "beginxxx") && strings.HasSuffix(o, "xxxend") && strings.Contains(o, "bytes left out")
			}},
			"cut":     {url + "/cut", "failed", 200, "EOF", is("half")},
			"refused": {"http://" + refused + "/", "failed", -1, "refused", is("")},
		}
		for name, c := range cases {
			addJob(t, db, Schedule{Name: name, Kind: "http", Command: "GET " + c.target})
		}
		db.Advance(t, time.Hour)
		work(t, daemon(t, db, Options{}))
		for name, c := range cases {
			r := only(t, db, name)
			if r.State != c.state || r.ExitCode != c.code || !strings.Contains(r.Error, c.err) ||
				(c.err == "") != (r.Error == "") || c.output != nil && !c.output(r.Output) {
				t.Errorf("%s: state %s, status %d, error %q, output %.100q (%d bytes)", name, r.State, r.ExitCode, r.Error, r.Output, len(r.Output))
			}
		}
		if _, yes := followed.Load("target"); yes {
			t.Error("the redirect was followed")
		}
	})
}

// The endpoint gets the schedule's method, headers and body, and the run's headers; each
// attempt at a slot has the same Idempotency-Key, and other slots have others.
func TestWhatARequestSays(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		var mu sync.Mutex
		got := []*http.Request{}
		bodies := []string{}
		url := endpoint(t, map[string]http.HandlerFunc{"/report": func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			got, bodies = append(got, r), append(bodies, string(body))
			if len(got) < 3 {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}})
		headers := map[string]string{
			"authorization": "Bearer x y", "Content-Type": "application/json",
			"Host": "example.org", "User-Agent": "mine",
		}
		addJob(t, db, Schedule{
			Name: "jób \"1\"", Kind: "http", Command: "PUT " + url + "/report?a=1&b=%20", Stdin: `{"a": "é"}`, Headers: headers,
			Policy: Policy{MaxAttempts: 3, RetryDelay: time.Second},
		})
		s := daemon(t, db, Options{})
		for _, d := range []time.Duration{time.Hour, time.Second, 2 * time.Second, time.Hour} {
			db.Advance(t, d)
			work(t, s)
		}
		wantRows(t, db, "jób \"1\"", "3600 1 failed", "3600 2 failed", "3600 3 ok", "7200 1 ok")
		runs := allRuns(t, db, "")
		if len(got) != 4 {
			t.Fatalf("%d requests, want 4", len(got))
		}
		for i, r := range got {
			want := map[string]string{
				"Authorization": "Bearer x y", "Content-Type": "application/json", "User-Agent": "mine",
				"Dbcron-Schedule": `"j\u00f3b \"1\""`, "Dbcron-Run-Id": fmt.Sprint(runs[i].ID), "Dbcron-Attempt": fmt.Sprint(i%3 + 1),
				"Dbcron-Due": runs[i].Due.Format(time.RFC3339), "Dbcron-Fence": fmt.Sprint(i + 1),
			}
			if r.Method != http.MethodPut || r.URL.String() != "/report?a=1&b=%20" || r.Host != "example.org" || bodies[i] != `{"a": "é"}` {
				t.Errorf("request %d: %s %s to %s, body %q", i, r.Method, r.URL, r.Host, bodies[i])
			}
			for name, value := range want {
				if r.Header.Get(name) != value {
					t.Errorf("request %d: %s is %q, want %q", i, name, r.Header.Get(name), value)
				}
			}
			key, first := r.Header.Get("Idempotency-Key"), got[0].Header.Get("Idempotency-Key")
			if key == "" || (key == first) != (i < 3) {
				t.Errorf("request %d: the key is %q, and that of the first %q", i, key, first)
			}
		}
	})
}

// Two schedules with slots at the same time have different keys.
func TestIdempotencyKeysDiffer(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		var keys sync.Map
		url := endpoint(t, map[string]http.HandlerFunc{"/": func(_ http.ResponseWriter, r *http.Request) {
			keys.Store(r.Header.Get("Idempotency-Key"), true)
		}})
		names := []string{"a", "A", "a/1", "ä", "🕰"}
		for _, name := range names {
			addJob(t, db, Schedule{Name: name, Kind: "http", Command: "POST " + url})
		}
		db.Advance(t, time.Hour)
		work(t, daemon(t, db, Options{}))
		all := map[any]any{}
		keys.Range(func(k, v any) bool { all[k] = v; return true })
		if len(all) != len(names) {
			t.Errorf("%d keys for %d schedules: %v", len(all), len(names), maps.Keys(all))
		}
	})
}

// An endpoint that does not answer is left by the timeout, by a cancellation and
// when the lease ends; and it can tell.
func TestAnEndpointThatHangs(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		asked, left := make(chan string, 100), make(chan string, 100)
		url := endpoint(t, map[string]http.HandlerFunc{"/": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "half an answer")
			w.(http.Flusher).Flush()
			asked <- r.URL.Path
			<-r.Context().Done()
			left <- r.URL.Path
		}})
		addJob(t, db, Schedule{
			Name: "timeout", Kind: "http", Command: "GET " + url + "/timeout",
			Policy: Policy{Timeout: 300 * time.Millisecond},
		})
		addJob(t, db, Schedule{Name: "cancel", Spec: "@every 2h", Kind: "http", Command: "GET " + url + "/cancel"})
		addJob(t, db, Schedule{Name: "lease", Spec: "@every 3h", Kind: "http", Command: "GET " + url + "/lease"})
		s := daemon(t, db, Options{})

		db.Advance(t, time.Hour)
		work(t, s)
		if r := only(t, db, "timeout"); r.State != "timeout" || r.ExitCode != -1 && r.ExitCode != 200 ||
			!strings.Contains(r.Error, "longer than 300ms") {
			t.Errorf("%+v", r)
		}
		db.Do(t, `UPDATE {prefix}schedule SET state = 'paused' WHERE name = 'timeout'`, nil)
		for len(asked) > 0 {
			<-asked
		}

		db.Advance(t, time.Hour)
		beginDue(t, s)
		<-asked
		cancelRun(t, db, s, only(t, db, "cancel").ID, "enough")
		work(t, s)
		if r := only(t, db, "cancel"); r.State != "cancelled" || r.Error != "enough" {
			t.Errorf("%+v", r)
		}

		db.Advance(t, time.Hour)
		db.Do(t, `UPDATE {prefix}schedule SET state = 'paused' WHERE name = 'cancel'`, nil)
		runs, _, err := s.claim(t.Context(), "default", 1)
		if err != nil || len(runs) != 1 {
			t.Fatal(runs, err)
		}
		runs[0].deadline = instant.Now().Add(time.Second)
		s.start(t.Context(), runs)
		s.runs.Wait()
		db.Advance(t, 30*time.Second) // it is handed back, or its lease runs out
		taken := takenOver(t, daemon(t, db, Options{}), 10)
		if all := rows(t, db, "lease"); len(taken) != 1 || len(all) != 2 || all[0] != "10800 1 lost" {
			t.Errorf("the run of an ended lease: %q", all)
		}
		for gone := ""; gone != "/cancel"; gone = <-left { // the others may not have got as far as that
		}
	})
}

// A request of a schedule without a timeout has one all the same, and one with a longer timeout has that.
func TestARequestWithoutATimeoutEnds(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		url := endpoint(t, map[string]http.HandlerFunc{
			"/hangs": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			"/waits": func(_ http.ResponseWriter, r *http.Request) {
				select {
				case <-time.After(50 * time.Millisecond): // longer than a request without a timeout may take here
				case <-r.Context().Done():
				}
			},
		})
		addJob(t, db, Schedule{Name: "hangs", Kind: "http", Command: "GET " + url + "/hangs"})
		addJob(t, db, Schedule{Name: "waits", Kind: "http", Command: "GET " + url + "/waits", Policy: Policy{Timeout: time.Hour}})
		s := daemon(t, db, Options{Lease: time.Hour})
		s.requestTimeout = 10 * time.Millisecond
		db.Advance(t, time.Hour)
		work(t, s)
		if r := only(t, db, "hangs"); r.State != "failed" || !strings.Contains(r.Error, "deadline") {
			t.Errorf("without a timeout: %s, %s", r.State, r.Error)
		}
		if r := only(t, db, "waits"); r.State != "ok" {
			t.Errorf("with a longer one: %s, %s", r.State, r.Error)
		}
	})
}

// What is no request is refused.
func TestParseRequest(t *testing.T) {
	for _, text := range []string{
		"", "GET", "http://localhost/", "get http://localhost/", "GET  http://localhost/", "GET ftp://localhost/", "GET /path", "GET localhost/",
		"GET http://", "GET http://user:password@localhost/", "GE(T http://localhost/", "GET http://localhost/a b\x7f", "GET https:///path",
	} {
		if m, u, err := parseRequest(text); err == nil {
			t.Errorf("%q is %q %q", text, m, u)
		}
	}
	for text, want := range map[string][2]string{
		"GET http://localhost":                  {"GET", "http://localhost"},
		"POST https://example.org:8443/a?b=c#d": {"POST", "https://example.org:8443/a?b=c#d"},
		"PURGE http://[::1]/":                   {"PURGE", "http://[::1]/"},
	} {
		if m, u, err := parseRequest(text); err != nil || m != want[0] || u != want[1] {
			t.Errorf("%q is %q %q, %v", text, m, u, err)
		}
	}
}
