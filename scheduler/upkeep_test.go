//go:build unix

package scheduler

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

func purged(t *testing.T, s *Scheduler) {
	t.Helper()
	if err := s.purgeAll(t.Context(), outdated, nil); err != nil {
		t.Fatal(err)
	}
}

// Runs leave the history when they ended longer ago than their schedule keeps
// them, however they ended, and those of a schedule that keeps all never do.
func TestHistoryByAge(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		keeps := map[string]time.Duration{"hour": time.Hour, "day": 24 * time.Hour, "default": 0, "forever": -1, "for ever": -time.Hour}
		for name, keep := range keeps {
			addJob(t, db, Schedule{Name: name, Spec: "0 10 2 3 *", Command: "true", Policy: Policy{KeepFor: keep}})
		}
		addJob(t, db, Schedule{
			Name: "fails", Spec: "0 10 2 3 *", Command: "false",
			Policy: Policy{KeepFor: time.Hour, MaxAttempts: 2, RetryDelay: time.Second},
		})
		addJob(t, db, Schedule{Name: "missed", Spec: "* 10 2 3 *", Command: "true", Policy: Policy{KeepFor: time.Hour, Missed: "skip"}})
		addJob(t, db, Schedule{Name: "cancelled", Spec: "0 10 2 3 *", Command: "true", Policy: Policy{KeepFor: time.Hour}})
		s := daemon(t, db, Options{})
		db.Advance(t, 80*time.Minute)
		db.Do(t, `UPDATE {prefix}schedule SET next_exec = {now} WHERE name = 'cancelled'`, nil)
		for _, e := range claimed(t, s, 100) {
			switch e.schedule {
			case "cancelled":
				e.stopFor(stop{cancelled, "by hand"}, true)
				finished(t, s, e, 0)
			case "fails":
				finished(t, s, e, 1)
			default:
				finished(t, s, e, 0)
			}
		}
		work(t, s) // the second attempt comes later
		left := func() (names []string) {
			for _, r := range allRuns(t, db, "") {
				names = append(names, r.Schedule)
			}
			return slices.Compact(names)
		}
		all := []string{"cancelled", "day", "default", "fails", "for ever", "forever", "hour", "missed"}
		want := func(when string, want ...string) {
			t.Helper()
			purged(t, s)
			if got := left(); !slices.Equal(got, want) {
				t.Errorf("%s there are runs of %q, want %q", when, got, want)
			}
		}
		want("at once", all...)
		db.Advance(t, 59*time.Minute)
		want("within the hour", all...)
		db.Advance(t, time.Minute)
		want("after an hour", "day", "default", "fails", "for ever", "forever")
		wantRows(t, db, "fails", "3600 2 waiting") // which waits, and is never removed
		work(t, s)
		db.Advance(t, 23*time.Hour)
		want("after a day", "default", "for ever", "forever")
		db.Advance(t, 29*24*time.Hour)
		want("after 30 days", "for ever", "forever")
		db.Advance(t, 80*365*24*time.Hour)
		want("after a life", "for ever", "forever")
	})
}

// runsByHand writes n runs of a schedule into the history, one a second, that
// were outdated an hour ago; more gives further columns their values.
func runsByHand(t *testing.T, db *dbtest.DB, name string, n int, more string) {
	t.Helper()
	for from := 0; from < n; from += 500 {
		var rows []sqlrun.Args
		for i := from; i < min(n, from+500); i++ {
			rows = append(rows, sqlrun.Args{"due": at(time.Duration(i-n) * time.Second).UnixMicro()})
		}
		db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, finished_at, purge_at, next_exec)
			VALUES {values rows: (:name, {time :due}, 1, `+more+`)}`,
			sqlrun.Args{"rows": rows, "name": name, "ago": -time.Hour.Microseconds(), "later": time.Hour.Microseconds()})
	}
}

// A long history goes batch by batch, by two daemons at once, and nothing that
// runs or waits goes.
func TestPurgeInBatches(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		runsByHand(t, db, "old", purgeBatch+7, `'ok', {now}, {now + :ago}, NULL`)
		runsByHand(t, db, "new", 10, `'ok', {now}, {now + :later}, NULL`)
		runsByHand(t, db, "kept", 10, `'ok', {now}, NULL, NULL`)
		runsByHand(t, db, "open", 3, `'waiting', NULL, NULL, {now + :later}`)
		runsByHand(t, db, "odd", 3, `'running', NULL, {now + :ago}, {now + :later}`)
		var each sync.WaitGroup
		for range 2 {
			s := daemon(t, again(t, db), Options{})
			each.Go(func() {
				if err := s.purgeAll(t.Context(), outdated, nil); err != nil {
					t.Error(err)
				}
			})
		}
		each.Wait()
		if got, want := fmt.Sprint(db.List(t, `SELECT schedule, COUNT(*) FROM {prefix}run GROUP BY schedule ORDER BY schedule`, nil)),
			"[kept 10 new 10 odd 3 open 3]"; got != want {
			t.Errorf("left: %s, want %s", got, want)
		}
	})
}

// A schedule's history is cut to the newest runs that it keeps; runs that have not ended stay,
// and so do other schedules' runs.
func TestKeepRuns(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for name, keep := range map[string]int{"few": 5, "all": -1, "default": 0} {
			addJob(t, db, Schedule{Name: name, Command: "true", Policy: Policy{KeepRuns: keep}})
			runsByHand(t, db, name, 20, `'ok', {now}, NULL, NULL`)
		}
		db.Do(t, `UPDATE {prefix}run SET next_exec = {now + :later}, state = 'waiting' WHERE due_at = {time :due}`,
			sqlrun.Args{"due": at(-20 * time.Second).UnixMicro(), "later": time.Hour.Microseconds() * 24})
		s := daemon(t, db, Options{})
		s.chance = func() float64 { return 0 }
		ctx, cancel := context.WithCancel(t.Context())
		var upkeep sync.WaitGroup
		upkeep.Go(func() { s.upkeep(ctx) })
		db.Do(t, `UPDATE {prefix}schedule SET overlap = 'allow'`, nil)
		db.Advance(t, time.Hour)
		work(t, s)
		eventually(t, "the history is cut", func() bool { return len(rows(t, db, "few")) < 20 })
		cancel()
		upkeep.Wait()
		wantRows(t, db, "few", "-20 1 waiting", "-4 1 ok", "-3 1 ok", "-2 1 ok", "-1 1 ok", "3600 1 ok")
		for _, name := range []string{"all", "default"} {
			if n := len(rows(t, db, name)); n != 21 {
				t.Errorf("%s: %d runs are left of 21", name, n)
			}
		}
	})
}

// All attempts at the oldest slot that is kept stay, so a slot with more attempts than are kept takes no other with it.
func TestKeepRunsOfManyAttempts(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, Schedule{Name: "job", Command: "true"})
		runsByHand(t, db, "job", 3, `'ok', {now}, NULL, NULL`)
		for attempt := range 4 {
			db.Do(t, `INSERT INTO {prefix}run (schedule, lane, due_at, attempt, state, finished_at) VALUES ('job', 'default', {time :due}, :attempt, 'failed', {now})`,
				sqlrun.Args{"due": at(0).UnixMicro(), "attempt": 1 + attempt})
		}
		s := daemon(t, db, Options{})
		if err := s.purgeAll(t.Context(), surplus, sqlrun.Args{"schedule": "job", "newer": 1}); err != nil {
			t.Fatal(err)
		}
		wantRows(t, db, "job", "0 1 failed", "0 2 failed", "0 3 failed", "0 4 failed")
	})
}

// History is cut seldom enough: on the average when it has grown by a tenth, or
// by ten.
func TestTrimIsSeldom(t *testing.T) {
	for _, c := range []struct {
		keep, of1000 int
	}{{0, 10}, {1000, 10}, {100, 100}, {5, 1000}, {10_000, 1}, {-1, 0}} {
		s, err := New(nil, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s.surplus = make(chan trimming, 2000)
		i := 0
		s.chance = func() float64 { i++; return (float64(i) - 0.5) / 1000 }
		for range 1000 {
			s.trim(&run{schedule: "job", what: &Schedule{Policy: Policy{KeepRuns: c.keep}}})
		}
		if n := len(s.surplus); n != c.of1000 {
			t.Errorf("keep %d: cut %d times of 1000, want %d", c.keep, n, c.of1000)
		}
		if n := len(s.surplus); n > 0 {
			if got := <-s.surplus; got.schedule != "job" || c.keep > 0 && got.keep != c.keep || c.keep == 0 && got.keep != 1000 {
				t.Errorf("keep %d: %+v", c.keep, got)
			}
		}
	}
}
