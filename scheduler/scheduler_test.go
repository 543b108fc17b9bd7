package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// daemon returns a scheduler as a daemon of its own would be: with its own name.
func daemon(t *testing.T, db *dbtest.DB) *Scheduler {
	t.Helper()
	s, err := New(db.DB, Options{Node: t.Name()[:4]})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// add stores a schedule with a command that succeeds.
func add(t *testing.T, db *dbtest.DB, name, spec string) {
	t.Helper()
	if err := Add(t.Context(), db.DB, Schedule{Name: name, Spec: spec, Command: "echo " + name}); err != nil {
		t.Fatal(err)
	}
}

func TestASlotRunsWhenItIsDue(t *testing.T) {
	dbtest.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "hello", "@every 1m")
		s := daemon(t, db)
		if wait, err := s.step(t.Context(), context.Background()); err != nil || wait <= 0 {
			t.Fatalf("a minute early: wait %v, %v", wait, err)
		}
		db.Advance(t, time.Minute)
		if _, err := s.step(t.Context(), context.Background()); err != nil {
			t.Fatal(err)
		}
		s.runs.Wait()
		got, err := History(t.Context(), db.DB, "hello", 10)
		if err != nil || len(got) != 1 {
			t.Fatalf("got %v, %v; want one run", got, err)
		}
		r := got[0]
		if r.State != "ok" || r.Output != "hello\n" || r.ExitCode != 0 || r.Attempt != 1 || !r.Due.Equal(dbtest.Start.Add(time.Minute)) {
			t.Errorf("got %+v", r)
		}
		if wait, err := s.step(t.Context(), context.Background()); err != nil || wait <= 0 {
			t.Errorf("after the run: wait %v, %v", wait, err)
		}
	})
}
