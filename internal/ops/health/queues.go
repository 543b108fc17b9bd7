package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// A Depth is the backlog of a queue: its jobs by what they wait for, which dashboard, metrics, lists and notifications
// tell. So delayed jobs that are due count as ready, though lists of jobs and [admin.Client.Count] call them delayed.
type Depth struct {
	admin.Queue
	admin.Counts
	Recent int           // jobs of Counts that were enqueued in the last minutes: see Flows
	Age    time.Duration // how long the oldest ready job has waited

	// Lag is how long the oldest ready job has waited that a worker could begin. It is less than Age only if that is a minute or more, and
	// those that have waited for longest are Held.
	Lag  time.Duration
	Held *Held // nil: none is, or none was looked for

	job  int64  // that oldest one, if it was looked for
	kind string // of that
}

// Held are ready jobs that no worker could begin.
type Held struct {
	Jobs  int  // of those that are next
	More  bool // there may be more
	Since time.Time
	Cause Cause // why the one cannot begin that has waited for longest
}

// Text tells of the jobs, and why they are held.
func (h *Held) Text(now time.Time) string {
	n := plain.Plural(h.Jobs, "job", "jobs")
	if h.More {
		n = "at least " + n
	}
	return fmt.Sprintf("%s, the oldest for %s: %s", n, plain.Span(now.Sub(h.Since)), h.Cause.Why)
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
	if d.Lag = d.Age; !d.Behind() {
		return d, nil
	}
	return d, d.look(ctx, c, now)
}

// look finds out which jobs of a queue are held.
func (d *Depth) look(ctx context.Context, c *admin.Client, now time.Time) error {
	next, err := c.Next(ctx, d.Name)
	if d.job, d.kind = next.Job, next.Kind; err != nil || next.Held == 0 {
		return err
	}
	d.Held = &Held{Jobs: next.Held, More: next.More, Since: next.First}
	if d.Lag = 0; !next.Oldest.IsZero() {
		d.Lag = max(0, now.Sub(next.Oldest))
	}
	d.Held.Cause, err = holdCause(ctx, c, d.Name, &next.Hold, now)
	return err
}

// Deaths are the jobs of a queue that died.
type Deaths struct {
	Jobs int
	Last time.Time // the minute of the last one
}

// DeathsOf returns how many jobs of each queue died.
func DeathsOf(all []admin.Finished) map[string]Deaths {
	dead := map[string]Deaths{}
	for _, f := range all {
		if is := dead[f.Queue]; f.Dead > 0 {
			dead[f.Queue] = Deaths{is.Jobs + f.Dead, slices.MaxFunc([]time.Time{is.Last, f.LastDead}, time.Time.Compare)}
		}
	}
	return dead
}

// stillDead returns how many of a day's dead letters may be left, after others were retried or deleted. Of a queue that does not keep them
// for so long, all count: that they are gone does not mean that somebody has seen them.
func (d *Depth) stillDead(died int) int {
	if keeps := d.KeepDead < 0 || d.KeepDead >= 24*time.Hour; keeps && d.KeepDeadMax == 0 && d.Dead < d.Limit {
		return min(died, d.Dead)
	}
	return died
}

// OfQueues finds queues that lag behind, are paused, or have handlers that are stuck or starved, and counts
// the dead letters of the last day by queue that are left. minutes is the recent throughput.
func OfQueues(ctx context.Context, db *dialect.DB, c *admin.Client, depths []Depth, minutes []admin.Minute, dead map[string]Deaths,
	now time.Time,
) ([]Problem, error) {
	var behind, held, stuck, died, paused, lost []Problem
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
	gone, err := c.Lost(ctx)
	if err != nil {
		return nil, err
	}
	flows := Flows(minutes, now)
	for i := range depths {
		q := &depths[i]
		if q.State == "deleted" || q.Wrong != "" { // OfRows tells of the latter
			continue
		}
		p := Problem{Of: Queues, Name: q.Name}
		if q.Name == notifications && q.State != "paused" {
			if lost, err = ofNotifications(ctx, c, dead[q.Name].Jobs > 0, now); err != nil {
				return nil, err
			}
			stuck = append(stuck, ofHandlers(q.Name, unreturned[q.Name], starved[q.Name])...)
			continue // it is nobody's backlog
		}
		switch {
		case q.State == "paused":
			paused = append(paused, q.asPaused())
		case q.Ready > 0 && LostOf(gone, q.Name) != nil: // nobody else comes, so there is nothing to wait for
			behind = append(behind, q.withoutWorkers(LostOf(gone, q.Name), flows[q.Name], now))
		case q.Behind():
			p.Bad, p.what, p.Since = true, "Queue %s is behind", now.Add(-q.Lag)
			p.Why, p.Do = q.Outlook(flows[q.Name], now),
				"give it more workers, or find what holds them up: dbcron job list --state running --queue "+argument(q.Name)
			behind = append(behind, p)
		}
		if h := q.Held; h != nil && q.State == "active" && now.Sub(h.Since) >= behindAfter {
			held = append(held, Problem{Of: Queues, Name: q.Name, what: "Jobs of queue %s are held up", Why: h.Text(now), Do: h.Cause.Do, Since: h.Since})
		}
		stuck = append(stuck, ofHandlers(q.Name, unreturned[q.Name], starved[q.Name])...)
		if is, n := dead[q.Name], q.stillDead(dead[q.Name].Jobs); n > 0 {
			died = append(died, Problem{
				Of: Queues, Name: q.Name, Dead: true, what: plain.Plural(n, "job", "jobs") + " of queue %s died", Why: "in the last day",
				change: fmt.Sprint(is.Last.Unix()),
				Do:     "see why: dbcron job list --state dead --queue " + argument(q.Name), Act: "retry",
			})
		}
	}
	slices.SortStableFunc(behind, func(a, b Problem) int { return a.Since.Compare(b.Since) })
	behind = cut(behind, "queue is behind", "queues are behind", "see all: dbcron queue list")
	unknown, err := addReasons(ctx, db, c, behind, depths)
	if err != nil {
		return nil, err
	}
	return slices.Concat(lost, behind, ofUnknown(unknown),
		cut(held, "queue has jobs that are held up", "queues have jobs that are held up", "see all: dbcron queue list"),
		cut(stuck, "queue has handlers that do not return", "queues have handlers that do not return", "see all: dbcron queue list"), suspects,
		cut(died, "queue has jobs that died in the last day", "queues have jobs that died in the last day", "see all: dbcron queue list"),
		cut(paused, "queue is paused", "queues are paused", "see all: dbcron queue list")), nil
}

// asPaused reports a paused queue.
func (d *Depth) asPaused() Problem {
	p := Problem{
		Of: Queues, Name: d.Name, what: "Queue %s is paused", Do: "when its jobs may go on: dbcron queue resume " + argument(d.Name),
		change: d.Reason, Act: "resume", Why: plain.Cut(d.Reason, 200),
	}
	if d.Reason == "" {
		p.Why = "for " + jobs(d.Ready, d.Limit) + " that wait"
	}
	return p
}

// withoutWorkers reports a queue in which jobs wait and which nobody serves since a worker was lost.
func (d *Depth) withoutWorkers(lost *admin.LostWorker, f Flow, now time.Time) Problem {
	c := unserved(d.Name, lost, now)
	return Problem{Of: Queues, Name: d.Name, Bad: true, what: nobodyServes, Since: lost.At, Do: c.Do, Why: c.lost + "; " + d.Outlook(f, now)}
}

// nobodyServes is what is said of a queue without workers in which jobs wait.
const nobodyServes = "No worker serves queue %s"

// addReasons says of queues that lag behind what the reason is: why their oldest job waits, or a tenant's flood. It returns the kinds
// without a worker of which it has not told.
func addReasons(ctx context.Context, db *dialect.DB, c *admin.Client, behind []Problem, depths []Depth) ([]admin.UnknownKind, error) {
	unknown, err := c.Unknown(ctx, Most)
	if err != nil {
		return nil, err
	}
	unknown = slices.DeleteFunc(unknown, func(u admin.UnknownKind) bool {
		return !slices.ContainsFunc(depths, func(d Depth) bool { return d.Name == u.Queue })
	})
	for i := range behind {
		p := &behind[i]
		if p.Name == "" || p.what == nobodyServes {
			continue
		}
		of := slices.IndexFunc(depths, func(d Depth) bool { return d.Name == p.Name })
		kind := slices.IndexFunc(unknown, func(u admin.UnknownKind) bool { return u.Queue == p.Name && u.Kind == depths[of].kind })
		if kind >= 0 {
			told := ofUnknown(unknown[kind : kind+1])[0]
			told.Bad, told.Since, told.Why = true, p.Since, told.Why+"; "+p.Why
			*p = told
			unknown = slices.Delete(slices.Clone(unknown), kind, kind+1)
			continue
		}
		why, err := depths[of].WhyBehind(ctx, db, c)
		if err != nil {
			return nil, err
		}
		switch {
		case why == nil:
			err = flooded(ctx, c, &depths[of].Queue, p)
		case why.unserved:
			p.what, p.Do = nobodyServes, why.Do
		default:
			p.Why, p.Do = why.Why+"; "+p.Why, why.Do
		}
		if err != nil {
			return nil, err
		}
	}
	return unknown, nil
}

// ofUnknown reports jobs that no worker does.
func ofUnknown(unknown []admin.UnknownKind) (all []Problem) {
	for _, u := range unknown {
		all = append(all, Problem{
			Of: Queues, Name: u.Queue, what: "Jobs of queue %s wait that none of its workers does", change: u.Kind,
			Why: fmt.Sprintf("%s of kind %s", plain.Plural(u.Jobs, "job", "jobs"), plain.Clean(u.Kind)),
			Do:  doKind(u.Queue, u.Kind),
		})
	}
	return all
}

// doKind says what to do about jobs of a kind that no worker does.
func doKind(queue, kind string) string {
	return "start a worker that does this kind; cancel them if nobody should: dbcron job cancel --queue " + argument(queue) + " --kind " + argument(kind)
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

// mostTenants is how many tenants of a queue are shown.
const mostTenants = 10

// TenantsOf returns the tenants with the most ready jobs of a queue that is fair, or in which a job names one.
func TenantsOf(ctx context.Context, c *admin.Client, q *admin.Queue) (admin.Tenants, error) {
	all, err := c.Tenants(ctx, q.Name, mostTenants)
	if errors.Is(err, queue.ErrNotFound) { // as for Depth
		return admin.Tenants{}, nil
	}
	if len(all.Tenants) == 1 && all.Tenants[0].Name == "" && !q.Fair {
		return admin.Tenants{}, err
	}
	return all, err
}

// flooded adds which tenant holds up those of a queue that lags behind, if one does.
func flooded(ctx context.Context, c *admin.Client, q *admin.Queue, p *Problem) error {
	tenants, err := TenantsOf(ctx, c, q)
	if err != nil || q.Fair {
		return err
	}
	if t := tenants.Flooding(); t != nil {
		p.Why += fmt.Sprintf("; %d of %d jobs that are next are of the tenant %s, and others wait behind them", t.Ready, tenants.Looked, argument(t.Name))
		p.Do = "have the tenants take turns: dbcron queue set " + argument(q.Name) + " --fair"
	}
	return nil
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

// WhyBehind says why the oldest job of a queue that is behind waits. It returns nil if the queue is not, or that job only waits for its
// turn, or is gone.
func (d *Depth) WhyBehind(ctx context.Context, db *dialect.DB, c *admin.Client) (*Cause, error) {
	if !d.Behind() || d.job == 0 {
		return nil, nil
	}
	e, err := ExplainJob(ctx, db, c, d.Name, d.job)
	if errors.Is(err, admin.ErrNotFound) {
		return nil, nil
	}
	if err != nil || len(e.Causes) == 0 || e.Causes[0].turn || e.Job.State == admin.StateRunning || e.Job.State == admin.StateDone {
		return nil, err
	}
	return &e.Causes[0], nil
}

func jobs(n, limit int) string {
	if n >= limit {
		return plain.Count(n, limit) + " jobs"
	}
	return plain.Plural(n, "job", "jobs")
}

// Behind reports whether jobs of an active queue have waited for a minute that a worker could begin.
func (d *Depth) Behind() bool { return d.State == "active" && d.Wrong == "" && d.Lag >= behindAfter }

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
