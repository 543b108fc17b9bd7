package queue

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Routes say where jobs go that name no queue. A producer knows them as they were two
// seconds ago or less, as it does the settings of queues, so they cost its jobs nothing.

// OtherKinds is the kind of the route for all kinds without a route of their own.
const OtherKinds = "*"

// A Route names the queue for jobs of a kind that name none.
type Route struct {
	Kind  string // or OtherKinds
	Queue string
}

// Routes lists routes, ordered by kind, after a given kind.
func (c *Client) Routes(ctx context.Context, after string, limit int) ([]Route, error) {
	return routesOn(ctx, &c.db.Session, after, limit)
}

func routesOn(ctx context.Context, on *sqlrun.Session, after string, limit int) ([]Route, error) {
	return sqlrun.Select(ctx, on, store.ListRoutes, sqlrun.Args{"after": after, "limit": limit}, func(rows *sql.Rows) (r Route, err error) {
		return r, rows.Scan(&r.Kind, &r.Queue)
	})
}

// SetRoute sends jobs of a kind that name no queue to an existing queue; the kind OtherKinds
// stands for all kinds without a route. Producers apply it within two seconds. Jobs enqueued
// before stay where they are: see [Client.Move]. It returns [ErrNotFound] if there is no such queue.
func (c *Client) SetRoute(ctx context.Context, kind, queue string) error {
	for _, name := range []struct{ field, is string }{{"kind", kind}, {"queue", queue}} {
		if err := sqlrun.CheckName(name.is); err != nil {
			return invalid(name.field, "%v", err)
		}
	}
	err := c.setRoute(ctx, kind, queue)
	if c.db.Dialect.Duplicate(err) { // somebody has set it meanwhile
		err = c.setRoute(ctx, kind, queue)
	}
	if err == nil {
		_, err = c.readRoutes(ctx, nil)
	}
	return err
}

// setRoute sets a route with its queue locked, so that the queue is not deleted meanwhile.
func (c *Client) setRoute(ctx context.Context, kind, queue string) error {
	return c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		var id, blocks int
		if err := tx.Get(ctx, store.LockQueue, sqlrun.Args{"name": queue}, &id, &blocks); err != nil {
			return orNone(err, queue)
		}
		if q, err := c.readOn(ctx, tx, queue); err != nil {
			return err
		} else if q.State == "deleted" {
			return fmt.Errorf("%w: %q", ErrDeleted, queue)
		}
		args := sqlrun.Args{"kind": kind, "name": queue}
		n, err := tx.Exec(ctx, store.UpdateRoute, args)
		if err == nil && n == 0 {
			_, err = tx.Exec(ctx, store.InsertRoute, args)
		}
		return err
	})
}

// DeleteRoute removes a route: jobs of the kind then follow the route of OtherKinds, or else go
// to the queue default. It returns [ErrNotFound] if there is no such route.
func (c *Client) DeleteRoute(ctx context.Context, kind string) error {
	n, err := c.db.Exec(ctx, store.DeleteRoute, sqlrun.Args{"kind": kind})
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: route of kind %q", ErrNotFound, kind)
	}
	if err == nil {
		_, err = c.readRoutes(ctx, nil)
	}
	return err
}

// Route returns the queue for jobs of a kind that name none.
func (c *Client) Route(ctx context.Context, kind string) (string, error) {
	r, err := c.readRoutes(ctx, nil)
	if err != nil {
		return "", err
	}
	return r.queue(kind), nil
}

// routes are all routes, as they were at some moment.
type routes struct {
	of map[string]string
	at instant.Instant
}

func (r *routes) queue(kind string) string {
	return cmp.Or(r.of[kind], r.of[OtherKinds], defaultQueue)
}

// readRoutes reads all routes, and remembers them unless that is in a transaction, which
// may be rolled back. Of two that were read at the same time the later one counts.
func (c *Client) readRoutes(ctx context.Context, tx *sqlrun.Session) (*routes, error) {
	on := cmp.Or(tx, &c.db.Session)
	r := &routes{of: map[string]string{}, at: instant.Now()}
	for after := ""; ; {
		part, err := routesOn(ctx, on, after, store.Chunk)
		if err != nil {
			return nil, err
		}
		for _, one := range part {
			r.of[one.Kind], after = one.Queue, one.Kind
		}
		if len(part) < store.Chunk {
			break
		}
	}
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
