package dashboard

import (
	"context"
	"fmt"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

type routesData struct {
	Routes []admin.Route
	Begun  bool
	More   string
}

// listRoutes shows the queues of jobs that name none.
func (d *Dashboard) listRoutes(ctx context.Context, r *request) (*view, error) {
	after, err := r.optionalName("after")
	if err != nil {
		return nil, err
	}
	data := &routesData{Begun: after != ""}
	data.Routes, err = d.admin.Routes(ctx, after, listed)
	if n := len(data.Routes); n == listed {
		data.More = data.Routes[n-1].Kind
	}
	return &view{template: "routes.html", title: "Routes", section: "queues", data: data}, err
}

// formName reads a name from the form.
func (r *request) formName(field string) (string, error) {
	name := r.PostForm.Get(field)
	if name == "" {
		return "", fmt.Errorf("%w: the %s is missing", queue.ErrInvalid, field)
	}
	return name, checkName(field, name)
}

// pair reads two names from the form.
func (r *request) pair(one, other string) (a, b string, err error) {
	if a, err = r.formName(one); err == nil {
		b, err = r.formName(other)
	}
	return a, b, err
}

func (d *Dashboard) setRoute(ctx context.Context, r *request) (outcome, error) {
	kind, name, err := r.pair("kind", "queue")
	if err != nil {
		return outcome{}, err
	}
	return outcome{note: "routed", to: "routes?", object: kind, detail: "to " + name}, d.admin.SetRoute(ctx, kind, name)
}

func (d *Dashboard) deleteRoute(ctx context.Context, r *request) (outcome, error) {
	kind, err := r.formName("kind")
	if err != nil {
		return outcome{}, err
	}
	return outcome{note: "unrouted", to: "routes?", object: kind}, d.admin.DeleteRoute(ctx, kind)
}

type topicsData struct {
	Subscriptions []admin.Subscription
	Begun         bool
	More          admin.Subscription
}

// listTopics shows which queues get copies of published jobs.
func (d *Dashboard) listTopics(ctx context.Context, r *request) (*view, error) {
	var after admin.Subscription
	var err error
	if after.Topic, err = r.optionalName("after"); err == nil {
		after.Queue, err = r.optionalName("queue")
	}
	if err != nil {
		return nil, err
	}
	data := &topicsData{Begun: after.Topic != ""}
	data.Subscriptions, err = d.admin.Subscriptions(ctx, after, listed)
	if n := len(data.Subscriptions); n == listed {
		data.More = data.Subscriptions[n-1]
	}
	return &view{template: "topics.html", title: "Topics", section: "queues", data: data}, err
}

func (d *Dashboard) subscribe(ctx context.Context, r *request) (outcome, error) {
	topic, name, err := r.pair("topic", "queue")
	if err != nil {
		return outcome{}, err
	}
	if _, err := d.admin.Queue(ctx, name); err != nil { // a mistyped name would create a queue
		return outcome{}, err
	}
	return outcome{note: "subscribed", to: "topics?", object: topic + "/" + name}, d.queues.Subscribe(ctx, topic, name)
}

func (d *Dashboard) unsubscribe(ctx context.Context, r *request) (outcome, error) {
	topic, name, err := r.pair("topic", "queue")
	if err != nil {
		return outcome{}, err
	}
	return outcome{note: "unsubscribed", to: "topics?", object: topic + "/" + name}, d.queues.Unsubscribe(ctx, topic, name)
}
