package top

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue/admin"
)

// readQueues counts the jobs of all queues and finds their problems.
func (l *Look) readQueues(ctx context.Context) (err error) {
	l.depths, l.minutes, l.wrong, err = health.AllQueues(ctx, l.db, l.queues, l.now)
	if err != nil {
		return err
	}
	for i := range l.depths {
		l.measure(&l.depths[i])
	}
	return nil
}

// measure computes how many jobs entered a queue since the last read: its jobs now plus those done meanwhile, minus
// its jobs then.
func (l *Look) measure(d *health.Depth) {
	is := rate{at: l.now, depth: d.Ready + d.Running + d.Delayed}
	for _, m := range l.minutes {
		if m.Queue == d.Name {
			is.done += m.Done + m.Dead
		}
	}
	was, ok := l.rates[d.Name]
	if passed := l.now.Sub(was.at); ok && passed < time.Second {
		return
	} else if counted := max(d.Ready, d.Running, d.Delayed) < d.Limit; ok && counted {
		is.measured = true
		is.perMin = max(0, float64(is.depth-was.depth+is.done-was.done)/passed.Minutes())
		if was.measured { // the counters are written once a second
			is.perMin = (is.perMin + 2*was.perMin) / 3
		}
	}
	l.rates[d.Name] = is
}

// queueTable adds up to limit queues, those that lag behind first.
func (l *Look) queueTable(s *screen, limit int) {
	all := slices.Clone(l.depths)
	slices.SortStableFunc(all, func(a, b health.Depth) int { return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(b.Ready, a.Ready)) })
	head := []string{"QUEUE", "STATE", "READY", "OLDEST", "RUNNING", "DELAYED", "DEAD", "IN/MIN", "OUT/MIN", "EMPTY IN"}
	rows, lines := [][]string{head}, []line(nil)
	flows := health.Flows(l.minutes, l.now)
	for i := range all[:min(len(all), limit)] {
		d := &all[i]
		oldest, in, empty := "–", "–", "–"
		if d.Ready > 0 {
			oldest, empty = plain.Span(d.Age), d.Empty(flows[d.Name], l.now).String()
		}
		if r := l.rates[d.Name]; r.measured {
			in = fmt.Sprintf("%.0f", r.perMin)
		}
		line := line{into: place{queueView, d.Name}}
		switch {
		case d.Behind():
			line.kind = badLine
		case d.State != "active" || d.Dead > 0:
			line.kind = oddLine
		}
		rows = append(rows, []string{
			plain.Cut(d.Name, 30), d.State, plain.Count(d.Ready, d.Limit), oldest, plain.Count(d.Running, d.Limit), plain.Count(d.Delayed, d.Limit),
			plain.Count(d.Dead, d.Limit), in, fmt.Sprintf("%.0f", flows[d.Name].Out), empty,
		})
		lines = append(lines, line)
	}
	s.table(rows, lines)
	if more := len(all) - limit; more > 0 {
		s.add(plainLine, place{view: queuesView}, "%s", plain.Plural(more, "more queue", "more queues"))
	}
}

func (l *Look) allQueues(ctx context.Context, s *screen) error {
	s.title = "Queues"
	if err := l.readQueues(ctx); err != nil {
		return err
	}
	l.queueTable(s, health.MostQueues)
	return nil
}

// queue shows a queue and its jobs.
func (l *Look) queue(ctx context.Context, s *screen) error {
	name := s.at.name
	s.title = "Queue " + plain.Cut(name, 60)
	q, err := l.queues.Queue(ctx, name)
	if err != nil {
		return err
	}
	if l.depths, err = health.Depths(ctx, l.queues, []admin.Queue{q}, health.CountTo, l.now); err != nil {
		return err
	}
	if l.minutes, err = l.queues.FinishedByMinute(ctx, time.Hour); err != nil {
		return err
	}
	l.measure(&l.depths[0])
	l.queueTable(s, 1)
	if q.Reason != "" {
		s.add(oddLine, place{}, "paused: %s", plain.Cut(q.Reason, 200))
	}
	rows, lines := [][]string{{"JOB", "STATE", "KIND", "KEY", "ATTEMPTS", "ENQUEUED", "ERROR OR WORKER"}}, []line(nil)
	for _, state := range []admin.State{admin.StateRunning, admin.StateDead, admin.StateDelayed, admin.StateReady} {
		jobs, _, err := l.queues.Jobs(ctx, admin.Filter{Queue: name, State: state, Limit: maxJobs})
		if err != nil {
			return err
		}
		for i := range jobs {
			j := &jobs[i]
			line := line{}
			switch {
			case j.State == admin.StateDead:
				line.kind = badLine
			case j.Error != "":
				line.kind = oddLine
			}
			rows = append(rows, []string{
				fmt.Sprint(j.ID), string(j.State), plain.Cut(j.Kind, 30), plain.Cut(j.Key, 30), fmt.Sprint(j.Attempts), l.ago(j.Enqueued) + " ago",
				plain.Cut(cmp.Or(j.Error, j.Worker), 120),
			})
			lines = append(lines, line)
		}
	}
	s.add(plainLine, place{}, "")
	s.table(rows, lines)
	return nil
}
