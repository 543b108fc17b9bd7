package queue

import (
	"cmp"
	"context"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Routes say where jobs go that name no queue. A producer knows them as they were two
// seconds ago or less, as it does the settings of queues, so they cost its jobs nothing.

// routes are all routes, as they were at some moment.
type routes struct {
	of map[string]string
	at instant.Instant
}

func (r *routes) queue(kind string) string { return store.RouteOf(r.of, kind) }

// readRoutes reads all routes, and remembers them unless that is in a transaction, which
// may be rolled back. Of two that were read at the same time the later one counts.
func (c *Client) readRoutes(ctx context.Context, tx *sqlrun.Session) (*routes, error) {
	at := instant.Now()
	all, err := store.RoutesByKind(ctx, cmp.Or(tx, &c.db.Session))
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
