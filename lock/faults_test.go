package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
)

// The connection is cut at each round trip in turn, before or after the server has done the
// work, or something before the server says in its own words that it has no answer. Whatever
// happens: no two leases are valid at the same time, everything reported as done is done, and the
// lock is not lost to all.
func TestFaults(t *testing.T) {
	scenarios := map[string]func(ctx context.Context, l *Locker) (*Lease, error){
		"a lock": func(ctx context.Context, l *Locker) (*Lease, error) { return l.TryAcquire(ctx, "x") },
		"a slot": func(ctx context.Context, l *Locker) (*Lease, error) {
			p, err := l.Pool("x", 1)
			if err != nil {
				return nil, err
			}
			return p.TryAcquire(ctx)
		},
		"a lock that is waited for": func(ctx context.Context, l *Locker) (*Lease, error) { return l.Acquire(ctx, "x") },
	}
	for name, take := range scenarios {
		t.Run(name, func(t *testing.T) {
			dialects(t, func(t *testing.T, db *dbtest.DB) {
				last := int64(0)
				faults := func(after bool, who string, says error) {
					for call := 1; ; call++ {
						fault := &dbtest.Fault{Call: call, After: after, Says: says}
						broken := db.Broken(t, fault)
						broken.Pool().SetMaxOpenConns(2)
						fence := runWithFault(t, lockerOn(t, broken, Options{TTL: 10 * time.Second}), take, after)
						rival, err := locker(t, db, Options{}).acquireAny(t.Context(), take)
						must(t, err)
						if fence != 0 && rival.Fence() <= fence || rival.Fence() <= last {
							t.Errorf("%scall %d: fence %d after %d and %d", who, call, rival.Fence(), fence, last)
						}
						last = rival.Fence()
						must(t, rival.Release(t.Context()))
						must(t, broken.Pool().Close()) // there are many
						if !fault.Reached() {
							break
						}
					}
				}
				for _, after := range []bool{false, true} {
					faults(after, "", nil)
					for who, says := range dbtest.Unanswered(db.Dialect) {
						faults(after, who+", ", says)
					}
				}
			})
		})
	}
}

func (l *Locker) acquireAny(ctx context.Context, take func(context.Context, *Locker) (*Lease, error)) (*Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, longWait)
	defer cancel()
	for {
		le, err := take(ctx, l)
		if err == nil || !errors.Is(err, ErrHeld) {
			return le, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// runWithFault takes, renews and releases a lock, and returns its fence if it
// was granted.
func runWithFault(t *testing.T, l *Locker, take func(context.Context, *Locker) (*Lease, error), after bool) int64 {
	t.Helper()
	le, err := take(t.Context(), l)
	if err != nil {
		if !engines.Unavailable(err) {
			t.Errorf("taking it: %v", err)
		}
		return 0
	}
	extended := le.Extend(t.Context())
	if extended != nil && !engines.Unavailable(extended) {
		t.Errorf("extending it (after: %v): %v", after, extended)
	}
	must(t, le.Check())
	// A release is repeated until it is answered.
	must(t, le.Release(t.Context()))
	return le.Fence()
}

// What may have been granted is given back, and nothing else is.
func TestAbandon(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{})
		le := l.mustTake(t, "x")
		l.abandon("x", "another")
		l.leftovers.Wait()
		must(t, le.Extend(t.Context()))
		l.abandon("x", le.Owner())
		if got := state(t, l, "x"); got.State != Free {
			t.Errorf("it is %s", got.State)
		}
	})
}

// A release whose first answer is lost, and that was done by force before its
// second, has been lost; without force it has been done.
func TestARepeatedRelease(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, forced := range []bool{false, true} {
			admin := locker(t, db, Options{})
			armed := false
			broken := db.Broken(t, &dbtest.Fault{Random: func() (bool, bool) {
				if !armed {
					return false, false
				}
				armed = false
				if forced {
					_, err := admin.ForceRelease(t.Context(), "x", 0, "me", "test")
					must(t, err)
				}
				admin.mustTakeSoon(t, "x", forced)
				return true, !forced
			}})
			l := lockerOn(t, broken, Options{})
			le := l.mustTake(t, "x")
			armed = true
			err := le.Release(t.Context())
			if forced {
				want(t, "by force", err, ErrLost)
			} else {
				must(t, err)
			}
		}
	})
}

// mustTakeSoon takes the lock if it is free now, so that the row has another
// holder by the time of a repetition.
func (l *Locker) mustTakeSoon(t *testing.T, name string, now bool) {
	t.Helper()
	if !now {
		return
	}
	le := l.mustTake(t, name)
	must(t, le.Release(t.Context()))
}
