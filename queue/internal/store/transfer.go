package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Moves to other queues.
var (
	// StandReady and the next ones list what is moved or stays, without payloads.
	StandReady   = sqlrun.SQL("queue.stand-ready", selectReady(standing+`, 0 AS due, 0 AS holds`))
	StandDelayed = sqlrun.SQL("queue.stand-delayed", `
		SELECT `+standing+`, {us run_at}, CASE WHEN hold_key IS NULL THEN 0 ELSE 1 END FROM {prefix}job_delayed
		WHERE queue_id = :queue AND divided = :divided AND id > :after ORDER BY id LIMIT :limit`)
	StandRunning = sqlrun.SQL("queue.stand-running", `
		SELECT `+standing+`, 0 AS due, 0 AS holds FROM {prefix}job_running
		WHERE queue_id = :queue AND divided = :divided AND id > :after ORDER BY id LIMIT :limit`)

	// PassReady copies locked jobs into another queue. DivideAnew does so with delayed ones.
	PassReady = sqlrun.SQL("queue.pass-ready", `
		INSERT INTO {prefix}job (queue_id, divided, priority, id, `+BodyColumns+`)
		SELECT {int :to}, record.target, j.priority, j.id, `+bodyOfJ+`
		FROM {records rows: queue int, block int, priority int, job int, target int}
		{join_by_key {prefix}job AS j} ON j.queue_id = record.queue AND j.divided = record.block AND j.priority = record.priority AND j.id = record.job`)

	// KeysUntil returns until when the unique keys that the jobs have are in use at least, and up to when the jobs
	// may be replaced. It locks nothing:
	// the jobs are locked, and so are their keys. PassKeys frees locked keys at once, whatever their state: the jobs
	// have them in the other queue, or nobody any more.
	KeysUntil = sqlrun.SQL("queue.keys-until", `
		SELECT job, COALESCE({us free_at}, 0), COALESCE({us wait_until}, 0) FROM {prefix}job_unique WHERE `+theirKeys)
	PassKeys = sqlrun.SQL("queue.pass-keys", `
		DELETE FROM {prefix}job_unique WHERE `+theirKeys+` {only unique_key :n}`)
)

// standing lists what a move has to know about a job. For a delayed job, its time and whether
// it holds its key follow.
const standing = `id, priority, kind, job_key, unique_key, unique_until, group_id`
