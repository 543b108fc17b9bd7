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

// A Job is a job to enqueue. Only Kind is required.
type Job struct {
	Kind        string        // type of the job, which selects its handler
	Queue       string        // default: the kind's route
	Payload     any           // encoded as JSON; a json.RawMessage is sent as it is
	Binary      []byte        // the payload if it is not JSON
	Key         string        // jobs of a queue with the same key run in order
	Unique      string        // while this job exists, no other with the same unique key is enqueued in the queue
	UniqueFor   time.Duration // the unique key lasts at least this long
	Group       string        // id of a group that waits for the job
	Priority    string        // urgent, normal, low or idle; default: normal
	Delay       time.Duration // before the job is due
	RunAt       time.Time     // or the time at which it is due
	MaxAttempts int           // default: the queue's
	Timeout     time.Duration // of an attempt; default: the queue's
	Trace       string        // a W3C traceparent

	// IdempotencyKey ensures that the job is enqueued once, however often it is sent, even by other
	// processes. Default: a fresh key for the tries of this call.
	IdempotencyKey string
}

// wireJob is the JSON of a job to enqueue.
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

// Enqueued is the result of enqueueing a job.
type Enqueued struct {
	ID      string `json:"id"`
	Queue   string `json:"queue"`
	Existed bool   `json:"existed"` // a job with its unique key existed; ID is that job's
}

// Enqueue enqueues a job. If it returns no error, the job will not be lost. Enqueue retries until it
// gets an answer, and still enqueues the job only once. It relies on an Idempotency-Key, or on a unique
// key that lasts for UniqueFor, which must be longer than the tries take. A job whose unique key is
// free as soon as the job ends is sent only once, because it could end between two tries.
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

// A JobInfo describes a stored job.
type JobInfo struct {
	ID           string          `json:"id"`
	Queue        string          `json:"queue"`
	State        string          `json:"state"` // ready, delayed, running or dead
	Kind         string          `json:"kind"`
	Key          string          `json:"key"`
	Priority     string          `json:"priority"`
	Enqueued     time.Time       `json:"enqueued"`
	At           time.Time       `json:"at"` // when it is due, began, or died, depending on State
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
	Payload      json.RawMessage `json:"payload"` // lists omit payloads over 64 KiB, though not PayloadBytes: use Client.Job
	Binary       []byte          `json:"payload_base64"`
	Refused      *Refusal        `json:"refused"` // nil in lists
}

// A Refusal means that the database refuses to store a job's outcome. The job's worker goes on trying.
type Refusal struct {
	What   string    `json:"what"`
	Error  string    `json:"error"` // the database's error
	Since  time.Time `json:"since"`
	Tries  int       `json:"tries"`
	Worker string    `json:"worker"`
}

// Job returns a job in any state. For a job that is done it returns [ErrNotFound].
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
	Where  string // condition on the payload, such as $.user.id = 42
	Limit  int    // jobs per page; default: 100
	Cursor string // Next of the previous page
}

// A Page is a page of a list.
type Page struct {
	Jobs []JobInfo `json:"jobs"`
	Next string    `json:"next_cursor"` // "": this is the last page
}

// Jobs returns a page of a queue's jobs. It may have fewer jobs than Limit, or none, and still be
// followed by another page: see Next.
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

// AllJobs iterates over the jobs of a queue, page by page. It ends at the first error.
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

// Delete removes a dead job.
func (c *Client) Delete(ctx context.Context, queue, id string) error {
	return c.do(ctx, &call{method: http.MethodDelete, path: path("queues", queue, "jobs", id)})
}
