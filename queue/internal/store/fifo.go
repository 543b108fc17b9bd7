package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// PendingFIFO is PendingBlock for a FIFO queue: no job can begin while one waits for its retry,
// or runs.
var PendingFIFO = sqlrun.SQL("queue.pending-fifo", pendingInLine(""))

// PendingFIFOKinds is PendingFIFO for some kinds: it considers the kind of the first job.
var PendingFIFOKinds = sqlrun.SQL("queue.pending-fifo-kinds", pendingInLine(` AND COALESCE(
		(SELECT j.kind FROM {prefix}job AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.`+notSentinel+` ORDER BY j.queue_id, j.divided, j.priority, j.id LIMIT 1),
		(SELECT j.kind FROM {prefix}job_delayed AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.`+notSentinel+` ORDER BY j.queue_id, j.divided, j.run_at, j.id LIMIT 1)) IN (:kinds)`))

func pendingInLine(more string) string {
	return `
	SELECT b.divided FROM {prefix}queue_block AS b
	WHERE b.queue_id = :queue
		AND ((SELECT j.id FROM {prefix}job AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.` + notSentinel + ` ORDER BY j.queue_id, j.divided, j.priority, j.id LIMIT 1) IS NOT NULL
			OR (SELECT j.id FROM {prefix}job_delayed AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.run_at <= {now} ORDER BY j.queue_id, j.divided, j.run_at, j.id LIMIT 1) IS NOT NULL)
		AND NOT EXISTS (SELECT 1 FROM {prefix}job_delayed AS h WHERE h.queue_id = b.queue_id AND h.divided = b.divided AND h.hold_key > '' AND h.run_at > {now})
		AND NOT EXISTS (SELECT 1 FROM {prefix}job_running AS r WHERE r.queue_id = b.queue_id AND r.divided = b.divided)` + more + `
	ORDER BY b.divided LIMIT 1`
}
