package store

import (
	"strconv"
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Jobs of fair queues that are ahead of what a worker has read. Like the other reads of a leased block, these lock nothing.
var (
	// LookAhead says which tenants have jobs above some ids, in the next rows of each priority: the first and last of their ids,
	// how many they are, and the first and last of those with keys that follow late ones.
	LookAhead = sqlrun.SQL("queue.look-ahead", lookAhead())

	// FetchTenants reads the next jobs of some tenants, up to an id. A job that names none is one of the tenant ''. The names are a list
	// and no {records}: MariaDB would compare each row with all of them, and neither it nor MySQL would end at the limit.
	FetchTenants = reading(readyColumns, sqlrun.SQL("queue.fetch-tenants", `SELECT `+readyColumns+` FROM {prefix}job
		WHERE queue_id = :queue AND divided = :divided AND priority = :priority AND id > :after AND id <= :upto
			AND COALESCE(tenant, '') IN (:tenants) ORDER BY id LIMIT :limit`))
)

func lookAhead() string {
	var parts []string
	bits, mark := strconv.Itoa(Follower+1), strconv.Itoa(Follower)
	for _, p := range Priorities {
		parts = append(parts, `SELECT `+p+` AS priority, tenant, MIN(id), MAX(id), COUNT(*), COALESCE(MIN(mark), 0), COALESCE(MAX(mark), 0)
			FROM (SELECT id, COALESCE(tenant, '') AS tenant, CASE WHEN id % `+bits+` = `+mark+` AND job_key <> '' THEN id END AS mark FROM {prefix}job
			WHERE queue_id = :queue AND divided = :divided AND priority = `+p+` AND id > :after`+p+` ORDER BY id LIMIT :limit) AS p`+p+` GROUP BY tenant`)
	}
	return strings.Join(parts, "\nUNION ALL ")
}
