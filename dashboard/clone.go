package dashboard

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// clonedBytes is the maximum size of a payload that can be edited in the form.
const clonedBytes = 16 << 10

type cloneData struct {
	admin.Job
	Text     string // the payload; empty: copied unchanged
	Editable bool
	To, Kind string
	Priority int
	Names    []priorityName
	From     payloadView
}

type priorityName struct {
	N    int
	Name string
}

// clonedFrom reads the job to clone.
func (d *Dashboard) clonedFrom(ctx context.Context, r *request) (*cloneData, error) {
	name, id, err := r.job()
	if err != nil {
		return nil, err
	}
	i, err := d.admin.Job(ctx, name, id)
	if err != nil {
		return nil, err
	}
	c := &cloneData{Job: i, To: i.Queue, Kind: i.Kind, Priority: i.Priority}
	c.Editable = !r.hide && !i.Binary && len(i.Payload) <= clonedBytes && utf8.Valid(i.Payload)
	if c.Editable {
		c.Text = string(i.Payload)
	} else {
		c.From = viewOf(&i)
	}
	for n := queue.Urgent; n <= queue.Idle; n++ {
		c.Names = append(c.Names, priorityName{n, wire.PriorityName(n)})
	}
	return c, nil
}

// showClone shows the form for a job that is like another one. If the job could not be
// enqueued, the form keeps what was entered.
func (d *Dashboard) showClone(ctx context.Context, r *request) (*view, error) {
	c, err := d.clonedFrom(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.PostForm != nil {
		c.To, c.Kind, c.Key, c.Text = r.PostForm.Get("queue"), r.PostForm.Get("kind"), r.PostForm.Get("key"), r.PostForm.Get("payload")
	}
	return &view{template: "clone.html", title: "Clone a job of " + plain.Clean(c.Queue), section: "jobs", data: c, still: true}, nil
}

// cloneJob enqueues the new job. It does not copy the unique key, the group and the trace.
func (d *Dashboard) cloneJob(ctx context.Context, r *request) (outcome, error) {
	c, err := d.clonedFrom(ctx, r)
	if err != nil {
		return outcome{}, err
	}
	form := r.PostForm
	j := queue.Job{
		Queue: form.Get("queue"), Kind: form.Get("kind"), Key: form.Get("key"), Payload: c.Payload, Binary: c.Binary,
		MaxAttempts: c.MaxAttempts, Timeout: c.Timeout, Endpoint: c.Endpoint,
	}
	if j.Queue == "" || j.Kind == "" {
		return outcome{}, fmt.Errorf("%w: a job has a queue and a kind", queue.ErrInvalid)
	}
	if jobfield.Reserved(j.Queue) {
		return outcome{}, fmt.Errorf("%w: the queue %s is dbcron's own: nobody else enqueues there", queue.ErrInvalid, j.Queue)
	}
	if _, err := d.admin.Queue(ctx, j.Queue); err != nil {
		return outcome{}, fmt.Errorf("%w: the queue must exist", err)
	}
	if c.Editable {
		j.Payload = []byte(form.Get("payload"))
	}
	if j.Priority, err = wire.ParsePriority(form.Get("priority")); err != nil {
		return outcome{}, fmt.Errorf("%w: %w", queue.ErrInvalid, err)
	}
	e, err := d.queues.Enqueue(ctx, j)
	if err != nil {
		return outcome{}, err
	}
	return outcome{
		note: "cloned", n: 1, object: fmt.Sprint(j.Queue, "/", e.ID), detail: fmt.Sprint("of ", c.Queue, "/", c.ID),
		to: link("job", "queue", j.Queue, "id", e.ID),
	}, nil
}
