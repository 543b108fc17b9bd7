package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// SaveProgress stores a snapshot if the job is still this worker's, by the worker's name,
// which no other lease has, and it is the same attempt: who has lost the job changes
// nothing, however late its statement comes. Taking the job over waits for it, or was
// before it.
var SaveProgress = sqlrun.SQL("queue.save-progress", `
	UPDATE {prefix}job_running SET snapshot = :snapshot, percent = :percent, message = :message
	WHERE queue_id = :queue AND divided = :divided AND id = :id AND lock_by = :node AND state <> 'handed' AND attempt = :attempt`)
