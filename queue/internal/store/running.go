package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Running jobs.
var (
	// RunningJobs lists the next checked out jobs of some queues, and whether their workers are
	// live, in time, or have said themselves that they are over.
	RunningJobs = sqlrun.SQL("queue.running", `
		SELECT r.queue_id, r.divided, r.id, r.kind, r.job_key, r.state, r.crashes, r.losses, r.charged, r.lock_by,
			CASE WHEN n.state = 'live' THEN 1 ELSE 0 END, CASE WHEN n.expire_at > {now} THEN 1 ELSE 0 END, CASE WHEN n.state = 'gone' THEN 1 ELSE 0 END
		FROM {prefix}job_running AS r LEFT JOIN {prefix}node AS n ON n.name = r.lock_by
		WHERE {in r.queue_id :queues} AND (r.queue_id > :queue OR r.divided > :divided OR r.divided = :divided AND r.id > :after)
		ORDER BY r.queue_id, r.divided, r.id LIMIT :limit`)

	// AdoptRunning takes over a checked out job whose worker has ended. It compares the state
	// and the charges that the taker saw, from which the taker concludes what the worker died of,
	// and what to count: a late worker may since have recorded that it trusts the job, and one that
	// lives may have taken its charge back. A row that is locked waits for a later round.
	AdoptRunning = sqlrun.UpdateFree("queue.adopt", "{prefix}job_running", byJob,
		`crashes = crashes + :died, losses = losses + :lost, charged = :charged, state = :state, lock_by = :node, fence = :fence, started_at = {now}`,
		`queue_id = :queue AND divided = :divided AND id = :id AND lock_by = :from AND state = :was AND charged = :had
			AND (state = 'handed' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = lock_by AND n.state = 'live'))`)

	GetRunning = reading(runningColumns, sqlrun.SQL("queue.get-running", `
		SELECT `+runningColumns+`
		FROM {prefix}job_running WHERE queue_id = :queue AND divided = :divided AND id = :id AND lock_by = :node`))

	// HandRunning gives a job that a worker cannot finish to the holder of its block. A row that is locked
	// is found again, and handed over, by a later round.
	HandRunning = sqlrun.UpdateFree("queue.hand-running", "{prefix}job_running", byJob, `state = 'handed'`,
		these+` AND lock_by = :node AND state <> 'handed'`)

	// HandLast does so when the worker ends, and waits for its rows: nobody would hand them over later.
	HandLast = sqlrun.SQL("queue.hand-last", `
		UPDATE {prefix}job_running SET state = 'handed' WHERE `+these+` AND lock_by = :node AND state <> 'handed'`)

	// TakeBack takes the charges of processes back that live, from a job that anybody has. It compares the
	// charges that it saw, so each is taken back once.
	TakeBack = sqlrun.UpdateFree("queue.take-back", "{prefix}job_running", byJob,
		`crashes = crashes - :n, losses = losses + :n, charged = :charged,
			state = CASE WHEN {int :clears} = 1 AND state IN ('suspect', 'alone') THEN 'running' ELSE state END`,
		`queue_id = :queue AND divided = :divided AND id = :id AND charged = :had`)

	// SetTrial records, for a worker's own job, how to interpret the worker's death: see
	// runner_suspect.go. It changes nothing once somebody else has adopted the row, or it was
	// handed over.
	SetTrial = sqlrun.UpdateFree("queue.set-trial", "{prefix}job_running", byJob, `state = :state`,
		`queue_id = :queue AND divided = :divided AND id = :id AND lock_by = :node AND state <> 'handed'`)
)

// byJob is the key of the tables of jobs.
var byJob = []string{"queue_id", "divided", "id"}

// runningColumns are the columns that a worker reads of a job it takes over.
var runningColumns = `id, priority, ` + BodyColumns + `, attempt, crashes, ` + progressColumns
