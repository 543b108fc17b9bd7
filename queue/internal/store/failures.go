package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// The jobs that failed most recently.
var (
	// Failing finds the blocks with dead and delayed jobs. It selects the first by the key,
	// which takes one index lookup. For the least, MySQL and MariaDB would read the whole
	// queue. The ORDER BY names all columns of an index: else MySQL sorts.
	Failing = sqlrun.SQL("queue.failing", `
		SELECT * FROM (SELECT q.queue_id, q.name, -1 AS divided FROM {prefix}queue AS q
			WHERE (SELECT d.id FROM {prefix}job_dead AS d WHERE d.queue_id = q.queue_id ORDER BY d.queue_id, d.id LIMIT 1) IS NOT NULL LIMIT :limit) AS dead
		UNION ALL SELECT * FROM (SELECT b.queue_id, (SELECT q.name FROM {prefix}queue AS q WHERE q.queue_id = b.queue_id), b.divided FROM {prefix}queue_block AS b
			WHERE (SELECT j.id FROM {prefix}job_delayed AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.`+notSentinel+` ORDER BY j.queue_id, j.divided, j.run_at, j.id LIMIT 1) IS NOT NULL LIMIT :limit) AS waiting`)

	NewestDead = sqlrun.SQL("queue.newest-dead", `
		SELECT id, kind, {us died_at}, attempt, SUBSTR(error, 1, 500) FROM {prefix}job_dead
		WHERE queue_id = :queue AND id < :before ORDER BY id DESC LIMIT :limit`)

	// SoonestFailed reads the first of those that are due next. It leaves out jobs that have
	// not been tried yet: there may be millions, and retries come soon.
	SoonestFailed = sqlrun.SQL("queue.soonest-failed", `
		SELECT id, kind, at_us, attempt, SUBSTR(error, 1, 500) FROM (
			SELECT id, kind, {us run_at} AS at_us, attempt, error FROM {prefix}job_delayed
			WHERE queue_id = :queue AND divided = :divided ORDER BY run_at, id LIMIT :limit) AS soonest
		WHERE attempt > 0 AND error <> ''`)
)
