package health

import (
	"context"
	"database/sql"
	"time"

	"github.com/dbcron/dbcron/dialect"
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

// IsLate reports whether the slot of an active schedule should have been claimed.
func IsLate(s *scheduler.Schedule, now time.Time) bool {
	return s.State == "active" && Lateness(&scheduler.Planned{Schedule: *s}, now) != ""
}
