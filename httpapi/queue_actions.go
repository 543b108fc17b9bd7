package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/dbcron/dbcron/queue/admin"
)

type pauseJSON struct {
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"For people"`
}

// why returns the reason, if there is a body.
func (p *pauseJSON) why() string {
	if p == nil {
		return ""
	}
	return p.Reason
}

type pauseInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Body  *pauseJSON
}

type purgeInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Body  struct {
		State  string `json:"state" enum:"ready,delayed,dead,all"`
		Limit  int    `json:"limit,omitempty" minimum:"1" maximum:"100000" doc:"How many at the most; default: 10000"`
		DryRun bool   `json:"dry_run,omitempty" doc:"Only count them"`
	} `nameHint:"Purge"`
}

type purgeOutput struct {
	Body struct {
		Removed int  `json:"removed" doc:"In a dry run: it would be tried with so many"`
		All     bool `json:"all" doc:"There were no more than the limit; if not, do it again"`
	} `nameHint:"PurgeResult"`
}

type statsInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Limit int    `query:"limit" minimum:"1" maximum:"100000" default:"10000" doc:"How far jobs of each state are counted"`
}

type kindJSON struct {
	Kind   string `json:"kind"`
	State  string `json:"state" enum:"ready,delayed,running,dead,done"`
	Count  int    `json:"count"`
	More   bool   `json:"more" doc:"There may be more than that, and older ones"`
	Oldest stamp  `json:"oldest" doc:"When the oldest was enqueued"`
}

type statsOutput struct {
	Body struct {
		Ready   int        `json:"ready"`
		Delayed int        `json:"delayed"`
		Running int        `json:"running" doc:"For more than a second; others count as ready"`
		Dead    int        `json:"dead"`
		Done    int        `json:"done" doc:"That are kept"`
		Limit   int        `json:"limit" doc:"A count that is this is that or more"`
		Kinds   []kindJSON `json:"kinds" nullable:"false"`
	} `nameHint:"QueueStats"`
}

type finishedInput struct {
	Last string `query:"last" default:"1h" maxLength:"40" doc:"Since how long ago, up to 7d"`
}

type finishedJSON struct {
	Queue       string  `json:"queue"`
	Kind        string  `json:"kind"`
	Done        int     `json:"done"`
	Failed      int     `json:"failed" doc:"Attempts that are followed by another"`
	Dead        int     `json:"dead"`
	WaitSeconds float64 `json:"wait_seconds" doc:"From when a job could begin until it did, on average"`
	TookSeconds float64 `json:"took_seconds" doc:"On average"`
}

type finishedOutput struct {
	Body struct {
		Finished []finishedJSON `json:"finished" nullable:"false"`
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
		return nil, a.admin.Pause(ctx, in.Queue, in.Body.why())
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
	out, d := &purgeOutput{}, deedOf(ctx)
	d.count, d.detail, d.nothing = 0, "state="+in.Body.State, in.Body.DryRun
	// Ready jobs first: those that become delayed or dead meanwhile are found afterwards.
	for _, part := range []struct {
		state admin.State
		what  admin.BulkAction
	}{{admin.StateReady, admin.BulkCancel}, {admin.StateDelayed, admin.BulkCancel}, {admin.StateDead, admin.BulkDelete}} {
		if in.Body.State != "all" && in.Body.State != string(part.state) || left == 0 {
			continue
		}
		r, err := a.admin.Bulk(ctx, part.what, admin.Filter{Queue: in.Queue, State: part.state, Limit: left},
			admin.BulkOptions{DryRun: in.Body.DryRun})
		if err != nil {
			d.count += r.Done
			return nil, err
		}
		left -= r.Done + r.Gone
		out.Body.Removed += r.Done
		d.count = out.Body.Removed
	}
	out.Body.All = left > 0
	return out, nil
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
	out := &statsOutput{}
	b := &out.Body
	b.Ready, b.Delayed, b.Running, b.Dead, b.Done, b.Limit = n.Ready, n.Delayed, n.Running, n.Dead, n.Done, n.Limit
	b.Kinds = make([]kindJSON, len(kinds))
	for i, k := range kinds {
		b.Kinds[i] = kindJSON{k.Kind, string(k.State), k.Count, k.More, stamp{k.Oldest}}
	}
	return out, nil
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
	out.Body.Finished = make([]finishedJSON, len(all))
	for i, f := range all {
		out.Body.Finished[i] = finishedJSON{f.Queue, f.Kind, f.Done, f.Failed, f.Dead, rounded(f.Wait), rounded(f.Took)}
	}
	return out, nil
}

// rounded returns a duration in seconds, rounded to microseconds.
func rounded(d time.Duration) float64 { return d.Round(time.Microsecond).Seconds() }
