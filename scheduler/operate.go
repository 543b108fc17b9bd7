package scheduler

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/dialect"
)

// Pause keeps a schedule from running until it is resumed. Runs under way go on;
// those that wait are cancelled when their turn comes. It returns ErrNotFound,
// and does nothing to one that is not active.
func Pause(ctx context.Context, db *dialect.DB, name, why string) error {
	return changing(ctx, db, func(ctx context.Context, tx *dialect.Session) error {
		if _, err := lock(ctx, tx, name); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, pause, dialect.Args{"name": name, "reason": reason(why)})
		return err
	})
}

// Resume lets a schedule run again that was paused, has failed or has ended,
// from the next slot on: slots that have come meanwhile are recorded as skipped.
// A daemon plans it, or finds again what is wrong with it. Resume returns
// ErrNotFound, and does nothing to one that is active.
func Resume(ctx context.Context, db *dialect.DB, name string) error {
	return changing(ctx, db, func(ctx context.Context, tx *dialect.Session) error {
		if _, err := lock(ctx, tx, name); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, unpause, dialect.Args{"name": name})
		return err
	})
}

// Start asks the daemons to run a schedule now, also one that is paused. The
// slot of the run is the present moment. If a run is under way, it waits for the
// end of that one or, under the policy forbid, Start returns ErrBusy. It returns
// the run, which a daemon will begin soon, or ErrNotFound.
func Start(ctx context.Context, db *dialect.DB, name string) (started Run, err error) {
	err = changing(ctx, db, func(ctx context.Context, tx *dialect.Session) error {
		c, err := lock(ctx, tx, name)
		if err != nil {
			return err
		}
		open, err := openRuns(ctx, tx, []candidate{c})
		if err != nil {
			return err
		}
		if len(open[name]) > 0 && c.overlap() == "forbid" {
			return fmt.Errorf("%w: %s", ErrBusy, name)
		}
		r := run{schedule: name, due: c.now, attempt: 1, cause: "hand"}
		// Another one may have been started in the same moment. The schedule is
		// locked, so that nobody else takes the next.
		for {
			taken, err := attempts(ctx, tx, name, r.due, r.due)
			if err != nil {
				return err
			}
			if len(taken) == 0 {
				break
			}
			r.due = r.due.Add(time.Millisecond)
		}
		args := r.args(c.lane)
		args["after_us"] = 0
		if _, err := tx.Exec(ctx, wait, dialect.Args{"rows": []dialect.Args{args}}); err != nil {
			return err
		}
		found, err := dialect.Select(ctx, tx, runOf, dialect.Args{"schedule": name, "due": r.due.UnixMicro()}, scanRun)
		if err == nil && len(found) == 1 {
			started = found[0]
		}
		return err
	})
	return started, err
}

// Cancel ends a run: one that waits at once, and one that runs by asking its
// daemon, which looks once per poll. It returns the run as it was, ErrNotRunning
// if it has ended already, or ErrNoRun.
func Cancel(ctx context.Context, db *dialect.DB, id int64, why string) (r Run, err error) {
	if why == "" {
		why = "cancelled by hand"
	}
	if len(why) > 200 {
		return r, fmt.Errorf("%w: the reason is longer than 200 bytes", ErrInvalid)
	}
	err = changing(ctx, db, func(ctx context.Context, tx *dialect.Session) error {
		found, err := dialect.Select(ctx, tx, getRun, dialect.Args{"id": id}, scanRun)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%w: %d", ErrNoRun, id)
		}
		if err != nil {
			return err
		}
		r = found[0]
		switch r.State {
		case "waiting":
			_, err = tx.Exec(ctx, lose, dialect.Args{
				"ids": []int64{id}, "state": "cancelled", "error": reason(why), "more": 1, "keep": defaultKeepFor.Microseconds(),
			})
		case "running", "retry":
			var n int64
			n, err = tx.Exec(ctx, dismiss, dialect.Args{"ids": []int64{id}, "why": reason(why)})
			if err == nil && n == 0 || r.Next.IsZero() {
				err = fmt.Errorf("%w: %d is %s", ErrNotRunning, id, r.State)
			}
		default:
			err = fmt.Errorf("%w: %d is %s", ErrNotRunning, id, r.State)
		}
		return err
	})
	return r, err
}

var (
	// ErrNoRun means that no run has that id.
	ErrNoRun = errors.New("no run with this id")

	// ErrNotRunning means that a run has ended already.
	ErrNotRunning = errors.New("the run has ended already")
)

// backfillLimit is how many runs one Backfill makes at the most.
const backfillLimit = 10_000

// A Backfilling is what a Backfill did, or would do.
type Backfilling struct {
	Slots []time.Time // that are run
	Left  int         // that have a run which is ok, or has not ended
}

// Backfill runs the slots of a schedule from one time to another, both included,
// as far as they have no run that is ok or has not ended: oldest first, and one
// after another unless the overlap policy is allow. With dry it only tells what
// it would do. It returns ErrNotFound, or ErrInvalid for more than 10000 slots.
func Backfill(ctx context.Context, db *dialect.DB, name string, from, to time.Time, dry bool) (b Backfilling, err error) {
	err = changing(ctx, db, func(ctx context.Context, tx *dialect.Session) error {
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
		all, err := attempts(ctx, tx, name, from, to)
		if err != nil {
			return err
		}
		last := map[int64]attemptAt{}
		for _, a := range all {
			last[a.due.UnixMicro()] = a
		}
		var rows []dialect.Args
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
			if _, err := tx.Exec(ctx, wait, dialect.Args{"rows": rows[at:min(len(rows), at+batch)]}); err != nil {
				return err
			}
		}
		return nil
	})
	return b, err
}

// between lists a schedule's slots from one time to another.
func (c *candidate) between(from, to time.Time) (slots []time.Time, err error) {
	if to.Before(from) {
		return nil, fmt.Errorf("%w: the window ends before it begins", ErrInvalid)
	}
	if to.After(c.now) {
		return nil, fmt.Errorf("%w: the window ends in the future: those slots will come by themselves", ErrInvalid)
	}
	at := from.Add(-time.Microsecond)
	if every := c.plan.Spec().Every(); every > 0 && !c.Due.IsZero() {
		// Counted from slot to slot: back from the next one.
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
	due     time.Time
	attempt int
	state   string
	open    bool // it has not ended
}

// attempts lists the attempts at slots from one time to another, in order.
func attempts(ctx context.Context, tx *dialect.Session, name string, from, to time.Time) ([]attemptAt, error) {
	args := dialect.Args{"schedule": name, "from": from.UnixMicro(), "to": to.UnixMicro()}
	return dialect.Select(ctx, tx, attemptsAt, args, func(rows *sql.Rows) (a attemptAt, err error) {
		var due int64
		err = rows.Scan(&due, &a.attempt, &a.state, &a.open)
		a.due = instantOf(due)
		return a, err
	})
}
