package scheduler

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// claims collects what one transaction does with the schedules that it has locked and with their runs, so that it can
// be written in few statements: see write. That holds for what does not run, too: with a statement for each missed
// due time, a daemon that was late became later, and never kept up again. For forty schedules with a missed due
// time each, a claim takes at most five round trips more than one without (TestStatementsOfWhatDoesNotRun); it took 195.
type claims struct {
	token string
	what  map[string]*candidate // by name: every schedule of which a run begins
	crowd map[string]bool

	ends      loseRows                  // runs that nobody executes, and that end
	postponed map[time.Duration][]int64 // runs that wait on, by how long
	resumes   []run                     // runs that have waited and begin
	fences    []sqlrun.Args             // of schedules that do not move, and of which runs begin
	ended     []endedRun                // what follows from the ends
	asked     []int64                   // runs whose daemons are asked to end them
	passes    []passage
	moves     moveRows
	waits     []sqlrun.Args
	begins    beginRows
	stops     map[slot]int // of runs that begin: see stops.go

	left leftovers

	made  []enqueuedRun // runs that have enqueued a job or failed to
	wakes []func()      // wake the workers of those jobs after the commit
}

func newClaims() *claims {
	return &claims{
		token: rand.Text(), what: map[string]*candidate{}, crowd: map[string]bool{},
		postponed: map[time.Duration][]int64{}, stops: map[slot]int{},
	}
}

// begin starts a run of a locked schedule on this daemon.
func (b *claims) begin(c *candidate, r run) {
	c.fence++
	r.fence = c.fence
	b.begins = append(b.begins, beginRow{r, c.lane})
	b.what[c.Name] = c
}

// resume begins a run of a locked schedule that has waited.
func (b *claims) resume(c *candidate, r run) {
	c.fence++
	r.fence = c.fence
	b.resumes = append(b.resumes, r)
	b.what[c.Name] = c
}

// countFences gives the schedules of all runs that begin their new fences, where they do not move.
func (b *claims) countFences() {
	for _, c := range b.what {
		b.fences = append(b.fences, sqlrun.Args{"id": c.ID, "fence": c.fence})
	}
}

// wait stores a run that waits for its turn.
func (b *claims) wait(c *candidate, r run, after time.Duration) {
	args := r.args(c.lane)
	args["after_us"] = after.Microseconds()
	b.waits = append(b.waits, args)
	b.crowd[c.Name] = true
}

// end ends a run that nobody executes.
func (b *claims) end(id int64, state, why string, more bool, keep int64) {
	b.ends = append(b.ends, loseRow{id, state, why, more, keep})
}

// pass records slots of a locked schedule that do not run.
func (b *claims) pass(c *candidate, state string, m slotRange) {
	b.passes = append(b.passes, passage{c, state, m})
}

// An endedRun is a run that ends, and how: what follows from it is written after it.
type endedRun struct {
	c *candidate
	r run
	o outcome
}

// A slot identifies a slot of a schedule.
type slot struct {
	schedule string
	due      int64
}

func slotOf(r *run) slot { return slot{r.schedule, r.due.UnixMicro()} }

// replace ends the open runs of a schedule: at once those that nobody executes, because they wait or
// were handed back, and the others by asking their daemons. It returns the number of the others. The
// last of them releases the slot that waits for it.
func (b *claims) replace(c *candidate, open []openRun) (executed int) {
	for _, o := range open {
		if o.state == "running" {
			b.asked = append(b.asked, o.id)
			executed++
			continue
		}
		b.end(o.id, "cancelled", WhyReplaced, true, keepOf(&c.Schedule))
	}
	return executed
}

// write carries out the claims and returns the runs that have begun. It leaves out slots that
// have a run already, and runs that enqueued a job, since those have ended.
func (s *Scheduler) write(ctx context.Context, tx *sqlrun.Session, b *claims) ([]run, error) {
	if err := loseAll(ctx, tx, b.ends); err != nil {
		return nil, err
	}
	for after, ids := range b.postponed {
		slices.Sort(ids)
		if _, err := tx.Exec(ctx, postpone, sqlrun.Args{"ids": ids, "after": after.Microseconds()}); err != nil {
			return nil, err
		}
	}
	if err := s.resumeAll(ctx, tx, b); err != nil {
		return nil, err
	}
	var then sequel
	for _, e := range b.ended {
		if err := s.entail(ctx, tx, e.c, &e.r, e.o, &then, &b.left); err != nil {
			return nil, err
		}
	}
	if err := then.write(ctx, tx, &b.left); err != nil {
		return nil, err
	}
	if len(b.asked) > 0 {
		if _, err := tx.Exec(ctx, dismiss, sqlrun.Args{"ids": b.asked, "why": WhyReplaced}); err != nil {
			return nil, err
		}
	}
	if err := passAll(ctx, tx, b.passes, &b.left); err != nil {
		return nil, err
	}
	if err := moveAll(ctx, tx, move, b.moves, len(b.moves)); err != nil {
		return nil, err
	}
	if len(b.waits) > 0 {
		if _, err := tx.Exec(ctx, wait, sqlrun.Args{"rows": b.waits}); err != nil {
			return nil, err
		}
	}
	runs, err := s.beginAll(ctx, tx, b)
	if err != nil {
		return nil, err
	}
	if runs, err = s.enqueueAll(ctx, tx, b, runs); err != nil {
		return nil, err
	}
	return runs, b.carryStops(ctx, tx, runs)
}

// resumeAll begins the runs that have waited, and gives schedules their new fences.
func (s *Scheduler) resumeAll(ctx context.Context, tx *sqlrun.Session, b *claims) error {
	if len(b.resumes) > 0 {
		rows := make([]sqlrun.Args, len(b.resumes))
		for i, r := range b.resumes {
			rows[i] = sqlrun.Args{"id": r.id, "fence": r.fence}
		}
		n, err := tx.Exec(ctx, resume, sqlrun.Args{
			"rows": rows, "owner": s.owner, "claim": b.token, "lease": s.opt.Lease.Microseconds(),
		})
		if err == nil && n != int64(len(rows)) {
			err = fmt.Errorf("%d of %d locked runs that waited have begun", n, len(rows))
		}
		if err != nil {
			return err
		}
	}
	if len(b.fences) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, count, sqlrun.Args{"rows": b.fences})
	return err
}

// beginAll inserts the runs that begin, and returns all that have begun.
func (s *Scheduler) beginAll(ctx context.Context, tx *sqlrun.Session, b *claims) (all []run, err error) {
	if len(b.what) == 0 {
		return nil, nil
	}
	deadline := s.deadline()
	args := sqlrun.Args{
		"rows": b.begins, "owner": s.owner, "claim": b.token, "lease": s.opt.Lease.Microseconds(), "names": b.names(),
	}
	scan := func(rows *sql.Rows) (run, error) { return b.scanRun(rows, deadline) }
	tells := tx.Dialect.Returning != nil // the statement returns the runs it has written
	switch {
	case len(b.begins) > 0 && tells:
		all, err = sqlrun.Select(ctx, tx, begin, args, scan)
	case len(b.begins) > 0:
		_, err = tx.Exec(ctx, begin, args)
	}
	if err == nil && (len(b.resumes) > 0 || !tells) {
		all, err = sqlrun.Select(ctx, tx, begun, args, scan)
	}
	slices.SortFunc(all, func(a, b run) int { return cmp.Compare(a.id, b.id) })
	return all, err
}

// names lists the schedules of which a run begins.
func (b *claims) names() []string { return slices.Collect(maps.Keys(b.what)) }

// scanRun reads begunColumns of a run that these claims have begun.
func (b *claims) scanRun(rows *sql.Rows, deadline instant.Instant) (r run, err error) {
	var due int64
	err = rows.Scan(&r.id, &r.schedule, &due, &r.attempt, &r.cause, &r.failures, &r.crashes, &r.fence, &r.pinned)
	if err != nil { // as when the context ends between two rows
		return r, err
	}
	r.pinned = pin(r.pinned)
	r.due, r.claim, r.deadline = instantOf(due), b.token, deadline
	r.what, r.crowded = &b.what[r.schedule].Schedule, b.crowd[r.schedule]
	return r, nil
}

// carryStops hands the counts of runs that were handed back to the attempts that go on with them.
func (b *claims) carryStops(ctx context.Context, tx *sqlrun.Session, runs []run) error {
	ids := map[int][]int64{}
	for i := range runs {
		r := &runs[i]
		if r.stops = b.stops[slotOf(r)]; r.stops > 0 {
			ids[r.stops] = append(ids[r.stops], r.id)
		}
	}
	for n, ids := range ids {
		slices.Sort(ids)
		if _, err := tx.Exec(ctx, carryStops, sqlrun.Args{"ids": ids, "stops": n, "claim": b.token}); err != nil {
			return err
		}
	}
	return nil
}

// moveAll gives locked schedules their next slot. The rows are locked, so a row that does not
// change is a bug, and the transaction must not commit.
func moveAll(ctx context.Context, tx *sqlrun.Session, by *sqlrun.Stmt, moves any, count int) error {
	if count == 0 {
		return nil
	}
	n, err := tx.Exec(ctx, by, sqlrun.Args{"rows": moves})
	if err == nil && n != int64(count) {
		err = fmt.Errorf("%d of %d locked schedules were moved", n, count)
	}
	return err
}

// loseAll ends runs that nobody will finish.
func loseAll(ctx context.Context, tx *sqlrun.Session, rows loseRows) error {
	if len(rows) == 0 {
		return nil
	}
	slices.SortFunc(rows, func(a, b loseRow) int { return cmp.Compare(a.id, b.id) })
	_, err := tx.Exec(ctx, lose, sqlrun.Args{"rows": rows})
	return err
}

// keepOf is how long a schedule's runs stay in the history, in µs; -1 means forever.
func keepOf(s *Schedule) int64 {
	if s.KeepFor < 0 {
		return -1
	}
	return cmp.Or(s.KeepFor, usual.KeepFor).Microseconds()
}

// forget hands back what a claim may have taken if the outcome of its commit is unknown. If
// this fails too, the leases expire.
func (s *Scheduler) forget(ctx context.Context, b *claims) {
	if b == nil || len(b.what) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = s.db.Exec(ctx, forget, sqlrun.Args{"claim": b.token, "names": b.names()})
}
