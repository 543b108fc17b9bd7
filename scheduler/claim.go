package scheduler

import (
	"cmp"
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// A run is a claimed run, which this daemon executes while its lease lasts.
type run struct {
	id       int64
	schedule string
	due      time.Time
	attempt  int
	cause    string // slot, hand, backfill, chain or boot
	pinned   string // the lane of one host, if only that may run it: see bootLane
	failures int    // failed attempts at the slot before this one
	crashes  int    // lost attempts at the slot before this one
	stops    int    // daemons in a row that were stopped soon after they had begun it: see stops.go
	fence    int64
	claim    string // token of the claim's transaction
	what     *Schedule

	trace Trace // set when the run begins

	crowded bool // other runs of the schedule were waiting when it began

	// deadline is when the lease ends, by this host's clock: counted from
	// before the claim was sent, so that it is never later than the database's.
	deadline instant.Instant
}

// asked reports whether the run was requested explicitly. Such a run is executed even if the
// schedule is paused or has ended.
func (r *run) asked() bool { return r.cause == "hand" || r.cause == "backfill" }

// args returns the columns of a run that has not begun, for a schedule's lane.
func (r *run) args(lane string) sqlrun.Args {
	return sqlrun.Args{
		"name": r.schedule, "path": cmp.Or(r.pinned, lane), "due": r.due.UnixMicro(), "nth": r.attempt,
		"why": r.cause, "failed": r.failures, "crashed": r.crashes, "number": r.fence,
	}
}

// A candidate is a locked schedule.
type candidate struct {
	Schedule
	nextExec time.Time
	fence    int64
	lane     string
	now      time.Time // the database's, when the schedule was locked
	plan     *cronspec.Schedule
	bad      error // why the schedule cannot run
	sound    bool  // its settings have been found to be valid
}

// stopped reports whether the schedule was paused or gave up after failures. A schedule that
// has ended still finishes its last slots.
func (c *candidate) stopped() bool { return c.State == "paused" || c.State == "failed" }

// overlap returns the policy in effect. Runs that enqueue a job end in the transaction that
// begins them, so they never overlap; and hosts that start at the same time all run @reboot.
func (c *candidate) overlap() string {
	if c.Kind == "job" || c.atBoot() {
		return "allow"
	}
	return c.Overlap
}

// load validates the row, which a person may have written, and parses its plan.
func (c *candidate) load() error {
	if c.bad != nil {
		return c.bad
	}
	if c.sound {
		c.bad = c.refusal(c.nameProblems())
	} else {
		c.bad = c.check()
	}
	if c.bad == nil {
		c.plan, c.bad = plans.get(&c.Schedule)
	}
	return c.bad
}

// An openRun is a run that has not ended.
type openRun struct {
	id       int64
	schedule string
	due      time.Time
	attempt  int
	state    string // waiting, running, or retry: its next attempt is due
	failures int
}

// openRuns lists the open runs of locked schedules by schedule name, in slot order.
func openRuns(ctx context.Context, tx *sqlrun.Session, locked []candidate) (map[string][]openRun, error) {
	names := make([]string, len(locked))
	for i := range locked {
		names[i] = locked[i].Name
	}
	args := sqlrun.Args{"names": names, "rows": nameRows(names)}
	found, err := sqlrun.Select(ctx, tx, open, args, func(rows *sql.Rows) (o openRun, err error) {
		var due int64
		err = rows.Scan(&o.id, &o.schedule, &due, &o.attempt, &o.state, &o.failures)
		o.due = instantOf(due)
		return o, err
	})
	byName := map[string][]openRun{}
	for _, o := range found {
		byName[o.schedule] = append(byName[o.schedule], o)
	}
	return byName, err
}

// claim takes up to limit due schedules of a lane. In one transaction it advances each to its
// next slot and turns the slot that is due into a run. It returns the runs to start here and
// the number of schedules that it advanced.
//
// The UPDATE that advances a schedule writes an entry in each index of its row, since next_exec is
// indexed. A narrow table for next_exec, due_at and fence would take 2.9 instead of 8.4 µs of the 43 that
// PostgreSQL spends on a run. It is not built: people write these columns in SQL, and the database would
// have to keep lane in step.
func (s *Scheduler) claim(ctx context.Context, lane string, limit int) (runs []run, moved int, err error) {
	return s.claimAndTell(ctx, lane, limit, func() {})
}

// claimAndTell is claim. It calls filled when it has locked a whole batch of schedules: see laneClaims. It
// may do so several times, if the transaction is repeated.
func (s *Scheduler) claimAndTell(ctx context.Context, lane string, limit int, filled func()) (runs []run, moved int, err error) {
	var first candidate
	b, err := s.claimTx(ctx, lane, func(ctx context.Context, tx *sqlrun.Session, b *claims) error {
		runs, moved = nil, 0
		args := sqlrun.Args{"lane": lane, "limit": limit, "since": s.floor()}
		locked, err := selectLocked(ctx, tx, due, args)
		if err != nil || len(locked) == 0 {
			return err
		}
		moved = len(locked)
		first = locked[0]
		if moved == limit && limit >= batch {
			filled()
		}
		open, err := openRuns(ctx, tx, locked)
		if err != nil {
			return err
		}
		others, err := othersHold(ctx, tx, locked, open)
		if err != nil {
			return err
		}
		for i := range locked {
			c := &locked[i]
			if id, held := others[c.Name]; held {
				err = s.passOver(ctx, tx, c, id)
			} else {
				err = s.claimOne(ctx, tx, b, c, open[c.Name])
			}
			if err != nil {
				return err
			}
		}
		runs, err = s.write(ctx, tx, b)
		return err
	})
	if err != nil && moved == 1 {
		err = &loneError{err, first.ID, first.Name, putOff, putOffFor(&first)}
	}
	if err != nil {
		return nil, 0, err
	}
	s.tell(b)
	return runs, moved, nil
}

// claimTx runs f in a claiming transaction. If the outcome of the commit is unknown, it hands
// back the runs that may have begun. Jobs that may have been enqueued need no such care: their
// runs ended in the same transaction.
func (s *Scheduler) claimTx(
	ctx context.Context, lane string, f func(context.Context, *sqlrun.Session, *claims) error,
) (b *claims, err error) {
	db, done := s.brief(lane)
	defer done()
	for tries := 0; ; tries++ {
		err = db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
			b = newClaims()
			return f(ctx, tx, b)
		})
		// Rarely, a generated job id equals that of another process. The whole transaction is
		// then repeated with new ids.
		if err == nil || !s.db.Dialect.Duplicate(err) || tries == 3 {
			break
		}
	}
	if err != nil {
		s.forget(ctx, b)
	}
	return b, err
}

// claimOne decides what one due schedule does.
func (s *Scheduler) claimOne(ctx context.Context, tx *sqlrun.Session, b *claims, c *candidate, open []openRun) error {
	if c.Due.IsZero() && c.bad == nil { // inserted by hand, with next_exec only
		c.Due = c.nextExec
	}
	if err := c.load(); err != nil {
		return s.close(ctx, tx, c, "failed", err.Error(), &b.left)
	}
	t := c.decide()
	for _, m := range t.missed {
		state := "missed"
		if len(open) > 0 && c.overlap() == "forbid" {
			state, m.why = "skipped", WhyBusy
		}
		b.pass(c, state, m)
	}
	before := c.fence
	s.beginOrWait(b, c, t.runs, open)
	begun := c.fence - before
	if t.ended != "" {
		return s.closeAfter(ctx, tx, c, "ended", t.ended, begun, &b.left)
	}
	b.moves = append(b.moves, moveRow{c.ID, microsOf(t.due), microsOf(t.next), begun})
	return nil
}

const (
	whyInactive = "the schedule was not active"

	whyFull  = "100 runs of the schedule wait already"
	whyTaken = "the unique key is in use by " // followed by the id of the job
)

// WhyBusy is the error of slots that were skipped, under the policy forbid.
const WhyBusy = "the run before was still under way"

// WhyReplaced is the error of runs that the next slot of their schedule has ended, under the policy replace.
const WhyReplaced = "replaced by the next slot"

// beginOrWait lets slots begin or wait, or skips them, according to the overlap policy.
func (s *Scheduler) beginOrWait(b *claims, c *candidate, slots []time.Time, open []openRun) {
	slot := func(due time.Time) run { return run{schedule: c.Name, due: due, attempt: 1, cause: "slot"} }
	switch {
	case len(slots) == 0:
		return
	case c.Kind == "job": // all at once, because their runs end in this transaction
		for _, due := range slots {
			b.begin(c, slot(due))
		}
		return
	case len(open) == 0 || c.Overlap == "allow":
		b.begin(c, slot(slots[0]))
		slots = slots[1:]
	case c.Overlap == "forbid":
		b.pass(c, "skipped", c.slotRange(slots[0], slots[len(slots)-1], WhyBusy))
		return
	case c.Overlap == "replace" && b.replace(c, open) == 0:
		b.begin(c, slot(slots[0])) // nobody is left who would release it
		slots = slots[1:]
	}
	after := s.turnAfter()
	if c.Overlap == "allow" {
		after = 0
	}
	waiting := 0
	for _, o := range open {
		if o.state == "waiting" && c.Overlap != "replace" {
			waiting++
		}
	}
	for i, due := range slots {
		if waiting+i >= catchUpLimit {
			b.pass(c, "skipped", c.slotRange(due, slots[len(slots)-1], whyFull))
			return
		}
		b.wait(c, slot(due), after)
	}
}

// turnAfter is the interval after which a waiting run is checked again. It bounds the delay if
// the daemon that should have released the run has died.
func (s *Scheduler) turnAfter() time.Duration { return min(s.opt.Lease, 5*time.Second) }

// reason returns an error's text in a form that can be stored, whatever the row that the error
// quotes contains.
func reason(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > 4000 {
		text = strings.ToValidUTF8(text[:4000], "") + " …"
	}
	return text
}

// close takes a locked schedule out of service: it ends or fails.
func (s *Scheduler) close(ctx context.Context, tx *sqlrun.Session, c *candidate, state, why string, left *leftovers) error {
	return s.closeAfter(ctx, tx, c, state, why, 0, left)
}

func (s *Scheduler) closeAfter(
	ctx context.Context, tx *sqlrun.Session, c *candidate, state, why string, begun int64, left *leftovers,
) error {
	s.opt.Logger.Warn("schedule "+state, "schedule", c.Name, "reason", why)
	if state == "failed" {
		if err := note(ctx, tx, &c.Schedule, incident{problem: "given-up", detail: why, anew: true}, left); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, disable, sqlrun.Args{"id": c.ID, "state": state, "reason": reason(why), "begun": begun})
	return err
}

// deadline is the local time at which a lease requested now ends, minus a margin to kill the
// command and notice the loss.
func (s *Scheduler) deadline() instant.Instant {
	return instant.Now().Add(s.opt.Lease - s.opt.Lease/10)
}
