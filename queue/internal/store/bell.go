package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Tell commits without waiting for the disk: inserts would have to wait for that, too.
var Tell = sqlrun.PerDialect("queue.tell", func(d *sqlrun.Dialect) string {
	if d.Notify == nil {
		return "SELECT 1"
	}
	return "SELECT set_config('synchronous_commit', 'off', true) || CAST(" +
		d.Notify("CAST(:channel AS TEXT)", "CAST(:payload AS TEXT)") + " AS TEXT)"
})

// TellWorkers is Tell for queues that have a worker, and returns these. Nobody is told of a queue whose workers have all
// ended, even if that was not noticed: one that lives nevertheless takes another name, and looks.
var TellWorkers = sqlrun.PerDialect("queue.tell-workers", func(d *sqlrun.Dialect) string {
	if d.Notify == nil {
		return "SELECT NULL, 0"
	}
	tell := d.Notify("CAST(:channel AS TEXT)", "record.payload")
	return `SELECT set_config('synchronous_commit', 'off', true) || CAST(` + tell + ` AS TEXT), record.queue
		FROM {records rows: queue int, payload text}
		WHERE EXISTS (SELECT 1 FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
			WHERE w.queue_id = record.queue AND n.state = 'live' AND n.expire_at > {now})`
})
