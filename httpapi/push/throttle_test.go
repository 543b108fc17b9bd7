package push

import (
	"testing"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// A host that is busy is left alone for as long as it says; then one request at a time goes
// there, until one is answered.
func TestThrottle(t *testing.T) {
	var h throttle
	enter := func() (*visit, time.Duration) {
		v, wait, _ := h.enter("a")
		return v, wait
	}
	first, _ := enter()
	second, _ := enter()
	third, _ := enter()
	other, _, _ := h.enter("b")
	first.leave(busy, time.Hour)
	second.leave(busy, 0) // was under way, and says nothing new
	third.leave(well, 0)  // neither does that it was in time
	if v, wait := enter(); v != nil || wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("it waits %v", wait)
	}
	if v, _, _ := h.enter("b"); v == nil {
		t.Error("another host waits, too")
	}
	other.leave(well, 0)
	due := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.hosts["a"].until = instant.Now()
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
	_, _, changed := h.enter("a")
	next.leave(well, 0)
	<-changed
	if len(h.hosts) != 0 {
		t.Errorf("%d hosts are remembered", len(h.hosts))
	}
	again, _ := enter()
	again.leave(busy, 2*longestAsked)
	if _, wait := enter(); wait > longestAsked {
		t.Errorf("it has a host left alone for %v", wait)
	}
	probe.leave(well, 0) // of the time before
	if v, _ := enter(); v != nil {
		t.Error("an answer from before counts")
	}
}

// Hosts to which nothing goes any more are forgotten when there are many.
func TestThrottleForgets(t *testing.T) {
	var h throttle
	for i := range 3 * manyHosts {
		v, _, _ := h.enter(string(rune('a' + i)))
		v.leave(busy, time.Millisecond)
		h.mu.Lock()
		for _, old := range h.hosts {
			old.until = instant.Now().Add(-2 * longestPause)
		}
		h.mu.Unlock()
	}
	if len(h.hosts) > manyHosts {
		t.Errorf("%d hosts are remembered", len(h.hosts))
	}
}
