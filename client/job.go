package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/dbcron/dbcron/wire"
)

// A Job is a job to enqueue. Only Kind is required.
type Job struct {
	Kind        string        // type of the job, which selects its handler
	Queue       string        // default: the kind's route
	Payload     any           // encoded as JSON; a json.RawMessage is sent as it is
	Binary      []byte        // the payload if it is not JSON
	Key         string        // jobs of a queue with the same key run in order
	Unique      string        // while this job exists, no other with the same unique key is enqueued in the queue
	UniqueFor   time.Duration // the unique key lasts at least this long
	UniqueUntil string        // end or begin: the unique key lasts until the job has ended, or until its first attempt begins; default: end
	Debounce    time.Duration // the job replaces the one that waits with its unique key, and is due after Delay, or this long after the first of them
	Group       string        // id of a group that waits for the job
	Priority    string        // urgent, normal, low or idle; default: normal
	Delay       time.Duration // before the job is due
	RunAt       time.Time     // or the time at which it is due
	MaxAttempts int           // default: the queue's
	Timeout     time.Duration // of an attempt; default: the queue's
	Trace       string        // a W3C traceparent
	Tenant      string        // whose job it is: in a fair queue, tenants have equal turns
	Cost        int           // for how many jobs it counts at rates of limits, and in the turns of tenants; default: 1
	Endpoint    string        // URL that it is sent to, if its queue has an endpoint; default: the queue's

	// IdempotencyKey ensures that the job is enqueued once, however often it is sent, even by other
	// processes. Default: a fresh key for the tries of this call.
	IdempotencyKey string
}

// wire returns the job as it is sent, or why its payload cannot be encoded.
func (j *Job) wire() (wire.NewJob, error) {
	w := wire.NewJob{
		Kind: j.Kind, Queue: j.Queue, Binary: j.Binary, Key: j.Key, Unique: j.Unique, UniqueFor: wire.GivenDuration(j.UniqueFor),
		UniqueUntil: j.UniqueUntil, Debounce: wire.GivenDuration(j.Debounce), Group: j.Group, Priority: j.Priority, Delay: wire.GivenDuration(j.Delay), RunAt: wire.At(j.RunAt), MaxAttempts: j.MaxAttempts,
		Timeout: wire.GivenDuration(j.Timeout), Trace: j.Trace, Endpoint: j.Endpoint, Tenant: j.Tenant, Cost: j.Cost,
	}
	if j.Payload == nil {
		return w, nil
	}
	payload, err := encode(j.Payload)
	if err != nil {
		return w, fmt.Errorf("client: the payload of a job of kind %q: %w", j.Kind, err)
	}
	w.Payload = payload
	return w, nil
}

// Enqueue enqueues a job. If it returns no error, the job will not be lost. Enqueue retries until it
// gets an answer, and still enqueues the job only once. It relies on an Idempotency-Key, or on a unique
// key that lasts for UniqueFor, which must be longer than the tries take. A job whose unique key is
// free as soon as the job ends is sent only once, because it could end between two tries.
func (c *Client) Enqueue(ctx context.Context, j Job) (wire.Enqueued, error) {
	var e wire.Enqueued
	in, err := j.wire()
	if err != nil {
		return e, err
	}
	r := &call{method: http.MethodPost, path: "/jobs", in: in, out: &e, key: j.IdempotencyKey}
	if r.key == "" && j.Unique == "" {
		r.key = rand.Text()
	}
	r.again = r.key != "" || j.lasts()
	return e, c.do(ctx, r)
}

// lasts reports whether the unique key outlasts the job, so that a retry cannot enqueue it again.
func (j *Job) lasts() bool { return j.Unique != "" && j.UniqueFor > 0 }

// A Batch is up to 1000 jobs that are enqueued together, all or none.
type Batch struct {
	Jobs []Job

	// IdempotencyKey is as in Job; those of the jobs are ignored. Leave it empty if jobs have unique
	// keys.
	IdempotencyKey string
}

// EnqueueBatch enqueues jobs in order. It retries like [Client.Enqueue], unless some of the jobs have
// unique keys and not all of them have one that lasts.
func (c *Client) EnqueueBatch(ctx context.Context, b Batch) ([]wire.Enqueued, error) {
	jobs := make([]wire.NewJob, len(b.Jobs))
	unique, lasting := false, true
	for i := range b.Jobs {
		var err error
		if jobs[i], err = b.Jobs[i].wire(); err != nil {
			return nil, err
		}
		unique = unique || b.Jobs[i].Unique != ""
		lasting = lasting && b.Jobs[i].lasts()
	}
	var out struct{ Jobs []wire.Enqueued }
	r := &call{
		method: http.MethodPost, path: "/jobs/batch", in: map[string]any{"jobs": jobs}, out: &out,
		key: b.IdempotencyKey,
	}
	if r.key == "" && !unique {
		r.key = rand.Text()
	}
	r.again = r.key != "" || lasting
	err := c.do(ctx, r)
	return out.Jobs, err
}

// Job returns a job in any state. A job that is done is [ErrNotFound], unless its queue keeps such.
func (c *Client) Job(ctx context.Context, queue, id string) (wire.Job, error) {
	var j wire.Job
	err := c.do(ctx, &call{method: http.MethodGet, path: path("queues", queue, "jobs", id), out: &j, again: true})
	return j, err
}

// Explain says why a job waits, or what has become of it, and what to do about it.
func (c *Client) Explain(ctx context.Context, queue, id string) (wire.JobExplanation, error) {
	var e wire.JobExplanation
	err := c.do(ctx, &call{method: http.MethodGet, path: path("queues", queue, "jobs", id, "explain"), out: &e, again: true})
	return e, err
}

// Await waits until a job has ended, however long, and returns it: its State is then done or dead, and of a done one Result has
// what its handler has made of it, unless Discarded or Cancelled. The job may have ended before. Its queue has to keep done jobs
// (keep_done), or the status is 409 at once.
func (c *Client) Await(ctx context.Context, queue, id string) (wire.Job, error) {
	const wait = 20 * time.Second
	for {
		var j wire.Job
		err := c.do(ctx, &call{
			method: http.MethodGet, path: path("queues", queue, "jobs", id, "await"),
			query: url.Values{"wait": {wait.String()}}, out: &j, again: true, wait: wait,
		})
		if err != nil || j.State == "done" || j.State == "dead" {
			return j, err
		}
		queue = j.Queue // it may have been moved
		if err := ctx.Err(); err != nil {
			return j, err
		}
	}
}

// A Filter selects jobs of a queue.
type Filter struct {
	State  string // ready, delayed, running, dead or done; default: ready
	Kind   string
	Key    string
	Tenant string
	Where  string // condition on the payload, such as $.user.id = 42
	Limit  int    // jobs per page; default: 100
	Cursor string // Next of the previous page
}

// A Page is a page of a list.
type Page struct {
	Jobs []wire.Job `json:"jobs"`        // without payloads of more than 64 KiB: see [Client.Job]
	Next string     `json:"next_cursor"` // "": this is the last page
}

// Jobs returns a page of a queue's jobs. It may have fewer jobs than Limit, or none, and still be
// followed by another page: see Next.
func (c *Client) Jobs(ctx context.Context, queue string, f Filter) (Page, error) {
	q := url.Values{}
	for name, value := range map[string]string{
		"state": f.State, "kind": f.Kind, "key": f.Key, "tenant": f.Tenant, "where": f.Where, "cursor": f.Cursor,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Limit != 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	var p Page
	err := c.do(ctx, &call{method: http.MethodGet, path: path("queues", queue, "jobs"), query: q, out: &p, again: true})
	return p, err
}

// AllJobs iterates over the jobs of a queue, page by page. It ends at the first error.
func (c *Client) AllJobs(ctx context.Context, queue string, f Filter) iter.Seq2[wire.Job, error] {
	return func(yield func(wire.Job, error) bool) {
		for {
			p, err := c.Jobs(ctx, queue, f)
			if err != nil {
				yield(wire.Job{}, err)
				return
			}
			for _, j := range p.Jobs {
				if !yield(j, nil) {
					return
				}
			}
			if f.Cursor = p.Next; f.Cursor == "" {
				return
			}
		}
	}
}

// Retry makes a dead job ready again, with all its attempts, or a delayed one due at once.
func (c *Client) Retry(ctx context.Context, queue, id string) error {
	return c.do(ctx, &call{method: http.MethodPost, path: path("queues", queue, "jobs", id, "retry")})
}

// Run makes a job that waits for its time or its retry due at once.
func (c *Client) Run(ctx context.Context, queue, id string) error {
	return c.do(ctx, &call{method: http.MethodPost, path: path("queues", queue, "jobs", id, "run")})
}

// Cancel ends a job in any state but dead.
func (c *Client) Cancel(ctx context.Context, queue, id string) error {
	return c.do(ctx, &call{method: http.MethodPost, path: path("queues", queue, "jobs", id, "cancel")})
}

// Delete removes a dead job, or one that is done and kept.
func (c *Client) Delete(ctx context.Context, queue, id string) error {
	return c.do(ctx, &call{method: http.MethodDelete, path: path("queues", queue, "jobs", id)})
}
