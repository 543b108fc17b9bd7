package queue

import (
	"context"
	"database/sql"

	"github.com/dbcron/dbcron/dialect"
)

// surplusWorkers finds queues that have more workers than blocks.
var surplusWorkers = dialect.SQL("queue.surplus-workers", `
	SELECT s.name, s.workers, s.blocks FROM (
		SELECT q.name, (SELECT COUNT(*) FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id) AS blocks,
			(SELECT COUNT(*) FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
				WHERE w.queue_id = q.queue_id AND n.state = 'live' AND n.expire_at > {now} AND n.drained_at IS NULL) AS workers
		FROM {prefix}queue AS q WHERE q.state <> 'deleted') AS s
	WHERE s.workers > s.blocks AND s.blocks > 0 ORDER BY s.name LIMIT :limit`)

// A Surplus is a queue that has more workers than blocks: some of them have nothing to do.
type Surplus struct {
	Queue           string
	Workers, Blocks int
}

// Surplus lists up to limit queues, by name, that have more workers than blocks.
func (c *Client) Surplus(ctx context.Context, limit int) ([]Surplus, error) {
	return dialect.Select(ctx, &c.db.Session, surplusWorkers, dialect.Args{"limit": limit}, func(rows *sql.Rows) (s Surplus, err error) {
		return s, rows.Scan(&s.Queue, &s.Workers, &s.Blocks)
	})
}
