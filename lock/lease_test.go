package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/internal/instant"
)

// The context ends by this host's clock, although the database's stands still:
// it must not take an answer from anybody to know.
func TestTheContextEndsBeforeTheLease(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: 3 * time.Second, Margin: time.Second})
		sent := instant.Now()
		le := l.mustTake(t, "x")
		want(t, "at first", le.Check(), nil)
		if left := le.Left(); left > 2*time.Second { // a slow machine only has less
			t.Errorf("the context ends in %v, and the lease a margin of 1s later", left)
		}
		want(t, "a renewal", le.Extend(t.Context()), nil)
		if left := le.Left(); left > 2*time.Second {
			t.Errorf("after a renewal the context ends in %v", left)
		}
		want(t, "its end", ended(t, le.Context()), ErrLost)
		if held := instant.Now().Sub(sent); held < 2*time.Second {
			t.Errorf("it ended after %v", held)
		}
		want(t, "check", le.Check(), ErrLost)
		want(t, "extend", le.Extend(t.Context()), ErrLost)
		if le.Left() != 0 {
			t.Errorf("it has %v left", le.Left())
		}
		// The row is still its own, and is freed for the next one; that it was
		// lost here is said even so.
		want(t, "release", le.Release(t.Context()), ErrLost)
		if got := state(t, l, "x"); got.State != Free {
			t.Errorf("it is %s", got.State)
		}
	})
}

// A grant that comes when its time is over is none, and is given back.
func TestALateAnswerIsNoGrant(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		gate := make(chan struct{})
		var slow atomic.Bool
		held := db.Broken(t, &dbtest.Fault{Random: func() (bool, bool) {
			if slow.CompareAndSwap(true, false) {
				<-gate
			}
			return false, false
		}})
		l := lockerOn(t, held, Options{TTL: 500 * time.Millisecond})
		eventually(t, "it is granted in time once", func() bool { // which a slow machine may not manage at first
			le, err := l.TryAcquire(t.Context(), "x")
			return err == nil && le.Release(t.Context()) == nil
		})
		slow.Store(true)
		time.AfterFunc(600*time.Millisecond, func() { close(gate) })
		_, err := l.TryAcquire(t.Context(), "x")
		if err == nil {
			t.Fatal("it was granted")
		}
		eventually(t, "it is given back", func() bool { return state(t, l, "x").State == Free })
		_ = err
	})
}

func TestHeartbeat(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		const ttl = time.Minute // less would be over before a slow machine has renewed it
		l := locker(t, db, Options{TTL: ttl, Heartbeat: 100 * time.Millisecond})
		le := l.mustTake(t, "x")
		eventually(t, "it is renewed many times", func() bool { return state(t, l, "x").Extends > 8 })
		if got := state(t, l, "x"); got.Until.Sub(got.Since) < ttl+500*time.Millisecond {
			t.Errorf("from %v it is held until %v", got.Since, got.Until)
		}
		must(t, le.Check())
		must(t, le.Release(t.Context()))
		if got := state(t, l, "x"); got.Takeovers != 0 || got.Fence != 1 {
			t.Errorf("got %+v", got)
		}
	})
}

// What somebody else has done to the row, the next renewal notices.
func TestHeartbeatNoticesLoss(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Hour, Heartbeat: 50 * time.Millisecond})
		le := l.mustTake(t, "x")
		_, err := l.ForceRelease(t.Context(), "x", 0, "me", "test")
		must(t, err)
		want(t, "its end", ended(t, le.Context()), ErrLost)
	})
}

func TestStall(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Hour, Stall: 300 * time.Millisecond, Heartbeat: 50 * time.Millisecond})
		var le *Lease
		eventually(t, "with progress it is held for longer", func() bool {
			le = l.mustTake(t, "x")
			begun, last, longest := instant.Now(), instant.Now(), time.Duration(0)
			for now := begun; now.Sub(begun) < 600*time.Millisecond; now = instant.Now() {
				le.Progress()
				longest, last = max(longest, now.Sub(last)), now
				<-time.After(5 * time.Millisecond)
			}
			err := le.Check()
			if err != nil && max(longest, instant.Now().Sub(last)) < 200*time.Millisecond {
				t.Errorf("without a pause of more than %v: %v", longest, err)
			}
			if err != nil { // this test has stalled itself, on a slow machine
				want(t, "release", le.Release(t.Context()), ErrStalled)
			}
			return err == nil
		})
		err := ended(t, le.Context())
		want(t, "without", err, ErrStalled)
		want(t, "without", err, ErrLost)
		want(t, "release", le.Release(t.Context()), ErrStalled)
		l.mustTake(t, "x")
	})
}

func TestMaxHold(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Hour, MaxHold: 200 * time.Millisecond})
		err := l.Do(t.Context(), "x", func(ctx context.Context, _ *Lease) error {
			want(t, "its end", ended(t, ctx), ErrMaxHold)
			return nil
		})
		want(t, "Do", err, ErrMaxHold)
		want(t, "Do", err, ErrLost)
	})
}

// While the database cannot be reached, the lease has the time that it had.
func TestRenewalsThatFail(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		var down atomic.Bool
		broken := db.Broken(t, &dbtest.Fault{Random: func() (bool, bool) { return down.Load(), false }})
		l := lockerOn(t, broken, Options{TTL: 5 * time.Second, Heartbeat: 100 * time.Millisecond})
		le := l.mustTake(t, "x")
		down.Store(true)
		err := le.Extend(t.Context())
		if err == nil || errors.Is(err, ErrLost) {
			t.Errorf("got %v, want another error", err)
		}
		must(t, le.Check())
		down.Store(false)
		must(t, le.Extend(t.Context()))
		down.Store(true)
		want(t, "its end", ended(t, le.Context()), ErrLost)
		down.Store(false)
		rival := locker(t, db, Options{})
		got, err := rival.Acquire(t.Context(), "x")
		must(t, err)
		must(t, got.Release(t.Context()))
	})
}

// A renewed lease counts from before its renewal was asked for, and not from the answer.
func TestALeaseCountsFromTheQuestion(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		var asked instant.Instant // before the last statement
		l := lockerOn(t, db.Broken(t, &dbtest.Fault{Call: -1, Stall: func(string) { asked = instant.Now() }}), Options{TTL: time.Hour})
		le := l.mustTake(t, "x")
		before := le.sent.At
		must(t, le.Extend(t.Context()))
		if at := le.sent.At; at <= before || at > asked {
			t.Errorf("it counts from %v after the first question, and from %v after the second", at.Sub(before), at.Sub(asked))
		}
	})
}

// A host that was suspended, or a virtual machine that was paused, finds that
// its wall clock has jumped.
func TestAPausedHost(t *testing.T) {
	dbtest.One(t, sqlite.Dialect, func(t *testing.T, db *dbtest.DB) {
		le := newLease(t.Context(), lockerOn(t, db, Options{TTL: time.Minute}), "x")
		le.begun = instant.Now()
		le.sent = instant.MarkNow(t.Context()).Back(2*time.Second, 2*time.Second)
		if _, err := le.verdict(); err != nil {
			t.Errorf("both clocks went on by 2s: %v", err)
		}
		le.sent = instant.MarkNow(t.Context()).Back(2*time.Second, 6*time.Second)
		_, err := le.verdict()
		want(t, "the wall clock by 4s more", err, ErrLost)
		le.sent = instant.MarkNow(t.Context()).Back(2*time.Second, -time.Hour)
		if _, err = le.verdict(); err != nil {
			t.Errorf("it was set back: %v", err)
		}
	})
}

func TestBind(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{})
		type key struct{}
		le, err := l.TryAcquire(context.WithValue(t.Context(), key{}, "value"), "x")
		must(t, err)
		if le.Context().Value(key{}) != "value" {
			t.Error("the lease's context has lost its values")
		}
		boom := errors.New("boom")
		ctx, cancel := context.WithCancelCause(t.Context())
		work, stop := le.Bind(ctx)
		defer stop()
		cancel(boom)
		want(t, "the caller's end", ended(t, work), boom)
		work, stop = le.Bind(t.Context())
		defer stop()
		must(t, le.Release(t.Context()))
		want(t, "the lease's end", ended(t, work), ErrReleased)
	})
}

// A lease whose grant came late is renewed at once: its time has run since the request.
func TestLateGrant(t *testing.T) {
	dbtest.Memory.Each(t, func(t *testing.T, db *dbtest.DB) {
		le := locker(t, db, Options{}).mustTake(t, "late")
		asked := instant.MarkNow(t.Context())
		asked.At = asked.At.Add(-30 * time.Minute) // half of its hour
		le.opt.Heartbeat = 20 * time.Minute
		must(t, le.begin(asked))
		eventually(t, "it is renewed", func() bool {
			le.mu.Lock()
			defer le.mu.Unlock()
			return le.sent.At > asked.At
		})
	})
}
