package mysql

import (
	"context"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// What keeps InnoDB from cleaning up after updates and deletes, of which queues have many. Each
// statement returns one line per problem; the first two need the right PROCESS.
const (
	oldSnapshots = `
		SELECT CONCAT('transaction ', trx_id, ' of connection ', trx_mysql_thread_id, ' has been open since ', trx_started)
		FROM information_schema.innodb_trx WHERE trx_started < NOW() - INTERVAL 10 MINUTE ORDER BY trx_started LIMIT 5`
	historyList = `
		SELECT CONCAT('the history list has ', count, ' entries that are not purged')
		FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len' AND count > 1000000`
	unused = `
		SELECT CONCAT(table_name, ' has ', data_free DIV 1048576, ' MiB that are not used, beside ', (data_length + index_length) DIV 1048576)
		FROM information_schema.tables WHERE table_schema = ? AND table_name LIKE ?
			AND data_free > 1073741824 AND data_free > 4 * (data_length + index_length) ORDER BY data_free DESC LIMIT 5`
)

// strain looks for what makes the database slow over time.
func strain(ctx context.Context, db *sqlrun.DB) ([]sqlrun.Finding, error) {
	return db.Strains(ctx, []sqlrun.Strain{
		{
			Subject: "snapshots", Query: oldSnapshots, Fine: "no transaction has been open for ten minutes",
			Advice: "end it (KILL the connection), or have its program commit: until then nothing is purged, and claims become slower",
		},
		{Subject: "bloat", Query: historyList, Advice: "if there is an old transaction, end that first; then purge catches up by itself"},
		{
			Subject: "bloat", Query: unused, Args: []any{db.Home(), db.Options().Prefix + "%"}, Fine: "no table is much larger than what is in it",
			Advice: "OPTIMIZE TABLE gives the space back; it copies the table",
		},
	})
}
