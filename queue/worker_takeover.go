package queue

import (
	"context"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// TakeOver takes what workers have that worked under a lock: see [WorkerOptions]. Call it
// after that lock was got, and before a worker is begun under it. Then the others need not
// wait until the leases of those are over, which had the lock before. One of these that lives
// on, and has not noticed yet that it has lost the lock, is treated as one that could not
// renew its lease: it loses its jobs, and those that run there are done again.
//
// It returns how many workers there were.
func (c *Client) TakeOver(ctx context.Context, under string) (int, error) {
	if err := sqlrun.CheckName(under); err != nil {
		return 0, invalid("under", "%v", err)
	}
	n, err := c.db.Exec(ctx, store.SucceedNodes, sqlrun.Args{"under": under})
	if err == nil && n > 0 {
		c.bells.announce(ctx)
	}
	return int(n), err
}

// KeepOnExit is called by who gives a lock up of its own accord, while it has it still: its workers
// that work under the lock keep what they have, and are not succeeded.
func (c *Client) KeepOnExit(ctx context.Context, under string) error {
	if err := sqlrun.CheckName(under); err != nil {
		return invalid("under", "%v", err)
	}
	_, err := c.db.Exec(ctx, store.ResignNodes, sqlrun.Args{"under": under})
	return err
}
