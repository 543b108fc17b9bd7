package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// longSleep bounds the time between two looks at the clock, because timers do
// not run while a host is suspended.
const longSleep = time.Second

// deadline returns the time at which the lease's context must end. le.mu is held.
func (le *Lease) deadline() instant.Instant { return le.sent.At.Add(le.opt.TTL - le.opt.Margin) }

// verdict returns why the lease is over, or the time until the next check.
// le.mu is held.
func (le *Lease) verdict() (time.Duration, error) {
	if le.end != nil {
		return 0, le.end
	}
	now := instant.Now()
	wait := min(longSleep, le.deadline().Sub(now))
	if wait <= 0 {
		return 0, fmt.Errorf("%w: %s: it was not renewed in time", ErrLost, le.name)
	}
	// A virtual machine does not notice that it was paused, but its wall clock
	// may have been set since.
	if jump := le.sent.Jump(); jump > le.opt.Margin/2 {
		return 0, fmt.Errorf("%w: %s: the host was paused, or its clock was set, by %v", ErrLost, le.name, jump)
	}
	if le.opt.Stall > 0 {
		left := le.progressed.Add(le.opt.Stall).Sub(now)
		if left <= 0 {
			return 0, fmt.Errorf("%w for %v: %s", ErrStalled, le.opt.Stall, le.name)
		}
		wait = min(wait, left)
	}
	if le.opt.MaxHold > 0 {
		left := le.begun.Add(le.opt.MaxHold).Sub(now)
		if left <= 0 {
			return 0, fmt.Errorf("%w: %s: %v", ErrMaxHold, le.name, le.opt.MaxHold)
		}
		wait = min(wait, left)
	}
	return wait, nil
}

// finish ends the lease in this process unless it has ended already.
func (le *Lease) finish(why error) {
	le.mu.Lock()
	lost := le.end == nil && !le.released
	if le.end == nil {
		le.end = why
		for _, timer := range []*time.Timer{le.watcher, le.keeper} {
			if timer != nil {
				timer.Stop()
			}
		}
		le.cancel(why)
		close(le.done)
	}
	le.mu.Unlock()
	if lost {
		le.l.lost(le)
	}
}

// lose ends a lease that a statement did not find any more. It returns why the
// lease has ended.
func (le *Lease) lose() error {
	le.finish(fmt.Errorf("%w: %s: it expired, or somebody else has released or taken it", ErrLost, le.name))
	return le.Check()
}

// watch ends the lease's context in time, even if the database's driver hangs.
func (le *Lease) watch() {
	for {
		le.mu.Lock()
		wait, end := le.verdict()
		le.mu.Unlock()
		if end != nil {
			le.finish(end)
			return
		}
		select {
		case <-le.done:
			return
		case <-time.After(wait):
		}
	}
}

// keep renews the lease until it is over. It soon retries a renewal that fails
// or gets no answer, at least twice before the deadline.
func (le *Lease) keep() {
	for {
		// Not le.ctx itself: a release must not cut off a renewal under way.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(le.ctx), max(le.opt.Heartbeat/2, minTTL/4))
		err := le.Extend(ctx)
		cancel()
		wait := le.opt.Heartbeat
		if err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrReleased) {
			le.opt.Logger.Warn("a lock was not renewed", "lock", le.name, "left", le.Left(), "err", err)
			wait = le.opt.Heartbeat / 10
		}
		select {
		case <-le.done:
			return
		case <-time.After(wait):
		}
	}
}
