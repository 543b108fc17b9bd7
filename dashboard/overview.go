package dashboard

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

const (
	nextRuns = 10

	// glanceJobs limits the jobs of a state that the overview counts, across all queues, so
	// that many queues with many jobs do not slow it down. Each queue gets its share, but at
	// least glanceLeast.
	glanceJobs  = 50_000
	glanceLeast = 1000
)

// A problem is something wrong, with a link to more about it.
type problem struct {
	Bad   bool // broken, and not merely worth a look
	What  string
	Link  string
	Why   string
	Do    string // what to do about it
	Since time.Time
	Act   *act   // a button, for who may; nil: none
	ID    string // to acknowledge it by; "": nobody can
	Known string // who has acknowledged it
}

// An act is what a button does about a problem, on one of the dashboard's pages.
type act struct {
	Page, Do, Label string
	To              string
	Asks            bool // the page asks first, so that it is a link
}

// actOf returns what a button does about a problem, or nil.
func actOf(p *health.Problem) *act {
	switch {
	case p.Act == "retry":
		return &act{"bulk", "retry", "Retry…", link("bulk", "queue", p.Name, "state", "dead", "do", "retry"), true}
	case p.Act == "run":
		return &act{"schedule", "run", "Run now", link("schedule", "name", p.Name), false}
	case p.Act == "resume" && p.Of == health.Queues:
		return &act{"queue", "resume", "Resume", link("queue", "name", p.Name), false}
	case p.Act == "resume":
		return &act{"schedule", "resume", "Resume", link("schedule", "name", p.Name), false}
	}
	return nil
}

type overviewData struct {
	Problems []problem
	Known    []problem // those that were acknowledged
	All      bool      // every check was made
	Chart    chart
	Spans    []spanSum // the last hour and the last day
	Next     []scheduler.Planned
	Queues   int
	Sums     []sum // totals of all queues
	Read     bool  // the queues could be read, and there is one of somebody's or nothing else
	Runs     *runsSum
}

// A runsSum is what became of the runs of the last hour.
type runsSum struct {
	Chart   chart
	Running int // now
}

// hourOfRuns limits the runs of the last hour that are counted.
const hourOfRuns = 5000

func (d *Dashboard) readRuns(ctx context.Context) (*runsSum, error) {
	now, err := scheduler.Clock(ctx, d.db)
	if err != nil {
		return nil, err
	}
	runs, _, err := scheduler.RecentRuns(ctx, d.db, scheduler.RunFilter{Since: now.Add(-time.Hour), Limit: hourOfRuns})
	if err != nil {
		return nil, err
	}
	var minutes []admin.Minute
	for i := range runs {
		r := &runs[i]
		m := admin.Minute{Begins: r.Finished.Truncate(time.Minute), Took: took(r)}
		switch r.State {
		case "ok":
			m.Done = 1
		case "failed", "timeout", "lost":
			m.Failed = 1
		default:
			continue
		}
		minutes = append(minutes, m)
	}
	s := &runsSum{Chart: chartOf(minutes, "", now)}
	s.Chart.Runs = true
	running, err := scheduler.Executing(ctx, d.db)
	for _, n := range running {
		s.Running += n
	}
	return s, err
}

// A spanSum is the work done in a period, across all queues.
type spanSum struct {
	Name               string
	Done, Failed, Dead int
	Rate               string // jobs ended per minute
	Wait, Took         time.Duration
}

// spanOf sums up a period. Each part has n attempts, and their total waiting time and duration.
func spanOf(name string, last time.Duration, parts iter.Seq[admin.Minute]) spanSum {
	s := spanSum{Name: name}
	var waited, took time.Duration
	for m := range parts {
		s.Done, s.Failed, s.Dead = s.Done+m.Done, s.Failed+m.Failed, s.Dead+m.Dead
		waited, took = waited+m.Waited, took+m.Took
	}
	s.Rate = plain.Rate(float64(s.Done+s.Dead) / last.Minutes())
	if n := time.Duration(s.Done + s.Failed + s.Dead); n > 0 {
		s.Wait, s.Took = waited/n, took/n
	}
	return s
}

// A sum is the number of jobs in a state, across all queues.
type sum struct {
	Name string
	N    int
	More bool // there are more
}

func (d *Dashboard) overview(ctx context.Context, r *request) (*view, error) {
	data := &overviewData{}
	v := &view{template: "overview.html", title: "Overview", section: "overview", data: data}
	for _, part := range []struct {
		name string
		read func(context.Context, *request, *overviewData) error
	}{
		{"The checks of the database", d.wrongDatabase}, // whose findings are the cause of others
		{"Schedules", d.wrongSchedules},
		{"Failed runs", d.wrongRuns},
		{"Queues", d.wrongQueues},
		{"Endpoints", d.wrongEndpoints},
		{"Daemons", d.wrongDaemons},
		{"Files of schedules", d.wrongFiles},
		{"Rows", d.wrongRows},
		{"Tokens", d.wrongTokens},
	} {
		if err := part.read(ctx, r, data); err != nil {
			v.troubles = append(v.troubles, d.trouble(part.name, err))
		}
	}
	data.All = len(v.troubles) == 0
	known, err := health.Acknowledged(ctx, d.db, r.now)
	if err != nil {
		v.troubles = append(v.troubles, d.trouble("The audit", err))
	}
	data.Problems = slices.DeleteFunc(data.Problems, func(p problem) bool {
		e, is := known[p.ID]
		if is {
			p.Known = health.KnownText(&e, r.now)
			data.Known = append(data.Known, p)
		}
		return is
	})
	slices.SortStableFunc(data.Problems, func(a, b problem) int { return boolInt(b.Bad) - boolInt(a.Bad) })
	return v, nil
}

// acknowledge marks a finding of the overview as known until it changes, and reopen ends that. The audit's entry is what is kept of it.
func (d *Dashboard) acknowledge(ctx context.Context, r *request) (outcome, error) {
	return d.mark(ctx, r, health.Acknowledge, "acknowledged")
}

func (d *Dashboard) reopen(ctx context.Context, r *request) (outcome, error) {
	return d.mark(ctx, r, health.Reopen, "reopened")
}

func (d *Dashboard) mark(ctx context.Context, r *request, action, note string) (outcome, error) {
	id, err := r.formName("id")
	if err != nil {
		return outcome{}, err
	}
	done := outcome{note: note, to: "./?", recorded: true}
	_, err = audit.Write(ctx, d.db, entryOf(r, outcome{
		action: action, object: id, detail: health.Acknowledging(r.PostForm.Get("what"), plain.Cut(r.PostForm.Get("reason"), 200)),
	}, nil))
	return done, err
}

// found adds problems to the page.
func (data *overviewData) found(all []health.Problem) {
	for i := range all {
		p := &all[i]
		shown := problem{Bad: p.Bad, What: p.What(), Why: p.Why, Do: p.Do, Since: p.Since, Act: actOf(p), ID: p.ID()}
		switch {
		case p.Of == health.Schedules && p.Name == "":
			shown.Link = "schedules"
		case p.Of == health.Schedules:
			shown.Link = link("schedule", "name", p.Name)
		case p.Of == health.Runs && p.Run != 0:
			shown.Link = link("run", "id", p.Run)
		case p.Of == health.Runs:
			shown.Link = link("runs", "state", "failed")
		case p.Dead:
			shown.Link = link("jobs", "queue", p.Name, "state", "dead")
		case p.Of == health.Queues && p.Name == "":
			shown.Link = "queues"
		case p.Of == health.Queues, p.Of == health.Endpoints:
			shown.Link = link("queue", "name", p.Name)
		case p.Of == health.Processes:
			shown.Link = "daemons"
		}
		data.Problems = append(data.Problems, shown)
	}
}

// wrongSchedules finds what is wrong with schedules, and the next slots.
func (d *Dashboard) wrongSchedules(ctx context.Context, r *request, data *overviewData) (err error) {
	var all []health.Problem
	if all, data.Next, err = health.OfSchedules(ctx, d.db, r.now, nextRuns); err != nil {
		return err
	}
	data.found(all)
	return nil
}

// wrongRuns finds failures of the last day, by schedule.
func (d *Dashboard) wrongRuns(ctx context.Context, r *request, data *overviewData) error {
	all, err := health.OfRuns(ctx, d.db, r.now)
	data.found(all)
	if err != nil {
		return err
	}
	is, err := d.runs.get(ctx, d.readRuns)
	if err == nil && (len(data.Next) > 0 || is.Running+is.Chart.Done+is.Chart.Failed > 0) {
		data.Runs = is
	}
	return err
}

// wrongQueues finds queues that are behind or paused, and dead letters of the last day. It also
// draws the chart of the last hour.
func (d *Dashboard) wrongQueues(ctx context.Context, r *request, data *overviewData) error {
	lately, err := d.lately.get(ctx, d.readLately)
	if err != nil {
		return err
	}
	minutes, finished := lately.hour, lately.day
	data.Chart = chartOf(minutes, "", r.now)
	dead := health.DeathsOf(finished)
	data.Spans = []spanSum{
		spanOf("hour", time.Hour, slices.Values(minutes)),
		spanOf("day", 24*time.Hour, func(yield func(admin.Minute) bool) {
			for _, f := range finished {
				n := time.Duration(f.Done + f.Failed + f.Dead)
				if !yield(admin.Minute{Done: f.Done, Failed: f.Failed, Dead: f.Dead, Waited: n * f.Wait, Took: n * f.Took}) {
					return
				}
			}
		}),
	}
	all, err := d.glanceOf(ctx)
	if err != nil {
		return err
	}
	data.Sums = []sum{{Name: "ready"}, {Name: "running"}, {Name: "dead"}}
	for i := range all {
		q := &all[i]
		if q.State == "deleted" {
			continue
		}
		data.Queues++
		data.Read = data.Read || !jobfield.Reserved(q.Name)
		for i, n := range []int{q.Ready, q.Running, q.Dead} {
			data.Sums[i].N += n
			data.Sums[i].More = data.Sums[i].More || n >= q.Limit
		}
	}
	data.Read = data.Read || data.Runs == nil // who has schedules only looks at these
	wrong, err := health.OfQueues(ctx, d.db, d.admin, all, minutes, dead, r.now)
	data.found(wrong)
	if err != nil {
		return err
	}
	idle, err := health.OfWorkers(ctx, d.admin)
	data.found(idle)
	return err
}

// wrongFiles finds schedule files that were not imported, or differ between daemons.
func (d *Dashboard) wrongFiles(ctx context.Context, _ *request, data *overviewData) error {
	all, _, err := health.OfFiles(ctx, d.db)
	data.found(all)
	return err
}

// wrongRows finds rows that somebody has written and that mean nothing.
func (d *Dashboard) wrongRows(ctx context.Context, _ *request, data *overviewData) error {
	all, err := health.OfRows(ctx, d.db, d.admin)
	data.found(all)
	return err
}

// wrongEndpoints finds endpoints that throttle or fail.
func (d *Dashboard) wrongEndpoints(ctx context.Context, r *request, data *overviewData) error {
	all, _, err := health.OfEndpoints(ctx, d.db, r.now)
	data.found(all)
	return err
}

// wrongDaemons finds processes that have missed their heartbeats. The tables keep them for a
// day.
func (d *Dashboard) wrongDaemons(ctx context.Context, r *request, data *overviewData) error {
	all, _, err := health.OfProcesses(ctx, d.db, r.now)
	data.found(all)
	return err
}

func (d *Dashboard) wrongTokens(ctx context.Context, r *request, data *overviewData) error {
	tokens, err := d.api.Tokens().List(ctx)
	if err != nil {
		return err
	}
	for _, t := range tokens {
		if trouble := t.Trouble(r.now); trouble != "" {
			data.Problems = append(data.Problems, problem{
				What: "Token " + plain.Clean(t.Name) + " " + trouble, Link: "tokens", Why: "its users need a new one",
				Do: "create one: dbcron token create", Since: t.Expires,
			})
		}
	}
	return nil
}

// minutesOf returns the counts of the last hour.
func (d *Dashboard) minutesOf(ctx context.Context) ([]admin.Minute, error) {
	return d.minutes.get(ctx, func(ctx context.Context) ([]admin.Minute, error) { return d.admin.FinishedByMinute(ctx, time.Hour) })
}

// doneLately has the counts of the last hour and the last day.
type doneLately struct {
	hour []admin.Minute
	day  []admin.Finished
}

// readLately reads the day after the hour, so that the hour never exceeds the day.
func (d *Dashboard) readLately(ctx context.Context) (l doneLately, err error) {
	if l.hour, err = d.minutesOf(ctx); err != nil {
		return l, err
	}
	l.day, err = d.admin.Finished(ctx, 24*time.Hour)
	return l, err
}

// countsOf counts the jobs of the first thousand queues.
func (d *Dashboard) countsOf(ctx context.Context) ([]health.Depth, error) {
	return d.counts.get(ctx, func(ctx context.Context) ([]health.Depth, error) {
		queues, err := d.admin.Queues(ctx, "", health.MostQueues)
		if err != nil {
			return nil, err
		}
		return d.depthsOf(ctx, queues, health.CountTo)
	})
}

// glanceOf is countsOf for the overview: with more queues, it counts fewer jobs of each.
func (d *Dashboard) glanceOf(ctx context.Context) ([]health.Depth, error) {
	return d.glance.get(ctx, func(ctx context.Context) ([]health.Depth, error) {
		queues, err := d.admin.Queues(ctx, "", health.MostQueues)
		if err != nil {
			return nil, err
		}
		if limit := glanceLimit(len(queues)); limit < health.CountTo {
			return d.depthsOf(ctx, queues, limit)
		}
		return d.countsOf(ctx)
	})
}

// glanceLimit returns up to how many thousand jobs of each state the overview counts in each
// queue.
func glanceLimit(queues int) int {
	return min(health.CountTo, max(glanceLeast, glanceJobs/max(1, queues)/1000*1000))
}

func (d *Dashboard) depthsOf(ctx context.Context, queues []admin.Queue, limit int) ([]health.Depth, error) {
	now, err := scheduler.Clock(ctx, d.db)
	if err != nil {
		return nil, err
	}
	return health.Depths(ctx, d.admin, queues, limit, now)
}

// MayAct reports whether the page shows actions.
func (p *page) MayAct() bool { return p.Who.Operate }

// May reports whether the page shows an action of one of the dashboard's pages.
func (p *page) May(page, do string) bool { return p.Who.may("/"+page, do) }
