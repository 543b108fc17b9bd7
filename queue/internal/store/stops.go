package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Jobs that were handed back because their workers were stopped soon after they had begun them.
var (
	// LockPaused locks the jobs of some queues that pause. It leaves out those that were handed back only
	// now, and rows that are locked. IS TRUE and the order have planners use the index on stopped_at, which
	// has few rows, without statistics, too.
	LockPaused = sqlrun.SQL("queue.lock-paused", `
		SELECT queue_id, divided, id FROM {prefix}job_delayed
		WHERE stopped_at <= {now + :since} AND ({in queue_id :queues}) IS TRUE AND stops >= :stops AND run_at > {now}
		ORDER BY stopped_at LIMIT :limit {skip_locked}`)

	// AcquitPaused lets such jobs of a block begin, and forgets the stops.
	AcquitPaused = sqlrun.SQL("queue.acquit", `UPDATE {prefix}job_delayed SET stops = 0, stopped_at = NULL, run_at = {now} WHERE `+these)

	// SuspiciousJobs returns the jobs of all queues that workers have handed back so many times in a
	// row, the last one first.
	SuspiciousJobs = sqlrun.SQL("queue.suspicious-jobs", `
		SELECT q.name, j.id, j.error, {us j.stopped_at} FROM {prefix}job_delayed AS j JOIN {prefix}queue AS q ON q.queue_id = j.queue_id
		WHERE j.stopped_at > {now + :since} AND j.stops >= :stops ORDER BY j.stopped_at DESC LIMIT :limit`)
)
