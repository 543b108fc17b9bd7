package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Delayed jobs.
var (
	InsertDelayed = sqlrun.PerDialect("queue.insert-delayed", func(d *sqlrun.Dialect) string {
		return insertInto(d, "job_delayed", allFields+", run_at={time run_us} int")
	})

	// FetchDelayed reads jobs whose time has come. The lower bound spares it the
	// entries of those that were done long ago.
	FetchDelayed = reading(delayedColumns, sqlrun.SQL("queue.fetch-delayed", `
		SELECT `+delayedColumns+`
		FROM {prefix}job_delayed
		WHERE queue_id = :queue AND divided = :divided AND run_at >= {time :since} AND run_at <= {now}
		ORDER BY run_at, id LIMIT :limit`))

	// NextDelayed tells for some blocks when the next job is due. For its order see LookFor.
	NextDelayed = sqlrun.SQL("queue.next-delayed", `
		SELECT block, {us {now}},
			(SELECT {us run_at} FROM {prefix}job_delayed WHERE queue_id = {int :queue} AND divided = block AND run_at >= {time since} AND `+notSentinel+` ORDER BY queue_id, divided, run_at, id LIMIT 1)
		FROM {records rows: block int, since int}`)

	// HeldKeys lists the jobs of a block that wait for their retry, and their keys with
	// them.
	HeldKeys = sqlrun.SQL("queue.held", `
		SELECT id, hold_key FROM {prefix}job_delayed WHERE queue_id = :queue AND divided = :divided AND hold_key > ''`)
)

// delayedColumns are what a worker reads of delayed jobs.
var delayedColumns = `id, priority, ` + BodyColumns + `, attempt, crashes, {us run_at}, hold_key, ` + progressColumns
