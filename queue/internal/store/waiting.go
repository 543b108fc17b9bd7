package store

import (
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

const (
	// WaitsAt is the value of node.bell_at while a worker waits. It is empty otherwise, or an
	// address where there are no notifications.
	WaitsAt = "notify"
)

// AnyWaits reports whether a worker of any queue waits, and whether this user may notify it: an
// administrator can revoke that right, and then a statement that would notify is refused.
var AnyWaits = sqlrun.PerDialect("queue.any-waits", func(d *sqlrun.Dialect) string {
	may := "0"
	if d.Notify != nil {
		may = "CASE WHEN has_function_privilege('pg_notify(text, text)', 'EXECUTE') THEN 1 ELSE 0 END"
	}
	return `SELECT COUNT(*), ` + may + ` FROM {prefix}node WHERE state = 'live' AND bell_at = '` + WaitsAt + `'`
})

// insertTelling is insertInto that also notifies workers that wait for the jobs. PostgreSQL
// sends duplicate notifications of a transaction once.
func insertTelling(d *sqlrun.Dialect, fields string) string {
	text := insertInto(d, "job", fields)
	if d.Notify == nil {
		return text
	}
	return strings.Replace(text, "{prefix}job (", "{prefix}job AS placed (", 1) + ` RETURNING (
		SELECT ` + d.Notify("CAST(:channel AS TEXT)", "CAST(placed.queue_id AS TEXT) || ':' || CAST(placed.divided AS TEXT)") + `
		FROM {prefix}queue_block AS b JOIN {prefix}node AS n ON n.name = b.lock_by
		WHERE b.queue_id = placed.queue_id AND b.divided = placed.divided AND n.state = 'live' AND n.bell_at = '` + WaitsAt + `' LIMIT 1)`
}
