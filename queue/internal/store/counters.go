package store

import (
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// LongestCount is how long the counters of a minute are kept.
const LongestCount = 7 * 24 * time.Hour

// Numbers of jobs ended, by minute.
var (
	// AddCounts adds to existing rows, and inserts the others. The rows are in key order, so
	// that two workers cannot deadlock. The counts are approximate: if the answer is lost, they
	// are added again.
	AddCounts = sqlrun.PerDialect("queue.add-counts", func(d *sqlrun.Dialect) string {
		return insertInto(d, "job_count", "minute={time since_us} int, queue_id=queue int, kind=name text, done=done int, failed=failed int, dead=dead int, wait_us=waited int, run_us=ran int, late=late int") +
			" " + d.AddDuplicate("{prefix}job_count", "minute, queue_id, kind", []string{"done", "failed", "dead", "wait_us", "run_us", "late"})
	})

	SumCounts = sqlrun.SQL("queue.sum-counts", `
		SELECT q.name, c.kind, SUM(c.done), SUM(c.failed), SUM(c.dead), SUM(c.wait_us), SUM(c.run_us)
		FROM {prefix}job_count AS c JOIN {prefix}queue AS q ON q.queue_id = c.queue_id
		WHERE c.minute >= {now + :since} GROUP BY q.name, c.kind ORDER BY q.name, c.kind`)

	MinuteCounts = sqlrun.SQL("queue.minute-counts", `
		SELECT {us c.minute}, q.name, SUM(c.done), SUM(c.failed), SUM(c.dead), SUM(c.wait_us), SUM(c.run_us), SUM(c.late)
		FROM {prefix}job_count AS c JOIN {prefix}queue AS q ON q.queue_id = c.queue_id
		WHERE c.minute >= {now + :since} GROUP BY c.minute, q.name ORDER BY c.minute, q.name`)

	PurgeCounts = sqlrun.DeleteFree("queue.purge-counts", "{prefix}job_count", []string{"minute", "queue_id", "kind"}, `minute < {now + :since}`)
)
