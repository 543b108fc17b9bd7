package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

type topicsOutput struct {
	Body struct {
		Subscriptions []wire.Subscription `json:"subscriptions" nullable:"false" doc:"The subscriptions, by topic and queue."`
		NextCursor    string              `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"Subscriptions"`
}

type subscriptionPath struct {
	Topic string `path:"topic" minLength:"1" maxLength:"200"`
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
}

type publishInput struct {
	Topic string `path:"topic" minLength:"1" maxLength:"200"`
	Body  wire.NewJob
}

type publishOutput struct{ Body wire.Published }

// topics registers the operations on topics.
func (a *API) topics() {
	register(a, operation{
		id: "list-subscriptions", method: http.MethodGet, path: "/topics", tag: "topics", scope: ScopeRead, answer: answerList,
		summary: "List which queues have subscribed to which topics",
	}, func(ctx context.Context, in *page) (*topicsOutput, error) {
		var after admin.Subscription
		if err := readCursor(in.Cursor, &after.Topic, &after.Queue); err != nil {
			return nil, err
		}
		found, err := a.admin.Subscriptions(ctx, after, in.Limit)
		if err != nil {
			return nil, err
		}
		out := &topicsOutput{}
		out.Body.Subscriptions = wireof.Each(found, wireof.Subscription)
		if n := len(found); n == in.Limit {
			out.Body.NextCursor = cursorOf(found[n-1].Topic, found[n-1].Queue)
		}
		return out, nil
	})
	for _, o := range []struct {
		operation
		do func(ctx context.Context, topic, name string) error
	}{
		{operation{
			id: "subscribe", method: http.MethodPut, errors: []int{http.StatusConflict},
			summary: "Have a queue get a copy of each job that is published to a topic from now on",
			more:    "The queue is made if there is none.",
		}, func(ctx context.Context, topic, name string) error { return a.queues.Subscribe(ctx, topic, name) }},
		{operation{
			id: "unsubscribe", method: http.MethodDelete, errors: []int{http.StatusNotFound},
			summary: "End that",
			more:    "Copies that were enqueued are done all the same.",
		}, func(ctx context.Context, topic, name string) error { return a.queues.Unsubscribe(ctx, topic, name) }},
	} {
		o.path, o.tag, o.scope = "/topics/{topic}/queues/{queue}", "topics", ScopeAdmin
		register(a, o.operation, func(ctx context.Context, in *subscriptionPath) (*struct{}, error) {
			if err := checkNames("topic", in.Topic, "queue", in.Queue); err != nil {
				return nil, err
			}
			return nil, o.do(ctx, in.Topic, in.Queue)
		})
	}
	register(a, operation{
		id: "publish", method: http.MethodPost, path: "/topics/{topic}/publish", tag: "topics", scope: ScopeEnqueue, body: sizeLarge,
		status: http.StatusCreated, errors: []int{http.StatusConflict},
		summary: "Enqueue a copy of a job in each queue that has subscribed, all or none",
		more:    "The job names no queue and no group. A unique key is one of each queue: where it is in use, that copy is not enqueued.",
	}, a.publish)
}

func (a *API) publish(ctx context.Context, in *publishInput) (*publishOutput, error) {
	if err := checkNames("topic", in.Topic); err != nil {
		return nil, err
	}
	j, err := wireof.NewJob(&in.Body)
	if err == nil && j.Group != 0 {
		err = invalid("group", "the copies are a group of their own")
	}
	if err != nil {
		return nil, err
	}
	p, err := a.queues.Publish(ctx, in.Topic, j)
	var one *queue.JobError
	if errors.As(err, &one) {
		err = one.Err // it is about the job in the request
	}
	if err != nil {
		return nil, err
	}
	return &publishOutput{wire.Published{Group: wire.ID(p.ID), Copies: wireof.AllEnqueued(p.Copies)}}, nil
}
