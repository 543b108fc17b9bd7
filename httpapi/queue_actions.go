package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

type pauseJSON struct {
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"The reason, for people."`
}

// why returns the reason, if there is a body.
func (p *pauseJSON) why() string {
	if p == nil {
		return ""
	}
	return p.Reason
}

// doneBy is the reason of a pause or an end that has no other.
func doneBy(ctx context.Context, what string) string {
	if name := senderOf(ctx).token; name != "" {
		text := what + " by " + name
		return strings.ToValidUTF8(text[:min(len(text), longestReason)], "")
	}
	return ""
}

// longestReason is the maximum size of a reason in bytes.
const longestReason = 200

type pauseInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Body  *pauseJSON
}

type purgeInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Body  struct {
		State  string `json:"state" enum:"ready,delayed,dead,done,all" doc:"The state of the jobs that are removed. all leaves those that are done and kept."`
		Limit  int    `json:"limit,omitempty" minimum:"1" maximum:"100000" doc:"The greatest number of jobs. Default: 10000."`
		Cursor string `json:"cursor,omitempty" maxLength:"200" doc:"The next_cursor of the answer before. It goes on after that, with the jobs that were there at the beginning."`
		DryRun bool   `json:"dry_run,omitempty" doc:"Whether to count the jobs only, and remove none."`
	} `nameHint:"Purge"`
}

type purgeOutput struct{ Body wire.PurgeResult }

type resizeQueueInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Body  struct {
		Blocks int `json:"blocks" minimum:"1" maximum:"1000" doc:"How many blocks the queue has from now on, which is how many workers can share it."`
	} `nameHint:"ResizeQueue"`
}

type moveInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Body  wire.Move
}

type moveOutput struct{ Body wire.Moved }

type statsInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Limit int    `query:"limit" minimum:"1" maximum:"100000" default:"10000" doc:"How far the jobs of each state are counted."`
}

type statsOutput struct{ Body wire.QueueStats }

type finishedInput struct {
	Last string `query:"last" default:"1h" maxLength:"40" doc:"What has been done for this long, up to 7d."`
}

type finishedOutput struct {
	Body struct {
		Finished []wire.Finished `json:"finished" nullable:"false" doc:"What workers have done, by queue and kind."`
	} `nameHint:"FinishedList"`
}

// queueActions registers the operations that act on queues.
func (a *API) queueActions() {
	register(a, operation{
		id: "pause-queue", method: http.MethodPost, path: "/queues/{queue}/pause", tag: "queues", scope: ScopeOperate,
		errors:  []int{http.StatusNotFound, http.StatusConflict},
		summary: "Let a queue's jobs wait",
		more:    "What runs goes on, and jobs can be enqueued.",
	}, func(ctx context.Context, in *pauseInput) (*struct{}, error) {
		if err := checkNames("queue", in.Queue); err != nil {
			return nil, err
		}
		deedOf(ctx).detail = in.Body.why()
		return nil, a.admin.Pause(ctx, in.Queue, cmp.Or(in.Body.why(), doneBy(ctx, "paused")))
	})
	register(a, operation{
		id: "resume-queue", method: http.MethodPost, path: "/queues/{queue}/resume", tag: "queues", scope: ScopeOperate,
		errors:  []int{http.StatusNotFound, http.StatusConflict},
		summary: "End a pause",
	}, func(ctx context.Context, in *queuePath) (*struct{}, error) {
		if err := checkNames("queue", in.Queue); err != nil {
			return nil, err
		}
		return nil, a.admin.Resume(ctx, in.Queue)
	})
	register(a, operation{
		id: "purge-queue", method: http.MethodPost, path: "/queues/{queue}/purge", tag: "queues", scope: ScopeAdmin,
		errors:  []int{http.StatusNotFound, http.StatusConflict},
		summary: "Remove the jobs that wait in a queue, or the dead ones",
		more:    "Running jobs are left. It is done in small transactions: when it is broken off, a part is done, and doing it again does the rest.",
	}, a.purge)
	register(a, operation{
		id: "resize-queue", method: http.MethodPost, path: "/queues/{queue}/resize", tag: "queues", scope: ScopeAdmin,
		errors:  []int{http.StatusNotFound},
		summary: "Change how many workers can share a queue",
		more:    "Jobs that are enqueued after a few seconds go to new blocks, and the old ones go when they are empty. No job is lost.",
	}, func(ctx context.Context, in *resizeQueueInput) (*struct{}, error) {
		q, err := a.queueOf(ctx, &queuePath{in.Queue})
		if err != nil {
			return nil, err
		}
		deedOf(ctx).detail = fmt.Sprintf("from %d to %d", q.Blocks, in.Body.Blocks)
		return nil, a.admin.Resize(ctx, in.Queue, in.Body.Blocks)
	})
	register(a, operation{
		id: "move-jobs", method: http.MethodPost, path: "/queues/{queue}/move", tag: "queues", scope: ScopeAdmin,
		errors:  []int{http.StatusNotFound, http.StatusConflict},
		summary: "Move jobs that wait to another queue",
		more:    "They keep their ids, keys, times and attempts. Running jobs stay. Nobody begins a job of the two queues meanwhile. If all is false in the answer, time was over: the same request with its next_cursor does the rest.",
	}, a.move)
	register(a, operation{
		id: "queue-stats", method: http.MethodGet, path: "/queues/{queue}/stats", tag: "queues", scope: ScopeRead,
		errors:  []int{http.StatusNotFound},
		summary: "Count a queue's jobs by state and kind",
	}, a.stats)
	register(a, operation{
		id: "finished", method: http.MethodGet, path: "/stats", tag: "queues", scope: ScopeRead,
		summary: "Tell what workers have done, by queue and kind",
	}, a.finished)
}

func (a *API) purge(ctx context.Context, in *purgeInput) (*purgeOutput, error) {
	if err := checkNames("queue", in.Queue); err != nil {
		return nil, err
	}
	left := in.Body.Limit
	if left == 0 {
		left = usualBulk
	}
	at, from, entry, err := readBulkCursor(in.Body.Cursor)
	if err != nil {
		return nil, err
	}
	out, d := &purgeOutput{wire.PurgeResult{ByState: map[string]int{}}}, deedOf(ctx)
	d.entry, d.count, d.detail, d.nothing = entry, 0, "state="+in.Body.State, in.Body.DryRun
	// Ready jobs first: those that become delayed or dead meanwhile are found afterwards.
	for _, part := range []struct {
		state admin.State
		what  admin.BulkAction
	}{
		{admin.StateReady, admin.BulkCancel},
		{admin.StateDelayed, admin.BulkCancel},
		{admin.StateDead, admin.BulkDelete},
		{admin.StateDone, admin.BulkDelete},
	} {
		if (in.Body.State != "all" || part.state == admin.StateDone) && in.Body.State != string(part.state) || at != "" && at != part.state {
			continue
		}
		at = "" // from there on, all
		r, err := a.admin.Bulk(ctx, part.what, admin.Filter{Queue: in.Queue, State: part.state, Limit: left},
			admin.BulkOptions{DryRun: in.Body.DryRun, From: from, Most: maxLooked})
		if err != nil {
			d.count += r.Done
			return nil, err
		}
		left -= r.Done + r.Gone
		out.Body.Removed += r.Done
		out.Body.ByState[string(part.state)] = r.Done
		d.count = out.Body.Removed
		if from.Block, from.After = 0, 0; r.Next != nil {
			d.goOn(&out.Body.NextCursor, part.state, r.Next)
			return out, nil
		}
	}
	out.Body.All = true
	return out, nil
}

func (a *API) move(ctx context.Context, in *moveInput) (*moveOutput, error) {
	b, who := &in.Body, senderOf(ctx).here
	if err := checkNames("queue", in.Queue, "to", b.To); err != nil {
		return nil, err
	}
	entry, err := readIDCursor(b.Cursor)
	if err != nil {
		return nil, err
	}
	opt := queue.MoveOptions{Kinds: b.Kinds, DryRun: b.DryRun}
	if who != nil && who.Progress != nil {
		opt.Progress = func(n queue.Moved) { who.Progress(n.Jobs) }
	}
	within, cancel := ctx, context.CancelFunc(func() {})
	if who == nil {
		within, cancel = context.WithTimeout(ctx, a.opt.Timeout/2)
	}
	defer cancel()
	n, err := a.queues.Move(within, in.Queue, b.To, opt)
	d := deedOf(ctx)
	d.entry, d.count, d.detail, d.nothing = entry, n.Jobs, "to "+b.To, b.DryRun
	if len(b.Kinds) > 0 {
		d.detail += ", kind=" + strings.Join(b.Kinds, ",")
	}
	all := within.Err() == nil || ctx.Err() != nil
	if !all && n.Jobs > 0 {
		err = nil
	}
	out := &moveOutput{wire.Moved{
		From: in.Queue, To: b.To, DryRun: b.DryRun, Jobs: n.Jobs, Running: n.Running, Behind: n.Behind, Taken: n.Taken, All: all,
	}}
	if !all {
		d.next = func(entry int64) { out.Body.NextCursor = wire.ID(entry) }
	}
	return out, err
}

func (a *API) stats(ctx context.Context, in *statsInput) (*statsOutput, error) {
	if err := checkNames("queue", in.Queue); err != nil {
		return nil, err
	}
	n, err := a.admin.Count(ctx, in.Queue, in.Limit)
	if err != nil {
		return nil, err
	}
	kinds, err := a.admin.Stats(ctx, in.Queue, in.Limit)
	if err != nil {
		return nil, err
	}
	return &statsOutput{wire.QueueStats{QueueCounts: wireof.QueueCounts(&n), Kinds: wireof.Each(kinds, wireof.JobCount)}}, nil
}

func (a *API) finished(ctx context.Context, in *finishedInput) (*finishedOutput, error) {
	last, err := readDuration("last", in.Last)
	if err != nil {
		return nil, err
	}
	all, err := a.admin.Finished(ctx, last)
	if err != nil {
		return nil, err
	}
	out := &finishedOutput{}
	out.Body.Finished = wireof.Each(all, wireof.Finished)
	return out, nil
}
