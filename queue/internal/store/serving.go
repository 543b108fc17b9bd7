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

	LeasedBlocks = sqlrun.SQL("queue.leased-blocks", `
		SELECT lock_by, COUNT(*) FROM {prefix}queue_block WHERE state = 'LEASED' AND lock_by IN (:nodes) GROUP BY lock_by ORDER BY lock_by`)
)
