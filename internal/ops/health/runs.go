package health

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

// Statements for what is shown of a schedule's runs beyond package scheduler. They are read-only, and each uses an index.
var (
	// runsOfSlot reads the attempts at a slot, from a number on.
	runsOfSlot = sqlrun.SQL("health.runs-of-slot", `
		SELECT `+runColumns+`, output FROM {prefix}run
		WHERE schedule = :name AND due_at = {time :due} AND attempt >= :from ORDER BY attempt LIMIT :limit`)

	// newestRuns and openRuns omit the output, which may be long, except for runs that have enqueued a job:
	// it names the job.
	newestRuns = sqlrun.SQL("health.newest-runs", `
		SELECT `+runColumns+`, CASE WHEN lane LIKE '% job' THEN output ELSE '' END FROM {prefix}run
		WHERE schedule = :name ORDER BY due_at DESC, attempt DESC LIMIT :limit`)

	// A range with two ends, for the reason given in package scheduler.
	openRuns = sqlrun.SQL("health.open-runs", `
		SELECT `+runColumns+`, '' FROM {prefix}run
		WHERE schedule = :name AND next_exec > {time 0} AND next_exec < {time 253402300799000000}
		ORDER BY due_at, attempt LIMIT :limit`)

	// followed lists those of some runs after which their slots were tried again; outlived those after which a later slot was ok.
	followed = sqlrun.SQL("health.followed", `
		SELECT r.id FROM {prefix}run AS r WHERE r.id IN (:ids) AND EXISTS (SELECT 1 FROM {prefix}run AS n
			WHERE n.schedule = r.schedule AND n.due_at = r.due_at AND n.attempt > r.attempt) ORDER BY r.id`)
	outlived = sqlrun.SQL("health.outlived", `
		SELECT r.id FROM {prefix}run AS r WHERE r.id IN (:ids) AND EXISTS (SELECT 1 FROM {prefix}run AS n
			WHERE n.schedule = r.schedule AND n.due_at > r.due_at AND n.state = 'ok') ORDER BY r.id`)

	// lastLinesOf reads the ends of outputs. A length may be in bytes, and then less is read.
	lastLinesOf = sqlrun.SQL("health.last-lines", `
		SELECT id, CASE WHEN LENGTH(output) > 300 THEN SUBSTR(output, LENGTH(output) - 299) ELSE output END FROM {prefix}run
		WHERE id IN (:ids) AND output <> ''`)

	// planOf reads when a schedule may be claimed, and its lane.
	planOf = sqlrun.SQL("health.plan-of", `
		SELECT COALESCE({us next_exec}, 0), lane, {us {now}} FROM {prefix}schedule WHERE name = :name`)

	// busyInLane lists daemons with open runs in a lane.
	busyInLane = sqlrun.SQL("health.busy-in-lane", `
		SELECT DISTINCT exec_by FROM {prefix}run
		WHERE lane = :lane AND next_exec > {now} AND state = 'running' ORDER BY exec_by LIMIT :limit`)
)

const runColumns = `id, schedule, {us due_at}, attempt, cause, state, COALESCE({us due_to}, 0), slots, exec_by, fence,
			COALESCE({us next_exec}, 0), COALESCE({us started_at}, 0), COALESCE({us finished_at}, 0), COALESCE(exit_code, -1),
			error, COALESCE(cancel, '')`

func selectRuns(ctx context.Context, db *dialect.DB, stmt *sqlrun.Stmt, args sqlrun.Args) ([]scheduler.Run, error) {
	return sqlrun.Select(ctx, &db.Session, stmt, args, func(rows *sql.Rows) (r scheduler.Run, err error) {
		var due, to, next, started, finished int64
		err = rows.Scan(&r.ID, &r.Schedule, &due, &r.Attempt, &r.Cause, &r.State, &to, &r.Slots, &r.By, &r.Fence,
			&next, &started, &finished, &r.ExitCode, &r.Error, &r.Cancel, &r.Output)
		r.Due, r.To, r.Next = instantOf(due), instantOf(to), instantOf(next)
		r.Started, r.Finished = instantOf(started), instantOf(finished)
		return r, err
	})
}

// A Plan is when a schedule may be claimed, by whom, and what time it is.
type Plan struct {
	Next time.Time // zero: not planned yet
	Lane string
	Now  time.Time
}

// LookUp reads a schedule and its plan, or returns scheduler.ErrNotFound.
func LookUp(ctx context.Context, db *dialect.DB, name string) (s scheduler.Schedule, at Plan, err error) {
	if s, err = scheduler.Get(ctx, db, name); err != nil {
		return s, at, err
	}
	var next, now int64
	err = db.Get(ctx, planOf, sqlrun.Args{"name": name}, &next, &at.Lane, &now)
	if errors.Is(err, sql.ErrNoRows) { // deleted meanwhile
		err = fmt.Errorf("%w: %s", scheduler.ErrNotFound, name)
	}
	at.Next, at.Now = instantOf(next), instantOf(now)
	return s, at, err
}

// instantOf converts µs since 1970; 0 means the zero time.
func instantOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// Ended reports whether a run has ended.
func Ended(r *scheduler.Run) bool { return r.Next.IsZero() }

// OpenRuns lists runs of a schedule that have not ended, the oldest slot first.
func OpenRuns(ctx context.Context, db *dialect.DB, name string, limit int) ([]scheduler.Run, error) {
	return selectRuns(ctx, db, openRuns, sqlrun.Args{"name": name, "limit": limit})
}

// NewestRuns lists runs of a schedule, the newest slot first, without output except for those that
// have enqueued a job.
func NewestRuns(ctx context.Context, db *dialect.DB, name string, limit int) ([]scheduler.Run, error) {
	return selectRuns(ctx, db, newestRuns, sqlrun.Args{"name": name, "limit": limit})
}

// RunsOfSlot lists up to limit attempts at the slot of a run, from a number on, with their output.
func RunsOfSlot(ctx context.Context, db *dialect.DB, of *scheduler.Run, from, limit int) ([]scheduler.Run, error) {
	return selectRuns(ctx, db, runsOfSlot, sqlrun.Args{"name": of.Schedule, "due": of.Due.UnixMicro(), "from": from, "limit": limit})
}

// LastLines returns the last line of what runs have written, by their ids. Runs that have written nothing are left out.
func LastLines(ctx context.Context, db *dialect.DB, runs []scheduler.Run) (map[int64]string, error) {
	ids, lines := []int64{0}, map[int64]string{} // a list has at least one
	for i := range runs {
		ids = append(ids, runs[i].ID)
	}
	_, err := sqlrun.Select(ctx, &db.Session, lastLinesOf, sqlrun.Args{"ids": ids}, func(rows *sql.Rows) (none struct{}, err error) {
		var id int64
		var text string
		err = rows.Scan(&id, &text)
		if line := plain.LastLine(text, 160); line != "" {
			lines[id] = line
		}
		return none, err
	})
	return lines, err
}
