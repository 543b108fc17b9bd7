package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/guardian"
)

// faults runs f with each round trip to the server cut in turn, after the server did its work,
// until f makes no more calls. Every third one is also cut before: an operation that did not
// happen has fewer ways to go wrong. Before each run, the tables are emptied and prepared.
func faults(t *testing.T, db *dbtest.DB, prepare func(), f func(broken *dbtest.DB, what string)) {
	t.Helper()
	for n := 1; ; n++ {
		for _, after := range []bool{false, true} {
			if !after && n%3 != 1 {
				continue
			}
			db.Do(t, `DELETE FROM {prefix}schedule`, nil)
			db.Do(t, `DELETE FROM {prefix}run`, nil)
			prepare()
			fault := &dbtest.Fault{Call: n, After: after}
			f(db.Broken(t, fault), fmt.Sprintf("call %d cut, after: %t", n, after))
			if t.Failed() {
				t.Fatalf("call %d cut, after: %t", n, after)
			}
			if !fault.Reached() {
				if n < 3 {
					t.Fatalf("only %d calls", n-1)
				}
				return
			}
		}
	}
}

// wantAllOK lets the daemons' leases end and a healthy daemon work, and checks
// that each slot then has exactly one final outcome.
func wantAllOK(t *testing.T, db *dbtest.DB, firsts map[string]time.Time, every time.Duration, slots int64) {
	t.Helper()
	db.Advance(t, 40*time.Second) // past the lease, and to no further slot
	settle(t, daemon(t, db, Options{}))
	var lives []life
	for name, first := range firsts {
		lives = append(lives, life{name, first, stored(t, db, name).Due, every})
	}
	states := account(t, allRuns(t, db, ""), lives)
	if n := states["ok"] + states["missed"] + states["skipped"]; n != slots || len(lives) == 0 {
		t.Errorf("%d of %d slots have ended as they should: %v", n, slots, states)
	}
}

// firstSlots returns the slots that all schedules have next.
func firstSlots(t *testing.T, db *dbtest.DB) map[string]time.Time {
	t.Helper()
	all, err := List(t.Context(), db.DB, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	firsts := map[string]time.Time{}
	for _, s := range all {
		firsts[s.Name] = s.Due
	}
	return firsts
}

func TestFaultsInClaim(t *testing.T) {
	clockedDialects(t, func(t *testing.T, db *dbtest.DB) {
		var firsts map[string]time.Time
		prepare := func() {
			for _, name := range []string{"a", "b", "busy"} {
				add(t, db, name, "@every 1h")
			}
			firsts = firstSlots(t, db)
			db.Advance(t, time.Hour)
			busy := daemon(t, db, Options{Lease: 24 * time.Hour})
			for _, e := range claimed(t, busy, 10) {
				if e.schedule != "busy" {
					finished(t, busy, e, 0)
				}
			}
			db.Advance(t, 150*time.Minute)
		}
		faults(t, db, prepare, func(broken *dbtest.DB, what string) {
			s := daemon(t, broken, Options{})
			runs, _, err := s.claim(t.Context(), "default", 10)
			if err == nil {
				for _, e := range hold(s, runs) {
					finished(t, s, e, 0)
				}
			} else if !errors.Is(err, dbtest.ErrBroken) {
				t.Error(err)
			}
			for _, r := range allRuns(t, db, "") {
				if err != nil && r.By == s.Node() && r.State == "running" {
					t.Errorf("%s: what a failed claim has taken is not given back: %+v", what, r)
				}
			}
			// 3 slots each: one ran, one was missed, and one ran or was skipped.
			db.Do(t, `UPDATE {prefix}run SET state = 'ok', next_exec = NULL WHERE schedule = 'busy' AND state = 'running'`, nil)
			wantAllOK(t, db, firsts, time.Hour, 9)
		})
	})
}

func TestFaultsInTakeover(t *testing.T) {
	clockedDialects(t, func(t *testing.T, db *dbtest.DB) {
		var firsts map[string]time.Time
		prepare := func() {
			for _, name := range []string{"a", "b", "c"} {
				add(t, db, name, "@every 1h")
			}
			firsts = firstSlots(t, db)
			db.Advance(t, time.Hour)
			claimed(t, daemon(t, db, Options{}), 10)
			db.Advance(t, 30*time.Second)
		}
		faults(t, db, prepare, func(broken *dbtest.DB, _ string) {
			s := daemon(t, broken, Options{})
			runs, _, err := s.takeOver(t.Context(), "default", 10)
			if err == nil {
				for _, e := range hold(s, runs) {
					finished(t, s, e, 0)
				}
			} else if !errors.Is(err, dbtest.ErrBroken) {
				t.Error(err)
			}
			wantAllOK(t, db, firsts, time.Hour, 3)
		})
	})
}

// A daemon records outcomes and hands runs back as soon as it can.
func TestFaultsInRecord(t *testing.T) {
	clockedDialects(t, func(t *testing.T, db *dbtest.DB) {
		var held []*execution
		var s *Scheduler
		prepare := func() {
			add(t, db, "a", "@every 1h")
			add(t, db, "b", "@every 1h")
			db.Advance(t, time.Hour)
			s = daemon(t, db, Options{})
			held = claimed(t, s, 10)
		}
		faults(t, db, prepare, func(broken *dbtest.DB, _ string) {
			s.db = broken.DB
			ended(t, s, held[0], guardian.Result{Cause: guardian.Exited, ExitCode: 3, Output: "text"})
			held[1].stopFor(stop{cause: drained}, true)
			ended(t, s, held[1], guardian.Result{Cause: guardian.Stopped, ExitCode: -1})
			if err := renewAll(t, s); err != nil { // of nothing: no call
				t.Error(err)
			}
			states := map[string]string{}
			for _, r := range allRuns(t, db, "") {
				states[r.Schedule] += r.State
			}
			if states[held[0].schedule] != "failed" || states[held[1].schedule] != "retry" {
				t.Errorf("states %v", states)
			}
			for _, r := range allRuns(t, db, held[0].schedule) {
				if r.ExitCode != 3 || r.Output != "text" || r.Error != "exit code 3" {
					t.Errorf("%+v", r)
				}
			}
		})
	})
}

func TestFaultsInPlan(t *testing.T) {
	clockedDialects(t, func(t *testing.T, db *dbtest.DB) {
		prepare := func() {
			byHand(t, db, map[string]string{"name": "'good'", "spec": "'@every 1h'"})
			byHand(t, db, map[string]string{"name": "'bad'", "spec": "'nonsense'"})
		}
		faults(t, db, prepare, func(broken *dbtest.DB, what string) {
			if _, err := daemon(t, broken, Options{}).planNew(t.Context(), "default"); err != nil && !errors.Is(err, dbtest.ErrBroken) {
				t.Error(err)
			}
			settle(t, daemon(t, db, Options{}))
			first := stored(t, db, "good").Due
			if bad := stored(t, db, "bad"); bad.State != "failed" || first.IsZero() {
				t.Errorf("%s: the bad one is %s, and the good one due at %v", what, bad.State, first)
			}
			db.Advance(t, time.Hour)
			wantAllOK(t, db, map[string]time.Time{"good": first}, time.Hour, 1)
		})
	})
}

// Add stores a schedule or does not; a second try then tells which.
func TestFaultsInAdd(t *testing.T) {
	clockedDialects(t, func(t *testing.T, db *dbtest.DB) {
		job := Schedule{Name: "job", Spec: "@every 1h", Command: "true"}
		faults(t, db, func() {}, func(broken *dbtest.DB, what string) {
			err := Add(t.Context(), broken.DB, job)
			if err != nil && !errors.Is(err, dbtest.ErrBroken) {
				t.Error(err)
			}
			_, missing := Get(t.Context(), db.DB, "job")
			if missing != nil && err == nil {
				t.Errorf("%s: no error, and it is not stored", what)
			}
			if err := Add(t.Context(), db.DB, job); (err == nil) != errors.Is(missing, ErrNotFound) {
				t.Errorf("%s: a second try: %v, when it was stored: %v", what, err, missing)
			}
			if s := stored(t, db, "job"); s.State != "active" || s.Due.IsZero() {
				t.Errorf("%s: stored %+v", what, s)
			}
		})
	})
}

// An import happens or does not, whatever is cut; a second one makes it so.
func TestFaultsInImport(t *testing.T) {
	clockedDialects(t, func(t *testing.T, db *dbtest.DB) {
		old := []Schedule{entry("gone", "@every 1h", "true"), entry("kept", "@every 1h", "true"), entry("times", "@every 1h", "true")}
		given := []Schedule{entry("kept", "@every 1h", "changed"), entry("new", "@every 1h", "true"), entry("times", "@every 2h", "true")}
		state := func() string {
			return fmt.Sprint(db.List(t, `SELECT name, spec, command, {us due_at} FROM {prefix}schedule ORDER BY name`, nil))
		}
		imported(t, db, "file", old...)
		before := state()
		imported(t, db, "file", given...)
		after := state()
		faults(t, db, func() { imported(t, db, "file", old...) }, func(broken *dbtest.DB, what string) {
			_, err := Import(t.Context(), broken.DB, "file", given, ImportOptions{})
			if err != nil && !errors.Is(err, dbtest.ErrBroken) {
				t.Error(err)
			}
			if got := state(); got != after && (got != before || err == nil) {
				t.Errorf("%s: %v, and the schedules are %s", what, err, got)
			}
			if _, err := Import(t.Context(), db.DB, "file", given, ImportOptions{}); err != nil {
				t.Errorf("%s: a second import: %v", what, err)
			}
			if got := state(); got != after {
				t.Errorf("%s: after a second import the schedules are %s", what, got)
			}
		})
	})
}
