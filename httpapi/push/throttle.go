package push

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/backoff"
	"github.com/dbcron/dbcron/internal/instant"
)

// A throttle holds requests back to hosts that have said that there are too many, or that
// cannot be reached: for as long as they say, or else for a second, and longer each time in
// a row. After that one request at a time goes there, a probe, until one is answered; another
// one if that takes long.
type throttle struct {
	mu    sync.Mutex
	hosts map[string]*host // that are not well
}

type host struct {
	failures int             // in a row
	until    instant.Instant // when the next request may go there
	changed  chan struct{}   // closed when that has changed
}

// How long a host is left alone that does not say.
const (
	firstPause   = time.Second
	longestPause = time.Minute

	// longestAsked is how long it is left alone at the most.
	longestAsked = time.Hour

	// probeFor is how long it is waited for a probe before there is another: the request may
	// be one that takes long.
	probeFor = 10 * time.Second

	// manyHosts are so many that those are forgotten to which nothing goes any more.
	manyHosts = 1000
)

// A state of a host, as an answer shows it.
type state int

const (
	unknown state = iota // no answer, which may be the job's fault
	well
	busy // it has said that there are too many requests, or cannot be reached
)

// A visit is a request to a host.
type visit struct {
	t    *throttle
	name string
	h    *host // whose probe it is; nil: it is none
}

// enter begins a request to a host, or tells how long to wait at the most before the next
// try, and what ends before that if something changes.
func (t *throttle) enter(name string) (v *visit, wait time.Duration, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, now := t.hosts[name], instant.Now()
	switch {
	case h == nil:
		return &visit{t: t, name: name}, 0, nil
	case now >= h.until:
		h.until = now.Add(probeFor)
		return &visit{t, name, h}, 0, nil
	}
	return nil, h.until.Sub(now), h.changed
}

// leave ends a request, and takes in how the host is. What was sent before the host was found
// busy says nothing about what came after.
func (v *visit) leave(s state, after time.Duration) {
	t := v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.hosts[v.name]
	switch {
	case v.h != nil && v.h != h, v.h == nil && (h != nil || s != busy):
		return
	case h == nil:
		t.forget()
		h = &host{changed: make(chan struct{})}
		t.hosts[v.name] = h
	case s == well:
		delete(t.hosts, v.name)
		close(h.changed)
		return
	}
	h.failures++
	pause := backoff.Delay(firstPause, longestPause, h.failures, rand.Float64())
	if after > 0 {
		pause = min(after, longestAsked)
	}
	h.until = instant.Now().Add(pause)
	close(h.changed)
	h.changed = make(chan struct{})
}

// forget makes room for another host. mu is held.
func (t *throttle) forget() {
	if t.hosts == nil {
		t.hosts = map[string]*host{}
	}
	if len(t.hosts) < manyHosts {
		return
	}
	for name, h := range t.hosts {
		if instant.Now().Sub(h.until) > longestPause {
			delete(t.hosts, name)
		}
	}
}
