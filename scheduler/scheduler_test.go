package scheduler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/sqlschema"
)

func TestASlotRunsWhenItIsDue(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "hello", "@every 1m")
		s := daemon(t, db, Options{})
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
		if r.State != "ok" || r.Output != "hello\n" || r.ExitCode != 0 || r.Attempt != 1 || !r.Due.Equal(at(time.Minute)) {
			t.Errorf("got %+v", r)
		}
		if wait, err := s.step(t.Context(), context.Background()); err != nil || wait <= 0 {
			t.Errorf("after the run: wait %v, %v", wait, err)
		}
	})
}

// A daemon sleeps until the next slot or lease, and at the most for Poll.
func TestStepTellsHowLongToWait(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		s := daemon(t, db, Options{Poll: 20 * time.Second})
		wait := func(what string, from, to time.Duration) {
			t.Helper()
			got, err := s.step(t.Context(), context.Background())
			if err != nil || got < from || got > to {
				t.Errorf("%s: wait %v, %v; want %v to %v", what, got, err, from, to)
			}
		}
		wait("no schedule", 20*time.Second, 20*time.Second+time.Millisecond)
		add(t, db, "a", "@every 1m")
		wait("a slot in a minute", 20*time.Second, 20*time.Second+time.Millisecond)
		db.Advance(t, 55*time.Second)
		wait("a slot in 5s", 5*time.Second, 5*time.Second+time.Millisecond)
		db.Advance(t, 5*time.Second)
		claimed(t, daemon(t, db, Options{Lease: 3 * time.Second}), 1)
		wait("a lease that ends in 3s", 3*time.Second, 3*time.Second+time.Millisecond)
	})
}

// No more than MaxRuns run at a time.
func TestMaxRuns(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addMany(t, db, 5, "@every 1m", at(time.Minute))
		db.Advance(t, time.Minute)
		s := daemon(t, db, Options{MaxRuns: 3})
		hold(s, []run{{id: -1}})
		if _, err := s.step(t.Context(), context.Background()); err != nil {
			t.Fatal(err)
		}
		s.runs.Wait()
		if n := len(allRuns(t, db, "")); n != 2 {
			t.Errorf("%d runs beside one that was there, want 2", n)
		}
		hold(s, []run{{id: -2}, {id: -3}})
		if wait, err := s.step(t.Context(), context.Background()); err != nil || wait != s.opt.Poll {
			t.Errorf("a full daemon: wait %v, %v", wait, err)
		}
		if n := len(allRuns(t, db, "")); n != 2 {
			t.Errorf("%d runs, and there was no room", n)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for name, opt := range map[string]Options{
		"a long node":            {Node: strings.Repeat("n", 101)},
		"a node that is no text": {Node: "a\xff"},
		"a short lease":          {Lease: time.Second},
		"a negative lease":       {Lease: -time.Minute},
		"a negative room":        {MaxRuns: -1},
		"negative attempts":      {MaxCrashes: -1},
		"a poll without a pause": {Poll: time.Microsecond},
	} {
		if s, err := New(nil, opt); err == nil {
			t.Errorf("%s: got %+v, want an error", name, s.opt)
		}
		if opt.Check() == nil {
			t.Errorf("%s: Check finds nothing", name)
		}
	}
	a, err := New(nil, Options{Node: strings.Repeat("n", 100)})
	b, errB := New(nil, Options{Node: strings.Repeat("n", 100)})
	if err != nil || errB != nil || a.Node() == b.Node() || len(a.Node()) > 128 || !strings.HasPrefix(a.Node(), "nnn") {
		t.Errorf("owners %q and %q, %v, %v: want two names of up to 128 bytes", a.Node(), b.Node(), err, errB)
	}
}

// Run says at once that the tables are not its own.
func TestRunRefusesOtherTables(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		if err := daemon(t, db, Options{}).Run(t.Context()); !errors.Is(err, sqlschema.ErrOutdated) {
			t.Errorf("got %v, want ErrOutdated", err)
		}
	})
}

// Run waits for a database that cannot be reached, also at its start.
func TestRunWaitsForTheDatabase(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		addCommand(t, db, "soon", "@every 1s", "true")
		broken := db.Broken(t, &dbtest.Fault{Call: 1})
		stop := running(t, daemon(t, broken, Options{}))
		eventually(t, "a run", func() bool { return len(allRuns(t, db, "soon")) > 0 })
		stop()
	})
}

func TestRunEndsBeforeItBegins(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := daemon(t, db, Options{}).Run(ctx); err != nil {
			t.Errorf("asked to end before it began: %v", err)
		}
	})
}

// running lets a daemon run until stop, which waits for its end.
func running(t *testing.T, s *Scheduler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("Run does not end")
		}
	}
	t.Cleanup(stop)
	return stop
}

// From end to end, by the real clock: Run executes slot after slot, returns nil
// when ctx ends, and leaves nothing behind.
func TestRun(t *testing.T) {
	dbtest.Locks.Each(t, func(t *testing.T, db *dbtest.DB) {
		leaks := goleak.IgnoreCurrent()
		pool, err := engines.Open(t.Context(), db.URL, dialect.Options{})
		if err != nil {
			t.Fatal(err)
		}
		addCommand(t, db, "tick", "@every 1s", "echo $DBCRON_SCHEDULE $DBCRON_DUE $DBCRON_ATTEMPT $DBCRON_RUN_ID")
		stop := running(t, daemon(t, &dbtest.DB{DB: pool}, Options{}))
		eventually(t, "two slots that are ok", func() bool {
			ok := 0
			for _, r := range allRuns(t, db, "tick") {
				if r.State == "ok" {
					ok++
				}
			}
			return ok >= 2
		})
		stop()
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, leaks)
		all := allRuns(t, db, "tick")
		account(t, all, []life{{"tick", all[0].Due, stored(t, db, "tick").Due, time.Second}})
		r := all[slices.IndexFunc(all, func(r Run) bool { return r.State == "ok" })] // a daemon that begins late misses some
		words := strings.Fields(r.Output)
		if len(words) != 4 || words[0] != "tick" || words[1] != r.Due.Format(time.RFC3339) || words[2] != "1" || words[3] == "" {
			t.Errorf("the command was told %q of %+v", r.Output, r)
		}
	})
}
