package mysql

import "github.com/dbcron/dbcron/internal/sqlrun"

var tableLocks = &sqlrun.TableLocks{
	Bound:    "SET @dbcron_lock_wait_timeout = @@SESSION.lock_wait_timeout, SESSION lock_wait_timeout = 1",
	Unbound:  "SET SESSION lock_wait_timeout = @dbcron_lock_wait_timeout",
	TimedOut: numbered(1205),
	// It needs the right PROCESS.
	Holders: `
		SELECT CONCAT('connection ', trx_mysql_thread_id, ' has had a transaction open for ', SEC_TO_TIME(` + openFor + `))
		FROM information_schema.innodb_trx WHERE trx_mysql_thread_id <> CONNECTION_ID() ORDER BY trx_started LIMIT 3`,
}
