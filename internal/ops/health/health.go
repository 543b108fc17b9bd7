// Package health finds what is wrong with the work: schedules that are late or have failed, failed runs,
// queues that lag behind or are paused, lost processes. It also checks the database itself. The dashboard and dbcron
// doctor report it.
package health

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

const (
	// Most limits the problems of a kind that are listed.
	Most = 10

	// CountTo limits the count of a queue's jobs per state.
	CountTo = 10_000

	// MostQueues limits the queues that are counted.
	MostQueues = 1000

	behindAfter = time.Minute      // age of the oldest ready job of a queue that lags
	lateAfter   = 10 * time.Second // time since a slot was due that no daemon has claimed
	back        = 24 * time.Hour   // age up to which ended runs are considered
	maxNodes    = 1000
	maxFiles    = 1000
)

// A Problem is something that is wrong.
type Problem struct {
	Of    Subject
	Name  string // of a schedule, a queue or a process; "": of several
	Run   int64  // the last failed run; 0: none
	Bad   bool   // it is broken, not just noteworthy
	Dead  bool   // it is about a queue's dead letters
	Why   string
	Do    string    // what to do about it, in words and commands
	Since time.Time // zero: unknown

	what string // with %s for the name
}

// A Subject is the kind of thing that has a problem.
type Subject string

// The subjects.
const (
	Schedules Subject = "schedules"
	Runs      Subject = "runs"
	Queues    Subject = "queues"
	Endpoints Subject = "endpoints"
	Processes Subject = "processes"
	Files     Subject = "files"
)

// What describes the problem in a few words. It makes invisible characters in the name visible.
func (p *Problem) What() string {
	if p.Name == "" {
		return p.what
	}
	return fmt.Sprintf(p.what, plain.Clean(p.Name))
}

// argument quotes a name for a command line.
func argument(name string) string {
	if name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("-_./:@", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) && name[0] != '-' {
		return name
	}
	return "'" + strings.ReplaceAll(plain.Clean(name), "'", `'\''`) + "'"
}

// OfSchedules finds schedules that have failed and schedules that are late. It examines the schedules
// with the next slots, up to limit.
func OfSchedules(ctx context.Context, db *dialect.DB, now time.Time, limit int) (all []Problem, next []scheduler.Planned, err error) {
	failed, err := scheduler.InState(ctx, db, "failed", Most)
	if err != nil {
		return nil, nil, err
	}
	for i := range failed {
		s := &failed[i]
		all = append(all, Problem{
			Of: Schedules, Name: s.Name, Bad: true, what: "Schedule %s was given up", Why: plain.Cut(s.Reason, 200),
			Do: "fix what it says, then: dbcron schedule resume " + argument(s.Name),
		})
	}
	planned, err := scheduler.Upcoming(ctx, db, Most+limit)
	if err != nil {
		return nil, nil, err
	}
	for i := range planned {
		s := &planned[i]
		if why := Lateness(s, now); why != "" {
			all = append(all, Problem{
				Of: Schedules, Name: s.Name, Bad: true, what: "Schedule %s is late", Why: why, Since: s.Due,
				Do: "find the reason: dbcron schedule explain " + argument(s.Name),
			})
		} else if len(next) < limit {
			next = append(next, *s)
		}
	}
	return all, next, nil
}

// Lateness returns why a schedule is late, or "" if it is not.
func Lateness(s *scheduler.Planned, now time.Time) string {
	switch {
	case s.Due.IsZero() || now.Sub(s.Due) < s.Jitter+lateAfter:
		return ""
	case s.Reason != "":
		return plain.Cut("daemons cannot claim it: "+s.Reason, 200)
	}
	return "no daemon has claimed its slot; it takes one with the tag " + plain.Cut(s.Tag, 60) + " that has a place free"
}

// OfRuns finds the failures of the last day, by schedule.
func OfRuns(ctx context.Context, db *dialect.DB, now time.Time) (all []Problem, err error) {
	runs, _, err := scheduler.RecentRuns(ctx, db, scheduler.RunFilter{States: []string{"failed", "timeout", "lost"}, Limit: 200})
	if err != nil {
		return nil, err
	}
	type failures struct {
		n    int
		last scheduler.Run
	}
	by := map[string]*failures{}
	var names []string
	for i := range runs {
		run := &runs[i]
		if run.Finished.IsZero() || now.Sub(run.Finished) > back {
			continue
		}
		if by[run.Schedule] == nil {
			by[run.Schedule] = &failures{last: *run}
			names = append(names, run.Schedule)
		}
		by[run.Schedule].n++
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
	all = slices.Concat(all, unheeding, suspects, replaced)
	for _, name := range names[:min(len(names), Most)] {
		f := by[name]
		why := f.last.State
		if f.last.Error != "" {
			why = plain.Cut(f.last.Error, 200)
		}
		if f.n > 1 {
			why = fmt.Sprintf("%d times in a day; last: %s", f.n, why)
		}
		all = append(all, Problem{
			Of: Runs, Name: name, Run: f.last.ID, Bad: true, what: "A run of %s failed", Why: why, Since: f.last.Finished,
			Do: fmt.Sprintf("see what it printed: dbcron schedule output %d", f.last.ID),
		})
	}
	if more := len(names) - Most; more > 0 {
		all = append(all, Problem{
			Of: Runs, Bad: true, what: "Runs of " + plain.Plural(more, "more schedule", "more schedules") + " failed", Why: "in the last day",
			Do: "see which: dbcron schedule list",
		})
	}
	return all, nil
}

// ofUnheeding finds runs whose work has not returned though it was told to end.
func ofUnheeding(ctx context.Context, db *dialect.DB) (all []Problem, err error) {
	runs, _, err := scheduler.RecentRuns(ctx, db, scheduler.RunFilter{States: []string{"running"}, Limit: 200})
	for i := range runs {
		if r := &runs[i]; r.Error != "" && len(all) < Most {
			all = append(all, Problem{
				Of: Runs, Name: r.Schedule, Run: r.ID, Bad: true, what: "The work of %s does not end", Why: plain.Cut(r.Error, 200), Since: r.Started,
				Do: "have its function end with its context, and restart its process; its next slots wait: dbcron schedule explain " + argument(r.Schedule),
			})
		}
	}
	return all, err
}

// suspiciousFor is how long a run is reported that was handed back since its daemons were stopped.
const suspiciousFor = time.Hour

// ofStops finds schedules whose work may stop its daemons, except those of known.
func ofStops(ctx context.Context, db *dialect.DB, now time.Time, known func(string) bool) (all []Problem, err error) {
	runs, _, err := scheduler.RecentRuns(ctx, db, scheduler.RunFilter{States: []string{"retry"}, Limit: 200, Since: now.Add(-suspiciousFor)})
	seen := map[string]bool{}
	for i := range runs {
		r := &runs[i]
		if r.Stops < scheduler.SuspiciousStops || seen[r.Schedule] || known(r.Schedule) || len(all) == Most {
			continue
		}
		seen[r.Schedule] = true
		all = append(all, Problem{
			Of: Runs, Name: r.Schedule, Run: r.ID, what: "The work of %s may stop its daemon", Why: plain.Cut(r.Error, 200), Since: r.Finished,
			Do: "look whether it restarts the daemon: dbcron schedule explain " + argument(r.Schedule),
		})
	}
	return all, err
}

// A Depth is the backlog of a queue: its jobs by what they wait for, which dashboard, metrics, lists and notifications
// tell. So delayed jobs that are due count as ready, though lists of jobs and [admin.Client.Count] call them delayed.
type Depth struct {
	admin.Queue
	admin.Counts
	Recent int           // jobs of Counts that were enqueued in the last minutes: see Flows
	Age    time.Duration // how long the oldest ready job has waited
}

// Depths counts the jobs of some queues, except for completed jobs that are kept: in each state up to limit.
func Depths(ctx context.Context, c *admin.Client, queues []admin.Queue, limit int, now time.Time) (all []Depth, err error) {
	for i := range queues {
		d, err := depthOf(ctx, c, &queues[i], admin.BacklogOptions{Limit: limit}, now)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// DepthOf counts the jobs of a queue, in each state up to limit.
func DepthOf(ctx context.Context, c *admin.Client, q *admin.Queue, limit int, now time.Time) (Depth, error) {
	return depthOf(ctx, c, q, admin.BacklogOptions{Limit: limit, Done: true}, now)
}

func depthOf(ctx context.Context, c *admin.Client, q *admin.Queue, opt admin.BacklogOptions, now time.Time) (Depth, error) {
	d := Depth{Queue: *q}
	opt.Since = flowFrom(now)
	b, err := c.Backlog(ctx, q.Name, opt)
	if err != nil && !errors.Is(err, queue.ErrNotFound) { // a queue inserted by hand may not have had a job yet
		return d, err
	}
	d.Counts, d.Recent = b.Counts, b.Recent
	d.Ready = min(d.Limit, d.Ready+b.Due)
	if d.Delayed < d.Limit { // otherwise not all were counted
		d.Delayed -= b.Due
	}
	if !b.Oldest.IsZero() {
		d.Age = max(0, now.Sub(b.Oldest))
	}
	return d, nil
}

// OfQueues finds queues that lag behind, are paused, or have handlers that are stuck or starved, and counts
// the dead letters of the last day by queue. minutes is the recent throughput.
func OfQueues(ctx context.Context, c *admin.Client, depths []Depth, minutes []admin.Minute, dead map[string]int,
	now time.Time,
) ([]Problem, error) {
	var behind, stuck, died, paused []Problem
	unreturned, err := c.Stuck(ctx)
	if err != nil {
		return nil, err
	}
	starved, err := c.Starved(ctx)
	if err != nil {
		return nil, err
	}
	suspects, err := suspiciousJobs(ctx, c)
	if err != nil {
		return nil, err
	}
	flows := Flows(minutes, now)
	for i := range depths {
		q := &depths[i]
		if q.State == "deleted" {
			continue
		}
		p := Problem{Of: Queues, Name: q.Name}
		switch {
		case q.State == "paused":
			p.what, p.Do = "Queue %s is paused", "when its jobs may go on: dbcron queue resume "+argument(q.Name)
			if p.Why = plain.Cut(q.Reason, 200); q.Reason == "" {
				p.Why = "for " + jobs(q.Ready, q.Limit) + " that wait"
			}
			paused = append(paused, p)
		case q.Behind():
			p.Bad, p.what, p.Since = true, "Queue %s is behind", now.Add(-q.Age)
			p.Why, p.Do = q.Outlook(flows[q.Name], now),
				"give it more workers, or find what holds them up: dbcron job list --state running --queue "+argument(q.Name)
			behind = append(behind, p)
		}
		stuck = append(stuck, ofHandlers(q.Name, unreturned[q.Name], starved[q.Name])...)
		if n := dead[q.Name]; n > 0 {
			died = append(died, Problem{
				Of: Queues, Name: q.Name, Dead: true, what: plain.Plural(n, "job", "jobs") + " of queue %s died", Why: "in the last day",
				Do: "see why: dbcron job list --state dead --queue " + argument(q.Name),
			})
		}
	}
	slices.SortStableFunc(behind, func(a, b Problem) int { return a.Since.Compare(b.Since) })
	behind = behind[:min(len(behind), Most)]
	for i := range behind {
		if err := unattended(ctx, c, &behind[i]); err != nil {
			return nil, err
		}
	}
	return slices.Concat(behind, stuck[:min(len(stuck), Most)], suspects, died[:min(len(died), Most)], paused[:min(len(paused), Most)]), nil
}

// suspiciousJobs finds queues with jobs that may stop their workers.
func suspiciousJobs(ctx context.Context, c *admin.Client) (all []Problem, err error) {
	jobs, err := c.Suspicious(ctx, suspiciousFor, 200)
	for _, j := range jobs {
		if len(all) < Most && !slices.ContainsFunc(all, func(p Problem) bool { return p.Name == j.Queue }) {
			all = append(all, Problem{
				Of: Queues, Name: j.Queue, what: "A job of queue %s may stop its worker", Why: plain.Cut(j.Error, 200), Since: j.At,
				Do: fmt.Sprintf("look whether it restarts its worker: dbcron job get %d", j.ID),
			})
		}
	}
	return all, err
}

// ofHandlers reports handlers of a queue that do not return, and workers whose handlers wait for connections.
func ofHandlers(queue string, stuck, starved int) (all []Problem) {
	if stuck > 0 {
		all = append(all, Problem{
			Of: Queues, Name: queue, Bad: true, what: plain.Plural(stuck, "handler", "handlers") + " of queue %s " +
				map[bool]string{true: "does", false: "do"}[stuck == 1] + " not return",
			Why: "each takes a slot of its worker though its job's timeout is over",
			Do: "see which: dbcron job list --state running --queue " + argument(queue) +
				"; have the handler end with its context, and restart its process",
		})
	}
	if starved > 0 {
		all = append(all, Problem{
			Of: Queues, Name: queue, Bad: true,
			what: "The handlers of " + plain.Plural(starved, "worker", "workers") + " of queue %s wait for connections",
			Why:  "no connection of the pool has been free for ten seconds, and no handler has ended: each may hold one in a transaction, and need another",
			Do: "in its program, make the pool larger (MaxConns, SetMaxOpenConns: Concurrency and six more), make Concurrency less, " +
				"or do all of a handler's work in its transaction, as EnqueueTx does",
		})
	}
	return all
}

// Holders counts the blocks of a queue that workers lease now, and these workers.
func Holders(blocks []admin.Block) (leased, workers int) {
	names := map[string]bool{}
	for i := range blocks {
		if b := &blocks[i]; b.Leased && b.Live {
			leased++
			names[b.Worker] = true
		}
	}
	return leased, len(names)
}

// unattended adds that no worker leases any block of a queue that lags behind.
func unattended(ctx context.Context, c *admin.Client, p *Problem) error {
	blocks, err := c.Blocks(ctx, p.Name)
	if err != nil {
		return err
	}
	if leased, _ := Holders(blocks); leased == 0 {
		p.Why += "; no worker has it"
		p.Do = "start a worker for it: a program of yours, dbcron worker exec, or dbcron serve for one with an endpoint"
	}
	return nil
}

func jobs(n, limit int) string {
	if n >= limit {
		return plain.Count(n, limit) + " jobs"
	}
	return plain.Plural(n, "job", "jobs")
}

// Behind reports whether jobs of an active queue have waited for a minute.
func (d *Depth) Behind() bool { return d.State == "active" && d.Age >= behindAfter }

// Outlook describes the backlog of a queue, the rates at which jobs come and go, and when it is
// empty if the last ten minutes continue.
func (d *Depth) Outlook(f Flow, now time.Time) string {
	text := plain.Count(d.Ready, d.Limit) + " ready, the oldest for " + plain.Span(d.Age)
	in, ok := d.In(f, now)
	switch out := plain.Rate(f.rate(now)); {
	case f.ended == 0:
		text += "; none was done in the last ten minutes"
	case ok:
		text += "; " + plain.Rate(in) + " a minute come in, " + out + " are done"
	default:
		text += "; " + out + " a minute are done"
	}
	switch e := d.Empty(f, now); {
	case e.Never && f.ended == 0:
		return text
	case e.Never:
		return text + ", so that they never end at this rate"
	case e.In > 0:
		return text + "; none is left in " + e.String() + " at this rate"
	}
	return text
}

// OfFiles finds files that daemons could not import, and sources for which daemons have different files.
func OfFiles(ctx context.Context, db *dialect.DB) (all []Problem, files int, err error) {
	found, err := ListFiles(ctx, db, maxFiles)
	if err != nil {
		return nil, 0, err
	}
	first := map[string]*File{}
	told := map[string]bool{}
	for i := range found {
		f := &found[i]
		if f.Problem != "" && len(all) < Most {
			all = append(all, Problem{
				Of: Files, Name: f.Source, Bad: true, what: "%s was not imported", Since: f.Read,
				Why: "by " + plain.Cut(f.Node, 100) + ": " + plain.Cut(f.Problem, 200),
				Do:  "fix the file; the daemon reads it again when it changes. Until then its schedules stay as they were",
			})
		}
		switch other := first[f.Source]; {
		case other == nil:
			first[f.Source] = f
		case other.Digest != f.Digest && !told[f.Source] && len(all) < Most:
			told[f.Source] = true
			all = append(all, Problem{
				Of: Files, Name: f.Source, Bad: true, what: "daemons have different files for %s",
				Why: plain.Cut(other.Node, 100) + " and " + plain.Cut(f.Node, 100) + ", of which the one that imports last removes what the other has",
				Do:  "make the files the same, or give each daemon a --source of its own",
			})
		}
	}
	return all, len(first), nil
}

// OfPaused finds schedules that are paused.
func OfPaused(ctx context.Context, db *dialect.DB) (all []Problem, err error) {
	paused, err := scheduler.InState(ctx, db, "paused", Most)
	for i := range paused {
		s := &paused[i]
		all = append(all, Problem{
			Of: Schedules, Name: s.Name, what: "Schedule %s is paused", Why: plain.Cut(s.Reason, 200),
			Do: "when it may run again: dbcron schedule resume " + argument(s.Name),
		})
	}
	return all, err
}

// OfWorkers finds queues that have more workers than blocks, and jobs that no worker does.
func OfWorkers(ctx context.Context, c *admin.Client) (all []Problem, err error) {
	found, err := c.Surplus(ctx, Most)
	for _, s := range found {
		all = append(all, Problem{
			Of: Queues, Name: s.Queue, what: "Queue %s has more workers than blocks",
			Why: fmt.Sprintf("%d workers share %s, so that some stand idle", s.Workers, plain.Plural(s.Blocks, "block", "blocks")),
			Do:  fmt.Sprintf("give it more: dbcron queue resize %s %d", argument(s.Queue), 2*s.Workers),
		})
	}
	if err != nil {
		return all, err
	}
	unknown, err := c.Unknown(ctx, Most)
	for _, u := range unknown {
		all = append(all, Problem{
			Of: Queues, Name: u.Queue, what: "Jobs of queue %s wait that none of its workers does",
			Why: fmt.Sprintf("%s of kind %s", plain.Plural(u.Jobs, "job", "jobs"), plain.Clean(u.Kind)),
			Do:  "start a worker that does this kind; cancel them if nobody should: dbcron job cancel --queue " + argument(u.Queue) + " --kind " + argument(u.Kind),
		})
	}
	return all, err
}

// versions reports live processes of different versions.
func versions(nodes []scheduler.Node) (all []Problem) {
	count := map[string]int{}
	for i := range nodes {
		if n := &nodes[i]; n.Live && n.Version != "" {
			count[n.Version]++
		}
	}
	if len(count) < 2 {
		return nil
	}
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d of %s", count[v], plain.Cut(v, 64)))
	}
	return []Problem{{
		Of: Processes, what: "Live processes are of several versions", Why: strings.Join(parts, ", "),
		Do: "replace the older ones; docs/upgrading.md says how: dbcron node list",
	}}
}

// OfTags finds tags of active schedules that no live daemon runs, while other tags do have
// daemons. Drained nodes do not count. If no daemon is left at all, late schedules show that.
func OfTags(ctx context.Context, db *dialect.DB) (all []Problem, err error) {
	counts, err := scheduler.ActiveByTag(ctx, db)
	if err != nil {
		return nil, err
	}
	nodes, err := scheduler.Nodes(ctx, db, "", maxNodes)
	if err != nil {
		return nil, err
	}
	served := map[string]bool{}
	for i := range nodes {
		if n := &nodes[i]; n.Live && n.Drained.IsZero() && n.Tags != "" {
			for tag := range strings.SplitSeq(n.Tags, ",") {
				served[tag] = true
			}
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(counts)) {
		if len(served) == 0 || served[tag] || len(all) == Most {
			continue
		}
		all = append(all, Problem{
			Of: Schedules, Name: tag, what: "Schedules need the tag %s, and no live daemon has it", Bad: true,
			Why: plain.Plural(counts[tag], "active schedule has it", "active schedules have it"),
			Do:  "start a daemon for it: dbcron serve --tag " + argument(tag) + "; dbcron node list shows what daemons have",
		})
	}
	return all, nil
}

// OfProcesses finds processes lost in the last day, drained ones, and those of different versions. live is
// the number of live processes.
func OfProcesses(ctx context.Context, db *dialect.DB, now time.Time) (all []Problem, live int, err error) {
	nodes, err := scheduler.Nodes(ctx, db, "", maxNodes)
	if err != nil {
		return nil, 0, err
	}
	all = versions(nodes)
	for _, node := range nodes {
		if node.Live {
			live++
		}
		if node.Live && !node.Drained.IsZero() && len(all) < Most {
			all = append(all, Problem{
				Of: Processes, Name: node.Name, what: "Process %s is drained", Since: node.Drained,
				Why: "it takes no new work, as " + plain.Cut(node.DrainedBy, 100) + " wants",
				Do:  "stop it, or have it take work again: dbcron node undrain " + argument(node.Name),
			})
		}
		if node.State == "gone" || node.Live || now.Sub(node.Until) > back || len(all) == Most {
			continue
		}
		all = append(all, Problem{
			Of: Processes, Name: node.Name, what: "Process %s was lost", Since: node.Until,
			Why: "it did not shut down, and no longer renews its lease",
			Do:  "see the log of that host: it was killed, or cut off from the database; others have its work",
		})
	}
	return all, live, nil
}
