package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Outcomes that the database refuses to record.
var (
	// AgainRefused is run by the worker that has the job, so by one at a time. If it lost the
	// job a moment ago, another worker may write the same row: the last write counts.
	AgainRefused = sqlrun.SQL("queue.refused-again", `
		UPDATE {prefix}job_refused SET what = :what, error = :error, worker = :node, tries = tries + :tries, last_at = {now}
		WHERE queue_id = :queue AND divided = :divided AND id = :id`)

	AddRefused = sqlrun.SQL("queue.refused", `
		INSERT INTO {prefix}job_refused (queue_id, divided, id, kind, what, error, worker, tries, first_at, last_at)
		VALUES (:queue, :divided, :id, :kind, :what, :error, :node, :tries, {now}, {now}) {ignore_duplicate id}`)

	// EndRefused does not touch the row of a worker that has taken over the job.
	EndRefused = sqlrun.SQL("queue.refused-ends", `
		DELETE FROM {prefix}job_refused WHERE queue_id = :queue AND divided = :divided AND id = :id AND worker = :node`)

	SweepRefused = sqlrun.DeleteFree("queue.sweep-refused", "{prefix}job_refused", byJob, `last_at < {now + :since}`)

	ListRefused = sqlrun.SQL("queue.list-refused", `
		SELECT q.name, `+refusedColumns+` FROM {prefix}job_refused AS r JOIN {prefix}queue AS q ON q.queue_id = r.queue_id
		WHERE q.name = :name ORDER BY r.divided, r.id LIMIT :limit`)

	ListAllRefused = sqlrun.SQL("queue.list-all-refused", `
		SELECT q.name, `+refusedColumns+` FROM {prefix}job_refused AS r JOIN {prefix}queue AS q ON q.queue_id = r.queue_id
		ORDER BY r.queue_id, r.divided, r.id LIMIT :limit`)

	GetRefused = sqlrun.SQL("queue.get-refused", `
		SELECT q.name, `+refusedColumns+` FROM {prefix}job_refused AS r JOIN {prefix}queue AS q ON q.queue_id = r.queue_id
		WHERE q.name = :name AND r.divided = :divided AND r.id = :id`)
)

const refusedColumns = `r.divided, r.id, r.kind, r.what, r.error, r.worker, r.tries, {us r.first_at}, {us r.last_at}`
