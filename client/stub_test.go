package client_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/wire"
)

// A puller is a daemon that gives out jobs. To test against the API itself, let startPuller
// serve httpapi.New's handler, with enqueue and outcomes from the tables.
type puller interface {
	http.Handler
	enqueue(kind string)
	outcomes() []string // kind:outcome, sorted
	expire()            // the leases of all claims
}

func startPuller(*testing.T) puller {
	return &stub{wake: make(chan struct{}), held: map[string]*wire.Claim{}}
}

// A stub is the contract of pull, in memory.
type stub struct {
	mu    sync.Mutex
	n     int
	ready []*wire.Claim
	held  map[string]*wire.Claim
	ended []string
	beats int
	wake  chan struct{} // closed when there is a job

	answer func(w http.ResponseWriter, r *http.Request) bool // before it is done: true if it is answered
}

func (s *stub) enqueue(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	s.put(&wire.Claim{Delivery: wire.Delivery{
		ID: strconv.Itoa(s.n), Queue: "q", Kind: kind, Payload: json.RawMessage(`{"n":1}`), MaxAttempts: 10, Group: "7",
	}})
}

func (s *stub) put(j *wire.Claim) {
	s.ready = append(s.ready, j)
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *stub) outcomes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.ended)
	slices.Sort(all)
	return all
}

func (s *stub) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token, j := range s.held {
		delete(s.held, token)
		s.put(j)
	}
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.answer != nil && s.answer(w, r) {
		return
	}
	var in struct {
		Max    int
		Wait   string
		Lease  string
		Claims []struct {
			Token, Error  string
			RetryAfter    string `json:"retry_after"`
			Dead, Discard bool
			Result        any
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.URL.Path == "/api/v1/queues/q/claim" {
		wait, _ := time.ParseDuration(in.Wait)
		s.reply(w, http.StatusOK, map[string]any{"node": "stub", "jobs": s.claim(r, in.Max, wait)})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	done, lost := 0, []string{}
	for _, c := range in.Claims { // all or none
		if c.Result == "refused" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
	}
	for _, c := range in.Claims {
		j := s.held[c.Token]
		if j == nil {
			lost = append(lost, c.Token)
			continue
		}
		done++
		switch r.URL.Path {
		case "/api/v1/claims/heartbeat":
			s.beats++
			continue
		case "/api/v1/claims/complete":
			s.ended = append(s.ended, fmt.Sprintf("%s:done:%v", j.Kind, c.Result))
		case "/api/v1/claims/release":
			j.Attempt--
			s.put(j)
		default:
			s.ended = append(s.ended, fmt.Sprintf("%s:failed:%s:%s:%t:%t", j.Kind, c.Error, c.RetryAfter, c.Dead, c.Discard))
		}
		delete(s.held, c.Token)
	}
	if done == 0 {
		w.Header().Set("Content-Type", "application/problem+json")
		s.reply(w, http.StatusConflict, map[string]any{"status": 409, "title": "Conflict", "detail": "all of them are lost"})
		return
	}
	s.reply(w, http.StatusOK, map[string]any{"done": done, "lost": lost})
}

func (s *stub) reply(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

func (s *stub) claim(r *http.Request, most int, wait time.Duration) []*wire.Claim {
	out := []*wire.Claim{}
	timeout := time.After(wait)
	for {
		s.mu.Lock()
		wake := s.wake
		for len(out) < max(most, 1) && len(s.ready) > 0 {
			j := s.ready[0]
			s.ready = s.ready[1:]
			j.Attempt++
			s.n++
			given := *j
			given.Token = strconv.Itoa(s.n)
			s.held[given.Token] = j
			out = append(out, &given)
		}
		s.mu.Unlock()
		if len(out) > 0 || wait == 0 {
			return out
		}
		select {
		case <-wake:
		case <-timeout:
			return out
		case <-r.Context().Done():
			return out
		}
	}
}
