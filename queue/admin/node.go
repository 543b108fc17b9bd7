package admin

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// NodeLives reports whether a worker is live, by its name in the tables.
func (c *Client) NodeLives(ctx context.Context, node string) (bool, error) {
	err := c.db.Get(ctx, store.NodeLives, sqlrun.Args{"node": node}, new(string))
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// TakeOver takes the blocks and jobs of workers that ran under a lock: LeaderLock of
// [github.com/dbcron/dbcron/queue.WorkerOptions]. Call it after acquiring that lock, and before
// starting a worker under it. Then other workers need not wait for the leases of the previous
// holder's workers to end. Such a worker that still runs, and has not noticed the loss of the lock,
// is treated as one that could not renew its lease: it loses its jobs, and they are done again.
//
// It returns the number of those workers.
func (c *Client) TakeOver(ctx context.Context, under string) (int, error) {
	if err := sqlrun.CheckName(under); err != nil {
		return 0, store.Invalid("under", "%v", err)
	}
	n, err := c.db.Exec(ctx, store.SucceedNodes, sqlrun.Args{"under": under})
	if err == nil && n > 0 {
		c.share(ctx)
	}
	return int(n), err
}

// KeepOnExit releases the leases of workers from a leader lock. Call it before giving the lock up
// voluntarily, while it is still held: the workers keep their jobs, and the next holder's TakeOver
// leaves them alone.
func (c *Client) KeepOnExit(ctx context.Context, under string) error {
	if err := sqlrun.CheckName(under); err != nil {
		return store.Invalid("under", "%v", err)
	}
	_, err := c.db.Exec(ctx, store.ResignNodes, sqlrun.Args{"under": under})
	return err
}
