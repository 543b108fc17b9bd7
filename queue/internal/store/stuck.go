package store

import "github.com/dbcron/dbcron/internal/sqlrun"

var (
	// NoteStuck records why the attempt of a job has failed whose handler has not returned, under the
	// conditions of SaveProgress. Whoever adopts the row gives it another state.
	NoteStuck = sqlrun.UpdateFree("queue.note-stuck", "{prefix}job_running", byJob, `state = 'stuck', error = :error`,
		`queue_id = :queue AND divided = :divided AND id = :id AND lock_by = :node AND state <> 'handed' AND attempt = :attempt`)

	// StuckJobs counts such jobs by queue.
	StuckJobs = sqlrun.SQL("queue.stuck-jobs", `
	SELECT q.name, COUNT(*) FROM {prefix}job_running AS r JOIN {prefix}queue AS q ON q.queue_id = r.queue_id
	WHERE r.state = 'stuck' GROUP BY q.name`)

	// StarvedWorkers counts by queue the workers whose handlers wait for connections.
	StarvedWorkers = sqlrun.SQL("queue.starved-workers", `
	SELECT q.name, COUNT(*) FROM {prefix}queue_worker AS w JOIN {prefix}queue AS q ON q.queue_id = w.queue_id
	JOIN {prefix}node AS n ON n.name = w.node
	WHERE w.busy = 3 AND n.state = 'live' AND n.expire_at > {now} GROUP BY q.name`)
)
