package admin

import (
	"context"
	"fmt"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// OtherKinds is the kind of the route of all kinds that have none of their own.
const OtherKinds = store.RestOfKinds

// A Route names the queue for jobs of a kind that name none.
type Route struct {
	Kind  string // or OtherKinds
	Queue string

	// Wrong says what is wrong with its row, if somebody has written one that means nothing: the column and the problem. Jobs of the
	// kind that name no queue are refused until that is repaired.
	Wrong string
}

// Routes lists routes, ordered by kind, after a given kind.
func (c *Client) Routes(ctx context.Context, after string, limit int) ([]Route, error) {
	rows, err := store.ReadRoutes(ctx, &c.db.Session, after, limit)
	all := make([]Route, len(rows))
	for i, r := range rows {
		all[i] = Route(r)
	}
	return all, err
}

// SetRoute sends jobs of a kind that name no queue to a queue, and creates that if there is none; the kind OtherKinds
// stands for all kinds without a route. Producers apply it within two seconds. Jobs enqueued
// before stay where they are: see [github.com/dbcron/dbcron/queue.Client.Move].
func (c *Client) SetRoute(ctx context.Context, kind, queue string) error {
	for _, name := range []struct{ field, is string }{{"kind", kind}, {"queue", queue}} {
		if err := sqlrun.CheckName(name.is); err != nil {
			return store.Invalid(name.field, "%v", err)
		}
	}
	if err := jobfield.CheckTarget(queue); err != nil {
		return store.Invalid("queue", "%v", err)
	}
	err := c.setRoute(ctx, kind, queue)
	if c.db.Dialect.Duplicate(err) { // somebody has set it meanwhile
		err = c.setRoute(ctx, kind, queue)
	}
	c.hub.Change()
	return err
}

// setRoute sets a route with its queue locked, so that the queue is not deleted meanwhile.
func (c *Client) setRoute(ctx context.Context, kind, queue string) error {
	return c.ofAnyQueue(ctx, queue, func(ctx context.Context, tx *sqlrun.Session, _ int) error {
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
	c.hub.Change()
	return err
}

// Route returns the queue for jobs of a kind that name none.
func (c *Client) Route(ctx context.Context, kind string) (string, error) {
	all, err := store.RoutesByKind(ctx, &c.db.Session)
	if err != nil {
		return "", err
	}
	return store.RouteOf(all, kind), nil
}
