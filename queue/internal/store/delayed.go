package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Delayed jobs.
var (
	InsertDelayed = sqlrun.PerDialect("queue.insert-delayed", func(d *sqlrun.Dialect) string {
		return insertInto(d, "job_delayed", allFields+", run_at={time run_us} int")
	})

	// FetchDelayed reads jobs that are due, behind a position in the order in which they are
	// due. So it skips the index entries of jobs that are done. It locks nothing: the block is
	// leased.
	FetchDelayed = reading(delayedColumns, sqlrun.PerDialect("queue.fetch-delayed", fetchDue))

	// NextDelayed returns, for some blocks, when the next job is due. LookFor explains its
	// ORDER BY.
	NextDelayed = sqlrun.SQL("queue.next-delayed", `
		SELECT queue, block, {us {now}},
			(SELECT {us run_at} FROM {prefix}job_delayed WHERE queue_id = queue AND divided = block AND run_at >= {time since} AND `+notSentinel+` ORDER BY queue_id, divided, run_at, id LIMIT 1)
		FROM {records rows: queue int, block int, since int}`)

	// HeldKeys lists the next jobs of a block that wait for their retry, and so block their keys, in the order of those.
	HeldKeys = sqlrun.SQL("queue.held", `
		SELECT id, hold_key FROM {prefix}job_delayed WHERE queue_id = :queue AND divided = :divided AND hold_key > :after
		ORDER BY queue_id, divided, hold_key LIMIT :limit`)

	// HoldingBlocks lists which of some blocks have such jobs. For its order see LookFor.
	HoldingBlocks = sqlrun.SQL("queue.holding", `
		SELECT queue, block FROM {records rows: queue int, block int}
		WHERE (SELECT id FROM {prefix}job_delayed WHERE queue_id = queue AND divided = block AND hold_key > '' ORDER BY queue_id, divided, hold_key LIMIT 1) IS NOT NULL`)
)

// fetchDue continues in the index, even if many jobs are due at the same moment: as a range of
// rows, or as two ranges on engines that read these in order. MariaDB would merge two indexes
// instead, and sort everything it finds.
func fetchDue(d *sqlrun.Dialect) string {
	from, behind := `{prefix}job_delayed`, `(run_at, id) > ({time :since}, :after) AND run_at <= {now}`
	if d.Ranges {
		from += ` IGNORE INDEX (PRIMARY)`
		behind = `(run_at = {time :since} AND id > :after OR run_at > {time :since} AND run_at <= {now})`
	}
	return `SELECT ` + delayedColumns + ` FROM ` + from + `
		WHERE queue_id = :queue AND divided = :divided AND ` + behind + ` ORDER BY run_at, id LIMIT :limit`
}

// delayedColumns are the columns of delayed jobs that workers read.
var delayedColumns = `id, priority, ` + BodyColumns + `, attempt, crashes, {us run_at}, hold_key, stops, ` + progressColumns
