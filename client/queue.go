package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// A Queue holds a queue's settings. Durations are formatted as in the API, such as 10s or 30d.
type Queue struct {
	Name          string `json:"name"`
	State         string `json:"state"`  // active, paused or deleted
	Reason        string `json:"reason"` // why it is paused
	Blocks        int    `json:"blocks"`
	KeyRetry      string `json:"key_retry"` // hold or pass
	FIFO          bool   `json:"fifo"`
	MaxAttempts   int    `json:"max_attempts"`
	MaxCrashes    int    `json:"max_crashes"`
	RetryDelay    string `json:"retry_delay"`
	RetryMaxDelay string `json:"retry_max_delay"`
	Timeout       string `json:"timeout"`
	MaxPayload    int    `json:"max_payload"`
	KeepDead      string `json:"keep_dead"` // a duration, or forever
	KeepDeadMax   int    `json:"keep_dead_max"`
	KeepDone      string `json:"keep_done"` // "" from a daemon that does not support it
	PollMin       string `json:"poll_min"`
	PollMax       string `json:"poll_max"`
	Notify        string `json:"notify"` // who is told of its problems; "": as the daemons say
}

// A QueueChange is a change of a queue's settings. Nil fields stay.
type QueueChange struct {
	Blocks        int    `json:"blocks,omitempty"`
	KeyRetry      string `json:"key_retry,omitempty"`
	FIFO          *bool  `json:"fifo,omitempty"` // run its jobs one at a time
	MaxAttempts   int    `json:"max_attempts,omitempty"`
	MaxCrashes    int    `json:"max_crashes,omitempty"`
	RetryDelay    string `json:"retry_delay,omitempty"`
	RetryMaxDelay string `json:"retry_max_delay,omitempty"`
	Timeout       string `json:"timeout,omitempty"`
	MaxPayload    int    `json:"max_payload,omitempty"`
	KeepDead      string `json:"keep_dead,omitempty"`
	KeepDeadMax   *int   `json:"keep_dead_max,omitempty"` // 0: no limit
	KeepDone      string `json:"keep_done,omitempty"`
	PollMin       string `json:"poll_min,omitempty"`
	PollMax       string `json:"poll_max,omitempty"`

	// Notify says who is told when it has dead letters or is behind: mail addresses and URLs with blanks
	// between, or none; a pointer to "": as the daemons say.
	Notify *string `json:"notify,omitempty"`
}

// Queue returns a queue's settings.
func (c *Client) Queue(ctx context.Context, name string) (Queue, error) {
	var q Queue
	err := c.do(ctx, &call{method: http.MethodGet, path: path("queues", name), out: &q, again: true})
	return q, err
}

// Queues lists all queues by name, including deleted ones.
func (c *Client) Queues(ctx context.Context) ([]Queue, error) {
	return all(ctx, c, "/queues", func(p *struct{ Queues []Queue }) []Queue { return p.Queues })
}

// SetQueue changes a queue's settings, or creates it, and returns the new settings.
func (c *Client) SetQueue(ctx context.Context, name string, change QueueChange) (Queue, error) {
	var q Queue
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

// QueueStats counts a queue's jobs, up to Limit for each state.
type QueueStats struct {
	Ready   int `json:"ready"`
	Delayed int `json:"delayed"`
	Running int `json:"running"` // for more than a second
	Dead    int `json:"dead"`
	Limit   int `json:"limit"` // a count equal to this means at least that many
}

// Stats counts the jobs of a queue by state.
func (c *Client) Stats(ctx context.Context, queue string) (QueueStats, error) {
	var s QueueStats
	err := c.do(ctx, &call{method: http.MethodGet, path: path("queues", queue, "stats"), out: &s, again: true})
	return s, err
}

// A Route says to which queue jobs of a kind go if they name none. The kind * is the default for
// kinds without a route.
type Route struct {
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
}

// Routes lists all routes by kind.
func (c *Client) Routes(ctx context.Context) ([]Route, error) {
	return all(ctx, c, "/routings", func(p *struct{ Routings []Route }) []Route { return p.Routings })
}

// Route returns where jobs of a kind go.
func (c *Client) Route(ctx context.Context, kind string) (Route, error) {
	var r Route
	err := c.do(ctx, &call{method: http.MethodGet, path: path("routings", kind), out: &r, again: true})
	return r, err
}

// SetRoute routes jobs of a kind that name no queue to a queue.
func (c *Client) SetRoute(ctx context.Context, kind, queue string) error {
	return c.do(ctx, &call{method: http.MethodPut, path: path("routings", kind), in: map[string]string{"queue": queue}, again: true})
}

// DeleteRoute deletes the route of a kind.
func (c *Client) DeleteRoute(ctx context.Context, kind string) error {
	return c.do(ctx, &call{method: http.MethodDelete, path: path("routings", kind)})
}

// Published is the result of publishing a job.
type Published struct {
	Group  string     `json:"group"` // of all copies; "": no subscribers
	Copies []Enqueued `json:"copies"`
}

// Publish enqueues a copy of a job in each queue subscribed to a topic. It does not retry, unless the
// job has a unique key that lasts (UniqueFor): a second try could publish twice.
func (c *Client) Publish(ctx context.Context, topic string, j Job) (Published, error) {
	var p Published
	err := c.do(ctx, &call{method: http.MethodPost, path: path("topics", topic, "publish"), in: j.wire(), out: &p, again: j.lasts()})
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
