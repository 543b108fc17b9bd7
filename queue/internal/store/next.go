package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// What is next in a block, and what may hold it, for people. Each reads a bounded number of rows, however long the queue is.
var (
	// NextReady lists the ready jobs that are next: up to a limit of each priority.
	NextReady = sqlrun.SQL("queue.next-ready", selectReady(nextColumns))

	// NextDue lists the delayed jobs of a block that are due, in the order in which workers read them.
	NextDue = sqlrun.SQL("queue.next-due", `
		SELECT `+nextColumns+`, {us run_at} FROM {prefix}job_delayed
		WHERE queue_id = :queue AND divided = :divided AND run_at <= {now} AND `+notSentinel+` ORDER BY queue_id, divided, run_at, id LIMIT :limit`)

	// HoldersOfKeys lists the jobs of a block that run, or wait for their retries, and have one of some keys. One that is due is as
	// good as ready.
	HoldersOfKeys = sqlrun.SQL("queue.holders-of-keys", `
		SELECT (SELECT CASE WHEN run_at > {now} THEN 'delayed' ELSE 'ready' END FROM {prefix}job_delayed
				WHERE {prefix}job_delayed.queue_id = :queue AND {prefix}job_delayed.divided = :divided AND {prefix}job_delayed.id = h.id), h.id, h.hold_key
			FROM {prefix}job_delayed AS h WHERE h.queue_id = :queue AND h.divided = :divided AND h.hold_key IN (:keys)
		UNION ALL SELECT 'running', id, job_key FROM {prefix}job_running WHERE queue_id = :queue AND divided = :divided AND job_key IN (:keys)`)

	// HolderInLine is that of the block of a FIFO queue, where one job holds all others.
	HolderInLine = sqlrun.SQL("queue.holder-in-line", `
		SELECT state, id, '' FROM (SELECT CASE WHEN run_at > {now} THEN 'delayed' ELSE 'ready' END AS state, id FROM {prefix}job_delayed
			WHERE queue_id = :queue AND divided = :divided AND hold_key > '' ORDER BY queue_id, divided, hold_key LIMIT 1) AS d
		UNION ALL SELECT state, id, '' FROM (SELECT 'running' AS state, id FROM {prefix}job_running
			WHERE queue_id = :queue AND divided = :divided ORDER BY queue_id, divided, id LIMIT 1) AS r`)

	// LimitUse lists the limits of a queue, of its kinds, and of some tenants, with the permits that workers have, and until when the
	// rates are used up.
	LimitUse = sqlrun.SQL("queue.limit-use", `
		SELECT l.kind, l.tenant, COALESCE(l.max_running, 0), COALESCE(l.rate, 0), l.rate_per, l.burst, {us {now}}, COALESCE({us l.drawn_at}, 0), l.drawn_ahead,
			(SELECT COUNT(*) FROM {prefix}queue_permit AS p JOIN {prefix}node AS n ON n.name = p.lock_by
				WHERE p.queue_id = l.queue_id AND p.kind = l.kind AND p.tenant = '' AND l.tenant = '' AND p.state = 'LEASED' AND n.state = 'live')
		FROM {prefix}queue_limit AS l WHERE l.queue_id = :queue AND l.tenant IN (:names) ORDER BY l.kind, l.tenant`)

	// TenantUse tells the same of tenants: in one row until when their rates are used up, and in another how many permits there are.
	TenantUse = sqlrun.SQL("queue.tenant-use", `
		SELECT tenant, COALESCE({us drawn_at}, 0), drawn_ahead, 0 FROM {prefix}queue_tenant WHERE queue_id = :queue AND tenant IN (:names)
		UNION ALL SELECT p.tenant, 0, 0, COUNT(*) FROM {prefix}queue_permit AS p JOIN {prefix}node AS n ON n.name = p.lock_by
			WHERE p.queue_id = :queue AND p.kind = '' AND p.tenant IN (:names) AND p.state = 'LEASED' AND n.state = 'live' GROUP BY p.tenant`)
)

const nextColumns = `id, priority, kind, COALESCE(job_key, '') AS of_key, COALESCE(tenant, '') AS of_tenant`
