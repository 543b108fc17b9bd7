package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Payloads, which lists of jobs leave out. Only lengths are read if longest is negative: on some engines a length is as dear as
// the payload, and would be read a second time.
var (
	ContentReady   = contentOf("ready", "job", `priority = :priority AND `+these)
	ContentDelayed = contentOf("delayed", "job_delayed", these)
	ContentRunning = contentOf("running", "job_running", these)
	ContentDead    = contentOf("dead", "job_dead", these)
	ContentDone    = contentOf("done", "job_done", these)
)

func contentOf(state, table, which string) *sqlrun.Stmt {
	return sqlrun.PerDialect("queue.content-"+state, func(d *sqlrun.Dialect) string {
		text, binary := d.JSONBytes("payload"), "OCTET_LENGTH(payload_bin)"
		return `SELECT id, COALESCE(` + text + `, ` + binary + `, 0),
			CASE WHEN {int :longest} >= 0 AND ` + text + ` <= {int :longest} THEN payload END,
			CASE WHEN {int :longest} >= 0 AND ` + binary + ` <= {int :longest} THEN payload_bin END,
			CASE WHEN payload_bin IS NULL THEN 0 ELSE 1 END
		FROM {prefix}` + table + ` WHERE ` + which
	})
}
