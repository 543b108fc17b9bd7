package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Addresses at which processes are told of new jobs.
var (
	// PutBell stores the address of a process's doorbell in the process's own row.
	PutBell = sqlrun.UpdateFree("queue.put-bell", "{prefix}node", byName, `bell_at = :at, bell_key = :key`, `name = :node AND state = 'live'`)

	// ListBells lists the doorbells of the workers of each queue.
	ListBells = sqlrun.SQL("queue.list-bells", `
		SELECT w.queue_id, n.bell_at, n.bell_key FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
		WHERE n.state = 'live' AND n.expire_at > {now} AND n.bell_at <> '' ORDER BY w.queue_id, w.node`)
)
