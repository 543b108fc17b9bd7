package top

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
)

// schedules shows failed schedules, and then the others by next slot.
func (l *Look) schedules(ctx context.Context, s *screen) error {
	s.title = "Schedules"
	failed, err := scheduler.InState(ctx, l.db, "failed", maxRows)
	if err != nil {
		return err
	}
	planned, err := scheduler.Upcoming(ctx, l.db, maxRows)
	if err != nil {
		return err
	}
	runs, _, err := scheduler.RecentRuns(ctx, l.db, scheduler.RunFilter{Limit: 1000})
	if err != nil {
		return err
	}
	last := map[string]*scheduler.Run{}
	for i := range runs {
		if r := &runs[i]; last[r.Schedule] == nil && !r.Finished.IsZero() {
			last[r.Schedule] = r
		}
	}
	rows, lines := [][]string{{"SCHEDULE", "STATE", "NEXT IN", "LAST RUN", "SPEC", "WHY"}}, []line(nil)
	add := func(sc *scheduler.Schedule, next, why string, kind kind) {
		was := "–"
		if r := last[sc.Name]; r != nil {
			was = r.State + ", " + l.ago(r.Finished) + " ago"
			if slices.Contains([]string{"failed", "timeout", "lost"}, r.State) {
				kind = max(kind, badLine)
				why = cmp.Or(why, r.Error)
			}
		}
		rows = append(rows, []string{plain.Cut(sc.Name, 40), sc.State, next, was, plain.Cut(sc.Spec, 20), plain.Cut(why, 100)})
		lines = append(lines, line{kind: kind, into: place{runsView, sc.Name}})
	}
	for i := range failed {
		add(&failed[i], "–", failed[i].Reason, badLine)
	}
	for i := range planned {
		why, kind := health.Lateness(&planned[i], l.now), plainLine
		if why != "" {
			kind = badLine
		}
		add(&planned[i].Schedule, l.until(planned[i].Due), why, kind)
	}
	s.table(rows, lines)
	return nil
}

// runs shows the newest runs, of one schedule or of all.
func (l *Look) runs(ctx context.Context, s *screen) (err error) {
	s.title = "Runs"
	var runs []scheduler.Run
	if s.at.name != "" {
		s.title = "Runs of " + plain.Cut(s.at.name, 60)
		runs, err = scheduler.ShortHistory(ctx, l.db, s.at.name, maxRows)
	} else {
		runs, _, err = scheduler.RecentRuns(ctx, l.db, scheduler.RunFilter{Limit: maxRows})
	}
	if err != nil {
		return err
	}
	rows, lines := [][]string{{"RUN", "SCHEDULE", "SLOT", "ATTEMPT", "STATE", "TOOK", "ERROR"}}, []line(nil)
	for i := range runs {
		r := &runs[i]
		took, kind := "–", plainLine
		switch {
		case !r.Started.IsZero() && !r.Finished.IsZero():
			took = plain.Span(max(0, r.Finished.Sub(r.Started)))
		case r.State == "running":
			took = l.ago(r.Started)
		}
		switch r.State {
		case "failed", "timeout", "lost":
			kind = badLine
		case "skipped", "missed", "retry", "cancelled":
			kind = oddLine
		}
		rows = append(rows, []string{
			fmt.Sprint(r.ID), plain.Cut(r.Schedule, 30), plain.Instant(r.Due, time.UTC), fmt.Sprint(r.Attempt),
			r.State, took, plain.Cut(r.Error, 100),
		})
		line := line{kind: kind}
		if s.at.name == "" {
			line.into = place{runsView, r.Schedule}
		}
		lines = append(lines, line)
	}
	s.table(rows, lines)
	return nil
}
