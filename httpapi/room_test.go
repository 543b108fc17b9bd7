package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// tokensOfOthers makes tokens with a scope.
func tokensOfOthers(t *testing.T, s *service, scope Scope, n int) []string {
	t.Helper()
	all := make([]string, n)
	for i := range all {
		var err error
		all[i], err = s.api.Tokens().Create(t.Context(), fmt.Sprintf("%s %d", scope, i), []Scope{scope}, 0)
		must(t, err)
	}
	return all
}

// linger begins a request whose body has a length, of which it sends one byte as soon as the server reads it, and no more until
// the test ends.
func (s *service) linger(path, token, length string) {
	s.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	must(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s\r\nExpect: 100-continue\r\n\r\n",
		path, strings.TrimPrefix(s.url, "http://"), token, length)
	must(s.t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	must(s.t, err)
	if !strings.Contains(line, "100 Continue") {
		s.t.Fatalf("the server says %s", line)
	}
	begin := "{"
	if strings.HasPrefix(length, "Transfer-Encoding") {
		begin = "1\r\n{\r\n"
	}
	_, err = conn.Write([]byte(begin))
	must(s.t, err)
}

// Requests whose bodies do not come do not keep others waiting: what they have declared counts towards the share of their own
// token, and only what has arrived of it towards the memory of all. What belongs to the class: whatever all share and somebody
// can hold for as long as he likes. Answers are: see TestAnswersShareMemory.
func TestSlowSendersHoldUpThemselves(t *testing.T) {
	for _, k := range []struct {
		name, path, length string
		scope              Scope
		each               int // so many have declared the share of a token
		other              string
	}{
		{"small", "/api/v1/schedules/preview", "Content-Length: 65536", ScopeRead, 16, `{"spec": "@daily"}`},
		{"small, chunked", "/api/v1/schedules/preview", "Transfer-Encoding: chunked", ScopeRead, 16, `{"spec": "@daily"}`},
		{"large", "/api/v1/jobs", "Content-Length: 16777216", ScopeEnqueue, 1, `{"kind": "x", "payload": "` + strings.Repeat("x", 100<<10) + `"}`},
		{"large, chunked", "/api/v1/jobs", "Transfer-Encoding: chunked", ScopeEnqueue, 1, `{"kind": "x", "payload": "` + strings.Repeat("x", 100<<10) + `"}`},
	} {
		t.Run(k.name, func(t *testing.T) {
			memory(t, func(t *testing.T, db *dbtest.DB) {
				s := serve(t, db.DB, Options{})
				all := tokensOfOthers(t, s, k.scope, 5)
				for _, token := range all[:4] {
					for range k.each {
						s.linger(k.path, token, k.length)
					}
				}
				s.api.bodies.small.patience, s.api.bodies.large.patience = time.Millisecond, time.Millisecond
				s.token = all[4]
				if a := s.post(k.path, k.other); a.status != 200 && a.status != 201 {
					t.Errorf("another token gets %d %s", a.status, a.text)
				}
				s.token = all[0]
				s.post(k.path, k.other).is(503).has("memory")
			})
		})
	}
}

// What a request has declared is given back when its body is there, and what it has taken when that is decoded: one that waits
// for jobs keeps nobody waiting.
func TestRoomEndsWithDecoding(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.put("/api/v1/queues/q", object{}).is(201)
		waits := `{"wait": "30s"` + strings.Repeat(" ", 60_000) + `}`
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		defer ended.Wait()
		defer cancel()
		for range 20 { // more than an address may have at a time
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/api/v1/queues/q/claim", strings.NewReader(waits))
			must(t, err)
			r.Header.Set("Content-Type", "application/json")
			ended.Go(func() {
				if got, err := s.client.Do(r); err == nil {
					got.Body.Close()
				}
			})
		}
		eventually(t, "all wait for jobs", func() bool {
			s.api.pulls.mu.Lock()
			defer s.api.pulls.mu.Unlock()
			return s.api.pulls.claims == 20
		})
		if p := s.api.bodies.small; len(p.declared) > 0 || p.free != smallBodies {
			t.Errorf("%v are declared, and %d bytes are free", p.declared, p.free)
		}
	})
}

// Answers share memory as bodies do. A list waits for room, and is refused after a while; a claim gets jobs only while there is
// room, which are there for the next one. When a client has read its answer, all is given back.
func TestAnswersShareMemory(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.makeQueue()
		id := s.enqueue(object{"kind": "k", "queue": "q", "payload": "xyz"})
		p := s.api.answers
		p.patience = time.Millisecond
		all := fill(t, p, "address 127.0.0.1", p.share)
		if a := s.get("/api/v1/queues").is(503).has("memory"); a.header.Get("Retry-After") == "" {
			t.Error("it is not told when to come again")
		}
		s.get("/api/v1/queues/q").is(200) // it is small
		s.post("/api/v1/queues/q/claim", object{}).is(503).has("memory")
		claimed := make(chan *answer)
		go func() { claimed <- s.post("/api/v1/queues/q/claim", object{"wait": "30s"}) }()
		s.eventually("it waits", func() bool {
			s.api.pulls.mu.Lock()
			defer s.api.pulls.mu.Unlock()
			return s.api.pulls.claims == 1
		})
		all.leave()
		got := read[claimedList]((<-claimed).is(200))
		if len(got.Jobs) != 1 || got.Jobs[0].ID != id || string(got.Jobs[0].Payload) != `"xyz"` {
			t.Errorf("it got %+v", got)
		}
		s.get("/api/v1/queues").is(200)
		s.eventually("all is given back", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.free == answersSize && len(p.declared) == 0
		})
		s.say("complete", got.tokens()).is(200)
	})
}

// fill takes room for an account.
func fill(t *testing.T, p *pool, account string, bytes int64) *room {
	t.Helper()
	r, err := p.enter(t.Context(), account, bytes)
	must(t, err)
	must(t, r.grow(t.Context(), bytes))
	return r
}

// An account has a quarter of a pool, and its requests wait for each other in order, without having anything.
func TestRoomOfAnAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(400)
		first := fill(t, p, "a", 60)
		order := make(chan int64, 2)
		for _, bytes := range []int64{70, 40} {
			go func() {
				r, err := p.enter(t.Context(), "a", bytes)
				if err != nil {
					t.Error(err)
					return
				}
				order <- r.declared
				r.leave()
			}()
			synctest.Wait() // the small one comes after, and fits
		}
		if len(order) > 0 {
			t.Fatalf("one of %d bytes did not wait", <-order)
		}
		fill(t, p, "b", 100).leave() // others do not wait
		first.leave()
		if one, two := <-order, <-order; one != 70 || two != 40 {
			t.Errorf("they came in the order %d, %d", one, two)
		}
		synctest.Wait()
		fill(t, p, "a", 100)
		if _, err := p.enter(t.Context(), "a", 1); !errors.Is(err, errNoRoom) {
			t.Errorf("got %v for more than a quarter", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.enter(ctx, "a", 1); !errors.Is(err, errNoRoom) || len(p.line) > 0 {
			t.Errorf("got %v for one that is gone, and %d wait", err, len(p.line))
		}
	})
}

// When everything is taken, one request waits with what it has, and gets what is given back. A second one is refused, so that
// they do not wait for each other.
func TestRoomIsNotWaitedForByTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(400)
		began := time.Now() //nolint:forbidigo // the bubble's clock
		one, err := p.enter(t.Context(), "e", 100)
		must(t, err)
		must(t, one.grow(t.Context(), 20))
		two, err := p.enter(t.Context(), "f", 100)
		must(t, err)
		must(t, two.grow(t.Context(), 20))
		all := []*room{fill(t, p, "a", 100), fill(t, p, "b", 100), fill(t, p, "c", 100), fill(t, p, "d", 60)}
		grown := make(chan error)
		go func() { grown <- one.grow(t.Context(), 60) }()
		synctest.Wait()
		if err := two.grow(t.Context(), 1); !errors.Is(err, errNoRoom) {
			t.Errorf("the second: %v", err)
		}
		if time.Since(began) > 0 {
			t.Error("the second waited")
		}
		two.leave()
		all[3].shrink(40)
		synctest.Wait()
		select {
		case err := <-grown:
			t.Errorf("too early: %v", err)
		default:
		}
		all[0].leave()
		if err := <-grown; err != nil {
			t.Errorf("the first: %v", err)
		}
		all = append(all[1:], one)
		must(t, all[0].grow(t.Context(), 20))
		begun := make(chan *room)
		go func() { // a third one does not begin before there is enough, and holds up nobody who has
			r, err := p.enter(t.Context(), "h", 80)
			if err != nil {
				t.Error(err)
			}
			begun <- r
		}()
		synctest.Wait()
		must(t, all[1].grow(t.Context(), 10))
		all[1].shrink(100)
		if len(p.grows) != 1 {
			t.Error("it did not wait")
		}
		all[0].shrink(100)
		(<-begun).leave()
		if err := fill(t, p, "g", 60).grow(t.Context(), 30); !errors.Is(err, errNoRoom) { // after its patience
			t.Errorf("of a full pool: %v", err)
		}
		for _, r := range all {
			r.leave()
			r.leave() // does nothing
		}
		if p.free != 340 || len(p.declared) != 1 || len(p.grows) > 0 {
			t.Errorf("afterwards there are %d bytes, %v", p.free, p.declared)
		}
	})
}
