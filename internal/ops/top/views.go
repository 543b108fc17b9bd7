// Package top is what dbcron top shows: the views, and the terminal in which a user goes through them.
package top

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
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
	overviewView  = "overview"
	queuesView    = "queues"
	queueView     = "queue"
	schedulesView = "schedules"
	runsView      = "runs"
	locksView     = "locks"
	daemonsView   = "daemons"
)

// Limits of one read. Jobs of queues are counted as on the dashboard.
const (
	maxRows  = 200
	maxNext  = 10
	maxJobs  = 25 // per state
	lookTime = 15 * time.Second
)

// A place is a view and its subject.
type place struct{ view, name string }

// A line is a line of a view.
type line struct {
	text string
	kind kind
	into place // where enter leads; zero: nowhere
	also bool  // it also appears in another view
}

type kind int

const (
	plainLine kind = iota
	headLine
	goodLine
	oddLine // noteworthy
	badLine
)

// A screen is a view at one time.
type screen struct {
	at    place
	title string
	lines []line
	when  time.Time // by the database's clock
	took  time.Duration
	err   error
}

func (s *screen) add(kind kind, into place, format string, args ...any) {
	s.lines = append(s.lines, line{text: fmt.Sprintf(format, args...), kind: kind, into: into})
}

// A Look reads what dbcron top shows. It is not safe for concurrent use.
type Look struct {
	db     *dialect.DB
	queues *admin.Client
	locks  *lock.Locker
	now    time.Time // the database's time

	depths  []health.Depth
	minutes []admin.Minute
	wrong   []health.Problem
	rates   map[string]rate
}

// A rate is the rate of jobs into a queue between two reads.
type rate struct {
	at       time.Time
	depth    int
	done     int // in the last hour, by the counters
	perMin   float64
	measured bool
}

// New returns a look at the tables of a database.
func New(db *dialect.DB) (l *Look, err error) {
	l = &Look{db: db, rates: map[string]rate{}}
	if l.queues, err = admin.New(db, admin.Options{}); err != nil {
		return nil, err
	}
	l.locks, err = lock.New(db, lock.Options{})
	return l, err
}

// Print prints everything once, for output that is not a terminal.
func (l *Look) Print(ctx context.Context, to io.Writer) error {
	w := bufio.NewWriter(to)
	for i, at := range []place{{view: overviewView}, {view: queuesView}, {view: schedulesView}, {view: locksView}, {view: daemonsView}} {
		s := l.at(ctx, at)
		if s.err != nil {
			return s.err
		}
		if i > 0 {
			fmt.Fprintln(w)
			fmt.Fprintln(w, s.title)
		}
		for _, line := range s.lines {
			if i == 0 && line.also { // it follows in full
				continue
			}
			fmt.Fprintln(w, line.text)
		}
	}
	return w.Flush()
}

// at reads a view.
func (l *Look) at(ctx context.Context, place place) *screen {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	s, began := &screen{at: place}, instant.Now()
	l.now, s.err = scheduler.Clock(ctx, l.db)
	s.when = l.now
	if s.err == nil {
		s.err = map[string]func(context.Context, *screen) error{
			overviewView: l.overview, queuesView: l.allQueues, queueView: l.queue, schedulesView: l.schedules,
			runsView: l.runs, locksView: l.allLocks, daemonsView: l.daemons,
		}[place.view](ctx, s)
	}
	s.took = instant.Now().Sub(began)
	return s
}

// table adds aligned rows, of which the first is the heading.
func (s *screen) table(rows [][]string, lines []line) {
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
		l := line{text: strings.TrimRight(b.String(), " "), kind: headLine}
		if i > 0 {
			l.kind, l.into = lines[i-1].kind, lines[i-1].into
		}
		s.lines = append(s.lines, l)
	}
}

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
	all := slices.Concat(wrong, failed, l.wrong, pushed, lost, files)
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
		rows = append(rows, []string{next[i].Due.UTC().Format(time.DateTime), l.until(next[i].Due), plain.Cut(next[i].Name, 60)})
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
	case p.Of != health.Processes:
		into = place{runsView, p.Name}
	}
	s.add(kindOf(p), into, "%s", line)
}

// until formats the time left until an instant.
func (l *Look) until(at time.Time) string {
	if d := at.Sub(l.now); d > 0 {
		return plain.Span(d)
	}
	return "now"
}

// ago formats the time since an instant.
func (l *Look) ago(at time.Time) string {
	if at.IsZero() {
		return "–"
	}
	return plain.Span(max(0, l.now.Sub(at)))
}

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
			fmt.Sprint(r.ID), plain.Cut(r.Schedule, 30), r.Due.UTC().Format(time.DateTime), fmt.Sprint(r.Attempt),
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

func (l *Look) allLocks(ctx context.Context, s *screen) error {
	s.title = "Locks"
	all, err := l.locks.List(ctx, "", 0, maxRows)
	if err != nil {
		return err
	}
	rows, lines := [][]string{{"LOCK", "SLOT", "STATE", "HOLDER", "SINCE", "LEFT", "FENCE", "TAKEOVERS"}}, []line(nil)
	for i := range all {
		k := &all[i]
		kind, left := plainLine, "–"
		if k.State == lock.Expired {
			kind = oddLine
		}
		if k.Left > 0 {
			left = plain.Span(k.Left)
		}
		rows = append(rows, []string{
			plain.Cut(k.Name, 40), fmt.Sprint(k.Slot), string(k.State), plain.Cut(k.By, 40), l.ago(k.Since), left,
			fmt.Sprint(k.Fence), fmt.Sprint(k.Takeovers),
		})
		lines = append(lines, line{kind: kind})
	}
	s.table(rows, lines)
	return nil
}

func (l *Look) daemons(ctx context.Context, s *screen) error {
	s.title = "Daemons and workers"
	nodes, err := scheduler.Nodes(ctx, l.db, "", health.MostQueues)
	if err != nil {
		return err
	}
	nodes = scheduler.Processes(nodes)
	rows, lines := [][]string{{"PROCESS", "VERSION", "STATE", "UP", "LEASE"}}, []line(nil)
	for i := range nodes {
		n := &nodes[i]
		state, kind, lease := n.State, plainLine, "–"
		switch {
		case n.Live:
			lease = l.until(n.Until)
		case n.State != "gone":
			state, kind, lease = "lost", badLine, l.ago(n.Until)+" ago"
		}
		rows = append(rows, []string{plain.Cut(n.Name, 60), cmp.Or(plain.Cut(n.Version, 20), "–"), state, l.ago(n.Started), lease})
		lines = append(lines, line{kind: kind})
	}
	s.table(rows, lines)
	return nil
}
