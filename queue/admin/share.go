package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Share is how many turns a tenant of a fair queue has while one without a share has one.
type Share struct {
	Queue  string
	Tenant string
	Weight int // 1 to 1000

	// Wrong says what is wrong with its row, if somebody has written one that means nothing: the column and the problem. A
	// weight that is no number counts as 1 until that is repaired, and one beyond the bounds as the bound.
	Wrong string
}

// SetShare gives a tenant of a queue a share, and creates the queue if there is none. It has an effect while the queue is fair:
// workers apply it within three seconds.
func (c *Client) SetShare(ctx context.Context, queue, tenant string, weight int) error {
	if err := checkShare(queue, tenant); err != nil {
		return err
	}
	if weight < 1 || weight > store.MaxWeight {
		return store.Invalid("weight", "%d is not 1 to %d", weight, store.MaxWeight)
	}
	err := c.ofAnyQueue(ctx, queue, func(ctx context.Context, tx *sqlrun.Session, id int) error {
		args := sqlrun.Args{"queue": id, "tenant": tenant, "weight": weight}
		n, err := tx.Exec(ctx, store.UpdateShare, args)
		if err == nil && n == 0 {
			_, err = tx.Exec(ctx, store.InsertShare, args)
		}
		return err
	})
	if err == nil {
		c.share(ctx)
	}
	return err
}

// DeleteShare removes a tenant's share: it has one turn then, like the others. It returns [ErrNotFound] if it has none.
func (c *Client) DeleteShare(ctx context.Context, queue, tenant string) error {
	if err := checkShare(queue, tenant); err != nil {
		return err
	}
	err := c.ofQueue(ctx, queue, func(ctx context.Context, tx *sqlrun.Session, id int) error {
		n, err := tx.Exec(ctx, store.DeleteShare, sqlrun.Args{"queue": id, "tenant": tenant})
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: share of tenant %q in queue %q", ErrNotFound, tenant, queue)
		}
		return err
	})
	if err == nil {
		c.share(ctx)
	}
	return err
}

// Shares lists the shares of a queue, ordered by tenant, after a given tenant. A queue that does not exist has none.
func (c *Client) Shares(ctx context.Context, queue, after string, limit int) ([]Share, error) {
	args := sqlrun.Args{"name": queue, "after": after, "limit": limit}
	return sqlrun.Select(ctx, &c.db.Session, store.ListShares, args, func(rows *sql.Rows) (Share, error) {
		var s store.Share
		var row sqlrun.Reading
		err := rows.Scan(s.Places(&row)...)
		if len(row.Of) == 0 && (s.Weight < 1 || s.Weight > store.MaxWeight) {
			row.Note("weight", fmt.Sprintf("%d is not 1 to %d", s.Weight, store.MaxWeight))
		}
		return Share{queue, s.Tenant, s.Weight, row.Wrong}, err
	})
}

func checkShare(queue, tenant string) error {
	for _, name := range []struct{ field, is string }{{"queue", queue}, {"tenant", tenant}} {
		if err := sqlrun.CheckName(name.is); err != nil {
			return store.Invalid(name.field, "%v", err)
		}
	}
	return nil
}

// ofQueue runs a function in a transaction that has locked an existing queue.
func (c *Client) ofQueue(ctx context.Context, queue string, do func(ctx context.Context, tx *sqlrun.Session, id int) error) error {
	return c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		var id int
		if err := tx.Get(ctx, store.LockQueue, sqlrun.Args{"name": queue}, &id); err != nil {
			return orNone(err, queue)
		}
		return do(ctx, tx, id)
	})
}

// ofAnyQueue is ofQueue for a queue that is created if there is none. What the function is to do has been checked before.
func (c *Client) ofAnyQueue(ctx context.Context, queue string, do func(ctx context.Context, tx *sqlrun.Session, id int) error) error {
	err := c.ofQueue(ctx, queue, do)
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	if err := sqlrun.CheckName(queue); err != nil {
		return store.Invalid("queue", "%v", err)
	}
	if err := jobfield.CheckTarget(queue); err != nil {
		return store.Invalid("queue", "%v", err)
	}
	if _, err := c.Edit(ctx, queue, func(*Queue) {}); err != nil {
		return err
	}
	return c.ofQueue(ctx, queue, do)
}
