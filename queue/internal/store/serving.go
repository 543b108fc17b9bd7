package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// What processes work on, for people. The tables have a row for each block, and for each queue
// of each worker.
var (
	ServedQueues = sqlrun.SQL("queue.served-queues", `
		SELECT node, COUNT(*) FROM {prefix}queue_worker WHERE node IN (:nodes) GROUP BY node ORDER BY node`)

	ServedNames = sqlrun.SQL("queue.served-names", `
		SELECT w.node, q.name FROM {prefix}queue_worker AS w JOIN {prefix}queue AS q ON q.queue_id = w.queue_id
		WHERE w.node IN (:nodes) ORDER BY q.name, w.node LIMIT :limit`)

	// LostWorkers lists workers that were lost, the newest first, of queues that no live one serves. Whoever has missed its heartbeats is
	// lost, whether or not somebody was there to say so.
	LostWorkers = sqlrun.SQL("queue.lost-workers", `
		SELECT q.name, w.node, {us n.expire_at} FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
			JOIN {prefix}queue AS q ON q.queue_id = w.queue_id
		WHERE (n.state = 'lost' OR n.state = 'live' AND n.expire_at <= {now}) AND q.state <> 'deleted' AND NOT EXISTS (
			SELECT 1 FROM {prefix}queue_worker AS o JOIN {prefix}node AS l ON l.name = o.node
			WHERE o.queue_id = w.queue_id AND l.state = 'live' AND l.expire_at > {now})
		ORDER BY n.expire_at DESC, w.node, q.name LIMIT :limit`)

	LeasedBlocks = sqlrun.SQL("queue.leased-blocks", `
		SELECT lock_by, COUNT(*) FROM {prefix}queue_block WHERE state = 'LEASED' AND lock_by IN (:nodes) GROUP BY lock_by ORDER BY lock_by`)
)
