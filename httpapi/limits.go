package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

type limitPath struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Kind  string `path:"kind" minLength:"1" maxLength:"200" doc:"The kind of the jobs that are limited."`
}

type limitsOutput struct {
	Body struct {
		Limits []wire.Limit `json:"limits" nullable:"false" doc:"The limits of the queue: that of all its jobs first, then those of kinds."`
	} `nameHint:"Limits"`
}

type allLimitsOutput struct {
	Body struct {
		Limits     []wire.Limit `json:"limits" nullable:"false" doc:"The limits, by queue and kind: that of all jobs of a queue first."`
		NextCursor string       `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"AllLimits"`
}

type limitOutput struct{ Body wire.Limit }

type setLimitInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Kind  string `path:"kind" minLength:"1" maxLength:"200" doc:"The kind of the jobs that are limited."`
	Body  wire.LimitChange
}

type setQueueLimitInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Body  wire.LimitChange
}

// limits registers the operations on the limits of queues and kinds.
func (a *API) limits() {
	const all, ofKind = "/queues/{queue}/limits", "/queues/{queue}/limits/{kind}"
	const what = "What is not given stays as it is. Workers learn of it within three seconds; jobs that run by then are not stopped."
	notFound := []int{http.StatusNotFound}
	register(a, operation{
		id: "list-all-limits", method: http.MethodGet, path: "/limits", tag: "queues", scope: ScopeRead, answer: answerList,
		summary: "List the limits of all queues and kinds",
	}, a.allLimits)
	register(a, operation{
		id: "list-limits", method: http.MethodGet, path: all, tag: "queues", scope: ScopeRead, answer: answerList, errors: notFound,
		summary: "List the limits of a queue, that of all its jobs first",
	}, func(ctx context.Context, in *queuePath) (*limitsOutput, error) {
		found, err := a.limitsOf(ctx, in.Queue)
		if err != nil {
			return nil, err
		}
		out := &limitsOutput{}
		out.Body.Limits = wireof.Each(found, wireof.Limit)
		return out, nil
	})
	register(a, operation{
		id: "get-limit", method: http.MethodGet, path: ofKind, tag: "queues", scope: ScopeRead, errors: notFound,
		summary: "Show the limit of a kind",
	}, func(ctx context.Context, in *limitPath) (*limitOutput, error) {
		if err := checkNames("kind", in.Kind); err != nil {
			return nil, err
		}
		return a.limit(ctx, in.Queue, in.Kind)
	})
	register(a, operation{
		id: "set-queue-limit", method: http.MethodPut, path: all, tag: "queues", scope: ScopeAdmin, errors: notFound,
		summary: "Limit all jobs of a queue together", more: what,
	}, func(ctx context.Context, in *setQueueLimitInput) (*limitOutput, error) {
		return a.setLimit(ctx, in.Queue, "", &in.Body)
	})
	register(a, operation{
		id: "set-limit", method: http.MethodPut, path: ofKind, tag: "queues", scope: ScopeAdmin, errors: notFound,
		summary: "Limit the jobs of one kind in a queue", more: what,
	}, func(ctx context.Context, in *setLimitInput) (*limitOutput, error) {
		return a.setLimit(ctx, in.Queue, in.Kind, &in.Body)
	})
	register(a, operation{
		id: "delete-queue-limit", method: http.MethodDelete, path: all, tag: "queues", scope: ScopeAdmin, errors: notFound,
		summary: "Delete the limit of all jobs of a queue together",
	}, func(ctx context.Context, in *queuePath) (*struct{}, error) {
		if err := checkNames("queue", in.Queue); err != nil {
			return nil, err
		}
		return nil, a.admin.DeleteLimit(ctx, in.Queue, "")
	})
	register(a, operation{
		id: "delete-limit", method: http.MethodDelete, path: ofKind, tag: "queues", scope: ScopeAdmin, errors: notFound,
		summary: "Delete the limit of a kind",
	}, func(ctx context.Context, in *limitPath) (*struct{}, error) {
		if err := checkNames("queue", in.Queue, "kind", in.Kind); err != nil {
			return nil, err
		}
		return nil, a.admin.DeleteLimit(ctx, in.Queue, in.Kind)
	})
}

func (a *API) allLimits(ctx context.Context, in *page) (*allLimitsOutput, error) {
	var name, kind string
	if err := readCursor(in.Cursor, &name, &kind); err != nil {
		return nil, err
	}
	found, err := a.admin.Limits(ctx, name, strings.TrimPrefix(kind, "="), in.Limit)
	if err != nil {
		return nil, err
	}
	out := &allLimitsOutput{}
	out.Body.Limits = wireof.Each(found, wireof.Limit)
	if n := len(found); n == in.Limit {
		out.Body.NextCursor = cursorOf(found[n-1].Queue, "="+found[n-1].Kind) // a cursor has no empty names
	}
	return out, nil
}

// limitsOf lists the limits of a queue, which must exist.
func (a *API) limitsOf(ctx context.Context, name string) ([]admin.LimitInfo, error) {
	if err := checkNames("queue", name); err != nil {
		return nil, err
	}
	found, err := a.admin.LimitsOf(ctx, name)
	if err == nil && len(found) == 0 {
		_, err = a.admin.Queue(ctx, name)
	}
	return found, err
}

func (a *API) limit(ctx context.Context, name, kind string) (*limitOutput, error) {
	found, err := a.limitsOf(ctx, name)
	if err != nil {
		return nil, err
	}
	for i := range found {
		if found[i].Kind == kind {
			return &limitOutput{wireof.Limit(&found[i])}, nil
		}
	}
	return nil, fmt.Errorf("%w: limit of queue %q and kind %q", queue.ErrNotFound, name, kind)
}

func (a *API) setLimit(ctx context.Context, name, kind string, n *wire.LimitChange) (*limitOutput, error) {
	if err := checkNames("queue", name, "kind", kind); err != nil {
		return nil, err
	}
	change, err := wireof.LimitChange(n)
	if err != nil {
		return nil, err
	}
	_, err = a.admin.EditLimit(ctx, name, kind, change)
	var wrong *queue.InvalidError
	switch {
	case errors.As(err, &wrong) && wrong.Field == "limit":
		return nil, invalid("running", "%s", wrong.Problem)
	case err != nil:
		return nil, err
	}
	return a.limit(ctx, name, kind)
}
