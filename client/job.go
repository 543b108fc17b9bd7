package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A Job is one to enqueue. Only Kind is required.
type Job struct {
	Kind        string        // what it is, which picks who does it
	Queue       string        // default: as the routing of its kind says
	Payload     any           // becomes JSON; a json.RawMessage is JSON already
	Binary      []byte        // the payload if it is not JSON
	Key         string        // jobs of one queue and key are done in order
	Unique      string        // keeps other jobs of the queue out that have the same one
	UniqueFor   time.Duration // for so long at least
	Group       string        // the id of a group that waits for it
	Priority    string        // urgent, normal, low or idle; default: normal
	Delay       time.Duration // not before so long from now
	RunAt       time.Time     // or not before this time
	MaxAttempts int           // default: the queue's
	Timeout     time.Duration // of an attempt; default: the queue's
	Trace       string        // a W3C traceparent

	// IdempotencyKey has the job enqueued once, however often it is sent, also by other
	// processes; default: a fresh one, for the tries of this call.
	IdempotencyKey string
}

// wireJob is a job as it is sent.
type wireJob struct {
	Kind        string     `json:"kind"`
	Queue       string     `json:"queue,omitempty"`
	Payload     any        `json:"payload,omitempty"`
	Binary      []byte     `json:"payload_base64,omitempty"`
	Key         string     `json:"key,omitempty"`
	Unique      string     `json:"unique,omitempty"`
	UniqueFor   string     `json:"unique_for,omitempty"`
	Group       string     `json:"group,omitempty"`
	Priority    string     `json:"priority,omitempty"`
	Delay       string     `json:"delay,omitempty"`
	RunAt       *time.Time `json:"run_at,omitempty"`
	MaxAttempts int        `json:"max_attempts,omitempty"`
	Timeout     string     `json:"timeout,omitempty"`
	Trace       string     `json:"trace,omitempty"`
}

func (j *Job) wire() wireJob {
	w := wireJob{
		Kind: j.Kind, Queue: j.Queue, Payload: j.Payload, Binary: j.Binary, Key: j.Key, Unique: j.Unique, UniqueFor: durationText(j.UniqueFor),
		Group: j.Group, Priority: j.Priority, Delay: durationText(j.Delay), MaxAttempts: j.MaxAttempts,
		Timeout: durationText(j.Timeout), Trace: j.Trace,
	}
	if !j.RunAt.IsZero() {
		w.RunAt = &j.RunAt
	}
	return w
}

// Enqueued is what has become of a job that was sent.
type Enqueued struct {
	ID      string `json:"id"`
	Queue   string `json:"queue"`
	Existed bool   `json:"existed"` // another had its unique key: it is that one
}

// Enqueue enqueues a job. When it returns without an error, nothing loses the job. It is
// sent again until there is an answer, and enqueued once all the same: by an Idempotency-Key,
// or by a unique key that lasts for UniqueFor, which has to be longer than the tries take. A
// job whose unique key is free as soon as it ends is sent once: it could end between two tries.
func (c *Client) Enqueue(ctx context.Context, j Job) (Enqueued, error) {
	r := &call{method: http.MethodPost, path: "/jobs", in: j.wire(), key: j.IdempotencyKey}
	if r.key == "" && j.Unique == "" {
		r.key = rand.Text()
	}
	r.again = r.key != "" || j.lasts()
	var e Enqueued
	r.out = &e
	err := c.do(ctx, r)
	return e, err
}

// lasts tells whether a unique key keeps the job from being enqueued again also when it has
// ended.
func (j *Job) lasts() bool { return j.Unique != "" && j.UniqueFor > 0 }

// A Batch is up to 1000 jobs that are enqueued together, all or none.
type Batch struct {
	Jobs []Job

	// IdempotencyKey is as in a job; those of the jobs are not looked at. A batch that has
	// jobs with unique keys has none.
	IdempotencyKey string
}

// EnqueueBatch enqueues jobs, in their order. It is sent again as in [Client.Enqueue],
// unless some of the jobs have unique keys, and not all of them one that lasts.
func (c *Client) EnqueueBatch(ctx context.Context, b Batch) ([]Enqueued, error) {
	wires := make([]wireJob, len(b.Jobs))
	unique, lasting := false, true
	for i := range b.Jobs {
		wires[i] = b.Jobs[i].wire()
		unique = unique || b.Jobs[i].Unique != ""
		lasting = lasting && b.Jobs[i].lasts()
	}
	var out struct{ Jobs []Enqueued }
	r := &call{
		method: http.MethodPost, path: "/jobs/batch", in: map[string]any{"jobs": wires}, out: &out,
		key: b.IdempotencyKey,
	}
	if r.key == "" && !unique {
		r.key = rand.Text()
	}
	r.again = r.key != "" || lasting
	err := c.do(ctx, r)
	return out.Jobs, err
}

// A JobInfo is a job as it stands somewhere.
type JobInfo struct {
	ID           string          `json:"id"`
	Queue        string          `json:"queue"`
	State        string          `json:"state"` // ready, delayed, running or dead
	Kind         string          `json:"kind"`
	Key          string          `json:"key"`
	Priority     string          `json:"priority"`
	Enqueued     time.Time       `json:"enqueued"`
	At           time.Time       `json:"at"` // when it is due, since when it runs, or when it died
	Attempts     int             `json:"attempts"`
	Crashes      int             `json:"crashes"`
	MaxAttempts  int             `json:"max_attempts"`
	Timeout      string          `json:"timeout"`
	Unique       string          `json:"unique"`
	Group        string          `json:"group"`
	CallbackOf   string          `json:"callback_of"`
	Trace        string          `json:"trace"`
	Worker       string          `json:"worker"`
	Error        string          `json:"error"`
	Detail       string          `json:"detail"`
	PayloadBytes int             `json:"payload_bytes"`
	Payload      json.RawMessage `json:"payload"` // in lists only up to 64 KiB: get the job, if PayloadBytes says that there is one
	Binary       []byte          `json:"payload_base64"`
	Refused      *Refusal        `json:"refused"` // nil in lists
}

// A Refusal says that the database refuses to write what has become of a job. The worker that has
// it goes on trying.
type Refusal struct {
	What   string    `json:"what"`
	Error  string    `json:"error"` // the database's
	Since  time.Time `json:"since"`
	Tries  int       `json:"tries"`
	Worker string    `json:"worker"`
}

// Job returns a job, wherever it stands. One that is done is [ErrNotFound].
func (c *Client) Job(ctx context.Context, queue, id string) (JobInfo, error) {
	var j JobInfo
	err := c.do(ctx, &call{method: http.MethodGet, path: path("queues", queue, "jobs", id), out: &j, again: true})
	return j, err
}

// A Filter selects jobs of a queue.
type Filter struct {
	State  string // default: ready
	Kind   string
	Key    string
	Where  string // a condition on the payload, such as $.user.id = 42
	Limit  int    // of a page; default: 100
	Cursor string // Next of the page before
}

// A Page is a part of a list.
type Page struct {
	Jobs []JobInfo `json:"jobs"`
	Next string    `json:"next_cursor"` // "": there are no more
}

// Jobs lists jobs of a queue, a page of them. It can have fewer than Limit, and none, and be
// followed by others all the same: Next says so.
func (c *Client) Jobs(ctx context.Context, queue string, f Filter) (Page, error) {
	q := url.Values{}
	for name, value := range map[string]string{"state": f.State, "kind": f.Kind, "key": f.Key, "where": f.Where, "cursor": f.Cursor} {
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

// AllJobs lists jobs of a queue, page after page. It ends with the first error.
func (c *Client) AllJobs(ctx context.Context, queue string, f Filter) iter.Seq2[JobInfo, error] {
	return func(yield func(JobInfo, error) bool) {
		for {
			p, err := c.Jobs(ctx, queue, f)
			if err != nil {
				yield(JobInfo{}, err)
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

// Retry tries a dead job anew, with all its attempts before it, or a delayed one at once.
func (c *Client) Retry(ctx context.Context, queue, id string) error {
	return c.do(ctx, &call{method: http.MethodPost, path: path("queues", queue, "jobs", id, "retry")})
}

// Run lets a job go at once that waits for its time or its retry.
func (c *Client) Run(ctx context.Context, queue, id string) error {
	return c.do(ctx, &call{method: http.MethodPost, path: path("queues", queue, "jobs", id, "run")})
}

// Cancel ends a job that is not dead, wherever it stands.
func (c *Client) Cancel(ctx context.Context, queue, id string) error {
	return c.do(ctx, &call{method: http.MethodPost, path: path("queues", queue, "jobs", id, "cancel")})
}

// Delete removes a dead job.
func (c *Client) Delete(ctx context.Context, queue, id string) error {
	return c.do(ctx, &call{method: http.MethodDelete, path: path("queues", queue, "jobs", id)})
}
