package scheduler

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Pause keeps a schedule from running until it is resumed. Running runs go on; waiting ones are
// cancelled when their turn comes. Pause does nothing to a schedule that is not active. It returns
// ErrNotFound if there is no such schedule.
func Pause(ctx context.Context, db *dialect.DB, name, why string) error {
	return changing(ctx, db, func(ctx context.Context, tx *sqlrun.Session) error {
		if _, err := lock(ctx, tx, name); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, pause, sqlrun.Args{"name": name, "reason": reason(why)})
		return err
	})
}

// Resume makes a schedule active again that was paused, has failed or has ended. It continues with
// the next slot and records slots missed meanwhile as skipped. A daemon plans it, or finds again
// what is wrong with it. Resume does nothing to an active schedule. It returns ErrNotFound if there
// is no such schedule.
func Resume(ctx context.Context, db *dialect.DB, name string) error {
	return changing(ctx, db, func(ctx context.Context, tx *sqlrun.Session) error {
		if _, err := lock(ctx, tx, name); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, unpause, sqlrun.Args{"name": name})
		return err
	})
}

// Start asks the daemons to run a schedule now, even if it is paused. The run's slot is the present
// moment. If another run is under way, the new one waits for it or, under the policy forbid, Start
// returns ErrBusy. Start returns the run, which a daemon will begin soon, or ErrNotFound.
func Start(ctx context.Context, db *dialect.DB, name string) (started Run, err error) {
	err = changing(ctx, db, func(ctx context.Context, tx *sqlrun.Session) error {
		c, err := lock(ctx, tx, name)
		if err != nil {
			return err
		}
		open, err := openRuns(ctx, tx, []candidate{c})
		if err != nil {
			return err
		}
		if under := open[name]; len(under) > 0 && c.overlap() == "forbid" {
			return fmt.Errorf("%w: run %d of %s is %s", ErrBusy, under[0].id, name, under[0].state)
		}
		r := run{schedule: name, attempt: 1, cause: "hand"}
		if r.due, err = freeSlot(ctx, tx, &c); err != nil {
			return err
		}
		args := r.args(c.lane)
		args["after_us"] = 0
		if _, err := tx.Exec(ctx, wait, sqlrun.Args{"rows": []sqlrun.Args{args}}); err != nil {
			return err
		}
		found, err := sqlrun.Select(ctx, tx, runOf, sqlrun.Args{"schedule": name, "due": r.due.UnixMicro()}, scanRun)
		if err == nil && len(found) == 1 {
			started = found[0]
		}
		return err
	})
	return started, err
}

// Cancel ends a run: a waiting one at once, a running one by asking its daemon, which checks once
// per Poll. It returns the run as it was before, ErrNotRunning if it has ended already, or ErrNoRun.
func Cancel(ctx context.Context, db *dialect.DB, id int64, why string) (r Run, err error) {
	if why == "" {
		why = "cancelled by hand"
	}
	if len(why) > 200 {
		return r, fmt.Errorf("%w: the reason is longer than 200 bytes", ErrInvalid)
	}
	var left leftovers
	err = changing(ctx, db, func(ctx context.Context, tx *sqlrun.Session) error {
		left = leftovers{}
		var schedule *candidate
		if r, err = runByID(ctx, tx, showRun, id); err != nil {
			return err
		}
		if r.State == "waiting" { // lock the schedule first, as all do who end a run
			switch c, err := lock(ctx, tx, r.Schedule); {
			case err == nil:
				schedule = &c
			case !errors.Is(err, ErrNotFound):
				return err
			}
		}
		if r, err = runByID(ctx, tx, getRun, id); err != nil {
			return err
		}
		switch r.State {
		case "waiting":
			err = loseAll(ctx, tx, loseRows{{id, "cancelled", reason(why), true, usual.KeepFor.Microseconds()}})
			if err == nil && schedule != nil {
				err = releaseNext(ctx, tx, []candidate{*schedule}, &left)
			}
		case "running", "retry":
			var n int64
			n, err = tx.Exec(ctx, dismiss, sqlrun.Args{"ids": []int64{id}, "why": reason(why)})
			if err == nil && n == 0 || r.Next.IsZero() {
				err = fmt.Errorf("%w: %d is %s", ErrNotRunning, id, r.State)
			}
		default:
			err = fmt.Errorf("%w: %d is %s", ErrNotRunning, id, r.State)
		}
		return err
	})
	if err == nil {
		releaseSoon(ctx, db, left.turns)
	}
	return r, err
}

// runByID reads a run, or returns ErrNoRun.
func runByID(ctx context.Context, tx *sqlrun.Session, stmt *sqlrun.Stmt, id int64) (r Run, err error) {
	found, err := sqlrun.Select(ctx, tx, stmt, sqlrun.Args{"id": id}, scanRun)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %d", ErrNoRun, id)
	}
	if err != nil {
		return r, err
	}
	return found[0], nil
}

var (
	// ErrNoRun means that there is no run with that id.
	ErrNoRun = errors.New("scheduler: no run with this id")

	// ErrNotRunning means that a run has ended already.
	ErrNotRunning = errors.New("scheduler: the run has ended already")
)

// backfillLimit is the number of runs that one Backfill makes at most.
const backfillLimit = 10_000

// A Backfilling is what a Backfill did or would do.
type Backfilling struct {
	Slots []time.Time // slots that run
	Left  int         // slots left alone: their run is ok or has not ended
}

// Backfill runs a schedule's slots from one time to another, both included, except slots whose run
// is ok or has not ended. It runs the oldest slot first, and one at a time unless the overlap
// policy is allow. With dry it changes nothing and returns what it would do. It returns
// ErrNotFound, or ErrInvalid for more than 10000 slots.
func Backfill(ctx context.Context, db *dialect.DB, name string, from, to time.Time, dry bool) (b Backfilling, err error) {
	err = changing(ctx, db, func(ctx context.Context, tx *sqlrun.Session) error {
		b = Backfilling{}
		c, err := lock(ctx, tx, name)
		if err == nil {
			err = c.load()
		}
		if err != nil {
			return err
		}
		slots, err := c.between(from, to)
		if err != nil {
			return err
		}
		all, err := attempts(ctx, tx, []string{name}, from, to)
		if err != nil {
			return err
		}
		last := map[int64]attemptAt{}
		for _, a := range all {
			last[a.due.UnixMicro()] = a
		}
		var rows []sqlrun.Args
		for _, slot := range slots {
			a := last[slot.UnixMicro()]
			if a.state == "ok" || a.open {
				b.Left++
				continue
			}
			b.Slots = append(b.Slots, slot)
			r := run{schedule: name, due: slot, attempt: a.attempt + 1, cause: "backfill"}
			args := r.args(c.lane)
			args["after_us"] = 0
			rows = append(rows, args)
		}
		if dry {
			return nil
		}
		for at := 0; at < len(rows); at += batch {
			if _, err := tx.Exec(ctx, wait, sqlrun.Args{"rows": rows[at:min(len(rows), at+batch)]}); err != nil {
				return err
			}
		}
		return nil
	})
	return b, err
}

// between lists a schedule's slots from one time to another, both included.
func (c *candidate) between(from, to time.Time) (slots []time.Time, err error) {
	if to.Before(from) {
		return nil, fmt.Errorf("%w: the window ends before it begins", ErrInvalid)
	}
	if to.After(c.now) {
		return nil, fmt.Errorf("%w: the window ends in the future: those slots will come by themselves", ErrInvalid)
	}
	at := from.Add(-time.Microsecond)
	if every := c.plan.Spec().Every(); every > 0 && !c.Due.IsZero() {
		// An @every schedule counts from slot to slot: step back from the next one.
		back := c.Due.Sub(from) / every * every
		at = c.Due.Add(-back - every)
		for at.Add(every).Before(from) {
			at = at.Add(every)
		}
	}
	for {
		slot, ok := c.plan.Next(at)
		if !ok || slot.After(to) {
			return slots, nil
		}
		at = slot
		if c.over(slot) || slot.Before(c.Starts) {
			continue
		}
		if len(slots) == backfillLimit {
			return nil, fmt.Errorf("%w: the window has more than %d slots; take a smaller one", ErrInvalid, backfillLimit)
		}
		slots = append(slots, slot)
	}
}

// An attemptAt is an attempt at a slot.
type attemptAt struct {
	schedule string
	due      time.Time
	attempt  int
	state    string
	open     bool // it has not ended
}

// freeSlot returns the slot of a run that no spec makes due: the present moment, or the next one
// that is free. The schedule is locked, so nobody else can take it.
func freeSlot(ctx context.Context, tx *sqlrun.Session, c *candidate) (time.Time, error) {
	for due := c.now; ; due = due.Add(time.Millisecond) {
		taken, err := attempts(ctx, tx, []string{c.Name}, due, due)
		if err != nil || len(taken) == 0 {
			return due, err
		}
	}
}

// attempts lists the attempts of schedules at slots from one time to another, in slot order.
func attempts(ctx context.Context, tx *sqlrun.Session, names []string, from, to time.Time) ([]attemptAt, error) {
	args := sqlrun.Args{"names": names, "from": from.UnixMicro(), "to": to.UnixMicro()}
	return sqlrun.Select(ctx, tx, attemptsAt, args, func(rows *sql.Rows) (a attemptAt, err error) {
		var due int64
		err = rows.Scan(&a.schedule, &due, &a.attempt, &a.state, &a.open)
		a.due = instantOf(due)
		return a, err
	})
}
