package store

import (
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Ready jobs.
var (
	InsertJobs = sqlrun.PerDialect("queue.insert", func(d *sqlrun.Dialect) string { return insertInto(d, "job", allFields) })

	// InsertPlain inserts plain jobs, as most are: they use no rare column.
	InsertPlain = sqlrun.PerDialect("queue.insert-plain", func(d *sqlrun.Dialect) string { return insertInto(d, "job", plainFields) })

	// InsertJobsTold and InsertPlainTold are for a caller's transaction: they notify workers.
	InsertJobsTold = sqlrun.PerDialect("queue.insert-told",
		func(d *sqlrun.Dialect) string { return insertTelling(d, allFields) })
	InsertPlainTold = sqlrun.PerDialect("queue.insert-plain-told", func(d *sqlrun.Dialect) string { return insertTelling(d, plainFields) })

	// FetchReady reads a block's jobs, the most urgent first, each priority from its cursor on.
	// It locks nothing: the block is leased.
	FetchReady = reading(readyColumns, sqlrun.PerDialect("queue.fetch", fetchPriorities))

	// FetchAgain reads jobs of a block that were put back, up to a limit for each priority.
	// Like FetchReady, it locks nothing.
	FetchAgain = reading(readyColumns, sqlrun.SQL("queue.fetch-again", selectPriorities()))

	// AckReady deletes jobs that are done; the next ones do so in the other tables. BETWEEN
	// makes it a range of the key even in a plan made when the table was empty. The list names
	// the jobs: jobs committed late may lie in between.
	AckReady   = sqlrun.SQL("queue.ack", `DELETE FROM {prefix}job WHERE priority = :priority AND `+these+` {only id :n}`)
	AckDelayed = sqlrun.SQL("queue.ack-delayed", `DELETE FROM {prefix}job_delayed WHERE `+these+` {only id :n}`)
	AckRunning = sqlrun.SQL("queue.ack-running", `DELETE FROM {prefix}job_running WHERE `+these+` AND lock_by = :node {only id :n}`)

	// PresentReady and the next ones return which of some jobs exist.
	PresentReady   = sqlrun.SQL("queue.present", `SELECT id FROM {prefix}job WHERE priority = :priority AND `+these)
	PresentDelayed = sqlrun.SQL("queue.present-delayed", `SELECT id FROM {prefix}job_delayed WHERE `+these)
	PresentDead    = sqlrun.SQL("queue.present-dead", `SELECT id FROM {prefix}job_dead WHERE `+these)

	// LoadReady and the next ones read the payloads that a worker has left in the table. Nobody
	// else changes a payload, and a missing row means that the job was cancelled.
	LoadReady   = load("queue.load", `id, payload, payload_bin, NULL, NULL, NULL`, `job WHERE priority = :priority AND `+these)
	LoadDelayed = load("queue.load-delayed", loadColumns, `job_delayed WHERE `+these)
	LoadRunning = load("queue.load-running", loadColumns, `job_running WHERE `+these+` AND lock_by = :node`)

	// LockJobs and the next ones lock the existing rows of some jobs, and no others: a producer
	// may have locked those.
	LockJobs    = sqlrun.SQL("queue.lock-jobs", lockIn("job", " AND j.priority = record.priority"))
	LockDelayed = sqlrun.SQL("queue.lock-delayed", lockIn("job_delayed", ""))
	LockRunning = sqlrun.SQL("queue.lock-running", lockIn("job_running", " AND j.lock_by = :node"))
	LockOut     = sqlrun.SQL("queue.lock-checked-out", lockIn("job_running", ""))
	LockDead    = sqlrun.SQL("queue.lock-dead", lockIn("job_dead", ""))
)

const loadColumns = `id, payload, payload_bin, ` + progressColumns

func load(name, columns, from string) *sqlrun.Stmt {
	return reading(columns, sqlrun.SQL(name, `SELECT `+columns+` FROM {prefix}`+from))
}

// readyColumns are the columns of ready jobs.
var readyColumns = `id, priority, ` + BodyColumns

// fetchPriorities reads each priority from its cursor on, the most urgent first.
func fetchPriorities(d *sqlrun.Dialect) string {
	if !d.Ranges {
		return selectPriorities() + "\nLIMIT :limit"
	}
	var ranges []string
	for _, p := range Priorities {
		ranges = append(ranges, "priority = "+p+" AND id > :after"+p)
	}
	return `SELECT ` + readyColumns + ` FROM {prefix}job
		WHERE queue_id = :queue AND divided = :divided AND (` + strings.Join(ranges, " OR ") + `) ORDER BY priority, id LIMIT :limit`
}

// Priorities are the priorities of jobs, as suffixes of argument names.
var Priorities = []string{"1", "2", "3", "4"}

// selectPriorities has a SELECT for each priority.
func selectPriorities() string { return selectReady(readyColumns) }

func selectReady(columns string) string {
	var parts []string
	for _, p := range Priorities {
		parts = append(parts, `SELECT * FROM (SELECT `+columns+` FROM {prefix}job
			WHERE queue_id = :queue AND divided = :divided AND priority = `+p+` AND id > :after`+p+` ORDER BY id LIMIT :limit) AS p`+p)
	}
	return strings.Join(parts, "\nUNION ALL ")
}
