package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

type queuePath struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
}

// readQueueChange returns a function that makes the change, or an error about a field.
func readQueueChange(n *wire.QueueChange) (func(*admin.Queue), error) {
	field, err := setting.Apply(admin.Settings(), &admin.Queue{}, n) // the values are valid, or the error says which is not
	if err != nil {
		return nil, invalid(field, "%v", err)
	}
	return func(q *admin.Queue) {
		if q.State == "deleted" { // a deleted queue is taken into use again
			q.State = "active"
		}
		_, _ = setting.Apply(admin.Settings(), q, n)
	}, nil
}

type queueOutput struct{ Body wire.Queue }

type queuesOutput struct {
	Body struct {
		Queues     []wire.Queue `json:"queues" nullable:"false" doc:"The queues, by name."`
		NextCursor string       `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"Queues"`
}

type setQueueInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Body  wire.QueueChange
}

type setQueueOutput struct {
	Status int
	Body   wire.Queue
}

// queueSettings registers the operations that show and change queues.
func (a *API) queueSettings() {
	register(a, operation{
		id: "list-queues", method: http.MethodGet, path: "/queues", tag: "queues", scope: ScopeRead, answer: answerList,
		summary: "List the queues by name, also those that were deleted",
	}, func(ctx context.Context, in *page) (*queuesOutput, error) {
		out := &queuesOutput{}
		var err error
		out.Body.Queues, out.Body.NextCursor, err = pageOf(ctx, in, a.admin.Queues, func(q *admin.Queue) string { return q.Name }, wireof.Queue)
		return out, err
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
		return &queueOutput{wireof.Queue(&q)}, nil
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
	change, err := readQueueChange(&in.Body)
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
	out.Body = wireof.Queue(&q)
	return out, err
}
