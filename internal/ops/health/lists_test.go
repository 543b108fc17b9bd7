package health

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

// The newest attempt at the newest slot is the last run, and what it wrote first is told.
func TestLists(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		var all []scheduler.Schedule
		for _, name := range []string{"a", "A", "none"} {
			all = append(all, scheduler.Schedule{Name: name, Spec: "@daily", Command: "true"})
			dbtest.Must(t, scheduler.Add(t.Context(), db.DB, all[len(all)-1]))
		}
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		for i, run := range []struct {
			schedule string
			slot     time.Duration
			attempt  int
			output   string
		}{{"a", 2, 1, "one"}, {"a", 2, 2, "\n\n two\nlines\n \n"}, {"a", 1, 9, ""}, {"A", 1, 1, "\x1b[31m"}, {"gone", 5, 1, "gone"}} {
			db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, error, output) VALUES (:schedule, {time :at}, :attempt, 'ok', :nth, :output)`, sqlrun.Args{
				"schedule": run.schedule, "at": at.Add(run.slot * time.Hour).UnixMicro(), "attempt": run.attempt, "nth": fmt.Sprint(i), "output": run.output,
			})
		}
		last, err := LastRuns(t.Context(), db.DB, all)
		dbtest.Must(t, err)
		if len(last) != 2 || last["a"].Error != "1" || last["A"].Error != "3" {
			t.Errorf("got %+v", last)
		}
		runs, err := NewestRuns(t.Context(), db.DB, "a", 10)
		dbtest.Must(t, err)
		lines, err := LastLines(t.Context(), db.DB, append(runs, last["A"]))
		dbtest.Must(t, err)
		want := map[int64]string{runs[0].ID: "lines", runs[1].ID: "one", last["A"].ID: " [31m"}
		if !maps.Equal(lines, want) {
			t.Errorf("got %v, want %v", lines, want)
		}
		if none, err := LastRuns(t.Context(), db.DB, nil); err != nil || len(none) > 0 {
			t.Errorf("got %v, %v", none, err)
		}
	})
}
