package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A claim moves the schedule to its next slot and writes who runs this one.
func TestClaim(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "report", "@every 1m")
		s := daemon(t, db, Options{Node: "here"})
		if got := claimed(t, s, 10); len(got) != 0 {
			t.Fatalf("claimed %d runs before the slot", len(got))
		}
		db.Advance(t, time.Minute)
		got := claimed(t, s, 10)
		if len(got) != 1 {
			t.Fatalf("claimed %d runs at the slot, want 1", len(got))
		}
		r := got[0].run
		if r.schedule != "report" || !r.due.Equal(at(time.Minute)) || r.attempt != 1 || r.what.Command != "echo report" {
			t.Errorf("claimed %+v", r)
		}
		if due := stored(t, db, "report").Due; !due.Equal(at(2 * time.Minute)) {
			t.Errorf("the next slot is %v, want %v", due, at(2*time.Minute))
		}
		row := allRuns(t, db, "report")[0]
		if row.State != "running" || row.By != s.Node() || !row.Started.Equal(at(time.Minute)) || !row.Finished.IsZero() || row.ExitCode != -1 {
			t.Errorf("the run's row is %+v", row)
		}
		if got := claimed(t, s, 10); len(got) != 0 {
			t.Errorf("the slot was claimed twice")
		}
	})
}

// What is due first is claimed first, and no more than is asked for.
func TestClaimLimit(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for i := range 5 {
			add(t, db, fmt.Sprintf("s%d", i), fmt.Sprintf("@every %ds", 50-i))
		}
		db.Advance(t, time.Minute)
		s := daemon(t, db, Options{})
		var names []string
		for range 3 {
			for _, e := range claimed(t, s, 2) {
				names = append(names, e.schedule)
			}
		}
		got := [][]string{names[:2], names[2:4], names[4:]}
		slices.Sort(got[0])
		slices.Sort(got[1])
		if want := [][]string{{"s3", "s4"}, {"s1", "s2"}, {"s0"}}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
	})
}

// Four daemons with pools of their own claim at once, again and again: each
// slot is claimed once, and nothing is left.
func TestClaimRace(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		const daemons = 4
		schedules := 300
		if db.Dialect.SkipLocked == "" {
			schedules = 100 // embedded: this process does all the work
		}
		addMany(t, db, schedules, "@every 1m", at(time.Minute))
		var all []*Scheduler
		for range daemons {
			all = append(all, daemon(t, again(t, db), Options{}))
		}
		advances := []time.Duration{time.Minute, time.Minute, 150 * time.Second}
		for round, d := range advances {
			db.Advance(t, d)
			var mu sync.Mutex
			claims := map[string]int{}
			var each sync.WaitGroup
			for _, s := range all {
				each.Go(func() {
					for {
						runs, moved, err := s.claim(t.Context(), "default", 40)
						if err != nil {
							t.Error(err)
							return
						}
						for _, e := range hold(s, runs) {
							mu.Lock()
							claims[e.schedule]++
							mu.Unlock()
							if e.id%4 == 0 { // the others go on into the next slot
								finished(t, s, e, 0)
							}
						}
						if moved == 0 {
							return
						}
					}
				})
			}
			each.Wait()
			// Those that pass over each other's locked rows may leave some.
			for _, e := range claimed(t, all[0], schedules) {
				claims[e.schedule]++
				finished(t, all[0], e, 0)
			}
			for name, n := range claims {
				if n != 1 {
					t.Errorf("round %d: %s was claimed %d times", round, name, n)
				}
			}
			if round == 0 && len(claims) != schedules {
				t.Errorf("%d schedules were claimed, want %d", len(claims), schedules)
			}
		}
		var lives []life
		for i := range schedules {
			s := stored(t, db, fmt.Sprintf("s%05d", i))
			lives = append(lives, life{s.Name, at(time.Minute), s.Due, time.Minute})
		}
		states := account(t, allRuns(t, db, ""), lives)
		if states["ok"] == 0 || states["skipped"] == 0 || states["missed"] == 0 || states["running"] == 0 {
			t.Errorf("outcomes %v: want some of each", states)
		}
	})
}

// Of slots that passed while no daemon ran, the newest is run, and the others
// are recorded as missed, in one row.
func TestMissedSlots(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "interval", "@every 10s")
		add(t, db, "cron", "* * * * *")
		db.Advance(t, 5*time.Minute+25*time.Second)
		settle(t, daemon(t, db, Options{}))
		wantRows(t, db, "interval", "10 1 missed to 310: 31", "320 1 ok")
		wantRows(t, db, "cron", "60 1 missed to 240: 4", "300 1 ok")
		if due := stored(t, db, "interval").Due; !due.Equal(at(330 * time.Second)) {
			t.Errorf("the next slot is %v", due)
		}
		// A second range is a row of its own: a run lies between.
		db.Advance(t, 2*time.Minute)
		settle(t, daemon(t, db, Options{}))
		wantRows(t, db, "cron", "60 1 missed to 240: 4", "300 1 ok", "360 1 missed to 360: 1", "420 1 ok")
	})
}

// Years without a daemon are no problem.
func TestMissedYears(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "interval", "@every 1s")
		add(t, db, "cron", "* * * * *")
		year := 365 * 24 * time.Hour
		db.Advance(t, year)
		settle(t, daemon(t, db, Options{}))
		seconds := int(year / time.Second)
		wantRows(t, db, "interval", fmt.Sprintf("1 1 missed to %d: %d", seconds-1, seconds-1), fmt.Sprintf("%d 1 ok", seconds))
		// Slots on a calendar can only be counted one by one, and are not beyond a limit.
		wantRows(t, db, "cron", fmt.Sprintf("60 1 missed to %d: %d", seconds-60, missedLimit), fmt.Sprintf("%d 1 ok", seconds))
	})
}

// A slot that comes while the run before is still under way is recorded as
// skipped, and such slots make one row until a run comes between.
func TestSkippedSlots(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "slow", "@every 1m")
		s := daemon(t, db, Options{Lease: time.Hour})
		db.Advance(t, time.Minute)
		long := claimed(t, s, 10)
		for range 3 {
			db.Advance(t, time.Minute)
			if got := claimed(t, s, 10); len(got) != 0 {
				t.Fatal("two runs at a time")
			}
		}
		wantRows(t, db, "slow", "60 1 running", "120 1 skipped to 240: 3")
		finished(t, s, long[0], 0)
		db.Advance(t, time.Minute)
		long = claimed(t, s, 10)
		db.Advance(t, 3*time.Minute) // nobody checked for two slots, but the run existed all the time
		claimed(t, s, 10)
		finished(t, s, long[0], 0)
		db.Advance(t, time.Minute)
		settle(t, s)
		wantRows(t, db, "slow", "60 1 ok", "120 1 skipped to 240: 3", "300 1 ok",
			"360 1 skipped to 480: 3", "540 1 ok")
	})
}

// One run for each slot and attempt is enforced by the key: a row that is there
// already stands, the schedule moves on, and the rest of the batch proceeds.
func TestASlotThatHasARunIsLeftAlone(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"a", "b", "c"} {
			add(t, db, name, "@every 1m")
		}
		db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, output) VALUES ('b', {time :due}, 1, 'ok', 'by hand')`,
			sqlrun.Args{"due": at(time.Minute).UnixMicro()})
		db.Advance(t, time.Minute)
		s := daemon(t, db, Options{})
		got := claimed(t, s, 10)
		if len(got) != 2 {
			t.Errorf("claimed %d runs, want those of a and c", len(got))
		}
		for _, e := range got {
			finished(t, s, e, 0)
		}
		wantRows(t, db, "", "a 60 1 ok", "b 60 1 ok", "c 60 1 ok")
		if r := allRuns(t, db, "b")[0]; r.Output != "by hand" || r.By != "" {
			t.Errorf("the row of b is now %+v", r)
		}
		if due := stored(t, db, "b").Due; !due.Equal(at(2 * time.Minute)) {
			t.Errorf("b is due at %v", due)
		}
	})
}

// A transaction that holds a row keeps nobody from the others.
func TestClaimDoesNotWait(t *testing.T) {
	clockedHaving(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"a", "b", "c"} {
			add(t, db, name, "@every 1m")
		}
		db.Advance(t, time.Minute)
		s := daemon(t, db, Options{})
		quickly := func(what string, f func(context.Context) error) {
			ctx, cancel := context.WithTimeout(t.Context(), unblocked())
			defer cancel()
			if err := f(ctx); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		free := lockRow(t, db, `UPDATE {prefix}schedule SET command = 'false' WHERE name = 'a'`)
		quickly("claim beside a locked schedule", func(ctx context.Context) error {
			runs, _, err := s.claim(ctx, "default", 10)
			hold(s, runs)
			return errors.Join(err, wantCount(runs, 2))
		})
		free()
		if got := claimed(t, s, 10); len(got) != 1 || got[0].what.Command != "false" {
			t.Errorf("after the lock: claimed %d", len(got))
		}
		db.Advance(t, time.Minute)
		free = lockRow(t, db, `UPDATE {prefix}run SET renewals = 1 WHERE schedule = 'a'`)
		quickly("takeover beside a locked run", func(ctx context.Context) error {
			runs, _, err := s.takeOver(ctx, "default", 10)
			hold(s, runs)
			return errors.Join(err, wantCount(runs, 2))
		})
		quickly("claim beside a locked run", func(ctx context.Context) error {
			_, moved, err := s.claim(ctx, "default", 10) // all are busy, and move on
			if moved != 3 {
				err = errors.Join(err, fmt.Errorf("%d schedules moved, want 3", moved))
			}
			return err
		})
		free()

		// A row that nobody can plan yet does not keep the others from running.
		db.Do(t, `INSERT INTO {prefix}schedule (name, spec, command) VALUES ('d', '@every 1m', 'true')`, nil)
		db.Do(t, `DELETE FROM {prefix}run`, nil)
		db.Advance(t, time.Minute)
		free = lockRow(t, db, `UPDATE {prefix}schedule SET command = 'false' WHERE name = 'd'`)
		quickly("step beside a locked row without a plan", func(ctx context.Context) error {
			s := daemon(t, db, Options{})
			wait, err := s.step(ctx, context.Background())
			s.runs.Wait()
			if n := len(allRuns(t, db, "")); n != 3 {
				err = errors.Join(err, fmt.Errorf("%d runs, want 3", n))
			}
			// Not with ctx: the commands may have taken most of its time.
			if again, failed := s.step(t.Context(), context.Background()); failed != nil || again <= 0 {
				t.Errorf("the daemon spins: it waits %v, then %v (%v)", wait, again, failed)
			}
			return err
		})
		free()
	})
}

// unblocked is how long an operation may take that waits for no transaction: long, on a slow
// machine, except for a mutant that does wait.
func unblocked() time.Duration {
	if dbtest.Mutated != nil {
		return 3 * time.Second
	}
	return longWait
}

func wantCount(runs []run, n int) error {
	if len(runs) != n {
		return fmt.Errorf("%d runs, want %d", len(runs), n)
	}
	return nil
}

// lockRow leaves a transaction open that has run a statement.
func lockRow(t *testing.T, db *dbtest.DB, text string) (free func()) {
	t.Helper()
	tx := again(t, db).Begin(t, nil)
	if n, err := db.On(tx).Exec(t.Context(), sqlrun.Unlisted(text), nil); err != nil || n != 1 {
		t.Fatalf("%s: %d rows, %v", strings.TrimSpace(text), n, err)
	}
	free = sync.OnceFunc(func() {
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
	})
	return free
}

// A claim whose context ends while it reads the runs that it has begun fails. (It used to panic.)
func TestClaimWhoseRowsAreClosed(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		rows, err := db.Pool().QueryContext(t.Context(), "SELECT 1")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		if !rows.Next() || rows.Err() != nil {
			t.Fatal("no row", rows.Err())
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		if r, err := newClaims().scanRun(rows, instant.Now()); err == nil {
			t.Errorf("a row that could not be read became %+v", r)
		}
	})
}
