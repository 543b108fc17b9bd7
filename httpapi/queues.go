package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// forever is the retention of dead jobs that are never deleted.
const forever = "forever"

type queuePath struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
}

// A queueJSON is a queue's settings.
type queueJSON struct {
	Name          string `json:"name"`
	State         string `json:"state" enum:"active,paused,deleted"`
	Reason        string `json:"reason,omitempty" doc:"Why it is paused"`
	Blocks        int    `json:"blocks"`
	KeyRetry      string `json:"key_retry" enum:"hold,pass"`
	FIFO          bool   `json:"fifo" doc:"Its jobs are done one after the other, in the order in which they were enqueued"`
	MaxAttempts   int    `json:"max_attempts"`
	MaxCrashes    int    `json:"max_crashes"`
	RetryDelay    string `json:"retry_delay"`
	RetryMaxDelay string `json:"retry_max_delay"`
	Timeout       string `json:"timeout" doc:"Of an attempt; 0s: none"`
	MaxPayload    int    `json:"max_payload" doc:"Bytes"`
	KeepDead      string `json:"keep_dead" doc:"How long dead jobs are kept, or forever"`
	KeepDeadMax   int    `json:"keep_dead_max" doc:"How many; 0: all"`
	KeepDone      string `json:"keep_done" doc:"How long jobs that are done are kept; 0s: they are not"`
	PollMin       string `json:"poll_min"`
	PollMax       string `json:"poll_max"`
	Notify        string `json:"notify,omitempty" doc:"Who is told when it has dead letters or is behind; missing: as the daemons say"`
}

func newQueueJSON(q *admin.Queue) queueJSON {
	j := queueJSON{
		Name: q.Name, State: q.State, Reason: q.Reason, Blocks: q.Blocks, KeyRetry: q.KeyRetry, FIFO: q.FIFO,
		MaxAttempts: q.MaxAttempts, MaxCrashes: q.MaxCrashes,
		RetryDelay: durationText(q.RetryDelay), RetryMaxDelay: durationText(q.RetryMaxDelay), Timeout: durationText(q.Timeout),
		MaxPayload: q.MaxPayload,
		KeepDead:   durationText(q.KeepDead), KeepDeadMax: q.KeepDeadMax, KeepDone: durationText(q.KeepDone),
		PollMin: durationText(q.PollMin), PollMax: durationText(q.PollMax), Notify: q.Notify,
	}
	if q.KeepDead < 0 {
		j.KeepDead = forever
	}
	return j
}

// queueChange is a change of a queue's settings. Absent fields stay.
type queueChange struct {
	Blocks        int    `json:"blocks,omitempty" minimum:"1" maximum:"1000" doc:"How many workers can share it; 16 in a new queue"`
	KeyRetry      string `json:"key_retry,omitempty" enum:"hold,pass" doc:"The jobs of a key of which one waits for its retry: hold lets them wait, too"`
	FIFO          *bool  `json:"fifo,omitempty" doc:"Its jobs are done one after the other, in the order in which they were enqueued; takes effect after four seconds in a queue that is there"`
	MaxAttempts   int    `json:"max_attempts,omitempty" minimum:"1" maximum:"1000000" doc:"After so many failed ones a job is dead"`
	MaxCrashes    int    `json:"max_crashes,omitempty" minimum:"1" maximum:"1000000" doc:"After so many workers died with a job it is dead"`
	RetryDelay    string `json:"retry_delay,omitempty" maxLength:"40" doc:"Before the second attempt; doubles with each further one" example:"10s"`
	RetryMaxDelay string `json:"retry_max_delay,omitempty" maxLength:"40" example:"1h"`
	Timeout       string `json:"timeout,omitempty" maxLength:"40" doc:"Of an attempt; 0s: none" example:"30s"`
	MaxPayload    int    `json:"max_payload,omitempty" minimum:"1" maximum:"1073741824" doc:"Bytes"`
	KeepDead      string `json:"keep_dead,omitempty" maxLength:"40" doc:"How long dead jobs are kept, or forever" example:"30d"`
	KeepDeadMax   *int   `json:"keep_dead_max,omitempty" minimum:"0" maximum:"1000000" doc:"How many, about: those that were enqueued last; 0: all"`
	KeepDone      string `json:"keep_done,omitempty" maxLength:"40" doc:"How long jobs that are done are kept; 0s: they are not" example:"24h"`
	PollMin       string `json:"poll_min,omitempty" maxLength:"40" example:"2ms"`
	PollMax       string `json:"poll_max,omitempty" maxLength:"40" example:"250ms"`

	Notify *string `json:"notify,omitempty" maxLength:"1000" doc:"Who is told when it has dead letters or is behind, and when that is over: mail addresses and URLs with blanks between, or none; empty: as the daemons say" example:"mailto:ops@example.org"`
}

// read returns a function that makes the change, or an error about a field.
func (n *queueChange) read() (func(*admin.Queue), error) {
	var changes []func(*admin.Queue)
	number := func(n int, to func(*admin.Queue) *int) {
		if n != 0 {
			changes = append(changes, func(q *admin.Queue) { *to(q) = n })
		}
	}
	number(n.MaxAttempts, func(q *admin.Queue) *int { return &q.MaxAttempts })
	number(n.MaxCrashes, func(q *admin.Queue) *int { return &q.MaxCrashes })
	number(n.MaxPayload, func(q *admin.Queue) *int { return &q.MaxPayload })
	if n.KeepDeadMax != nil {
		changes = append(changes, func(q *admin.Queue) { q.KeepDeadMax = *n.KeepDeadMax })
	}
	if n.FIFO != nil {
		changes = append(changes, func(q *admin.Queue) { q.FIFO = *n.FIFO })
	}
	if n.Notify != nil {
		changes = append(changes, func(q *admin.Queue) { q.Notify = *n.Notify })
	}
	if n.KeyRetry != "" {
		changes = append(changes, func(q *admin.Queue) { q.KeyRetry = n.KeyRetry })
	}
	for _, s := range []struct {
		field, text string
		to          func(*admin.Queue) *time.Duration
	}{
		{"retry_delay", n.RetryDelay, func(q *admin.Queue) *time.Duration { return &q.RetryDelay }},
		{"retry_max_delay", n.RetryMaxDelay, func(q *admin.Queue) *time.Duration { return &q.RetryMaxDelay }},
		{"timeout", n.Timeout, func(q *admin.Queue) *time.Duration { return &q.Timeout }},
		{"keep_dead", n.KeepDead, func(q *admin.Queue) *time.Duration { return &q.KeepDead }},
		{"keep_done", n.KeepDone, func(q *admin.Queue) *time.Duration { return &q.KeepDone }},
		{"poll_min", n.PollMin, func(q *admin.Queue) *time.Duration { return &q.PollMin }},
		{"poll_max", n.PollMax, func(q *admin.Queue) *time.Duration { return &q.PollMax }},
	} {
		if s.text == "" {
			continue
		}
		d := time.Duration(-1)
		if s.field != "keep_dead" || s.text != forever {
			var err error
			if d, err = readDuration(s.field, s.text); err != nil {
				return nil, err
			}
		}
		changes = append(changes, func(q *admin.Queue) { *s.to(q) = d })
	}
	return func(q *admin.Queue) {
		if q.State == "deleted" { // a deleted queue is taken into use again
			q.State = "active"
		}
		for _, change := range changes {
			change(q)
		}
	}, nil
}

type queueOutput struct{ Body queueJSON }

type queuesOutput struct {
	Body struct {
		Queues     []queueJSON `json:"queues" nullable:"false"`
		NextCursor string      `json:"next_cursor,omitempty"`
	} `nameHint:"Queues"`
}

type setQueueInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Body  queueChange
}

type setQueueOutput struct {
	Status int
	Body   queueJSON
}

// queueSettings registers the operations that show and change queues.
func (a *API) queueSettings() {
	register(a, operation{
		id: "list-queues", method: http.MethodGet, path: "/queues", tag: "queues", scope: ScopeRead, answer: answerList,
		summary: "List the queues by name, also those that were deleted",
	}, func(ctx context.Context, in *page) (*queuesOutput, error) {
		var after string
		if err := readCursor(in.Cursor, &after); err != nil {
			return nil, err
		}
		found, err := a.admin.Queues(ctx, after, in.Limit)
		if err != nil {
			return nil, err
		}
		out := &queuesOutput{}
		out.Body.Queues = make([]queueJSON, len(found))
		for i := range found {
			out.Body.Queues[i] = newQueueJSON(&found[i])
		}
		if n := len(found); n == in.Limit {
			out.Body.NextCursor = cursorOf(found[n-1].Name)
		}
		return out, nil
	})
	register(a, operation{
		id: "get-queue", method: http.MethodGet, path: "/queues/{queue}", tag: "queues", scope: ScopeRead,
		errors:  []int{http.StatusNotFound},
		summary: "Show a queue's settings",
	}, func(ctx context.Context, in *queuePath) (*queueOutput, error) {
		q, err := a.queueOf(ctx, in)
		if err != nil {
			return nil, err
		}
		return &queueOutput{newQueueJSON(&q)}, nil
	})
	register(a, operation{
		id: "set-queue", method: http.MethodPut, path: "/queues/{queue}", tag: "queues", scope: ScopeAdmin,
		status: http.StatusOK, also: http.StatusCreated,
		summary: "Change a queue's settings, or make it",
		more:    "What is not given stays as it is, or is as usual in a new queue. One that was deleted is taken into use again. Producers and workers go by it within seconds.",
	}, a.setQueue)
	register(a, operation{
		id: "delete-queue", method: http.MethodDelete, path: "/queues/{queue}", tag: "queues", scope: ScopeAdmin,
		errors:  []int{http.StatusNotFound, http.StatusConflict},
		summary: "Delete a queue that has no jobs and to which no route leads",
		more:    "It takes no jobs any more; its settings are kept. Who enqueues knows within two seconds: a job that comes meanwhile waits there until the queue is set again.",
	}, func(ctx context.Context, in *queuePath) (*struct{}, error) {
		if err := checkNames("queue", in.Queue); err != nil {
			return nil, err
		}
		return nil, a.admin.DeleteQueue(ctx, in.Queue)
	})
}

func (a *API) queueOf(ctx context.Context, in *queuePath) (admin.Queue, error) {
	if err := checkNames("queue", in.Queue); err != nil {
		return admin.Queue{}, err
	}
	return a.admin.Queue(ctx, in.Queue)
}

func (a *API) setQueue(ctx context.Context, in *setQueueInput) (*setQueueOutput, error) {
	change, err := in.Body.read()
	if err != nil {
		return nil, err
	}
	if b := in.Body.Blocks; b < 0 || b > 1000 {
		return nil, invalid("blocks", "%d is not 1 to 1000", b)
	}
	if f := in.Body.FIFO; f != nil && *f && in.Body.Blocks > 1 {
		return nil, invalid("blocks", "a queue that is FIFO has one block")
	}
	out := &setQueueOutput{Status: http.StatusOK}
	if _, err := a.queueOf(ctx, &queuePath{in.Queue}); errors.Is(err, queue.ErrNotFound) {
		out.Status = http.StatusCreated
	} else if err != nil {
		return nil, err
	}
	q, err := a.admin.Edit(ctx, in.Queue, change)
	if err == nil && in.Body.Blocks != 0 && in.Body.Blocks != q.Blocks {
		if err = a.admin.Resize(ctx, in.Queue, in.Body.Blocks); err == nil {
			q, err = a.admin.Queue(ctx, in.Queue)
		}
	}
	out.Body = newQueueJSON(&q)
	return out, err
}
