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
		t := &takeover{s: s, tx: tx, b: b, gone: gone, postponed: map[time.Duration][]int64{}, stops: map[slot]int{}}
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
		runs, err = t.write(ctx)
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

	stops map[slot]int // of runs that begin: see stops.go

	resumes   []run
	postponed map[time.Duration][]int64
	after     []aftermath
}

// An aftermath is what follows from the end of a run, once that is written.
type aftermath struct {
	c *candidate
	r run
	o outcome
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
		t.after = append(t.after, aftermath{c, r.run, outcome{state: state, why: why}})
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
		t.postponed[after] = append(t.postponed[after], r.id)
		return
	}
	c.fence++
	r.fence = c.fence
	t.resumes = append(t.resumes, r.run)
	t.b.resumes = true
	t.b.what[c.Name] = c
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
	if open[0].id != r.id {
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
		t.stops[slotOf(&next)] = next.stops
	}
}

// write carries out the takeover.
func (t *takeover) write(ctx context.Context) ([]run, error) {
	if err := loseAll(ctx, t.tx, t.b.ends); err != nil {
		return nil, err
	}
	t.b.ends = nil // what follows from them is written next
	for after, ids := range t.postponed {
		slices.Sort(ids)
		if _, err := t.tx.Exec(ctx, postpone, sqlrun.Args{"ids": ids, "after": after.Microseconds()}); err != nil {
			return nil, err
		}
	}
	if err := t.resume(ctx); err != nil {
		return nil, err
	}
	for _, a := range t.after {
		if err := t.s.entail(ctx, t.tx, a.c, &a.r, a.o, &t.b.left); err != nil {
			return nil, err
		}
	}
	runs, err := t.s.write(ctx, t.tx, t.b)
	if err == nil {
		err = t.carryStops(ctx, runs)
	}
	return runs, err
}

// resume begins the runs that waited, and gives the schedules of all that begin their new fences.
func (t *takeover) resume(ctx context.Context) error {
	if len(t.resumes) > 0 {
		rows := make([]sqlrun.Args, len(t.resumes))
		for i, r := range t.resumes {
			rows[i] = sqlrun.Args{"id": r.id, "fence": r.fence}
		}
		n, err := t.tx.Exec(ctx, resume, sqlrun.Args{
			"rows": rows, "owner": t.s.owner, "claim": t.b.token, "lease": t.s.opt.Lease.Microseconds(),
		})
		if err == nil && n != int64(len(rows)) {
			err = fmt.Errorf("%d of %d locked runs that waited have begun", n, len(rows))
		}
		if err != nil {
			return err
		}
	}
	var rows []sqlrun.Args
	for _, c := range t.b.what {
		rows = append(rows, sqlrun.Args{"id": c.ID, "fence": c.fence})
	}
	if len(rows) == 0 {
		return nil
	}
	_, err := t.tx.Exec(ctx, count, sqlrun.Args{"rows": rows})
	return err
}
