package scheduler

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/dialect"
)

// A Run is what became of a slot, or of a stretch of slots.
type Run struct {
	ID       int64
	Schedule string
	Due      time.Time // the slot
	Attempt  int       // 1, or more after a crash or a failure
	Cause    string    // why it is run: slot, hand (run now), backfill or chain

	// State is waiting (for its time, or the run before), running, ok, failed,
	// timeout, lost and retry (another attempt follows), cancelled, skipped or
	// missed.
	State string

	To    time.Time // skipped and missed: the last slot of the stretch that Due begins
	Slots int64     // how many slots the stretch has

	By                string    // the daemon
	Fence             int64     // larger than that of every attempt of the schedule that began before
	Next              time.Time // waiting: its time; running: the end of its lease; else zero
	Started, Finished time.Time // zero: not yet, or never
	ExitCode          int       // of a command, or the status of a request; -1: none
	Error             string    // why it did not end well, or did not run
	Output            string    // standard output and error, or the answer, head and tail
	Cancel            string    // somebody wants it to end, and why
}

// History returns the newest runs of a schedule, or of all if name is empty,
// newest first. Runs of schedules that were removed are there too.
func History(ctx context.Context, db *dialect.DB, name string, limit int) ([]Run, error) {
	stmt := history
	if name == "" {
		stmt = historyOfAll
	}
	return dialect.Select(ctx, &db.Session, stmt, dialect.Args{"schedule": name, "limit": limit}, scanRun)
}

// GetRun returns a run with its output, that of one which runs as far as its daemon has
// written it, which it does every few seconds. It returns ErrNoRun.
func GetRun(ctx context.Context, db *dialect.DB, id int64) (Run, error) {
	found, err := dialect.Select(ctx, &db.Session, showRun, dialect.Args{"id": id}, scanRun)
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
		&started, &finished, &r.ExitCode, &r.Error, &r.Output, &r.Cancel)
	r.Due, r.To, r.Next = instantOf(due), instantOf(to), instantOf(next)
	r.Started, r.Finished = instantOf(started), instantOf(finished)
	return r, err
}
