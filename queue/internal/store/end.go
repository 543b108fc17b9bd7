package store

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A JobTable is one of the tables of jobs that have not ended.
type JobTable uint8

// The tables. A job that is Nowhere is in none.
const (
	AmongReady JobTable = iota
	AmongDelayed
	AmongRunning
	Nowhere
)

var (
	lockRows   = [...]*sqlrun.Stmt{AmongReady: LockJobs, AmongDelayed: LockDelayed, AmongRunning: LockRunning}
	keepRows   = [...]*sqlrun.Stmt{AmongReady: KeepReady, AmongDelayed: KeepDelayed, AmongRunning: KeepRunning}
	removeRows = [...]*sqlrun.Stmt{AmongReady: AckReady, AmongDelayed: AckDelayed, AmongRunning: AckRunning}
)

// A Done is a job that is done, or need not be done, and leaves its table.
type Done struct {
	ID        int64
	Priority  int
	Attempt   int
	Crashes   int
	Cancelled bool // by somebody: see KeepCancelled
	Discarded bool
	Reason    string        // why it was discarded
	Began     time.Duration // how long ago; 0: it is about to begin
	Unique    string
	Group     int64
	Result    []byte // what its handler has made of it; nil: none
}

// An End is the end of done jobs of a block in one transaction: they leave their tables, are kept as done
// if their queue does that, and release their unique keys and groups.
type End struct {
	BlockID
	Node string // whose checked out jobs they are
	Keep time.Duration

	// Own leaves out delayed jobs whose attempt is not the one that was given out: they have failed
	// elsewhere meanwhile.
	Own bool

	// All says that all of the jobs are expected to be there. If one is not, Remove returns ErrShort.
	// Unless they are kept, it need not lock them first to know which there are. Locked says that the
	// caller has locked them all.
	All, Locked bool

	ended []Ended
}

// RemoveStep returns the step that deletes jobs of one table, and, of ready ones, of one priority,
// wherever they are.
func (e *End) RemoveStep(from JobTable, priority int, ids []int64) *sqlrun.Step {
	args := JobArgs(e.Queue, e.Divided, priority, ids)
	args["node"] = e.Node
	return &sqlrun.Step{Stmt: removeRows[from], Args: args}
}

// Lock locks the jobs of one table, and, of ready ones, of one priority, that are there, and returns their
// ids in order. attempt returns the number of the attempt at each, for Own.
func (e *End) Lock(
	ctx context.Context, tx *sqlrun.Session, from JobTable, priority int, ids []int64, attempt func(id int64) int,
) (here []int64, err error) {
	args := JobArgs(e.Queue, e.Divided, priority, ids)
	args["node"] = e.Node
	here, err = sqlrun.Select(ctx, tx, lockRows[from], args, ScanID)
	if err != nil || !e.Own || from != AmongDelayed || len(here) == 0 {
		return here, err
	}
	var own []int64
	_, err = sqlrun.Select(ctx, tx, AttemptsDelayed, JobArgs(e.Queue, e.Divided, 0, here), func(rows *sql.Rows) (none struct{}, err error) {
		var id int64
		var had int
		if err = rows.Scan(&id, &had); err == nil && had+1 == attempt(id) {
			own = append(own, id)
		}
		return none, err
	})
	slices.Sort(own)
	return own, err
}

// Remove removes jobs of one table and, of ready ones, of one priority. It returns the ids of those that
// were there, in order: only one transaction can delete a row, so somebody else has ended the others. Call
// Release when all are removed.
func (e *End) Remove(ctx context.Context, tx *sqlrun.Session, from JobTable, list []Done) (here []int64, err error) {
	ids, byID := make([]int64, len(list)), make(map[int64]*Done, len(list))
	for i := range list {
		ids[i], byID[list[i].ID] = list[i].ID, &list[i]
	}
	slices.Sort(ids)
	here = ids
	if !e.Locked && (e.Keep > 0 || e.Own && from == AmongDelayed || !e.All && len(list) > 1) {
		here, err = e.Lock(ctx, tx, from, list[0].Priority, ids, func(id int64) int { return byID[id].Attempt })
		if err != nil || len(here) == 0 {
			return nil, e.short(err, 0, len(list))
		}
	}
	if e.Keep > 0 {
		if err := e.keep(ctx, tx, from, here, byID); err != nil {
			return nil, err
		}
	}
	step := e.RemoveStep(from, list[0].Priority, here)
	n, err := tx.Exec(ctx, step.Stmt, step.Args)
	if err == nil && n == 0 && len(list) == 1 { // it was not locked
		return nil, e.short(nil, 0, 1)
	}
	if err = Short(err, n, len(here)); err == nil {
		err = e.short(nil, len(here), len(list))
	}
	if err != nil {
		return nil, err
	}
	for _, id := range here {
		if d := byID[id]; d.Unique != "" || d.Group != 0 {
			x := Ended{ID: id, Unique: d.Unique, Group: d.Group, State: MemberDone, Result: d.Result}
			if d.Discarded {
				x.State = MemberCancelled
			}
			e.ended = append(e.ended, x)
		}
	}
	return here, nil
}

// short returns ErrShort if all jobs were expected to be there.
func (e *End) short(err error, n, of int) error {
	if err == nil && e.All {
		return Short(nil, int64(n), of)
	}
	return err
}

// keep copies jobs whose rows are locked to the table of done jobs.
func (e *End) keep(ctx context.Context, tx *sqlrun.Session, from JobTable, here []int64, byID map[int64]*Done) error {
	rows := make([]sqlrun.Args, len(here))
	for i, id := range here {
		d := byID[id]
		rows[i] = sqlrun.Args{
			"queue": e.Queue, "block": e.Divided, "job": id, "priority": d.Priority, "tries": d.Attempt, "died": d.Crashes,
			"why": "", "failed": nil, "more": OutcomeDone, "made": nil, "later": -d.Began.Microseconds(), "holds": nil,
		}
		switch {
		case d.Cancelled:
			rows[i]["more"] = OutcomeCancelled
		case d.Discarded:
			rows[i]["more"], rows[i]["why"] = OutcomeDiscarded, d.Reason
		case d.Result != nil:
			rows[i]["made"] = string(d.Result)
		}
	}
	n, err := ExecParts(ctx, tx, keepRows[from], sqlrun.Args{"node": e.Node, "keep": e.Keep.Microseconds()}, rows)
	return Short(err, n, len(here))
}

// KeepCancelled copies jobs of one table to the table of done jobs as cancelled, if their queue keeps jobs. Their rows are
// locked and will be deleted next.
func (e *End) KeepCancelled(ctx context.Context, tx *sqlrun.Session, from JobTable, here []int64, byID map[int64]*Done) error {
	if e.Keep <= 0 {
		return nil
	}
	return e.keep(ctx, tx, from, here, byID)
}

// Release frees the unique keys of the jobs that were removed, and records their outcomes in their groups.
// A transaction that is tried again needs another End, or Reset.
func (e *End) Release(ctx context.Context, tx *sqlrun.Session) error {
	return ReleaseTies(ctx, tx, e.Queue, e.ended)
}

// Reset forgets what was removed.
func (e *End) Reset() { e.ended = nil }
