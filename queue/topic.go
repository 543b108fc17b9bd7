package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// keepPublication is how long a publication's outcome is kept.
const keepPublication = 24 * time.Hour

// A Published is the outcome of a publication.
type Published struct {
	ID     int64      // group of all copies, see [Client.Group]; 0: there are no copies
	Copies []Enqueued // one per queue
	Queues []string   // queues with a copy; none: no queue has subscribed
}

// Subscribe makes a queue receive a copy of each job that is published to a topic from now on. It
// creates the queue if there is none. Subscribing again does nothing.
func (c *Client) Subscribe(ctx context.Context, topic, queue string) error {
	if err := sqlrun.CheckName(topic); err != nil {
		return invalid("topic", "%v", err)
	}
	if queue == "" {
		queue = defaultQueue
	}
	if err := sqlrun.CheckName(queue); err != nil {
		return invalid("queue", "%v", err)
	}
	if err := jobfield.CheckTarget(queue); err != nil {
		return invalid("queue", "%v", err)
	}
	if _, err := c.queue(ctx, queue); err != nil { // creates the queue
		return err
	}
	q, err := c.read(ctx, queue)
	if err != nil {
		return err
	}
	if q.State == "deleted" {
		return fmt.Errorf("%w: %q", ErrDeleted, queue)
	}
	_, err = c.db.Exec(ctx, store.InsertSubscription, sqlrun.Args{"topic": topic, "subscriber": queue})
	return err
}

// Unsubscribe ends a subscription. Copies that were enqueued are still done. It returns
// ErrNotFound if the queue has not subscribed.
func (c *Client) Unsubscribe(ctx context.Context, topic, queue string) error {
	n, err := c.db.Exec(ctx, store.DeleteSubscription, sqlrun.Args{"topic": topic, "subscriber": cmpName(queue)})
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: %q has not subscribed to topic %q", ErrNotFound, cmpName(queue), topic)
	}
	return err
}

// Publish enqueues a copy of a job in each queue that has subscribed to a topic, in one
// transaction. The copies form a group, which is kept for a day after all have ended. A job that
// names a queue or a group is refused.
//
// A unique key applies to each queue by itself: where it is in use, that queue's copy is not
// enqueued.
func (c *Client) Publish(ctx context.Context, topic string, job Job) (p Published, err error) {
	wake := func() {}
	err = c.inGroup(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		p, wake, err = c.publish(ctx, c.own(tx), topic, job)
		return err
	})
	switch {
	case errors.Is(err, ErrUnknownOutcome):
		return p, err // with the id, so that the caller can look for the group
	case err != nil:
		return Published{}, err
	}
	wake()
	c.concludeEmpty(ctx, p.ID, p.Copies)
	return p, nil
}

// PublishTx is [Client.Publish] in a transaction of the caller's: see [Client.EnqueueTx].
func (c *Client) PublishTx(ctx context.Context, tx dialect.Execer, topic string, job Job) (p Published, wake func(), err error) {
	return c.publish(ctx, c.callers(tx), topic, job)
}

// subscribes reports whether a subscription can be meant that may have been written by hand. One that names no queue gets no copy,
// so that the others get theirs.
func subscribes(queue string) bool {
	return sqlrun.CheckName(queue) == nil && jobfield.CheckTarget(queue) == nil
}

func (c *Client) publish(ctx context.Context, in *source, topic string, job Job) (p Published, wake func(), err error) {
	switch {
	case sqlrun.CheckName(topic) != nil:
		return p, nil, invalid("topic", "%v", sqlrun.CheckName(topic))
	case job.Queue != "":
		return p, nil, invalid("queue", "a publication goes to the queues that have subscribed, and to no other")
	}
	queues, err := sqlrun.Select(ctx, in.tx, store.ListSubscribed, sqlrun.Args{"topic": topic},
		func(rows *sql.Rows) (name string, err error) {
			return name, rows.Scan(&name)
		})
	queues = slices.DeleteFunc(queues, func(name string) bool { return !subscribes(name) })
	if err != nil || len(queues) == 0 {
		if err == nil {
			err = job.Check()
		}
		return p, func() {}, err
	}
	jobs := make([]Job, len(queues))
	for i, name := range queues {
		jobs[i] = job
		jobs[i].Queue = name
	}
	p.Queues = queues
	p.ID, p.Copies, wake, err = c.enqueueGroup(ctx, in, Group{Name: topic, Keep: keepPublication}, jobs)
	return p, wake, err
}
