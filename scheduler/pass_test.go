package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A recorder notes the statements that are sent while it is on.
type recorder struct {
	mu  sync.Mutex
	on  bool
	all []string
}

func (r *recorder) note(op string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.on {
		r.all = append(r.all, strings.Join(strings.Fields(op), " "))
	}
}

// during returns the statements and other round trips of f.
func (r *recorder) during(f func()) []string {
	r.mu.Lock()
	r.on, r.all = true, nil
	r.mu.Unlock()
	f()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = false
	return r.all
}

// A claim takes no more statements for slots that do not run than for those that run, however many
// there are: a daemon that is behind gets cheaper per slot. What runs takes one claim and one
// statement more that ends it, each in a transaction.
//
// The class: only the good case is batched. Its members here are missed, skipped and replaced slots,
// the notices of missed ones, and what planning finds has passed after a pause.
func TestStatementsOfWhatDoesNotRun(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		const n = 40
		r := &recorder{}
		s := daemon(t, db.Broken(t, &dbtest.Fault{Stall: r.note}), Options{Lease: 24 * time.Hour})
		add := func(kind string, p Policy) {
			for i := range n {
				addWith(t, db, fmt.Sprintf("%s%02d", kind, i), "@every 1m", p)
			}
		}
		sent := func(what string, want int, f func()) {
			t.Helper()
			all := r.during(f)
			if len(all) > want {
				t.Errorf("%s: %d round trips for %d schedules, want at most %d:\n%s", what, len(all), n, want, strings.Join(all, "\n"))
			}
		}
		claim := func(begins int) (held []*execution) {
			t.Helper()
			if held = claimed(t, s, 2*n); len(held) != begins {
				t.Errorf("%d of %d have begun", len(held), begins)
			}
			return held
		}
		clear := func() {
			t.Helper()
			db.Do(t, `DELETE FROM {prefix}schedule`, nil)
			db.Do(t, `DELETE FROM {prefix}run`, nil)
		}
		states := func(want ...string) {
			t.Helper()
			got := db.List(t, `SELECT state, slots, COUNT(*) FROM {prefix}run GROUP BY state, slots ORDER BY state, slots`, sqlrun.Args{})
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		each := fmt.Sprint(n)

		add("runs", Policy{})
		db.Advance(t, time.Minute)
		var held []*execution
		good := len(r.during(func() {
			held = claim(n)
		}))
		var rows finishRows
		for _, e := range held {
			rows = append(rows, finishRow{id: e.id, claim: e.claim, outcome: "ok", exitStatus: 0})
		}
		runs := good + len(r.during(func() {
			must(t, s.db.ShortTx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
				_, err := tx.Exec(ctx, finish, sqlrun.Args{"rows": rows})
				return err
			}))
		}))

		// All missed, and one of each runs: no more than twice as many, and the next time, when the
		// schedules are known to be in trouble, one less.
		db.Advance(t, 5*time.Minute)
		sent("missed, first", good+5, func() { held = claim(n) })
		states("missed 4 "+each, "ok 1 "+each, "running 1 "+each)
		for _, e := range held {
			finished(t, s, e, 0)
		}
		db.Advance(t, 4*time.Minute)
		sent("missed, again", good+3, func() { claim(n) })
		states("missed 3 "+each, "missed 4 "+each, "ok 1 "+fmt.Sprint(2*n), "running 1 "+each)

		// Skipped, since they are still under way: a new range, and then the same, longer.
		for i, slots := range []string{"skipped 1 " + each, "skipped 3 " + each} {
			db.Advance(t, time.Duration(1+i)*time.Minute)
			sent("skipped", runs, func() { claim(0) })
			states("missed 3 "+each, "missed 4 "+each, "ok 1 "+fmt.Sprint(2*n), "running 1 "+each, slots)
		}
		clear()

		// None runs, as the policy says: the first time, and then longer.
		add("none", Policy{Missed: "skip", MissedWindow: time.Second})
		for i := range 2 {
			db.Advance(t, time.Duration(i)*30*time.Second+2*time.Minute+30*time.Second)
			sent("none", runs, func() { claim(0) })
			states(fmt.Sprintf("missed %d %s", 2+i*3, each))
		}
		clear()

		// Replaced ones: those under way, and those that only wait.
		add("replaced", Policy{Overlap: "replace"})
		db.Advance(t, time.Minute)
		claim(n)
		db.Advance(t, time.Minute)
		sent("replaced, running", runs, func() { claim(0) })
		db.Advance(t, time.Minute)
		sent("replaced, waiting", runs, func() { claim(0) })
		states("cancelled 1 "+each, "running 1 "+each, "waiting 1 "+each)
		clear()

		// What passed while schedules were paused.
		add("paused", Policy{})
		db.Do(t, `UPDATE {prefix}schedule SET state = 'paused', next_exec = NULL`, nil)
		db.Advance(t, 10*time.Minute)
		db.Do(t, `UPDATE {prefix}schedule SET state = 'active'`, nil)
		sent("planned anew", runs, func() {
			if planned, err := s.planNew(t.Context(), "default"); planned != n || err != nil {
				t.Errorf("planned %d, %v", planned, err)
			}
		})
		states("skipped 10 " + each)
	})
}
