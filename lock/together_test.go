package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// returning is missing where each caller sends statements of its own.
var returning dbtest.With = func(d *sqlrun.Dialect) bool { return d.Returning != nil }

var severalReturning dbtest.With = func(d *sqlrun.Dialect) bool { return d.Returning != nil && d.SkipLocked != "" }

// crowded calls f n times at once, and has what they ask for first sent together.
func (l *Locker) crowded(t *testing.T, n int, f func(i int)) {
	t.Helper()
	l.crowd.mu.Lock()
	l.crowd.senders += senders
	l.crowd.mu.Unlock()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	eventually(t, "all of them to wait", func() bool {
		l.crowd.mu.Lock()
		defer l.crowd.mu.Unlock()
		return len(l.crowd.waiting) == n
	})
	for range senders {
		l.crowd.next()
	}
	all.Wait()
	eventually(t, "all senders to end", func() bool {
		l.crowd.mu.Lock()
		defer l.crowd.mu.Unlock()
		return l.crowd.senders == 0 && len(l.crowd.waiting) == 0
	})
}

// Many locks are taken and released with few statements, and each caller has its own.
func TestTogether(t *testing.T) {
	having(t, returning, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute})
		const n = 30
		leases := make([]*Lease, n)
		for round := range 2 {
			l.crowded(t, n, func(i int) {
				var err error
				if leases[i], err = l.TryAcquire(t.Context(), fmt.Sprint("lock", i)); err != nil {
					t.Error(err)
				}
			})
			for i, le := range leases {
				if s := state(t, l, fmt.Sprint("lock", i)); le == nil || s.State != Held || s.By != le.Owner() || s.Fence != le.Fence() || le.Fence() != int64(round+1) {
					t.Fatalf("round %d: lease %+v of %+v", round, le, s)
				}
			}
			l.crowded(t, n, func(i int) {
				if err := leases[i].Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			for i, le := range leases {
				if s := state(t, l, fmt.Sprint("lock", i)); s.State != Free || s.By != le.Owner() || s.Takeovers != 0 {
					t.Fatalf("round %d: released %+v", round, s)
				}
			}
		}
	})
}

// Each caller gets the answer that it would get alone.
func TestTogetherEachHasItsAnswer(t *testing.T) {
	having(t, returning, func(t *testing.T, db *dbtest.DB) {
		l, other := locker(t, db, Options{TTL: time.Minute}), locker(t, db, Options{TTL: time.Minute})
		for _, name := range []string{"free", "contended"} {
			must(t, l.mustTake(t, name).Release(t.Context()))
		}
		held := other.mustTake(t, "held")
		l.mustPool(t, "pool", 2).mustTake(t)
		names := []string{"free", "held", "new", "pool", "contended", "contended"}
		leases, errs := make([]*Lease, len(names)), make([]error, len(names))
		l.crowded(t, len(names), func(i int) { leases[i], errs[i] = l.TryAcquire(t.Context(), names[i]) })
		var refused *HeldError
		if !errors.As(errs[1], &refused) || refused.By != held.Owner() {
			t.Errorf("held: %v", errs[1])
		}
		want(t, "free", errs[0], nil)
		want(t, "new", errs[2], nil)
		want(t, "pool", errs[3], ErrPool)
		if (errs[4] == nil) == (errs[5] == nil) || !errors.Is(errors.Join(errs[4], errs[5]), ErrHeld) {
			t.Errorf("of two who asked for one lock: %v, %v", errs[4], errs[5])
		}
		if got := state(t, l, "held"); got.By != held.Owner() {
			t.Errorf("got %+v", got)
		}

		// Of several releases one comes too late.
		var mine []*Lease
		for _, le := range leases {
			if le != nil {
				mine = append(mine, le)
			}
		}
		_, err := other.ForceRelease(t.Context(), "new", 0, "me", "test")
		must(t, err)
		ends := make([]error, len(mine))
		l.crowded(t, len(mine), func(i int) { ends[i] = mine[i].Release(t.Context()) })
		for i, le := range mine {
			if le.Name() == "new" {
				want(t, "release of a lease that was ended", ends[i], ErrLost)
			} else {
				want(t, "release of "+le.Name(), ends[i], nil)
			}
			if got := state(t, l, le.Name()); got.State != Free {
				t.Errorf("got %+v", got)
			}
		}
	})
}

// No guard is missing for many: see TestOnlyItsOwn.
func TestTogetherOnlyItsOwn(t *testing.T) {
	for _, change := range []string{"lock_by = 'x'", "fence = fence + 1", "released_at = {now}", "state = 'FREE'", "expire_at = {now}"} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			returning.EachClock(t, func(t *testing.T, db *dbtest.DB) {
				l := locker(t, db, Options{TTL: time.Minute})
				var leases []*Lease
				for i := range 3 {
					leases = append(leases, l.mustTake(t, fmt.Sprint("lock", i)))
				}
				db.Do(t, `UPDATE {prefix}lock SET `+change+` WHERE name <> 'lock1'`, nil)
				before := db.List(t, `SELECT * FROM {prefix}lock WHERE name <> 'lock1' ORDER BY name`, nil)
				errs := make([]error, len(leases))
				l.crowded(t, len(leases), func(i int) { errs[i] = leases[i].Release(t.Context()) })
				want(t, "the first", errs[0], ErrLost)
				want(t, "the second", errs[1], nil)
				want(t, "the third", errs[2], ErrLost)
				after := db.List(t, `SELECT * FROM {prefix}lock WHERE name <> 'lock1' ORDER BY name`, nil)
				if strings.Join(after, "\n") != strings.Join(before, "\n") {
					t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
				}
			}, (*testing.T).Parallel)
		})
	}
}

// Those who share a statement do not wait for a row that somebody has locked.
func TestTogetherNobodyWaitsForAnothersRow(t *testing.T) {
	having(t, severalReturning, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute})
		for _, name := range []string{"free2", "free3", "stuck taken"} { // rows that others have locked may lie around a new one
			must(t, l.mustTake(t, name).Release(t.Context()))
		}
		stuck, free := l.mustTake(t, "stuck released"), l.mustTake(t, "free")
		tx, err := db.Pool().BeginTx(t.Context(), nil)
		must(t, err)
		defer tx.Rollback() //nolint:errcheck // it is over by then
		for _, name := range []string{"stuck taken", "stuck released"} {
			_, err = db.On(tx).Exec(t.Context(), sqlrun.Unlisted(`UPDATE {prefix}lock SET meta = 'locked' WHERE name = :name AND slot = 0`), sqlrun.Args{"name": name})
			must(t, err)
		}
		var late sync.WaitGroup
		take := func(name string) {
			le, err := l.TryAcquire(t.Context(), name)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			t.Cleanup(func() { _ = le.Release(context.WithoutCancel(t.Context())) })
		}
		freed := make(chan error, 1)
		l.crowded(t, 5, func(i int) {
			switch i {
			case 0:
				late.Go(func() { take("stuck taken") })
			case 1:
				late.Go(func() { freed <- stuck.Release(t.Context()) })
			case 4:
				if err := free.Release(t.Context()); err != nil {
					t.Error(err)
				}
			default:
				take(fmt.Sprint("free", i))
			}
		})
		select {
		case err := <-freed:
			t.Errorf("a lock whose row is locked was released: %v", err)
		default:
		}
		must(t, tx.Rollback())
		late.Wait()
		must(t, result(t, freed))
	})
}

// Whoever waits for its row with a statement of its own is in nobody's way for long.
func TestTogetherAPlaceIsPassedOn(t *testing.T) {
	having(t, returning, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute})
		for range senders {
			if _, err := l.crowd.ask(t.Context(), &wish{}); !errors.Is(err, errAlone) {
				t.Fatal(err)
			}
		}
		for i := range 3 {
			must(t, l.mustTake(t, fmt.Sprint("free", i)).Release(t.Context()))
		}
	})
}

// Whoever leaves before the statement is sent gets no lock, and keeps nobody else from theirs.
func TestTogetherSomeLeave(t *testing.T) {
	having(t, returning, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute})
		l.crowd.mu.Lock()
		l.crowd.senders = senders
		l.crowd.mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		left, stays := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := l.TryAcquire(ctx, "left")
			left <- err
		}()
		go func() {
			le, err := l.TryAcquire(t.Context(), "stays")
			if err == nil {
				err = le.Release(t.Context())
			}
			stays <- err
		}()
		eventually(t, "both to wait", func() bool {
			l.crowd.mu.Lock()
			defer l.crowd.mu.Unlock()
			return len(l.crowd.waiting) == 2
		})
		cancel()
		want(t, "who left", result(t, left), context.Canceled)
		for range senders {
			l.crowd.next()
		}
		must(t, result(t, stays))
		if rows, err := l.Get(t.Context(), "left"); !errors.Is(err, ErrNotFound) {
			t.Errorf("got %+v, %v", rows, err)
		}
	})
}

// Whoever leaves while the statement is under way, and was not sent yet, keeps no lock.
func TestTogetherOneLeavesLate(t *testing.T) {
	having(t, returning, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Hour})
		must(t, l.mustTake(t, "left").Release(t.Context()))
		w := &wish{
			args: sqlrun.Args{"name": "left", "owner": "gone:1"}, granted: make(chan struct{}),
			shared: sharing{ttl: time.Hour.Microseconds()},
		}
		l.crowd.mu.Lock()
		l.crowd.senders, l.crowd.waiting = 1, []*wish{w}
		l.crowd.mu.Unlock()
		part := l.crowd.take()
		l.crowd.leave(w)
		l.crowd.send(part)
		eventually(t, "the lock to be given up", func() bool { return state(t, l, "left").State == Free })
		if got := state(t, l, "left"); got.By != "gone:1" {
			t.Errorf("it was not taken: %+v", got)
		}
	})
}
