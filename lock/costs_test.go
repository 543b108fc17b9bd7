package lock

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

var update = flag.Bool("update", false, "write the costs that were counted into docs/benchmarks.md")

// costly is how many locks the costs are counted of.
const costly = 50

// A lockCost is what something costs that is done with locks: before is not counted.
type lockCost struct {
	what       string
	before, do func(t *testing.T, l *Locker, all []*Lease)
	together   bool // by as many goroutines as there are locks
}

var lockCosts = []lockCost{
	{what: "taken for the first time", do: takeEach},
	{what: "taken", before: takenBefore, do: takeEach},
	{what: "taken, many goroutines", before: takenBefore, do: takeAll, together: true},
	{what: "released", before: takeEach, do: releaseEach},
	{what: "released, many goroutines", before: takeEach, do: releaseAll, together: true},
	{what: "extended", before: takeEach, do: func(t *testing.T, _ *Locker, all []*Lease) {
		t.Helper()
		for _, le := range all {
			must(t, le.Extend(t.Context()))
		}
	}},
	{what: "refused", before: takeEach, do: func(t *testing.T, l *Locker, _ []*Lease) {
		t.Helper()
		for i := range costly {
			if _, err := l.TryAcquire(t.Context(), costName(i)); !errors.Is(err, ErrHeld) {
				t.Errorf("a lock that is held: %v", err)
			}
		}
	}},
}

func costName(i int) string { return fmt.Sprint("lock", i) }

func takeEach(t *testing.T, l *Locker, all []*Lease) {
	t.Helper()
	var err error
	for i := range all {
		all[i], err = l.TryAcquire(t.Context(), costName(i))
		must(t, err)
	}
}

func releaseEach(t *testing.T, _ *Locker, all []*Lease) {
	t.Helper()
	for _, le := range all {
		must(t, le.Release(t.Context()))
	}
}

func takenBefore(t *testing.T, l *Locker, all []*Lease) {
	t.Helper()
	takeEach(t, l, all)
	releaseEach(t, l, all)
}

func takeAll(t *testing.T, l *Locker, all []*Lease) {
	t.Helper()
	l.crowded(t, len(all), func(i int) {
		var err error
		if all[i], err = l.TryAcquire(t.Context(), costName(i)); err != nil {
			t.Error(err)
		}
	})
}

func releaseAll(t *testing.T, l *Locker, all []*Lease) {
	t.Helper()
	l.crowded(t, len(all), func(i int) {
		if err := all[i].Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What is done with locks costs as many statements and round trips as docs/benchmarks.md says.
func TestCosts(t *testing.T) {
	t.Parallel()
	costs := dbtest.NewCosts(t, "../docs/benchmarks.md", "locks", *update)
	for _, e := range lockCosts {
		costs.Row(e.what)
	}
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		for _, e := range lockCosts {
			if e.together && !returning(db.Dialect) {
				costs.Lacks(e.what, db.Engine)
				continue
			}
			metered, meter := db.Metered(t, ``)
			metered.Pool().SetMaxOpenConns(4)
			l := lockerOn(t, metered, Options{TTL: time.Minute})
			all := make([]*Lease, costly)
			if e.before != nil {
				e.before(t, l, all)
			}
			costs.Spend(t, e.what, costly, meter, db.Engine, func() { e.do(t, l, all) })
			for _, le := range all {
				_ = le.Release(t.Context()) // most are held still
			}
			db.Do(t, `DELETE FROM {prefix}lock`, nil)
		}
	}, (*testing.T).Parallel)
}
