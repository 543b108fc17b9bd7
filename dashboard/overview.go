package dashboard

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
)

const (
	countTo      = 10_000           // jobs of a queue and state
	mostQueues   = 1000             // that are counted
	behindAfter  = time.Minute      // that the oldest ready job of a queue waits
	lateAfter    = 10 * time.Second // that a schedule's slot has come, and no daemon has claimed it
	expiresSoon  = 7 * 24 * time.Hour
	mostProblems = 10 // of a kind that are listed
	nextRuns     = 10
	failedBack   = 24 * time.Hour
)

// queueCounts are how many jobs a queue has.
type queueCounts struct {
	queue.Queue
	queue.Counts
	Age time.Duration // of the oldest ready job
}

// A problem is something that is wrong, and where to look.
type problem struct {
	Bad   bool // it is broken, and not only worth a look
	What  string
	Link  string
	Why   string
	Since time.Time
}

type overviewData struct {
	Problems []problem
	All      bool // all that could be wrong was looked at
	Chart    chart
	Next     []scheduler.Planned
	Queues   int
	Sums     []sum // of all queues
	Read     bool  // the queues were read
}

// A sum is how many jobs of all queues are in a state.
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
		{"Schedules", d.wrongSchedules},
		{"Failed runs", d.wrongRuns},
		{"Queues", d.wrongQueues},
		{"Daemons", d.wrongDaemons},
		{"Tokens", d.wrongTokens},
	} {
		if err := part.read(ctx, r, data); err != nil {
			v.troubles = append(v.troubles, d.trouble(part.name, err))
		}
	}
	data.All = len(v.troubles) == 0
	slices.SortStableFunc(data.Problems, func(a, b problem) int { return boolInt(b.Bad) - boolInt(a.Bad) })
	return v, nil
}

// wrongSchedules finds those that were given up, and those that are late.
func (d *Dashboard) wrongSchedules(ctx context.Context, r *request, data *overviewData) error {
	failed, err := scheduler.InState(ctx, d.db, "failed", mostProblems)
	if err != nil {
		return err
	}
	for _, s := range failed {
		data.Problems = append(data.Problems, problem{true, "Schedule " + clean(s.Name) + " was given up", link("schedule", "name", s.Name), cut(s.Reason, 200), time.Time{}})
	}
	planned, err := scheduler.Upcoming(ctx, d.db, mostProblems+nextRuns)
	if err != nil {
		return err
	}
	for _, s := range planned {
		if why := lateness(&s, r.now); why == "" {
			if len(data.Next) < nextRuns {
				data.Next = append(data.Next, s)
			}
		} else {
			data.Problems = append(data.Problems, problem{true, "Schedule " + clean(s.Name) + " is late", link("schedule", "name", s.Name), why, s.Due})
		}
	}
	return nil
}

// lateness tells why a schedule is late, or "" if it is not.
func lateness(s *scheduler.Planned, now time.Time) string {
	switch {
	case s.Due.IsZero() || now.Sub(s.Due) < s.Jitter+lateAfter:
		return ""
	case s.Reason != "":
		return cut("daemons cannot claim it: "+s.Reason, 200)
	}
	return "no daemon has claimed its slot; it takes one with the tag " + cut(s.Tag, 60) + " that has a place free"
}

// wrongRuns finds what has failed in the last day, by schedule.
func (d *Dashboard) wrongRuns(ctx context.Context, r *request, data *overviewData) error {
	runs, _, err := scheduler.RecentRuns(ctx, d.db, scheduler.RunFilter{States: []string{"failed", "timeout", "lost"}, Limit: 200})
	if err != nil {
		return err
	}
	type failures struct {
		n    int
		last scheduler.Run
	}
	by := map[string]*failures{}
	var names []string
	for _, run := range runs {
		if run.Finished.IsZero() || r.now.Sub(run.Finished) > failedBack {
			continue
		}
		if by[run.Schedule] == nil {
			by[run.Schedule] = &failures{last: run}
			names = append(names, run.Schedule)
		}
		by[run.Schedule].n++
	}
	for _, name := range names[:min(len(names), mostProblems)] {
		f := by[name]
		why := f.last.State
		if f.last.Error != "" {
			why = cut(f.last.Error, 200)
		}
		if f.n > 1 {
			why = fmt.Sprintf("%d times in a day; last: %s", f.n, why)
		}
		data.Problems = append(data.Problems, problem{true, "A run of " + clean(name) + " failed", link("run", "id", f.last.ID), why, f.last.Finished})
	}
	if more := len(names) - mostProblems; more > 0 {
		data.Problems = append(data.Problems, problem{true, "Runs of " + plural(more, "more schedule", "more schedules") + " failed", link("runs", "state", "failed"), "in the last day", time.Time{}})
	}
	return nil
}

// wrongQueues finds queues that are behind or paused, and dead letters of the last day; and
// draws what was done in the last hour.
func (d *Dashboard) wrongQueues(ctx context.Context, r *request, data *overviewData) error {
	minutes, err := d.minutesOf(ctx)
	if err != nil {
		return err
	}
	data.Chart = chartOf(minutes, "", r.now)
	dead, err := d.deadOfDay(ctx)
	if err != nil {
		return err
	}
	all, err := d.countsOf(ctx)
	if err != nil {
		return err
	}
	data.Read, data.Sums = true, []sum{{Name: "ready"}, {Name: "running"}, {Name: "dead"}}
	var behind, given, paused []problem
	for i := range all {
		q := &all[i]
		if q.State == "deleted" {
			continue
		}
		data.Queues++
		for i, n := range []int{q.Ready, q.Running, q.Dead} {
			data.Sums[i].N += n
			data.Sums[i].More = data.Sums[i].More || n >= q.Limit
		}
		to := link("queue", "name", q.Name)
		switch {
		case q.State == "paused":
			why := "for " + plural(q.Ready, "job", "jobs") + " that wait"
			if q.Ready >= q.Limit {
				why = "for " + count(q.Ready, q.Limit) + " jobs that wait"
			}
			if q.Reason != "" {
				why = cut(q.Reason, 200)
			}
			paused = append(paused, problem{false, "Queue " + clean(q.Name) + " is paused", to, why, time.Time{}})
		case q.Age >= behindAfter:
			behind = append(behind, problem{true, "Queue " + clean(q.Name) + " is behind", to, q.outlook(rate(minutes, q.Name, r.now)), r.now.Add(-q.Age)})
		}
		if n := dead[q.Name]; n > 0 {
			given = append(given, problem{false, plural(n, "job", "jobs") + " of queue " + clean(q.Name) + " died", link("jobs", "queue", q.Name, "state", "dead"), "in the last day", time.Time{}})
		}
	}
	slices.SortStableFunc(behind, func(a, b problem) int { return a.Since.Compare(b.Since) })
	for _, list := range [][]problem{behind, given, paused} {
		data.Problems = append(data.Problems, list[:min(len(list), mostProblems)]...)
	}
	return nil
}

// outlook tells how many jobs wait in a queue, and how long that lasts if it goes on as in the
// last ten minutes and nothing is added.
func (q *queueCounts) outlook(perMinute float64) string {
	text := count(q.Ready, q.Limit) + " ready, the oldest for " + span(q.Age)
	switch {
	case perMinute == 0:
		return text + "; none was done in the last ten minutes"
	case q.Ready >= q.Limit:
		return fmt.Sprintf("%s; %.0f a minute are done", text, max(1, perMinute))
	}
	return text + "; at the present rate they are done in " + span(time.Duration(float64(q.Ready)/perMinute*float64(time.Minute)))
}

// wrongDaemons finds processes that were not heard of in time. The tables keep them for a day.
func (d *Dashboard) wrongDaemons(ctx context.Context, r *request, data *overviewData) error {
	nodes, err := scheduler.Nodes(ctx, d.db, "", listed)
	if err != nil {
		return err
	}
	n := 0
	for _, node := range nodes {
		if node.State == "gone" || node.Live || r.now.Sub(node.Until) > failedBack {
			continue
		}
		if n++; n <= mostProblems {
			data.Problems = append(data.Problems, problem{false, "Process " + clean(node.Name) + " was lost", "daemons", "it did not end as it should, and is not heard of any more", node.Until})
		}
	}
	return nil
}

func (d *Dashboard) wrongTokens(ctx context.Context, r *request, data *overviewData) error {
	tokens, err := d.api.Tokens().List(ctx)
	if err != nil {
		return err
	}
	for _, t := range tokens {
		if !t.Expires.IsZero() && t.Revoked.IsZero() && !t.Expired && t.Expires.Sub(r.now) < expiresSoon {
			data.Problems = append(data.Problems, problem{false, "Token " + clean(t.Name) + " expires", "", "whoever uses it needs another one", t.Expires})
		}
	}
	return nil
}

// minutesOf returns what was done in the last hour.
func (d *Dashboard) minutesOf(ctx context.Context) ([]queue.Minute, error) {
	return d.minutes.get(ctx, func(ctx context.Context) ([]queue.Minute, error) { return d.queues.FinishedByMinute(ctx, time.Hour) })
}

// deadOfDay returns how many jobs of each queue died in the last day.
func (d *Dashboard) deadOfDay(ctx context.Context) (map[string]int, error) {
	all, err := d.finished.get(ctx, func(ctx context.Context) ([]queue.Finished, error) { return d.queues.Finished(ctx, 24*time.Hour) })
	dead := map[string]int{}
	for _, f := range all {
		dead[f.Queue] += f.Dead
	}
	return dead, err
}

// countsOf counts the jobs of the first thousand queues.
func (d *Dashboard) countsOf(ctx context.Context) ([]queueCounts, error) {
	return d.counts.get(ctx, func(ctx context.Context) ([]queueCounts, error) {
		now, err := scheduler.Clock(ctx, d.db)
		if err != nil {
			return nil, err
		}
		queues, err := d.queues.Queues(ctx, "", mostQueues)
		if err != nil {
			return nil, err
		}
		return d.countQueues(ctx, queues, now)
	})
}

func (d *Dashboard) countQueues(ctx context.Context, queues []queue.Queue, now time.Time) (all []queueCounts, err error) {
	for i := range queues {
		q := queueCounts{Queue: queues[i]}
		var oldest time.Time
		if q.Counts, oldest, err = d.queues.CountAndOldest(ctx, q.Name, countTo); err != nil {
			return nil, err
		}
		if !oldest.IsZero() {
			q.Age = max(0, now.Sub(oldest))
		}
		all = append(all, q)
	}
	return all, nil
}

// MayAct tells whether the page shows what can be done.
func (p *page) MayAct() bool { return p.Who.Admin }
