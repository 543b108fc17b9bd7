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
