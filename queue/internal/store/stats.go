package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// StatReady and the next ones count the first jobs of each part of a queue by kind, up to a
// limit for each part, since nobody waits for millions.
var (
	StatReady = sqlrun.SQL("queue.stat-ready", statIn("job", " AND divided = :divided AND priority = :priority"))

	StatDelayed = sqlrun.SQL("queue.stat-delayed", statIn("job_delayed", " AND divided = :divided"))

	StatRunning = sqlrun.SQL("queue.stat-running", statIn("job_running", " AND divided = :divided"))

	StatDead = sqlrun.SQL("queue.stat-dead", statIn("job_dead", ""))
)

func statIn(table, part string) string {
	return `
		SELECT part, kind, COUNT(*), MIN(id) FROM (
			{union rows: SELECT * FROM (SELECT {int :at} AS part, kind, id FROM {prefix}` + table + `
				WHERE queue_id = :queue` + part + ` AND ` + notSentinel + ` ORDER BY id LIMIT :limit) AS one}) AS counted
		GROUP BY part, kind`
}
