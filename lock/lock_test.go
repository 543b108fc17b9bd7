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

// At most one lease of a lock is valid; the next one is granted when the
// database's clock has come to the end of the one before, and not earlier.
func TestALeaseExcludesOthersUntilItEnds(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		a, b := locker(t, db, Options{TTL: time.Minute}), locker(t, db, Options{TTL: time.Second})
		first := a.mustTake(t, "report")
		for _, at := range []time.Duration{0, 59 * time.Second, 999 * time.Millisecond} {
			db.Advance(t, at)
			_, err := b.TryAcquire(t.Context(), "report")
			want(t, "before the end", err, ErrHeld)
		}
		db.Advance(t, time.Millisecond)
		second := b.mustTake(t, "report")
		if second.Fence() <= first.Fence() {
			t.Errorf("fence %d after %d", second.Fence(), first.Fence())
		}
		want(t, "extend after loss", first.Extend(t.Context()), ErrLost)
		want(t, "release after loss", first.Release(t.Context()), ErrLost)
		want(t, "check after loss", first.Check(), ErrLost)
		if got := state(t, b, "report"); got.By != second.Owner() || got.State != Held || got.Takeovers != 1 {
			t.Errorf("after the release of the first one: %+v", got)
		}
		db.Advance(t, time.Second)
		if got := state(t, b, "report"); got.State != Expired {
			t.Errorf("a lease that has run out is %s", got.State)
		}
	})
}

func TestOneOfManyWins(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		lockers := make([]*Locker, 8)
		for i := range lockers {
			lockers[i] = locker(t, db, Options{})
		}
		for round := range 5 { // in the first one the row is made
			var won []*Lease
			var mu sync.Mutex
			var group sync.WaitGroup
			for _, l := range lockers {
				group.Go(func() {
					le, err := l.TryAcquire(t.Context(), "one")
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						won = append(won, le)
					} else if !errors.Is(err, ErrHeld) {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if len(won) != 1 {
				t.Fatalf("round %d: %d of them have it", round, len(won))
			}
			if won[0].Fence() != int64(round+1) {
				t.Errorf("round %d: fence %d", round, won[0].Fence())
			}
			must(t, won[0].Release(t.Context()))
		}
	})
}

func TestARefusalSaysWho(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute, Meta: "export of March"})
		le := l.mustTake(t, "report")
		db.Advance(t, 10*time.Second)
		_, err := locker(t, db, Options{}).TryAcquire(t.Context(), "report")
		var held *HeldError
		if !errors.As(err, &held) {
			t.Fatalf("got %v", err)
		}
		got := *held
		wanted := HeldError{
			Name: "report", By: le.Owner(), Since: dbtest.Start, Until: dbtest.Start.Add(time.Minute), Left: 50 * time.Second,
			Fence: le.Fence(), Meta: "export of March",
		}
		if got != wanted {
			t.Errorf("got %+v, want %+v", got, wanted)
		}
		if text := err.Error(); !strings.Contains(text, le.Owner()) || !strings.Contains(text, "2026-03-02T09:01:00Z") {
			t.Errorf("it reads %q", text)
		}
	})
}

func TestExtend(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute})
		le := l.mustTake(t, "report")
		until := state(t, l, "report").Until
		must(t, le.Extend(t.Context())) // at the same instant: a change nevertheless
		db.Advance(t, 50*time.Second)
		must(t, le.Extend(t.Context()))
		got := state(t, l, "report")
		if !got.Until.Equal(until.Add(50*time.Second)) || got.Extends != 2 || got.State != Held {
			t.Errorf("got %+v", got)
		}
		if column := db.List(t, `SELECT state FROM {prefix}lock`, nil); column[0] != "EXTEND" {
			t.Errorf("its row says %s", column)
		}
		// A request that was held up on its way does not shorten it.
		db.Do(t, `UPDATE {prefix}lock SET expire_at = {now + :us}`, sqlrun.Args{"us": time.Hour.Microseconds()})
		must(t, le.Extend(t.Context()))
		if got := state(t, l, "report"); got.Left != time.Hour {
			t.Errorf("it has %v left", got.Left)
		}
		db.Do(t, `UPDATE {prefix}lock SET expire_at = {now}`, nil)
		want(t, "at its end", le.Extend(t.Context()), ErrLost)
		want(t, "its context", ended(t, le.Context()), ErrLost)
	})
}

// A row that differs from the lease in anything that identifies a lease is not the lease's.
func TestOnlyItsOwn(t *testing.T) {
	for _, change := range []string{"lock_by = 'x'", "fence = fence + 1", "released_at = {now}", "state = 'FREE'", "expire_at = {now}"} {
		t.Run(change, func(t *testing.T) {
			clocked(t, func(t *testing.T, db *dbtest.DB) {
				l := locker(t, db, Options{TTL: time.Minute})
				var leases []*Lease
				for i := range 4 {
					leases = append(leases, l.mustTake(t, fmt.Sprint("lock", i)))
				}
				kept, err := l.With(Options{TTL: time.Minute, MinHold: time.Hour, Heartbeat: -1})
				must(t, err)
				keeping := kept.mustTake(t, "kept")
				db.Do(t, `UPDATE {prefix}lock SET `+change, nil)
				before := db.List(t, `SELECT * FROM {prefix}lock ORDER BY name`, nil)
				want(t, "extend", leases[0].Extend(t.Context()), ErrLost)
				want(t, "release", leases[1].Release(t.Context()), ErrLost)
				want(t, "meta", leases[2].SetMeta(t.Context(), "mine"), ErrLost)
				want(t, "release with a minimum hold", keeping.Release(t.Context()), ErrLost)
				tx, err := db.Pool().BeginTx(t.Context(), nil)
				must(t, err)
				want(t, "guard", leases[3].Guard(t.Context(), tx), ErrLost)
				must(t, tx.Rollback())
				if after := db.List(t, `SELECT * FROM {prefix}lock ORDER BY name`, nil); strings.Join(after, "\n") != strings.Join(before, "\n") {
					t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
				}
			})
		})
	}
}

func TestRelease(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute})
		le := l.mustTake(t, "report")
		db.Advance(t, time.Second)
		must(t, le.Release(t.Context()))
		got := state(t, l, "report")
		// What it was stays, for people to tell released from expired.
		if got.State != Free || got.By != le.Owner() || !got.Since.Equal(dbtest.Start) || !got.Until.Equal(dbtest.Start.Add(time.Minute)) ||
			!got.Released.Equal(dbtest.Start.Add(time.Second)) || got.Fence != le.Fence() {
			t.Errorf("got %+v", got)
		}
		want(t, "a second release", le.Release(t.Context()), ErrReleased)
		want(t, "extend after release", le.Extend(t.Context()), ErrReleased)
		want(t, "check after release", le.Check(), ErrReleased)
		want(t, "its context", ended(t, le.Context()), ErrReleased)
		if le.Left() != 0 {
			t.Errorf("it has %v left", le.Left())
		}
		if next := l.mustTake(t, "report"); next.Fence() != le.Fence()+1 || state(t, l, "report").Takeovers != 0 {
			t.Errorf("the next one: %+v", state(t, l, "report"))
		}
	})
}

func TestReleaseAfterTheContext(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		le, err := l.TryAcquire(ctx, "report")
		must(t, err)
		cancel()
		must(t, le.Check()) // it lives on
		must(t, le.Release(ctx))
		l.mustTake(t, "report")
	})
}

func TestMinHold(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: 10 * time.Second, MinHold: time.Minute})
		le := l.mustTake(t, "newsletter")
		db.Advance(t, 5*time.Second)
		must(t, le.Release(t.Context()))
		got := state(t, l, "newsletter")
		if got.State != Kept || got.Left != 55*time.Second {
			t.Errorf("got %+v", got)
		}
		db.Advance(t, 55*time.Second-time.Millisecond)
		_, err := l.TryAcquire(t.Context(), "newsletter")
		want(t, "before the minimum hold is over", err, ErrHeld)
		db.Advance(t, time.Millisecond)
		if got := state(t, l, "newsletter"); got.State != Free {
			t.Errorf("then it is %s", got.State)
		}
		l.mustTake(t, "newsletter")
		if n := state(t, l, "newsletter").Takeovers; n != 0 {
			t.Errorf("%d takeovers, though it was released", n)
		}
	})
}

func TestForceRelease(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute})
		_, err := l.ForceRelease(t.Context(), "report", 0, "me", "why not")
		want(t, "of what is not there", err, ErrNotFound)
		le := l.mustTake(t, "report")
		for _, bad := range [][2]string{{"", "x"}, {"me", ""}, {strings.Repeat("x", 129), "x"}, {"me", "\x00"}, {"a\nb", "x"}} {
			_, err := l.ForceRelease(t.Context(), "report", 0, bad[0], bad[1])
			want(t, fmt.Sprintf("%q", bad), err, ErrInvalid)
		}
		db.Advance(t, time.Second)
		was, err := l.ForceRelease(t.Context(), "report", 0, "ann@ops", "host is gone")
		must(t, err)
		if was.By != le.Owner() || was.State != Held {
			t.Errorf("it was %+v", was)
		}
		got := state(t, l, "report")
		if got.State != Free || got.ForcedBy != "ann@ops" || !strings.HasPrefix(got.ForcedWhy, "host is gone") ||
			!strings.Contains(got.ForcedWhy, le.Owner()) || !got.Forced.Equal(dbtest.Start.Add(time.Second)) {
			t.Errorf("got %+v", got)
		}
		next := l.mustTake(t, "report")
		want(t, "the old holder", le.Extend(t.Context()), ErrLost)
		must(t, next.Extend(t.Context()))
		must(t, next.Release(t.Context()))
		if was, err := l.ForceRelease(t.Context(), "report", 0, "me", "again"); err != nil || was.State != Free {
			t.Errorf("of what is free: %v, %v", was.State, err)
		}
		if got := state(t, l, "report"); got.ForcedBy != "ann@ops" {
			t.Errorf("which is not one: %+v", got)
		}
	})
}

func TestNames(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{})
		for _, name := range []string{"", " ", "a ", " a", "a\n", "a\x00b", "\xff", strings.Repeat("é", 201)} {
			_, err := l.TryAcquire(t.Context(), name)
			want(t, fmt.Sprintf("%q", name), err, ErrInvalid)
			_, err = l.Acquire(t.Context(), name)
			want(t, fmt.Sprintf("%q", name), err, ErrInvalid)
			_, err = l.Pool(name, 2)
			want(t, fmt.Sprintf("%q", name), err, ErrInvalid)
		}
		if n := len(db.List(t, `SELECT 1 FROM {prefix}lock`, nil)); n != 0 {
			t.Errorf("%d rows were made", n)
		}
		names := []string{
			"job", "Job", "jöb", "jo\u0308b", "job'; DROP TABLE x; --", `"job"`, "job%", "job_", "🔒", strings.Repeat("𝕏", 200), "ジョブ",
		}
		for _, name := range names {
			if got := l.mustTake(t, name); got.Fence() != 1 || got.Name() != name {
				t.Errorf("%s is not a lock of its own: fence %d", name, got.Fence())
			}
		}
		all, err := l.List(t.Context(), "", 0, 100)
		if err != nil || len(all) != len(names) {
			t.Errorf("%d are listed, %v", len(all), err)
		}
	})
}

func TestListInPages(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{})
		for _, name := range []string{"b", "a", "B", "é"} {
			l.mustTake(t, name)
		}
		must(t, l.mustPool(t, "c", 3).Resize(t.Context(), 3))
		var got []string
		for name, slot := "", 0; ; {
			page, err := l.List(t.Context(), name, slot, 2)
			must(t, err)
			for _, i := range page {
				got = append(got, fmt.Sprintf("%s/%d", i.Name, i.Slot))
			}
			if len(page) < 2 {
				break
			}
			name, slot = page[1].Name, page[1].Slot
		}
		if s := strings.Join(got, " "); s != "B/0 a/0 b/0 c/0 c/1 c/2 c/3 é/0" {
			t.Errorf("got %s", s)
		}
	})
}

func TestOptions(t *testing.T) {
	for what, o := range map[string]Options{
		"short TTL":      {TTL: 499 * time.Millisecond},
		"long TTL":       {TTL: 366 * 24 * time.Hour},
		"wide margin":    {TTL: time.Second, Margin: 600 * time.Millisecond},
		"no margin":      {Margin: -1},
		"late heartbeat": {TTL: 3 * time.Second, Heartbeat: 2 * time.Second},
		"busy heartbeat": {Heartbeat: time.Millisecond},
		"long owner":     {Owner: strings.Repeat("x", 101)},
		"odd owner":      {Owner: "a\x00b"},
		"negative hold":  {MaxHold: -1},
		"long hold":      {MinHold: 366 * 24 * time.Hour},
		"meta":           {Meta: strings.Repeat("x", 10_001)},
		"binary meta":    {Meta: "\xff"},
		"tries":          {Tries: -1},
		"many tries":     {Tries: 1 << 62},
		"busy every":     {Every: time.Microsecond},
	} {
		if _, err := o.filled(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	_, err := New(nil, Options{})
	want(t, "without a database", err, ErrInvalid)
	o, err := Options{}.filled()
	must(t, err)
	if o.TTL != 30*time.Second || o.Margin != 3*time.Second || o.Heartbeat != 10*time.Second || o.Owner == "" {
		t.Errorf("got %+v", o)
	}
	o, err = Options{Tries: 3}.filled()
	must(t, err)
	if o.Every != time.Second {
		t.Errorf("tries follow each other after %v", o.Every)
	}
}

func TestDo(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{})
		boom := errors.New("boom")
		err := l.Do(t.Context(), "x", func(ctx context.Context, le *Lease) error {
			if got := state(t, l, "x"); got.State != Held || got.Fence != le.Fence() || ctx.Err() != nil {
				t.Errorf("inside: %+v", got)
			}
			return boom
		})
		want(t, "its error", err, boom)
		func() {
			defer func() { want(t, "the panic", recover().(error), boom) }()
			_ = l.Do(t.Context(), "x", func(context.Context, *Lease) error { panic(boom) })
		}()
		if got := state(t, l, "x"); got.State != Free {
			t.Errorf("after a panic it is %s", got.State)
		}
		// Nothing is made of a release inside.
		must(t, l.Do(t.Context(), "x", func(ctx context.Context, le *Lease) error { return le.Release(ctx) }))
		err = l.Do(t.Context(), "x", func(ctx context.Context, le *Lease) error {
			_, err := l.ForceRelease(ctx, "x", 0, "me", "test")
			return err
		})
		want(t, "when it was lost meanwhile", err, ErrLost)
		ctx, cancel := context.WithCancelCause(t.Context())
		err = l.Do(ctx, "x", func(ctx context.Context, le *Lease) error {
			cancel(boom)
			return ended(t, ctx)
		})
		want(t, "when the context ends", err, boom)
		l.mustTake(t, "x")
	})
}

func TestHeldByCaller(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{})
		other, err := New(l.db, Options{Heartbeat: -1})
		must(t, err)
		must(t, l.Do(t.Context(), "x", func(ctx context.Context, le *Lease) error {
			for what, inner := range map[string]*Locker{"the same": l, "another Locker": other} {
				want(t, what, inner.Do(ctx, "x", func(context.Context, *Lease) error { return nil }), ErrHeldByCaller)
				_, err := inner.TryAcquire(le.Context(), "x")
				want(t, what, err, ErrHeldByCaller)
				want(t, what, err, ErrHeld)
			}
			err := l.Do(ctx, "y", func(ctx context.Context, _ *Lease) error {
				return l.Do(ctx, "x", func(context.Context, *Lease) error { return nil })
			})
			want(t, "two levels deep", err, ErrHeldByCaller)
			must(t, le.Release(ctx))
			// It has released it; its context has ended with it.
			return l.Do(context.WithoutCancel(ctx), "x", func(context.Context, *Lease) error { return nil })
		}))
		p := l.mustPool(t, "p", 2)
		must(t, p.Do(t.Context(), func(ctx context.Context, _ *Lease) error {
			_, err := p.Acquire(ctx)
			want(t, "a slot of the same pool", err, ErrHeldByCaller)
			return nil
		}))
	})
}

func TestMeta(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{Meta: "begun"})
		le := l.mustTake(t, "x")
		must(t, le.SetMeta(t.Context(), "half of it, it's '\\' 🔒"))
		if got := state(t, l, "x").Meta; got != "half of it, it's '\\' 🔒" {
			t.Errorf("got %q", got)
		}
		want(t, "what is not text", le.SetMeta(t.Context(), "\xff"), ErrInvalid)
		must(t, le.Release(t.Context()))
		want(t, "after release", le.SetMeta(t.Context(), "x"), ErrReleased)
		l.mustTake(t, "x")
		if got := state(t, l, "x").Meta; got != "begun" {
			t.Errorf("the next holder says %q", got)
		}
	})
}

// The fence rises also when rows come and go.
func TestPurge(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Hour})
		_, err := l.Purge(t.Context(), time.Second)
		want(t, "in a hurry", err, ErrInvalid)
		var fence int64
		for range 7 {
			le := l.mustTake(t, "old")
			fence = le.Fence()
			must(t, le.Release(t.Context()))
		}
		l.mustTake(t, "held")
		dead, err := l.With(Options{TTL: time.Second, Heartbeat: -1})
		must(t, err)
		dead.mustTake(t, "of a dead holder")
		must(t, l.mustPool(t, "pool", 2).Resize(t.Context(), 2))
		db.Advance(t, 2*time.Minute)
		must(t, l.mustTake(t, "young").Release(t.Context()))
		n, err := l.Purge(t.Context(), time.Minute)
		if n != 2 || err != nil {
			t.Errorf("purged %d, %v", n, err)
		}
		if got := strings.Join(db.List(t, `SELECT name, slot FROM {prefix}lock ORDER BY 1, 2`, nil),
			", "); got != "held 0, pool 0, pool 1, pool 2, young 0" {
			t.Errorf("left: %s", got)
		}
		for _, name := range []string{"old", "new"} {
			if le := l.mustTake(t, name); le.Fence() <= fence {
				t.Errorf("%s: fence %d after %d", name, le.Fence(), fence)
			}
		}
	})
}

func TestPurgeOfMany(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{})
		for part := range 4 {
			var rows []sqlrun.Args
			for i := range 300 {
				rows = append(rows, sqlrun.Args{"name": fmt.Sprintf("n%d", part*300+i), "slot": 0, "state": "FREE", "fence": 1})
			}
			_, err := l.db.Exec(t.Context(), create, sqlrun.Args{"rows": rows})
			must(t, err)
		}
		db.Advance(t, time.Hour)
		if n, err := l.Purge(t.Context(), time.Minute); n != 1200 || err != nil {
			t.Errorf("purged %d, %v", n, err)
		}
	})
}

// While rows are purged and made, no lock's fence ever falls.
func TestPurgeWhileLocksAreTaken(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 2 {
			l := locker(t, db, Options{})
			group.Go(func() {
				for ctx.Err() == nil {
					db.Do(t, `UPDATE {prefix}lock SET update_time = {now + :us} WHERE state = 'FREE'`, sqlrun.Args{"us": -time.Hour.Microseconds()})
					_, err := l.Purge(t.Context(), time.Minute)
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		var takers sync.WaitGroup
		for i := range 3 {
			l := locker(t, db, Options{})
			takers.Go(func() {
				name, last := fmt.Sprint("n", i), int64(0)
				for range 25 {
					le, err := l.TryAcquire(t.Context(), name)
					if err != nil {
						t.Error(err)
						return
					}
					if le.Fence() <= last {
						t.Errorf("fence %d after %d", le.Fence(), last)
					}
					last = le.Fence()
					if err := le.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		takers.Wait()
		cancel()
		group.Wait()
	})
}
