package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Limit bounds the jobs of a queue, those of one of its kinds, or those of each tenant, across all workers.
//
// A running job counts from the beginning of its handler until it returns, so no more than
// Running handlers are active at a time, except for those of a worker that could not renew its
// lease: their contexts have ended by then, and they are expected to return. Each attempt counts,
// and each job of a batch.
//
// Workers apply a change within three seconds. Jobs that are running then are not stopped.
type Limit struct {
	Queue string
	Kind  string // empty: all jobs of the queue together, or those of Tenant

	// Tenant is the tenant whose jobs are limited. [EachTenant] limits those of each tenant that has no limit of its own: as many of each
	// of them, and not of all together. Jobs without a tenant have no such limit. Empty: the limit is not one of tenants.
	Tenant string

	Running int // maximum number that run at a time; 0: unlimited

	Rate  int           // maximum number that begin in Per; 0: unlimited
	Per   time.Duration // default: 1s
	Burst int           // maximum number that begin at once after a pause; default and minimum: those of 0.1s

	// Wrong says what is wrong with its row, if somebody has written one that means nothing: the column and the problem. None of
	// the jobs that it is about begins until that is repaired.
	Wrong string
}

// EachTenant stands for each tenant that has no limit of its own. A tenant of that name can have none.
const EachTenant = store.EachTenant

// A LimitInfo is a limit and its current use.
type LimitInfo struct {
	Limit
	Permits int  // number of permits that workers hold; of each tenant: of all tenants together
	Waiting bool // some worker waits for one
}

// EditLimit changes a limit, or creates it, and the queue if there is none. change gets the current limit,
// or an empty one, and may be called more than once. It returns ErrInvalid if the result limits nothing.
func (c *Client) EditLimit(ctx context.Context, queue, kind string, change func(*Limit)) (Limit, error) {
	return c.editLimit(ctx, Limit{Queue: queue, Kind: kind}, change)
}

// EditTenantLimit does so for the limit of a tenant, or for that of [EachTenant].
func (c *Client) EditTenantLimit(ctx context.Context, queue, tenant string, change func(*Limit)) (Limit, error) {
	return c.editLimit(ctx, Limit{Queue: queue, Tenant: tenant}, change)
}

func (c *Client) editLimit(ctx context.Context, which Limit, change func(*Limit)) (Limit, error) {
	fresh := Limit{Per: time.Second, Burst: 1}
	edit := func(is Limit) (store.Limit, error) {
		change(&is)
		is.Queue, is.Kind, is.Tenant, is.Wrong = which.Queue, which.Kind, which.Tenant, ""
		after := store.Limit(is)
		return after, after.Check()
	}
	var after store.Limit
	set := func(ctx context.Context, tx *sqlrun.Session, id int) error {
		all, err := store.ReadLimits(ctx, tx, map[int]string{id: which.Queue})
		if err != nil {
			return err
		}
		stmt, is := store.InsertLimit, fresh
		for _, l := range all {
			if l.Kind == which.Kind && l.Tenant == which.Tenant {
				is, stmt = Limit(l.Limit), store.UpdateLimit
			}
		}
		if after, err = edit(is); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, stmt, after.Args(id))
		return err
	}
	err := c.ofQueue(ctx, which.Queue, set)
	if errors.Is(err, ErrNotFound) {
		if _, err = edit(fresh); err == nil { // before the queue is created
			err = c.ofAnyQueue(ctx, which.Queue, set)
		}
	}
	if err != nil {
		return Limit{}, err
	}
	c.share(ctx)
	return Limit(after), nil
}

// DeleteLimit removes a limit. It returns [ErrNotFound] if there is none.
func (c *Client) DeleteLimit(ctx context.Context, queue, kind string) error {
	return c.deleteLimit(ctx, Limit{Queue: queue, Kind: kind})
}

// DeleteTenantLimit removes the limit of a tenant, or that of [EachTenant]. It returns [ErrNotFound] if there is none.
func (c *Client) DeleteTenantLimit(ctx context.Context, queue, tenant string) error {
	return c.deleteLimit(ctx, Limit{Queue: queue, Tenant: tenant})
}

func (c *Client) deleteLimit(ctx context.Context, which Limit) error {
	queue := which.Queue
	err := c.ofQueue(ctx, queue, func(ctx context.Context, tx *sqlrun.Session, id int) error {
		gone, err := tx.Exec(ctx, store.DeleteLimit, sqlrun.Args{"queue": id, "kind": which.Kind, "tenant": which.Tenant})
		if err == nil && gone == 0 {
			err = fmt.Errorf("%w: limit of %s", ErrNotFound, which.of())
		}
		return err
	})
	if err == nil {
		c.share(ctx)
	}
	return err
}

// of says what a limit is of.
func (l *Limit) of() string {
	switch {
	case l.Tenant != "":
		return fmt.Sprintf("queue %q and tenant %q", l.Queue, l.Tenant)
	case l.Kind != "":
		return fmt.Sprintf("queue %q and kind %q", l.Queue, l.Kind)
	}
	return fmt.Sprintf("queue %q", l.Queue)
}

// Limits lists limits, ordered by queue, kind and tenant, after those of a given limit.
func (c *Client) Limits(ctx context.Context, after Limit, limit int) ([]LimitInfo, error) {
	args := sqlrun.Args{"after": after.Queue, "kind": after.Kind, "tenant": after.Tenant, "limit": limit}
	return sqlrun.Select(ctx, &c.db.Session, store.ListLimits, args, scanLimit)
}

// LimitsOf lists the limits of a queue: the one for all its jobs first, then those of tenants, then those of kinds. A queue that does
// not exist has none.
func (c *Client) LimitsOf(ctx context.Context, queue string) ([]LimitInfo, error) {
	return sqlrun.Select(ctx, &c.db.Session, store.LimitsNamed, sqlrun.Args{"name": queue}, scanLimit)
}

func scanLimit(rows *sql.Rows) (l LimitInfo, err error) {
	var by string
	var is store.Limit
	reading := is.Reading()
	err = rows.Scan(slices.Concat([]any{&is.Queue}, reading.Places(), []any{&by, &l.Waiting, &l.Permits})...)
	reading.Done()
	l.Limit = Limit(is)
	return l, err
}
