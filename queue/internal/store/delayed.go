package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Delayed jobs.
var (
	InsertDelayed = sqlrun.PerDialect("queue.insert-delayed", func(d *sqlrun.Dialect) string {
		return insertInto(d, "job_delayed", allFields+", run_at={time run_us} int")
	})

	// FetchDelayed reads jobs whose time has come, behind one in the order in which they are
	// due. That spares it the entries of those that were done. It locks nothing: the block is
	// leased.
	FetchDelayed = reading(delayedColumns, sqlrun.PerDialect("queue.fetch-delayed", fetchDue))

	// NextDelayed tells for some blocks when the next job is due. For its order see LookFor.
	NextDelayed = sqlrun.SQL("queue.next-delayed", `
		SELECT queue, block, {us {now}},
			(SELECT {us run_at} FROM {prefix}job_delayed WHERE queue_id = queue AND divided = block AND run_at >= {time since} AND `+notSentinel+` ORDER BY queue_id, divided, run_at, id LIMIT 1)
		FROM {records rows: queue int, block int, since int}`)

	// HeldKeys lists the jobs of a block that wait for their retry, and their keys with
	// them.
	HeldKeys = sqlrun.SQL("queue.held", `
		SELECT id, hold_key FROM {prefix}job_delayed WHERE queue_id = :queue AND divided = :divided AND hold_key > ''`)
)

// fetchDue goes on in the index, however many jobs are due at one moment: as a range of rows, or as
// two ranges where these are read in order. There MariaDB would rather merge two indexes and sort
// all that it finds.
func fetchDue(d *sqlrun.Dialect) string {
	from, behind := `{prefix}job_delayed`, `(run_at, id) > ({time :since}, :after) AND run_at <= {now}`
	if d.Ranges {
		from += ` IGNORE INDEX (PRIMARY)`
		behind = `(run_at = {time :since} AND id > :after OR run_at > {time :since} AND run_at <= {now})`
	}
	return `SELECT ` + delayedColumns + ` FROM ` + from + `
		WHERE queue_id = :queue AND divided = :divided AND ` + behind + ` ORDER BY run_at, id LIMIT :limit`
}

// delayedColumns are what a worker reads of delayed jobs.
var delayedColumns = `id, priority, ` + BodyColumns + `, attempt, crashes, {us run_at}, hold_key, ` + progressColumns
