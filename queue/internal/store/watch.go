package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// LookFor returns the blocks that have jobs above their cursors. It selects the first one by
// the key, and not by EXISTS: see anyIn. It orders by the whole key: MySQL does not see that
// its first columns are constant within a subquery, and would sort.
var LookFor = sqlrun.SQL("queue.look", `
	SELECT queue, block FROM {records rows: queue int, block int, after1 int, after2 int, after3 int, after4 int}
	WHERE `+above("1")+` OR `+above("2")+` OR `+above("3")+` OR `+above("4"))

func above(priority string) string {
	return `(SELECT id FROM {prefix}job WHERE queue_id = queue AND divided = block AND priority = ` +
		priority + ` AND id > after` + priority + ` ORDER BY queue_id, divided, priority, id LIMIT 1) IS NOT NULL`
}

// LookForAny is a cheaper question.
var LookForAny = sqlrun.SQL("queue.look-any", `SELECT id FROM {prefix}job WHERE {in queue_id :queues} AND `+notSentinel+` LIMIT 1`)
