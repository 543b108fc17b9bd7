package push

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// A host that is busy is left alone for as long as it says; then one request at a time goes
// there, until one is answered.
func TestThrottle(t *testing.T) {
	ctx := t.Context()
	var h throttle
	enter := func(patience time.Duration) (func(state, time.Duration), time.Duration) {
		t.Helper()
		leave, wait, err := h.enter(ctx, "a", patience)
		must(t, err)
		return leave, wait
	}
	first, _ := enter(0)
	second, _ := enter(0)
	third, _ := enter(0)
	other, _, err := h.enter(ctx, "b", 0)
	must(t, err)
	first(busy, time.Hour)
	second(busy, 0) // was under way, and says nothing new
	if leave, wait := enter(0); leave != nil || wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("it waits %v", wait)
	}
	if leave, _, err := h.enter(ctx, "b", 0); err != nil || leave == nil {
		t.Error("another host waits, too")
	}
	other(well, 0)
	due := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.hosts["a"].until = instant.Now()
	}
	due()
	probe, _ := enter(0)
	if probe == nil {
		t.Fatal("it is not tried when its time is over")
	}
	if leave, wait := enter(0); leave != nil || wait <= 0 {
		t.Error("more than one request goes there")
	}
	probe(unknown, 0)
	if leave, wait := enter(0); leave != nil || wait <= 0 || wait > longestPause {
		t.Errorf("no answer, and it waits %v", wait)
	}
	due()
	probe, _ = enter(0)
	waits := make(chan error, 3)
	for range 3 {
		go func() {
			leave, _, err := h.enter(ctx, "a", forever)
			if err == nil {
				leave(well, 0)
			}
			waits <- err
		}()
	}
	probe(well, 0)
	for range 3 {
		must(t, <-waits)
	}
	third(well, 0)
	if len(h.hosts) != 0 {
		t.Errorf("%d hosts are remembered", len(h.hosts))
	}
	again, _ := enter(0)
	again(busy, 2*longestAsked)
	if _, wait := enter(0); wait > longestAsked {
		t.Errorf("it has a host left alone for %v", wait)
	}
	ended, cancel := context.WithCancelCause(ctx)
	cause := errors.New("enough")
	cancel(cause)
	if _, _, err := h.enter(ended, "a", forever); !errors.Is(err, cause) {
		t.Errorf("it ends with %v", err)
	}
}

// Whoever waits is not forgotten: of many that wait for a host that is tried again and again
// all go there in the end.
func TestThrottleWakes(t *testing.T) {
	var h throttle
	leave, _, err := h.enter(t.Context(), "a", 0)
	must(t, err)
	leave(busy, 0)
	done := make(chan error, 50)
	for i := range cap(done) {
		go func() {
			leave, _, err := h.enter(t.Context(), "a", forever)
			if err == nil && i%10 == 0 {
				leave(unknown, 0)
			} else if err == nil {
				leave(well, 0)
			}
			done <- err
		}()
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := 0; n < cap(done); {
		select {
		case err := <-done:
			must(t, err)
			n++
		case <-tick.C: // its time is over
			h.mu.Lock()
			if a := h.hosts["a"]; a != nil {
				a.until = instant.Now()
				close(a.changed)
				a.changed = make(chan struct{})
			}
			h.mu.Unlock()
		}
	}
}
