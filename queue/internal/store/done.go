package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Jobs that have ended and are kept.
var (
	// KeepReady and the next two copy jobs whose rows are locked and will be deleted next:
	// nobody else ends them in between.
	KeepReady   = sqlrun.SQL("queue.keep-ready", moveTo("job_done", "job", true))
	KeepDelayed = sqlrun.SQL("queue.keep-delayed", moveTo("job_done", "job_delayed", false))
	KeepRunning = sqlrun.SQL("queue.keep-running", moveTo("job_done", "job_running", false))

	ListDone = list("queue.list-done", `, attempt, crashes, {us ended_at}, error, NULL, percent, message, divided, worker, {us started_at}, outcome`, `job_done
		WHERE queue_id = :queue AND id > :after ORDER BY id, divided LIMIT :limit`)

	CountDone = sqlrun.SQL("queue.count-done", `
		SELECT COUNT(*), 0, 0, 0, 0 FROM (SELECT id FROM {prefix}job_done WHERE queue_id = :queue LIMIT :limit) AS counted`)

	StatDone = sqlrun.SQL("queue.stat-done", statIn("job_done", ""))

	// LockDone locks the existing rows of some jobs; PurgeDone removes them.
	LockDone  = sqlrun.SQL("queue.lock-done", lockIn("job_done", ""))
	PurgeDone = sqlrun.SQL("queue.purge-done", `DELETE FROM {prefix}job_done WHERE `+these+` {only id :n}`)

	// OutdatedDone finds jobs that were kept for as long as was set when they were done.
	OutdatedDone = sqlrun.SQL("queue.outdated-done", `
		SELECT queue_id, divided, id, '' FROM {prefix}job_done WHERE purge_at <= {now} ORDER BY purge_at LIMIT :limit {skip_locked}`)
)

// Outcomes of jobs that are kept.
const (
	OutcomeDone      = "done"
	OutcomeDiscarded = "discarded"
	OutcomeCancelled = "cancelled"
)
