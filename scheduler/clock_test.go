package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// The class: an instant that was written for a clock that has been set back since. Intervals are planned anew. Times of day are not: whether
// a slot that comes again has been had is known only as long as its run is kept. Leases of locks, runs, workers and permits are not taken
// either: no row says how long ago the clock was set, so their holders may live. Doctor and explain name the clock instead
// (TestSituations of cmd/dbcron).
func TestTheClockGoesBack(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "interval", "@every 5s")
		add(t, db, "minutes", "* * * * *")
		add(t, db, "paused", "@every 5s")
		byHand(t, db, map[string]string{"name": "'in a while'", "spec": "'@every 5s'"})
		db.Do(t, `UPDATE {prefix}schedule SET command = 'true'`, nil)
		s := daemon(t, db, Options{})
		stepped(t, s)
		db.Advance(t, time.Hour+3*time.Second)
		stepped(t, s)
		ran := stored(t, db, "interval").Due
		if ran.Before(at(time.Hour)) {
			t.Fatalf("before the clock is set, it is due at %v", ran)
		}
		db.Do(t, `UPDATE {prefix}schedule SET state = 'paused', next_exec = NULL WHERE name = 'paused'`, nil)
		// What somebody writes now for a time to come is meant so. It is within what servers of a cluster may differ by.
		db.Do(t, `UPDATE {prefix}schedule SET due_at = {now + 600000000}, next_exec = {now + 600000000}, update_time = {now + -3598500000} WHERE name = 'in a while'`, nil)
		plans := func() []string {
			return db.List(t, `SELECT name, due_at, next_exec FROM {prefix}schedule WHERE name NOT IN ('interval', 'paused') ORDER BY name`, nil)
		}
		kept := plans()
		db.Advance(t, -time.Hour)
		stepped(t, s)
		stepped(t, s)
		if due := stored(t, db, "interval").Due; due.After(at(10 * time.Second)) {
			t.Errorf("an hour back, the interval of 5s is due at %v", due)
		}
		if now := plans(); !slices.Equal(now, kept) {
			t.Errorf("the others are planned for %q\nwere %q", now, kept)
		}
		before := db.List(t, `SELECT COUNT(*) FROM {prefix}run WHERE schedule = 'interval'`, nil)[0]
		db.Advance(t, 10*time.Second)
		stepped(t, s)
		if after := db.List(t, `SELECT COUNT(*) FROM {prefix}run WHERE schedule = 'interval'`, nil)[0]; after == before {
			t.Errorf("it has %s runs, as before the clock went back", after)
		}
		// A daemon that begins later finds the same. A slot that is due is claimed, as late as it is.
		db.Do(t, `UPDATE {prefix}schedule SET due_at = {now + -1000000}, next_exec = {now + -1000000}, update_time = {now + 3600000000} WHERE name = 'paused'`, nil)
		db.Do(t, `UPDATE {prefix}schedule SET state = 'active' WHERE name = 'paused'`, nil)
		db.Do(t, `UPDATE {prefix}schedule SET due_at = {now + 3600000000}, next_exec = {now + 3600000000}, update_time = {now + 3600000000} WHERE name = 'interval'`, nil)
		other := daemon(t, db, Options{})
		stepped(t, other)
		stepped(t, other)
		if due := stored(t, db, "interval").Due; due.After(at(time.Minute)) {
			t.Errorf("with a new daemon it is due at %v", due)
		}
		if all := db.List(t, `SELECT state FROM {prefix}run WHERE schedule = 'paused' AND due_at < {now}`, nil); !slices.Contains(all, "ok") {
			t.Errorf("what was due has %q", all)
		}
	})
}

// Slots that come again have runs, by which they would be taken for done: an interval that is planned anew has slots of its own, once more
// if the clock goes back once more, and after a pause.
func TestAnIntervalPlannedAnewMeetsNoOlderRuns(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "seconds", "@every 1s")
		db.Do(t, `UPDATE {prefix}schedule SET command = 'true'`, nil)
		s := daemon(t, db, Options{})
		pass := func(seconds int) (runs int) {
			t.Helper()
			before := len(db.List(t, `SELECT id FROM {prefix}run WHERE state = 'ok'`, nil))
			for range seconds {
				stepped(t, s)
				db.Advance(t, time.Second)
			}
			stepped(t, s)
			return len(db.List(t, `SELECT id FROM {prefix}run WHERE state = 'ok'`, nil)) - before
		}
		pass(20)
		for _, by := range []time.Duration{15, 12, 9} {
			db.Advance(t, -by*time.Second)
			if n := pass(5); n < 3 {
				t.Errorf("after %d seconds back, it ran %d times in 5s", by, n)
			}
		}
		if err := Pause(t.Context(), db.DB, "seconds", ""); err != nil {
			t.Fatal(err)
		}
		db.Advance(t, -8*time.Second)
		if err := Resume(t.Context(), db.DB, "seconds"); err != nil {
			t.Fatal(err)
		}
		if n := pass(5); n < 3 {
			t.Errorf("after a pause in which the clock went back, it ran %d times in 5s", n)
		}
		if n := len(db.List(t, `SELECT id FROM {prefix}run WHERE state NOT IN ('ok', 'running')`, nil)); n != 0 {
			t.Errorf("%d runs are not ok", n)
		}
	})
}
