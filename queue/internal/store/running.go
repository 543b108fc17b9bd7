package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Running jobs.
var (
	// RunningJobs lists the checked out jobs of some queues, and whether their workers are
	// live.
	RunningJobs = sqlrun.SQL("queue.running", `
		SELECT r.queue_id, r.divided, r.id, r.kind, r.job_key, r.state, r.crashes, r.lock_by,
			CASE WHEN n.state = 'live' THEN 1 ELSE 0 END, CASE WHEN n.expire_at > {now} THEN 1 ELSE 0 END
		FROM {prefix}job_running AS r LEFT JOIN {prefix}node AS n ON n.name = r.lock_by
		WHERE {in r.queue_id :queues} ORDER BY r.queue_id, r.divided, r.id`)

	// AdoptRunning takes over a checked out job whose worker has ended. It compares the state
	// that the taker saw, from which the taker concludes what the worker died of: a late worker
	// may since have recorded that it trusts the job.
	AdoptRunning = sqlrun.SQL("queue.adopt", `
		UPDATE {prefix}job_running
		SET crashes = crashes + CASE WHEN state = 'handed' THEN 0 ELSE 1 END, state = :state, lock_by = :node, fence = :fence, started_at = {now}
		WHERE queue_id = :queue AND divided = :divided AND id = :id AND lock_by = :from AND state = :was
			AND (state = 'handed' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = lock_by AND n.state = 'live'))`)

	GetRunning = reading(runningColumns, sqlrun.SQL("queue.get-running", `
		SELECT `+runningColumns+`
		FROM {prefix}job_running WHERE queue_id = :queue AND divided = :divided AND id = :id AND lock_by = :node`))

	// HandRunning gives a job that a worker cannot finish to the holder of its block.
	HandRunning = sqlrun.SQL("queue.hand-running", `
		UPDATE {prefix}job_running SET state = 'handed' WHERE `+these+` AND lock_by = :node AND state <> 'handed'`)

	// SetTrial records, for a worker's own job, how to interpret the worker's death: see
	// worker_suspect.go. It changes nothing once somebody else has adopted the row, or it was
	// handed over.
	SetTrial = sqlrun.SQL("queue.set-trial", `
		UPDATE {prefix}job_running SET state = :state
		WHERE queue_id = :queue AND divided = :divided AND id = :id AND lock_by = :node AND state <> 'handed'`)
)

// runningColumns are the columns that a worker reads of a job it takes over.
var runningColumns = `id, priority, ` + BodyColumns + `, attempt, crashes, ` + progressColumns
