package queue

import (
	"cmp"
	"context"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Routes choose the queue of jobs that name none. Like the settings of queues, a producer's routes
// are at most two seconds old, so they cost its jobs nothing.

// routes is a snapshot of all routes.
type routes struct {
	of map[string]string
	at instant.Instant
}

func (r *routes) queue(kind string) string { return store.RouteOf(r.of, kind) }

// readRoutes reads all routes. It remembers them, except in a transaction, which may be rolled
// back. Of two concurrent reads, the later one counts.
func (c *Client) readRoutes(ctx context.Context, tx *sqlrun.Session) (*routes, error) {
	at := instant.Now()
	all, err := store.RoutesByKind(ctx, cmp.Or(tx, &c.dbOf(ctx).Session))
	if err != nil {
		return nil, err
	}
	r := &routes{of: all, at: at}
	if tx != nil {
		return r, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.routes == nil || c.routes.at <= r.at {
		c.routes = r
	}
	return r, nil
}
