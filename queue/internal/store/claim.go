package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Jobs given out by other processes.
var (
	// ClaimHolds is the last read of a transaction about jobs that another process has given
	// out: see above. A leased block means that the job was not handed over.
	ClaimHolds = sqlrun.SQL("queue.claim-holds", `
		SELECT fence FROM {prefix}queue_block
		WHERE queue_id = :queue AND divided = :divided AND fence = :fence AND lock_by = :node AND state = 'LEASED'
			AND EXISTS (SELECT 1 FROM {prefix}node AS n WHERE n.name = lock_by AND n.state = 'live' AND n.expire_at > {now}) {share_locked}`)

	NodeLives = sqlrun.SQL("queue.node-lives", `SELECT name FROM {prefix}node WHERE name = :node AND state = 'live' AND expire_at > {now}`)

	ClaimedReady   = sqlrun.SQL("queue.claimed-ready", `SELECT `+claimed+`, 0, 0 FROM {prefix}job WHERE priority = :priority AND `+these)
	ClaimedDelayed = sqlrun.SQL("queue.claimed-delayed", `SELECT `+claimed+`, attempt, crashes FROM {prefix}job_delayed WHERE `+these)
	ClaimedRunning = sqlrun.SQL("queue.claimed-running", `SELECT `+claimed+`, attempt - 1, crashes FROM {prefix}job_running WHERE `+
		these+` AND lock_by = :node`)
)

// AttemptsDelayed returns the attempts of delayed jobs whose rows are locked.
var AttemptsDelayed = sqlrun.SQL("queue.attempts-delayed", `SELECT id, attempt FROM {prefix}job_delayed WHERE `+these)

// claimed is what ending a job requires to be known. The attempt, less one, follows.
const claimed = `id, kind, job_key, unique_key, COALESCE(max_attempts, 0), COALESCE(group_id, 0)`
