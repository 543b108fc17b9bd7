package postgres

import "github.com/dbcron/dbcron/internal/sqlrun"

var tableLocks = &sqlrun.TableLocks{
	// Longer than deadlock_timeout, after which the server ends an autovacuum that is in the way.
	Bound: `SELECT set_config('lock_timeout', CAST(LEAST(CAST(setting AS INTEGER) + 500, 3000) AS TEXT), true)
		FROM pg_settings WHERE name = 'deadlock_timeout'`,
	TimedOut: sqlState("55P03"),
	// The server does not show when other users' transactions began.
	Holders: `
		SELECT 'session ' || pid || ' of ' || COALESCE(usename, '?') || ' (' || COALESCE(NULLIF(application_name, ''), 'no name') || ', ' || COALESCE(state, '?') ||
			') has had a transaction open' || COALESCE(' for ' || CAST(date_trunc('second', clock_timestamp() - xact_start) AS TEXT), '')
		FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND COALESCE(xact_start < clock_timestamp() - INTERVAL '1 second', TRUE)
			AND pid IN (SELECT l.pid FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
				WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
				AND c.relname LIKE $1 AND c.relname <> $2)
		ORDER BY xact_start LIMIT 3`,
	Waits: sqlrun.Strain{
		Subject: "table locks",
		Query: `
			SELECT 'session ' || b.pid || ' of ' || COALESCE(b.usename, '?') || ' (' || COALESCE(NULLIF(b.application_name, ''), 'no name') || ', ' ||
				COALESCE(b.state, '?') || ') has locked ' || c.relname || COALESCE(', in a transaction open for ' ||
				CAST(date_trunc('second', clock_timestamp() - b.xact_start) AS TEXT), '') || '; sessions that wait for it: ' || COUNT(DISTINCT w.pid)
			FROM pg_locks AS w JOIN pg_class AS c ON c.oid = w.relation JOIN pg_stat_activity AS a ON a.pid = w.pid
				JOIN pg_stat_activity AS b ON b.pid = ANY(pg_blocking_pids(w.pid))
			WHERE NOT w.granted AND w.database = (SELECT oid FROM pg_database WHERE datname = current_database())
				AND COALESCE(a.query_start < clock_timestamp() - INTERVAL '2 seconds', TRUE) AND c.relname LIKE $1 AND c.relname <> $2
				AND NOT EXISTS (SELECT 1 FROM pg_locks AS x WHERE x.pid = b.pid AND NOT x.granted)
			GROUP BY b.pid, b.usename, b.application_name, b.state, b.xact_start, c.relname ORDER BY b.xact_start LIMIT 3`,
		Advice: "have its program end the transaction, or end the session (pg_terminate_backend): what needs the table stands still until then",
	},
	HoldersOf: func(prefix string) []any { return []any{prefix + "%", prefix + "migration"} },
}
