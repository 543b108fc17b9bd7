package health

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/crontab"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// OpenLimit is how many runs are shown that run or wait.
const OpenLimit = 20

// An Explanation says why a schedule runs or does not, and what to do.
type Explanation struct {
	Name    string
	State   string
	Reason  string
	Next    *time.Time
	Overdue *time.Time
	Advice  []string
	Open    []OpenRow
	Slots   []SlotRow

	Schedule scheduler.Schedule
	Now      time.Time

	at Plan
}

// An OpenRow is a run that has not ended, and what it waits for.
type OpenRow struct{ ID, State, Text string }

// A SlotRow is a slot or a stretch of slots, and what happened to it.
type SlotRow struct {
	Due, To    *time.Time
	State, Why string
}

// Wire returns the explanation as it leaves the process.
func (e *Explanation) Wire() wire.Explanation {
	at := func(t *time.Time) (i wire.Instant) {
		if t != nil {
			i = wire.At(*t)
		}
		return i
	}
	return wire.Explanation{
		Name: e.Name, State: e.State, Reason: strings.ToValidUTF8(e.Reason, "�"), Now: wire.At(e.Now), Next: at(e.Next), Overdue: at(e.Overdue), Advice: e.Advice,
		UnderWay: wireof.Each(e.Open, func(o *OpenRow) wire.OpenRun { return wire.OpenRun(*o) }),
		Slots: wireof.Each(e.Slots, func(s *SlotRow) wire.SlotStory {
			return wire.SlotStory{Due: at(s.Due), To: at(s.To), State: s.State, Why: s.Why}
		}),
	}
}

// Explain explains why a schedule runs or does not, with the outcomes of up to n of its last
// slots. If hide is set, it does not show what the schedule runs.
func Explain(ctx context.Context, db *dialect.DB, name string, n int, hide bool) (*Explanation, error) {
	s, at, err := LookUp(ctx, db, name)
	if err != nil {
		return nil, err
	}
	if hide {
		s.Command = ""
	}
	e := &Explanation{
		Name: s.Name, State: s.State, Reason: s.Reason, Advice: []string{}, Open: []OpenRow{}, Slots: []SlotRow{},
		Schedule: s, Now: at.Now, at: at,
	}
	for _, slot := range NextSlots(&s, at, 1) {
		e.Next = &slot
	}
	runs, err := newestSlots(ctx, db, name, n)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(runs) && len(e.Slots) < n; {
		attempts := 1
		for i+attempts < len(runs) && runs[i+attempts].Due.Equal(runs[i].Due) {
			attempts++
		}
		e.Slots = append(e.Slots, newSlotRow(runs[i:i+attempts]))
		i += attempts
	}
	open, err := OpenRuns(ctx, db, name, OpenLimit)
	if err != nil {
		return nil, err
	}
	waits := e.addOpen(open)
	e.adviseState()
	if n := replacedRuns(&s, runs[:min(len(runs), newestRead)]); n > 0 {
		e.Advice = append(e.Advice, fmt.Sprintf("none of its last %d runs has completed: each was replaced by the next slot. "+
			"Give it a longer interval, or another overlap: forbid skips slots while it runs, queue runs them afterwards", n))
	}
	if e.overdue(waits) {
		err = e.adviseDaemons(ctx, db, runs)
	}
	if err == nil {
		err = e.adviseChain(ctx, db)
	}
	return e, err
}

// newestSlots returns the newest runs of a schedule, covering at least n slots if there are so many.
func newestSlots(ctx context.Context, db *dialect.DB, name string, n int) (runs []scheduler.Run, err error) {
	const most = 50_000
	for limit := 2*n + 10; ; limit *= 4 {
		runs, err = NewestRuns(ctx, db, name, min(limit, most))
		if err != nil || len(runs) < limit {
			return runs, err
		}
		slots := map[int64]bool{}
		for _, r := range runs {
			slots[r.Due.UnixMicro()] = true
		}
		if len(slots) > n { // one more, since attempts at the last one may be missing
			return runs, nil
		}
	}
}

// newSlotRow combines the attempts at a slot, given last first.
func newSlotRow(attempts []scheduler.Run) SlotRow {
	last := &attempts[0]
	why := WithJob(last)
	if last.Attempt > 1 {
		why += fmt.Sprintf("; attempt %d", last.Attempt)
	}
	var before []string
	for i := len(attempts) - 1; i > 0; i-- {
		text := attempts[i].State
		if attempts[i].Error != "" {
			text += " (" + plain.Line(attempts[i].Error, 100) + ")"
		}
		before = append(before, text)
	}
	if len(before) > 5 {
		before = slices.Concat([]string{"…"}, before[len(before)-5:])
	}
	if len(before) > 0 {
		why += ", after " + strings.Join(before, ", ")
	}
	return SlotRow{optional(last.Due), optional(last.To), last.State, why}
}

// late is how long a daemon may take to notice that something is due. By default it polls every second.
const late = 5 * time.Second

// addOpen describes running and waiting runs. It returns since when a run waits only for a daemon.
func (e *Explanation) addOpen(open []scheduler.Run) (waits time.Time) {
	for i := range open {
		r := &open[i]
		text := UnderWay(r, &e.Schedule)
		switch {
		case r.State == "retry" && r.Next.After(e.at.Now):
			text += "; " + plain.Line(r.Error, 1000)
		case r.State != "waiting" && e.at.Now.After(r.Next):
			text += "; its daemon has not renewed it since " + InZone(r.Next, &e.Schedule) + ": another one takes it over"
			waits = earliest(waits, r.Next)
		case r.State != "waiting":
		case r.Next.After(e.at.Now) && r.Attempt > 1 && r.Cause != "backfill":
			text += ", to be tried again at " + InZone(r.Next, &e.Schedule)
		case e.Schedule.State != "active" && r.Cause != "hand" && r.Cause != "backfill":
			text += "; it will be cancelled, since the schedule is " + e.Schedule.State
		case i > 0 && e.Schedule.Overlap != "allow":
			text += ", waits for the end of run " + fmt.Sprint(open[i-1].ID)
		case r.Error != "":
			text += ", is tried again at " + InZone(r.Next, &e.Schedule) + ": " + plain.Line(r.Error, 1000)
		default:
			text += ", waits for a daemon"
			if e.at.Now.After(r.Next) {
				waits = earliest(waits, r.Next)
			}
		}
		e.Open = append(e.Open, OpenRow{fmt.Sprint(r.ID), r.State, text})
	}
	if len(open) == OpenLimit {
		e.Advice = append(e.Advice, fmt.Sprintf("only the first %d runs that have not ended are shown: dbcron schedule history shows more",
			OpenLimit))
	}
	return waits
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// adviseState gives advice about the schedule's own state.
func (e *Explanation) adviseState() {
	resume := "dbcron schedule resume lets it run again"
	switch {
	case e.Schedule.State == "paused":
		e.Advice = append(e.Advice, "it is paused: "+resume)
	case e.Schedule.State == "failed" && e.Schedule.MaxFailures > 0 && e.Schedule.Failures >= e.Schedule.MaxFailures:
		e.Advice = append(e.Advice, "it has failed too often in a row (max_failures): see below why; then "+resume)
	case e.Schedule.State == "failed" && e.Schedule.Source != "":
		e.Advice = append(e.Advice, "correct it in "+e.Schedule.Source+" and import that; then "+resume)
	case e.Schedule.State == "failed":
		e.Advice = append(e.Advice, "correct it (dbcron schedule edit); then "+resume)
	case e.Schedule.State == "ended":
		e.Advice = append(e.Advice, "it has no more slots: give it another end, or another spec")
	case e.Schedule.Reason != "":
		e.Advice = append(e.Advice, "daemons try to claim it, and fail: the state above has the last error; they try again at "+
			InZone(e.at.Next, &e.Schedule)+
			". Remove the cause; dbcron doctor finds missing rights")
	case e.at.Next.IsZero():
		e.Advice = append(e.Advice, "a daemon has yet to plan it: a row that was written or resumed by hand waits for that")
	case e.Next == nil && strings.EqualFold(e.Schedule.Spec, crontab.Reboot):
		e.Advice = append(e.Advice, "it has no slots of its own: each host with a daemon runs it once after it has started")
	case e.Next == nil:
		e.Advice = append(e.Advice, "it has no slots of its own: it runs when somebody or another schedule starts it")
	}
}

// overdue reports whether something has waited for a daemon for too long.
func (e *Explanation) overdue(waits time.Time) bool {
	since := waits
	if next := e.at.Next; e.Schedule.State == "active" && !next.IsZero() && next.Before(e.at.Now) {
		since = earliest(since, next)
	}
	if since.IsZero() || e.at.Now.Sub(since) < late {
		return e.Schedule.State == "active" && e.at.Next.IsZero()
	}
	e.Overdue = &since
	return true
}

// adviseDaemons says which daemon is missing.
func (e *Explanation) adviseDaemons(ctx context.Context, db *dialect.DB, runs []scheduler.Run) error {
	const shownDaemons = 5
	busy, err := sqlrun.Select(ctx, &db.Session, busyInLane, sqlrun.Args{"lane": e.at.Lane, "limit": shownDaemons},
		func(rows *sql.Rows) (by string, err error) {
			return by, rows.Scan(&by)
		})
	if err != nil {
		return err
	}
	needed := "dbcron serve"
	if e.Schedule.Tag != "default" {
		needed += " --tag " + argument(e.Schedule.Tag)
	}
	if e.Schedule.Kind == "func" {
		needed = "a program that handles its function for the tag " + e.Schedule.Tag
		if e.Schedule.Command != "" {
			needed = fmt.Sprintf("a program that handles the function %q for the tag %s", e.Schedule.Command, e.Schedule.Tag)
		}
	}
	if len(busy) > 0 {
		e.Advice = append(e.Advice, "these daemons run such schedules now: "+strings.Join(busy, ", ")+
			"; if they have no place free (--max-runs), give them more, or start another: "+needed)
	} else {
		e.Advice = append(e.Advice, "no daemon was seen that runs it; it needs "+needed+
			", which can reach the database and has a place free (--max-runs)")
	}
	for _, r := range runs {
		if !r.Started.IsZero() {
			e.Advice = append(e.Advice, fmt.Sprintf("the last to run it was %s, at %s: see whether that is still there",
				plain.Line(r.By, 200), InZone(r.Started, &e.Schedule)))
			break
		}
	}
	return nil
}

// adviseChain names schedules that should follow but do not exist.
func (e *Explanation) adviseChain(ctx context.Context, db *dialect.DB) error {
	for _, next := range []struct{ column, name string }{{"on_success", e.Schedule.OnSuccess}, {"on_failure", e.Schedule.OnFailure}} {
		if next.name == "" {
			continue
		}
		_, err := scheduler.Get(ctx, db, next.name)
		switch {
		case err != nil && !errors.Is(err, scheduler.ErrNotFound):
			return err
		case err != nil:
			e.Advice = append(e.Advice, fmt.Sprintf("%s names a schedule that does not exist: %s", next.column, plain.Line(next.name, 200)))
		}
	}
	return nil
}

// optional is nil for the zero time.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
