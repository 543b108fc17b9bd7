package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Limits of kinds.
var (
	// LimitsOf lists the limits of a queue, with whether some worker waits for a permit.
	LimitsOf = sqlrun.SQL("queue.limits", `
		SELECT kind, COALESCE(max_running, 0), COALESCE(rate, 0), rate_per, burst, waiting_by, CASE WHEN waiting_until > {now} THEN 1 ELSE 0 END
		FROM {prefix}queue_limit WHERE queue_id = :queue ORDER BY kind`)

	// ListLimits lists those of all queues, with how many permits workers have, and
	// LimitsNamed those of one.
	ListLimits = sqlrun.SQL("queue.list-limits", limitColumns+`
		WHERE q.name > :after OR q.name = :after AND l.kind > :kind ORDER BY q.name, l.kind LIMIT :limit`)
	LimitsNamed = sqlrun.SQL("queue.limits-named", limitColumns+`
		WHERE q.name = :name ORDER BY l.kind`)

	// InsertLimit runs with the queue locked, as all that change limits do.
	InsertLimit = sqlrun.SQL("queue.insert-limit", `
		INSERT INTO {prefix}queue_limit (queue_id, kind, max_running, rate, rate_per, burst) VALUES (:queue, :kind, :running, :rate, :per, :burst)`)

	UpdateLimit = sqlrun.SQL("queue.update-limit", `
		UPDATE {prefix}queue_limit SET max_running = :running, rate = :rate, rate_per = :per, burst = :burst, update_time = {now}
		WHERE queue_id = :queue AND kind = :kind`)

	DeleteLimit = sqlrun.SQL("queue.delete-limit", `DELETE FROM {prefix}queue_limit WHERE queue_id = :queue AND kind = :kind`)
)

const limitColumns = `
		SELECT q.name, l.kind, COALESCE(l.max_running, 0), COALESCE(l.rate, 0), l.rate_per, l.burst, l.waiting_by, CASE WHEN l.waiting_until > {now} THEN 1 ELSE 0 END,
			(SELECT COUNT(*) FROM {prefix}queue_permit AS p JOIN {prefix}node AS n ON n.name = p.lock_by
				WHERE p.queue_id = l.queue_id AND p.kind = l.kind AND p.state = 'LEASED' AND n.state = 'live')
		FROM {prefix}queue_limit AS l JOIN {prefix}queue AS q ON q.queue_id = l.queue_id`
