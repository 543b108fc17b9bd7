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
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

// OfSchedules finds daemons that schedules lack, and schedules that have failed, are late or paused. It examines the schedules
// with the next slots, up to limit.
func OfSchedules(ctx context.Context, db *dialect.DB, now time.Time, limit int) (all []Problem, next []scheduler.Planned, err error) {
	failed, err := upTo(func(limit int) ([]scheduler.Schedule, error) { return scheduler.InState(ctx, db, "failed", limit) })
	if err != nil {
		return nil, nil, err
	}
	for i := range failed {
		s := &failed[i]
		all = append(all, Problem{
			Of: Schedules, Name: s.Name, Bad: true, what: "Schedule %s was given up", Why: plain.Cut(s.Reason, 200), change: s.Reason,
			Do: afterGivingUp(s), Act: "resume",
		})
	}
	all = cut(all, "schedule was given up", "schedules were given up", "see all: dbcron schedule list --state failed")
	planned, err := scheduler.Upcoming(ctx, db, Most+limit)
	if err != nil {
		return nil, nil, err
	}
	if late := lateOf(planned, now); len(late) >= Most { // to say how many there are
		if planned, err = scheduler.Upcoming(ctx, db, maxListed); err != nil {
			return nil, nil, err
		}
	}
	d, err := daemonsOf(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	without := map[string]int{} // of each tag, those that are late because it has no daemon, of which another line tells
	late := slices.DeleteFunc(lateOf(planned, now), func(p Problem) bool {
		lacks := p.unclaimed != "" && d.lack(p.unclaimed) != nil
		if lacks {
			without[p.unclaimed]++
		}
		return lacks
	})
	lacks, err := ofDaemons(ctx, db, &d, without, len(planned) == maxListed)
	if err != nil {
		return nil, nil, err
	}
	paused, err := ofPaused(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	all = slices.Concat(lacks, all, cut(late, "schedule is late", "schedules are late", "see all: dbcron schedule list"), paused)
	for i := range planned {
		if Lateness(&planned[i], now) == "" && len(next) < limit {
			next = append(next, planned[i])
		}
	}
	return all, next, nil
}

// lateOf returns those of some schedules that are late.
func lateOf(planned []scheduler.Planned, now time.Time) (late []Problem) {
	for i := range planned {
		s := &planned[i]
		if why := Lateness(s, now); why != "" {
			p := Problem{
				Of: Schedules, Name: s.Name, Bad: true, what: "Schedule %s is late", Why: why, Since: s.Due,
				Do: "find the reason: dbcron schedule explain " + argument(s.Name),
			}
			if s.Reason == "" {
				p.unclaimed = s.Tag
			}
			late = append(late, p)
		}
	}
	return late
}

// upTo reads a list that is shown up to Most. If it is longer, it reads more, to tell how many there are.
func upTo[T any](read func(limit int) ([]T, error)) ([]T, error) {
	all, err := read(Most + 1)
	if err == nil && len(all) > Most {
		all, err = read(maxListed)
	}
	return all, err
}

// cut shortens a list of problems, and says how many more there are.
func cut(all []Problem, one, many, see string) []Problem {
	if len(all) <= Most {
		return all
	}
	more := len(all) - Most
	what := plain.Plural(more, "more "+one, "more "+many)
	if len(all) >= maxListed {
		what = "At least " + what
	}
	return append(all[:Most:Most], Problem{Of: all[0].Of, Bad: all[0].Bad, what: what, Do: see})
}

// Lateness returns why a schedule is late, or "" if it is not.
func Lateness(s *scheduler.Planned, now time.Time) string {
	switch {
	case s.Due.IsZero() || now.Sub(s.Due) < s.Jitter+lateAfter:
		return ""
	case s.Reason != "":
		return plain.Cut("daemons cannot claim it: "+s.Reason, 200)
	}
	takes := ""
	if s.Kind == "job" { // which a program may leave out
		takes = ", takes schedules of jobs"
	}
	return "no daemon has claimed its slot; it takes one that has the tag " + plain.Cut(s.Tag, 60) + takes + " and has a place free"
}

// OfRuns finds the slots of the last day that failed, by schedule: the last attempt at a slot counts, and none after which it was
// tried again. It is not bad if a later slot was ok. It also finds work that does not end, or takes longer than
// usual, and what follows from that.
func OfRuns(ctx context.Context, db *dialect.DB, now time.Time) (all []Problem, err error) {
	runs, _, err := scheduler.RecentRuns(ctx, db, scheduler.RunFilter{States: []string{"failed", "timeout", "lost"}, Limit: 200})
	if err != nil {
		return nil, err
	}
	again, err := among(ctx, db, followed, runs)
	if err != nil {
		return nil, err
	}
	over, err := among(ctx, db, outlived, runs)
	if err != nil {
		return nil, err
	}
	by := map[string]*failures{}
	var names []string
	for i := range runs {
		run := &runs[i]
		if again[run.ID] || run.Finished.IsZero() || now.Sub(run.Finished) > back {
			continue
		}
		if by[run.Schedule] == nil {
			by[run.Schedule] = &failures{last: *run}
			names = append(names, run.Schedule)
		}
		by[run.Schedule].n++
		if !over[run.ID] {
			by[run.Schedule].inRow++
		}
	}
	suspects, err := ofStops(ctx, db, now, func(name string) bool { return by[name] != nil })
	if err != nil {
		return nil, err
	}
	unheeding, err := ofUnheeding(ctx, db)
	if err != nil {
		return nil, err
	}
	replaced, err := ofReplaced(ctx, db, now)
	if err != nil {
		return nil, err
	}
	skipping, err := ofHanging(ctx, db, now)
	if err != nil {
		return nil, err
	}
	all = slices.Concat(all, unheeding, suspects, replaced, skipping)
	var last []scheduler.Run
	for _, name := range names[:min(len(names), Most)] {
		last = append(last, by[name].last)
	}
	lines, err := LastLines(ctx, db, last)
	if err != nil {
		return nil, err
	}
	for _, name := range names[:min(len(names), Most)] {
		p, err := by[name].problem(ctx, db, lines[by[name].last.ID])
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	if more := len(names) - Most; more > 0 {
		all = append(all, Problem{
			Of: Runs, Bad: true, what: "Runs of " + plain.Plural(more, "more schedule", "more schedules") + " failed", Why: "in the last day",
			Do: "see which: dbcron schedule list",
		})
	}
	return all, nil
}

// failures are the slots of a schedule that failed in the last day.
type failures struct {
	n, inRow int // all, and those after which none was ok
	last     scheduler.Run
}

// problem is about the last one, which has written a line, or none.
func (f *failures) problem(ctx context.Context, db *dialect.DB, line string) (Problem, error) {
	of := scheduler.Schedule{Name: f.last.Schedule}
	if line == "" { // then where it is changed is said, unless it was deleted
		found, err := scheduler.Get(ctx, db, of.Name)
		if err == nil {
			of = found
		} else if !errors.Is(err, scheduler.ErrNotFound) {
			return Problem{}, err
		}
	}
	p := Problem{
		Of: Runs, Name: f.last.Schedule, Run: f.last.ID, Bad: f.inRow > 0, what: "A run of %s failed", Why: failure(&f.last, line),
		Since: f.last.Finished, Do: lookAt(&f.last, line, &of), Act: "run",
	}
	switch {
	case f.inRow > 1:
		p.Why = fmt.Sprintf("%d times in a row; last: %s", f.inRow, p.Why)
	case f.inRow == 0:
		p.Why += "; a later slot was ok"
		p.Do, p.Act = fmt.Sprintf("see what it printed: dbcron schedule output %d", f.last.ID), ""
		if f.n > 1 {
			p.Why = fmt.Sprintf("%d times in the last day; last: %s", f.n, p.Why)
		}
	}
	return p, nil
}

// among returns those of some runs that a statement lists.
func among(ctx context.Context, db *dialect.DB, stmt *sqlrun.Stmt, runs []scheduler.Run) (map[int64]bool, error) {
	ids, found := []int64{0}, map[int64]bool{} // a list has at least one
	for i := range runs {
		ids = append(ids, runs[i].ID)
	}
	_, err := sqlrun.Select(ctx, &db.Session, stmt, sqlrun.Args{"ids": ids}, func(rows *sql.Rows) (none struct{}, err error) {
		var id int64
		err = rows.Scan(&id)
		found[id] = true
		return none, err
	})
	return found, err
}

// ofUnheeding finds runs whose work has not returned though it was told to end.
func ofUnheeding(ctx context.Context, db *dialect.DB) (all []Problem, err error) {
	runs, _, err := scheduler.RecentRuns(ctx, db, scheduler.RunFilter{States: []string{"running"}, Limit: 200})
	for i := range runs {
		r := &runs[i]
		if r.Error == "" || len(all) == Most {
			continue
		}
		s, err := scheduler.Get(ctx, db, r.Schedule)
		if err != nil && !errors.Is(err, scheduler.ErrNotFound) {
			return nil, err
		}
		all = append(all, Problem{
			Of: Runs, Name: r.Schedule, Run: r.ID, Bad: true, what: "The work of %s does not end", Why: plain.Cut(r.Error, 200), Since: r.Started,
			Do: endUnheeding(r, &s) + "; its next slots wait: dbcron schedule explain " + argument(r.Schedule),
		})
	}
	return all, err
}

// endUnheeding says how to end the work of a run that was told to end and has not. s may be empty.
func endUnheeding(r *scheduler.Run, s *scheduler.Schedule) string {
	host, _, _ := strings.Cut(r.By, ":")
	switch s.Kind {
	case "", "shell", "argv":
		return fmt.Sprintf("end its processes on %s as root or as their user (ps -o pid,user,stat,args says whose they are, and what waits for a disk)", plain.Cut(host, 100))
	}
	return "have its function end with its context, and restart its process"
}

// fewSkipped is from how many slots on that a run has had skipped that is a problem.
const fewSkipped = 3

// ofHanging finds schedules that skip slots because of a run, and other runs that take longer than usual.
func ofHanging(ctx context.Context, db *dialect.DB, now time.Time) (all []Problem, err error) {
	if all, err = ofSkipping(ctx, db, now); err != nil {
		return nil, err
	}
	slow, err := ofSlow(ctx, db, now, all)
	return append(all, slow...), err
}

// ofSkipping finds schedules several slots of which were skipped because of a run that is still under way.
func ofSkipping(ctx context.Context, db *dialect.DB, now time.Time) (all []Problem, err error) {
	runs, _, err := scheduler.RecentRuns(ctx, db, scheduler.RunFilter{States: []string{"skipped"}, Limit: 200, Since: now.Add(-back)})
	if err != nil {
		return nil, err
	}
	looked := map[string]bool{}
	for i := range runs {
		name := runs[i].Schedule
		if runs[i].Error != scheduler.WhyBusy || looked[name] || len(looked) == Most {
			continue
		}
		looked[name] = true
		open, err := OpenRuns(ctx, db, name, 1)
		if err != nil {
			return nil, err
		}
		newest, err := NewestRuns(ctx, db, name, newestRead)
		if err != nil {
			return nil, err
		}
		if len(open) == 0 || open[0].State != "running" {
			continue
		}
		r := &open[0]
		if n := skippedSince(r, newest); n >= fewSkipped {
			all = append(all, Problem{
				Of: Runs, Name: name, Run: r.ID, what: "Slots of %s are skipped", Since: r.Started,
				Why: fmt.Sprintf("%s, since run %d is still under way on %s", plain.Plural(n, "slot was", "slots were"), r.ID, plain.Cut(r.By, 100)),
				Do:  endIt(r.ID),
			})
		}
	}
	return all, nil
}

// endIt says what to do about a run that others wait for.
func endIt(run int64) string {
	return fmt.Sprintf("wait for its end, or end it: dbcron schedule cancel %d; a timeout ends such runs (dbcron schedule edit)", run)
}

// ofPaused finds schedules that are paused.
func ofPaused(ctx context.Context, db *dialect.DB) (all []Problem, err error) {
	paused, err := upTo(func(limit int) ([]scheduler.Schedule, error) { return scheduler.InState(ctx, db, "paused", limit) })
	for i := range paused {
		s := &paused[i]
		all = append(all, Problem{
			Of: Schedules, Name: s.Name, what: "Schedule %s is paused", Why: plain.Cut(s.Reason, 200), change: s.Reason,
			Do: "when it may run again: dbcron schedule resume " + argument(s.Name), Act: "resume",
		})
	}
	return cut(all, "schedule is paused", "schedules are paused", "see all: dbcron schedule list --state paused"), err
}

var zonesOf = sqlrun.SQL("health.zones", `
	SELECT time_zone, COUNT(*) FROM {prefix}schedule WHERE state = 'active' AND spec NOT LIKE '@every%' GROUP BY time_zone ORDER BY time_zone`)

// OfZones says by which zones the active schedules run, and which one this host has, if there are any of UTC and the host's is another:
// then somebody may have meant the host's. It is "" otherwise.
func OfZones(ctx context.Context, db *dialect.DB, host string) (string, error) {
	ofUTC := false
	all, err := sqlrun.Select(ctx, &db.Session, zonesOf, nil, func(rows *sql.Rows) (text string, err error) {
		var zone string
		var n int
		err = rows.Scan(&zone, &n)
		ofUTC = ofUTC || zone == "UTC"
		return fmt.Sprintf("%s by %s", plain.Plural(n, "schedule", "schedules"), plain.Clean(zone)), err
	})
	if err != nil || !ofUTC {
		return "", err
	}
	return strings.Join(all, ", ") + "; this host's zone is " + host, nil
}
