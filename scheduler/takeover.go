package scheduler

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// An expiredRun is a run whose lease has expired, or a waiting one whose time has come.
type expiredRun struct {
	run
	state  string
	cancel string // why its cancellation was requested; "": it was not
}

func scanExpired(rows *sql.Rows) (r expiredRun, err error) {
	var due int64
	err = rows.Scan(&r.id, &r.schedule, &due, &r.attempt, &r.cause, &r.state, &r.failures, &r.crashes, &r.stops, &r.cancel)
	r.due = instantOf(due)
	return r, err
}

// takeOver handles up to limit runs of a lane whose time has come. It begins those that waited, ends
// those whose lease has expired, and begins their next attempt. It returns the runs to start and the
// number of runs handled.
func (s *Scheduler) takeOver(ctx context.Context, lane string, limit int) (runs []run, done int, err error) {
	return s.takeOverFrom(ctx, lane, limit, false)
}

// takeOverFrom is takeOver. For a host that is gone it ends all runs, and begins none.
func (s *Scheduler) takeOverFrom(ctx context.Context, lane string, limit int, gone bool) (runs []run, done int, err error) {
	var alone []expiredRun
	b, err := s.claimTx(ctx, lane, func(ctx context.Context, tx *sqlrun.Session, b *claims) error {
		runs, done, alone = nil, 0, nil
		args := sqlrun.Args{"lane": lane, "limit": limit, "since": s.floor()}
		if gone { // their times may be long past
			args["since"] = int64(0)
		}
		found, err := sqlrun.Select(ctx, tx, expired, args, scanExpired)
		if err != nil || len(found) == 0 {
			return err
		}
		alone = found
		t := &takeover{s: s, tx: tx, b: b, gone: gone}
		if err := t.lock(ctx, found); err != nil {
			return err
		}
		for _, r := range found {
			if t.held[r.schedule] {
				continue // another transaction has locked the schedule: try next time
			}
			done++
			r.pinned = pin(lane)
			t.one(r)
		}
		b.countFences()
		runs, err = s.write(ctx, tx, b)
		return err
	})
	if err != nil && len(alone) == 1 {
		err = &loneError{err, alone[0].id, alone[0].schedule, putOffRun, s.turnAfter()}
	}
	if err != nil {
		return nil, 0, err
	}
	s.tell(b)
	return runs, done, nil
}

// A takeover is one transaction of takeOver.
type takeover struct {
	s  *Scheduler
	tx *sqlrun.Session
	b  *claims

	gone bool // the host of the runs was restarted, or has no daemon left

	schedules map[string]*candidate // locked
	held      map[string]bool       // locked by another transaction
	open      map[string][]openRun
}

// lock locks the schedules of runs, skipping those that are locked, and reads their other open
// runs.
func (t *takeover) lock(ctx context.Context, found []expiredRun) error {
	names := make([]string, 0, len(found))
	for _, r := range found {
		if !slices.Contains(names, r.schedule) {
			names = append(names, r.schedule)
		}
	}
	slices.Sort(names)
	locked, err := selectLocked(ctx, t.tx, lockNamed, sqlrun.Args{"names": names})
	if err != nil {
		return err
	}
	t.schedules, t.held = map[string]*candidate{}, map[string]bool{}
	for i := range locked {
		_ = locked[i].load() // ignored here: begin reports what is wrong
		t.schedules[locked[i].Name] = &locked[i]
	}
	if len(locked) < len(names) {
		there, err := sqlrun.Select(ctx, t.tx, existing, sqlrun.Args{"names": names}, func(rows *sql.Rows) (name string, err error) {
			return name, rows.Scan(&name)
		})
		if err != nil {
			return err
		}
		for _, name := range there {
			t.held[name] = t.schedules[name] == nil
		}
	}
	t.open, err = openRuns(ctx, t.tx, locked)
	return err
}

// end records that a run ends.
func (t *takeover) end(c *candidate, r expiredRun, state, why string) {
	keep := usual.KeepFor.Microseconds()
	if c != nil {
		keep = keepOf(&c.Schedule)
		t.open[c.Name] = slices.DeleteFunc(t.open[c.Name], func(o openRun) bool { return o.id == r.id })
		t.b.ended = append(t.b.ended, endedRun{c, r.run, outcome{state: state, why: why}})
	}
	// What the daemon has recorded about a run that goes on elsewhere stays as it is.
	t.b.end(r.id, state, why, state != "lost", keep)
}

// one handles one run.
func (t *takeover) one(r expiredRun) {
	c := t.schedules[r.schedule]
	switch {
	case c == nil && r.state == "waiting":
		t.end(nil, r, "cancelled", "the schedule was removed before it began")
	case c == nil:
		t.end(nil, r, "lost", "its lease ran out; the schedule was removed, so it is not tried again")
	case r.cancel != "":
		t.end(c, r, "cancelled", r.cancel)
	case c.bad != nil:
		t.end(c, r, "failed", "the schedule cannot be run: "+reason(c.bad.Error()))
	case c.stopped() && !r.asked() && r.state == "running":
		t.end(c, r, "lost", "its lease ran out; the schedule is "+c.State+", so it is not tried again")
	case c.stopped() && !r.asked():
		t.end(c, r, "cancelled", "the schedule is "+c.State)
	case t.gone && r.state == "running":
		t.end(c, r, "failed", "its host has started anew, or no daemon of it is left")
	case t.gone:
		t.end(c, r, "cancelled", "its host has started anew, or no daemon of it is left")
	case r.state == "waiting":
		t.begin(c, r)
	default:
		t.again(c, r)
	}
}

// begin begins a run that waited, if it is its turn.
func (t *takeover) begin(c *candidate, r expiredRun) {
	if after := t.notYet(c, r); after > 0 {
		t.b.postponed[after] = append(t.b.postponed[after], r.id)
		return
	}
	t.b.resume(c, r.run)
	t.b.crowd[c.Name] = len(t.open[c.Name]) > 1
	t.mark(c.Name, r.id, "running")
}

// notYet returns after what delay to check a run again that must wait on, because another run of the
// schedule is running or waits before it; 0 means that it can begin.
func (t *takeover) notYet(c *candidate, r expiredRun) time.Duration {
	if c.overlap() == "allow" {
		return 0
	}
	open := t.open[c.Name]
	if slices.ContainsFunc(open, func(o openRun) bool { return o.state != "waiting" }) {
		return t.s.turnAfter()
	}
	if len(open) == 0 || open[0].id != r.id { // the lists are read by two statements, and one of them may see less
		return t.s.opt.Lease
	}
	return 0
}

// mark records the new state of an open run within this transaction.
func (t *takeover) mark(name string, id int64, state string) {
	for i := range t.open[name] {
		if t.open[name][i].id == id {
			t.open[name][i].state = state
		}
	}
}

// again ends a run that was handed back or lost, and begins the next attempt. It counts lost
// attempts, so that a command that takes its daemon or host down does not take all of them down. An
// attempt of a daemon that was stopped, for an upgrade say, does not count. If the schedule is
// Unrepeatable, only a run that was handed back before it had begun begins here.
func (t *takeover) again(c *candidate, r expiredRun) {
	if r.state == "running" && c.Unrepeatable {
		t.end(c, r, "lost", "its lease ran out: the daemon died or was cut off; "+notRepeated)
		return
	}
	next := r.run
	next.attempt++
	state, why := "retry", "handed back"
	if r.state == "running" {
		next.crashes++
		next.stops = 0
		state, why = "lost", "its lease ran out: the daemon died or was cut off"
	}
	if next.crashes >= t.s.opt.MaxCrashes {
		t.end(c, r, "failed", fmt.Sprintf("its lease ran out, as that of %d daemons did before: no more attempts", next.crashes-1))
		return
	}
	crowded := len(t.open[c.Name]) > 1
	t.b.end(r.id, state, why, false, keepOf(&c.Schedule))
	t.b.begin(c, next)
	t.b.crowd[c.Name] = crowded
	if next.stops > 0 {
		t.b.stops[slotOf(&next)] = next.stops
	}
}
