package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// SurplusWorkers finds queues with more workers than blocks.
var SurplusWorkers = sqlrun.SQL("queue.surplus-workers", `
	SELECT s.name, s.workers, s.blocks FROM (
		SELECT q.name, (SELECT COUNT(*) FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id) AS blocks,
			(SELECT COUNT(*) FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
				WHERE w.queue_id = q.queue_id AND n.state = 'live' AND n.expire_at > {now} AND n.drained_at IS NULL) AS workers
		FROM {prefix}queue AS q WHERE q.state <> 'deleted') AS s
	WHERE s.workers > s.blocks AND s.blocks > 0 ORDER BY s.name LIMIT :limit`)
