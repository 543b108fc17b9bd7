package push

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/backoff"
	"github.com/dbcron/dbcron/internal/instant"
)

// A throttle holds requests back from what is not well: for as long as that asked for, or
// else for a second, and longer after each further failure. Then one request at a time may
// try, until one succeeds; if that takes long, another one may.
//
// Anybody who enqueues a job can make a request to any origin fail, with an endpoint of the
// job's own. So queues share only what no request can bring about: that a host cannot be
// connected to. All else belongs to one queue, and there to its endpoint or to that of the jobs.
type throttle struct {
	first time.Duration // the first pause; default: firstPause

	mu     sync.Mutex
	places map[place]*cooldown // that are not well
}

// A place is a part of the world that a throttle takes to be well or not as a whole.
type place struct {
	queue string // whose requests it concerns; "": everybody's, and origin is a host and a port
	url   string // where they go: an origin, with the path if it is a job's own endpoint
}

// A target is where a request goes.
type target struct {
	host    place // which is connected to
	answers place // which answers
	origin  string
}

// A cooldown says for how long a place that is not well is left alone.
type cooldown struct {
	failures int             // in a row
	since    instant.Instant // when the last one was noted
	until    instant.Instant // when the next request may go there
	changed  chan struct{}   // closed when that has changed
}

// How long a place is left alone that does not say.
const (
	firstPause   = time.Second
	longestPause = time.Minute

	// longestAsked bounds how long it is left alone when it does say.
	longestAsked = time.Hour

	// probeFor is how long others wait for a request that tries: it may be one that takes long.
	probeFor = 10 * time.Second

	// mostPlaces bounds the memory that jobs with endpoints of their own can take up.
	// Beyond it any place is forgotten, which costs one request too many.
	mostPlaces = 10_000
)

// A state of a place, as an answer shows it.
type state int

const (
	unknown state = iota // no answer, which may be the job's fault
	well
	busy // it has said that there are too many requests, or speaks no HTTP
)

// A visit is a request to a target.
type visit struct {
	t     *throttle
	at    target
	tries *cooldown // of at.answers, if the request tries whether that is over
}

// enter begins a request, or returns how long to wait at the most before the next try, and a
// channel that is closed if something changes before.
func (t *throttle) enter(at target) (v *visit, wait time.Duration, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := instant.Now()
	for _, p := range []place{at.host, at.answers} {
		if is := t.places[p]; is != nil && is.until.Sub(now) > wait {
			wait, changed = is.until.Sub(now), is.changed
		}
	}
	if wait > 0 {
		return nil, wait, changed
	}
	for _, p := range []place{at.host, at.answers} {
		if is := t.places[p]; is != nil {
			is.until = now.Add(probeFor)
		}
	}
	return &visit{t, at, t.places[at.answers]}, 0, nil
}

// dialed takes in whether a host could be connected to, by an attempt that began at an
// instant. One that began before the last failure says nothing new if it fails, too.
func (t *throttle) dialed(host place, began instant.Instant, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if is := t.places[host]; ok {
		t.recovered(host)
	} else if is == nil || began > is.since {
		t.failed(host, 0)
	}
}

// answered takes in that there was an answer: over a connection that was there before, too.
func (v *visit) answered() {
	v.t.mu.Lock()
	defer v.t.mu.Unlock()
	v.t.recovered(v.at.host)
}

// leave ends a request, and takes in how the place is that answers. A request that was sent
// before the place was found busy says nothing about what came after.
func (v *visit) leave(s state, after time.Duration) {
	t := v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	is := t.places[v.at.answers]
	switch {
	case is != v.tries:
	case s == well:
		t.recovered(v.at.answers)
	case s == busy || is != nil:
		t.failed(v.at.answers, after)
	}
}

// standing tells how often a target has failed in a row, and for how long it is left alone.
func (t *throttle) standing(at target) (failures int, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := instant.Now()
	for _, p := range []place{at.host, at.answers} {
		if is := t.places[p]; is != nil {
			failures, pause = max(failures, is.failures), max(pause, is.until.Sub(now))
		}
	}
	return failures, pause
}

// failed notes a failure of a place, which is left alone for as long as it asked, or longer
// than the last time. mu is held.
func (t *throttle) failed(p place, asked time.Duration) {
	is := t.places[p]
	if is == nil {
		is = &cooldown{changed: make(chan struct{})}
		t.makeRoom()
		t.places[p] = is
	}
	is.failures++
	first := cmp.Or(t.first, firstPause)
	pause := backoff.Delay(first, max(first, longestPause), is.failures, rand.Float64())
	if asked > 0 {
		pause = min(asked, longestAsked)
	}
	is.since = instant.Now()
	is.until = is.since.Add(pause)
	close(is.changed)
	is.changed = make(chan struct{})
}

// recovered notes that a place is well. mu is held.
func (t *throttle) recovered(p place) {
	if is := t.places[p]; is != nil {
		delete(t.places, p)
		close(is.changed)
	}
}

// makeRoom makes room for another place. mu is held.
func (t *throttle) makeRoom() {
	if t.places == nil {
		t.places = map[place]*cooldown{}
	}
	for p := range t.places {
		if len(t.places) < mostPlaces {
			return
		}
		t.recovered(p)
	}
}
