package scheduler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

func noticesOf(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	return db.List(t, `SELECT name, problem, target, times, CASE WHEN run_id > 0 THEN 'run' ELSE 'none' END, CASE WHEN tell_at IS NULL THEN 'old' ELSE 'new' END
		FROM {prefix}notice ORDER BY name`, nil)
}

func isNoted(t *testing.T, db *dbtest.DB, what string, want ...string) {
	t.Helper()
	if got := noticesOf(t, db); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// What ends badly for good is noted with the run, and nothing else: no attempt that is followed by
// another, no cancelled run, and nothing of which nobody wants to know.
func TestFailuresAreNoted(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, Schedule{
			Name: "fails", Spec: "@manual", Command: "false",
			Policy: Policy{MaxAttempts: 2, Notify: "a@b.example,https://c.example/x"},
		})
		addJob(t, db, Schedule{Name: "secret", Spec: "@manual", Command: "false", Policy: Policy{Notify: "none"}})
		addJob(t, db, Schedule{Name: "fine", Spec: "@manual", Command: "true"})
		run := func() {
			t.Helper()
			db.Advance(t, time.Minute)
			if err := daemon(t, db, Options{}).RunOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ask := func() {
			t.Helper()
			for _, name := range []string{"fails", "secret", "fine"} {
				if _, err := Start(t.Context(), db.DB, name); err != nil {
					t.Fatal(err)
				}
			}
			run()
		}
		ask()
		isNoted(t, db, "another attempt follows")
		run()
		isNoted(t, db, "it has failed for good", "fails failed mailto:a@b.example https://c.example/x 1 run new")
		db.Do(t, `UPDATE {prefix}notice SET tell_at = NULL, told_at = {now}`, nil)
		ask()
		run()
		isNoted(t, db, "it goes on", "fails failed mailto:a@b.example https://c.example/x 2 run old")
	})
}

// Missed slots, a schedule that is given up, and a run that is lost for good.
func TestMishapsAreNoted(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		s := daemon(t, db, Options{MaxCrashes: 1})
		addJob(t, db, Schedule{Name: "missed", Spec: "@every 1m", Command: "true"})
		addJob(t, db, Schedule{Name: "given-up", Spec: "@every 1h", Command: "false", Policy: Policy{MaxFailures: 1}})
		db.Advance(t, time.Hour)
		if err := s.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		isNoted(t, db, "an hour later", "given-up given-up  2 run new", "missed missed  1 none new")
		var detail string
		db.Scan(t, `SELECT detail FROM {prefix}notice WHERE name = 'missed'`, nil, &detail)
		if !strings.HasPrefix(detail, "59 slots from 2026-") {
			t.Errorf("detail %q", detail)
		}
		addJob(t, db, Schedule{Name: "lost", Spec: "@manual", Command: "true"})
		if _, err := Start(t.Context(), db.DB, "lost"); err != nil {
			t.Fatal(err)
		}
		db.Do(t, `UPDATE {prefix}run SET state = 'running', next_exec = {now + :s}, exec_by = 'dead', claim = 'x', started_at = {now} WHERE schedule = 'lost'`, map[string]any{"s": 1})
		db.Advance(t, time.Minute)
		if err := daemon(t, db, Options{MaxCrashes: 1}).RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := noticesOf(t, db); !slices.Contains(got, "lost failed  1 run new") {
			t.Errorf("its daemon died: %q", got)
		}
	})
}
