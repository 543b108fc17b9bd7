package push

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// A gate limits the requests of a queue to endpoints that jobs name themselves. Anybody who enqueues can name one that accepts a
// request and never answers. Without a limit, a few such jobs would take all of the queue's slots.
//
//   - To one origin there are at most the queue's share of the slots, and at least one, while jobs for others were there within the
//     last minute. Otherwise there may be all but one: others may come.
//   - If the queue has a URL, jobs for that have a slot left, unless there is only one.
//
// It is safe for concurrent use.
type gate struct {
	slots int
	now   func() instant.Instant

	mu     sync.Mutex
	own    int               // requests under way to jobs' own endpoints
	of     map[string]*crowd // by origin
	recent [2]arrival        // the last origins for which there were jobs, which differ; the last first
}

// A crowd is the requests under way to an origin.
type crowd struct {
	n    int
	full instant.Instant // since when there are as many as there may be; 0: there are fewer
}

// An arrival is when a job for an origin came last.
type arrival struct {
	origin string
	at     instant.Instant
}

const (
	lately = time.Minute

	// A job for which there is no slot goes back for as long as there has been none, within these bounds.
	shortestAway = time.Second
	longestAway  = time.Minute
)

func newGate(slots int) *gate { return &gate{slots: slots, now: instant.Now, of: map[string]*crowd{}} }

// pass notes a job that goes to its queue's URL. mu is not held.
func (g *gate) pass(origin string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note(origin, g.now())
}

// note notes a job. mu is held.
func (g *gate) note(origin string, now instant.Instant) {
	if g.recent[0].origin != origin {
		g.recent[1] = g.recent[0]
	}
	g.recent[0] = arrival{origin, now}
}

// enter takes a slot for a job that names its endpoint. It returns 0, or how long the job should be away. url is whether the queue
// has a URL, too, and percent the share of the slots for one origin.
func (g *gate) enter(origin string, url bool, percent int) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	g.note(origin, now)
	is := g.of[origin]
	if is == nil {
		is = &crowd{}
	}
	most := g.slots
	if url {
		most = max(1, g.slots-1)
	}
	share := g.share(now, percent)
	if is.n < share && g.own < most {
		g.of[origin] = is
		is.n++
		g.own++
		return 0
	}
	away := shortestAway
	if is.n >= share {
		if is.full == 0 {
			is.full = now
		}
		away = min(max(away, now.Sub(is.full)), longestAway)
	}
	return away/2 + rand.N(away)
}

// share returns how many requests there may be to the last origin. mu is held.
func (g *gate) share(now instant.Instant, percent int) int {
	share := g.slots - 1
	if last := g.recent[1]; last.at != 0 && now.Sub(last.at) < lately {
		share = min(share, g.slots*percent/100)
	}
	return max(1, share)
}

// leave gives a slot back.
func (g *gate) leave(origin string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	is := g.of[origin]
	is.full = 0
	g.own--
	if is.n--; is.n == 0 {
		delete(g.of, origin)
	}
}
