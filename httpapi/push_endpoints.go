package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/address"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
)

// An endpointJSON is the endpoint of a queue. Its secret is shown only when it has been generated.
type endpointJSON struct {
	Queue       string `json:"queue"`
	URL         string `json:"url,omitempty" doc:"Of jobs that name none; without it those become dead letters"`
	Format      string `json:"format" enum:"plain,cloudevents"`
	Concurrency int    `json:"concurrency" doc:"How many are sent at a time by each daemon"`
	Batch       int    `json:"batch" doc:"How many jobs a request has at the most, as a JSON array; 1: each request is a job"`
	Timeout     string `json:"timeout" doc:"Of a request, if neither job nor queue say"`
	Secret      string `json:"secret,omitempty" doc:"The key that signs requests, if this request has made it: it is not shown again"`
	OldSecret   bool   `json:"old_secret" doc:"Requests are signed with the secret before, too"`

	Answers []endpointAnswerJSON `json:"answers,omitempty" doc:"Some of the newest answers, the newest first; up to a few seconds late. Not there: nothing was sent, or it is a list of endpoints"`
}

// newEndpointJSON describes an endpoint to a sender. Only who may set its URL sees the query of it, which may hold a secret.
func newEndpointJSON(ctx context.Context, e *push.Endpoint) endpointJSON {
	return endpointJSON{
		Queue: e.Queue, URL: shownURL(ctx, e.URL), Format: e.Format, Concurrency: e.Concurrency, Batch: e.Batch, Timeout: durationText(e.Timeout), OldSecret: e.OldSecret != "",
	}
}

// shownURL returns the URL of an endpoint, and to senders without the scope admin without its query.
func shownURL(ctx context.Context, text string) string {
	if text == "" || senderOf(ctx).may(ScopeAdmin) {
		return text
	}
	return plain.URL(text)
}

// An endpointAnswerJSON is an endpoint's answer to a job.
type endpointAnswerJSON struct {
	At       stamp   `json:"at"`
	Seconds  float64 `json:"seconds" doc:"From the beginning of the request to the end of the answer"`
	Status   int     `json:"status,omitempty" doc:"Not there: there was no whole answer"`
	Error    string  `json:"error,omitempty" doc:"Why the attempt failed; not there: it went well"`
	Origin   string  `json:"origin,omitempty" doc:"Where it was sent, of a job with an endpoint of its own"`
	Job      string  `json:"job" doc:"Its id"`
	By       string  `json:"by" doc:"The process that sent it"`
	Failures int     `json:"failures,omitempty" doc:"How often the endpoint had pushed back in a row by then"`
	Until    *stamp  `json:"until,omitempty" doc:"For as long it was left alone then"`
}

func newEndpointAnswers(answers []push.Answer) []endpointAnswerJSON {
	all := make([]endpointAnswerJSON, len(answers))
	for i, a := range answers {
		all[i] = endpointAnswerJSON{
			stamp{a.At}, a.Took.Seconds(), a.Status, a.Error, a.Origin, strconv.FormatInt(a.Job, 10), a.By, a.Failures, optional(a.Until),
		}
	}
	return all
}

type endpointOutput struct{ Body endpointJSON }

type endpointsOutput struct {
	Body struct {
		Endpoints  []endpointJSON `json:"endpoints" nullable:"false"`
		NextCursor string         `json:"next_cursor,omitempty"`
	} `nameHint:"Endpoints"`
}

// endpointChange is a change of an endpoint. Absent fields stay.
type endpointChange struct {
	URL           *string `json:"url,omitempty" maxLength:"1000" doc:"https:// or http://; empty: each job names its own" example:"https://worker.example.org/jobs"`
	Format        string  `json:"format,omitempty" enum:"plain,cloudevents" doc:"plain: the payload and headers; cloudevents: those of a CloudEvent, too"`
	Concurrency   int     `json:"concurrency,omitempty" minimum:"1" maximum:"10000" doc:"How many are sent at a time by each daemon; 16 in a new one. A limit of the queue bounds all daemons together"`
	Batch         int     `json:"batch,omitempty" minimum:"1" maximum:"1000" doc:"How many jobs a request has at the most: more than 1 are sent as a JSON array, and answered by an array of outcomes; 1 in a new one"`
	Timeout       string  `json:"timeout,omitempty" maxLength:"40" doc:"Of a request to the end of its answer, if neither job nor queue say, up to 24h; 30s in a new one" example:"30s"`
	Secret        string  `json:"secret,omitempty" maxLength:"100" doc:"The key that is to sign requests: whsec_ and 24 to 64 bytes in base64. The one before signs them, too, until it is dropped"`
	NewSecret     bool    `json:"new_secret,omitempty" doc:"Make a new one, and show it. The one before signs, too"`
	DropOldSecret bool    `json:"drop_old_secret,omitempty" doc:"Sign with the newest one alone; needed before there can be another"`
}

// read returns a function that makes the change, or an error about a field.
func (n *endpointChange) read(hosts *push.Hosts) (func(*push.Endpoint), error) {
	timeout, err := readDuration("timeout", n.Timeout)
	if err != nil {
		return nil, err
	}
	if n.URL != nil && *n.URL != "" {
		if err := checkEndpoint("url", *n.URL, hosts); err != nil {
			return nil, err
		}
	}
	secret := n.Secret
	if secret != "" && n.NewSecret {
		return nil, invalid("new_secret", "there is a secret as well; send one of them")
	}
	if n.NewSecret {
		secret = push.NewSecret()
	}
	return func(e *push.Endpoint) {
		if n.URL != nil {
			e.URL = *n.URL
		}
		if n.Format != "" {
			e.Format = n.Format
		}
		if n.Concurrency != 0 {
			e.Concurrency = n.Concurrency
		}
		if n.Batch != 0 {
			e.Batch = n.Batch
		}
		if n.Timeout != "" {
			e.Timeout = timeout
		}
		if n.DropOldSecret {
			e.OldSecret = ""
		}
		if secret != "" && secret != e.Secret {
			e.Rotate(secret)
		}
	}, nil
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
	Body  endpointChange
}

type setEndpointOutput struct {
	Status int
	Body   endpointJSON
}

// pushing registers the operations on endpoints.
func (a *API) pushing() {
	register(a, operation{
		id: "list-endpoints", method: http.MethodGet, path: "/endpoints", tag: "push", scope: ScopeRead, answer: answerList,
		summary: "List the endpoints of queues whose jobs are sent",
	}, func(ctx context.Context, in *page) (*endpointsOutput, error) {
		var after string
		if err := readCursor(in.Cursor, &after); err != nil {
			return nil, err
		}
		found, err := a.endpoints.List(ctx, after, in.Limit)
		if err != nil {
			return nil, err
		}
		out := &endpointsOutput{}
		out.Body.Endpoints = make([]endpointJSON, len(found))
		for i := range found {
			out.Body.Endpoints[i] = newEndpointJSON(ctx, &found[i])
		}
		if n := len(found); n == in.Limit {
			out.Body.NextCursor = cursorOf(found[n-1].Queue)
		}
		return out, nil
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
		answers, err := a.endpoints.Answers(ctx, in.Queue)
		out := &endpointOutput{newEndpointJSON(ctx, &e)}
		out.Body.Answers = newEndpointAnswers(answers)
		return out, err
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
	change, err := in.Body.read(a.opt.Hosts)
	if err != nil {
		return nil, err
	}
	done, err := a.endpoints.Set(ctx, a.admin, in.Queue, change)
	if err != nil {
		return nil, err
	}
	out := &setEndpointOutput{Status: http.StatusOK, Body: newEndpointJSON(ctx, &done.Endpoint)}
	if done.Made {
		out.Status = http.StatusCreated
	}
	if in.Body.Secret == "" && done.NewSecret {
		out.Body.Secret = done.Secret
	}
	return out, nil
}
