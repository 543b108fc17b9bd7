package health

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
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
	Causes  []Cause // the one to begin with first; there is at least one
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
		Name: e.Name, State: e.State, Reason: strings.ToValidUTF8(e.Reason, "�"), Now: wire.At(e.Now), Next: at(e.Next), Overdue: at(e.Overdue),
		Causes:   wireof.Each(e.Causes, (*Cause).Wire),
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
	e := &scheduleExplainer{Explanation{
		Name: s.Name, State: s.State, Reason: s.Reason, Open: []OpenRow{}, Slots: []SlotRow{},
		Schedule: s, Now: at.Now, at: at,
	}, db, nil}
	for _, slot := range NextSlots(&s, at, 1) {
		e.Next = &slot
	}
	if e.runs, err = newestSlots(ctx, db, name, n); err != nil {
		return nil, err
	}
	for runs := e.runs; len(runs) > 0 && len(e.Slots) < n; {
		attempts := 1
		for attempts < len(runs) && runs[attempts].Due.Equal(runs[0].Due) {
			attempts++
		}
		e.Slots = append(e.Slots, newSlotRow(runs[:attempts]))
		runs = runs[attempts:]
	}
	open, err := OpenRuns(ctx, db, name, OpenLimit)
	if err != nil {
		return nil, err
	}
	waits := e.addOpen(open)
	return &e.Explanation, e.explain(ctx, open, waits)
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
	return waits
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// optional is nil for the zero time.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
