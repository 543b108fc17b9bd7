package push

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// at is a target of a queue.
func at(queue, host, origin string) target {
	return target{place{url: host}, place{queue, origin}, origin}
}

// A place that is busy is left alone for as long as it says; then one request at a time goes
// there, until one is answered.
func TestThrottle(t *testing.T) {
	var h throttle
	a := at("q", "a", "http://a")
	enter := func() (*visit, time.Duration) {
		v, wait, _ := h.enter(a)
		return v, wait
	}
	first, _ := enter()
	second, _ := enter()
	third, _ := enter()
	first.leave(busy, time.Hour)
	second.leave(busy, 0) // was under way, and says nothing new
	third.leave(well, 0)  // neither does that it was in time
	if v, wait := enter(); v != nil || wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("it waits %v", wait)
	}
	for _, other := range []target{at("q", "a", "https://a"), at("other", "a", "http://a"), at("q", "b", "http://b")} {
		v, _, _ := h.enter(other)
		if v == nil {
			t.Fatalf("%v waits, too", other)
		}
		v.leave(well, 0)
	}
	due := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.places[a.answers].until = instant.Now()
	}
	due()
	probe, _ := enter()
	if probe == nil {
		t.Fatal("it is not tried when its time is over")
	}
	if v, wait := enter(); v != nil || wait <= 0 || wait > probeFor {
		t.Error("more than one request goes there")
	}
	due() // the probe takes long
	next, _ := enter()
	if next == nil {
		t.Fatal("a probe that takes long keeps all others back")
	}
	probe.leave(unknown, 0)
	if v, wait := enter(); v != nil || wait <= 0 || wait > longestPause {
		t.Errorf("no answer, and it waits %v", wait)
	}
	_, _, changed := h.enter(a)
	next.leave(well, 0)
	<-changed
	if len(h.places) != 0 {
		t.Errorf("%d places are remembered", len(h.places))
	}
	again, _ := enter()
	again.leave(busy, 2*longestAsked)
	if _, wait := enter(); wait > longestAsked {
		t.Errorf("it has a place left alone for %v", wait)
	}
	probe.leave(well, 0) // of the time before
	if v, _ := enter(); v != nil {
		t.Error("an answer from before counts")
	}
}

// A host that cannot be connected to is left alone by all queues, and tried by one request at
// a time, until a connection is made or an answer comes over one that was there.
func TestThrottleOfHosts(t *testing.T) {
	h := throttle{first: time.Hour}
	one, other := at("q", "a", "http://a"), at("other", "a", "https://a")
	dial := func(ok bool) { h.dialed(one.host, instant.Now(), ok) }
	due := func() { h.places[one.host].until = instant.Now() }
	before := instant.Now()
	kept, _, _ := h.enter(one)
	dial(false)
	failures := h.places[one.host].failures
	h.dialed(one.host, before, false) // together with the first
	if v, wait, _ := h.enter(other); v != nil || wait < 20*time.Minute || failures != 1 || h.places[one.host].failures != 1 {
		t.Errorf("it waits %v after %d failures", wait, h.places[one.host].failures)
	}
	due()
	if v, _, _ := h.enter(other); v == nil {
		t.Error("it is not tried when its time is over")
	}
	if v, wait, _ := h.enter(one); v != nil || wait > probeFor {
		t.Errorf("more than one request goes there, after %v", wait)
	}
	dial(false)
	_, _, changed := h.enter(other)
	dial(true)
	<-changed
	dial(false)
	_, _, changed = h.enter(other)
	kept.leave(busy, 0) // says nothing of the host
	if v, _, _ := h.enter(other); v != nil {
		t.Error("it is not left alone any more")
	}
	kept.answered()
	<-changed
}

// Places take up no more than so much memory, whatever endpoints jobs have.
func TestThrottleForgets(t *testing.T) {
	var h throttle
	for i := range 2 * maxPlaces {
		name := fmt.Sprint(i)
		v, _, _ := h.enter(at("q", name, name))
		v.leave(busy, time.Hour)
		h.dialed(v.at.host, instant.Now(), false)
	}
	if n := len(h.places); n != maxPlaces {
		t.Errorf("%d places are remembered", n)
	}
}

// An endpoint that is bad, and what jobs name as theirs, stops no other: not of another
// queue, and not of its own.
func TestBadOwnEndpoints(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db)
		r := receive(t, func(w http.ResponseWriter, q *http.Request) {
			if strings.HasPrefix(q.URL.Path, "/full") {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		d := patient(t, db)
		secure := strings.Replace(r.URL, "http:", "https:", 1) // where nobody speaks TLS
		for name, url := range map[string]string{"none": "", "q": r.URL, "full": r.URL + "/full", "secure": secure} {
			point(t, db, c, name, url, nil)
		}
		for _, bad := range []struct{ queue, own string }{
			{"none", secure},
			{"q", secure},
			{"secure", ""},
			{"none", r.URL + "/full"},
			{"q", r.URL + "/full?of=shop"},
			{"q", r.URL + "/full/and/more?a=b"},
			{"full", ""},
		} {
			id := enqueue(t, c, queue.Job{Queue: bad.queue, Endpoint: bad.own, Timeout: longWait})
			eventually(t, "it has failed", func() bool {
				i, err := adminOf(c).Job(t.Context(), bad.queue, id)
				must(t, err)
				return i.Error != ""
			})
		}
		for range 20 { // and those that are good are sent at once
			becomes(t, c, enqueue(t, c, queue.Job{}), "")
			becomes(t, c, enqueue(t, c, queue.Job{Endpoint: r.URL + "/own"}), "")
		}
		own := enqueue(t, c, queue.Job{Queue: "none", Endpoint: r.URL + "/own"})
		eventually(t, "it is done", func() bool {
			_, err := adminOf(c).Job(t.Context(), "none", own)
			return errors.Is(err, queue.ErrNotFound)
		})
		n := len(r.got())
		for _, bad := range []string{"/full", "/full?of=another"} { // and these are left alone
			id := enqueue(t, c, queue.Job{Endpoint: r.URL + bad})
			if i := becomes(t, c, id, admin.StateDelayed); i.Attempts != 0 {
				t.Errorf("%s: %+v", bad, i)
			}
		}
		if more := len(r.got()) - n; more > 0 {
			t.Errorf("%d requests to what is left alone", more)
		}
		d.throttle.mu.Lock()
		defer d.throttle.mu.Unlock()
		for p := range d.throttle.places {
			if p.queue == "" {
				t.Errorf("%s is left alone by all queues", p.url)
			}
		}
	})
}

// A host that cannot be connected to is left alone by all queues.
func TestUnreachableHost(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db)
		address := "127.0.0.1:" + dbtest.FreePort(t)
		patient(t, db)
		point(t, db, c, "q", "http://"+address, nil)
		point(t, db, c, "other", "https://"+address+"/path", nil)
		first := enqueue(t, c, queue.Job{Queue: "other", Timeout: longWait})
		eventually(t, "it has failed", func() bool {
			i, err := adminOf(c).Job(t.Context(), "other", first)
			must(t, err)
			return strings.Contains(i.Error, "connect")
		})
		if i := becomes(t, c, enqueue(t, c, queue.Job{}), admin.StateRunning); i.Attempts != 1 || i.Error != "" {
			t.Errorf("%+v", i)
		}
		own := enqueue(t, c, queue.Job{Endpoint: "http://" + address + "/own"})
		if i := becomes(t, c, own, admin.StateDelayed); i.Attempts != 0 {
			t.Errorf("%+v", i)
		}
	})
}

// A TLS handshake that fails says something about the endpoint. A host that cannot be
// connected to is noted elsewhere, and no time to connect may be the job's own choice.
func TestUnconnected(t *testing.T) {
	over := ended(t, errors.New("no whole answer"))
	for _, test := range []struct {
		ctx  context.Context
		err  error
		want state
	}{
		{t.Context(), &dialError{errors.New("refused")}, unknown},
		{t.Context(), tls.AlertError(40), busy},
		{over, &dialError{errors.New("refused")}, unknown},
		{over, errors.New("timeout"), unknown},
	} {
		if got := unconnected(test.ctx, fmt.Errorf("post: %w", test.err)); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}
