package httpapi

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// An ear reads a stream of events.
type ear struct {
	t      *testing.T
	lines  *bufio.Scanner
	status int
	close  func()
	id     string // of the last event that had one
}

// listen follows events until the test ends, or close is called.
func (s *service) listen(headers ...string) *ear {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), longWait)
	r, err := http.NewRequestWithContext(ctx, "GET", s.url+"/api/v1/events", http.NoBody)
	must(s.t, err)
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	got, err := s.client.Do(r)
	must(s.t, err)
	e := &ear{t: s.t, lines: bufio.NewScanner(got.Body), status: got.StatusCode}
	e.close = func() {
		cancel()
		_ = got.Body.Close()
	}
	s.t.Cleanup(e.close)
	if got.StatusCode == 200 && got.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Errorf("it is %s", got.Header.Get("Content-Type"))
	}
	return e
}

// next returns the next event of a name whose data contains a text.
func (e *ear) next(name, text string) string {
	e.t.Helper()
	is := ""
	for e.lines.Scan() {
		field, value, _ := strings.Cut(e.lines.Text(), ": ")
		switch field {
		case "event":
			is = value
		case "id":
			e.id = value
		case "data":
			if is == name && strings.Contains(value, text) {
				return value
			}
		}
	}
	e.t.Fatalf("the stream has ended before %s %s: %v", name, text, e.lines.Err())
	return ""
}

// ends reads the rest of the stream.
func (e *ear) ends() {
	for e.lines.Scan() {
	}
}

// All followers get the events of runs and queues, which one reader finds for all of them, and
// only while there are any.
func TestEvents(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s, elsewhere := serve(t, db.DB, Options{}), other(t, db)
		must(t, scheduler.Add(t.Context(), db.DB, scheduler.Schedule{Name: "a", Spec: "@manual", Command: "true"}))
		elsewhere.enqueue(object{"kind": "x", "queue": "mail"})
		first, second := s.listen(), s.listen()
		first.next("queue", `"queue":"mail","state":"active","ready":1`)
		first.next("ready", "{}")
		second.next("ready", "{}")
		run := read[wire.Run](elsewhere.post("/api/v1/schedules/a/run", nil).is(201)).ID
		for _, e := range []*ear{first, second} {
			e.next("run", `"id":"`+run+`","schedule":"a"`)
		}
		elsewhere.enqueue(object{"kind": "x", "queue": "mail"})
		first.next("queue", `"queue":"mail","state":"active","ready":2`)
		elsewhere.post("/api/v1/runs/"+run+"/cancel", nil).is(200)
		first.next("run", `"state":"cancelled"`)
		first.close()
		second.next("run", `"state":"cancelled"`)
		second.close()
		waitUntil(t, "nobody is looked for", func() bool {
			s.api.hub.mu.Lock()
			defer s.api.hub.mu.Unlock()
			return s.api.hub.stop == nil && len(s.api.hub.followers) == 0
		})
	})
}

// A client that reconnects gets the outcomes of all runs that had not ended, or did not exist.
func TestEventsAgain(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		for _, name := range []string{"a", "b"} {
			must(t, scheduler.Add(t.Context(), db.DB, scheduler.Schedule{Name: name, Spec: "@manual", Command: "true"}))
		}
		open := read[wire.Run](s.post("/api/v1/schedules/a/run", nil).is(201)).ID
		e := s.listen()
		e.next("ready", "{}")
		last := e.id
		if last == "" || last >= open {
			t.Errorf("the mark is %s, and %s is open", last, open)
		}
		e.close()
		later := read[wire.Run](s.post("/api/v1/schedules/b/run", nil).is(201)).ID
		s.post("/api/v1/runs/"+open+"/cancel", nil).is(200)
		again := s.listen("Last-Event-ID: " + last)
		again.next("run", `"id":"`+open+`"`)
		again.next("run", `"id":"`+later+`"`)
		again.next("ready", "{}")
		s.listen("Last-Event-ID: 9999999999999999999").next("ready", "{}")
		s.send("GET", "/api/v1/events", nil, "Last-Event-ID: x").is(422).at("header.Last-Event-ID")
	})
}

// watched lets a follower listen whom a test has look itself.
func watched(t *testing.T, h *hub) (*watch, *follower) {
	t.Helper()
	w, l := &watch{hub: h, known: map[int64]string{}}, &follower{events: make(chan []byte, backlog), slow: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	must(t, w.begin(t.Context()))
	h.followers[l] = struct{}{}
	t.Cleanup(func() { h.leave(l) })
	return w, l
}

// Of the runs found in one look, only the last event has the mark: a client that received only
// the first reconnects for the others.
func TestEventsOfOneLook(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		must(t, scheduler.Add(t.Context(), db.DB,
			scheduler.Schedule{Name: "a", Spec: "@manual", Command: "true", Policy: scheduler.Policy{Overlap: "allow"}}))
		var runs []string
		for range 2 {
			runs = append(runs, read[wire.Run](s.post("/api/v1/schedules/a/run", nil).is(201)).ID)
		}
		w, l := watched(t, s.api.hub)
		for _, run := range runs {
			s.post("/api/v1/runs/"+run+"/cancel", nil).is(200)
		}
		must(t, w.once(t.Context(), false))
		if len(l.events) != 2 {
			t.Fatalf("%d events", len(l.events))
		}
		if first := string(<-l.events); strings.Contains(first, "\nid: ") {
			t.Errorf("the first one is %s", first)
		}
		if last := string(<-l.events); !strings.Contains(last, "\nid: "+runs[1]+"\n") {
			t.Errorf("the last one is %s", last)
		}
	})
}

// Events of runs are sent even if the queues cannot be read.
func TestEventsWithoutFigures(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		must(t, scheduler.Add(t.Context(), db.DB, scheduler.Schedule{Name: "a", Spec: "@manual", Command: "true"}))
		w, l := watched(t, s.api.hub)
		run := read[wire.Run](s.post("/api/v1/schedules/a/run", nil).is(201)).ID
		s.api.hub.sample.until = 0
		db.Do(t, `DROP TABLE {prefix}job_count`, nil)
		if err := w.once(t.Context(), true); err == nil {
			t.Error("nothing went wrong")
		}
		if len(l.events) != 1 {
			t.Fatalf("%d events", len(l.events))
		}
		if told := string(<-l.events); !strings.Contains(told, `"id":"`+run+`"`) {
			t.Errorf("told is %s", told)
		}
	})
}

// So many can listen, with a token that is good, and until the daemon begins to end.
func TestEventsEnd(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		stopping := make(chan struct{})
		s := serve(t, db.DB, Options{Stopping: stopping})
		e := s.listen()
		e.next("ready", "{}")
		s.api.hub.mu.Lock()
		for range maxFollowers - 1 {
			s.api.hub.followers[&follower{}] = struct{}{}
		}
		s.api.hub.mu.Unlock()
		s.send("GET", "/api/v1/events", nil).is(503)
		s.api.hub.mu.Lock()
		for l := range s.api.hub.followers {
			if l.events == nil {
				delete(s.api.hub.followers, l)
			}
		}
		s.api.hub.mu.Unlock()
		close(stopping)
		e.ends()
		if err := e.lines.Err(); err != nil {
			t.Errorf("it was broken off: %v", err)
		}
		s.get("/api/v1/events").is(200).has("event: ready")
	})
}

// One token can use at most a fifth of the places, so that others find some.
func TestEventsOfOneToken(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s, tokens := serve(t, db.DB, Options{}), NewTokens(db.DB)
		secrets := map[string]string{}
		for _, name := range []string{"greedy", "modest"} {
			var err error
			secrets[name], err = tokens.Create(t.Context(), name, []Scope{ScopeRead}, 0)
			must(t, err)
		}
		s.token = secrets["greedy"]
		var all []*ear
		for range maxOfToken {
			e := s.listen()
			e.next("ready", "{}")
			all = append(all, e)
		}
		s.get("/api/v1/events").is(429).has("with this token")
		s.token = secrets["modest"]
		e := s.listen()
		e.next("ready", "{}")
		s.token = secrets["greedy"]
		all[0].close()
		eventually(t, "a place is free", func() bool {
			e := s.listen()
			defer e.close()
			return e.status == 200
		})
		for _, e := range append(all, e) {
			e.close()
		}
	})
}

// The server's time for an answer does not end a stream, in HTTP/1 and in HTTP/2.
func TestEventsOutlastTheServersTime(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		must(t, scheduler.Add(t.Context(), db.DB, scheduler.Schedule{Name: "a", Spec: "@manual", Command: "true"}))
		const limit = 3 * time.Second
		var ears []*ear
		for _, http2 := range []bool{false, true} {
			server := httptest.NewUnstartedServer(s.api)
			server.EnableHTTP2, server.Config.WriteTimeout = http2, limit
			server.StartTLS()
			t.Cleanup(server.Close)
			e := (&service{t: t, url: server.URL, client: server.Client()}).listen()
			t.Cleanup(e.close)
			e.next("ready", "{}")
			ears = append(ears, e)
		}
		<-time.After(limit + limit/2) // its time is over by then, however slow all is
		s.post("/api/v1/schedules/a/run", nil).is(201)
		for _, e := range ears {
			e.next("run", `"schedule":"a"`)
		}
	})
}

// A client that does not keep up is disconnected, and reconnects for what it has missed.
func TestSlowFollower(t *testing.T) {
	t.Parallel()
	h := &hub{followers: map[*follower]struct{}{}}
	slow, fast := &follower{events: make(chan []byte, 1), slow: make(chan struct{})},
		&follower{events: make(chan []byte, 3), slow: make(chan struct{})}
	h.followers[slow], h.followers[fast] = struct{}{}, struct{}{}
	h.tell([][]byte{[]byte("1"), []byte("2"), []byte("3")})
	if _, ok := h.followers[fast]; !ok || len(h.followers) != 1 || len(fast.events) != 3 {
		t.Errorf("left are %v", h.followers)
	}
	select {
	case <-slow.slow:
	default:
		t.Error("it does not know")
	}
}

// waitUntil waits for what must come about.
func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(longWait)
	for !is() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
