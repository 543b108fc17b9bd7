package store

import (
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Unreadable finds jobs that no worker can ever read, since somebody has written their rows by hand: in a queue or a block that is not
// there, or ready with a priority that is none. It returns the first job of each such place, and one place of each gap. Blocks
// between those that are there are no such places: workers make these anew. The priority of a delayed job keeps nobody from reading it.
var Unreadable = sqlrun.SQL("queue.unreadable", strings.Join([]string{
	oddPriority("<", "1", "DESC"), oddPriority(">", "4", "ASC"),
	oddBlock("ready", "job", "<", "MIN"), oddBlock("ready", "job", ">", "MAX"),
	oddBlock("delayed", "job_delayed", "<", "MIN"), oddBlock("delayed", "job_delayed", ">", "MAX"),
	oddQueue("ready", "job"), oddQueue("delayed", "job_delayed"),
}, "\nUNION ALL ")+"\nLIMIT :limit")

// ListOdd lists the ready jobs of such a priority.
var ListOdd = reading(listColumns, sqlrun.SQL("queue.list-odd", `
	SELECT `+listColumns+` FROM {prefix}job WHERE queue_id = :queue AND divided = :divided AND priority = :priority AND id > :after ORDER BY id LIMIT :limit`))

// oddPriority is the nearest priority of each block below or above those of jobs. It is found by the key.
func oddPriority(beyond, limit, order string) string {
	return `SELECT 'ready', p.queue_id, (SELECT q.name FROM {prefix}queue AS q WHERE q.queue_id = p.queue_id), p.divided, p.priority,
		(SELECT j.id FROM {prefix}job AS j WHERE j.queue_id = p.queue_id AND j.divided = p.divided AND j.priority = p.priority AND j.` + notSentinel + ` ORDER BY j.id LIMIT 1)
	FROM (SELECT b.queue_id, b.divided, (SELECT j.priority FROM {prefix}job AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided
			AND j.priority ` + beyond + ` ` + limit + ` AND j.` + notSentinel + ` ORDER BY j.priority ` + order + ` LIMIT 1) AS priority
		FROM {prefix}queue_block AS b WHERE b.queue_id >= :first AND b.queue_id <= :last) AS p WHERE p.priority IS NOT NULL`
}

// oddBlock is the nearest block with jobs of each queue before or behind its own. A queue that was written by hand has none yet.
func oddBlock(state, table, beyond, end string) string {
	order := map[string]string{"<": "DESC", ">": "ASC"}[beyond]
	return `SELECT '` + state + `', p.queue_id, p.name, p.divided, ` + firstOf(table, "priority") + `, ` + firstOf(table, "id") + `
	FROM (SELECT q.queue_id, q.name, (SELECT j.divided FROM {prefix}` + table + ` AS j WHERE j.queue_id = q.queue_id
			AND j.divided ` + beyond + ` (SELECT ` + end + `(b.divided) FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id)
			AND j.` + notSentinel + ` ORDER BY j.divided ` + order + ` LIMIT 1) AS divided
		FROM {prefix}queue AS q WHERE q.queue_id >= :first AND q.queue_id <= :last) AS p WHERE p.divided IS NOT NULL`
}

// oddQueue is the first number without a queue behind that of each queue, and before all.
func oddQueue(state, table string) string {
	next := func(after string) string {
		return `(SELECT j.queue_id FROM {prefix}` + table + ` AS j WHERE j.queue_id > ` + after + ` AND j.` + notSentinel +
			` ORDER BY j.queue_id LIMIT 1) AS queue_id`
	}
	return `SELECT '` + state + `', p.queue_id, '', p.divided, ` + firstOf(table, "priority") + `, ` + firstOf(table, "id") + `
	FROM (SELECT n.queue_id, (SELECT j.divided FROM {prefix}` + table + ` AS j WHERE j.queue_id = n.queue_id AND j.` + notSentinel + ` ORDER BY j.divided LIMIT 1) AS divided
		FROM (SELECT ` + next("q.queue_id") + ` FROM {prefix}queue AS q WHERE q.queue_id >= :first AND q.queue_id <= :last
			UNION SELECT ` + next("(:first - 1)") + `) AS n
		WHERE n.queue_id >= :first AND n.queue_id <= :last AND NOT EXISTS (SELECT 1 FROM {prefix}queue AS r WHERE r.queue_id = n.queue_id)) AS p
	WHERE p.divided IS NOT NULL`
}

// firstOf is a column of the first job of a place.
func firstOf(table, column string) string {
	order := map[string]string{"job": "j.priority, j.id", "job_delayed": "j.id"}[table]
	return `(SELECT j.` + column + ` FROM {prefix}` + table + ` AS j WHERE j.queue_id = p.queue_id AND j.divided = p.divided AND j.` +
		notSentinel + ` ORDER BY ` + order + ` LIMIT 1)`
}
