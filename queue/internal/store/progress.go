package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// SaveProgress stores a snapshot if the job still belongs to this worker, and the attempt is
// the same. It compares the worker's name, which is unique to its lease: a worker that has lost
// the job changes nothing, however late its statement arrives. A takeover of the job either
// waits for it, or was first.
var SaveProgress = sqlrun.SQL("queue.save-progress", `
	UPDATE {prefix}job_running SET snapshot = :snapshot, percent = :percent, message = :message
	WHERE queue_id = :queue AND divided = :divided AND id = :id AND lock_by = :node AND state <> 'handed' AND attempt = :attempt`)
