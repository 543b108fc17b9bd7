package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Tell does not wait for the disk, which would keep inserts waiting for it.
var Tell = sqlrun.PerDialect("queue.tell", func(d *sqlrun.Dialect) string {
	if d.Notify == nil {
		return "SELECT 1"
	}
	return "SELECT set_config('synchronous_commit', 'off', true) || CAST(" +
		d.Notify("CAST(:channel AS TEXT)", "CAST(:payload AS TEXT)") + " AS TEXT)"
})
