package httpapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

type statusesInput struct {
	After  string `query:"after" maxLength:"200" doc:"Only queues whose names come after this one."`
	Cursor string `query:"cursor" maxLength:"1200" doc:"The next_cursor of the answer before. The list goes on after it."`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"20" doc:"The greatest number of queues in the answer. The jobs of each are counted."`
}

type statusesOutput struct {
	Body struct {
		Queues     []wire.QueueStatus `json:"queues" nullable:"false" doc:"The queues, by name."`
		NextCursor string             `json:"next_cursor,omitempty" doc:"If it is there, there are more: send it as cursor."`
	} `nameHint:"QueueStatuses"`
}

type statusOutput struct{ Body wire.QueueDetail }

// queueStatus registers the operations that count jobs, and tell how fast they come and go.
func (a *API) queueStatus() {
	register(a, operation{
		id: "list-queue-status", method: http.MethodGet, path: "/status/queues", tag: "queues", scope: ScopeRead, answer: answerList,
		summary: "List the queues, how many jobs are in them, and how fast they come and go",
		more:    "The jobs of each queue are counted up to 10000 of a state. GET /stats/queues is cheaper, and up to five seconds old.",
	}, a.listStatus)
	register(a, operation{
		id: "queue-status", method: http.MethodGet, path: "/queues/{queue}/status", tag: "queues", scope: ScopeRead, answer: answerList,
		errors:  []int{http.StatusNotFound},
		summary: "Show all of one queue: settings, how many jobs it has, and who does them",
	}, func(ctx context.Context, in *queuePath) (*statusOutput, error) {
		q, err := a.queueOf(ctx, in)
		if err != nil {
			return nil, err
		}
		detail, err := a.queueDetail(ctx, &q)
		return &statusOutput{detail}, err
	})
}

func (a *API) listStatus(ctx context.Context, in *statusesInput) (*statusesOutput, error) {
	after := in.After
	if after != "" {
		if err := checkNames("after", after); err != nil {
			return nil, err
		}
	}
	if err := readCursor(in.Cursor, &after); err != nil {
		return nil, err
	}
	found, err := a.admin.Queues(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	look, err := a.newQueueLook(ctx)
	if err != nil {
		return nil, err
	}
	out := &statusesOutput{}
	if len(found) > in.Limit {
		found = found[:in.Limit]
		out.Body.NextCursor = cursorOf(found[in.Limit-1].Name)
	}
	out.Body.Queues = make([]wire.QueueStatus, len(found))
	for i := range found {
		if out.Body.Queues[i], _, err = look.status(ctx, &found[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (a *API) queueDetail(ctx context.Context, q *admin.Queue) (d wire.QueueDetail, err error) {
	look, err := a.newQueueLook(ctx)
	if err != nil {
		return d, err
	}
	var blocks []admin.Block
	if d.QueueStatus, blocks, err = look.status(ctx, q); err != nil {
		return d, err
	}
	refused, err := a.admin.Refusals(ctx, q.Name, health.MostRefusals)
	if err != nil { // a user who may not read it sees the rest
		a.note(ctx, "which jobs the database refuses is not known", err)
	}
	limits, err := a.admin.LimitsOf(ctx, q.Name)
	d.BlockList, d.Limits = wireof.Each(blocks, wireof.Block), wireof.Each(limits, wireof.Limit)
	d.Refused = wireof.Each(refused, wireof.Refusal)
	if err != nil {
		return d, err
	}
	tenants, err := health.TenantsOf(ctx, a.admin, q)
	d.Tenants = wireof.Each(tenants.Tenants, func(t *admin.Tenant) wire.Tenant {
		return wire.Tenant{Name: t.Name, Ready: t.Ready, Oldest: max(0, look.now.Sub(t.Oldest).Seconds()), Weight: t.Weight}
	})
	return d, err
}

// note tells who is responsible for the database about what could not be read.
func (a *API) note(ctx context.Context, what string, err error) {
	if who := senderOf(ctx).here; who != nil {
		who.Warn(what + ": " + err.Error())
		return
	}
	a.log.Warn("http: "+what, "err", err)
}

// A queueLook tells how queues are. It reads what all of them share once.
type queueLook struct {
	c         *admin.Client
	now       time.Time
	flows     map[string]health.Flow
	endpoints map[string]string
	lost      []admin.LostWorker
}

func (a *API) newQueueLook(ctx context.Context) (*queueLook, error) {
	l := &queueLook{c: a.admin, endpoints: map[string]string{}}
	now, err := scheduler.Clock(ctx, a.db)
	if err != nil {
		return nil, err
	}
	minutes, err := a.admin.FinishedByMinute(ctx, health.FlowTime)
	if err != nil {
		return nil, err
	}
	l.now, l.flows = now, health.Flows(minutes, now)
	if l.lost, err = a.admin.Lost(ctx); err != nil {
		return nil, err
	}
	const most = 1000
	for last := ""; ; {
		var some []push.Endpoint
		if some, err = a.endpoints.List(ctx, last, most); err != nil { // endpoints contain secrets; a user who may not read them sees the rest
			a.note(ctx, "which queues have endpoints is not known", err)
		}
		for i := range some {
			last, l.endpoints[some[i].Queue] = some[i].Queue, "each job's own"
			if some[i].URL != "" {
				l.endpoints[some[i].Queue] = plain.URL(some[i].URL)
			}
		}
		if len(some) < most {
			return l, nil
		}
	}
}

// status counts a queue's jobs, and reads who leases its blocks.
func (l *queueLook) status(ctx context.Context, q *admin.Queue) (w wire.QueueStatus, blocks []admin.Block, err error) {
	d, err := health.DepthOf(ctx, l.c, q, health.CountTo, l.now)
	if err != nil {
		return w, nil, err
	}
	blocks, err = l.c.Blocks(ctx, q.Name)
	if errors.Is(err, queue.ErrNotFound) { // it was inserted by hand and has had no job yet
		err = nil
	}
	flow := l.flows[q.Name]
	w = wire.QueueStatus{
		Queue: wireof.Queue(q), QueueCounts: wireof.QueueCounts(&d.Counts), Out: rounded(100, float64(flow.Out)), Endpoint: l.endpoints[q.Name],
	}
	if d.Ready > 0 {
		w.Oldest = new(rounded(1000, d.Age.Seconds()))
	}
	if h := d.Held; h != nil {
		w.Held = &wire.Held{Jobs: h.Jobs, More: h.More, Oldest: rounded(1000, l.now.Sub(h.Since).Seconds()), Cause: h.Cause.Wire()}
	}
	if n, ok := d.In(flow, l.now); ok {
		w.In = new(rounded(100, float64(n)))
	}
	empty := d.Empty(flow, l.now)
	if !empty.Never && empty.In >= 0 {
		w.Empty = new(rounded(1000, empty.In.Seconds()))
	}
	if d.Ready > 0 && (empty.Never || empty.In >= 0) {
		w.EmptyIn = empty.String()
	}
	_, w.Workers = health.Holders(blocks)
	if lost := health.LostOf(l.lost, q.Name); lost != nil {
		w.Lost = &wire.Lost{Worker: lost.Node, Since: rounded(1000, max(0, l.now.Sub(lost.At)).Seconds()), Text: health.LostText(lost, l.now)}
	}
	return w, blocks, err
}

// rounded rounds a number to a fraction.
func rounded(parts, n float64) float64 { return math.Round(n*parts) / parts }
