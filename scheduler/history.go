package scheduler

import (
	"context"
	"database/sql"
	"time"

	"github.com/dbcron/dbcron/dialect"
)

// A Run is what became of a slot, or of a stretch of slots.
type Run struct {
	ID       int64
	Schedule string
	Due      time.Time // the slot
	Attempt  int       // 1, or more after a crash
	State    string    // running, ok, failed, lost and retry (tried again), cancelled, skipped or missed

	To    time.Time // skipped and missed: the last slot of the stretch that Due begins
	Slots int64     // how many slots the stretch has

	By                string    // the daemon
	Started, Finished time.Time // zero: not yet, or never
	ExitCode          int       // -1: none
	Error             string    // why it did not end well
	Output            string    // standard output and error, head and tail
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

func scanRun(rows *sql.Rows) (r Run, err error) {
	var due, to, started, finished int64
	err = rows.Scan(&r.ID, &r.Schedule, &due, &r.Attempt, &r.State, &to, &r.Slots, &r.By,
		&started, &finished, &r.ExitCode, &r.Error, &r.Output)
	r.Due, r.To, r.Started, r.Finished = instantOf(due), instantOf(to), instantOf(started), instantOf(finished)
	return r, err
}
