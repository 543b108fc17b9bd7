package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/scheduler"
)

// What commands look at and the package scheduler does not tell. All of these
// only read, and each goes through an index.
var (
	// runsOfSlot are the attempts at a slot.
	runsOfSlot = dialect.SQL("dbcron.runs-of-slot", `
		SELECT `+runColumns+`, output FROM {prefix}run
		WHERE schedule = :name AND due_at = {time :due} ORDER BY attempt`)

	// newestRuns and openRuns are without output, which may be long, but for runs that
	// have enqueued a job: it says which.
	newestRuns = dialect.SQL("dbcron.newest-runs", `
		SELECT `+runColumns+`, CASE WHEN lane LIKE '% job' THEN output ELSE '' END FROM {prefix}run
		WHERE schedule = :name ORDER BY due_at DESC, attempt DESC LIMIT :limit`)

	// The range has two ends for the reason that is told in package scheduler.
	openRuns = dialect.SQL("dbcron.open-runs", `
		SELECT `+runColumns+`, '' FROM {prefix}run
		WHERE schedule = :name AND next_exec > {time 0} AND next_exec < {time 253402300799000000}
		ORDER BY due_at, attempt LIMIT :limit`)

	// planOf tells when a schedule may be claimed, and by whom: of its lane.
	planOf = dialect.SQL("dbcron.plan-of", `
		SELECT COALESCE({us next_exec}, 0), lane, {us {now}} FROM {prefix}schedule WHERE name = :name`)

	// busyInLane are the daemons that have something of a lane to do.
	busyInLane = dialect.SQL("dbcron.busy-in-lane", `
		SELECT DISTINCT exec_by FROM {prefix}run
		WHERE lane = :lane AND next_exec > {now} AND state = 'running' ORDER BY exec_by LIMIT :limit`)
)

const runColumns = `id, schedule, {us due_at}, attempt, cause, state, COALESCE({us due_to}, 0), slots, exec_by, fence,
			COALESCE({us next_exec}, 0), COALESCE({us started_at}, 0), COALESCE({us finished_at}, 0), COALESCE(exit_code, -1),
			error, COALESCE(cancel, '')`

func selectRuns(ctx context.Context, db *dialect.DB, stmt *dialect.Stmt, args dialect.Args) ([]scheduler.Run, error) {
	return dialect.Select(ctx, &db.Session, stmt, args, func(rows *sql.Rows) (r scheduler.Run, err error) {
		var due, to, next, started, finished int64
		err = rows.Scan(&r.ID, &r.Schedule, &due, &r.Attempt, &r.Cause, &r.State, &to, &r.Slots, &r.By, &r.Fence,
			&next, &started, &finished, &r.ExitCode, &r.Error, &r.Cancel, &r.Output)
		r.Due, r.To, r.Next = instantOf(due), instantOf(to), instantOf(next)
		r.Started, r.Finished = instantOf(started), instantOf(finished)
		return r, err
	})
}

// What is planned: when a schedule may be claimed, by whom, and what time it is.
type planned struct {
	next time.Time // zero: no daemon has planned it
	lane string
	now  time.Time
}

// lookUp reads a schedule and its plan, or returns scheduler.ErrNotFound.
func lookUp(ctx context.Context, db *dialect.DB, name string) (s scheduler.Schedule, at planned, err error) {
	if s, err = scheduler.Get(ctx, db, name); err != nil {
		return s, at, err
	}
	var next, now int64
	err = db.Get(ctx, planOf, dialect.Args{"name": name}, &next, &at.lane, &now)
	if errors.Is(err, sql.ErrNoRows) { // it was deleted in this moment
		err = fmt.Errorf("%w: %s", scheduler.ErrNotFound, name)
	}
	at.next, at.now = instantOf(next), instantOf(now)
	return s, at, err
}

// instantOf reads µs since 1970, where 0 stands for no time.
func instantOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// ended tells whether a run has ended, whatever came of it.
func ended(r *scheduler.Run) bool { return r.Next.IsZero() }
