package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Queries of people and programs.
var (
	// These lists have no payloads: see content.go.
	ListReady = reading(listColumns, sqlrun.SQL("queue.list-ready", selectReady(listColumns)))

	ListDelayed = list("queue.list-delayed", `, attempt, crashes, {us run_at}, error, NULL, percent, message`, `job_delayed
		WHERE queue_id = :queue AND divided = :divided AND id > :after ORDER BY id LIMIT :limit`)

	ListRunning = list("queue.list-running", `, attempt, crashes, COALESCE({us started_at}, 0), error, NULL, percent, message, lock_by`, `job_running
		WHERE queue_id = :queue AND divided = :divided AND id > :after ORDER BY id LIMIT :limit`)

	ListDead = list("queue.list-dead", `, attempt, crashes, {us died_at}, error, NULL, percent, message, divided, detail`, `job_dead
		WHERE queue_id = :queue AND id > :after ORDER BY id, divided LIMIT :limit`)

	// CountReady and the next ones count up to a limit: nobody waits for millions. They also
	// return since when the first job has been ready, how many have an id of the last minutes,
	// and how many are delayed jobs that are due.
	CountReady   = countIn("count-ready", "job", "id", `COALESCE(MIN(id), 0), 0, COUNT(CASE WHEN id >= :recent THEN 1 END), 0`)
	CountRunning = countIn("count-running", "job_running", "id", `0, 0, COUNT(CASE WHEN id >= :recent THEN 1 END), 0`)
	CountDead    = countIn("count-dead", "job_dead", "id", `0, 0, COUNT(CASE WHEN id >= :recent THEN 1 END), 0`)
	CountDelayed = countIn("count-delayed", "job_delayed", "id, run_at", `0, COALESCE(MIN(CASE WHEN run_at <= {now} THEN {us run_at} END), 0),
			COUNT(CASE WHEN id >= :recent THEN 1 END), COUNT(CASE WHEN run_at <= {now} THEN 1 END)`)

	// RemoveRunning deletes jobs that are checked out, by whichever worker: the worker notices
	// that they are gone.
	RemoveRunning = sqlrun.SQL("queue.remove-running", `DELETE FROM {prefix}job_running WHERE `+these+` {only id :n}`)

	// HastenDelayed makes delayed jobs due. The number of rows changed is the number of jobs
	// that were not due.
	HastenDelayed = sqlrun.PerDialect("queue.hasten", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}job_delayed", []string{"queue_id", "divided", "id"}, `run_at = {now}`, `{prefix}job_delayed.run_at > {now}`,
			`SELECT queue AS queue_id, block AS divided, job AS id FROM {records places: queue int, block int, job int}`)
	})

	// ReviveDead copies dead jobs, whose rows are locked, into the table of delayed jobs, due
	// at once. Their ids are old: workers would not look for them among the ready ones.
	ReviveDead = sqlrun.SQL("queue.revive", `
		INSERT INTO {prefix}job_delayed (queue_id, divided, run_at, priority, id, `+BodyColumns+`, `+progressColumns+`, errors)
		SELECT j.queue_id, record.target, {now}, j.priority, j.id, `+bodyOfJ+`, `+progressOfJ+`, j.errors
		FROM {records rows: queue int, block int, job int, target int}
		{join_by_key {prefix}job_dead AS j} ON j.queue_id = record.queue AND j.divided = record.block AND j.id = record.job`)

	// PendingBlock finds a block with a job that could begin: it is ready or due, and no other
	// job of its key runs or waits for its retry. It locks nothing: a job that comes or goes
	// meanwhile counts as if that happened a moment later.
	PendingBlock = sqlrun.SQL("queue.pending", pendingWith(""))

	// PendingKinds is PendingBlock for some kinds. A job behind another of its key waits for
	// that, of whichever kind.
	PendingKinds = sqlrun.SQL("queue.pending-kinds", pendingWith(` AND j.kind IN (:kinds) AND (j.job_key IS NULL
			OR NOT EXISTS (SELECT 1 FROM {prefix}job AS u WHERE u.queue_id = j.queue_id AND u.divided = j.divided AND u.job_key = j.job_key AND u.id < j.id))`))

	// AdvanceDelayed advances the time for delayed jobs: see package queuetest. A worker finds
	// a job that it has read by its id, even if the job's time has changed meanwhile.
	AdvanceDelayed = sqlrun.PerDialect("queue.advance", func(d *sqlrun.Dialect) string {
		return `UPDATE {prefix}job_delayed SET run_at = ` + d.Add("run_at", ":by") + ` WHERE ` + notSentinel
	})

	// OutdatedDead finds dead jobs that were kept long enough.
	OutdatedDead = sqlrun.SQL("queue.outdated", `
		SELECT queue_id, divided, id, '' FROM {prefix}job_dead WHERE purge_at <= {now} ORDER BY purge_at LIMIT :limit {skip_locked}`)

	// SurplusOf finds the newest of a queue's dead jobs that exceed the limit, and SurplusDead
	// all up to that one. The age of jobs is that of their ids, which is the order of the key.
	SurplusOf = sqlrun.SQL("queue.surplus", `
		SELECT id FROM {prefix}job_dead WHERE queue_id = :queue ORDER BY id DESC LIMIT 1 OFFSET :keep`)

	SurplusDead = sqlrun.SQL("queue.surplus-dead", `
		SELECT queue_id, divided, id, '' FROM {prefix}job_dead WHERE queue_id = :queue AND id <= :most ORDER BY id LIMIT :limit {skip_locked}`)

	PurgeDead = sqlrun.SQL("queue.purge-dead", `DELETE FROM {prefix}job_dead WHERE `+these+` {only id :n}`)
)

// listColumns are the columns of ready jobs in lists, and the first ones of the other tables.
var listColumns = `id, priority, ` + bareBody

func list(name, more, from string) *sqlrun.Stmt {
	return reading(listColumns+more, sqlrun.SQL(name, `
		SELECT `+listColumns+more+` FROM {prefix}`+from))
}

func pendingWith(more string) string {
	return `
		SELECT b.divided FROM {prefix}queue_block AS b
		WHERE b.queue_id = :queue AND (` + firstFree("job", more) + ` OR ` + firstFree("job_delayed", " AND j.run_at <= {now}"+more) + `)
		ORDER BY b.divided LIMIT 1`
}

// PendingOf returns the query for jobs that could begin: in a queue that is FIFO or not, of
// some kinds or any.
func PendingOf(fifo, kinds bool) *sqlrun.Stmt {
	switch {
	case fifo && kinds:
		return PendingFIFOKinds
	case fifo:
		return PendingFIFO
	case kinds:
		return PendingKinds
	}
	return PendingBlock
}

// firstFree returns a condition: a block has a job in a table that waits for no other of its
// key.
func firstFree(table, due string) string {
	return `(SELECT j.id FROM {prefix}` + table + ` AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.` + notSentinel +
		due + ` AND (j.job_key IS NULL
			OR NOT EXISTS (SELECT 1 FROM {prefix}job_delayed AS h WHERE h.queue_id = j.queue_id AND h.divided = j.divided AND h.hold_key = j.job_key AND h.run_at > {now})
			AND NOT EXISTS (SELECT 1 FROM {prefix}job_running AS r WHERE r.queue_id = j.queue_id AND r.divided = j.divided AND r.job_key = j.job_key)) LIMIT 1) IS NOT NULL`
}

func countIn(name, table, columns, more string) *sqlrun.Stmt {
	return sqlrun.SQL("queue."+name, `
		SELECT COUNT(*), `+more+` FROM (SELECT `+columns+` FROM {prefix}`+table+` WHERE queue_id = :queue AND `+notSentinel+` LIMIT :limit) AS counted`)
}
