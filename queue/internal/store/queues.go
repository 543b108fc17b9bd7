package store

import (
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Queues and their settings.
var (
	GetQueue = sqlrun.SQL("queue.get", withGenerations("SELECT * FROM {prefix}queue WHERE name = :name"))

	ListQueues = sqlrun.SQL("queue.list", withGenerations("SELECT * FROM {prefix}queue WHERE name > :after ORDER BY name LIMIT :limit"))

	// GetQueues reads several queues.
	GetQueues = sqlrun.SQL("queue.get-some", withGenerations("SELECT * FROM {prefix}queue WHERE {in queue_id :queues}"))

	// GetNamed reads several queues by their names.
	GetNamed = sqlrun.SQL("queue.get-named", withGenerations("SELECT * FROM {prefix}queue WHERE name IN (:names)"))

	// GetQueueNow also sees a queue that others have created since the transaction's snapshot.
	GetQueueNow = sqlrun.PerDialect("queue.get-now", func(d *sqlrun.Dialect) string {
		return generationsOf("SELECT * FROM {prefix}queue WHERE name = :name "+d.Current,
			`(SELECT o.* FROM {prefix}queue_block AS o JOIN {prefix}queue AS p ON p.queue_id = o.queue_id WHERE p.name = :name `+d.Current+`)`)
	})

	// LockQueue serializes callers that change a queue, its blocks or what belongs to it.
	LockQueue = sqlrun.SQL("queue.lock", `
		SELECT queue_id FROM {prefix}queue WHERE name = :name {locked}`)

	// LockQueues locks several queues and counts their blocks, in the order of their names, so that two transactions that
	// create the same queues do not deadlock.
	LockQueues = sqlrun.SQL("queue.lock-some", `
		SELECT queue_id, name, (SELECT COUNT(*) FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id) FROM {prefix}queue AS q
		WHERE q.name IN (:names) ORDER BY q.name {locked}`)

	CreateQueues = sqlrun.SQL("queue.create", `
		INSERT INTO {prefix}queue (name) VALUES {values rows: (:name)} {ignore_duplicate name}`)

	// CreateNumbered is CreateQueues with numbers that were drawn.
	CreateNumbered = sqlrun.SQL("queue.create-numbered", `
		INSERT INTO {prefix}queue (queue_id, name) VALUES {values rows: (:queue, :name)} {ignore_duplicate name}`)

	// CreateBlocks runs with the queue locked. It also copes with blocks that exist but are
	// newer than the transaction's snapshot.
	CreateBlocks = sqlrun.SQL("queue.create-blocks", `
		INSERT INTO {prefix}queue_block (queue_id, divided, generation, fifo) VALUES {values rows: (:queue, :divided, :generation, :fifo)} {ignore_duplicate divided}`)

	SetOrdered = sqlrun.SQL("queue.set-ordered", `
		UPDATE {prefix}queue SET ordered = 'yes', update_time = {now} WHERE queue_id = :queue AND ordered <> 'yes'`)

	SetQueue = sqlrun.SQL("queue.set", `
		UPDATE {prefix}queue SET state = :state, reason = :reason, `+setting.Assignments(stored)+`, update_time = {now}
		WHERE queue_id = :queue`)

	// QueueUses returns what prevents a queue from being deleted. Routes to it are set with the
	// queue locked, as it is here. Jobs may come until all producers know.
	QueueUses = sqlrun.SQL("queue.uses", `
		SELECT CASE WHEN EXISTS (SELECT 1 FROM {prefix}job WHERE queue_id = :queue AND `+notSentinel+`) THEN 'ready jobs'
			WHEN EXISTS (SELECT 1 FROM {prefix}job_delayed WHERE queue_id = :queue AND `+notSentinel+`) THEN 'delayed jobs'
			WHEN EXISTS (SELECT 1 FROM {prefix}job_running WHERE queue_id = :queue) THEN 'running jobs'
			WHEN EXISTS (SELECT 1 FROM {prefix}job_dead WHERE queue_id = :queue) THEN 'dead jobs'
			WHEN EXISTS (SELECT 1 FROM {prefix}route WHERE queue = :name) THEN 'a route that leads to it' ELSE '' END`)

	// MarkDeleted runs with the queue locked.
	MarkDeleted = sqlrun.SQL("queue.mark-deleted", `
		UPDATE {prefix}queue SET state = 'deleted', reason = '', update_time = {now} WHERE queue_id = :queue`)
)

// queueColumns are what scanQueue reads of the table of queues.
var queueColumns = `q.queue_id, q.name, q.state, q.reason, q.ordered, ` + setting.Expressions(stored, "q.")

// withGenerations selects a row for each generation of blocks of some queues, and a row without
// blocks for a queue that was written by hand and has none yet.
func withGenerations(queues string) string { return generationsOf(queues, "{prefix}queue_block") }

func generationsOf(queues, blocks string) string {
	return `
		SELECT ` + queueColumns + `, COALESCE(b.generation, 0), COALESCE(MIN(b.divided), 0), COUNT(b.divided), COALESCE(MIN({us b.insert_time}), 0), MAX(CASE WHEN b.fifo = 'yes' THEN 1 ELSE 0 END)
		FROM (` + queues + `) AS q LEFT JOIN ` + blocks + ` AS b ON b.queue_id = q.queue_id
		GROUP BY ` + queueColumns + `, b.generation ORDER BY q.name, b.generation`
}
