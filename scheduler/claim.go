package scheduler

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// A claimed run is this daemon's to execute while its lease lasts.
type run struct {
	id       int64
	schedule string
	due      time.Time
	attempt  int
	claim    string // token of the claim's transaction
	command  work

	handedBack bool // by a daemon that could not go on with it; not one that died

	// deadline is when the lease ends, by this host's clock: counted from
	// before the claim was sent, so that it is never later than the database's.
	deadline instant.Instant
}

// A work is what a schedule has to be run.
type work struct {
	command, stdin string
	env            map[string]string
}

// A candidate is a locked schedule.
type candidate struct {
	Schedule
	now time.Time // the database's, when the schedule was locked
	bad error     // why it cannot be run
}

func scanCandidate(rows *sql.Rows) (c candidate, err error) {
	var env string
	var due, now int64
	err = rows.Scan(&c.ID, &c.Name, &c.Spec, &c.Zone, &c.DST, &c.Command, &c.Stdin, &env, &due, &now)
	if err != nil {
		return c, err
	}
	c.Due, c.now = instantOf(due), instantOf(now)
	if c.Env, c.bad = parseEnv(env); c.bad == nil {
		c.bad = c.check()
	}
	if due == 0 && c.bad == nil {
		c.bad = errors.New("due_at and next_exec are not instants")
	}
	return c, nil
}

func (c *candidate) work() work { return work{c.Command, c.Stdin, c.Env} }

// A slots says what a due schedule does with the slots that have come.
type slots struct {
	runs      time.Time // the newest slot that has come: it runs
	from, to  time.Time // the slots before it, if any: they do not
	missed    int64
	next      time.Time
	exhausted bool // there is no further slot
}

// missedLimit is how far missed slots are counted. A stretch of more says so
// many: counting the minutes of years would hold up the claim. The stretch's
// ends are right all the same.
const missedLimit = 10_000

// sort decides about the slots from c.Due to c.now: the newest runs, and the
// others were missed.
func (c *candidate) sort() (s slots, err error) {
	plan, err := c.Slots()
	if err != nil {
		return s, err
	}
	s.runs = c.Due
	if latest, ok := plan.Latest(c.Due, c.now); ok {
		s.runs, s.from = latest, c.Due
		s.to, s.missed = stretch(plan, c.Due, latest.Add(-time.Microsecond))
	}
	next, ok := plan.Next(s.runs)
	s.next, s.exhausted = next, !ok
	return s, nil
}

// stretch returns the last slot of those from a slot on, until a time, and how
// many they are.
func stretch(plan *cronspec.Schedule, from, until time.Time) (to time.Time, n int64) {
	to = from
	if last, ok := plan.Latest(from, until); ok {
		to = last
	}
	limit := missedLimit - 1
	if plan.Spec().Every() > 0 {
		limit = math.MaxInt - 1 // a division
	}
	return to, 1 + int64(plan.Count(from, to, limit))
}

// claim takes up to limit due schedules: each moves to its next slot, and the
// slot that has come becomes a run of this daemon, all in one transaction. It
// returns the runs to start, and how many schedules it has moved.
func (s *Scheduler) claim(ctx context.Context, limit int) (runs []run, moved int, err error) {
	token := rand.Text()
	err = s.db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) error {
		runs, moved = nil, 0
		locked, err := dialect.Select(ctx, tx, due, dialect.Args{"limit": limit}, scanCandidate)
		if err != nil || len(locked) == 0 {
			return err
		}
		moved = len(locked)
		runs, err = s.claimLocked(ctx, tx, locked, token)
		return err
	})
	if err != nil {
		s.forget(ctx, token)
		return nil, 0, err
	}
	return runs, moved, nil
}

func (s *Scheduler) claimLocked(ctx context.Context, tx *dialect.Session, locked []candidate, token string) ([]run, error) {
	busy, err := busySchedules(ctx, tx, locked)
	if err != nil {
		return nil, err
	}
	var moves, begins []dialect.Args
	works := map[string]work{}
	for _, c := range locked {
		sorted, err := c.sort()
		if c.bad != nil || err != nil {
			if err := s.disable(ctx, tx, c, firstError(c.bad, err)); err != nil {
				return nil, err
			}
			continue
		}
		state, why := "missed", "no daemon was there, and free, to run it"
		if busy[c.Name] {
			state, why = "skipped", "the run before was still under way"
		}
		if sorted.missed > 0 {
			if err := passOver(ctx, tx, c.Name, state, why, sorted.from, sorted.to, sorted.missed); err != nil {
				return nil, err
			}
		}
		if busy[c.Name] {
			if err := passOver(ctx, tx, c.Name, state, why, sorted.runs, sorted.runs, 1); err != nil {
				return nil, err
			}
		} else {
			begins = append(begins, dialect.Args{"schedule": c.Name, "due": sorted.runs.UnixMicro(), "attempt": 1})
			works[c.Name] = c.work()
		}
		if sorted.exhausted {
			if err := s.disable(ctx, tx, c, fmt.Errorf("%q has no slot after %s", c.Spec, sorted.runs.Format(time.DateTime))); err != nil {
				return nil, err
			}
			continue
		}
		moves = append(moves, dialect.Args{"id": c.ID, "due": sorted.next.UnixMicro()})
	}
	if err := moveAll(ctx, tx, moves); err != nil {
		return nil, err
	}
	return s.begin(ctx, tx, begins, works, token)
}

// reason is an error's text as it can be stored, whatever somebody has written
// into a row that the error quotes.
func reason(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > 4000 {
		text = strings.ToValidUTF8(text[:4000], "") + " …"
	}
	return text
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// busySchedules tells which of the schedules have a run under way.
func busySchedules(ctx context.Context, tx *dialect.Session, locked []candidate) (map[string]bool, error) {
	names := make([]string, len(locked))
	for i := range locked {
		names[i] = locked[i].Name
	}
	under, err := dialect.Select(ctx, tx, active, dialect.Args{"names": names}, func(rows *sql.Rows) (name string, err error) {
		return name, rows.Scan(&name)
	})
	busy := map[string]bool{}
	for _, name := range under {
		busy[name] = true
	}
	return busy, err
}

// passOver records slots that do not run: in the row of the slots just before
// them, if that tells the same.
func passOver(ctx context.Context, tx *dialect.Session, name, state, why string, from, to time.Time, n int64) error {
	args := dialect.Args{
		"schedule": name, "state": state, "error": why,
		"from": from.UnixMicro(), "to": to.UnixMicro(), "slots": n,
	}
	type row struct {
		id           int64
		state, error string
	}
	before, err := dialect.Select(ctx, tx, newest, args, func(rows *sql.Rows) (r row, err error) {
		return r, rows.Scan(&r.id, &r.state, &r.error)
	})
	if err != nil {
		return err
	}
	if len(before) == 1 && before[0].state == state && before[0].error == why {
		args["id"] = before[0].id
		if n, err := tx.Exec(ctx, lengthen, args); err != nil || n == 1 {
			return err
		}
	}
	_, err = tx.Exec(ctx, pass, args)
	return err
}

// moveAll gives locked schedules their next slot. The rows are locked, so each
// of them is changed, or something is wrong and the transaction must not be.
func moveAll(ctx context.Context, tx *dialect.Session, moves []dialect.Args) error {
	if len(moves) == 0 {
		return nil
	}
	n, err := tx.Exec(ctx, move, dialect.Args{"rows": moves})
	if err == nil && n != int64(len(moves)) {
		err = fmt.Errorf("%d of %d locked schedules were moved", n, len(moves))
	}
	return err
}

func (s *Scheduler) disable(ctx context.Context, tx *dialect.Session, c candidate, why error) error {
	s.opt.Logger.Warn("schedule failed", "schedule", c.Name, "reason", why)
	_, err := tx.Exec(ctx, disable, dialect.Args{"id": c.ID, "reason": reason(why)})
	return err
}

// begin writes runs and returns those that are this claim's: all, but for
// slots that have a run already.
func (s *Scheduler) begin(ctx context.Context, tx *dialect.Session, begins []dialect.Args, works map[string]work, token string) ([]run, error) {
	if len(begins) == 0 {
		return nil, nil
	}
	deadline := s.deadline()
	args := dialect.Args{"rows": begins, "owner": s.owner, "claim": token, "lease": s.opt.Lease.Microseconds()}
	if _, err := tx.Exec(ctx, begin, args); err != nil {
		return nil, err
	}
	return dialect.Select(ctx, tx, begun, args, func(rows *sql.Rows) (r run, err error) {
		var due int64
		err = rows.Scan(&r.id, &r.schedule, &due, &r.attempt)
		r.due, r.claim, r.deadline = instantOf(due), token, deadline
		r.command = works[r.schedule]
		return r, err
	})
}

// deadline is the end of a lease that is asked for now, less a margin in which
// the command is gone and the loss noticed.
func (s *Scheduler) deadline() instant.Instant {
	return instant.Now().Add(s.opt.Lease - s.opt.Lease/10)
}

// forget gives back what a claim may have taken whose commit's answer was
// lost. If this fails too, the lease ends it.
func (s *Scheduler) forget(ctx context.Context, token string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = s.db.Exec(ctx, forget, dialect.Args{"claim": token})
}

// plan gives rows that were inserted by hand their first slot. It returns how
// many it has dealt with.
func (s *Scheduler) plan(ctx context.Context) (planned int, err error) {
	err = s.db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) error {
		locked, err := dialect.Select(ctx, tx, unplanned, dialect.Args{"limit": batch}, scanCandidate)
		if err != nil {
			return err
		}
		planned = len(locked)
		var moves []dialect.Args
		for _, c := range locked {
			args, err := c.args(c.now)
			if c.bad != nil || err != nil {
				if err := s.disable(ctx, tx, c, firstError(c.bad, err)); err != nil {
					return err
				}
				continue
			}
			moves = append(moves, dialect.Args{"id": c.ID, "due": args["due"]})
		}
		return moveAll(ctx, tx, moves)
	})
	return planned, err
}
