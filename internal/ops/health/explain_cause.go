package health

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/ops/crontab"
	"github.com/dbcron/dbcron/internal/pattern"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// A scheduleExplainer gathers why a schedule does not run.
type scheduleExplainer struct {
	Explanation
	db   *dialect.DB
	runs []scheduler.Run // the newest first
}

func (e *scheduleExplainer) add(c Cause) { e.Causes = append(e.Causes, c) }

// explain gathers the causes, those first that have to end first.
func (e *scheduleExplainer) explain(ctx context.Context, open []scheduler.Run, waits time.Time) error {
	if err := e.ofState(ctx); err != nil {
		return err
	}
	if err := e.ofDaemons(ctx, e.overdue(waits)); err != nil {
		return err
	}
	if err := e.ofClock(ctx); err != nil {
		return err
	}
	e.ofOpen(open)
	if n := replacedRuns(&e.Schedule, e.runs[:min(len(e.runs), newestRead)]); n > 0 {
		e.add(Cause{
			Why: fmt.Sprintf("none of its last %d runs has completed: each was replaced by the next slot", n),
			Do:  "give it a longer interval, or another overlap: forbid skips slots while it runs, queue runs them afterwards",
		})
	}
	for _, look := range []func(context.Context) error{e.ofLast, e.ofJob, e.ofFollowing, e.ofFollowers} {
		if err := look(ctx); err != nil {
			return err
		}
	}
	if len(open) == OpenLimit {
		e.add(Cause{
			Why: fmt.Sprintf("only the first %d runs that have not ended are shown", OpenLimit), Do: "see more: dbcron schedule history " + argument(e.Name),
		})
	}
	if len(e.Causes) == 0 {
		e.ofNext()
	}
	return nil
}

// ofState says why the schedule's own state keeps it from running.
func (e *scheduleExplainer) ofState(ctx context.Context) error {
	s := &e.Schedule
	switch {
	case s.State == "paused":
		why, err := byWhom(ctx, e.db, "it is paused", "schedule.pause", s.Name, s.Reason)
		e.add(Cause{Why: why, Do: "when it may run again: dbcron schedule resume " + argument(e.Name)})
		return err
	case gaveUpRuns(s):
		e.add(Cause{Why: "it was given up, since it has failed too often in a row (max_failures): " + plain.Line(s.Reason, 300), Do: afterGivingUp(s)})
	case s.State == "failed":
		e.add(Cause{Why: "it was given up: " + plain.Line(s.Reason, 300), Do: afterGivingUp(s)})
	case s.State == "ended":
		e.add(Cause{Why: "it has ended: it has no more slots", Do: "give it another end or spec" + where(s)})
	case s.Reason != "":
		e.add(Cause{
			Why:   "daemons cannot claim it: " + plain.Line(s.Reason, 300),
			Do:    "remove the cause; dbcron doctor finds missing rights; they try again at " + InZone(e.at.Next, s),
			Until: e.at.Next,
		})
	}
	return nil
}

// gaveUpRuns reports whether a schedule was given up because its runs failed, and not because it cannot be planned.
func gaveUpRuns(s *scheduler.Schedule) bool {
	return s.State == "failed" && s.MaxFailures > 0 && s.Failures >= s.MaxFailures
}

// afterGivingUp says what to do about a schedule that was given up.
func afterGivingUp(s *scheduler.Schedule) string {
	resume := "dbcron schedule resume " + argument(s.Name)
	switch {
	case gaveUpRuns(s):
		return "fix what its last runs say (dbcron schedule history " + argument(s.Name) + "), then: " + resume
	case s.Source == "" && strings.Contains(s.Reason, "spec: "):
		return "correct it (dbcron schedule edit " + argument(s.Name) + " --spec SPEC), then: " + resume
	}
	return "correct it" + where(s) + ", then: " + resume
}

// byWhom adds to a text who did something, and when, if the audit can be read and knows it, and the reason.
func byWhom(ctx context.Context, db *dialect.DB, text, action, object, reason string) (string, error) {
	found, _, err := audit.List(ctx, db, audit.Filter{Action: action, Object: object, Limit: 1})
	if err != nil && (db.Dialect.Denied(err) || db.Dialect.Missing(err)) {
		err = nil
	}
	if len(found) > 0 {
		text += fmt.Sprintf(", by %s at %s", plain.Line(found[0].Actor, 200), plain.Instant(found[0].At, time.UTC))
	}
	if reason != "" {
		text += ": " + plain.Line(reason, 200)
	}
	return text, err
}

// overdue reports whether something has waited for a daemon for too long.
func (e *scheduleExplainer) overdue(waits time.Time) bool {
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

// ofDaemons says which daemon is missing.
func (e *scheduleExplainer) ofDaemons(ctx context.Context, overdue bool) error {
	s := &e.Schedule
	if !overdue && s.State != "active" {
		return nil
	}
	d, err := daemonsOf(ctx, e.db)
	if err != nil {
		return err
	}
	needed := "dbcron serve"
	if s.Tag != "default" {
		needed += " --tag " + argument(s.Tag)
	}
	if s.Kind == "job" {
		needed += ", or a program that runs schedules of jobs for that tag (scheduler.Jobs in its Options.Kinds)"
	}
	if s.Kind == "func" {
		needed = "a program that handles its function for the tag " + s.Tag
		if s.Command != "" {
			needed = fmt.Sprintf("a program that handles the function %q for the tag %s", s.Command, s.Tag)
		}
	}
	if lack := d.lack(s.Tag); lack != nil {
		if s.Kind == "func" {
			lack.Do = "start " + needed
		}
		e.add(*lack)
		return nil
	}
	if !overdue {
		return nil
	}
	const shownDaemons = 5
	busy, err := sqlrun.Select(ctx, &e.db.Session, busyInLane, sqlrun.Args{"lane": e.at.Lane, "limit": shownDaemons},
		func(rows *sql.Rows) (by string, err error) {
			return by, rows.Scan(&by)
		})
	if err != nil {
		return err
	}
	switch {
	case len(busy) > 0:
		e.add(Cause{
			Why: "no daemon has claimed it; these run such schedules now: " + strings.Join(busy, ", "),
			Do:  "if they have no place free (--max-runs), give them more, or start another: " + needed,
		})
	case e.at.Next.IsZero():
		e.add(Cause{Why: "a daemon has yet to plan it: a row that was written or resumed by hand waits for that", Do: "if that lasts, it needs " + needed})
	default:
		e.add(Cause{
			Why: "no daemon has claimed it, though one has the tag " + plain.Cut(s.Tag, 60),
			Do:  "it needs " + needed + ", which can reach the database and has a place free (--max-runs)",
		})
	}
	return nil
}

// ofOpen says which run has to end, or is tried again.
func (e *scheduleExplainer) ofOpen(open []scheduler.Run) {
	for i := range open {
		r := &open[i]
		switch waits := r.Next.After(e.at.Now); {
		case r.State == "running" && waits:
			c := Cause{
				Why: fmt.Sprintf("it runs now, since %s on %s: run %d", InZone(r.Started, &e.Schedule), plain.Line(r.By, 200), r.ID),
				Do:  fmt.Sprintf("to end it: dbcron schedule cancel %d", r.ID),
			}
			n := skippedSince(r, e.runs)
			if n > 0 {
				c.Why += fmt.Sprintf("; %s skipped meanwhile", plain.Plural(n, "slot was", "slots were"))
				c.Do = endIt(r.ID)
			}
			if why := slowness(&e.Schedule, r, e.runs, e.at.Now); why != "" {
				c.Why += ", longer than usual: " + why
				c.Do = endIt(r.ID)
			}
			if r.Error != "" {
				c.Why, c.Do = c.Why+": "+plain.Line(r.Error, 300), endUnheeding(r, &e.Schedule)
			}
			e.add(c)
			return
		case (r.State == "waiting" || r.State == "retry") && waits && r.Attempt > 1 && r.Cause != "backfill":
			why := "it is tried again at " + InZone(r.Next, &e.Schedule) + ", in " + plain.Span(r.Next.Sub(e.at.Now))
			for k := range e.runs {
				if before := &e.runs[k]; before.Due.Equal(r.Due) && before.Attempt == r.Attempt-1 {
					why += fmt.Sprintf(", after attempt %d: %s", before.Attempt, ended(before))
				}
			}
			e.add(Cause{
				Why: why, Until: r.Next,
				Do: fmt.Sprintf("to run it now instead: dbcron schedule cancel %d; then dbcron schedule run %s", r.ID, argument(e.Name)),
			})
			return
		}
	}
}

// skippedSince counts the slots of a schedule's newest runs that were skipped because a run was under way.
func skippedSince(r *scheduler.Run, newest []scheduler.Run) (n int) {
	for i := range newest {
		if s := &newest[i]; s.State == "skipped" && s.Error == scheduler.WhyBusy && !s.Due.Before(r.Due) {
			n += max(1, int(s.Slots))
		}
	}
	return n
}

// ended says what became of a run.
func ended(r *scheduler.Run) string {
	if r.Error == "" {
		return r.State
	}
	return r.State + ": " + plain.Line(r.Error, 200)
}

// lastRun returns the newest run that has begun and ended, and to which no other attempt belongs, or nil.
func lastRun(newest []scheduler.Run) *scheduler.Run {
	for i := range newest {
		r := &newest[i]
		switch {
		case r.State == "missed", r.State == "skipped", r.State == "cancelled":
		case !Ended(r), r.State == "retry":
			if r.Attempt > 1 {
				return nil
			}
		default:
			return r
		}
	}
	return nil
}

// bad reports whether a run has ended in failure.
func bad(r *scheduler.Run) bool {
	return r.State == "failed" || r.State == "timeout" || r.State == "lost"
}

// ofLast says that the last run failed.
func (e *scheduleExplainer) ofLast(ctx context.Context) error {
	last := lastRun(e.runs)
	if last == nil || !bad(last) {
		return nil
	}
	lines, err := LastLines(ctx, e.db, []scheduler.Run{*last})
	e.add(Cause{Why: "its last run failed: " + failure(last, lines[last.ID]), Do: lookAt(last, lines[last.ID], &e.Schedule)})
	return err
}

// where says where a schedule is changed: one that comes from a file only there.
func where(s *scheduler.Schedule) string {
	if s.Source != "" {
		return " in " + plain.Line(s.Source, 200) + ", and import that"
	}
	return " (dbcron schedule edit " + argument(s.Name) + ")"
}

// ofShell are exit codes by which a shell says why it did not run a command. Its own words may be lost, as by 2>/dev/null.
var ofShell = map[string]string{"exit code 126": "the command cannot be executed", "exit code 127": "the command was not found"}

// failure tells why a run failed, with the last line that it wrote.
func failure(r *scheduler.Run, line string) string {
	why := r.State
	if r.Error != "" {
		why = plain.Cut(r.Error, 200)
	}
	if line == "" {
		line = ofShell[why]
	}
	if line != "" && !strings.Contains(why, line) {
		why += ": " + line
	}
	return why
}

// lookAt says what to do about a run of a schedule that has failed, and has written a line, if it has.
func lookAt(r *scheduler.Run, line string, s *scheduler.Schedule) string {
	if line == "" {
		return "correct that" + where(s) + "; then run it again: dbcron schedule run " + argument(r.Schedule)
	}
	return fmt.Sprintf("see what it printed: dbcron schedule output %d", r.ID)
}

var jobIn = pattern.Lazy(`^job ([0-9]+) in queue (.+)`)

// ofJob says why the last job waits that the schedule has enqueued, or that it died.
func (e *scheduleExplainer) ofJob(ctx context.Context) error {
	last := lastRun(e.runs)
	if last == nil || last.State != "ok" {
		return nil
	}
	found := jobIn().FindStringSubmatch(strings.TrimSpace(last.Output))
	if found == nil {
		return nil
	}
	c, err := admin.New(e.db, admin.Options{})
	if err != nil {
		return err
	}
	id, _ := strconv.ParseInt(found[1], 10, 64)
	job, err := ExplainJob(ctx, e.db, c, found[2], id)
	switch {
	case errors.Is(err, admin.ErrNotFound): // it was done
		return nil
	case err != nil && (e.db.Dialect.Denied(err) || e.db.Dialect.Missing(err)):
		return nil
	case err != nil:
		return err
	}
	if s := job.Job.State; len(job.Causes) == 0 || s != admin.StateReady && s != admin.StateDelayed && s != admin.StateDead {
		return nil
	}
	cause := job.Causes[0]
	e.add(Cause{Why: fmt.Sprintf("its last job, %d in queue %s, has not been done: %s", id, plain.Line(found[2], 200), cause.Why), Do: cause.Do, Until: cause.Until, Job: id})
	return nil
}

// leading lists schedules that another one follows, and which of its outcomes starts that. It reads all schedules, for people who ask.
var leading = sqlrun.SQL("health.leading", `
	SELECT name, CASE WHEN on_success = :name THEN 'succeeds' ELSE 'fails' END FROM {prefix}schedule
	WHERE on_success = :name OR on_failure = :name ORDER BY name LIMIT 5`)

// ofFollowing says of a schedule without slots what it runs after.
func (e *scheduleExplainer) ofFollowing(ctx context.Context) error {
	if e.Schedule.State != "active" || e.Next != nil || e.at.Next.IsZero() {
		return nil
	}
	if strings.EqualFold(e.Schedule.Spec, crontab.Reboot) {
		e.add(Cause{Why: "it has no slots of its own: each host with a daemon runs it once after it has started"})
		return nil
	}
	type leader struct{ name, when string }
	found, err := sqlrun.Select(ctx, &e.db.Session, leading, sqlrun.Args{"name": e.Name}, func(rows *sql.Rows) (l leader, err error) {
		return l, rows.Scan(&l.name, &l.when)
	})
	if err != nil {
		return err
	}
	if len(found) == 0 && len(e.Causes) == 0 {
		e.add(Cause{
			Why: "it has no slots of its own: it runs when somebody or another schedule starts it", Do: "to run it now: dbcron schedule run " + argument(e.Name),
		})
	}
	for _, l := range found {
		c := Cause{
			Why: fmt.Sprintf("it has no slots of its own: it runs when %s %s", argument(l.name), l.when), Do: "see what that does: dbcron schedule explain " + argument(l.name),
		}
		runs, err := NewestRuns(ctx, e.db, l.name, newestRead)
		if err != nil {
			return err
		}
		if last := lastRun(runs); last != nil {
			c.Why += ", whose last run, " + InZone(last.Due, &e.Schedule) + ", was " + ended(last)
		} else {
			c.Why += ", which has not run yet"
		}
		e.add(c)
	}
	return nil
}

// ofFollowers names schedules that should follow but do not exist.
func (e *scheduleExplainer) ofFollowers(ctx context.Context) error {
	for _, next := range []struct{ column, name string }{{"on_success", e.Schedule.OnSuccess}, {"on_failure", e.Schedule.OnFailure}} {
		if next.name == "" {
			continue
		}
		_, err := scheduler.Get(ctx, e.db, next.name)
		switch {
		case err != nil && !errors.Is(err, scheduler.ErrNotFound):
			return err
		case err != nil:
			e.add(Cause{
				Why: fmt.Sprintf("%s names a schedule that does not exist: %s", next.column, plain.Line(next.name, 200)),
				Do:  "add that one, or name another" + where(&e.Schedule),
			})
		}
	}
	return nil
}

// ofNext says that the schedule waits for its next slot.
func (e *scheduleExplainer) ofNext() {
	c := Cause{Why: "nothing is wrong: it waits for its next slot"}
	if e.Next != nil {
		c.Until = *e.Next
	}
	e.add(c)
}
