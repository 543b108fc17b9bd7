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

	// SumCounts lists the next sums, by the names of queues and kinds.
	SumCounts = sqlrun.SQL("queue.sum-counts", `
		SELECT q.name, c.kind, SUM(c.done), SUM(c.failed), SUM(c.dead), SUM(c.wait_us), SUM(c.run_us),
			COALESCE({us MAX(CASE WHEN c.dead > 0 THEN c.minute END)}, 0)
		FROM {prefix}job_count AS c JOIN {prefix}queue AS q ON q.queue_id = c.queue_id
		WHERE c.minute >= {now + :since} AND (q.name > :name OR q.name = :name AND c.kind > :after)
		GROUP BY q.name, c.kind ORDER BY q.name, c.kind LIMIT :limit`)

	// MinuteCounts lists the sums of the next minutes that have so many rows, and how many they have. These minutes are complete. The name
	// of a queue that is gone is NULL.
	MinuteCounts = sqlrun.SQL("queue.minute-counts", `
		SELECT {us c.minute}, q.name, SUM(c.done), SUM(c.failed), SUM(c.dead), SUM(c.wait_us), SUM(c.run_us), SUM(c.late), COUNT(*)
		FROM {prefix}job_count AS c LEFT JOIN {prefix}queue AS q ON q.queue_id = c.queue_id
		WHERE c.minute >= {now + :since} AND c.minute > {time :after} AND c.minute <= COALESCE((
			SELECT m.minute FROM {prefix}job_count AS m WHERE m.minute >= {now + :since} AND m.minute > {time :after}
			ORDER BY m.minute, m.queue_id, m.kind LIMIT 1 OFFSET :page), {now + :ahead})
		GROUP BY c.minute, q.name ORDER BY c.minute, q.name`)

	PurgeCounts = sqlrun.DeleteFree("queue.purge-counts", "{prefix}job_count", []string{"minute", "queue_id", "kind"}, `minute < {now + :since}`)
)
