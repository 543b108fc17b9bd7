package lock

import (
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// The database's clock goes back by an hour. A lease lasts for what its holder has asked for from then on, and not for an hour more, whether
// the holder lives, describes itself, has released it before its minimum hold was over, or is dead. None is cut.
//
// The class: an instant that was written for a clock that has been set back since: docs/adr/0074-a-lease-that-outlasts-its-length.md.
func TestALeaseOutlastsNoClockThatWentBack(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		opt := Options{TTL: 10 * time.Second}
		db.Advance(t, 2*time.Hour)
		l, rival := locker(t, db, opt), locker(t, db, opt)
		alive, talks, dead := l.mustTake(t, "alive"), l.mustTake(t, "talks"), l.mustTake(t, "dead")
		l.mustTake(t, "other")
		opt.MinHold = time.Minute
		kept := locker(t, db, opt).mustTake(t, "kept")
		pool := rival.mustPool(t, "pool", 1)
		slot := pool.mustTake(t)
		db.Advance(t, 4*time.Second)
		must(t, dead.SetMeta(t.Context(), "soon dead")) // of its ten seconds six are left
		db.Advance(t, -time.Hour)

		must(t, alive.Extend(t.Context()))
		must(t, talks.SetMeta(t.Context(), "busy"))
		must(t, kept.Release(t.Context()))
		if got := state(t, l, "dead"); got.Ahead != time.Hour || got.Left != time.Hour+6*time.Second {
			t.Errorf("a list shows %+v", got)
		}
		for _, name := range []string{"alive", "talks", "dead", "kept"} {
			_, err := rival.TryAcquire(t.Context(), name)
			want(t, name+" is held", err, ErrHeld)
		}
		_, err := pool.TryAcquire(t.Context())
		want(t, "the pool is full", err, ErrHeld)
		for name, left := range map[string]time.Duration{
			"alive": 10 * time.Second, "talks": 10 * time.Second, "dead": 6 * time.Second, "kept": time.Minute,
		} {
			if got := state(t, l, name); got.Left != left || got.Ahead != 0 {
				t.Errorf("%s is held for %v, want %v: %+v", name, got.Left, left, got)
			}
		}
		if got := state(t, l, "other"); got.Ahead != time.Hour-4*time.Second {
			t.Errorf("one that nobody wants was changed: %+v", got)
		}
		must(t, alive.Check())
		must(t, slot.Extend(t.Context()))
		db.Advance(t, 6*time.Second-time.Millisecond)
		_, err = rival.TryAcquire(t.Context(), "dead")
		want(t, "to the end of the lease", err, ErrHeld)
		db.Advance(t, time.Millisecond)
		if next := rival.mustTake(t, "dead"); next.Fence() <= dead.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), dead.Fence())
		}
		want(t, "the dead one", dead.Extend(t.Context()), ErrLost)
	})
}

// A lease of a pool that was granted after the clock went back stays as it is when another one of the pool is ended in time: it outlasts
// no second step either.
func TestALeaseAfterTheClockWentBackStays(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		opt := Options{TTL: 10 * time.Second}
		db.Advance(t, 3*time.Hour)
		pool := locker(t, db, opt).mustPool(t, "pool", 2)
		pool.mustTake(t)
		db.Advance(t, -time.Hour)
		pool.mustTake(t)
		db.Advance(t, 4*time.Second)
		l := locker(t, db, opt)
		rival := l.mustPool(t, "pool", 2)
		left := func(when string, first, second time.Duration) {
			t.Helper()
			_, err := rival.TryAcquire(t.Context())
			want(t, when+" the pool is full", err, ErrHeld)
			rows, err := l.Get(t.Context(), "pool")
			must(t, err)
			for _, row := range rows {
				if left := map[int]time.Duration{1: first, 2: second}[row.Slot]; row.Slot > 0 && row.Left != left {
					t.Errorf("%s slot %d is held for %v, want %v", when, row.Slot, row.Left, left)
				}
			}
		}
		left("after one step,", 10*time.Second, 6*time.Second)
		db.Advance(t, -time.Hour)
		left("after two steps,", 10*time.Second, 10*time.Second)
	})
}

// Servers of a cluster whose clocks differ by less than a minute end no leases of each other, and a longer lease is not shortened by a
// late renewal.
func TestALeaseOfAServerThatIsAhead(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: 10 * time.Second})
		db.Advance(t, time.Hour)
		le := l.mustTake(t, "x")
		db.Advance(t, -time.Minute)
		_, err := l.TryAcquire(t.Context(), "x")
		want(t, "it is held", err, ErrHeld)
		must(t, le.Extend(t.Context()))
		if got := state(t, l, "x"); got.Left != 70*time.Second {
			t.Errorf("it is held for %v", got.Left)
		}
		ticket, err := l.TakeTicket(t.Context(), "long", TicketOptions{TTL: time.Hour})
		must(t, err)
		db.Advance(t, -2*time.Hour)
		_, err = l.RenewTicket(t.Context(), "long", ticket.Token, 10*time.Second)
		must(t, err)
		if got := state(t, l, "long"); got.Left != time.Hour {
			t.Errorf("of an hour %v are left", got.Left)
		}
	})
}
