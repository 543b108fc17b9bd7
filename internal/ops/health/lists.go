package health

import (
	"context"
	"database/sql"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

// Statements for lists of schedules and runs. They are read-only, and read one row of an index for each.
var (
	// lastOf finds the newest run of each schedule, or NULL.
	lastOf = sqlrun.SQL("health.last-runs", `
		SELECT (SELECT r.id FROM {prefix}run AS r WHERE r.schedule = s.name ORDER BY r.due_at DESC, r.attempt DESC LIMIT 1)
		FROM {prefix}schedule AS s WHERE s.name IN (:names)`)

	runsByID = sqlrun.SQL("health.runs-by-id", `SELECT `+runColumns+`, '' FROM {prefix}run WHERE id IN (:ids)`)

	// linesOf reads the beginning of outputs, of which a line is shown.
	linesOf = sqlrun.SQL("health.first-lines", `SELECT id, SUBSTR(output, 1, 300) FROM {prefix}run WHERE id IN (:ids) AND output <> ''`)
)

// LastRuns returns the newest run of each of some schedules that has had one, without its output.
func LastRuns(ctx context.Context, db *dialect.DB, schedules []scheduler.Schedule) (map[string]scheduler.Run, error) {
	names, last := []string{""}, map[string]scheduler.Run{}
	for i := range schedules {
		names = append(names, schedules[i].Name)
	}
	found, err := sqlrun.Select(ctx, &db.Session, lastOf, sqlrun.Args{"names": names}, func(rows *sql.Rows) (id sql.NullInt64, err error) {
		return id, rows.Scan(&id)
	})
	if err != nil {
		return nil, err
	}
	ids := []int64{0}
	for _, id := range found {
		ids = append(ids, id.Int64)
	}
	runs, err := selectRuns(ctx, db, runsByID, sqlrun.Args{"ids": ids})
	for i := range runs {
		last[runs[i].Schedule] = runs[i]
	}
	return last, err
}

// FirstLines returns the first line with a text of what runs have written, by their ids. Runs that have written nothing are left out.
func FirstLines(ctx context.Context, db *dialect.DB, runs []scheduler.Run) (map[int64]string, error) {
	ids, lines := []int64{0}, map[int64]string{}
	for i := range runs {
		ids = append(ids, runs[i].ID)
	}
	_, err := sqlrun.Select(ctx, &db.Session, linesOf, sqlrun.Args{"ids": ids}, func(rows *sql.Rows) (none struct{}, err error) {
		var id int64
		var text string
		err = rows.Scan(&id, &text)
		if line := plain.Line(text, 160); line != "" {
			lines[id] = line
		}
		return none, err
	})
	return lines, err
}

// IsLate reports whether the slot of an active schedule should have been claimed.
func IsLate(s *scheduler.Schedule, now time.Time) bool {
	return s.State == "active" && Lateness(&scheduler.Planned{Schedule: *s}, now) != ""
}
