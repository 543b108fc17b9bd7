package scheduler

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A Run is the history of one slot, or of a range of slots that did not run.
type Run struct {
	ID       int64
	Schedule string
	Due      time.Time // the slot
	Attempt  int       // 1 at first; more after a crash or failure
	Cause    string    // why it is run: slot, hand (run now), backfill, chain or boot

	// State is waiting (for its time, or the run before), running, ok, failed,
	// timeout, lost and retry (another attempt follows), cancelled, skipped or
	// missed.
	State string

	To    time.Time // skipped and missed: the last slot of the range that begins with Due
	Slots int64     // number of slots in the range

	By                string    // the daemon that executes it
	Fence             int64     // larger than the fence of every earlier attempt of the schedule
	Next              time.Time // waiting: its time; running: the end of its lease; else zero
	Started, Finished time.Time // zero: not yet, or never
	ExitCode          int       // of a command, or the status of a request; -1: none
	Error             string    // why it failed or did not run
	Output            string    // standard output and error, or the response body: head and tail
	Cancel            string    // the reason given by whoever asked to cancel it

	// Stops is how many daemons in a row were stopped within a minute after they had begun this slot.
	Stops int
}

// History returns the newest runs of a schedule, or of all schedules if name is empty, newest
// first. It includes the runs of deleted schedules.
func History(ctx context.Context, db *dialect.DB, name string, limit int) ([]Run, error) {
	stmt := history
	if name == "" {
		stmt = historyOfAll
	}
	return sqlrun.Select(ctx, &db.Session, stmt, sqlrun.Args{"schedule": name, "limit": limit}, scanRun)
}

// GetRun returns a run with its output. A running run has the output up to the daemon's last
// write, which is a few seconds old at most. GetRun returns ErrNoRun if there is no such run.
func GetRun(ctx context.Context, db *dialect.DB, id int64) (Run, error) {
	found, err := sqlrun.Select(ctx, &db.Session, showRun, sqlrun.Args{"id": id}, scanRun)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %d", ErrNoRun, id)
	}
	if err != nil {
		return Run{}, err
	}
	return found[0], nil
}

func scanRun(rows *sql.Rows) (r Run, err error) {
	var due, to, next, started, finished int64
	err = rows.Scan(&r.ID, &r.Schedule, &due, &r.Attempt, &r.Cause, &r.State, &to, &r.Slots, &r.By, &r.Fence, &next,
		&started, &finished, &r.ExitCode, &r.Error, &r.Output, &r.Cancel, &r.Stops)
	r.Due, r.To, r.Next = instantOf(due), instantOf(to), instantOf(next)
	r.Started, r.Finished = instantOf(started), instantOf(finished)
	return r, err
}
