package push

import (
	"net/http"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// deaf serves an endpoint that accepts requests and does not answer them before the test ends.
func deaf(t *testing.T) *receiver {
	t.Helper()
	over := make(chan struct{})
	r := receive(t, func(http.ResponseWriter, *http.Request) { <-over })
	t.Cleanup(func() { close(over) }) // before the server is closed
	return r
}

// An endpoint that accepts requests and does not answer does not stop the jobs of a queue that go elsewhere, neither to its URL nor
// to endpoints of their own. What belongs to the class: whatever somebody can keep for as long as he likes by what he sends, and
// others need. Room for requests' bodies is: see TestSlowSendersHoldUpThemselves.
func TestDeafEndpoint(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		for _, k := range []struct {
			name        string
			concurrency int
			batch       int
			url         bool
		}{{"with a URL", 4, 1, true}, {"without", 4, 1, false}, {"in batches", 2, 5, true}} {
			t.Run(k.name, func(t *testing.T) {
				c, hangs := client(t, db), deaf(t)
				well := receive(t, nil)
				if k.batch > 1 {
					well = receiveBatches(t).receiver
				}
				url, own := well.URL, ""
				if !k.url {
					url, own = "", well.URL
				}
				point(t, db, c, "q", url, func(e *Endpoint) { e.Concurrency, e.Batch = k.concurrency, k.batch })
				for range 3 * k.concurrency * k.batch {
					enqueue(t, c, queue.Job{Endpoint: hangs.URL, Timeout: time.Hour})
				}
				start(t, db, Options{})
				hangs.wait(t, 1)
				for range 3 {
					becomes(t, c, enqueue(t, c, queue.Job{Endpoint: own}), "")
				}
				if n := len(hangs.got()); n > k.concurrency {
					t.Errorf("%d requests hang", n)
				}
			})
		}
	})
}

// Half of the slots are for one origin while there are others, and all but one if not. The longer it has none, the longer its jobs
// stay away.
func TestGate(t *testing.T) {
	g, now := newGate(8), instant.Instant(1)
	g.now = func() instant.Instant { return now }
	enter := func(origin string, url bool) (n int) {
		for g.enter(origin, url, 50) == 0 {
			n++
		}
		return n
	}
	if n := enter("a", false); n != 7 {
		t.Errorf("alone it gets %d", n)
	}
	if n := enter("b", false); n != 1 {
		t.Errorf("the other gets %d", n)
	}
	for range 4 {
		g.leave("a")
	}
	if n := enter("a", false); n != 1 { // it has three
		t.Errorf("beside the other it gets %d", n)
	}
	if n := enter("b", true); n != 2 {
		t.Errorf("the other gets %d, and one is for the URL", n)
	}
	now = now.Add(50 * time.Second)
	if away := g.enter("a", true, 50); away < 25*time.Second || away > 75*time.Second {
		t.Errorf("it is away for %v", away)
	}
	for range 4 {
		g.leave("a")
	}
	for range 3 {
		g.leave("b")
	}
	now = now.Add(lately / 2)
	if n := enter("c", true); n != 4 || g.own != 4 {
		t.Errorf("one that comes after a gets %d of %d", n, g.own)
	}
	if one := newGate(1); one.enter("a", true, 50) != 0 || one.enter("a", true, 50) == 0 {
		t.Error("of one slot it gets not one")
	}
}

// The share is the queue's, from the next request on; it leaves a slot to others, and one to each.
func TestShares(t *testing.T) {
	for percent, want := range map[int]int{1: 1, 25: 2, 49: 3, 50: 4, 99: 7, 100: 7} {
		g, n := newGate(8), 0
		g.pass("other")
		for g.enter("a", false, percent) == 0 {
			n++
		}
		if n != want {
			t.Errorf("%d%%: it gets %d, want %d", percent, n, want)
		}
	}
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db)
		point(t, db, c, "q", "", nil)
		_, err := adminOf(c).Edit(t.Context(), "q", func(q *admin.Queue) { q.OriginShare, q.MaxTimeout, q.Timeout = 20, time.Minute, time.Second })
		must(t, err)
		e, err := NewEndpoints(db.DB).Get(t.Context(), "q")
		if must(t, err); e.share != 20 || e.most != time.Minute || e.limit != time.Second {
			t.Errorf("got %+v", e)
		}
	})
}

// A job's own timeout is no longer than what its queue takes. Where others wait for its request it is no longer than what is usual.
func TestOwnTimeouts(t *testing.T) {
	for _, k := range []struct{ own, queue, most, endpoint, want, beside time.Duration }{
		{0, 0, time.Hour, time.Second, time.Second, time.Second},
		{time.Millisecond, time.Minute, time.Hour, time.Second, time.Millisecond, time.Millisecond},
		{time.Minute, 0, time.Hour, time.Second, time.Minute, time.Second},
		{24 * time.Hour, 0, time.Hour, time.Second, time.Hour, time.Second},
		{24 * time.Hour, 0, time.Second, 2 * time.Hour, time.Second, time.Second},
		{24 * time.Hour, 3 * time.Hour, time.Hour, time.Second, 3 * time.Hour, 3 * time.Hour},
		{48 * time.Hour, 0, 0, time.Second, 24 * time.Hour, time.Second},
		{48 * time.Hour, 0, 30 * time.Hour, time.Second, 24 * time.Hour, time.Second},
		{0, 48 * time.Hour, time.Hour, time.Second, 24 * time.Hour, 24 * time.Hour},
	} {
		e, d := &Endpoint{limit: k.queue, most: k.most, Timeout: k.endpoint}, &queue.Delivery{Job: queue.Job{Timeout: k.own}}
		p := &parcel{jobs: []*queue.Delivery{d}, beside: true}
		if got, beside := limitOf(e, d), p.limit(e); got != k.want || beside != k.beside {
			t.Errorf("%+v: got %v and %v", k, got, beside)
		}
	}
}
