package scheduler

import (
	"context"
	"database/sql"
	"strings"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Statements for following runs. They leave out the output, which may be long.
var (
	runsAfter = sqlrun.SQL("scheduler.runs-after", `SELECT `+shortRun+` FROM {prefix}run WHERE id > :after ORDER BY id LIMIT :limit`)

	runsWithIDs = sqlrun.SQL("scheduler.runs-with-ids", `SELECT `+shortRun+` FROM {prefix}run WHERE id IN (:ids) ORDER BY id`)

	lastRun = sqlrun.SQL("scheduler.last-run", `SELECT COALESCE(MAX(id), 0) FROM {prefix}run`)

	// openRunIDs probes the index once per lane, those of started hosts among them.
	openRunIDs = sqlrun.SQL("scheduler.open-run-ids", `
		SELECT r.id FROM (SELECT lane FROM {prefix}schedule UNION SELECT lane FROM {prefix}schedule_boot) AS l
		JOIN {prefix}run AS r ON r.lane = l.lane AND r.next_exec > {time 0} AND r.next_exec < {time 253402300799000000}
		ORDER BY r.id LIMIT :limit`)
)

var shortRun = strings.Replace(runColumns, ", output,", ", '',", 1)

// RunsAfter returns up to limit runs with ids above after, in id order and without their output.
// Ids are in the order in which runs were made, but a run may be committed shortly after one with
// a larger id.
func RunsAfter(ctx context.Context, db *dialect.DB, after int64, limit int) ([]Run, error) {
	return sqlrun.Select(ctx, &db.Session, runsAfter, sqlrun.Args{"after": after, "limit": limit}, scanRun)
}

// RunsWithIDs returns those of the given runs that exist, in id order and without their output.
func RunsWithIDs(ctx context.Context, db *dialect.DB, ids []int64) ([]Run, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return sqlrun.Select(ctx, &db.Session, runsWithIDs, sqlrun.Args{"ids": ids}, scanRun)
}

// OpenRuns returns the ids of up to limit runs that have not ended, and the id of the newest run,
// or 0 if there is none.
func OpenRuns(ctx context.Context, db *dialect.DB, limit int) (ids []int64, newest int64, err error) {
	if err = db.Get(ctx, lastRun, nil, &newest); err != nil {
		return nil, 0, err
	}
	ids, err = sqlrun.Select(ctx, &db.Session, openRunIDs, sqlrun.Args{"limit": limit}, func(rows *sql.Rows) (id int64, err error) {
		return id, rows.Scan(&id)
	})
	return ids, newest, err
}
