package postgres

import (
	"context"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// What keeps a server from cleaning up after updates and deletes, of which queues have many. Each
// statement returns one line per problem, as far as the user may see it.
const (
	oldSnapshots = `
		SELECT 'session ' || pid || ' of ' || COALESCE(usename, '?') || ' (' || COALESCE(NULLIF(application_name, ''), 'no name') || ', ' || COALESCE(state, '?') ||
			') has had a transaction open for ' || CAST(date_trunc('second', now() - xact_start) AS TEXT)
		FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND xact_start < now() - INTERVAL '10 minutes' AND pid <> pg_backend_pid()
			AND COALESCE(backend_type, '') NOT LIKE 'autovacuum%' ORDER BY xact_start LIMIT 5`
	prepared = `
		SELECT 'transaction ' || gid || ' has been prepared for ' || CAST(date_trunc('second', now() - prepared) AS TEXT)
		FROM pg_prepared_xacts WHERE prepared < now() - INTERVAL '10 minutes' ORDER BY prepared LIMIT 5`
	slots = `
		SELECT 'replication slot ' || slot_name || ', which nobody reads, holds rows back'
		FROM pg_replication_slots WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL) ORDER BY slot_name LIMIT 5`
	bloat = `
		SELECT relname || ' has ' || n_dead_tup || ' dead rows beside ' || n_live_tup || ', and was last cleaned ' ||
			COALESCE(CAST(date_trunc('second', now() - GREATEST(last_vacuum, last_autovacuum)) AS TEXT) || ' ago', 'never')
		FROM pg_stat_user_tables WHERE relname LIKE $1 AND n_dead_tup > 50000 AND n_dead_tup > 2 * n_live_tup ORDER BY n_dead_tup DESC LIMIT 5`
)

// strain looks for what makes the database slow over time.
func strain(ctx context.Context, db *sqlrun.DB) ([]sqlrun.Finding, error) {
	like := "%" + db.Options().Prefix + "%"
	return db.Strains(ctx, []sqlrun.Strain{
		{
			Subject: "snapshots", Query: oldSnapshots, Fine: "no transaction has been open for ten minutes",
			Advice: "end it (pg_terminate_backend), or have its program commit: until then no dead row can be removed, and claims become slower",
		},
		{Subject: "snapshots", Query: prepared, Advice: "COMMIT PREPARED or ROLLBACK PREPARED it: until then no dead row can be removed"},
		{Subject: "snapshots", Query: slots, Advice: "start its reader, or drop the slot (pg_drop_replication_slot): until then no dead row can be removed"},
		{
			Subject: "bloat", Query: bloat, Args: []any{like}, Fine: "no table has many dead rows",
			Advice: "if there is an old snapshot, end that first; then VACUUM the table, and see that autovacuum is on",
		},
	})
}
