package top

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
)

// overview shows problems first.
func (l *Look) overview(ctx context.Context, s *screen) error {
	s.title = "Overview"
	wrong, next, err := health.OfSchedules(ctx, l.db, l.now, maxNext)
	if err != nil {
		return err
	}
	failed, err := health.OfRuns(ctx, l.db, l.now)
	if err != nil {
		return err
	}
	if err := l.readQueues(ctx); err != nil {
		return err
	}
	lost, live, err := health.OfProcesses(ctx, l.db, l.now)
	if err != nil {
		return err
	}
	pushed, _, err := health.OfEndpoints(ctx, l.db, l.now)
	if err != nil {
		return err
	}
	files, _, err := health.OfFiles(ctx, l.db)
	if err != nil {
		return err
	}
	written, err := health.OfRows(ctx, l.db, l.queues)
	if err != nil {
		return err
	}
	clock, err := health.OfClock(ctx, l.db, l.now)
	if err != nil {
		return err
	}
	all := slices.Concat(clock, wrong, failed, written, l.wrong, pushed, lost, files)
	known, err := health.Acknowledged(ctx, l.db, l.now)
	if err != nil {
		return err
	}
	found := len(all)
	all = health.Unknown(all, known)
	slices.SortStableFunc(all, func(a, b health.Problem) int { return cmp.Compare(kindOf(&b), kindOf(&a)) })
	s.add(headLine, place{}, "WHAT IS WRONG")
	if len(all) == 0 {
		s.add(goodLine, place{}, "nothing")
	}
	for i := range all {
		l.problem(s, &all[i])
	}
	if n := found - len(all); n > 0 {
		s.add(plainLine, place{}, "%s acknowledged: dbcron doctor", plain.Plural(n, "more is", "more are"))
	}
	if live == 0 {
		s.add(oddLine, place{view: daemonsView}, "No daemon or worker is at work")
	} else {
		s.add(plainLine, place{view: daemonsView}, "%s at work", plain.Plural(live, "daemon or worker is", "daemons and workers are"))
	}
	own := len(s.lines)
	s.add(plainLine, place{}, "")
	l.queueTable(s, 10)
	for i := own; i < len(s.lines); i++ {
		s.lines[i].also = true
	}
	s.add(plainLine, place{}, "")
	rows, lines := [][]string{{"NEXT", "IN", "SCHEDULE"}}, []line(nil)
	for i := range next {
		rows = append(rows, []string{plain.Instant(next[i].Due, time.UTC), l.until(next[i].Due), plain.Cut(next[i].Name, 60)})
		lines = append(lines, line{into: place{runsView, next[i].Name}})
	}
	s.table(rows, lines)
	return nil
}

func kindOf(p *health.Problem) kind {
	if p.Bad {
		return badLine
	}
	return oddLine
}

func (l *Look) problem(s *screen, p *health.Problem) {
	line := p.What()
	if p.Why != "" {
		line += ": " + p.Why
	}
	if !p.Since.IsZero() {
		line += fmt.Sprintf(" (%s ago)", plain.Span(max(0, l.now.Sub(p.Since))))
	}
	into := place{view: daemonsView}
	switch {
	case p.Of == health.Queues, p.Of == health.Endpoints:
		into = place{queueView, p.Name}
	case p.Of != health.Processes && p.Of != health.Rows && p.Of != health.Clock:
		into = place{runsView, p.Name}
	}
	s.add(kindOf(p), into, "%s", line)
}
