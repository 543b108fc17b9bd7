package push

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
)

// A throttle holds requests back from a place that fails: for as long as it asked for, or else for a
// second, and longer after each further failure. Then one request at a time may probe it, until one
// succeeds. If a probe takes long, another request may probe, too.
//
// Anybody who enqueues a job can make a request to any origin fail, with an endpoint of the job's own. So
// queues share only what no request can cause: that a host cannot be connected to. Everything else belongs
// to one queue, and there either to its endpoint or to those of its jobs.
type throttle struct {
	first time.Duration // the first pause; default: firstPause

	mu     sync.Mutex
	places map[place]*cooldown // those that fail
}

// A place is a destination that fails or recovers as a whole.
type place struct {
	queue string // whose requests it concerns; "": everybody's, and url is a host and a port
	url   string // an origin, with the path for a job's own endpoint
}

// A target is the destination of a request.
type target struct {
	host    place // to which to connect
	answers place // which answers
	origin  string
}

// A cooldown is the pause of a failing place.
type cooldown struct {
	failures int             // consecutive
	since    instant.Instant // time of the last failure
	until    instant.Instant // when the next request may go there
	changed  chan struct{}   // closed when until changes
}

// Lengths of the pause of a place that does not ask for one.
const (
	firstPause   = time.Second
	longestPause = time.Minute

	// longestAsked limits the pause that a place can ask for.
	longestAsked = time.Hour

	// probeFor is how long others wait for a probing request, which may take long.
	probeFor = 10 * time.Second

	// maxPlaces limits the memory that jobs with their own endpoints can use. Beyond it an arbitrary
	// place is forgotten, which costs one request too many.
	maxPlaces = 10_000
)

// A state is the state of a place according to an answer.
type state int

const (
	unknown state = iota // no answer, perhaps because of the job
	well
	busy // it reports too many requests, or does not speak HTTP
)

// A visit is a request to a target.
type visit struct {
	t     *throttle
	at    target
	tries *cooldown // of at.answers, if the request is a probe
	gate  *gate     // of which it has a slot; nil: none
}

// enter begins a request. Otherwise it returns how long to wait at most before the next try, and a channel
// that is closed when something changes earlier.
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
	return &visit{t: t, at: at, tries: t.places[at.answers]}, 0, nil
}

// dialed records whether a host could be connected to, by an attempt that began at an instant. A failure
// of an attempt that began before the last failure is no news.
func (t *throttle) dialed(host place, began instant.Instant, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if is := t.places[host]; ok {
		t.recovered(host)
	} else if is == nil || began > is.since {
		t.failed(host, 0)
	}
}

// answered records that the host is reachable: it answered, perhaps over an older connection.
func (v *visit) answered() {
	v.t.mu.Lock()
	defer v.t.mu.Unlock()
	v.t.recovered(v.at.host)
}

// leave ends a request and records the state of the place that answered. A request sent before the place
// was found busy says nothing about the time since.
func (v *visit) leave(s state, after time.Duration) {
	if v.gate != nil {
		v.gate.leave(v.at.origin)
	}
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

// standing returns a target's consecutive failures and its current pause.
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

// failed records a failure of a place. The place pauses for as long as it asked, or for longer than last
// time. The caller holds mu.
func (t *throttle) failed(p place, asked time.Duration) {
	is := t.places[p]
	if is == nil {
		is = &cooldown{changed: make(chan struct{})}
		t.makeRoom()
		t.places[p] = is
	}
	is.failures++
	first := cmp.Or(t.first, firstPause)
	pause := pace.Delay(first, max(first, longestPause), is.failures, rand.Float64())
	if asked > 0 {
		pause = min(asked, longestAsked)
	}
	is.since = instant.Now()
	is.until = is.since.Add(pause)
	close(is.changed)
	is.changed = make(chan struct{})
}

// recovered records that a place works. The caller holds mu.
func (t *throttle) recovered(p place) {
	if is := t.places[p]; is != nil {
		delete(t.places, p)
		close(is.changed)
	}
}

// makeRoom makes room for another place. The caller holds mu.
func (t *throttle) makeRoom() {
	if t.places == nil {
		t.places = map[place]*cooldown{}
	}
	for p := range t.places {
		if len(t.places) < maxPlaces {
			return
		}
		t.recovered(p)
	}
}
