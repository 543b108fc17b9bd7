package mysql

import (
	"context"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// What keeps InnoDB from cleaning up after updates and deletes, of which queues have many. Each
// statement returns one line per problem; the first two need the right PROCESS.
const (
	// openFor is for how many seconds a transaction has been open. trx_started is local time of the server's host: no
	// variable changes that, neither of the server nor of the session. In the hour that comes twice it means two
	// instants, and over a clock change a difference of local times is wrong: so it is the shorter of both readings.
	openFor = `GREATEST(0, LEAST(TIMESTAMPDIFF(SECOND, CONVERT_TZ(trx_started, 'SYSTEM', '+00:00'), UTC_TIMESTAMP()),
			TIMESTAMPDIFF(SECOND, trx_started, CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM'))))`

	oldSnapshots = `
		SELECT CONCAT('transaction ', trx_id, ' of connection ', trx_mysql_thread_id, ' has been open for ', SEC_TO_TIME(` + openFor + `))
		FROM information_schema.innodb_trx WHERE ` + openFor + ` > 600 ORDER BY trx_started LIMIT 5`
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
