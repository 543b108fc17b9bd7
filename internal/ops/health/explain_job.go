package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// A JobExplanation says why a job waits, what it does, or what has become of it.
type JobExplanation struct {
	Job    admin.Job
	Now    time.Time
	Causes []Cause // the one to begin with first; there is at least one
}

// A Cause is one reason why a job or a schedule does not run.
type Cause struct {
	Why   string
	Do    string    // what to do about it, in words and commands; empty: nothing
	Until time.Time // when it ends by itself; zero: unknown
	Job   int64     // the job that this one waits for; 0: none

	turn     bool   // nothing but its turn keeps it
	unserved bool   // nobody serves its queue
	lost     string // and which worker was lost when, if one was
}

// Wire returns the explanation as it leaves the process.
func (e *JobExplanation) Wire() wire.JobExplanation {
	return wire.JobExplanation{
		ID: wire.ID(e.Job.ID), Queue: e.Job.Queue, State: string(e.Job.State), Now: wire.At(e.Now),
		Causes: wireof.Each(e.Causes, (*Cause).Wire),
	}
}

// Wire returns the cause as it leaves the process.
func (c *Cause) Wire() wire.Cause {
	w := wire.Cause{Why: c.Why, Do: c.Do, Job: wire.ID(c.Job)}
	if !c.Until.IsZero() {
		w.Until = wire.At(c.Until)
	}
	return w
}

// ExplainJob explains why a job waits, if it does. What it reads is bounded, however many jobs the queue has.
func ExplainJob(ctx context.Context, db *dialect.DB, c *admin.Client, queue string, id int64) (*JobExplanation, error) {
	i, err := c.Job(ctx, queue, id)
	if err != nil {
		return nil, err
	}
	now, err := scheduler.Clock(ctx, db)
	if err != nil {
		return nil, err
	}
	e := &jobExplainer{JobExplanation{Job: i, Now: now}, db, c}
	if r := i.Refused; r != nil {
		e.add(Cause{
			Why: "the database refuses what has become of it: " + RefusalText(r),
			Do:  "remove what the error names: its worker tries again by itself",
		})
	}
	switch i.State {
	case admin.StateReady, admin.StateDelayed:
		err = e.waits(ctx)
	case admin.StateRunning:
		e.add(Cause{Why: fmt.Sprintf("it runs on %s since %s, for %s", plain.Line(i.Worker, 200), plain.Instant(i.At, time.UTC), plain.Span(now.Sub(i.At)))})
	case admin.StateDead:
		e.add(Cause{
			Why: fmt.Sprintf("it died at %s, after %s: %s", plain.Instant(i.At, time.UTC), plain.Plural(i.Attempts, "attempt", "attempts"), plain.Line(i.Error, 1000)),
			Do:  fmt.Sprintf("remove the cause; then dbcron job retry %d", id),
		})
	case admin.StateDone:
		e.add(Cause{Why: "it ended at " + plain.Instant(i.At, time.UTC)})
	}
	return &e.JobExplanation, err
}

// A jobExplainer gathers what a job waits for.
type jobExplainer struct {
	JobExplanation
	db *dialect.DB
	c  *admin.Client
}

func (e *jobExplainer) add(c Cause) { e.Causes = append(e.Causes, c) }

// waits gathers the causes why a job waits, those first that have to end first.
func (e *jobExplainer) waits(ctx context.Context) error {
	i := &e.Job
	if i.Unreadable != "" {
		e.add(Cause{
			Why: "no worker can read it, since its row is wrong: " + i.Unreadable,
			Do:  "dbcron doctor has the statement that repairs the row",
		})
		return nil
	}
	q, err := e.c.Queue(ctx, i.Queue)
	if err != nil {
		return err
	}
	if i.State == admin.StateDelayed && i.At.After(e.Now) {
		e.add(e.untilDue())
	}
	if err := e.ofQueue(ctx, &q); err != nil {
		return err
	}
	place, err := e.c.PlaceOf(ctx, i)
	if err != nil {
		return err
	}
	if err := e.ofWorkers(ctx, &place); err != nil {
		return err
	}
	if err := e.ofClock(ctx, &place.Block); err != nil {
		return err
	}
	if err := e.ofEndpoint(ctx); err != nil {
		return err
	}
	for k := range place.Holds {
		cause, err := holdCause(ctx, e.c, i.Queue, &place.Holds[k], e.Now)
		if err != nil {
			return err
		}
		e.add(cause)
	}
	if place.Older {
		e.add(Cause{
			Why: "it is in a new block of its queue, whose jobs begin when the older blocks are empty, so that keys keep their order",
			Do:  "see what is in those: dbcron queue show " + argument(i.Queue),
		})
	}
	if len(e.Causes) > 0 {
		return nil
	}
	if b := &place.Block; !b.Leased || !b.Live {
		e.add(freeBlock(i.Queue, &place))
		return nil
	}
	if err := e.ofHandlers(ctx); err != nil || len(e.Causes) > 0 {
		return err
	}
	return e.ofTurns(ctx, &q, &place)
}

// ofHandlers says that the handlers of its queue do not return, or wait for connections.
func (e *jobExplainer) ofHandlers(ctx context.Context) error {
	stuck, err := e.c.Stuck(ctx)
	if err != nil {
		return err
	}
	starved, err := e.c.Starved(ctx)
	for _, p := range ofHandlers(e.Job.Queue, stuck[e.Job.Queue], starved[e.Job.Queue]) {
		e.add(Cause{Why: "it waits for a slot of its worker. " + p.What() + ": " + p.Why, Do: p.Do})
	}
	return err
}

// untilDue says what a delayed job waits for.
func (e *jobExplainer) untilDue() Cause {
	i := &e.Job
	c := Cause{
		Why:   fmt.Sprintf("it is delayed until %s, for %s more", plain.Instant(i.At, time.UTC), plain.Span(i.At.Sub(e.Now))),
		Do:    fmt.Sprintf("to run it now: dbcron job retry %d", i.ID),
		Until: i.At,
	}
	if i.Attempts > 0 {
		c.Why = fmt.Sprintf("it waits for its retry at %s, for %s more, after attempt %d failed: %s",
			plain.Instant(i.At, time.UTC), plain.Span(i.At.Sub(e.Now)), i.Attempts, plain.Line(i.Error, 200))
	}
	return c
}

// ofQueue says that the queue is paused or deleted, by whom and why, as far as that is known.
func (e *jobExplainer) ofQueue(ctx context.Context, q *admin.Queue) error {
	switch q.State {
	case "deleted":
		e.add(Cause{Why: "its queue was deleted", Do: "make it active again: dbcron queue set " + argument(q.Name)})
	case "paused":
		why, err := byWhom(ctx, e.db, "its queue is paused", "queue.pause", q.Name, q.Reason)
		if err != nil {
			return err
		}
		e.add(Cause{Why: why, Do: "when its jobs may go on: dbcron queue resume " + argument(q.Name)})
	}
	return nil
}

// freeBlock says of a job that live workers could do that none of them has its block, and which may take it.
func freeBlock(queue string, p *admin.Place) Cause {
	b, why := &p.Block, ""
	if b.Leased {
		why = plain.Line(processOf(b.Worker), 100) + ", which had its block, was lost: "
	}
	may := 0
	var one string
	for i := range p.Workers {
		if p.Workers[i].Drained == "" {
			may++
			one = p.Workers[i].Node
		}
	}
	who := plain.Line(processOf(one), 100) + " serves its queue, and takes"
	if may > 1 {
		who = fmt.Sprintf("%d workers serve its queue, and take", may)
	}
	return Cause{
		Why: fmt.Sprintf("%sno worker has its block, %d; %s free blocks every few seconds", why, b.Number, who),
		Do:  "if that lasts, see who has blocks: dbcron queue show " + argument(queue),
	}
}

// ofWorkers says that no worker does the job.
func (e *jobExplainer) ofWorkers(ctx context.Context, p *admin.Place) error {
	i, drained := &e.Job, 0
	can := false
	for _, w := range p.Workers {
		switch {
		case w.Drained != "":
			drained++
		case w.All || slices.Contains(w.Kinds, i.Kind):
			can = true
		}
	}
	switch {
	case can:
	case len(p.Workers) == 0:
		lost, err := e.c.Lost(ctx)
		if err != nil {
			return err
		}
		e.add(unserved(i.Queue, LostOf(lost, i.Queue), e.Now))
	case drained == len(p.Workers):
		e.add(Cause{
			Why: "all workers of its queue are drained, as " + plain.Line(p.Workers[0].Drained, 200) + " wants",
			Do:  "have one take work again: dbcron node undrain " + argument(p.Workers[0].Node),
		})
	default:
		e.add(Cause{
			Why: fmt.Sprintf("none of the workers of its queue, %d, does the kind %s", len(p.Workers)-drained, plain.Clean(i.Kind)),
			Do:  doKind(i.Queue, i.Kind),
		})
	}
	return nil
}

// ofEndpoint says that the endpoint of the queue pushes back.
func (e *jobExplainer) ofEndpoint(ctx context.Context) error {
	if e.Job.Endpoint != "" { // its own, whose answers are not those of the queue's
		return nil
	}
	answers, err := push.NewEndpoints(e.db).Answers(ctx, e.Job.Queue)
	if err != nil {
		if e.db.Dialect.Denied(err) || e.db.Dialect.Missing(err) {
			err = nil
		}
		return err
	}
	if p := endpointProblem(&push.Report{Queue: e.Job.Queue, Answers: answers}, e.Now); p != nil {
		c := Cause{Why: "its endpoint holds it up: " + p.Why, Do: p.Do}
		if s := StandingOf(answers, e.Now); s.Until.After(e.Now) {
			c.Until = s.Until
		}
		e.add(c)
	}
	return nil
}

// holdCause says what holds a job, and what to do about it.
func holdCause(ctx context.Context, c *admin.Client, queue string, h *admin.Hold, now time.Time) (Cause, error) {
	if h.Job == 0 {
		return limitCause(queue, h, now), nil
	}
	of := "an earlier job of its key"
	if h.Line {
		of = "the job before it in the FIFO queue"
	}
	cause := Cause{
		Job: h.Job, Why: fmt.Sprintf("%s, %d, has to end first", of, h.Job), Do: fmt.Sprintf("see what that waits for: dbcron job explain %d", h.Job),
	}
	first, err := c.Job(ctx, queue, h.Job)
	switch {
	case errors.Is(err, admin.ErrNotFound):
		return cause, nil
	case err != nil:
		return cause, err
	}
	switch {
	case first.State == admin.StateDelayed && first.At.After(now):
		cause.Until = first.At
		cause.Why = fmt.Sprintf("%s, %d, waits for its retry at %s, for %s more: %s", of, h.Job, plain.Instant(first.At, time.UTC), plain.Span(first.At.Sub(now)),
			plain.Line(first.Error, 200))
		cause.Do = fmt.Sprintf("remove the cause and try that now: dbcron job retry %d; or give it up: dbcron job cancel %d", h.Job, h.Job)
	case first.State == admin.StateRunning:
		cause.Why = fmt.Sprintf("%s, %d, runs since %s on %s", of, h.Job, plain.Instant(first.At, time.UTC), plain.Line(first.Worker, 200))
		cause.Do = fmt.Sprintf("wait for its end, or end it: dbcron job cancel %d", h.Job)
	}
	return cause, nil
}

// limitCause says at which limit jobs are.
func limitCause(queue string, h *admin.Hold, now time.Time) Cause {
	of, which := "its queue", argument(queue)
	switch {
	case h.Limit.Kind != "":
		of, which = "its kind, "+plain.Clean(h.Limit.Kind), which+" --kind "+argument(h.Limit.Kind)
	case h.Limit.Tenant != "":
		of, which = "its tenant, "+plain.Clean(h.Limit.Tenant), which+" --tenant "+argument(h.Limit.Tenant)
	}
	if h.Until.IsZero() {
		return Cause{
			Why: fmt.Sprintf("it is at the limit of %s: %d at a time, which run; one begins when one of those ends", of, h.Limit.Running),
			Do:  fmt.Sprintf("see which run: dbcron job list --state running --queue %s; to have more run: dbcron limit set %s --running N", argument(queue), which),
		}
	}
	return Cause{
		Why: fmt.Sprintf("it is at the limit of %s: %s; the next one begins at %s, in %s", of, plain.FormatRate(h.Limit.Rate, h.Limit.Per),
			plain.Instant(h.Until, time.UTC), plain.Span(h.Until.Sub(now))),
		Do:    fmt.Sprintf("to have more begin: dbcron limit set %s --rate RATE", which),
		Until: h.Until,
	}
}

// ofTurns says that the job's turn has not come, with a guess when it does.
func (e *jobExplainer) ofTurns(ctx context.Context, q *admin.Queue, p *admin.Place) error {
	i := &e.Job
	if q.Fair {
		tenants, err := TenantsOf(ctx, e.c, q)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(tenants.Tenants, func(t admin.Tenant) bool { return t.Name == i.Tenant })
		if at >= 0 && len(tenants.Tenants) > 1 {
			t := &tenants.Tenants[at]
			e.add(Cause{Why: fmt.Sprintf("the tenants of its queue take turns: of %d jobs that are next %d are of its own, which has %s of %d in a round",
				tenants.Looked, t.Ready, plain.Plural(t.Weight, "turn", "turns"), turns(tenants.Tenants)), turn: true})
		}
	}
	if p.Before == 0 {
		e.add(Cause{
			Why:  "it is the next one of its block: its worker, " + plain.Line(p.Block.Worker, 200) + ", begins it as soon as it has a slot free",
			Do:   "see what takes its slots: dbcron job list --state running --queue " + argument(i.Queue),
			turn: true,
		})
		return nil
	}
	minutes, err := e.c.FinishedByMinute(ctx, FlowTime)
	if err != nil {
		return err
	}
	before := plain.Plural(p.Before, "job comes", "jobs come")
	if p.More {
		before = fmt.Sprintf("%d jobs or more come", p.Before)
	}
	why := "its turn has not come: " + before + " before it in its block"
	flow := Flows(minutes, e.Now)[i.Queue]
	if n := p.Before * max(1, q.Blocks); flow.ended > 0 {
		why += fmt.Sprintf("; of all blocks, %d, %s a minute are done, so that it takes about %s", q.Blocks, plain.Rate(flow.rate(e.Now)),
			plain.Span(perMinute(n, flow.rate(e.Now))))
		if p.More {
			why += " or longer"
		}
	} else {
		why += "; none was done in the last ten minutes"
	}
	e.add(Cause{Why: why, Do: "to have it sooner, give the queue more workers", turn: true})
	return nil
}

// turns is how many turns some tenants have in a round.
func turns(all []admin.Tenant) (n int) {
	for i := range all {
		n += all[i].Weight
	}
	return n
}
