package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/crontab"
	"github.com/dbcron/dbcron/internal/duration"
	"github.com/dbcron/dbcron/scheduler"
)

// An explanation says why a schedule runs or does not.
type explanation struct {
	Name    string     `json:"name"`
	State   string     `json:"state"`
	Reason  string     `json:"reason"`
	Next    *time.Time `json:"next"`
	Overdue *time.Time `json:"overdue_since"`
	Advice  []string   `json:"what_to_do"`
	Open    []openRow  `json:"under_way"`
	Slots   []slotRow  `json:"slots"`

	s  scheduler.Schedule
	at planned
}

// An openRow is a run that has not ended, and what it waits for.
type openRow struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Text  string `json:"text"`
}

// A slotRow is a slot or a stretch of slots, and what happened to it.
type slotRow struct {
	Due   *time.Time `json:"due"`
	To    *time.Time `json:"to"`
	State string     `json:"state"`
	Why   string     `json:"why"`
}

func (p *program) scheduleExplain() *cobra.Command {
	var output string
	var n int
	c := &cobra.Command{
		Use:   "explain NAME",
		Short: "Tell why a schedule did or did not run, and what to do",
		Long: `Tell why a schedule did or did not run: its state, its next slot and whether that is
overdue, what runs or waits now and for what, and what became of its last slots,
each on one line with the attempts at it. Times are those of the schedule's zone.`,
		Example: `  dbcron schedule explain backup
  dbcron schedule explain backup -n 100 | grep missed`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if n < 1 || n > 10_000 {
				return usagef("-n %d: from 1 to 10000 slots can be had", n)
			}
			return p.with(c.Context(), func(db *dialect.DB) error {
				e, err := explain(c.Context(), db, args[0], n)
				if err != nil {
					return err
				}
				if output != "table" {
					return encode(p.out, e)
				}
				return e.write(p)
			})
		},
	}
	c.Flags().IntVarP(&n, "count", "n", 10, "how many of the last slots")
	outputFlag(c, &output)
	return c
}

func explain(ctx context.Context, db *dialect.DB, name string, n int) (*explanation, error) {
	s, at, err := lookUp(ctx, db, name)
	if err != nil {
		return nil, err
	}
	e := &explanation{
		Name: s.Name, State: s.State, Reason: s.Reason, Advice: []string{}, Open: []openRow{}, Slots: []slotRow{}, s: s, at: at,
	}
	for _, slot := range nextSlots(&s, at, 1) {
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
	open, err := selectRuns(ctx, db, openRuns, dialect.Args{"name": name, "limit": openLimit})
	if err != nil {
		return nil, err
	}
	waits := e.addOpen(open)
	e.adviseState()
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
		runs, err = selectRuns(ctx, db, newestRuns, dialect.Args{"name": name, "limit": min(limit, most)})
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
func newSlotRow(attempts []scheduler.Run) slotRow {
	last := &attempts[0]
	why := withJob(last)
	if last.Attempt > 1 {
		why += fmt.Sprintf("; attempt %d", last.Attempt)
	}
	var before []string
	for i := len(attempts) - 1; i > 0; i-- {
		text := attempts[i].State
		if attempts[i].Error != "" {
			text += " (" + oneLine(attempts[i].Error, 100) + ")"
		}
		before = append(before, text)
	}
	if len(before) > 5 {
		before = slices.Concat([]string{"…"}, before[len(before)-5:])
	}
	if len(before) > 0 {
		why += ", after " + strings.Join(before, ", ")
	}
	return slotRow{optional(last.Due), optional(last.To), last.State, why}
}

// late is how long a daemon may take to notice that something is due. By default it polls every second.
const late = 5 * time.Second

// addOpen describes running and waiting runs. It returns since when a run waits only for a daemon.
func (e *explanation) addOpen(open []scheduler.Run) (waits time.Time) {
	for i := range open {
		r := &open[i]
		text := underWay(r, &e.s)
		switch {
		case r.State != "waiting" && e.at.now.After(r.Next):
			text += "; its daemon has not renewed it since " + inZone(r.Next, &e.s) + ": another one takes it over"
			waits = earliest(waits, r.Next)
		case r.State != "waiting":
		case r.Next.After(e.at.now) && r.Attempt > 1 && r.Cause != "backfill":
			text += ", to be tried again at " + inZone(r.Next, &e.s)
		case e.s.State != "active" && r.Cause != "hand" && r.Cause != "backfill":
			text += "; it will be cancelled, since the schedule is " + e.s.State
		case i > 0 && e.s.Overlap != "allow":
			text += ", waits for the end of run " + fmt.Sprint(open[i-1].ID)
		case r.Error != "":
			text += ", is tried again at " + inZone(r.Next, &e.s) + ": " + oneLine(r.Error, 1000)
		default:
			text += ", waits for a daemon"
			if e.at.now.After(r.Next) {
				waits = earliest(waits, r.Next)
			}
		}
		e.Open = append(e.Open, openRow{fmt.Sprint(r.ID), r.State, text})
	}
	if len(open) == openLimit {
		e.Advice = append(e.Advice, fmt.Sprintf("only the first %d runs that have not ended are shown: dbcron schedule history shows more",
			openLimit))
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
func (e *explanation) adviseState() {
	resume := "dbcron schedule resume lets it run again"
	switch {
	case e.s.State == "paused":
		e.Advice = append(e.Advice, "it is paused: "+resume)
	case e.s.State == "failed" && e.s.MaxFailures > 0 && e.s.Failures >= e.s.MaxFailures:
		e.Advice = append(e.Advice, "it has failed too often in a row (max_failures): see below why; then "+resume)
	case e.s.State == "failed" && e.s.Source != "":
		e.Advice = append(e.Advice, "correct it in "+e.s.Source+" and import that; then "+resume)
	case e.s.State == "failed":
		e.Advice = append(e.Advice, "correct it (dbcron schedule edit); then "+resume)
	case e.s.State == "ended":
		e.Advice = append(e.Advice, "it has no more slots: give it another end, or another spec")
	case e.s.Reason != "":
		e.Advice = append(e.Advice, "daemons try to claim it, and fail: the state above has the last error; they try again at "+
			inZone(e.at.next, &e.s)+
			". Remove the cause; dbcron doctor finds missing rights")
	case e.at.next.IsZero():
		e.Advice = append(e.Advice, "a daemon has yet to plan it: a row that was written or resumed by hand waits for that")
	case e.Next == nil && strings.EqualFold(e.s.Spec, crontab.Reboot):
		e.Advice = append(e.Advice, "it has no slots of its own: each host with a daemon runs it once after it has started")
	case e.Next == nil:
		e.Advice = append(e.Advice, "it has no slots of its own: it runs when somebody or another schedule starts it")
	}
}

// overdue reports whether something has waited for a daemon for too long.
func (e *explanation) overdue(waits time.Time) bool {
	since := waits
	if next := e.at.next; e.s.State == "active" && !next.IsZero() && next.Before(e.at.now) {
		since = earliest(since, next)
	}
	if since.IsZero() || e.at.now.Sub(since) < late {
		return e.s.State == "active" && e.at.next.IsZero()
	}
	e.Overdue = &since
	return true
}

// adviseDaemons says which daemon is missing.
func (e *explanation) adviseDaemons(ctx context.Context, db *dialect.DB, runs []scheduler.Run) error {
	const shownDaemons = 5
	busy, err := dialect.Select(ctx, &db.Session, busyInLane, dialect.Args{"lane": e.at.lane, "limit": shownDaemons},
		func(rows *sql.Rows) (by string, err error) {
			return by, rows.Scan(&by)
		})
	if err != nil {
		return err
	}
	needed := "dbcron serve"
	if e.s.Tag != "default" {
		needed += " --tag " + shellLine([]string{e.s.Tag})
	}
	if e.s.Kind == "func" {
		needed = fmt.Sprintf("a program that handles the function %q for the tag %s", e.s.Command, e.s.Tag)
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
				oneLine(r.By, 200), inZone(r.Started, &e.s)))
			break
		}
	}
	return nil
}

// adviseChain names schedules that should follow but do not exist.
func (e *explanation) adviseChain(ctx context.Context, db *dialect.DB) error {
	for _, next := range []struct{ column, name string }{{"on_success", e.s.OnSuccess}, {"on_failure", e.s.OnFailure}} {
		if next.name == "" {
			continue
		}
		missing, err := isMissing(ctx, db, next.name)
		if err != nil {
			return err
		}
		if missing {
			e.Advice = append(e.Advice, fmt.Sprintf("%s names a schedule that does not exist: %s", next.column, oneLine(next.name, 200)))
		}
	}
	return nil
}

// write prints all of it for people.
func (e *explanation) write(p *program) error {
	facts := []fact{{"name", e.s.Name}, {"state", standing(&e.s)}}
	if e.Next != nil {
		text := inZone(*e.Next, &e.s)
		if left := e.Next.Sub(e.at.now); left > 0 {
			text += ", in " + left.Round(time.Second).String()
		}
		if e.s.Jitter > 0 {
			text += ", and up to " + duration.Format(e.s.Jitter) + " later"
		}
		facts = append(facts, fact{"next slot", text})
	}
	if e.Overdue != nil {
		facts = append(facts, fact{"overdue", "since " + inZone(*e.Overdue, &e.s) + ", for " +
			e.at.now.Sub(*e.Overdue).Round(time.Second).String()})
	}
	for _, o := range e.Open {
		facts = append(facts, fact{o.State, o.Text})
	}
	facts = append(facts, fact{"what to do", strings.Join(e.Advice, "\n")})
	if err := writeFacts(p.out, facts); err != nil {
		return err
	}
	if len(e.Slots) == 0 {
		_, err := fmt.Fprintln(p.out, "\nno slot of it has come yet")
		return err
	}
	if _, err := fmt.Fprintln(p.out); err != nil {
		return err
	}
	for _, slot := range e.Slots {
		when := inZone(*slot.Due, &e.s)
		if slot.To != nil && !slot.To.Equal(*slot.Due) {
			when += " to " + inZone(*slot.To, &e.s)
		}
		if _, err := fmt.Fprintf(p.out, "%s  %-9s  %s\n", when, slot.State, harmless(slot.Why)); err != nil {
			return err
		}
	}
	return nil
}
