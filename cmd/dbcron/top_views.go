package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// The views of dbcron top.
const (
	topOverview  = "overview"
	topQueues    = "queues"
	topQueue     = "queue"
	topSchedules = "schedules"
	topRuns      = "runs"
	topLocks     = "locks"
	topDaemons   = "daemons"
)

// Limits of one read. Jobs of queues are counted as on the dashboard.
const (
	topRows     = 200
	topNext     = 10
	topJobs     = 25 // per state
	topLookTime = 15 * time.Second
)

// A topPlace is a view and its subject.
type topPlace struct{ view, name string }

// A topLine is a line of a view.
type topLine struct {
	text string
	kind topKind
	into topPlace // where enter leads; zero: nowhere
	also bool     // it also appears in another view
}

type topKind int

const (
	topPlain topKind = iota
	topHead
	topGood
	topOdd // noteworthy
	topBad
)

// A topScreen is a view at one time.
type topScreen struct {
	at    topPlace
	title string
	lines []topLine
	when  time.Time // by the database's clock
	took  time.Duration
	err   error
}

func (s *topScreen) add(kind topKind, into topPlace, format string, args ...any) {
	s.lines = append(s.lines, topLine{text: fmt.Sprintf(format, args...), kind: kind, into: into})
}

// A topLook reads what dbcron top shows. It is not safe for concurrent use.
type topLook struct {
	db     *dialect.DB
	queues *admin.Client
	locks  *lock.Locker
	now    time.Time // the database's time

	depths  []health.Depth
	minutes []admin.Minute
	wrong   []health.Problem
	rates   map[string]topRate
}

// A topRate is the rate of jobs into a queue between two reads.
type topRate struct {
	at       time.Time
	depth    int
	done     int // in the last hour, by the counters
	perMin   float64
	measured bool
}

func newTopLook(db *dialect.DB) (l *topLook, err error) {
	l = &topLook{db: db, rates: map[string]topRate{}}
	if l.queues, err = admin.New(db, admin.Options{}); err != nil {
		return nil, err
	}
	l.locks, err = lock.New(db, lock.Options{})
	return l, err
}

// at reads a view.
func (l *topLook) at(ctx context.Context, place topPlace) *topScreen {
	ctx, cancel := context.WithTimeout(ctx, topLookTime)
	defer cancel()
	s, began := &topScreen{at: place}, instant.Now()
	l.now, s.err = scheduler.Clock(ctx, l.db)
	s.when = l.now
	if s.err == nil {
		s.err = map[string]func(context.Context, *topScreen) error{
			topOverview: l.overview, topQueues: l.allQueues, topQueue: l.queue, topSchedules: l.schedules,
			topRuns: l.runs, topLocks: l.allLocks, topDaemons: l.daemons,
		}[place.view](ctx, s)
	}
	s.took = instant.Now().Sub(began)
	return s
}

// table adds aligned rows, of which the first is the heading.
func (s *topScreen) table(rows [][]string, lines []topLine) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], text.StringWidthWithoutEscSequences(cell))
		}
	}
	for i, row := range rows {
		var b strings.Builder
		for j, cell := range row {
			b.WriteString(cell)
			if j < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[j]-text.StringWidthWithoutEscSequences(cell)+2))
			}
		}
		l := topLine{text: strings.TrimRight(b.String(), " "), kind: topHead}
		if i > 0 {
			l.kind, l.into = lines[i-1].kind, lines[i-1].into
		}
		s.lines = append(s.lines, l)
	}
}

// overview shows problems first.
func (l *topLook) overview(ctx context.Context, s *topScreen) error {
	s.title = "Overview"
	wrong, next, err := health.OfSchedules(ctx, l.db, l.now, topNext)
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
	all := slices.Concat(wrong, failed, l.wrong, pushed, lost)
	slices.SortStableFunc(all, func(a, b health.Problem) int { return cmp.Compare(topKindOf(&b), topKindOf(&a)) })
	s.add(topHead, topPlace{}, "WHAT IS WRONG")
	if len(all) == 0 {
		s.add(topGood, topPlace{}, "nothing")
	}
	for i := range all {
		l.problem(s, &all[i])
	}
	if live == 0 {
		s.add(topOdd, topPlace{view: topDaemons}, "No daemon or worker is at work")
	} else {
		s.add(topPlain, topPlace{view: topDaemons}, "%s at work", plain.Plural(live, "daemon or worker is", "daemons and workers are"))
	}
	own := len(s.lines)
	s.add(topPlain, topPlace{}, "")
	l.queueTable(s, 10)
	for i := own; i < len(s.lines); i++ {
		s.lines[i].also = true
	}
	s.add(topPlain, topPlace{}, "")
	rows, lines := [][]string{{"NEXT", "IN", "SCHEDULE"}}, []topLine(nil)
	for i := range next {
		rows = append(rows, []string{next[i].Due.UTC().Format(time.DateTime), l.until(next[i].Due), plain.Cut(next[i].Name, 60)})
		lines = append(lines, topLine{into: topPlace{topRuns, next[i].Name}})
	}
	s.table(rows, lines)
	return nil
}

func topKindOf(p *health.Problem) topKind {
	if p.Bad {
		return topBad
	}
	return topOdd
}

func (l *topLook) problem(s *topScreen, p *health.Problem) {
	line := p.What()
	if p.Why != "" {
		line += ": " + p.Why
	}
	if !p.Since.IsZero() {
		line += fmt.Sprintf(" (%s ago)", plain.Span(max(0, l.now.Sub(p.Since))))
	}
	into := topPlace{view: topDaemons}
	switch {
	case p.Of == health.Queues, p.Of == health.Endpoints:
		into = topPlace{topQueue, p.Name}
	case p.Of != health.Processes:
		into = topPlace{topRuns, p.Name}
	}
	s.add(topKindOf(p), into, "%s", line)
}

// until formats the time left until an instant.
func (l *topLook) until(at time.Time) string {
	if d := at.Sub(l.now); d > 0 {
		return plain.Span(d)
	}
	return "now"
}

// ago formats the time since an instant.
func (l *topLook) ago(at time.Time) string {
	if at.IsZero() {
		return "–"
	}
	return plain.Span(max(0, l.now.Sub(at)))
}

// readQueues counts the jobs of all queues and finds their problems.
func (l *topLook) readQueues(ctx context.Context) (err error) {
	l.depths, l.minutes, l.wrong, err = lookAtQueues(ctx, l.queues, l.now)
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
func (l *topLook) measure(d *health.Depth) {
	is := topRate{at: l.now, depth: d.Ready + d.Running + d.Delayed}
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
func (l *topLook) queueTable(s *topScreen, limit int) {
	all := slices.Clone(l.depths)
	slices.SortStableFunc(all, func(a, b health.Depth) int { return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(b.Ready, a.Ready)) })
	head := []string{"QUEUE", "STATE", "READY", "OLDEST", "RUNNING", "DELAYED", "DEAD", "IN/MIN", "OUT/MIN", "EMPTY IN"}
	rows, lines := [][]string{head}, []topLine(nil)
	flows := health.Flows(l.minutes, l.now)
	for i := range all[:min(len(all), limit)] {
		d := &all[i]
		oldest, in, empty := "–", "–", "–"
		if d.Waiting() > 0 {
			oldest, empty = plain.Span(d.Age), d.Empty(flows[d.Name], l.now).String()
		}
		if r := l.rates[d.Name]; r.measured {
			in = fmt.Sprintf("%.0f", r.perMin)
		}
		line := topLine{into: topPlace{topQueue, d.Name}}
		switch {
		case d.Behind():
			line.kind = topBad
		case d.State != "active" || d.Dead > 0:
			line.kind = topOdd
		}
		rows = append(rows, []string{
			plain.Cut(d.Name, 30), d.State, plain.Count(d.Ready, d.Limit), oldest, plain.Count(d.Running, d.Limit), plain.Count(d.Delayed, d.Limit),
			plain.Count(d.Dead, d.Limit), in, fmt.Sprintf("%.0f", flows[d.Name].Out), empty,
		})
		lines = append(lines, line)
	}
	s.table(rows, lines)
	if more := len(all) - limit; more > 0 {
		s.add(topPlain, topPlace{view: topQueues}, "%s", plain.Plural(more, "more queue", "more queues"))
	}
}

func (l *topLook) allQueues(ctx context.Context, s *topScreen) error {
	s.title = "Queues"
	if err := l.readQueues(ctx); err != nil {
		return err
	}
	l.queueTable(s, health.MostQueues)
	return nil
}

// queue shows a queue and its jobs.
func (l *topLook) queue(ctx context.Context, s *topScreen) error {
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
		s.add(topOdd, topPlace{}, "paused: %s", plain.Cut(q.Reason, 200))
	}
	rows, lines := [][]string{{"JOB", "STATE", "KIND", "KEY", "ATTEMPTS", "ENQUEUED", "ERROR OR WORKER"}}, []topLine(nil)
	for _, state := range []admin.State{admin.StateRunning, admin.StateDead, admin.StateDelayed, admin.StateReady} {
		jobs, _, err := l.queues.Jobs(ctx, admin.Filter{Queue: name, State: state, Limit: topJobs})
		if err != nil {
			return err
		}
		for i := range jobs {
			j := &jobs[i]
			line := topLine{}
			switch {
			case j.State == admin.StateDead:
				line.kind = topBad
			case j.Error != "":
				line.kind = topOdd
			}
			rows = append(rows, []string{
				fmt.Sprint(j.ID), string(j.State), plain.Cut(j.Kind, 30), plain.Cut(j.Key, 30), fmt.Sprint(j.Attempts), l.ago(j.Enqueued) + " ago",
				plain.Cut(cmp.Or(j.Error, j.Worker), 120),
			})
			lines = append(lines, line)
		}
	}
	s.add(topPlain, topPlace{}, "")
	s.table(rows, lines)
	return nil
}

// schedules shows failed schedules, and then the others by next slot.
func (l *topLook) schedules(ctx context.Context, s *topScreen) error {
	s.title = "Schedules"
	failed, err := scheduler.InState(ctx, l.db, "failed", topRows)
	if err != nil {
		return err
	}
	planned, err := scheduler.Upcoming(ctx, l.db, topRows)
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
	rows, lines := [][]string{{"SCHEDULE", "STATE", "NEXT IN", "LAST RUN", "SPEC", "WHY"}}, []topLine(nil)
	add := func(sc *scheduler.Schedule, next, why string, kind topKind) {
		was := "–"
		if r := last[sc.Name]; r != nil {
			was = r.State + ", " + l.ago(r.Finished) + " ago"
			if slices.Contains([]string{"failed", "timeout", "lost"}, r.State) {
				kind = max(kind, topBad)
				why = cmp.Or(why, r.Error)
			}
		}
		rows = append(rows, []string{plain.Cut(sc.Name, 40), sc.State, next, was, plain.Cut(sc.Spec, 20), plain.Cut(why, 100)})
		lines = append(lines, topLine{kind: kind, into: topPlace{topRuns, sc.Name}})
	}
	for i := range failed {
		add(&failed[i], "–", failed[i].Reason, topBad)
	}
	for i := range planned {
		why, kind := health.Lateness(&planned[i], l.now), topPlain
		if why != "" {
			kind = topBad
		}
		add(&planned[i].Schedule, l.until(planned[i].Due), why, kind)
	}
	s.table(rows, lines)
	return nil
}

// runs shows the newest runs, of one schedule or of all.
func (l *topLook) runs(ctx context.Context, s *topScreen) (err error) {
	s.title = "Runs"
	var runs []scheduler.Run
	if s.at.name != "" {
		s.title = "Runs of " + plain.Cut(s.at.name, 60)
		runs, err = scheduler.ShortHistory(ctx, l.db, s.at.name, topRows)
	} else {
		runs, _, err = scheduler.RecentRuns(ctx, l.db, scheduler.RunFilter{Limit: topRows})
	}
	if err != nil {
		return err
	}
	rows, lines := [][]string{{"RUN", "SCHEDULE", "SLOT", "ATTEMPT", "STATE", "TOOK", "ERROR"}}, []topLine(nil)
	for i := range runs {
		r := &runs[i]
		took, kind := "–", topPlain
		switch {
		case !r.Started.IsZero() && !r.Finished.IsZero():
			took = plain.Span(max(0, r.Finished.Sub(r.Started)))
		case r.State == "running":
			took = l.ago(r.Started)
		}
		switch r.State {
		case "failed", "timeout", "lost":
			kind = topBad
		case "skipped", "missed", "retry", "cancelled":
			kind = topOdd
		}
		rows = append(rows, []string{
			fmt.Sprint(r.ID), plain.Cut(r.Schedule, 30), r.Due.UTC().Format(time.DateTime), fmt.Sprint(r.Attempt),
			r.State, took, plain.Cut(r.Error, 100),
		})
		line := topLine{kind: kind}
		if s.at.name == "" {
			line.into = topPlace{topRuns, r.Schedule}
		}
		lines = append(lines, line)
	}
	s.table(rows, lines)
	return nil
}

func (l *topLook) allLocks(ctx context.Context, s *topScreen) error {
	s.title = "Locks"
	all, err := l.locks.List(ctx, "", 0, topRows)
	if err != nil {
		return err
	}
	rows, lines := [][]string{{"LOCK", "SLOT", "STATE", "HOLDER", "SINCE", "LEFT", "FENCE", "TAKEOVERS"}}, []topLine(nil)
	for i := range all {
		k := &all[i]
		kind, left := topPlain, "–"
		if k.State == lock.Expired {
			kind = topOdd
		}
		if k.Left > 0 {
			left = plain.Span(k.Left)
		}
		rows = append(rows, []string{
			plain.Cut(k.Name, 40), fmt.Sprint(k.Slot), string(k.State), plain.Cut(k.By, 40), l.ago(k.Since), left,
			fmt.Sprint(k.Fence), fmt.Sprint(k.Takeovers),
		})
		lines = append(lines, topLine{kind: kind})
	}
	s.table(rows, lines)
	return nil
}

func (l *topLook) daemons(ctx context.Context, s *topScreen) error {
	s.title = "Daemons and workers"
	nodes, err := scheduler.Nodes(ctx, l.db, "", health.MostQueues)
	if err != nil {
		return err
	}
	rows, lines := [][]string{{"PROCESS", "VERSION", "STATE", "UP", "LEASE"}}, []topLine(nil)
	for i := range nodes {
		n := &nodes[i]
		state, kind, lease := n.State, topPlain, "–"
		switch {
		case n.Live:
			lease = l.until(n.Until)
		case n.State != "gone":
			state, kind, lease = "lost", topBad, l.ago(n.Until)+" ago"
		}
		rows = append(rows, []string{plain.Cut(n.Name, 60), cmp.Or(plain.Cut(n.Version, 20), "–"), state, l.ago(n.Started), lease})
		lines = append(lines, topLine{kind: kind})
	}
	s.table(rows, lines)
	return nil
}
