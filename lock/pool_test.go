package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

func TestPool(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute})
		p := l.mustPool(t, "exports", 3)
		var slots []int
		var held []*Lease
		for range 3 {
			le := p.mustTake(t)
			slots, held = append(slots, le.Slot()), append(held, le)
		}
		slices.Sort(slots)
		if !slices.Equal(slots, []int{1, 2, 3}) {
			t.Errorf("the slots are %v", slots)
		}
		_, err := locker(t, db, Options{}).mustPool(t, "exports", 3).TryAcquire(t.Context())
		var full *HeldError
		if !errors.As(err, &full) || full.Slots != 3 || full.By == "" {
			t.Errorf("of a full pool: %v", err)
		}
		must(t, held[1].Extend(t.Context()))
		must(t, held[1].Release(t.Context()))
		again := p.mustTake(t)
		if again.Slot() != held[1].Slot() || again.Fence() != held[1].Fence()+1 {
			t.Errorf("slot %d with fence %d came back as slot %d with %d", held[1].Slot(), held[1].Fence(), again.Slot(), again.Fence())
		}
		db.Advance(t, time.Minute)
		for range 3 {
			p.mustTake(t) // the leases have run out
		}
		want(t, "an old lease", again.Extend(t.Context()), ErrLost)
	})
}

// As many are granted at once as are free, each slot once.
func TestEightTakeEight(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		must(t, locker(t, db, Options{}).mustPool(t, "p", 8).Resize(t.Context(), 8))
		var pools []*Pool
		for range 8 {
			pools = append(pools, locker(t, db, Options{}).mustPool(t, "p", 8))
		}
		for range 5 {
			var mu sync.Mutex
			held := map[int]*Lease{}
			var group sync.WaitGroup
			for _, p := range pools {
				group.Go(func() {
					le, err := p.TryAcquire(t.Context())
					mu.Lock()
					defer mu.Unlock()
					if err != nil || held[le.Slot()] != nil {
						t.Errorf("got %+v, %v", le, err)
						return
					}
					held[le.Slot()] = le
				})
			}
			group.Wait()
			for _, le := range held {
				if err := le.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// A slot that another is just taking is passed over, and not waited for.
func TestTakersPassEachOther(t *testing.T) {
	having(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		p := locker(t, db, Options{}).mustPool(t, "p", 2)
		must(t, p.Resize(t.Context(), 2))
		other := db.Begin(t, nil)
		defer func() { must(t, other.Rollback()) }()
		var slot int
		must(t, db.On(other).Get(t.Context(), sqlrun.Unlisted(`SELECT slot FROM {prefix}lock WHERE name = 'p' AND slot = 1 FOR UPDATE`),
			nil, &slot))
		ctx, cancel := context.WithTimeout(t.Context(), longWait/3)
		defer cancel()
		le, err := p.TryAcquire(ctx)
		if err != nil || le.Slot() != 2 {
			t.Fatalf("got %+v, %v", le, err)
		}
		must(t, le.Release(ctx))
	})
}

func TestResize(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute})
		p := l.mustPool(t, "p", 0)
		_, err := p.TryAcquire(t.Context())
		want(t, "of no pool", err, ErrNotFound)
		for _, bad := range []int{0, -1, MaxSlots + 1} {
			want(t, "a size that cannot be", p.Resize(t.Context(), bad), ErrInvalid)
		}
		must(t, p.Resize(t.Context(), 5))
		var held []*Lease
		for range 5 {
			le := p.mustTake(t)
			held = append(held, le)
		}
		for _, i := range []int{0, 1, 3} {
			must(t, held[i].Release(t.Context()))
		}
		want(t, "below what is held", p.Resize(t.Context(), 1), ErrInUse)
		// One that was taken after the transaction looked is not closed either.
		n, err := l.db.Exec(t.Context(), closeSlots, sqlrun.Args{"name": "p", "slots": []int64{int64(held[2].Slot())}})
		if n != 0 || err != nil {
			t.Errorf("a slot that is held was closed: %d, %v", n, err)
		}
		size := func(want int) {
			t.Helper()
			if got, err := p.Size(t.Context()); got != want || err != nil {
				t.Errorf("the size is %d, %v; want %d", got, err, want)
			}
		}
		size(5)
		must(t, p.Resize(t.Context(), 2))
		size(2)
		must(t, held[2].Extend(t.Context()))
		must(t, held[4].Extend(t.Context()))
		_, err = p.TryAcquire(t.Context())
		want(t, "both slots are held", err, ErrHeld)
		db.Advance(t, time.Minute) // nobody's any more, though not released
		must(t, p.Resize(t.Context(), 1))
		size(1)
		must(t, p.Resize(t.Context(), 7))
		size(7)
		fences := map[int]int64{}
		for range 7 {
			le := p.mustTake(t)
			fences[le.Slot()] = le.Fence()
		}
		if len(fences) != 7 || fences[1] != 2 {
			t.Errorf("the fences are %v", fences)
		}
		// Programs that ask for another size get an error.
		_, err = l.mustPool(t, "p", 3).TryAcquire(t.Context())
		want(t, "another size", err, ErrPool)
	})
}

func TestALockIsNoPool(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute})
		le := l.mustTake(t, "x")
		_, err := l.mustPool(t, "x", 2).TryAcquire(t.Context())
		want(t, "a pool of a lock that is held", err, ErrPool)
		want(t, "a pool of a lock that is held", l.mustPool(t, "x", 2).Resize(t.Context(), 2), ErrPool)
		must(t, le.Release(t.Context()))
		_, err = l.mustPool(t, "x", 2).TryAcquire(t.Context())
		want(t, "a pool of a lock that is free", err, ErrPool)
		db.Advance(t, time.Hour)
		_, err = l.Purge(t.Context(), time.Minute)
		must(t, err)
		l.mustPool(t, "x", 2).mustTake(t)
		for range 2 {
			if _, err = l.TryAcquire(t.Context(), "x"); !errors.Is(err, ErrPool) {
				t.Fatalf("a lock of a pool: got %v", err)
			}
			_, err = l.Acquire(t.Context(), "x")
			want(t, "a lock of a pool", err, ErrPool)
			db.Advance(t, time.Hour)
		}
		_, err = l.ForceRelease(t.Context(), "x", 0, "me", "test")
		want(t, "force without a slot", err, ErrPool)
		_, err = l.ForceRelease(t.Context(), "x", 3, "me", "test")
		want(t, "force of a slot that is not there", err, ErrNotFound)
		if was, err := l.ForceRelease(t.Context(), "x", 1, "me", "test"); err != nil || was.State != Expired {
			t.Errorf("force: %s, %v", was.State, err)
		}
	})
}

// While many take and release slots and the pool is resized under them, at no
// time are there more holders than slots.
func TestNeverMoreHoldersThanSlots(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		const largest = 6
		admin := locker(t, db, Options{}).mustPool(t, "p", 0)
		must(t, admin.Resize(t.Context(), largest))
		// A size that was reached counts for those who take a slot afterwards: the
		// limit is lowered after a shrink, and raised before it grows.
		var holders, limit, most atomic.Int64
		limit.Store(largest)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 6 {
			l := locker(t, db, Options{Every: 10 * time.Millisecond})
			p := l.mustPool(t, "p", 0)
			for range 2 {
				group.Go(func() {
					for ctx.Err() == nil {
						le, err := p.Acquire(ctx)
						if err != nil {
							if ctx.Err() == nil {
								t.Error(err)
							}
							return
						}
						n := holders.Add(1)
						most.Store(max(most.Load(), n))
						if n > limit.Load() {
							t.Errorf("%d holders of %d slots", n, limit.Load())
						}
						<-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond)
						holders.Add(-1)
						if err := le.Release(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		resized := 0
		for i := 0; i < 30 || most.Load() < 2; i++ { // until it has come to something
			size := 1 + rand.IntN(largest)
			if int64(size) > limit.Load() {
				limit.Store(int64(size))
			}
			<-time.After(2 * time.Millisecond) // others want to write, too
			err := admin.Resize(t.Context(), size)
			switch {
			case err == nil:
				limit.Store(int64(size))
				resized++
			case !errors.Is(err, ErrInUse):
				t.Errorf("resize %d: %v", i, err)
			}
		}
		cancel()
		group.Wait()
		t.Logf("resized %d times, %d holders at the most", resized, most.Load())
		if resized == 0 || most.Load() < 2 {
			t.Error("nothing was tried")
		}
	})
}
