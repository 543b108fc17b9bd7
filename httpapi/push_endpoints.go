package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/address"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
)

// shownEndpoint returns an endpoint for a sender. Only who may set its URL sees the query of it, which may hold a secret.
func shownEndpoint(ctx context.Context, e *push.Endpoint) wire.Endpoint {
	w := e.JSON()
	w.URL = shownURL(ctx, w.URL)
	return w
}

// shownURL returns the URL of an endpoint, and to senders without the scope admin without its query.
func shownURL(ctx context.Context, text string) string {
	if text == "" || senderOf(ctx).may(ScopeAdmin) {
		return text
	}
	return plain.URL(text)
}

type endpointOutput struct{ Body wire.EndpointDetail }

type endpointsOutput struct {
	Body struct {
		Endpoints  []wire.Endpoint `json:"endpoints" nullable:"false" doc:"The endpoints, by queue."`
		NextCursor string          `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"Endpoints"`
}

// checkEndpoint returns an error for a URL that jobs may not be sent to.
func checkEndpoint(field, to string, hosts *push.Hosts) error {
	err := address.CheckEndpoint(to)
	if err == nil && hosts != nil {
		err = hosts.Check(to)
	}
	if err != nil {
		return invalid(field, "%v", err)
	}
	return nil
}

// checkPushed refuses jobs that name an endpoint in a queue whose jobs are not pushed: nobody would send
// them there.
func (a *API) checkPushed(ctx context.Context, jobs []queue.Job) error {
	known := map[string]error{}
	for i := range jobs {
		j := &jobs[i]
		if j.Endpoint == "" {
			continue
		}
		err := checkEndpoint("endpoint", j.Endpoint, a.opt.Hosts)
		if err == nil {
			err = a.checkSends(ctx, j, known)
		}
		if err != nil && len(jobs) > 1 {
			err = &queue.JobError{Index: i, Of: len(jobs), Err: err}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *API) checkSends(ctx context.Context, j *queue.Job, known map[string]error) error {
	name := j.Queue
	if name == "" {
		var err error
		if name, err = a.admin.Route(ctx, j.Kind); err != nil {
			return err
		}
	}
	err, ok := known[name]
	if !ok {
		if _, err = a.endpoints.Get(ctx, name); errors.Is(err, queue.ErrNotFound) {
			err = invalid("endpoint", "the jobs of queue %q are not sent; give it an endpoint of its own first, with or without a URL", name)
		}
		known[name] = err
	}
	return err
}

type setEndpointInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Body  wire.EndpointChange
}

type setEndpointOutput struct {
	Status int
	Body   wire.Endpoint
}

// pushing registers the operations on endpoints.
func (a *API) pushing() {
	register(a, operation{
		id: "list-endpoints", method: http.MethodGet, path: "/endpoints", tag: "push", scope: ScopeRead, answer: answerList,
		summary: "List the endpoints of queues whose jobs are sent",
	}, func(ctx context.Context, in *page) (*endpointsOutput, error) {
		out := &endpointsOutput{}
		var err error
		out.Body.Endpoints, out.Body.NextCursor, err = pageOf(ctx, in, a.endpoints.List, func(e *push.Endpoint) string { return e.Queue },
			func(e *push.Endpoint) wire.Endpoint { return shownEndpoint(ctx, e) })
		return out, err
	})
	register(a, operation{
		id: "get-endpoint", method: http.MethodGet, path: "/queues/{queue}/endpoint", tag: "push", scope: ScopeRead,
		errors:  []int{http.StatusNotFound},
		summary: "Show where a queue's jobs are sent, and the newest answers",
	}, func(ctx context.Context, in *queuePath) (*endpointOutput, error) {
		if err := checkNames("queue", in.Queue); err != nil {
			return nil, err
		}
		e, err := a.endpoints.Get(ctx, in.Queue)
		if err != nil {
			return nil, err
		}
		detail, err := health.EndpointDetail(ctx, a.db, &e)
		detail.URL = shownURL(ctx, detail.URL)
		return &endpointOutput{detail}, err
	})
	register(a, operation{
		id: "set-endpoint", method: http.MethodPut, path: "/queues/{queue}/endpoint", tag: "push", scope: ScopeAdmin,
		status: http.StatusOK, also: http.StatusCreated, errors: []int{http.StatusConflict},
		summary: "Send a queue's jobs to a URL, or change how",
		more:    "What is not given stays as it is, or is as usual in a new one. A queue is made if there is none. Daemons go by it within two seconds. Its jobs should not be done by workers as well: both would, each job once.",
	}, a.setEndpoint)
	register(a, operation{
		id: "delete-endpoint", method: http.MethodDelete, path: "/queues/{queue}/endpoint", tag: "push", scope: ScopeAdmin,
		errors:  []int{http.StatusNotFound},
		summary: "Stop sending a queue's jobs",
		more:    "They stay, and wait for workers. What is being sent is finished.",
	}, func(ctx context.Context, in *queuePath) (*struct{}, error) {
		if err := checkNames("queue", in.Queue); err != nil {
			return nil, err
		}
		return nil, a.endpoints.Delete(ctx, in.Queue)
	})
}

func (a *API) setEndpoint(ctx context.Context, in *setEndpointInput) (*setEndpointOutput, error) {
	if err := checkNames("queue", in.Queue); err != nil {
		return nil, err
	}
	if url := in.Body.URL; url != nil && *url != "" {
		if err := checkEndpoint("url", *url, a.opt.Hosts); err != nil {
			return nil, err
		}
	}
	change, err := push.Change(&in.Body)
	if err != nil {
		return nil, err
	}
	done, err := a.endpoints.Set(ctx, a.admin, in.Queue, change)
	if err != nil {
		return nil, err
	}
	out := &setEndpointOutput{Status: http.StatusOK, Body: shownEndpoint(ctx, &done.Endpoint)}
	if done.Made {
		out.Status = http.StatusCreated
	}
	if in.Body.Secret == "" && done.NewSecret {
		out.Body.Secret = done.Secret
	}
	return out, nil
}
