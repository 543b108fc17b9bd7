package scheduler

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/instant"
)

// When a daemon dies, its lease expires, another daemon records the run as lost and begins the
// next attempt; later reports of the first one have no effect.
func TestTakeover(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "@every 1h")
		db.Advance(t, time.Hour)
		dead, alive := daemon(t, db, Options{}), daemon(t, db, Options{})
		first := claimed(t, dead, 1)
		db.Advance(t, 29*time.Second)
		if got := takenOver(t, alive, 10); len(got) != 0 {
			t.Fatal("taken over within its lease")
		}
		db.Advance(t, time.Second)
		second := takenOver(t, alive, 10)
		if len(second) != 1 {
			t.Fatalf("%d runs taken over, want 1", len(second))
		}
		if r := second[0].run; r.attempt != 2 || !r.due.Equal(first[0].due) || r.what.Command != "echo job" || r.id == first[0].id {
			t.Errorf("the next attempt is %+v", r)
		}
		finished(t, dead, first[0], 1)
		wantRows(t, db, "job", "3600 1 lost", "3600 2 running")
		finished(t, alive, second[0], 0)
		wantRows(t, db, "job", "3600 1 lost", "3600 2 ok")
		all := allRuns(t, db, "job")
		if r := all[0]; r.By != dead.Node() || r.Error == "" || r.ExitCode != -1 || r.Finished.IsZero() {
			t.Errorf("the lost run is %+v", r)
		}
		if r := all[1]; r.By != alive.Node() || r.Error != "" || r.ExitCode != 0 || r.Finished.IsZero() {
			t.Errorf("its successor is %+v", r)
		}
	})
}

// A renewed lease keeps a run; an ended one is not taken back.
func TestRenew(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addMany(t, db, 3, "@every 1h", at(time.Hour))
		db.Advance(t, time.Hour)
		s, other := daemon(t, db, Options{}), daemon(t, db, Options{})
		held := claimed(t, s, 10)
		for range 3 {
			db.Advance(t, 20*time.Second)
			if err := renewAll(t, s); err != nil {
				t.Fatal(err)
			}
			if got := takenOver(t, other, 10); len(got) != 0 {
				t.Fatal("a renewed run was taken over")
			}
		}
		// One is taken by another daemon: it is lost, and the others are kept.
		db.Do(t, `UPDATE {prefix}run SET next_exec = {now} WHERE id = :id`, map[string]any{"id": held[1].id})
		taken := takenOver(t, other, 10)
		db.Advance(t, 20*time.Second)
		if err := renewAll(t, s); err != nil {
			t.Fatal(err)
		}
		for i, e := range held {
			if e.isLost() != (i == 1) {
				t.Errorf("run %d: lost is %t", i, e.isLost())
			}
		}
		db.Advance(t, 20*time.Second)
		if got := takenOver(t, other, 10); len(got) != 1 || got[0].schedule != taken[0].schedule || got[0].attempt != 3 {
			t.Errorf("taken over: %d runs, want the one that nobody renews", len(got))
		}
		// An ended lease is not taken back, even if nobody has claimed it yet.
		db.Advance(t, 11*time.Second)
		if err := renewAll(t, s); err != nil {
			t.Fatal(err)
		}
		if !held[0].isLost() || !held[2].isLost() {
			t.Error("a run was renewed after its lease had ended")
		}
		if got := takenOver(t, other, 10); len(got) != 2 {
			t.Errorf("taken over: %d runs, want 2", len(got))
		}
	})
}

// A lease counts from when its renewal was asked for: the database may have renewed it then, though the answer comes later.
func TestALeaseCountsFromTheQuestion(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "@every 1h")
		db.Advance(t, time.Hour)
		var asked instant.Instant // before the last statement of the renewal: the answer comes later
		s := daemon(t, db.Broken(t, &dbtest.Fault{Call: -1, Stall: func(string) { asked = instant.Now() }}), Options{})
		held := claimed(t, s, 10)
		before := held[0].until
		if err := renewAll(t, s); err != nil {
			t.Fatal(err)
		}
		if until := held[0].until; until <= before || until > asked.Add(s.opt.Lease-s.opt.Lease/10) {
			t.Errorf("it lasts for %v longer than before, and for %v longer than what was asked for",
				until.Sub(before), until.Sub(asked.Add(s.opt.Lease-s.opt.Lease/10)))
		}
	})
}

// A renewal that reaches no database for a while loses nothing as long as the
// lease lasts.
func TestRenewAfterTrouble(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "@every 1h")
		db.Advance(t, time.Hour)
		s := daemon(t, db.Broken(t, &dbtest.Fault{Call: 11}), Options{})
		held := claimed(t, s, 10)
		failures := 0
		for range 8 {
			if renewAll(t, s) != nil {
				failures++
			}
			if held[0].isLost() {
				t.Fatal("lost within its lease")
			}
		}
		if failures != 1 {
			t.Errorf("%d renewals failed by one fault", failures)
		}
		finished(t, s, held[0], 0)
		wantRows(t, db, "job", "3600 1 ok")
	})
}

// A slot whose daemons keep dying fails after MaxCrashes; one that is handed
// back by daemons that are stopped does not.
func TestAttemptsAreCapped(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "@every 1h")
		db.Advance(t, time.Hour)
		claimed(t, daemon(t, db, Options{}), 1)
		for range 4 {
			db.Advance(t, 30*time.Second)
			takenOver(t, daemon(t, db, Options{}), 10)
		}
		wantRows(t, db, "job", "3600 1 lost", "3600 2 lost", "3600 3 failed")
		if r := allRuns(t, db, "job")[2]; r.Error == "" || r.Finished.IsZero() {
			t.Errorf("the last attempt is %+v", r)
		}
		settle(t, daemon(t, db, Options{})) // it goes on with the next slot
		db.Advance(t, time.Hour)
		held := claimed(t, daemon(t, db, Options{}), 1)
		for range 5 {
			held[0].stopFor(stop{cause: drained}, true)
			ended(t, daemon(t, db, Options{}), held[0], guardian.Result{Cause: guardian.Stopped, ExitCode: 143, Output: "half"})
			if r := allRuns(t, db, "job"); r[len(r)-1].State != "retry" || r[len(r)-1].Output != "half" {
				t.Errorf("handed back: %+v", r[len(r)-1])
			}
			held = takenOver(t, daemon(t, db, Options{}), 10)
			if len(held) != 1 {
				t.Fatal("not taken over at once")
			}
		}
		db.Advance(t, 30*time.Second) // one death after many hand-overs
		held = takenOver(t, daemon(t, db, Options{}), 10)
		finished(t, daemon(t, db, Options{}), held[0], 0)
		wantRows(t, db, "job", "3600 1 lost", "3600 2 lost", "3600 3 failed",
			"7200 1 retry", "7200 2 retry", "7200 3 retry", "7200 4 retry", "7200 5 retry", "7200 6 lost", "7200 7 ok")
	})
}

// A run that must not be repeated is lost when its daemon dies, is cut off or is stopped, for
// good: nobody begins it again, and what follows a failure is started. One that was handed back
// before it had begun is not lost.
func TestUnrepeatable(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "tell", "@manual")
		addWith(t, db, "job", "@every 1h", Policy{Unrepeatable: true, OnFailure: "tell"})
		told := 0
		lost := func(how string) {
			t.Helper()
			told++
			rows := allRuns(t, db, "job")
			if r := rows[len(rows)-1]; r.State != "lost" || !strings.Contains(r.Error, "repeatable is no") || r.Attempt != 1 {
				t.Errorf("%s: %+v", how, r)
			}
			if got := len(allRuns(t, db, "tell")); got != told {
				t.Errorf("%s: what follows a failure was started %d times, want %d", how, got, told)
			}
			db.Do(t, `UPDATE {prefix}run SET state = 'ok', next_exec = NULL WHERE schedule = 'tell'`, nil)
			db.Advance(t, 3570*time.Second)
		}
		db.Advance(t, time.Hour)
		claimed(t, daemon(t, db, Options{}), 1)
		db.Advance(t, 30*time.Second)
		s := daemon(t, db, Options{})
		if got := takenOver(t, s, 10); len(got) != 0 {
			t.Fatal("begun again after a crash")
		}
		lost("a crash")
		held := claimed(t, s, 1)
		held[0].stopFor(stop{cause: drained}, true)
		ended(t, s, held[0], guardian.Result{Cause: guardian.Stopped, ExitCode: 143})
		db.Advance(t, 30*time.Second)
		lost("a stop")
		held = claimed(t, s, 1)
		ended(t, s, held[0], guardian.Result{Cause: guardian.Deadline, ExitCode: -1, Err: guardian.ErrLost})
		for _, e := range takenOver(t, s, 10) {
			if e.schedule == "job" {
				t.Fatal("begun again after the lease could not be renewed")
			}
		}
		db.Advance(t, 30*time.Second)
		lost("a lease that could not be renewed")

		runs, _, err := s.claim(t.Context(), "default", 1)
		if err != nil {
			t.Fatal(err)
		}
		runs[0].deadline = instant.Now().Add(-time.Second)
		s.start(context.Background(), runs)
		s.runs.Wait()
		if held = takenOver(t, s, 10); len(held) != 1 {
			t.Fatal("what had not begun did not begin")
		}
		finished(t, s, held[0], 0)
		rows := allRuns(t, db, "job")
		if r := rows[len(rows)-1]; r.State != "ok" || r.Attempt != 2 {
			t.Errorf("after a claim that took too long: %+v", r)
		}
	})
}

// A command that ends its daemon's guardian, or starves the daemon, counts like
// one that ends the daemon.
func TestKilledForItsLeaseCountsAsACrash(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "@every 1h")
		db.Advance(t, time.Hour)
		s := daemon(t, db, Options{})
		held := claimed(t, s, 1)
		for _, cause := range []guardian.Cause{guardian.Deadline, guardian.Lost, guardian.Deadline} {
			if len(held) != 1 {
				t.Fatal("no further attempt")
			}
			ended(t, s, held[0], guardian.Result{Cause: cause, ExitCode: -1, Err: guardian.ErrLost})
			held = takenOver(t, s, 10)
		}
		wantRows(t, db, "job", "3600 1 lost", "3600 2 lost", "3600 3 failed")
	})
}

// A run that could not be started because the claim took too long is for
// another daemon, since nothing has run.
func TestAClaimThatTookTooLong(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "@every 1h")
		db.Advance(t, time.Hour)
		s := daemon(t, db, Options{})
		runs, _, err := s.claim(t.Context(), "default", 1)
		if err != nil {
			t.Fatal(err)
		}
		runs[0].deadline = instant.Now().Add(-time.Second)
		s.start(context.Background(), runs)
		s.runs.Wait()
		wantRows(t, db, "job", "3600 1 retry")
		settle(t, daemon(t, db, Options{}))
		wantRows(t, db, "job", "3600 1 retry", "3600 2 ok")
	})
}

// An operator who ends a guardian wants the command to end, not to begin again.
func TestACommandThatIsStoppedFromOutside(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "@every 1h")
		db.Advance(t, time.Hour)
		s := daemon(t, db, Options{})
		ended(t, s, claimed(t, s, 1)[0], guardian.Result{Cause: guardian.Stopped, ExitCode: 143})
		settle(t, s)
		wantRows(t, db, "job", "3600 1 cancelled")
	})
}

// The run of a schedule that is not wanted any more is lost, and that is all.
func TestTakeoverOfWhatIsNotWanted(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"deleted", "failed", "other", "paused"} {
			add(t, db, name, "@every 1h")
		}
		db.Advance(t, time.Hour)
		claimed(t, daemon(t, db, Options{}), 10)
		if err := Delete(t.Context(), db.DB, "deleted"); err != nil {
			t.Fatal(err)
		}
		db.Do(t, `UPDATE {prefix}schedule SET state = name WHERE name IN ('failed', 'paused')`, nil)
		db.Advance(t, time.Minute)
		settle(t, daemon(t, db, Options{}))
		wantRows(t, db, "", "deleted 3600 1 lost", "failed 3600 1 lost", "other 3600 1 lost", "other 3600 2 ok", "paused 3600 1 lost")
	})
}

// Many daemons take over at once: each run has one successor.
func TestTakeoverRace(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		const schedules = 100
		addMany(t, db, schedules, "@every 1h", at(time.Hour))
		db.Advance(t, time.Hour)
		for range 5 {
			claimed(t, daemon(t, db, Options{}), schedules/5)
		}
		db.Advance(t, time.Minute)
		var each sync.WaitGroup
		for range 4 {
			s := daemon(t, again(t, db), Options{})
			each.Go(func() {
				for {
					runs, ended, err := s.takeOver(t.Context(), "default", 7)
					if err != nil {
						t.Error(err)
					}
					for _, e := range hold(s, runs) {
						finished(t, s, e, 0)
					}
					if err != nil || ended == 0 {
						return
					}
				}
			})
		}
		each.Wait()
		settle(t, daemon(t, db, Options{}))
		states := map[string]int{}
		for _, r := range allRuns(t, db, "") {
			states[r.State]++
			if r.Attempt > 2 {
				t.Errorf("%s: attempt %d", r.Schedule, r.Attempt)
			}
		}
		if states["lost"] != schedules || states["ok"] != schedules || len(states) != 2 {
			t.Errorf("runs by state: %v, want each lost once, and ok once", states)
		}
	})
}
