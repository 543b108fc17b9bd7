package push

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/backoff"
	"github.com/dbcron/dbcron/internal/instant"
)

// A throttle holds requests back to hosts that have said that there are too many, or that
// cannot be reached: for as long as they say, or else for a second, and longer each time in
// a row. After that one request at a time goes there, until one is answered.
type throttle struct {
	mu    sync.Mutex
	hosts map[string]*host // that are not well
}

type host struct {
	failures int             // in a row
	until    instant.Instant // when it may be tried again
	tried    bool            // a request is under way
	changed  chan struct{}   // closed when it is to be looked at again
}

// How long a host is left alone that does not say.
const (
	firstPause   = time.Second
	longestPause = time.Minute

	// longestAsked is how long it is left alone at the most.
	longestAsked = time.Hour
)

// A state of a host, as an answer shows it.
type state int

const (
	unknown state = iota // no answer, which may be the job's fault
	well
	busy // it has said that there are too many requests, or cannot be reached
)

// enter waits until a request may be sent to a host, and not longer than patience: after
// that it returns how long it would have to wait. leave is to be called with what came of it.
func (t *throttle) enter(ctx context.Context, name string, patience time.Duration) (leave func(s state, after time.Duration), wait time.Duration, err error) {
	began := instant.Now()
	for {
		t.mu.Lock()
		h := t.hosts[name]
		if h == nil {
			t.mu.Unlock()
			return func(s state, after time.Duration) { t.note(name, s, after, false) }, 0, nil
		}
		now := instant.Now()
		pause := h.until.Sub(now)
		if pause <= 0 && !h.tried {
			h.tried = true
			t.mu.Unlock()
			return func(s state, after time.Duration) { t.note(name, s, after, true) }, 0, nil
		}
		changed := h.changed
		t.mu.Unlock()
		left := patience - now.Sub(began)
		if pause > left || left <= 0 {
			return nil, max(pause, firstPause), nil
		}
		if pause <= 0 { // a request is under way
			pause = left
		}
		over := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-over.C:
		}
		over.Stop()
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
	}
}

// note takes in how a host is. Of the requests that were under way when it became busy only
// the first counts.
func (t *throttle) note(name string, s state, after time.Duration, tried bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.hosts[name]
	now := instant.Now()
	switch {
	case h == nil && s != busy:
		return
	case h == nil:
		if t.hosts == nil {
			t.hosts = map[string]*host{}
		}
		h = &host{changed: make(chan struct{})}
		t.hosts[name] = h
	case s == well:
		delete(t.hosts, name)
		close(h.changed)
		return
	case !tried: // it was sent before
		return
	}
	if tried {
		h.tried = false
	}
	h.failures++
	pause := backoff.Delay(firstPause, longestPause, h.failures, rand.Float64())
	if after > 0 {
		pause = min(after, longestAsked)
	}
	h.until = now.Add(pause)
	close(h.changed)
	h.changed = make(chan struct{})
}
