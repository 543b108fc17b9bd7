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
	HoldersOf: func(prefix string) []any { return []any{prefix + "%", prefix + "migration"} },
}
