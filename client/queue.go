package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/dbcron/dbcron/wire"
)

// Queue returns a queue's settings.
func (c *Client) Queue(ctx context.Context, name string) (wire.Queue, error) {
	var q wire.Queue
	err := c.do(ctx, &call{method: http.MethodGet, path: path("queues", name), out: &q, again: true})
	return q, err
}

// Queues lists all queues by name, including deleted ones.
func (c *Client) Queues(ctx context.Context) ([]wire.Queue, error) {
	return all(ctx, c, "/queues", func(p *struct{ Queues []wire.Queue }) []wire.Queue { return p.Queues })
}

// SetQueue changes a queue's settings, or creates it, and returns the new settings.
func (c *Client) SetQueue(ctx context.Context, name string, change wire.QueueChange) (wire.Queue, error) {
	var q wire.Queue
	err := c.do(ctx, &call{method: http.MethodPut, path: path("queues", name), in: change, out: &q, again: true})
	return q, err
}

// DeleteQueue deletes a queue without jobs to which no route leads.
func (c *Client) DeleteQueue(ctx context.Context, name string) error {
	return c.do(ctx, &call{method: http.MethodDelete, path: path("queues", name)})
}

// Pause stops a queue from starting jobs. The reason is for people.
func (c *Client) Pause(ctx context.Context, queue, reason string) error {
	return c.do(ctx, &call{
		method: http.MethodPost, path: path("queues", queue, "pause"),
		in: map[string]string{"reason": reason}, again: true,
	})
}

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context, queue string) error {
	return c.do(ctx, &call{method: http.MethodPost, path: path("queues", queue, "resume"), again: true})
}

// Stats counts the jobs of a queue by state and kind.
func (c *Client) Stats(ctx context.Context, queue string) (wire.QueueStats, error) {
	var s wire.QueueStats
	err := c.do(ctx, &call{method: http.MethodGet, path: path("queues", queue, "stats"), out: &s, again: true})
	return s, err
}

// Routes lists all routes by kind.
func (c *Client) Routes(ctx context.Context) ([]wire.Route, error) {
	return all(ctx, c, "/routes", func(p *struct{ Routes []wire.Route }) []wire.Route { return p.Routes })
}

// Route returns where jobs of a kind go.
func (c *Client) Route(ctx context.Context, kind string) (wire.Route, error) {
	var r wire.Route
	err := c.do(ctx, &call{method: http.MethodGet, path: path("routes", kind), out: &r, again: true})
	return r, err
}

// SetRoute routes jobs of a kind that name no queue to a queue.
func (c *Client) SetRoute(ctx context.Context, kind, queue string) error {
	return c.do(ctx, &call{method: http.MethodPut, path: path("routes", kind), in: map[string]string{"queue": queue}, again: true})
}

// DeleteRoute deletes the route of a kind.
func (c *Client) DeleteRoute(ctx context.Context, kind string) error {
	return c.do(ctx, &call{method: http.MethodDelete, path: path("routes", kind)})
}

// Publish enqueues a copy of a job in each queue subscribed to a topic. It does not retry, unless the
// job has a unique key that lasts (UniqueFor): a second try could publish twice.
func (c *Client) Publish(ctx context.Context, topic string, j Job) (wire.Published, error) {
	var p wire.Published
	in, err := j.wire()
	if err != nil {
		return p, err
	}
	err = c.do(ctx, &call{method: http.MethodPost, path: path("topics", topic, "publish"), in: in, out: &p, again: j.lasts()})
	return p, err
}

// Subscribe subscribes a queue to the jobs published to a topic from now on.
func (c *Client) Subscribe(ctx context.Context, topic, queue string) error {
	return c.do(ctx, &call{method: http.MethodPut, path: path("topics", topic, "queues", queue), again: true})
}

// Unsubscribe ends a subscription.
func (c *Client) Unsubscribe(ctx context.Context, topic, queue string) error {
	return c.do(ctx, &call{method: http.MethodDelete, path: path("topics", topic, "queues", queue)})
}

// all reads a list, page by page.
func all[P, T any](ctx context.Context, c *Client, path string, items func(*P) []T) ([]T, error) {
	var list []T
	query := url.Values{}
	for {
		var text json.RawMessage
		if err := c.do(ctx, &call{method: http.MethodGet, path: path, query: query, out: &text, again: true}); err != nil {
			return nil, err
		}
		var page P
		var more struct {
			Next string `json:"next_cursor"`
		}
		if err := errors.Join(json.Unmarshal(text, &page), json.Unmarshal(text, &more)); err != nil {
			return nil, fmt.Errorf("client: GET %s: %w", path, err)
		}
		list = append(list, items(&page)...)
		if more.Next == "" {
			return list, nil
		}
		query.Set("cursor", more.Next)
	}
}
