//go:build unix

package scheduler

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// RunOnce runs what is due and what follows from it, and returns; a retry that is due later is
// left to the next call.
func TestRunOnce(t *testing.T) {
	dbtest.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		leaks := goleak.IgnoreCurrent()
		addJob(t, db, Schedule{Name: "first", Command: "true", Policy: Policy{OnSuccess: "second"}})
		addJob(t, db, Schedule{Name: "second", Spec: "@manual", Command: "false", Policy: Policy{OnFailure: "third"}})
		addJob(t, db, Schedule{Name: "third", Spec: "@manual", Command: "true", Policy: Policy{OnSuccess: "first"}}) // and no further
		addJob(t, db, Schedule{Name: "fails", Command: "false", Policy: Policy{MaxAttempts: 2, RetryDelay: time.Minute}})
		addJob(t, db, Schedule{Name: "later", Spec: "@every 2h", Command: "true"})
		addMany(t, db, 20, "@every 1h", at(time.Hour))
		byHand(t, db, map[string]string{"name": "'unplanned'", "spec": "'@every 2h'"})
		runsByHand(t, db, "old", 3, `'ok', {now}, {now + :ago}, NULL`)
		db.Advance(t, time.Hour)
		other := again(t, db)
		s := daemon(t, other, Options{MaxRuns: 3})
		if err := s.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := other.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, leaks)
		for name, want := range map[string][]string{
			"first": {"3600 1 ok"}, "second": {"3600 1 failed"}, "third": {"3600 1 ok"}, "fails": {"3600 1 failed", "3600 2 waiting"},
			"later": nil, "s00000": {"3600 1 ok"}, "s00019": {"3600 1 ok"}, "unplanned": nil, "old": nil,
		} {
			wantRows(t, db, name, want...)
		}
		if got := stored(t, db, "unplanned").Due; !got.Equal(at(3 * time.Hour)) {
			t.Errorf("what was without a slot is due at %v", got)
		}
		db.Advance(t, time.Minute)
		if err := daemon(t, db, Options{}).RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantRows(t, db, "fails", "3600 1 failed", "3600 2 failed")
	})
}

// Two that run once at the same time run each slot once.
func TestRunOnceTwice(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		const schedules = 20
		addMany(t, db, schedules, "@every 1h", at(time.Hour))
		db.Advance(t, time.Hour)
		var each sync.WaitGroup
		for range 2 {
			s := daemon(t, again(t, db), Options{MaxRuns: 4})
			each.Go(func() {
				if err := s.RunOnce(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		each.Wait()
		all := allRuns(t, db, "")
		for _, r := range all {
			if r.State != "ok" || r.Attempt != 1 {
				t.Errorf("%+v", r)
			}
		}
		if len(all) != schedules {
			t.Errorf("%d runs, want %d", len(all), schedules)
		}
	})
}

// RunOnce stops as Run does when its context ends.
func TestRunOnceIsStopped(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		s := daemon(t, db, Options{Grace: -1})
		ctx, cancel := context.WithCancel(t.Context())
		handle(t, s, "job", func(ctx context.Context, _ *Running) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		addFunc(t, db, "job", Policy{})
		db.Advance(t, time.Hour)
		if err := s.RunOnce(ctx); err != nil {
			t.Error(err)
		}
		wantRows(t, db, "job", "3600 1 retry")
	})
}

// around connects to the same database with something done around each round
// trip of the statements.
func around(t *testing.T, db *dbtest.DB, f sqlconn.Around) *dbtest.DB {
	t.Helper()
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	base, err := db.Dialect.Connector(u, sqlrun.Options{ApplicationName: "dbcron"})
	if err != nil {
		t.Fatal(err)
	}
	pool := sql.OpenDB(sqlconn.Intercept(base, func(context.Context, driver.Conn) (sqlconn.Around, error) { return f, nil }))
	t.Cleanup(func() { _ = pool.Close() })
	other, err := engines.Wrap(t.Context(), pool, dialect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &dbtest.DB{DB: other.WithNow(db.Dialect.Now), URL: db.URL}
}

// A run that ends just after the daemon has checked for due work may have started another one,
// which RunOnce executes as well.
func TestRunOnceSeesWhatFollows(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		var s *Scheduler
		var begun atomic.Bool
		release := make(chan struct{})
		look := sync.OnceFunc(func() {
			close(release)
			eventually(t, "the run is recorded", func() bool { return s.busy() == 0 })
		})
		hooked := around(t, db, func(_ context.Context, op string, call func() error) error {
			err := call()
			if begun.Load() && strings.Contains(op, "AS unplanned") {
				look() // the answer has been given, and is on its way
			}
			return err
		})
		s = daemon(t, hooked, Options{})
		handle(t, s, "first", func(context.Context, *Running) error { begun.Store(true); <-release; return nil })
		handle(t, s, "second", func(context.Context, *Running) error { return nil })
		addFunc(t, db, "first", Policy{OnSuccess: "second"})
		addJob(t, db, Schedule{Name: "second", Spec: "@manual", Kind: "func", Command: "second"})
		db.Advance(t, time.Hour)
		if err := s.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantRows(t, db, "", "first 3600 1 ok", "second 3600 1 ok")
	})
}

// floored returns a daemon that has searched everything, and begins later searches at a floor.
func floored(t *testing.T, db *dbtest.DB) *Scheduler {
	t.Helper()
	s := daemon(t, db, Options{})
	stepped(t, s)
	if s.floor() <= at(0).UnixMicro() {
		t.Fatalf("the floor is %v", instantOf(s.floor()))
	}
	return s
}

// stepped is one step of a daemon.
func stepped(t *testing.T, s *Scheduler) {
	t.Helper()
	if _, err := s.step(t.Context(), context.Background()); err != nil {
		t.Fatal(err)
	}
	s.runs.Wait()
}

// aMinuteLater lets the daemon believe that it has looked through all a while ago.
func aMinuteLater(s *Scheduler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sinceAt = s.sinceAt.Add(-floorAge - time.Second)
}

// What a person writes into the past is found when all is looked through: after
// a minute, or when somebody has told of a change.
func TestRowsInThePastAreFound(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "far", "@every 24h")
		db.Advance(t, time.Hour)
		for name, again := range map[string]func(*Scheduler){"a minute later": aMinuteLater, "told": (*Scheduler).wakeAll} {
			s := floored(t, db)
			byHand(t, db, map[string]string{"name": "'" + name + "'", "spec": "'@every 2h'", "next_exec": "{now}"})
			db.Do(t, `UPDATE {prefix}schedule SET next_exec = {now + :ago} WHERE name = :name`,
				sqlrun.Args{"ago": -(30 * time.Minute).Microseconds(), "name": name})
			db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, cause, next_exec)
				VALUES ('far', {time :due}, 1, 'waiting', 'hand', {now + :ago})`,
				sqlrun.Args{"due": at(time.Duration(len(name)) * time.Second).UnixMicro(), "ago": -(30 * time.Minute).Microseconds()})
			again(s)
			stepped(t, s)
			if got := rows(t, db, name); !slices.Equal(got, []string{"1800 1 ok"}) {
				t.Errorf("%s: runs %q", name, got)
			}
		}
		wantRows(t, db, "far", "4 1 ok", "14 1 ok")
	})
}

// A row that appears while the floor is up is found by the next search, whoever has written it,
// if its time is the present or a moment ago.
func TestNothingIsOverlooked(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "far", "@every 24h")
		add(t, db, "manual", "@manual")
		db.Advance(t, time.Hour)
		s := floored(t, db)
		byHand(t, db, map[string]string{"name": "'now'", "spec": "'@every 2h'", "next_exec": "{now}"})
		byHand(t, db, map[string]string{"name": "'unplanned'", "spec": "'@every 2h'"})
		byHand(t, db, map[string]string{"name": "'slow'", "spec": "'@every 2h'", "next_exec": "{now}"})
		db.Do(t, `UPDATE {prefix}schedule SET next_exec = {now + :ago} WHERE name = 'slow'`,
			sqlrun.Args{"ago": -(floorSlack - time.Second).Microseconds()}) // its transaction took so long
		addJob(t, db, Schedule{Name: "at once", Command: "true", Policy: Policy{FirstRun: "now"}})
		startedByHand(t, db, "manual")
		stepped(t, s)
		for _, name := range []string{"now", "slow", "at once", "manual"} {
			if got := rows(t, db, name); len(got) != 1 || !strings.HasSuffix(got[0], "1 ok") {
				t.Errorf("%s: runs %q", name, got)
			}
		}
		if stored(t, db, "unplanned").Due.IsZero() {
			t.Error("one was not planned")
		}
	})
}

// What another transaction holds locked for long is found when it is free: the
// floor stays below it.
func TestTheFloorStaysBelowWhatIsHeld(t *testing.T) {
	clockedHaving(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "held", "@every 1h")
		add(t, db, "other", "@every 1m")
		db.Advance(t, time.Hour)
		free := lockRow(t, db, `UPDATE {prefix}schedule SET command = 'echo held' WHERE name = 'held'`)
		s := daemon(t, db, Options{})
		for range 5 {
			stepped(t, s)
			db.Advance(t, time.Minute)
		}
		free()
		stepped(t, s)
		wantRows(t, db, "held", "3600 1 ok")
	})
}

// So it does below what there is no room for.
func TestTheFloorStaysBelowWhatWaitsForRoom(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addMany(t, db, 3, "@every 24h", at(time.Hour))
		db.Advance(t, time.Hour)
		s := daemon(t, db, Options{MaxRuns: 2})
		hold(s, []run{{id: -1}})
		for n := 1; n <= 3; n++ {
			stepped(t, s)
			if got := len(allRuns(t, db, "")); got != n {
				t.Errorf("%d runs after %d looks", got, n)
			}
			db.Advance(t, 10*time.Minute)
		}
	})
}

// Where there are notifications, a daemon that polls once a minute does at once
// what somebody asks for; elsewhere it would find it in a minute.
func TestNotifications(t *testing.T) {
	having(t, dbtest.Notifications, func(t *testing.T, db *dbtest.DB) {
		command, pids := sleeper(t, false)
		addJob(t, db, Schedule{Name: "job", Spec: "@manual", Command: command, Policy: Policy{Overlap: "queue"}})
		s := daemon(t, db, Options{Poll: 10 * time.Minute}) // eventually waits for one
		stop := running(t, s)
		eventually(t, "it has looked", func() bool { return s.floor() > 0 })
		startedByHand(t, db, "job")
		eventually(t, "the command runs", func() bool { return len(pids()) == 2 })
		if _, err := Cancel(t.Context(), db.DB, only(t, db, "job").ID, ""); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is cancelled", func() bool { return only(t, db, "job").State == "cancelled" })
		for what, change := range map[string]func() error{
			"added": func() error {
				return Add(t.Context(), db.DB, Schedule{Name: "added", Spec: "@manual", Command: "true", Policy: Policy{FirstRun: "now"}})
			},
			"imported": func() error {
				_, err := Import(t.Context(), db.DB, "file",
					[]Schedule{{Name: "imported", Spec: "@manual", Command: "true", Policy: Policy{FirstRun: "now"}}}, ImportOptions{})
				return err
			},
		} {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			eventually(t, what, func() bool { all := rows(t, db, what); return len(all) == 1 && strings.HasSuffix(all[0], "ok") })
		}
		stop()
	})
}

// A daemon that has a small pool does without notifications, and polls.
func TestASmallPool(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		small, err := engines.Open(t.Context(), db.URL, dialect.Options{MaxConns: 2})
		if err != nil {
			t.Fatal(err)
		}
		add(t, db, "job", "@manual")
		stop := running(t, daemon(t, &dbtest.DB{DB: small}, Options{Poll: 50 * time.Millisecond}))
		startedByHand(t, db, "job")
		eventually(t, "a run", func() bool { return only(t, db, "job").State == "ok" })
		stop()
		if err := errors.Join(small.Close()); err != nil {
			t.Error(err)
		}
	})
}
