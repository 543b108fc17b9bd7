package queue

import (
	"context"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// TakeOver takes the blocks and jobs of workers that ran under a lock: see
// [WorkerOptions.LeaderLock]. Call it after acquiring that lock, and before starting a worker under
// it. Then other workers need not wait for the leases of the previous holder's workers to end.
// Such a worker that still runs, and has not noticed the loss of the lock, is treated as one that
// could not renew its lease: it loses its jobs, and they are done again.
//
// It returns the number of those workers.
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

// KeepOnExit releases the lease of workers from a leader lock: call it before giving the lock up
// voluntarily, while it is still held. The client's workers under the lock keep their jobs, and
// the next holder's TakeOver leaves them alone.
func (c *Client) KeepOnExit(ctx context.Context, under string) error {
	if err := sqlrun.CheckName(under); err != nil {
		return invalid("under", "%v", err)
	}
	_, err := c.db.Exec(ctx, store.ResignNodes, sqlrun.Args{"under": under})
	return err
}
