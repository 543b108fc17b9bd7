package scheduler

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// forbid has the database refuse that a schedule's runs begin.
func forbid(t *testing.T, db *dbtest.DB, schedule string) (permit func()) {
	t.Helper()
	rule := `NEW.schedule = '` + schedule + `' AND NEW.state = 'running'`
	insert, update := db.Refuse(t, "INSERT", "run", rule), db.Refuse(t, "UPDATE", "run", rule)
	return func() {
		insert()
		update()
	}
}

// stepOnce runs one step of a daemon, and waits for what it begins.
func stepOnce(t *testing.T, s *Scheduler) time.Duration {
	t.Helper()
	wait, err := s.step(t.Context(), context.Background())
	if err != nil {
		t.Fatal(err)
	}
	s.apart.Wait()
	s.runs.Wait()
	return wait
}

// A schedule that cannot be claimed waits, with the reason, and keeps no other from its slot.
func TestOneScheduleThatCannotBeClaimed(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"bad", "good", "other"} {
			add(t, db, name, "@every 1m")
		}
		permit := forbid(t, db, "bad")
		s := daemon(t, db, Options{})
		db.Advance(t, time.Minute)
		stepOnce(t, s)
		wantRows(t, db, "", "good 60 1 ok", "other 60 1 ok")
		bad := stored(t, db, "bad")
		if bad.State != "active" || !bad.Due.Equal(at(time.Minute)) || !strings.Contains(bad.Reason, "could not be claimed: scheduler.begin: ") {
			t.Errorf("%s: %q, due at %v", bad.State, bad.Reason, bad.Due)
		}
		stepOnce(t, s) // it is in nobody's way now
		db.Advance(t, time.Minute)
		stepOnce(t, s)
		wantRows(t, db, "", "good 60 1 ok", "good 120 1 ok", "other 60 1 ok", "other 120 1 ok")

		permit()
		db.Advance(t, 50*time.Second) // it was put off by half its delay, of a minute
		stepOnce(t, s)
		if runs := rows(t, db, "bad"); len(runs) == 0 || !strings.HasSuffix(runs[len(runs)-1], "ok") {
			t.Errorf("its runs: %q", runs)
		}
		if bad = stored(t, db, "bad"); bad.Reason != "" || !bad.Due.Equal(at(3*time.Minute)) {
			t.Errorf("afterwards: %q, due at %v", bad.Reason, bad.Due)
		}
	})
}

// So does a run that waits.
func TestOneRunThatCannotBegin(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"bad", "good"} {
			add(t, db, name, "@manual")
			if _, err := Start(t.Context(), db.DB, name); err != nil {
				t.Fatal(err)
			}
		}
		permit := forbid(t, db, "bad")
		s := daemon(t, db, Options{})
		stepOnce(t, s)
		wantRows(t, db, "good", "0 1 ok")
		var state, why string
		db.Scan(t, `SELECT state, error FROM {prefix}run WHERE schedule = 'bad'`, nil, &state, &why)
		if state != "waiting" || !strings.Contains(why, "could not be claimed") {
			t.Errorf("%s: %q", state, why)
		}
		permit()
		db.Advance(t, time.Minute)
		stepOnce(t, s)
		wantRows(t, db, "bad", "0 1 ok")
	})
}

// Jobs that cannot be enqueued delay nothing else, however long that lasts.
func TestEnqueueBroken(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addEnqueuing(t, db, "job", "@every 30m")
		add(t, db, "command", "@every 1h")
		db.Do(t, `ALTER TABLE {prefix}job RENAME TO dbcron_job_elsewhere`, nil)
		s := daemon(t, db, Options{})
		for n := range 3 {
			db.Advance(t, time.Hour)
			stepOnce(t, s) // without an error, after which the daemon would pause
			if got := rows(t, db, "command"); len(got) != n+1 {
				t.Errorf("the command: %q", got)
			}
		}
		for stored(t, db, "job").Reason == "" { // small tables are locked whole: the claim may have passed over it
			stepOnce(t, s)
		}
		if got := rows(t, db, "job"); len(got) > 0 {
			t.Errorf("runs without jobs: %q", got)
		}
		if job := stored(t, db, "job"); !job.Due.Equal(at(30*time.Minute)) || !strings.Contains(job.Reason, "could not be claimed: queue.") {
			t.Errorf("due at %v: %q", job.Due, job.Reason)
		}
		db.Do(t, `ALTER TABLE {prefix}job_elsewhere RENAME TO dbcron_job`, nil)
		db.Advance(t, time.Minute)
		for len(rows(t, db, "job")) == 0 { // its lane rests by this host's clock
			stepOnce(t, s)
		}
	})
}

// Jobs wait for locks on their queues: commands do not wait with them.
func TestEnqueueBehindALock(t *testing.T) {
	clockedHaving(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		addEnqueuing(t, db, "job", "@every 1h", func(s *Schedule) { s.Job.Queue = "busy" })
		add(t, db, "command", "@every 1h")
		s := daemon(t, db, Options{})
		db.Advance(t, time.Hour)
		free := lockRow(t, db, `INSERT INTO {prefix}queue (name, reason) VALUES ('busy', '')`) // which the claim has to make
		if wait, err := s.step(t.Context(), context.Background()); err != nil || wait != 0 {
			t.Errorf("step: %v, %v", wait, err)
		}
		s.runs.Wait()
		wantRows(t, db, "command", "3600 1 ok")
		if begin, _ := s.enterLane(laneProbe{lane: "default job", unplanned: 1}); begin {
			t.Error("the jobs did not wait for the lock: the test shows nothing")
		}
		db.Advance(t, time.Hour)
		stepBesides(t, s)
		wantRows(t, db, "command", "3600 1 ok", "7200 1 ok")
		free()
		s.apart.Wait()
	})
}

// stepBesides is a look of a daemon that does not wait for lanes that are busy.
func stepBesides(t *testing.T, s *Scheduler) {
	t.Helper()
	if _, err := s.step(t.Context(), context.Background()); err != nil {
		t.Fatal(err)
	}
	s.runs.Wait()
}

// A row that cannot be planned keeps no other from it.
func TestOneScheduleThatCannotBePlanned(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"a", "bad", "c"} {
			byHand(t, db, map[string]string{"name": "'" + name + "'", "spec": "'@every 1m'"})
		}
		s := daemon(t, db, Options{})
		db.Refuse(t, "UPDATE", "schedule", `NEW.name = 'bad' AND NEW.next_exec IS NOT NULL`)
		if n, err := s.planNew(t.Context(), "default"); n != 2 || err == nil {
			t.Errorf("planned %d, %v", n, err)
		}
		db.Advance(t, time.Minute)
		stepOnce(t, s)
		wantRows(t, db, "", "a 60 1 ok", "c 60 1 ok")
	})
}
